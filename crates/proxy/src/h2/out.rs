//! Bytes on their way out, put together in a buffer that the thread's connections share: one that
//! has nothing to send owns none.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use crate::connection::Transport;

/// Beyond it, what is there is sent before more is made, and nothing more is read.
pub(super) const BATCH: usize = 64 * 1024;

thread_local! {
    static SHARED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes on their way out.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// Behind what has gone.
    pub(super) bytes: Vec<u8>,
    gone: usize,
}

impl Out {
    /// Takes the thread's buffer, unless there still is something in one of its own.
    pub(super) fn borrow(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = SHARED.take();
            self.bytes.clear();
        }
    }

    /// Gives it back, unless there is something in it.
    pub(super) fn give_back(&mut self) {
        if self.bytes.is_empty() {
            SHARED.set(std::mem::take(&mut self.bytes));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.gone
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= BATCH
    }

    /// Sends everything. Says whether anything was sent.
    pub(super) fn poll_flush(
        &mut self,
        stream: &mut Transport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let any = !self.bytes.is_empty();
        while self.gone < self.bytes.len() {
            let rest = [IoSlice::new(&self.bytes[self.gone..])];
            match ready!(stream.poll_send(cx, &rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.gone += sent,
            }
        }
        self.bytes.clear();
        self.gone = 0;
        if stream.holds_back() {
            ready!(Pin::new(&mut stream.writer()).poll_flush(cx))?;
        }
        Poll::Ready(Ok(any))
    }
}

//! Output of a connection, assembled in a buffer that the thread's connections share: without pending output a
//! connection owns none.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use crate::connection::ClientTransport;

/// Pending bytes above which nothing more is read or produced until they are sent.
pub(super) const BATCH: usize = 64 * 1024;

thread_local! {
    static SHARED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Pending output.
#[derive(Debug, Default)]
pub(super) struct OutputBuffer {
    /// Bytes with those already sent at the front.
    bytes: Vec<u8>,
    gone: usize,
}

impl OutputBuffer {
    /// Takes the thread's buffer, unless the connection's own still holds output.
    pub(super) fn borrow(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = SHARED.take();
            self.bytes.clear();
        }
    }

    /// Returns the buffer, unless it holds output.
    pub(super) fn give_back(&mut self) {
        if self.bytes.is_empty() {
            SHARED.set(std::mem::take(&mut self.bytes));
        }
    }

    /// Returns the buffer to write to, at its end.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= BATCH
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.gone
    }

    /// Sends everything. Returns `true` if any bytes were sent.
    pub(super) fn poll_flush(
        &mut self,
        stream: &mut ClientTransport,
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
            ready!(stream.poll_flush(cx))?;
        }
        Poll::Ready(Ok(any))
    }
}

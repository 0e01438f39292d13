//! A stored body in a file, as it is sent to a client.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_store::FileBody;
use microcache_store::content::BLOCK;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes read at a time from the page cache: small enough to stay in the CPU cache until TLS
/// encrypts them.
const CACHED_READ: usize = 64 * 1024;

/// A reader of a file's body, or a part of it, block by block. Every block is verified before use;
/// reads run on threads that may block.
#[derive(Debug)]
pub struct FileReader {
    body: Arc<FileBody>,
    at: u64,
    end: u64,
    /// It started at the beginning and skipped nothing: the whole body is verified at the end.
    whole: bool,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FileReader {
    pub(crate) fn new(body: &Arc<FileBody>) -> Self {
        body.touch();
        Self {
            body: Arc::clone(body),
            at: 0,
            end: body.len(),
            whole: true,
            reading: None,
        }
    }

    /// Reads only the bytes from `first` to `last`, both included.
    pub(crate) fn slice(mut self, first: u64, last: u64) -> Self {
        self.at = first.min(self.end);
        self.end = last.saturating_add(1).min(self.end);
        self.whole = self.at == 0 && self.end == self.body.len();
        self
    }

    /// Bytes left to read.
    pub const fn remaining(&self) -> u64 {
        self.end - self.at
    }

    /// The file and the offset of the next byte, if the whole body has been verified, for sendfile.
    pub fn direct(&self) -> Option<(&File, u64)> {
        let (file, offset) = self.body.verified()?;
        self.reading
            .is_none()
            .then_some((file, offset.saturating_add(self.at)))
    }

    /// Advances past bytes sent directly.
    pub fn advance(&mut self, sent: u64) {
        self.at = self.at.saturating_add(sent).min(self.end);
    }

    /// The next bytes, if they are verified and in the page cache, so that no other thread is
    /// needed.
    fn read_cached(&self) -> Option<Bytes> {
        let room = usize::try_from(self.remaining()).unwrap_or(usize::MAX);
        self.body.read_cached(self.at, room.min(CACHED_READ))
    }

    /// The next bytes, `None` at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.at >= self.end {
            return Poll::Ready(None);
        }
        if self.reading.is_none()
            && let Some(bytes) = self.read_cached()
        {
            self.at += bytes.len() as u64;
            return Poll::Ready(Some(Ok(bytes)));
        }
        let number = self.at / BLOCK;
        let read = ready!(self.poll_block(number, cx));
        self.reading = None;
        let mut block = match read {
            Ok(block) => block,
            Err(error) => {
                self.body.mark_damaged();
                self.at = self.end;
                return Poll::Ready(Some(Err(error)));
            }
        };
        block.truncate((self.end - number * BLOCK).min(block.len() as u64) as usize);
        let part = block.split_off(((self.at - number * BLOCK) as usize).min(block.len()));
        self.at += part.len() as u64;
        if self.whole && self.at == self.body.len() {
            self.body.mark_verified();
        }
        Poll::Ready(Some(Ok(part)))
    }

    fn poll_block(&mut self, number: u64, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        // Outside a runtime this thread may block, and there is no other.
        if self.reading.is_none() && Handle::try_current().is_err() {
            return Poll::Ready(self.body.read_block(number));
        }
        let body = Arc::clone(&self.body);
        let reading = self
            .reading
            .get_or_insert_with(|| spawn_blocking(move || body.read_block(number)));
        let read = ready!(Pin::new(reading).poll(cx));
        Poll::Ready(read.map_err(io::Error::other).flatten())
    }
}

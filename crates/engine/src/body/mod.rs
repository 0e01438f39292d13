//! Message bodies: empty, one piece, a file, a shared fill, or a stream.

mod file;
pub(crate) mod frame;

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_store::Hit;

use crate::fill::FillReader;
pub use file::FileReader;
pub use frame::{BodyError, Frame};

/// A source of body frames.
pub trait Source: Send + Sync {
    /// The next frame, `None` at the end. After an error or the end it is not polled again.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>>;

    /// Returns true if the last frame was all that is available for now, and the waker of the poll that returned it is
    /// registered for the next one. A reader that is polled by one task then need not poll again before it is woken.
    fn is_drained(&self) -> bool {
        false
    }

    /// Called once the reader has been slow for a while: the source should release anything that
    /// others are waiting for.
    fn notify_slow_reader(&mut self) {}

    /// Returns true if the frames so far must not be stored, although nothing is missing.
    fn forbids_storing(&self) -> bool {
        false
    }

    /// Returns true if the source holds a file descriptor until it ends.
    fn has_descriptor(&self) -> bool {
        true
    }
}

/// A message body.
pub enum Body {
    /// No bytes.
    Empty,
    /// The whole body in one piece.
    Full(Bytes),
    /// The whole body of a stored response, in memory.
    Stored(Hit),
    /// A stored body in a file, or a part of it.
    File(FileReader),
    /// The body of a response being fetched, possibly shared with other requests.
    Fill(FillReader),
    /// The stream of the peer.
    Stream(Box<dyn Source>),
}

impl Body {
    /// The next frame, `None` at the end.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(Frame::Data(bytes))))
            }
            Self::Stored(hit) => {
                *self = Self::Full(hit.shared_body().unwrap_or_default());
                self.poll_frame(cx)
            }
            Self::File(reader) => reader.poll_read(cx).map(|read| {
                // The file is damaged or unreadable: the client must not take the truncated body
                // for the whole.
                read.map(|bytes| bytes.map(Frame::Data).map_err(|_| BodyError::Incomplete))
            }),
            Self::Fill(reader) => reader.poll_frame(cx),
            Self::Stream(source) => source.poll_frame(cx),
        }
    }

    /// Returns true if another poll before the waker wakes would be pending, see [`Source::is_drained`].
    pub fn is_drained(&self) -> bool {
        matches!(self, Self::Stream(source) if source.is_drained())
    }

    /// Returns true if its content must not be stored, see [`Source::forbids_storing`].
    pub fn forbids_storing(&self) -> bool {
        matches!(self, Self::Stream(source) if source.forbids_storing())
    }

    /// Notifies the source that its data is read slowly.
    pub fn notify_slow_reader(&mut self) {
        if let Self::Stream(source) = self {
            source.notify_slow_reader();
        }
    }

    /// The next frame, `None` at the end.
    pub async fn frame(&mut self) -> Option<Result<Frame, BodyError>> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Full(bytes) => write!(f, "Full({} bytes)", bytes.len()),
            Self::Stored(hit) => write!(f, "Stored({} bytes)", hit.body_len()),
            Self::File(file) => write!(f, "File({} bytes)", file.remaining()),
            Self::Fill(_) => f.write_str("Fill"),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

//! A message body on its way: nothing, one piece, a file, a fill that others read too, or a stream.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_policy::FieldsBuf;
use microcache_store::Hit;

use crate::cause::Cause;
use crate::file::FileReader;
use crate::fill::FillReader;

/// One step of a body.
#[derive(Clone, Debug)]
pub enum Frame {
    /// Some bytes; never none.
    Data(Bytes),
    /// The trailer section. Nothing follows it.
    Trailers(FieldsBuf),
}

/// The reason a body ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The peer closed before the length it had promised.
    #[error("the body ended before its announced length")]
    Incomplete,
    /// Nothing came for too long.
    #[error("the body stalled")]
    Timeout,
    /// It is longer than it may be.
    #[error("the body is too large")]
    TooLarge,
    /// The framing was broken.
    #[error("malformed body: {0}")]
    Malformed(&'static str),
    /// The reader was too slow: it kept others waiting, or pinned too much memory.
    #[error("the reader was too slow")]
    TooSlow,
    /// The connection failed.
    #[error("the connection was lost")]
    Disconnected,
    /// The peer gave it up by HTTP/2, with this code (RFC 9113 §7).
    #[error("the stream was reset with code {0}")]
    Reset(u32),
    /// Whatever the one says who brings it.
    #[error("the body broke off")]
    Other(#[source] Cause),
}

/// A source of body frames.
pub trait Source: Send + Sync {
    /// The next frame, `None` at the end. After an error or the end it is not polled again.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>>;

    /// Called once the reader has been slow for a while: the source should release anything that
    /// others are waiting for.
    fn is_held_up(&mut self) {}

    /// Returns true if the source holds a file descriptor until it ends.
    fn has_descriptor(&self) -> bool {
        true
    }
}

/// A message body.
pub enum Body {
    /// No bytes.
    Empty,
    /// All of it at once.
    Full(Bytes),
    /// The whole body of a stored response, in memory.
    Stored(Hit),
    /// A stored body in a file, or a part of it.
    File(FileReader),
    /// A response that is being fetched; other requests may be reading it as well.
    Fill(FillReader),
    /// Straight from the other side.
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
                *self = Self::Full(hit.body.bytes().cloned().unwrap_or_default());
                self.poll_frame(cx)
            }
            Self::File(reader) => reader.poll_read(cx).map(|read| {
                // What is on disk is not what was put there, or cannot be read: the client must
                // not take what it has for the whole.
                read.map(|bytes| bytes.map(Frame::Data).map_err(|_| BodyError::Incomplete))
            }),
            Self::Fill(reader) => reader.poll_frame(cx),
            Self::Stream(source) => source.poll_frame(cx),
        }
    }

    /// Tells the other side that its bytes are taken slowly.
    pub fn is_held_up(&mut self) {
        if let Self::Stream(source) = self {
            source.is_held_up();
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
            Self::Stored(hit) => write!(f, "Stored({} bytes)", hit.body.len()),
            Self::File(file) => write!(f, "File({} bytes)", file.remaining()),
            Self::Fill(_) => f.write_str("Fill"),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

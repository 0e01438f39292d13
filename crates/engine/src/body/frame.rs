//! The frames of a message body, and the errors that end it early.

use bytes::Bytes;
use microcache_policy::FieldsBuf;

use crate::cause::Cause;

/// One frame of a body.
#[derive(Clone, Debug)]
pub enum Frame {
    /// Data; never empty.
    Data(Bytes),
    /// The trailer section. Nothing follows it.
    Trailers(FieldsBuf),
}

/// The reason a body ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The peer closed before the announced length.
    #[error("the body ended before its announced length")]
    Incomplete,
    /// No data arrived in time.
    #[error("the body stalled")]
    Timeout,
    /// The body exceeds the size limit.
    #[error("the body is too large")]
    TooLarge,
    /// The framing is invalid.
    #[error("malformed body: {0}")]
    Malformed(&'static str),
    /// The reader was too slow: it kept others waiting, or pinned too much memory.
    #[error("the reader was too slow")]
    TooSlow,
    /// The connection failed.
    #[error("the connection was lost")]
    Disconnected,
    /// The peer reset the HTTP/2 stream with this code (RFC 9113 §7).
    #[error("the stream was reset with code {0}")]
    Reset(u32),
    /// An error of a custom source.
    #[error("the body was truncated")]
    Other(#[source] Cause),
}

//! Why a stream or a connection ends (RFC 9113 §5.4, §7).

use microcache_engine::BodyError;

/// An error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// Nothing went wrong.
    NoError = 0,
    /// The other side broke a rule.
    Protocol = 1,
    /// Something went wrong here.
    Internal = 2,
    /// More was sent than a window allows.
    FlowControl = 3,
    /// A frame came on a stream that had ended.
    StreamClosed = 5,
    /// A frame has a length that its kind cannot have.
    FrameSize = 6,
    /// Nothing was done for the request: it may be sent again.
    RefusedStream = 7,
    /// Nobody wants the stream any more.
    Cancel = 8,
    /// A field block cannot be read.
    Compression = 9,
    /// There was too much of something.
    EnhanceYourCalm = 11,
}

impl Reason {
    /// What a client is told of a body that breaks off. Where the origin has said by HTTP/2 that it gives up, or that there
    /// was too much of something, it is that; its other reasons are about its connection with us.
    pub(super) fn of(why: &BodyError) -> Self {
        let said = [Self::Cancel, Self::EnhanceYourCalm];
        let is_it = |reason: &Self| *why == BodyError::Reset(reason.code());
        said.into_iter().find(is_it).unwrap_or(Self::Internal)
    }

    /// As it stands in frames.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// A rule that the other side broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection cannot go on.
    Connection(Reason, &'static str),
    /// This stream cannot.
    Stream(u32, Reason, &'static str),
}

impl Fault {
    /// The rule that is broken most often.
    pub const fn protocol(what: &'static str) -> Self {
        Self::Connection(Reason::Protocol, what)
    }
}

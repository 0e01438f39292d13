//! Error codes and protocol errors (RFC 9113 §5.4, §7).

/// Error code (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// `NO_ERROR`.
    NoError = 0,
    /// `PROTOCOL_ERROR`.
    Protocol = 1,
    /// `INTERNAL_ERROR`.
    Internal = 2,
    /// `FLOW_CONTROL_ERROR`.
    FlowControl = 3,
    /// `STREAM_CLOSED`: a frame on a stream that has ended.
    StreamClosed = 5,
    /// `FRAME_SIZE_ERROR`.
    FrameSize = 6,
    /// `REFUSED_STREAM`: the request was not processed and may be retried.
    RefusedStream = 7,
    /// CANCEL.
    Cancel = 8,
    /// `COMPRESSION_ERROR`: a field block cannot be decoded.
    Compression = 9,
    /// `ENHANCE_YOUR_CALM`: a flood limit was exceeded.
    EnhanceYourCalm = 11,
}

impl ErrorCode {
    /// Returns the code as it is sent in frames.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// Protocol error of the peer, with its error code and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// Connection error: the connection must be closed (RFC 9113 §5.4.1).
    Connection(ErrorCode, &'static str),
    /// Stream error: the stream must be reset (RFC 9113 §5.4.2).
    Stream(u32, ErrorCode, &'static str),
}

impl ProtocolError {
    /// Connection error with `PROTOCOL_ERROR`.
    pub const fn protocol(what: &'static str) -> Self {
        Self::Connection(ErrorCode::Protocol, what)
    }
}

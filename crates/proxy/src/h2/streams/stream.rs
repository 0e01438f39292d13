//! One stream: a request under way.

use bytes::{Bytes, BytesMut};
use futures_util::future::AbortHandle;
use microcache_engine::Body;
use microcache_policy::{FieldsBuf, Time};

use crate::admission::PinGuard;
use crate::admission::ResponsePermits;
use crate::h2::flow::{INITIAL, ReceiveWindow, Window};
use crate::h2::priority::Priority;
use crate::h2::tunnel::OriginWriter;
use crate::h2::write_timeout::WriteTimeout;
use crate::session::{ContentSender, RequestAccount};

/// Properties of a request that its response depends on.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(in crate::h2) struct StreamRequest {
    pub(in crate::h2) id: u32,
    /// The client has not ended its stream.
    pub(in crate::h2) is_open: bool,
    pub(in crate::h2) head_only: bool,
    pub(in crate::h2) length: Option<u64>,
    pub(in crate::h2) expects_continue: bool,
    /// Extended CONNECT (RFC 8441).
    pub(in crate::h2) is_tunnel: bool,
    pub(in crate::h2) priority: Priority,
}

impl StreamRequest {
    /// A request that is answered with a page of this process, whatever else it says.
    pub(in crate::h2) fn refused(id: u32, is_open: bool, head_only: bool) -> Self {
        Self {
            id,
            is_open,
            head_only,
            length: None,
            expects_continue: false,
            is_tunnel: false,
            priority: Priority::default(),
        }
    }
}

/// State of a stream.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct Http2Stream {
    /// Send window of the response.
    pub(super) window: Window,
    /// Receive window of the request's content.
    pub(super) receive_window: ReceiveWindow,
    pub(super) priority: Priority,
    /// The client has not ended the stream.
    pub(super) is_open: bool,
    /// Extended CONNECT (RFC 8441).
    pub(super) is_tunnel: bool,
    /// The request was a HEAD.
    pub(super) head_only: bool,
    /// Remaining bytes of the announced `content-length`.
    pub(super) announced: Option<u64>,
    pub(super) content: Option<RequestContent>,
    pub(super) answer: StreamResponse,
    /// Tunnel or event stream, which does not end by itself.
    pub(super) is_endless: bool,
}

/// Content of a request, on its way to its receiver.
pub(super) struct RequestContent {
    /// Receiver; `None` while it is awaited.
    pub(super) sender: Option<ContentSink>,
    /// Content not passed on yet; at most the stream's window.
    pub(super) buffer: BytesMut,
    pub(super) trailers: Option<FieldsBuf>,
    pub(super) is_complete: bool,
    /// Bytes passed on and not yet taken.
    pub(super) handed_on: usize,
    pub(super) waits: EventHandle,
    /// Time since when the client is waited for.
    pub(super) awaited_since: Option<Time>,
    /// Timeout in milliseconds that replaces the least rate: the client takes part in a dialogue.
    pub(super) silence: Option<u64>,
}

/// Receiver of content.
pub(super) enum ContentSink {
    /// The session, for a request body.
    Request(ContentSender),
    /// The origin's connection, for a tunnel.
    Tunnel(OriginWriter),
}

/// Response of a stream.
pub(super) enum StreamResponse {
    /// Awaited.
    Awaited(#[expect(dead_code, reason = "it ends with the stream")] EventHandle),
    /// Being sent.
    Sending(Box<SendingResponse>),
}

/// A response whose head was sent.
pub(super) struct SendingResponse {
    /// Rest of the body; `None` while its next frame is awaited.
    pub(super) body: Option<Body>,
    pub(super) waits: EventHandle,
    /// Piece that is sent next.
    pub(super) piece: Bytes,
    pub(super) end: ResponseEnd,
    pub(super) account: RequestAccount,
    pub(super) stall: WriteTimeout,
    /// Deadline of a slow client that pins memory, or of an idle tunnel.
    pub(super) deadline: Option<Time>,
    pub(super) is_tunnel: bool,
    /// The piece is held for this client alone.
    pub(super) is_held: bool,
    /// The body's source was informed of a slow client.
    pub(super) is_held_up: bool,
    pub(super) _held: ResponsePermits,
    pub(super) _pin: Option<PinGuard>,
}

/// Continuation of a response behind its current piece.
pub(super) enum ResponseEnd {
    /// More of the body, or its end.
    Unknown,
    /// End of the body.
    Here,
    /// Trailers.
    Trailers(FieldsBuf),
}

/// Handle of an awaited event, which is cancelled on drop.
#[derive(Debug, Default)]
pub(super) struct EventHandle(Option<AbortHandle>);

impl EventHandle {
    pub(super) const fn until(handle: Option<AbortHandle>) -> Self {
        Self(handle)
    }
}

impl Drop for EventHandle {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.abort();
        }
    }
}

impl Http2Stream {
    /// Stream whose response is awaited.
    pub(super) fn new(
        stream_request: StreamRequest,
        content: Option<RequestContent>,
        window: Window,
    ) -> Self {
        Self {
            window,
            receive_window: ReceiveWindow::new(INITIAL),
            priority: stream_request.priority,
            is_open: stream_request.is_open,
            is_tunnel: stream_request.is_tunnel,
            head_only: stream_request.head_only,
            announced: stream_request.length.filter(|_| stream_request.is_open),
            content,
            answer: StreamResponse::Awaited(EventHandle::default()),
            is_endless: false,
        }
    }

    /// Returns `true` if something can be sent; `connection_open`: the connection's window is open.
    pub(super) fn is_ready(&self, connection_open: bool) -> bool {
        let StreamResponse::Sending(sending) = &self.answer else {
            return false;
        };
        if sending.piece.is_empty() {
            !matches!(sending.end, ResponseEnd::Unknown)
        } else {
            connection_open && self.window.open() > 0
        }
    }

    pub(super) fn sending(&mut self) -> Option<&mut SendingResponse> {
        match &mut self.answer {
            StreamResponse::Sending(sending) => Some(sending),
            StreamResponse::Awaited(_) => None,
        }
    }

    /// Returns the bytes of the connection's window that this stream occupies.
    pub(super) fn unread(&self) -> usize {
        let unread = |content: &RequestContent| content.buffer.len() + content.handed_on;
        self.content.as_ref().map_or(0, unread)
    }
}

impl RequestContent {
    /// Content of a request, before any of it has arrived.
    pub(super) fn new() -> Self {
        Self {
            sender: None,
            buffer: BytesMut::new(),
            trailers: None,
            is_complete: false,
            handed_on: 0,
            waits: EventHandle::default(),
            awaited_since: None,
            silence: None,
        }
    }
}

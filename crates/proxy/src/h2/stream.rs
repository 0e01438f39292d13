//! One stream: a request under way.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::AbortHandle;
use microcache_engine::Body;
use microcache_policy::{FieldsBuf, Time};

use super::flow::{ReceiveWindow, Window};
use super::priority::Priority;
use super::tunnel::OriginWriter;
use crate::admission::{PinGuard, ResponsePermits};
use crate::session::{Allowance, ContentSender, RequestAccount};

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

/// Write timeout of a response. Bytes taken extend it at the least accepted rate, so opening the window by a
/// byte now and then does not help.
pub(super) struct WriteTimeout {
    since: Option<Time>,
    allowance: Allowance,
}

impl WriteTimeout {
    pub(super) fn new(most: Duration, rate: u64) -> Self {
        Self {
            since: None,
            allowance: Allowance::new(most, rate),
        }
    }

    /// Starts the timeout: nothing can be sent.
    pub(super) fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// Records bytes sent.
    pub(super) fn sent(&mut self, bytes: usize, now: Time) {
        if let Some(since) = self.since.take() {
            let waited = Duration::from_millis(now.since(since));
            self.allowance.received(bytes, waited);
        }
    }

    pub(super) const fn since(&self) -> Option<Time> {
        self.since
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let left = self.allowance.left().as_millis() as u64;
        self.since.map(|since| since.plus(left))
    }
}

impl Http2Stream {
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

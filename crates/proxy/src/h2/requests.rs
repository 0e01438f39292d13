//! Requests: from a decoded head to the session. Hits are answered at once.

use std::task::Context;

use http::{Method, Version};
use microcache_engine::{Body, Request, Response};
use microcache_policy::key::without_port;

use super::connection::Http2ServerConnection;
use super::flood_limits::LEAST_TAKEN;
use super::flow::{INITIAL, ReceiveWindow, Window};
use super::out::BATCH;
use super::priority::Priority;
use super::reason::{ErrorCode, ProtocolError};
use super::section::{DecodedHead, FieldSection, SectionError};
use super::stream::{EventHandle, Http2Stream, RequestContent, StreamResponse, WriteTimeout};
use super::stream_events::StreamEvent;
use super::tunnel::seems_agreed;
use super::write;
use crate::session::{AnnouncedContent, DeferredRequest, Reply, is_bodiless, pages};

/// Properties of a request that its response depends on.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct StreamRequest {
    pub(super) id: u32,
    /// The client has not ended its stream.
    pub(super) is_open: bool,
    pub(super) head_only: bool,
    pub(super) length: Option<u64>,
    pub(super) expects_continue: bool,
    /// Extended CONNECT (RFC 8441).
    pub(super) is_tunnel: bool,
    pub(super) priority: Priority,
}

impl Http2ServerConnection<'_> {
    /// Handles a request.
    pub(super) fn take_request(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        ends: bool,
        section: &mut FieldSection,
    ) -> Result<(), ProtocolError> {
        let malformed = |what| ProtocolError::Stream(id, ErrorCode::Protocol, what);
        let head = match section.request() {
            Ok(head) => head,
            Err(SectionError::Malformed(what)) => {
                // Counted and logged as over HTTP/1; the client receives a reset.
                self.session.refuse(400, what, Version::HTTP_2);
                return Err(malformed(what));
            }
            Err(SectionError::Refused(status, reason)) => {
                let page = self.session.refuse(status, reason, Version::HTTP_2);
                self.answer_now(id, !ends, false, &page);
                return Ok(());
            }
        };
        if self.is_misdirected(head.host) {
            let reason = "the certificate of this connection does not cover this host";
            let page = self.session.refuse(421, reason, Version::HTTP_2);
            self.answer_now(id, !ends, head.method == b"HEAD", &page);
            return Ok(());
        }
        if ends && head.length.is_some_and(|length| length > 0) {
            return Err(malformed("no content despite content-length"));
        }
        let Ok(method) = Method::from_bytes(head.method) else {
            return Err(malformed("an invalid method"));
        };
        let stream_request = StreamRequest {
            id,
            is_open: !ends,
            head_only: method == Method::HEAD,
            length: head.length,
            expects_continue: head.expects_continue,
            is_tunnel: head.is_tunnel,
            priority: head.priority,
        };
        self.serve_request(cx, &method, &head, stream_request);
        Ok(())
    }

    /// Returns `true` if the certificate of this connection does not cover the host (421, RFC 9110 §7.4).
    /// Trusted proxies are exempt.
    fn is_misdirected(&self, host: &[u8]) -> bool {
        let Some(certificate) = &self.certificate else {
            return false;
        };
        let is_covered =
            str::from_utf8(without_port(host)).is_ok_and(|host| certificate.covers(host));
        !is_covered && !self.session.is_trusted()
    }

    fn serve_request(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
        head: &DecodedHead<'_>,
        stream_request: StreamRequest,
    ) {
        let session = &self.session;
        let request = Request {
            has_body: stream_request.is_open && !stream_request.is_tunnel,
            upgrade: stream_request.is_tunnel,
            ..session.request(method, head.host, head.target, head.fields)
        };
        let mut reply = None;
        let route = self.session.serve(&request, self.now, &mut reply);
        match reply {
            // A success that is not a tunnel must not look like one.
            Some(Reply::Now(response)) if stream_request.is_tunnel && seems_agreed(&response) => {
                let page = pages::not_switched(self.now);
                self.session
                    .finished(route, &request, Version::HTTP_2, &page, self.now);
                self.answer_now(stream_request.id, stream_request.is_open, false, &page);
            }
            Some(Reply::Now(response)) if self.fits(&response, stream_request.head_only) => {
                let session = &self.session;
                if session.finished(route, &request, Version::HTTP_2, &response, self.now) {
                    self.timed = Some(route);
                }
                self.answer_now(
                    stream_request.id,
                    stream_request.is_open,
                    stream_request.head_only,
                    &response,
                );
            }
            Some(Reply::Now(response)) => {
                let session = &self.session;
                let account =
                    session.account_of(route, &request, Version::HTTP_2, &response, self.now);
                let wait = StreamResponse::Awaited(EventHandle::default());
                if self.open(stream_request, None, wait) {
                    self.answer(cx, stream_request.id, response, account, <_>::default());
                }
            }
            Some(Reply::Ask(unanswered)) => self.ask(cx, unanswered, stream_request),
            // The session always sets a reply.
            None => self.reset(stream_request.id, ErrorCode::Internal),
        }
    }

    /// Returns `true` if the whole response can be sent now.
    fn fits(&self, response: &Response, head_only: bool) -> bool {
        let length = match &response.body {
            _ if is_bodiless(response.status, head_only) => return true,
            Body::Empty => 0,
            Body::Full(bytes) => bytes.len(),
            Body::Stored(hit) => hit.body.bytes().map_or(0, bytes::Bytes::len),
            Body::File(_) | Body::Fill(_) | Body::Stream(_) => return false,
        };
        let window = self.window.open().min(self.theirs.window as usize);
        length == 0
            || length <= window.min(BATCH)
                && (self.streams.is_empty() || !self.streams.any_ready(true))
    }

    /// Sends a complete response that fits, without creating a stream.
    fn answer_now(&mut self, id: u32, is_open: bool, head_only: bool, response: &Response) {
        let bytes = match &response.body {
            _ if is_bodiless(response.status, head_only) => &[][..],
            Body::Full(bytes) => bytes,
            Body::Stored(hit) => hit.body.bytes().map_or(&[][..], |bytes| &bytes[..]),
            _ => &[],
        };
        self.write_head(id, response, bytes.is_empty());
        let out = &mut self.out.bytes;
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = rest.len().min(super::frame::MAX_PAYLOAD);
            let (piece, behind) = rest.split_at(length);
            write::data(out, id, piece, behind.is_empty());
            rest = behind;
            self.flood_limits.sent_data();
        }
        // Fits the window, as checked before.
        let _ = self.window.take(bytes.len());
        if is_open {
            // RFC 9113 §8.1: the client need not send the rest.
            write::reset(out, id, ErrorCode::NoError);
            self.streams.cut_short(id);
        }
    }

    /// Sends a request to the origin.
    fn ask(
        &mut self,
        cx: &mut Context<'_>,
        unanswered: Box<DeferredRequest>,
        stream_request: StreamRequest,
    ) {
        let has_content = stream_request.is_open && !stream_request.is_tunnel;
        let announced = has_content.then_some(AnnouncedContent {
            length: stream_request.length,
            expects_continue: stream_request.expects_continue,
        });
        let (mut answering, sender) = self.session.ask(unanswered, Version::HTTP_2, announced);
        let content = (sender.is_some() || stream_request.is_tunnel).then(RequestContent::new);
        if !self.open(
            stream_request,
            content,
            StreamResponse::Awaited(EventHandle::default()),
        ) {
            return;
        }
        if let Some(sender) = sender {
            self.await_room(cx, stream_request.id, sender);
        }
        let waits = self.pending_events.wait(cx, stream_request.id, async move {
            let event = answering.next().await;
            StreamEvent::Session(Box::new(answering), event)
        });
        if let Some(stream) = self.streams.get(stream_request.id) {
            stream.answer = StreamResponse::Awaited(waits);
        }
    }

    /// Registers a stream. Returns `false` if the connection was dismissed meanwhile.
    fn open(
        &mut self,
        stream_request: StreamRequest,
        content: Option<RequestContent>,
        answer: StreamResponse,
    ) -> bool {
        if self.streams.is_empty() {
            if !self.activity.begin() {
                self.leave(ErrorCode::NoError, "");
                return false;
            }
        } else {
            self.activity.begin_another();
        }
        let stream = Http2Stream {
            window: Window::new(self.theirs.window),
            receive_window: ReceiveWindow::new(INITIAL),
            priority: stream_request.priority,
            is_open: stream_request.is_open,
            is_tunnel: stream_request.is_tunnel,
            head_only: stream_request.head_only,
            announced: stream_request.length.filter(|_| stream_request.is_open),
            content,
            answer,
            is_endless: false,
        };
        self.streams.insert(stream_request.id, stream);
        true
    }

    /// Removes a stream, and cancels its awaited events.
    pub(super) fn forget(&mut self, id: u32) {
        let Some(mut stream) = self.streams.remove(id) else {
            return;
        };
        self.release(stream.unread());
        if let Some(sending) = stream.sending()
            && sending.is_held
        {
            self.held = self.held.saturating_sub(sending.piece.len());
        }
        if self.streams.is_empty() {
            self.quiet = self.now;
            self.activity.end(self.now);
        } else {
            self.mark_endless();
        }
    }

    /// Marks a connection on which no stream ends by itself as endless, so that it may be closed. One without
    /// streams is idle already.
    pub(super) fn mark_endless(&mut self) {
        let is_idle = self.streams.is_empty();
        if !is_idle && self.streams.iter().all(|(_, stream)| stream.is_endless) {
            self.activity.mark_endless();
        }
    }

    /// Returns the write timeout of a new response.
    pub(super) fn stall(&self) -> WriteTimeout {
        WriteTimeout::new(self.session.shared.timeouts.write, LEAST_TAKEN)
    }
}

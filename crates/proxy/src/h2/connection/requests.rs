//! Requests: from a decoded head to the session. Hits are answered at once.

use std::task::Context;

use http::{Method, Version};
use microcache_engine::{Body, Request, Response};
use microcache_policy::key::without_port;

use super::Http2ServerConnection;
use crate::h2::reason::{ErrorCode, ProtocolError};
use crate::h2::section::{DecodedHead, FieldSection, SectionError};
use crate::h2::streams::StreamRequest;
use crate::h2::tunnel::seems_agreed;
use crate::session::{
    AnnouncedContent, DeferredRequest, Reply, RequestAccount, is_bodiless, method, pages,
};

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
                self.answer_page(cx, id, !ends, false, page);
                return Ok(());
            }
        };
        if self.is_misdirected(head.host) {
            let reason = "the certificate of this connection does not cover this host";
            let page = self.session.refuse(421, reason, Version::HTTP_2);
            let head_only = head.method == b"HEAD";
            self.answer_page(cx, id, !ends, head_only, page);
            return Ok(());
        }
        if ends && head.length.is_some_and(|length| length > 0) {
            return Err(malformed("no content despite content-length"));
        }
        let Ok(method) = method(head.method) else {
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
    fn is_misdirected(&mut self, host: &[u8]) -> bool {
        let Some(certificate) = &self.certificate else {
            return false;
        };
        // Nearly all requests of a connection are for the same host.
        if self.covered_host.as_deref() == Some(host) {
            return false;
        }
        let is_covered =
            str::from_utf8(without_port(host)).is_ok_and(|host| certificate.covers(host));
        if is_covered {
            let covered_host = self.covered_host.get_or_insert_default();
            covered_host.clear();
            covered_host.extend_from_slice(host);
        }
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
                self.answer_page(cx, stream_request.id, stream_request.is_open, false, page);
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
                self.answer_in_turns(cx, stream_request, response, account);
            }
            Some(Reply::Deferred(unanswered)) => self.ask(cx, unanswered, stream_request),
            // The session always sets a reply.
            None => self.streams.reset(
                stream_request.id,
                ErrorCode::Internal,
                self.now,
                &mut self.outbound,
            ),
        }
    }

    /// Returns `true` if the whole response can be sent now.
    fn fits(&self, response: &Response, head_only: bool) -> bool {
        let length = match &response.body {
            _ if is_bodiless(response.status, head_only) => return true,
            Body::Empty => 0,
            Body::Full(bytes) => bytes.len(),
            Body::Stored(hit) => hit.body().map_or(0, <[u8]>::len),
            Body::File(_) | Body::Fill(_) | Body::Stream(_) => return false,
        };
        length == 0 || self.outbound.fits(length) && self.streams.is_none_ready()
    }

    /// Sends a complete response that fits, without creating a stream.
    fn answer_now(&mut self, id: u32, is_open: bool, head_only: bool, response: &Response) {
        let bytes = match &response.body {
            _ if is_bodiless(response.status, head_only) => &[][..],
            Body::Full(bytes) => bytes,
            Body::Stored(hit) => hit.body().unwrap_or_default(),
            _ => &[],
        };
        let strict = self.session.strict();
        self.outbound.head(id, response, bytes.is_empty(), strict);
        self.outbound.whole_content(id, bytes);
        if is_open {
            // RFC 9113 §8.1: the client need not send the rest.
            self.outbound.reset(id, ErrorCode::NoError);
            self.streams.cut_short(id);
        }
    }

    /// Sends a generated page that is counted already.
    fn answer_page(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        is_open: bool,
        head_only: bool,
        page: Response,
    ) {
        if self.fits(&page, head_only) {
            return self.answer_now(id, is_open, head_only, &page);
        }
        let refused = StreamRequest::refused(id, is_open, head_only);
        self.answer_in_turns(cx, refused, page, <_>::default());
    }

    /// Sends a response that does not fit, as the windows and other responses allow.
    fn answer_in_turns(
        &mut self,
        cx: &mut Context<'_>,
        stream_request: StreamRequest,
        response: Response,
        account: RequestAccount,
    ) {
        if self.begin(stream_request, false) {
            let (streams, mut poll) = self.split(cx);
            streams.answer(
                &mut poll,
                stream_request.id,
                response,
                account,
                <_>::default(),
            );
        }
    }

    /// Sends a request to the origin.
    fn ask(
        &mut self,
        cx: &mut Context<'_>,
        unanswered: DeferredRequest,
        stream_request: StreamRequest,
    ) {
        let has_content = stream_request.is_open && !stream_request.is_tunnel;
        let announced = has_content.then_some(AnnouncedContent {
            length: stream_request.length,
            expects_continue: stream_request.expects_continue,
        });
        let (answering, sender) = self.session.ask(unanswered, Version::HTTP_2, announced);
        if self.begin(stream_request, sender.is_some() || stream_request.is_tunnel) {
            self.streams
                .await_response(cx, stream_request.id, Box::new(answering), sender);
        }
    }

    /// Registers the stream of a request whose response takes time. Returns `false` if the connection was
    /// dismissed meanwhile.
    fn begin(&mut self, stream_request: StreamRequest, has_content: bool) -> bool {
        let window = self.outbound.stream_window();
        let is_begun = self.streams.begin(stream_request, has_content, window);
        if !is_begun {
            self.leave(ErrorCode::NoError, "");
        }
        is_begun
    }
}

//! Hot path: requests that are answered at once, out of one buffer.

use std::borrow::Cow;
use std::task::Context;
use std::time::Instant;

use bytes::Bytes;
use http::Method;
use microcache_engine::{Body, Request, Response, RouteId};
use microcache_policy::{FieldIndex, Time, upgrade};
use microcache_wire::h1::{
    BadRequest, Framing, RequestHead, RequestTarget, parse_request, split_target,
};
use microcache_wire::proxy_protocol;

use super::head::{BodyEnding, ResponseFraming, be_strict, ending, write_head};
use super::pending::PendingRequest;
use super::send::{self, OutputQueue};
use super::state::{AfterSend, COPY, Connection, FileAnswer, HitLoopExit};
use crate::h2;
use crate::metrics;
use crate::session::{Reply, method};

/// Size in bytes up to which responses to pipelined requests are collected before a write.
const BATCH: usize = 64 * 1024;

/// Body of what is complete in the output buffer. Not a temporary value, whose drop is a call.
static NO_BODY: Bytes = Bytes::new();

/// Host and target.
type HostAndTarget<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Returns `true` if these bytes, complete or not, begin a HEAD, whose responses have no content.
pub(super) fn is_head(input: &[u8]) -> bool {
    let start = input.iter().position(|b| !b"\r\n".contains(b));
    start.is_some_and(|start| input[start..].starts_with(b"HEAD "))
}

const fn has_body(head: &RequestHead<'_>) -> bool {
    !matches!(head.framing, Framing::None | Framing::Length(0))
}

impl Connection {
    /// Serves the requests in `input` as long as they are hits. Returns the number of bytes consumed.
    pub(super) fn serve_buffer(
        &mut self,
        cx: &mut Context<'_>,
        input: &[u8],
        index: &mut FieldIndex,
        out: &mut Vec<u8>,
        read_at: &mut Option<Time>,
    ) -> (usize, Option<HitLoopExit>) {
        self.session.catch_up();
        if self.requests == 0 && self.stream.has_agreed_on_http2() {
            return (0, Some(HitLoopExit::Http2));
        }
        // Not that of the poll: there may be many buffers in one.
        let now = *read_at.insert(self.session.shared.engine.clock.read());
        let began = metrics::is_next().then(Instant::now);
        let mut timed = None;
        let mut used = 0;
        let mut next = None;
        while next.is_none() && used < input.len() {
            // Parsed in place: moving a head costs as much as reading one of its fields.
            match &parse_request(&input[used..], &self.session.shared.head_limits, index) {
                Ok(None) => break,
                Err(bad) => match self.is_http2(&input[used..], used) {
                    None if self.is_proxy_header(input) => {
                        self.session.refuse_proxy_header();
                        next = Some(HitLoopExit::Close);
                    }
                    None => next = Some(HitLoopExit::Refuse(*bad, is_head(&input[used..]))),
                    Some(true) => next = Some(HitLoopExit::Http2),
                    Some(false) => break,
                },
                Ok(Some((head, length))) => {
                    used += length;
                    self.requests += 1;
                    self.is_last_request = !head.keep_alive && !head.upgrade && !has_body(head);
                    self.client_deadline.deadline = now.plus(self.session.shared.idle_millis);
                    let is_followed = used < input.len();
                    next = self.serve_head(cx, head, is_followed, now, out, &mut timed);
                }
            }
            if out.len() > BATCH && next.is_none() {
                next = self.flush(cx, out, &NO_BODY, AfterSend::Continue);
            }
        }
        if used > 0 && next.is_none() && !self.activity.answered(now) {
            next = Some(HitLoopExit::Close);
        }
        if !out.is_empty() {
            // Completed responses go first, whatever comes next.
            let flushed = self.flush(cx, out, &NO_BODY, AfterSend::Continue);
            next = match (flushed, next) {
                (None, next) => next,
                (Some(unsent), None) => Some(unsent),
                (Some(HitLoopExit::Send(output, _)), Some(next)) => Some(next.after(*output)),
                (Some(other), Some(_)) => Some(other),
            };
        }
        if let (Some(began), Some(route)) = (began, timed) {
            let metrics = &self.session.shared.metrics;
            metrics.hit_took(route, began.elapsed());
        }
        (used, next)
    }

    /// Checks for the HTTP/2 preface of a client with prior knowledge (RFC 9113 §3.3); `Some(false)` while it
    /// is incomplete. Not recognised behind a request, where a third party may have injected it.
    fn is_http2(&self, input: &[u8], behind: usize) -> Option<bool> {
        let is_first = behind == 0 && self.requests == 0;
        let is_begun = h2::PREFACE.starts_with(&input[..input.len().min(h2::PREFACE.len())]);
        (is_first && is_begun).then_some(input.len() >= h2::PREFACE.len())
    }

    /// Returns `true` if the connection begins with a PROXY header that is not allowed here.
    fn is_proxy_header(&self, input: &[u8]) -> bool {
        self.requests == 0 && proxy_protocol::is_begun(input)
    }

    fn serve_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &RequestHead<'_>,
        is_followed: bool,
        now: Time,
        out: &mut Vec<u8>,
        timed: &mut Option<RouteId>,
    ) -> Option<HitLoopExit> {
        let (host, target) = match self.target(head) {
            Ok(target) => target,
            Err(bad) => return Some(HitLoopExit::Refuse(bad, head.method == b"HEAD")),
        };
        let Ok(method) = method(head.method) else {
            return Some(HitLoopExit::Refuse(BadRequest::METHOD, false));
        };
        let has_body = has_body(head);
        let request = Request {
            has_body,
            upgrade: head.upgrade && upgrade::is_requested(head.fields),
            ..self.session.request(&method, &host, &target, head.fields)
        };
        let shared = &self.session.shared;
        // See `poll_followed`.
        let is_last = shared.is_leaving()
            || self.requests >= shared.requests_per_connection
            || head.upgrade && is_followed && !has_body;
        let mut response_framing = ResponseFraming {
            head_only: method == Method::HEAD,
            http10: head.http10,
            keep_alive: head.keep_alive && !is_last,
        };
        let mut reply = None;
        let route = self.session.serve(&request, now, &mut reply);
        if let Some(Reply::Now(response)) = &reply {
            // A response that leaves a request body unread must be the connection's last.
            response_framing.keep_alive &= !has_body;
            if !matches!(response.body, Body::File(_)) {
                let is_timed = self.session.finished(
                    route,
                    &request,
                    response_framing.version(),
                    response,
                    now,
                );
                if is_timed {
                    *timed = Some(route);
                }
                return self.answer(cx, response, response_framing, out);
            }
        }
        Some(match reply? {
            Reply::Now(response) => HitLoopExit::SendFile(Box::new(FileAnswer {
                account: self.session.account_of(
                    route,
                    &request,
                    response_framing.version(),
                    &response,
                    now,
                ),
                response,
                response_framing,
                unsent: OutputQueue::default(),
            })),
            Reply::Deferred(unanswered) => HitLoopExit::Ask(Box::new(PendingRequest::new(
                unanswered,
                head,
                has_body,
                response_framing,
            ))),
        })
    }

    /// Returns host and target of a request, whatever the form of its target.
    fn target<'a>(&'a self, head: &RequestHead<'a>) -> Result<HostAndTarget<'a>, BadRequest> {
        let host = head
            .host
            .unwrap_or(self.session.shared.default_host.as_bytes());
        // Nearly every target has this form, and the parser has validated its bytes.
        if head.target.starts_with(b"/") && head.method != b"CONNECT" {
            return Ok((host.into(), head.target.into()));
        }
        match split_target(head.method, head.target)? {
            RequestTarget::Origin(target) => Ok((host.into(), target.into())),
            RequestTarget::Asterisk => Ok((host.into(), b"*".into())),
            RequestTarget::Absolute {
                authority, path, ..
            } => Ok((authority.into(), path)),
            RequestTarget::Authority(_) => Err(BadRequest::METHOD),
        }
    }

    /// Appends a response with a complete body to the batch.
    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        response: &Response,
        response_framing: ResponseFraming,
        out: &mut Vec<u8>,
    ) -> Option<HitLoopExit> {
        let ending = ending(response, response_framing);
        debug_assert_eq!(ending, BodyEnding::Counted, "a stored body has a length");
        write_head(out, response, response_framing, ending);
        if let Some(policy) = self.session.strict() {
            be_strict(out, response, policy);
        }
        let after = if response_framing.keep_alive {
            AfterSend::Continue
        } else {
            AfterSend::Close
        };
        let body = match &response.body {
            _ if response_framing.head_only => &[],
            Body::Stored(hit) => hit.body().unwrap_or_default(),
            Body::Full(body) => &body[..],
            _ => &[],
        };
        if body.len() <= COPY {
            out.extend_from_slice(body);
            return match after {
                AfterSend::Continue => None,
                AfterSend::Close => self.flush(cx, out, &NO_BODY, after),
            };
        }
        // The body is larger, and may have to be kept until the socket takes it.
        let body = match &response.body {
            Body::Stored(hit) => hit.shared_body().unwrap_or_default(),
            Body::Full(body) => body.clone(),
            _ => Bytes::new(),
        };
        self.flush(cx, out, &body, after)
    }

    /// Writes the batch. Returns what the socket did not take.
    fn flush(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        body: &Bytes,
        after: AfterSend,
    ) -> Option<HitLoopExit> {
        let begun = match after {
            AfterSend::Close if body.is_empty() => self.stream.send_before_end(out),
            _ => 0,
        };
        let rest = send::write_now(&mut self.stream, cx, &out[begun..], body);
        out.clear();
        match rest {
            Ok(None) if after == AfterSend::Continue => None,
            Ok(None) => Some(HitLoopExit::End),
            Ok(Some(rest)) => Some(HitLoopExit::Send(rest, after)),
            Err(_) => Some(HitLoopExit::Close),
        }
    }
}

//! One request and the head of its response, on one connection. Sending and reading run
//! concurrently: a server may respond before it has received the whole request.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Buf;
use http::Method;
use microcache_engine::origin::{OriginError, OriginRequest};
use microcache_engine::{Interim, Interims};
use microcache_policy::tags::MAX_OTHER_FIELDS;
use microcache_policy::{ContentKind, FieldIndex, FieldsBuf, ForwardedResponse};
use microcache_wire::h1::{self, Framing, HeadLimits, parse_response};

use super::connection::OriginConnection;
use super::fastcgi::call::ScriptCall;
use super::upload::{SendState, Upload};

/// Limit of 1xx responses to one request; each may extend the deadline.
pub(super) const MAX_INTERIM: usize = 32;

/// Limits of response heads, larger than those of requests: some applications set a cookie per module, and name every
/// product of a page. The engine refuses a head that is larger than [`MAX_OTHER_FIELDS`] without its tags.
pub(super) const ANSWER_LIMITS: HeadLimits = HeadLimits {
    head: 2 * MAX_OTHER_FIELDS,
    target: 0,
    fields: 1000,
};

/// Properties of the request that decide how its response is read.
#[derive(Debug)]
pub(super) struct ExchangeContext {
    pub(super) to_head: bool,
    pub(super) upgrade: bool,
    interim: Option<Interims>,
    /// The script that a FastCGI server runs.
    pub(super) call: Option<Arc<ScriptCall>>,
}

impl ExchangeContext {
    pub(super) fn of(request: &mut OriginRequest) -> Self {
        Self {
            to_head: request.method == Method::HEAD,
            upgrade: request.upgrade,
            interim: request.interim.take(),
            call: request.extensions.remove(),
        }
    }

    /// Passes a 1xx response on to the client.
    pub(super) fn tell(&self, answer: OriginHead) {
        if let Some(interims) = &self.interim {
            interims.push(Interim {
                status: answer.status,
                fields: answer.fields,
            });
        }
    }
}

/// A final response head.
#[derive(Debug)]
pub(super) struct OriginHead {
    pub(super) status: u16,
    /// End-to-end fields without `Content-Length`; with 101 also `Upgrade`.
    pub(super) fields: FieldsBuf,
    pub(super) framing: Framing,
    pub(super) length: Option<u64>,
    pub(super) keep_alive: bool,
    /// The kind of its content.
    pub(super) content: ContentKind,
    /// The server requests or confirms connection-based authentication (NTLM, Negotiate).
    pub(super) challenged: bool,
}

/// Failure of an exchange on one connection.
#[derive(Debug)]
pub(super) struct ExchangeFailure {
    pub(super) error: OriginError,
    /// Some bytes of a response had arrived.
    pub(super) answered: bool,
}

/// Sends the request now, and waits for the final response head. `silence` is the inactivity timeout in both
/// directions.
pub(super) async fn exchange(
    connection: &mut OriginConnection,
    upload: &mut Upload,
    context: &ExchangeContext,
    silence: Duration,
    now: Instant,
) -> Result<OriginHead, ExchangeFailure> {
    upload.begin_http1(now);
    for interim_before in 0..=MAX_INTERIM {
        connection.timer.restart(silence);
        let head = poll_fn(|cx| poll_head(cx, connection, upload, context, silence)).await;
        let answer = head.map_err(|error| ExchangeFailure {
            error,
            answered: interim_before > 0 || !connection.buf.is_empty(),
        })?;
        match answer.status {
            100 => upload.proceed(),
            101 if context.upgrade && upload.is_complete() => return Ok(answer),
            101 => return Err(malformed("switched protocols without a request")),
            102..=199 => context.tell(answer),
            _ => {
                upload.answered();
                return Ok(answer);
            }
        }
    }
    Err(malformed("too many interim responses"))
}

const fn malformed(what: &'static str) -> ExchangeFailure {
    ExchangeFailure {
        error: OriginError::Malformed(what),
        answered: true,
    }
}

fn poll_head(
    cx: &mut Context<'_>,
    connection: &mut OriginConnection,
    upload: &mut Upload,
    context: &ExchangeContext,
    silence: Duration,
) -> Poll<Result<OriginHead, OriginError>> {
    if let Some(answer) = take_head(connection, context)? {
        return Poll::Ready(Ok(answer));
    }
    let sent = upload.sent();
    let sending = upload.poll_http1(cx, connection)?;
    if upload.sent() > sent {
        connection.timer.restart(silence);
    }
    loop {
        match connection.poll_read(cx, 0) {
            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(OriginError::Disconnected)),
            Poll::Ready(Ok(_)) => {
                if let Some(answer) = take_head(connection, context)? {
                    return Poll::Ready(Ok(answer));
                }
            }
            // While the client is slow to send, the server has a reason to be silent.
            Poll::Pending if sending == SendState::Client => return Poll::Pending,
            Poll::Pending => {
                let timeout = connection.timer.poll(cx);
                return timeout.map(|()| Err(OriginError::Timeout));
            }
        }
    }
}

/// Parses a complete head off the buffer.
fn take_head(
    connection: &mut OriginConnection,
    context: &ExchangeContext,
) -> Result<Option<OriginHead>, OriginError> {
    if connection.buf.is_empty() {
        return Ok(None);
    }
    let mut index = FieldIndex::default();
    let parsed = parse_response(&connection.buf, context.to_head, &ANSWER_LIMITS, &mut index)
        .map_err(OriginError::Malformed)?;
    let Some((head, taken)) = parsed else {
        return Ok(None);
    };
    let answer = OriginHead::of(&head);
    connection.buf.advance(taken);
    Ok(Some(answer))
}

impl OriginHead {
    /// Keeps what is forwarded of a parsed head.
    pub(super) fn of(head: &h1::ResponseHead<'_>) -> Self {
        let ForwardedResponse {
            mut fields,
            content,
            is_challenged,
        } = ForwardedResponse::read(head.fields);
        if head.status == 101 {
            for protocol in head.fields.all("upgrade") {
                fields.push("Upgrade", protocol);
            }
        }
        Self {
            status: head.status,
            fields,
            framing: head.framing,
            length: head.length,
            keep_alive: head.keep_alive,
            content,
            challenged: is_challenged,
        }
    }
}

//! One client connection.
//!
//! Hits are served in [`Connection::poll_hits`] without leaving the poll: bytes are read into a
//! buffer that the thread's connections share, answers are put together in another, and an idle
//! connection owns neither. Everything that has to wait is an [`exchange`].

mod activity;
mod exchange;
mod file;
mod head;
mod patience;
mod pending;
mod request_body;
mod send;
mod socket;
#[cfg(test)]
mod tests;
mod tunnel;
mod watch;

use std::borrow::Cow;
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::Method;
use microcache_engine::{
    Body, ClientConnection, Incoming, Interims, Outcome, Question, Refresh, Request, Response,
    Served,
};
use microcache_policy::{Fields, RequestRules, Scheme, Time, upgrade};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connections::FIRST_REQUEST;
use crate::forwarding::{Peer, outgoing};
use crate::h1::{BadRequest, Framing, RequestHead, Target, parse_request, split_target};
use crate::last_hop;
use crate::notices::Kind;
use crate::room::Place;
use crate::shared::Shared;
pub(crate) use activity::{Activity, Doing};
pub(crate) use head::own_page;
use head::{Asked, Ending, LAST, ending, refusal, write_head};
use patience::Patience;
use pending::{Head, Pending};
use send::Output;

/// Read at a time; one read takes a burst of pipelined requests.
const READ_SIZE: usize = 32 * 1024;
/// Answers to pipelined requests are collected up to this size before they are written.
const BATCH: usize = 64 * 1024;
/// Bodies up to this size are copied behind their head: one plain write is cheaper than a
/// vectored one.
const COPY: usize = 8 * 1024;

thread_local! {
    static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_SIZE].into());
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether these bytes, as far as they can be read, begin a HEAD: its answers have no content.
fn is_head(input: &[u8]) -> bool {
    let start = input.iter().position(|b| !b"\r\n".contains(b));
    start.is_some_and(|start| input[start..].starts_with(b"HEAD "))
}

/// A client's connection.
pub(crate) struct Connection {
    stream: TcpStream,
    peer: Peer,
    shared: Arc<Shared>,
    /// For those who want to close idle connections.
    activity: Arc<Activity>,
    /// What was read and not yet used; mostly nothing.
    input: BytesMut,
    patience: Patience,
    /// What the origin's side keeps for this client alone, once something was asked of it.
    client: Option<Arc<ClientConnection>>,
    /// One of the connections that may be open at a time.
    _place: Place,
}

/// Why the loop over hits was left.
enum Next {
    /// The client is gone, or was waited for long enough.
    Close,
    /// The socket takes no more for now, or the answer needs more than a hit.
    Send(Output, AfterSend),
    /// The origin must be asked.
    Ask(Box<(Question, Pending)>),
    /// The body lies in a file. Answers to earlier requests go first.
    SendFile(Box<(Response, Asked, Output)>),
    /// The request cannot be read. Was it a HEAD?
    Refuse(BadRequest, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterSend {
    Continue,
    Close,
}

/// Host and target.
type Addressed<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        shared: Arc<Shared>,
        activity: Arc<Activity>,
        place: Place,
    ) -> Self {
        // Without it a small answer behind a large one waits for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let mut idle = shared.timeouts.idle;
        if shared.is_draining() {
            idle = idle.min(FIRST_REQUEST);
        }
        let now = shared.engine.clock.now();
        Self {
            stream,
            peer: Peer::new(peer.ip(), &shared.trusted_proxies),
            activity,
            input: BytesMut::new(),
            patience: Patience::new(now, idle),
            client: None,
            shared,
            _place: place,
        }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(mut self) {
        loop {
            let next = poll_fn(|cx| self.poll_hits(cx)).await;
            if !self.activity.begin() {
                return;
            }
            let go_on = match next {
                Next::Close => return,
                Next::Send(output, after) => {
                    let loan = self.shared.lent.lend(output.holds());
                    let (stall, in_all) = loan.patience(self.shared.timeouts.write);
                    let sending = output.send(&mut self.stream, stall);
                    let sent = match in_all {
                        None => sending.await.is_ok(),
                        Some(in_all) => matches!(timeout(in_all, sending).await, Ok(Ok(()))),
                    };
                    sent && after == AfterSend::Continue
                }
                // Boxed: what a miss needs must not be carried by every idle connection.
                Next::Ask(asked) => {
                    let (question, pending) = *asked;
                    Box::pin(self.exchange(question, pending)).await
                }
                Next::SendFile(answer) => {
                    let (response, asked, unsent) = *answer;
                    Box::pin(self.send_file(response, asked, unsent)).await
                }
                Next::Refuse(bad, head_only) => {
                    let output = Output::bytes(self.refuse(bad, head_only));
                    let write = self.shared.timeouts.write;
                    let _ = output.send(&mut self.stream, write).await;
                    false
                }
            };
            if !go_on || self.shared.is_draining() {
                return self.linger().await;
            }
            self.activity.end(self.shared.engine.clock.now());
            self.expect_more();
        }
    }

    /// Serves what can be served at once, until something cannot.
    fn poll_hits(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        INPUT.with_borrow_mut(|scratch| {
            OUTPUT.with_borrow_mut(|out| {
                // What the clock said when the last requests were read; reading it again costs
                // as much as parsing one.
                let mut now = None;
                loop {
                    out.clear();
                    if !self.input.is_empty() {
                        let mut input = std::mem::take(&mut self.input);
                        let (used, next) = self.serve_buffer(cx, &input, out, &mut now);
                        input.advance(used);
                        self.input = input;
                        if let Some(next) = next {
                            return Poll::Ready(next);
                        }
                        // More of the same head does not put its deadline off.
                        if used > 0 {
                            self.expect_more();
                        }
                    }
                    let read = match socket::poll_recv(&self.stream, cx, scratch) {
                        Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Next::Close),
                        Poll::Ready(Ok(length)) => &scratch[..length],
                        Poll::Pending => {
                            let now = now.unwrap_or_else(|| self.shared.engine.clock.now());
                            ready!(self.patience.poll_over(cx, now));
                            return Poll::Ready(if self.input.is_empty() {
                                Next::Close
                            } else {
                                Next::Refuse(BadRequest::TIMEOUT, is_head(&self.input))
                            });
                        }
                    };
                    if !self.input.is_empty() {
                        self.input.extend_from_slice(read);
                        continue;
                    }
                    let (used, next) = self.serve_buffer(cx, read, out, &mut now);
                    let rest = &read[used..];
                    if !rest.is_empty() {
                        self.input.extend_from_slice(rest);
                    }
                    if let Some(next) = next {
                        return Poll::Ready(next);
                    }
                    if !rest.is_empty() {
                        self.expect_more();
                    }
                }
            })
        })
    }

    /// Gives the client its time anew: for the rest of a head if there is the beginning of one,
    /// else for the next request.
    fn expect_more(&mut self) {
        let timeouts = self.shared.timeouts;
        let span = if self.input.is_empty() {
            timeouts.idle
        } else {
            timeouts.head
        };
        self.patience.expect(self.shared.engine.clock.now(), span);
    }

    /// Serves the requests in `input` as long as they are hits, and says how much of it was used.
    fn serve_buffer(
        &mut self,
        cx: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        read_at: &mut Option<Time>,
    ) -> (usize, Option<Next>) {
        let now = *read_at.insert(self.shared.engine.clock.now());
        let mut used = 0;
        let mut next = None;
        while next.is_none() && used < input.len() {
            match parse_request(&input[used..], &self.shared.head_limits) {
                Ok(None) => break,
                Err(bad) => next = Some(Next::Refuse(bad, is_head(&input[used..]))),
                Ok(Some((head, length))) => {
                    used += length;
                    self.patience.deadline = now.plus(self.shared.idle_millis);
                    next = self.serve_head(cx, &head, now, out);
                }
            }
            if out.len() > BATCH && next.is_none() {
                next = self.flush(cx, out, &Bytes::new(), AfterSend::Continue);
            }
        }
        if used > 0 && next.is_none() && !self.activity.answered(now) {
            next = Some(Next::Close);
        }
        if !out.is_empty() {
            // Answers that are ready go first, whatever comes next.
            let flushed = self.flush(cx, out, &Bytes::new(), AfterSend::Continue);
            next = match (flushed, next) {
                (None, next) => next,
                (Some(unsent), None) => Some(unsent),
                (Some(Next::Send(output, _)), Some(next)) => Some(next.after(output)),
                (Some(other), Some(_)) => Some(other),
            };
        }
        (used, next)
    }

    fn serve_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &RequestHead<'_>,
        now: Time,
        out: &mut Vec<u8>,
    ) -> Option<Next> {
        let (host, target) = match self.target(head) {
            Ok(target) => target,
            Err(bad) => return Some(Next::Refuse(bad, head.method == b"HEAD")),
        };
        // The parser has seen that it is a token, which is all that a method has to be.
        let Ok(method) = Method::from_bytes(head.method) else {
            return Some(Next::Refuse(BadRequest::METHOD, false));
        };
        let has_body = !matches!(head.framing, Framing::None | Framing::Length(0));
        let request = Request {
            method: &method,
            scheme: Scheme::Http,
            host: &host,
            target: &target,
            fields: head.fields,
            address: self.peer.address(),
            has_body,
            upgrade: head.upgrade && head.fields.all("upgrade").all(upgrade::may_travel),
            vouched: self.peer.trusted,
            signed_in: self.client.as_ref().is_some_and(|c| c.is_signed_in()),
        };
        let mut asked = Asked {
            head_only: method == Method::HEAD,
            http10: head.http10,
            keep_alive: head.keep_alive && !self.shared.is_draining(),
        };
        let served = catch_unwind(AssertUnwindSafe(|| self.shared.engine.serve(&request, now)));
        let response = match served {
            Ok(served)
                if let Some(response) = self.shared.pseudonym.answer(head.fields, &served, now) =>
            {
                response
            }
            Ok(Served::Now(response)) => response,
            Ok(Served::NowAndRefresh(response, refresh)) => {
                self.refresh(refresh, &request);
                response
            }
            Ok(Served::Ask(question)) => {
                if let Some(response) = last_hop::answer(&request, now) {
                    response
                } else {
                    let pending = Pending::new(&request, head, asked);
                    return Some(Next::Ask(Box::new((question, pending))));
                }
            }
            Err(_) => exchange::panicked(now),
        };
        self.shared.engine.counters.count(response.outcome);
        // An answer that leaves a request body unread must be the connection's last.
        asked.keep_alive &= !has_body;
        if matches!(response.body, Body::File(_)) {
            return Some(Next::SendFile(Box::new((
                response,
                asked,
                Output::default(),
            ))));
        }
        self.answer(cx, &response, asked, out)
    }

    /// Host and target as the request means them, whatever its form.
    fn target<'a>(&'a self, head: &RequestHead<'a>) -> Result<Addressed<'a>, BadRequest> {
        let host = head.host.unwrap_or(self.shared.default_host.as_bytes());
        // Nearly every target has this form, and the parser has seen that its bytes are right.
        if head.target.starts_with(b"/") && head.method != b"CONNECT" {
            return Ok((host.into(), head.target.into()));
        }
        match split_target(head.method, head.target)? {
            Target::Origin(target) => Ok((host.into(), target.into())),
            Target::Asterisk => Ok((host.into(), b"*".into())),
            Target::Absolute {
                authority, path, ..
            } => Ok((authority.into(), path)),
            Target::Authority(_) => Err(BadRequest::METHOD),
        }
    }

    /// The page for a request that cannot be read.
    fn refuse(&self, bad: BadRequest, head_only: bool) -> Bytes {
        self.shared.engine.counters.count(Outcome::Error);
        let asked = Asked { head_only, ..LAST };
        refusal(bad, asked, self.shared.engine.clock.now())
    }

    fn refresh(&self, refresh: Refresh, request: &Request<'_>) {
        let rules = &self.shared.engine.rules(refresh.route()).request;
        let incoming = self.incoming(Head::copied(request), rules, Body::Empty, None, None);
        self.shared.engine.refresh(refresh, incoming);
    }

    /// What the engine needs to ask the origin.
    fn incoming(
        &self,
        head: Head,
        rules: &RequestRules,
        body: Body,
        length: Option<u64>,
        interim: Option<Interims>,
    ) -> Incoming {
        let fields = Fields::new(&head.fields);
        let mut outgoing = outgoing(
            &head.method,
            fields,
            head.upgrade,
            &head.host,
            &self.peer,
            rules,
        );
        outgoing.push("Via", self.shared.pseudonym.via());
        if let Some(line) = self.shared.strangers.notice(fields, &self.peer) {
            self.shared.notices.say(Kind::Server, "", line);
        }
        Incoming {
            outgoing,
            method: head.method,
            scheme: Scheme::Http,
            host: head.host,
            target: head.target,
            fields: head.fields,
            address: self.peer.shared_address(),
            body,
            length,
            upgrade: head.upgrade,
            vouched: self.peer.trusted,
            client: None,
            interim,
        }
    }

    /// Puts an answer with a whole body behind those that are ready.
    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        response: &Response,
        asked: Asked,
        out: &mut Vec<u8>,
    ) -> Option<Next> {
        let ending = ending(response, asked);
        debug_assert_eq!(ending, Ending::Counted, "a stored body has a length");
        write_head(out, response, asked, ending);
        let after = if asked.keep_alive {
            AfterSend::Continue
        } else {
            AfterSend::Close
        };
        let none = Bytes::new();
        let body = match &response.body {
            _ if asked.head_only => &none,
            Body::Stored(hit) => hit.body.bytes().unwrap_or(&none),
            Body::Full(body) => body,
            _ => &none,
        };
        if body.len() <= COPY {
            out.extend_from_slice(body);
            if after == AfterSend::Continue {
                return None;
            }
            let output = Output::bytes(Bytes::copy_from_slice(out));
            out.clear();
            return Some(Next::Send(output, after));
        }
        self.flush(cx, out, body, after)
    }

    /// Writes what is ready. What the socket does not take is to be sent later.
    fn flush(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        body: &Bytes,
        after: AfterSend,
    ) -> Option<Next> {
        let rest = send::write_now(&self.stream, cx, out, body);
        out.clear();
        match rest {
            Ok(None) if after == AfterSend::Continue => None,
            Ok(None) => Some(Next::Send(Output::bytes(Bytes::new()), after)),
            Ok(Some(rest)) => Some(Next::Send(rest, after)),
            Err(_) => Some(Next::Close),
        }
    }

    /// Closes such that the client can read what was sent last: unread input at closing time
    /// would reset the connection and take the answer along.
    async fn linger(mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        const MOST: usize = 1024 * 1024;
        let discard = async {
            self.stream.shutdown().await?;
            let mut rest = vec![0; 16 * 1024];
            let mut read = 0;
            while read < MOST {
                match self.stream.read(&mut rest).await? {
                    0 => break,
                    n => read += n,
                }
            }
            std::io::Result::Ok(())
        };
        let _ = timeout(PATIENCE, discard).await;
    }
}

impl Next {
    /// The same, once `unsent` answers to earlier requests are out.
    fn after(self, unsent: Output) -> Self {
        match self {
            Self::Send(output, after) => Self::Send(unsent.and(output), after),
            Self::Ask(mut asked) => {
                asked.1.unsent = unsent;
                Self::Ask(asked)
            }
            Self::SendFile(mut answer) => {
                answer.2 = unsent;
                Self::SendFile(answer)
            }
            // The answers before it are not taken, so this one would not be either.
            Self::Refuse(..) => Self::Send(unsent, AfterSend::Close),
            Self::Close => Self::Close,
        }
    }
}

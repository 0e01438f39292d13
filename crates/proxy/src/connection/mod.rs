//! One client connection.
//!
//! Hits are served in [`Connection::poll_hits`] without leaving the poll: bytes are read into a buffer that the
//! thread's connections share, responses are assembled in another, and an idle connection owns neither.
//! Everything that has to wait is an [`exchange`].

mod client;
mod deadline;
mod endless;
mod exchange;
mod feed;
mod file;
mod file_answer;
mod head;
mod hits;
mod pending;
mod plain;
mod presence;
mod proxy_header;
mod request_body;
mod send;
mod serving;
mod socket;
mod state;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod tunnel;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::Version;
use microcache_policy::Time;
use microcache_wire::h1::BadRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::admission::{Activity, ConnectionPermit};
use crate::h2;
use crate::session::Session;
use deadline::ClientDeadline;
use exchange::ExchangeOutcome;
use head::{LAST, ResponseFraming, whole};
use hits::is_head;
pub(crate) use plain::PlainSocket;
pub(crate) use proxy_header::{ProxyHeaderError, read_proxy_header};
use send::OutputQueue;
use serving::{Serving, StartedEndless};
pub(crate) use state::Connection;
use state::{AfterSend, BUFFERS, Buffers, HitLoopExit, SentEndless};
use tls::HandshakeError;
pub(crate) use transport::ClientTransport;

impl Connection {
    pub(crate) fn new(
        stream: ClientTransport,
        session: Session,
        activity: Arc<Activity>,
        permit: ConnectionPermit,
        now: Time,
    ) -> Self {
        let idle = session.shared.idle();
        Self {
            stream,
            activity,
            input: BytesMut::new(),
            client_deadline: ClientDeadline::new(now, idle),
            requests: 0,
            is_last_request: false,
            session,
            _permit: permit,
        }
    }

    /// Serves requests until the connection ends.
    pub(crate) fn serve(self) -> impl Future<Output = ()> + Send {
        Serving::new(self, Self::serve_requests)
    }

    /// Serves requests until the connection ends, or up to a response without an end.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` stores its arguments twice"
    )]
    fn serve_requests(
        mut self,
        mut sent: Option<SentEndless>,
    ) -> impl Future<Output = (Self, Option<StartedEndless>)> + Send {
        async move {
            // Boxed, like everything an idle connection does not need, to keep its future small.
            if sent.is_none()
                && matches!(self.stream, ClientTransport::Tls(_))
                && !Box::pin(self.complete_handshake()).await
            {
                Box::pin(self.linger()).await;
                return (self, None);
            }
            loop {
                let next = match sent.take() {
                    Some(sent) => HitLoopExit::After(sent),
                    None => poll_fn(|cx| self.poll_hits(cx)).await,
                };
                let is_begun = matches!(next, HitLoopExit::After(_)) || self.activity.begin();
                if !is_begun {
                    return (self, None);
                }
                self.stream.in_answer(true);
                let go_on = match next {
                    HitLoopExit::After(sent) => {
                        sent.go_on && !self.has_followed(sent.wanted_upgrade).await
                    }
                    HitLoopExit::Close => {
                        self.stream.in_answer(false);
                        return (self, None);
                    }
                    HitLoopExit::End => false,
                    HitLoopExit::Send(output, after) => {
                        Box::pin(self.send(output)).await && after == AfterSend::Continue
                    }
                    HitLoopExit::Ask(pending) => {
                        let wanted_upgrade = pending.upgrade;
                        let exchanged = Box::pin(self.exchange(pending)).await;
                        if self.input.is_empty() {
                            // Frees the buffer that the exchange has read into.
                            self.input = BytesMut::new();
                        }
                        match exchanged {
                            ExchangeOutcome::Whole(go_on) => {
                                go_on && !self.has_followed(wanted_upgrade).await
                            }
                            ExchangeOutcome::SoFar(rest, go_on) => {
                                let sent = SentEndless {
                                    go_on,
                                    wanted_upgrade,
                                };
                                return (self, Some(StartedEndless { rest, sent }));
                            }
                        }
                    }
                    HitLoopExit::SendFile(answer) => Box::pin(self.send_file(*answer)).await,
                    HitLoopExit::Http2 => {
                        Box::pin(self.http2()).await;
                        return (self, None);
                    }
                    HitLoopExit::Refuse(bad, head_only) => {
                        let page = Box::new(OutputQueue::bytes(self.refuse(bad, head_only)));
                        Box::pin(self.send(page)).await;
                        false
                    }
                };
                if !go_on {
                    if self.expects_input() {
                        Box::pin(self.linger()).await;
                    }
                    return (self, None);
                }
                self.stream.in_answer(false);
                let now = self.session.shared.engine.clock.now();
                self.activity.end(now);
                self.expect_more(now);
            }
        }
    }

    /// Sends what the socket did not take at once. Returns `false` if the client is gone.
    async fn send(&mut self, mut output: Box<OutputQueue>) -> bool {
        let pin = self.session.shared.pinned.pin(output.holds());
        let (stall, total) = pin.timeouts(self.session.shared.timeouts.write);
        let Ok(mut writer) = self.stream.writer() else {
            return false;
        };
        let sending = output.send(&mut writer, stall);
        match total {
            None => sending.await.is_ok(),
            Some(total) => matches!(timeout(total, sending).await, Ok(Ok(()))),
        }
    }

    /// Returns `true` if bytes have followed a request for an upgrade, which was refused. They may be in the other
    /// protocol, with the text of a third party, and are never read as a request (RFC 9931).
    async fn has_followed(&mut self, wanted_upgrade: bool) -> bool {
        wanted_upgrade
            && poll_fn(|cx| {
                let has_input = !self.input.is_empty();
                Poll::Ready(has_input || self.stream.poll_recv(cx, &mut [0]).is_ready())
            })
            .await
    }

    /// Performs the TLS handshake. Returns `true` if it succeeded.
    async fn complete_handshake(&mut self) -> bool {
        let ClientTransport::Tls(tls) = &self.stream else {
            return true;
        };
        let timeouts = self.session.shared.timeouts;
        match timeout(timeouts.head, tls.handshake()).await {
            // An ACME challenge connection carries no requests (RFC 8737 §3).
            Ok(Ok(())) if tls.is_challenge() => false,
            Ok(Ok(())) => {
                if let Some(chain) = tls.client_certificates() {
                    self.session.take_client_certificate(&chain);
                }
                self.expect_more(self.session.shared.engine.clock.now());
                true
            }
            Ok(Err(HandshakeError::ProxyHeader)) => {
                self.session.refuse_proxy_header();
                false
            }
            Ok(Err(HandshakeError::PlainHttp)) => {
                tls.answer_bare(&self.refuse(BadRequest::NOT_TLS, false));
                if let Ok(mut writer) = self.stream.writer() {
                    let mut held_back = OutputQueue::default();
                    let _ = held_back.send(&mut writer, timeouts.write).await;
                }
                false
            }
            Ok(Err(HandshakeError::Failed(error))) => {
                self.session.report_failed_handshake(&error);
                false
            }
            Err(_) => {
                self.session.report_handshake_timeout();
                false
            }
        }
    }

    /// Serves hits until a request needs more than that.
    fn poll_hits(&mut self, cx: &mut Context<'_>) -> Poll<HitLoopExit> {
        BUFFERS.with_borrow_mut(|buffers| {
            let Buffers {
                input: scratch,
                output: out,
                index,
            } = buffers;
            // Time of the last read: reading the clock again costs as much as parsing a request.
            let mut now = None;
            loop {
                out.clear();
                if !self.input.is_empty() {
                    let mut input = std::mem::take(&mut self.input);
                    let (used, next) = self.serve_buffer(cx, &input, index, out, &mut now);
                    input.advance(used);
                    self.input = input;
                    if let Some(next) = next {
                        return Poll::Ready(next);
                    }
                    // More bytes of the same head do not extend its deadline.
                    if used > 0 {
                        self.expect_more(self.session.shared.engine.clock.now());
                    }
                }
                let read = match self.stream.poll_recv(cx, scratch) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(HitLoopExit::Close),
                    Poll::Ready(Ok(length)) => &scratch[..length],
                    Poll::Pending => {
                        let now = now.unwrap_or_else(|| self.session.shared.engine.clock.now());
                        ready!(self.client_deadline.poll_expired(cx, now));
                        return Poll::Ready(if self.input.is_empty() {
                            HitLoopExit::Close
                        } else {
                            HitLoopExit::Refuse(BadRequest::TIMEOUT, is_head(&self.input))
                        });
                    }
                };
                if !self.input.is_empty() {
                    self.input.extend_from_slice(read);
                    continue;
                }
                let (used, next) = self.serve_buffer(cx, read, index, out, &mut now);
                let rest = &read[used..];
                if !rest.is_empty() {
                    self.input.extend_from_slice(rest);
                }
                if let Some(next) = next {
                    return Poll::Ready(next);
                }
                if !rest.is_empty() {
                    self.expect_more(self.session.shared.engine.clock.now());
                }
            }
        })
    }

    /// Restarts the timeout: of the head if it has begun, else of the keep-alive period.
    fn expect_more(&mut self, now: Time) {
        let shared = &self.session.shared;
        let span = if self.input.is_empty() {
            shared.idle()
        } else {
            shared.timeouts.head
        };
        self.client_deadline.expect(now, span);
    }

    /// Returns the error response to a malformed request.
    fn refuse(&self, bad: BadRequest, head_only: bool) -> Bytes {
        let page = self
            .session
            .refuse(bad.status(), bad.reason(), Version::HTTP_11);
        whole(&page, ResponseFraming { head_only, ..LAST })
    }

    /// Continues with HTTP/2.
    async fn http2(&mut self) {
        self.stream.in_answer(false);
        self.activity
            .admitted(self.session.shared.engine.clock.now());
        let input = std::mem::take(&mut self.input);
        let (stream, session) = (&mut self.stream, &mut self.session);
        let connection = h2::Http2ServerConnection::new(stream, session, &self.activity, input);
        if connection.serve().await == h2::CloseReason::GoAway {
            self.linger().await;
        }
    }

    /// Returns `true` if the client may send something after its last request. With TLS it sends at least an alert.
    fn expects_input(&self) -> bool {
        let is_plain = matches!(self.stream, ClientTransport::Plain(_));
        !(self.is_last_request && self.input.is_empty() && is_plain)
    }

    /// Closes the connection so that the client can read the last response: unread input at the close would
    /// cause a reset that discards it.
    async fn linger(&mut self) {
        const TIME_LIMIT: Duration = Duration::from_secs(2);
        const MOST: usize = 1024 * 1024;
        let discard = async {
            self.stream.writer()?.shutdown().await?;
            // Not zeroed: most clients close without another byte.
            let mut rest = Vec::with_capacity(16 * 1024);
            let mut read = 0;
            while read < MOST {
                match self.stream.socket()?.read_buf(&mut rest).await? {
                    0 => break,
                    n => read += n,
                }
                rest.clear();
            }
            std::io::Result::Ok(())
        };
        let _ = timeout(TIME_LIMIT, discard).await;
    }
}

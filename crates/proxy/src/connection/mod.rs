//! One client connection.
//!
//! Hits are served in [`Connection::poll_hits`] without leaving the poll: bytes are read into a
//! buffer that the thread's connections share, answers are put together in another, and an idle
//! connection owns neither. Everything that has to wait is an [`exchange`].

mod activity;
mod client;
mod endless;
mod exchange;
mod feed;
mod file;
mod head;
mod hits;
mod introduction;
mod lent_pages;
mod patience;
mod pending;
mod request_body;
mod send;
mod socket;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod tunnel;
mod watch;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::Version;
use microcache_engine::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::h1::BadRequest;
use crate::h2;
use crate::room::Place;
use crate::session::{Account, Session};
pub(crate) use activity::{Activity, Doing};
use exchange::Exchanged;
use head::{Asked, LAST, whole};
use hits::is_head;
pub(crate) use introduction::{NotIntroduced, introduced};
pub(crate) use lent_pages::COPIES;
use patience::Patience;
use pending::Pending;
use send::Output;
use tls::NoSession;
pub(crate) use transport::Transport;

/// Read at a time; one read takes a burst of pipelined requests.
const READ_SIZE: usize = 32 * 1024;
/// Bodies up to this size are copied behind their head: one plain write is cheaper than a
/// vectored one.
const COPY: usize = 8 * 1024;

thread_local! {
    static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_SIZE].into());
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A client's connection.
pub(crate) struct Connection {
    stream: Transport,
    session: Session,
    /// For those who want to close idle connections.
    activity: Arc<Activity>,
    /// What was read and not yet used; mostly nothing.
    input: BytesMut,
    patience: Patience,
    /// Requests that it had.
    requests: u64,
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
    Ask(Box<Pending>),
    /// The body lies in a file.
    SendFile(Box<FileAnswer>),
    /// The request cannot be read. Was it a HEAD?
    Refuse(BadRequest, bool),
    /// The client speaks HTTP/2.
    Http2,
}

/// An answer whose body lies in a file.
struct FileAnswer {
    response: Response,
    asked: Asked,
    account: Account,
    /// Answers to earlier requests that the socket has not taken yet.
    unsent: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterSend {
    Continue,
    Close,
}

impl Connection {
    pub(crate) fn new(
        mut stream: Transport,
        session: Session,
        activity: Arc<Activity>,
        place: Place,
    ) -> Self {
        // Without it a small answer behind a large one waits for an acknowledgement.
        let _ = stream.socket().set_nodelay(true);
        let shared = &session.shared;
        let idle = shared.idle();
        let now = shared.engine.clock.now();
        Self {
            stream,
            activity,
            input: BytesMut::new(),
            patience: Patience::new(now, idle),
            requests: 0,
            session,
            _place: place,
        }
    }

    /// Serves requests until the connection ends.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` has room for what it is given twice"
    )]
    pub(crate) fn serve(mut self) -> impl Future<Output = ()> + Send {
        async move { self.serve_all().await }
    }

    async fn serve_all(&mut self) {
        // Boxed, as all that an idle connection has no use for: it would carry it with it.
        if matches!(self.stream, Transport::Tls(_)) && !Box::pin(self.shake_hands()).await {
            return Box::pin(self.linger()).await;
        }
        loop {
            let next = poll_fn(|cx| self.poll_hits(cx)).await;
            if !self.activity.begin() {
                return;
            }
            self.stream.in_answer(true);
            let go_on = match next {
                Next::Close => {
                    self.stream.in_answer(false);
                    return;
                }
                Next::Send(output, after) => {
                    Box::pin(self.send(output)).await && after == AfterSend::Continue
                }
                Next::Ask(pending) => {
                    let exchanged = Box::pin(self.exchange(*pending)).await;
                    if self.input.is_empty() {
                        // Room was made to read into.
                        self.input = BytesMut::new();
                    }
                    match exchanged {
                        Exchanged::Whole(go_on) => go_on,
                        Exchanged::SoFar(answer, go_on) => self.send_endless(answer).await && go_on,
                    }
                }
                Next::SendFile(answer) => Box::pin(self.send_file(*answer)).await,
                Next::Http2 => return Box::pin(self.http2()).await,
                Next::Refuse(bad, head_only) => {
                    let page = Output::bytes(self.refuse(bad, head_only));
                    Box::pin(self.send(page)).await;
                    false
                }
            };
            if !go_on {
                return Box::pin(self.linger()).await;
            }
            self.stream.in_answer(false);
            self.activity.end(self.session.shared.engine.clock.now());
            self.expect_more();
        }
    }

    /// Sends what the socket did not take at once. Says whether the client has taken it.
    async fn send(&mut self, output: Output) -> bool {
        let loan = self.session.shared.lent.lend(output.holds());
        let (stall, in_all) = loan.patience(self.session.shared.timeouts.write);
        let mut writer = self.stream.writer();
        let sending = output.send(&mut writer, stall);
        match in_all {
            None => sending.await.is_ok(),
            Some(in_all) => matches!(timeout(in_all, sending).await, Ok(Ok(()))),
        }
    }

    /// Agrees with the client on a TLS session. Says whether there is one.
    async fn shake_hands(&mut self) -> bool {
        let Transport::Tls(tls) = &self.stream else {
            return true;
        };
        let timeouts = self.session.shared.timeouts;
        match timeout(timeouts.head, tls.handshake()).await {
            // No request comes on it, and none would be answered (RFC 8737 §3).
            Ok(Ok(())) if tls.is_challenge() => false,
            Ok(Ok(())) => {
                self.expect_more();
                true
            }
            Ok(Err(NoSession::Introduction)) => {
                self.session.refuse_introduction();
                false
            }
            Ok(Err(NoSession::PlainHttp)) => {
                tls.answer_bare(&self.refuse(BadRequest::NOT_TLS, false));
                let _ = Output::default()
                    .send(&mut self.stream.writer(), timeouts.write)
                    .await;
                false
            }
            Ok(Err(NoSession::Failed(error))) => {
                self.session.tell_no_session(&error);
                false
            }
            Err(_) => {
                self.session.tell_late_session();
                false
            }
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
                    let read = match self.stream.poll_recv(cx, scratch) {
                        Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Next::Close),
                        Poll::Ready(Ok(length)) => &scratch[..length],
                        Poll::Pending => {
                            let now = now.unwrap_or_else(|| self.session.shared.engine.clock.now());
                            ready!(self.patience.poll_expired(cx, now));
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
        let shared = &self.session.shared;
        let span = if self.input.is_empty() {
            shared.idle()
        } else {
            shared.timeouts.head
        };
        self.patience.expect(shared.engine.clock.now(), span);
    }

    /// The page for a request that cannot be read.
    fn refuse(&self, bad: BadRequest, head_only: bool) -> Bytes {
        let page = self
            .session
            .refuse(bad.status(), bad.reason(), Version::HTTP_11);
        whole(&page, Asked { head_only, ..LAST })
    }

    /// The client speaks HTTP/2: from here on that is another face's.
    async fn http2(&mut self) {
        self.stream.in_answer(false);
        self.activity.seated(self.session.shared.engine.clock.now());
        let input = std::mem::take(&mut self.input);
        let (stream, session) = (&mut self.stream, &mut self.session);
        let connection = h2::Connection::new(stream, session, &self.activity, input);
        if connection.serve().await == h2::Ended::Told {
            self.linger().await;
        }
    }

    /// Closes such that the client can read what was sent last: unread input at closing time
    /// would reset the connection and take the answer along.
    async fn linger(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        const MOST: usize = 1024 * 1024;
        let discard = async {
            self.stream.writer().shutdown().await?;
            let mut rest = vec![0; 16 * 1024];
            let mut read = 0;
            while read < MOST {
                match self.stream.socket().read(&mut rest).await? {
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
            Self::Ask(mut pending) => {
                pending.unsent = unsent;
                Self::Ask(pending)
            }
            Self::SendFile(mut answer) => {
                answer.unsent = unsent;
                Self::SendFile(answer)
            }
            // The answers before it are not taken, so this one would not be either.
            Self::Refuse(..) => Self::Send(unsent, AfterSend::Close),
            Self::Close => Self::Close,
            Self::Http2 => Self::Http2,
        }
    }
}

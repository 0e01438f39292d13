//! TLS on a socket.
//!
//! Records are read into a buffer that the thread's connections share and opened there; what is sent is
//! sealed in another, and goes out with one call as long as the socket takes it. A connection owns only what cannot be
//! finished: the beginning of a record, plaintext that nobody had room for, and records that the socket has not taken.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};
use rustls::ServerConfig;
use tokio::net::TcpStream;

use super::socket;
use crate::proxy_protocol;
use crate::tls::{Certificate, HELD_BACK, RecordBuffer, TlsSession};

/// Read at a time. The longest record is smaller.
const READ_SIZE: usize = 32 * 1024;

thread_local! {
    static RECEIVED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_SIZE].into());
    static RECORDS: RefCell<RecordBuffer> = RefCell::new(RecordBuffer::new());
}

/// A client's socket with TLS on it.
pub(crate) struct Tls {
    socket: TcpStream,
    /// Both halves of the connection need it, one after the other: nobody ever waits for it.
    state: Mutex<State>,
}

struct State {
    session: TlsSession,
    /// Plaintext that nobody had room for; mostly none.
    surplus: BytesMut,
    /// The client has begun to speak.
    has_begun: bool,
    /// It is in the middle of an answer.
    in_answer: bool,
}

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum NoSession {
    /// The client speaks HTTP without TLS.
    PlainHttp,
    /// It speaks the PROXY protocol.
    Introduction,
    /// It has gone, or offers nothing that can be agreed on. It has been told.
    Failed(io::Error),
}

impl From<io::Error> for NoSession {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Tls {
    pub(crate) fn new(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = TlsSession::new(config).map_err(io::Error::other)?;
        Ok(Self {
            socket,
            state: Mutex::new(State {
                session,
                surplus: BytesMut::new(),
                has_begun: false,
                in_answer: false,
            }),
        })
    }

    /// Agrees with the client on everything that comes before its first request.
    pub(crate) async fn handshake(&self) -> Result<(), NoSession> {
        poll_fn(|cx| self.poll_handshake(cx)).await
    }

    fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<Result<(), NoSession>> {
        let mut state = self.state.lock();
        loop {
            let is_done = !state.session.is_handshaking();
            // What is left to say goes along with the answer if there is a request already.
            let may_wait = is_done && state.session.may_answer_first() && !state.surplus.is_empty();
            if !may_wait {
                ready!(self.poll_drain(cx, &mut state.session))?;
            }
            if is_done {
                return Poll::Ready(Ok(()));
            }
            let taken = RECEIVED.with_borrow_mut(|records| {
                let State {
                    session,
                    surplus,
                    has_begun,
                    ..
                } = &mut *state;
                let Some(length) = ready!(self.poll_records(cx, session, records))? else {
                    return Poll::Ready(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
                };
                // The records of TLS begin with a small number, and requests with a method.
                let is_first = !std::mem::replace(has_begun, true);
                if is_first && proxy_protocol::is_begun(&records[..length]) {
                    return Poll::Ready(Err(NoSession::Introduction));
                }
                if is_first && records[0].is_ascii_uppercase() {
                    return Poll::Ready(Err(NoSession::PlainHttp));
                }
                let taken = session.receive(&mut records[..length], |plain| {
                    surplus.extend_from_slice(plain);
                });
                Poll::Ready(taken.map_err(|error| NoSession::Failed(io::Error::other(error))))
            });
            if let Err(failed) = ready!(taken) {
                // The client is told why, if it listens.
                let _ = self.poll_drain(cx, &mut state.session);
                return Poll::Ready(Err(failed));
            }
        }
    }

    /// Whether this is an authority that wants to see that a name is ours. It has seen all that there is.
    pub(crate) fn is_challenge(&self) -> bool {
        self.state.lock().session.is_challenge()
    }

    /// Whether HTTP/2 was agreed on, so that nothing else may be spoken (RFC 9113 §3.2).
    pub(crate) fn has_agreed_on_http2(&self) -> bool {
        self.state.lock().session.has_agreed_on_http2()
    }

    /// What the client was shown, if it is for the host that it has named.
    pub(crate) fn certificate_for_host(&self) -> Option<Arc<Certificate>> {
        self.state.lock().session.certificate_for_host().cloned()
    }

    pub(super) const fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub(super) const fn socket_ref(&self) -> &TcpStream {
        &self.socket
    }

    /// Has an answer sent with the next flush that TLS has no part in.
    pub(super) fn answer_bare(&self, answer: &[u8]) {
        self.state.lock().session.outgoing.extend_from_slice(answer);
    }

    /// Gives up to `room` bytes of plaintext to `take`, and says how many. None are the end.
    pub(super) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state.lock();
        let State {
            session, surplus, ..
        } = &mut *state;
        if !surplus.is_empty() {
            let length = room.min(surplus.len());
            take(&surplus[..length]);
            surplus.advance(length);
            if surplus.is_empty() {
                *surplus = BytesMut::new();
            }
            return Poll::Ready(Ok(length));
        }
        RECEIVED.with_borrow_mut(|records| {
            loop {
                if session.has_ended() {
                    return Poll::Ready(Ok(0));
                }
                // Without a farewell the end is one all the same: what HTTP sends says by itself whether it is whole.
                let Some(length) = ready!(self.poll_records(cx, session, records))? else {
                    return Poll::Ready(Ok(0));
                };
                let mut taken = 0;
                let received = session.receive(&mut records[..length], |plain| {
                    let now = plain.len().min(room - taken);
                    take(&plain[..now]);
                    taken += now;
                    surplus.extend_from_slice(&plain[now..]);
                });
                if let Err(error) = received {
                    let _ = self.poll_drain(cx, session);
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                if taken > 0 {
                    return Poll::Ready(Ok(taken));
                }
                // What was nothing for the reader may want an answer, such as that there is no renegotiation.
                if let Poll::Ready(Err(error)) = self.poll_drain(cx, session) {
                    return Poll::Ready(Err(error));
                }
            }
        })
    }

    /// Reads behind the records that are not complete yet. Says how many bytes there are then; `None` at the end.
    fn poll_records(
        &self,
        cx: &mut Context<'_>,
        session: &TlsSession,
        records: &mut [u8],
    ) -> Poll<io::Result<Option<usize>>> {
        let kept = session.put_kept(records)?;
        let read = ready!(socket::poll_recv(&self.socket, cx, &mut records[kept..]))?;
        Poll::Ready(Ok((read > 0).then_some(kept + read)))
    }

    /// Takes as much as is sealed at a time, and sends it. What the socket does not take is held back.
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state.lock();
        let session = &mut state.session;
        if session.outgoing.len() > HELD_BACK {
            ready!(self.poll_drain(cx, session))?;
        }
        RECORDS.with_borrow_mut(|records| {
            let taken = session.encrypt(pieces, records).map_err(io::Error::other)?;
            let mut left = records.filled();
            while !left.is_empty() {
                match socket::poll_send(&self.socket, cx, &[IoSlice::new(left)]) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(sent)) => left = &left[sent..],
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        session.outgoing.extend_from_slice(left);
                        break;
                    }
                }
            }
            Poll::Ready(Ok(taken))
        })
    }

    pub(super) fn holds_back(&self) -> bool {
        !self.state.lock().session.outgoing.is_empty()
    }

    /// Ready when the socket has taken everything.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(cx, &mut self.state.lock().session)
    }

    fn poll_drain(&self, cx: &mut Context<'_>, session: &mut TlsSession) -> Poll<io::Result<()>> {
        let outgoing = &mut session.outgoing;
        while !outgoing.is_empty() {
            let sent = ready!(socket::poll_send(
                &self.socket,
                cx,
                &[IoSlice::new(outgoing)]
            ))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            outgoing.advance(sent);
            if outgoing.is_empty() {
                *outgoing = BytesMut::new();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Says that nothing more comes, and closes this side.
    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let session = &mut self.state.lock().session;
        session.say_goodbye().map_err(io::Error::other)?;
        ready!(self.poll_drain(cx, session))?;
        Poll::Ready(Ok(shutdown(&self.socket, Shutdown::Write)?))
    }

    pub(super) fn in_answer(&mut self, is_under_way: bool) {
        self.state.get_mut().in_answer = is_under_way;
    }
}

impl Drop for Tls {
    /// Says that nothing more comes, if that is so and needs no waiting.
    fn drop(&mut self) {
        let State {
            session, in_answer, ..
        } = self.state.get_mut();
        if !*in_answer && session.say_goodbye().is_ok() && !session.outgoing.is_empty() {
            let _ = self.socket.try_write(&session.outgoing);
        }
    }
}

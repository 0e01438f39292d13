//! TLS on a socket.
//!
//! Records are read into a buffer that the thread's connections share and decrypted there; output is encrypted
//! in another, and leaves with one call as long as the socket takes it. A connection owns only what is
//! incomplete: the beginning of a record, plaintext that did not fit the reader's buffer, and records that the
//! socket has not taken.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use microcache_wire::proxy_protocol;
use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;

use super::socket;
use crate::tls::{Certificate, HELD_BACK, RecordBuffer, TlsSession, set_reached};

/// Bytes read at a time. The longest record is smaller.
const READ_SIZE: usize = 32 * 1024;

thread_local! {
    static RECEIVED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_SIZE].into());
    static RECORDS: RefCell<RecordBuffer> = RefCell::new(RecordBuffer::new());
}

/// A client's socket with TLS on it.
pub(crate) struct TlsSocket {
    socket: TcpStream,
    /// Used by both halves of the connection in turn, so the lock is never contended.
    state: Mutex<State>,
}

struct State {
    session: TlsSession,
    /// Plaintext that did not fit the reader's buffer; usually none.
    surplus: BytesMut,
    /// The client has sent its first bytes.
    has_begun: bool,
    /// A response is under way.
    in_answer: bool,
}

/// Reasons for a failed handshake.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The client speaks HTTP without TLS.
    PlainHttp,
    /// The client sent a PROXY header.
    ProxyHeader,
    /// The connection failed, or nothing acceptable was offered; the alert has been sent.
    Failed(io::Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl TlsSocket {
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

    /// Performs the handshake.
    pub(crate) async fn handshake(&self) -> Result<(), HandshakeError> {
        poll_fn(|cx| self.poll_handshake(cx)).await
    }

    fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<Result<(), HandshakeError>> {
        let mut state = self.state.lock();
        loop {
            let is_done = !state.session.is_handshaking();
            // The end of the handshake goes out with the first response if a request is already here.
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
                // TLS records begin with a small number, requests with a method.
                let is_first = !std::mem::replace(has_begun, true);
                if is_first && proxy_protocol::is_begun(&records[..length]) {
                    return Poll::Ready(Err(HandshakeError::ProxyHeader));
                }
                if is_first && records[0].is_ascii_uppercase() {
                    return Poll::Ready(Err(HandshakeError::PlainHttp));
                }
                let reached = self.socket.local_addr();
                set_reached(reached.ok().map(|address| address.ip()));
                let taken = session.receive(&mut records[..length], |plain| {
                    surplus.extend_from_slice(plain);
                });
                Poll::Ready(taken.map_err(|error| HandshakeError::Failed(io::Error::other(error))))
            });
            if let Err(failed) = ready!(taken) {
                // Sends the alert, if the client still reads.
                let _ = self.poll_drain(cx, &mut state.session);
                return Poll::Ready(Err(failed));
            }
        }
    }

    /// Returns `true` if this is an ACME validation (tls-alpn-01); it needs no more than the handshake.
    pub(crate) fn is_challenge(&self) -> bool {
        self.state.lock().session.is_challenge()
    }

    /// Returns `true` if ALPN selected HTTP/2, which excludes HTTP/1 (RFC 9113 §3.2).
    pub(crate) fn has_agreed_on_http2(&self) -> bool {
        self.state.lock().session.has_agreed_on_http2()
    }

    /// Returns the certificate that the client has presented, with its intermediates.
    pub(super) fn client_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let state = self.state.lock();
        state.session.client_certificates().map(<[_]>::to_vec)
    }

    /// Returns the certificate presented to the client, if it covers the host of its SNI.
    pub(crate) fn certificate_for_host(&self) -> Option<Arc<Certificate>> {
        self.state.lock().session.certificate_for_host().cloned()
    }

    pub(super) const fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub(super) const fn socket_ref(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends a plaintext response with the next flush, instead of TLS.
    pub(super) fn answer_bare(&self, answer: &[u8]) {
        self.state.lock().session.outgoing.extend_from_slice(answer);
    }

    /// Passes up to `room` bytes of plaintext to `take`. Returns their number; 0 is the end.
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
                // A missing close_notify counts as the end: HTTP's own framing detects truncation.
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
                // Records without plaintext may still require a reply, such as a refused renegotiation.
                if let Poll::Ready(Err(error)) = self.poll_drain(cx, session) {
                    return Poll::Ready(Err(error));
                }
            }
        })
    }

    /// Reads more bytes behind the incomplete record. Returns their total number; `None` at the end.
    fn poll_records(
        &self,
        cx: &mut Context<'_>,
        session: &TlsSession,
        records: &mut [u8],
    ) -> Poll<io::Result<Option<usize>>> {
        let kept = session.put_kept(records)?;
        let read = ready!(socket::poll_recv(
            &self.socket,
            &mut true,
            cx,
            &mut records[kept..]
        ))?;
        Poll::Ready(Ok((read > 0).then_some(kept + read)))
    }

    /// Encrypts one batch and sends it. Holds back what the socket does not take.
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

    /// Sends `close_notify` and shuts this side down.
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

impl Drop for TlsSocket {
    /// Sends `close_notify` if that is due and possible without waiting.
    fn drop(&mut self) {
        let State {
            session, in_answer, ..
        } = self.state.get_mut();
        if !*in_answer && session.say_goodbye().is_ok() && !session.outgoing.is_empty() {
            let _ = self.socket.try_write(&session.outgoing);
        }
    }
}

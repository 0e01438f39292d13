//! Other protocols on a stream (RFC 8441): an extended CONNECT becomes the upgrade that the origin
//! knows, and its connection the rest of the stream, both ways.

use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Response, Source, Tunnel};
use microcache_policy::FieldsBuf;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf, split};

use super::connection::Connection;
use super::stream::Sink;
use super::waiting::Step;

/// Read from the origin at a time.
const READ_SIZE: usize = 8 * 1024;

/// The origin's end of a tunnel, which is written to.
pub(super) type ToOrigin = WriteHalf<Box<dyn microcache_engine::Duplex>>;

/// The same, which is read from.
struct FromOrigin {
    early: Bytes,
    /// Locked by nobody: it makes the half one that may be looked at from elsewhere.
    io: Mutex<ReadHalf<Box<dyn microcache_engine::Duplex>>>,
}

impl Source for FromOrigin {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            return Poll::Ready(Some(Ok(Frame::Data(early))));
        }
        let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
        let mut read = ReadBuf::uninit(&mut space);
        let result = ready!(Pin::new(self.io.get_mut()).poll_read(cx, &mut read));
        Poll::Ready(match result {
            Ok(()) if read.filled().is_empty() => None,
            Ok(()) => Some(Ok(Frame::Data(Bytes::copy_from_slice(read.filled())))),
            Err(_) => Some(Err(BodyError::Disconnected)),
        })
    }
}

/// The protocol that streams may speak.
pub(super) const PROTOCOL: &[u8] = b"websocket";

/// What the origin's side is asked with in place of a CONNECT: fields that only HTTP/1 has.
pub(super) fn ask_in_http1(lines: &mut Vec<u8>) {
    lines.extend_from_slice(b"connection: upgrade\r\nupgrade: ");
    lines.extend_from_slice(PROTOCOL);
    // RFC 6455 §4.1: it shows that the answer is one to this request, and is no secret.
    lines.extend_from_slice(b"\r\nsec-websocket-key: ");
    let random = RandomState::new();
    let number = u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1));
    lines.extend_from_slice(&base64(number));
    lines.extend_from_slice(b"\r\n");
}

/// Sixteen bytes in base64: 22 digits, of which the last has four bits more, and the padding.
fn base64(number: u128) -> [u8; 24] {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |at: usize| {
        let bits = match at {
            21 => number << 4,
            _ => number >> (122 - 6 * at),
        };
        DIGITS[(bits & 63) as usize]
    };
    std::array::from_fn(|at| if at < 22 { digit(at) } else { b'=' })
}

/// Whether an extended CONNECT must not be answered so: its client would take the tunnel for open (RFC 8441 §4), and the
/// content of an ordinary answer for what the application says in it.
pub(super) fn seems_agreed(response: &Response) -> bool {
    let is_switched = || {
        let mut protocols = response.fields().members("upgrade");
        protocols
            .next()
            .is_some_and(|it| it.eq_ignore_ascii_case(PROTOCOL))
            && protocols.next().is_none()
    };
    match response.tunnel {
        Some(_) => !is_switched(),
        None => response.status < 300,
    }
}

/// The answer to an extended CONNECT that the origin has agreed to: there is no 101 in HTTP/2.
pub(super) fn agreed(response: &mut Response, tunnel: Tunnel) -> ToOrigin {
    let mut fields = FieldsBuf::from(response.fields());
    fields.remove("sec-websocket-accept");
    fields.remove("upgrade");
    let (io, to_origin) = split(tunnel.io);
    let (io, early) = (Mutex::new(io), tunnel.early);
    response.status = 200;
    response.fields = Some(fields.into());
    response.length = None;
    response.body = Body::Stream(Box::new(FromOrigin { early, io }));
    to_origin
}

impl Connection<'_> {
    /// Writes to the origin's end of a tunnel; with no bytes, ends it.
    pub(super) fn write_on(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        mut io: ToOrigin,
        data: Bytes,
    ) {
        let waits = self.waiting.wait(cx, id, async move {
            let goes_on = if data.is_empty() {
                let _ = io.shutdown().await;
                false
            } else {
                io.write_all(&data).await.is_ok() && io.flush().await.is_ok()
            };
            Step::Room(Sink::Tunnel(io), goes_on)
        });
        if let Some(content) = self.streams.get(id).and_then(|it| it.content.as_mut()) {
            content.waits = waits;
        }
    }

    /// Something has moved in a tunnel.
    pub(super) fn moved_in_tunnel(&mut self, id: u32) {
        let deadline = self.tunnel_deadline();
        if let Some(sending) = self.streams.get(id).and_then(|it| it.sending())
            && sending.is_tunnel
        {
            sending.deadline = Some(deadline);
        }
    }

    /// When a tunnel in which nothing moves is over.
    pub(super) fn tunnel_deadline(&self) -> microcache_policy::Time {
        let span = self.session.shared.timeouts.tunnel;
        self.now.plus(span.as_millis() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_are_written_in_base64() {
        for (bytes, expected) in [
            (b"the sample nonce", "dGhlIHNhbXBsZSBub25jZQ=="),
            (&[0xff; 16], "/////////////////////w=="),
        ] {
            assert_eq!(base64(u128::from_be_bytes(*bytes)), expected.as_bytes());
        }
    }
}

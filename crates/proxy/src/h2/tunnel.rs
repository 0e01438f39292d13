//! WebSocket over HTTP/2 (RFC 8441): an extended CONNECT becomes an HTTP/1 upgrade towards the origin, whose
//! connection then carries the rest of the stream.

use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Response, Source, Tunnel};
use microcache_policy::FieldsBuf;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf, ReadHalf, WriteHalf, split};

/// Bytes read from the origin at a time.
const READ_SIZE: usize = 8 * 1024;

/// Writing half of the origin's connection.
pub(super) type OriginWriter = WriteHalf<Box<dyn microcache_engine::Duplex>>;

/// Reading half of the origin's connection.
struct OriginReader {
    early: Bytes,
    /// Makes the half `Sync`; never contended.
    io: Mutex<ReadHalf<Box<dyn microcache_engine::Duplex>>>,
}

impl Source for OriginReader {
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

/// The protocol that extended CONNECT supports.
pub(super) const PROTOCOL: &[u8] = b"websocket";

/// Adds the fields of an HTTP/1 upgrade in place of CONNECT.
pub(super) fn ask_in_http1(lines: &mut Vec<u8>) {
    lines.extend_from_slice(b"connection: upgrade\r\nupgrade: ");
    lines.extend_from_slice(PROTOCOL);
    // RFC 6455 §4.1: it pairs the response with the request, and is not a secret.
    lines.extend_from_slice(b"\r\nsec-websocket-key: ");
    let random = RandomState::new();
    let number = u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1));
    lines.extend_from_slice(&base64(number));
    lines.extend_from_slice(b"\r\n");
}

/// Returns sixteen bytes in base64: 22 digits, of which the last has four bits of padding, and `==`.
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

/// Returns `true` for a response that a client of extended CONNECT would take for an open tunnel (RFC 8441 §4),
/// although the protocol was not switched.
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

/// Converts the origin's 101 to the 200 of HTTP/2, and returns the writing half of its connection.
pub(super) fn agreed(response: &mut Response, tunnel: Tunnel) -> OriginWriter {
    let mut fields = FieldsBuf::from(response.fields());
    fields.remove("sec-websocket-accept");
    fields.remove("upgrade");
    let (io, to_origin) = split(tunnel.io);
    let (io, early) = (Mutex::new(io), tunnel.early);
    response.status = 200;
    response.fields = Some(fields.into());
    response.length = None;
    response.body = Body::Stream(Box::new(OriginReader { early, io }));
    to_origin
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

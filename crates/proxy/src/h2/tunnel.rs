//! WebSocket over HTTP/2 (RFC 8441): an extended CONNECT becomes an HTTP/1 upgrade towards the origin, whose
//! connection then carries the rest of the stream.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Response, Source, Tunnel};
use microcache_policy::FieldsBuf;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf, ReadHalf, WriteHalf, split};

use super::extended_connect::PROTOCOL;

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

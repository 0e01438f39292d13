//! The sending half of an exchange: a head, then a body as fast as the server takes it.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::Method;
use microcache_engine::body::{Body, BodyError, Frame};
use microcache_engine::origin::{OriginError, OriginRequest};
use tokio::time::{Sleep, sleep};

use super::ahead::Held;
use super::connection::Connection;
use super::queue::Share;
use crate::h1::encode;

/// How long a server that should say 100 first is waited for (RFC 9110 §10.1.1).
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// A request on its way out.
pub(super) struct Upload {
    head: Bytes,
    /// A body that is there as a whole.
    whole: Bytes,
    /// A body that comes in pieces.
    stream: Option<Stream>,
    /// What is being written.
    out: Pieces,
    sent: u64,
    /// The body waits for a 100.
    held_back: bool,
    /// It does so until this goes off.
    patience: Option<Pin<Box<Sleep>>>,
    /// The last piece is in `out`, or behind it.
    ended: bool,
    /// The connection takes no more; what was not sent never will be.
    cut_off: bool,
    /// One of the places for uploads, while there is more to come.
    share: Option<Share>,
    /// The room that `whole` takes.
    held: Option<Held>,
}

struct Stream {
    body: Body,
    /// What is left of the announced length; `None` goes chunked.
    left: Option<u64>,
    polled: bool,
}

#[derive(Default)]
struct Pieces {
    prefix: Bytes,
    data: Bytes,
    suffix: &'static [u8],
}

/// What sending waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// Nothing: there is no more to send.
    Done,
    /// The server takes no more bytes at the moment.
    Server,
    /// The client has not sent more yet, or the server is asked first.
    Client,
}

impl Upload {
    /// Takes over a request whose body is there, and writes its head.
    pub(super) fn whole(request: &mut OriginRequest, held: Option<Held>) -> Self {
        Self {
            held,
            ..Self::new(request)
        }
    }

    /// Takes over a request whose body is still on its way, and writes its head.
    pub(super) fn in_part(request: &mut OriginRequest, share: Share) -> Self {
        Self {
            share: Some(share),
            ..Self::new(request)
        }
    }

    fn new(request: &mut OriginRequest) -> Self {
        let body = std::mem::replace(&mut request.body, Body::Empty);
        let (whole, stream) = match body {
            Body::Empty => (Bytes::new(), None),
            Body::Full(bytes) => (bytes, None),
            body => (
                Bytes::new(),
                Some(Stream {
                    body,
                    left: request.length,
                    polled: false,
                }),
            ),
        };
        let expects = stream.is_some() && request.fields.fields().contains("expect");
        let head = write_head(request, whole.len() as u64, stream.as_ref());
        let mut upload = Self {
            head: head.into(),
            whole,
            stream,
            out: Pieces::default(),
            sent: 0,
            held_back: expects,
            patience: None,
            ended: false,
            cut_off: false,
            share: None,
            held: None,
        };
        upload.rewind();
        upload
    }

    /// Starts over, for another connection.
    pub(super) fn rewind(&mut self) {
        self.out = Pieces {
            prefix: self.head.clone(),
            data: self.whole.clone(),
            suffix: b"",
        };
        self.sent = 0;
        self.ended = self.stream.is_none();
        self.cut_off = false;
    }

    /// Whether the body is still there to be sent again.
    pub(super) fn can_rewind(&self) -> bool {
        self.stream.as_ref().is_none_or(|stream| !stream.polled)
    }

    /// How many bytes this connection has taken.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether the server has been given all of the request.
    pub(super) fn is_complete(&self) -> bool {
        self.ended && self.out.is_empty() && !self.cut_off
    }

    /// The server said 100.
    pub(super) fn proceed(&mut self) {
        self.held_back = false;
    }

    /// The server has answered. If it did not say 100 before, it does not want the body; and what
    /// it has heard is not sent again.
    pub(super) fn answered(&mut self) {
        self.cut_off |= self.held_back;
        if self.is_complete() {
            self.whole = Bytes::new();
            self.held = None;
        }
    }

    /// Sends as much as can be sent now.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Result<Sending, OriginError> {
        while !self.cut_off {
            if !self.out.is_empty() {
                match connection.poll_write(cx, &self.out.slices()) {
                    Poll::Pending => return Ok(Sending::Server),
                    Poll::Ready(Ok(written)) => {
                        self.sent += written as u64;
                        self.out.advance(written);
                    }
                    // It may have answered before it closed, so reading goes on.
                    Poll::Ready(Err(_)) => self.cut_off = true,
                }
                continue;
            }
            if self.ended {
                break;
            }
            if self.held_back {
                let patience = self
                    .patience
                    .get_or_insert_with(|| Box::pin(sleep(CONTINUE_PATIENCE)));
                if patience.as_mut().poll(cx).is_pending() {
                    return Ok(Sending::Client);
                }
                self.held_back = false;
            }
            if self.poll_body(cx)?.is_pending() {
                return Ok(Sending::Client);
            }
        }
        self.share = None;
        Ok(Sending::Done)
    }

    /// Puts the next piece of the body into `out`.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, OriginError> {
        let Some(stream) = &mut self.stream else {
            self.ended = true;
            return Ok(Poll::Ready(()));
        };
        stream.polled = true;
        let Poll::Ready(frame) = stream.body.poll_frame(cx) else {
            return Ok(Poll::Pending);
        };
        match frame.transpose().map_err(OriginError::RequestBody)? {
            Some(Frame::Data(data)) => {
                self.out = stream.frame(data)?;
                // A body of known length is over with its last byte, whenever the client says so.
                self.ended = stream.left == Some(0);
            }
            Some(Frame::Trailers(fields)) => {
                if stream.left.is_none() {
                    let mut out = Vec::new();
                    encode::trailers(&mut out, fields.fields());
                    self.out.prefix = out.into();
                    self.ended = true;
                }
            }
            None if stream.left.is_some_and(|left| left > 0) => {
                return Err(OriginError::RequestBody(BodyError::Incomplete));
            }
            None => {
                if stream.left.is_none() {
                    self.out.suffix = encode::BODY_END;
                }
                self.ended = true;
            }
        }
        Ok(Poll::Ready(()))
    }
}

impl Stream {
    fn frame(&mut self, data: Bytes) -> Result<Pieces, OriginError> {
        let length = data.len();
        if let Some(left) = &mut self.left {
            *left = left
                .checked_sub(length as u64)
                .ok_or(OriginError::RequestBody(BodyError::Malformed(
                    "longer than announced",
                )))?;
            return Ok(Pieces {
                data,
                ..Pieces::default()
            });
        }
        if data.is_empty() {
            return Ok(Pieces::default());
        }
        let mut size = Vec::with_capacity(2 + 2 * size_of::<usize>());
        encode::chunk_size(&mut size, length);
        Ok(Pieces {
            prefix: size.into(),
            data,
            suffix: encode::CHUNK_END,
        })
    }
}

impl Pieces {
    fn is_empty(&self) -> bool {
        self.prefix.is_empty() && self.data.is_empty() && self.suffix.is_empty()
    }

    fn slices(&self) -> [IoSlice<'_>; 3] {
        [&self.prefix[..], &self.data[..], self.suffix].map(IoSlice::new)
    }

    fn advance(&mut self, mut written: usize) {
        for piece in [&mut self.prefix, &mut self.data] {
            let part = written.min(piece.len());
            piece.advance(part);
            written -= part;
        }
        self.suffix = self.suffix.get(written..).unwrap_or_default();
    }
}

/// The request line, the fields, and what frames the body. The framing is written here and nowhere
/// else, so that no field a client sent can contradict it.
fn write_head(request: &OriginRequest, whole: u64, stream: Option<&Stream>) -> Vec<u8> {
    let block = request.fields.fields().as_block();
    let length = block.len() + request.target.len() + request.authority.len();
    let mut out = Vec::with_capacity(length + 128);
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(&request.target);
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(&request.authority);
    out.extend_from_slice(b"\r\n");
    request.fields.fields().write_if(&mut out, |name, _| {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let of_connection = match name.len() {
            4 => is("host"),
            6 => is("expect") && stream.is_none(),
            7 => is("upgrade") && !request.upgrade,
            10 => is("connection"),
            14 => is("content-length"),
            17 => is("transfer-encoding"),
            _ => false,
        };
        !of_connection
    });
    if request.upgrade {
        out.extend_from_slice(b"Connection: upgrade\r\n");
    }
    match stream.map(|stream| stream.left) {
        Some(None) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Some(Some(length)) => write_length(&mut out, length),
        // RFC 9110 §8.6: methods that expect content say that there is none.
        None if whole > 0 || request.length.is_some() || expects_content(&request.method) => {
            write_length(&mut out, whole);
        }
        None => {}
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn write_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(length.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn expects_content(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

#[cfg(test)]
mod tests {
    use microcache_engine::RouteId;

    use super::*;
    use microcache_engine::origin::Urgency;
    use microcache_policy::{FieldsBuf, Scheme};

    fn head(method: Method, fields: &[(&str, &str)], body: Body, length: Option<u64>) -> String {
        let mut request = OriginRequest {
            method,
            scheme: Scheme::Http,
            authority: Bytes::from_static(b"a"),
            target: Bytes::from_static(b"/a?b"),
            fields: FieldsBuf::new(),
            body,
            length,
            upgrade: fields.iter().any(|(name, _)| *name == "Upgrade"),
            interim: None,
            urgency: Urgency::Client,
            client: None,
            route: RouteId::default(),
            span: None,
        };
        for (name, value) in fields {
            request.fields.push(name, value);
        }
        let upload = Upload::whole(&mut request, None);
        String::from_utf8(upload.head.to_vec()).unwrap()
    }

    #[test]
    fn the_framing_is_ours_whatever_the_fields_say() {
        let lies = [
            ("Host", "b"),
            ("Content-Length", "7"),
            ("Transfer-encoding", "chunked"),
            ("CONNECTION", "close"),
            ("Expect", "100-continue"),
            ("X", "1"),
        ];
        let hello = || Body::Full(Bytes::from_static(b"hello"));
        for (method, body, length, framing) in [
            (Method::GET, Body::Empty, None, ""),
            (Method::GET, Body::Empty, Some(0), "Content-Length: 0\r\n"),
            (Method::POST, Body::Empty, None, "Content-Length: 0\r\n"),
            (Method::POST, hello(), None, "Content-Length: 5\r\n"),
            (Method::PUT, hello(), Some(9), "Content-Length: 5\r\n"),
        ] {
            let expected = format!("{method} /a?b HTTP/1.1\r\nHost: a\r\nX: 1\r\n{framing}\r\n");
            assert_eq!(head(method, &lies, body, length), expected);
        }
    }

    #[test]
    fn an_upgrade_says_so_in_connection() {
        let fields = [("Upgrade", "websocket")];
        assert_eq!(
            head(Method::GET, &fields, Body::Empty, None),
            "GET /a?b HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
        );
    }
}

//! Writes requests as HTTP/1.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use microcache_engine::origin::OriginError;
use microcache_wire::h1::encode;

use super::pieces::Pieces;
use super::{BodyPiece, OF_CONNECTION, SendState, Upload};
use crate::upstream::connection::OriginConnection;

impl Upload {
    /// Starts an attempt on an HTTP/1 connection.
    pub(in crate::upstream) fn begin_http1(&mut self, now: Instant) {
        let out = Pieces::framed(self.write_head(), self.whole.clone(), b"");
        self.restart(out, now);
    }

    /// Writes a part of what is framed.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut OriginConnection,
    ) -> Poll<()> {
        match ready!(connection.poll_write(cx, &self.out.slices())) {
            Ok(written) => {
                self.sent += written as u64;
                self.out.advance(written);
            }
            // The server may have responded before it closed, so reading continues.
            Err(_) => self.cut_off = true,
        }
        Poll::Ready(())
    }

    /// Writes as much as the connection takes.
    pub(in crate::upstream) fn poll_http1(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut OriginConnection,
    ) -> Result<SendState, OriginError> {
        self.keeps_its_place(cx)?;
        while !self.cut_off {
            if !self.out.is_empty() {
                if self.poll_write(cx, connection).is_pending() {
                    return Ok(SendState::Server);
                }
                continue;
            }
            if self.ended {
                break;
            }
            let is_chunked = self.is_chunked();
            match self.next(cx)? {
                Poll::Ready(next) => self.out = Pieces::of(next, is_chunked),
                Poll::Pending => return Ok(SendState::Client),
            }
        }
        self.share = None;
        Ok(SendState::Done)
    }

    fn is_chunked(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.left.is_none())
    }

    /// The request line, the fields, and what frames the body.
    fn write_head(&self) -> Vec<u8> {
        let head = &self.head;
        let block = head.fields.fields().as_block();
        let length = block.len() + head.target.len() + head.authority.len();
        let mut out = Vec::with_capacity(length + 128);
        out.extend_from_slice(head.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(&head.target);
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(&head.authority);
        out.extend_from_slice(b"\r\n");
        let fields = head.fields.fields();
        if fields.may_have(OF_CONNECTION) {
            fields.write_lines(&mut out, |line| self.travels(line.known()));
        } else {
            out.extend_from_slice(block);
        }
        if head.upgrade {
            out.extend_from_slice(b"Connection: upgrade\r\n");
        }
        if self.is_chunked() {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else if let Some(length) = self.length() {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(length.to_string().as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

impl Pieces {
    fn of(next: BodyPiece, is_chunked: bool) -> Self {
        match next {
            BodyPiece::Data(data) if !is_chunked => Self::plain(data),
            BodyPiece::Data(data) if data.is_empty() => Self::default(),
            BodyPiece::Data(data) => {
                let mut size = Vec::with_capacity(2 + 2 * size_of::<usize>());
                encode::chunk_size(&mut size, data.len());
                Self::framed(size, data, encode::CHUNK_END)
            }
            BodyPiece::Trailers(fields) => {
                let mut out = Vec::new();
                encode::trailers(&mut out, fields.fields());
                Self::framed(out, Bytes::new(), b"")
            }
            BodyPiece::End if is_chunked => {
                Self::framed(Vec::new(), Bytes::new(), encode::BODY_END)
            }
            BodyPiece::End => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use microcache_engine::body::Body;
    use microcache_engine::origin::OriginRequest;

    use super::*;

    fn head(method: Method, fields: &[(&str, &str)], body: Body, length: Option<u64>) -> String {
        let mut request = OriginRequest {
            body,
            length,
            upgrade: fields.iter().any(|(name, _)| *name == "Upgrade"),
            ..OriginRequest::bare(
                method,
                Bytes::from_static(b"a"),
                Bytes::from_static(b"/a?b"),
            )
        };
        for (name, value) in fields {
            request.fields.push(name, value);
        }
        let upload = Upload::whole(&mut request, None, Instant::now());
        String::from_utf8(upload.write_head()).unwrap()
    }

    #[test]
    fn fields_of_the_request_do_not_change_the_framing() {
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
    fn an_upgrade_is_named_in_connection() {
        let fields = [("Upgrade", "websocket")];
        assert_eq!(
            head(Method::GET, &fields, Body::Empty, None),
            "GET /a?b HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
        );
    }
}

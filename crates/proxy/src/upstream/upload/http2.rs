//! A request as HTTP/2 has it.

use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use h2::SendStream;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, TE};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version};
use microcache_engine::origin::OriginError;
use microcache_policy::{Fields, KnownName, hop};

use super::pieces::Pieces;
use super::{BodyPiece, SendState, Upload};

impl Upload {
    /// The head of the request for a server whose urls have this scheme. Nothing if it is one that only HTTP/1 can
    /// say: a host that is not an authority, or an upgrade.
    pub(in crate::upstream) fn http2_head(&self, scheme: Scheme) -> Option<Request<()>> {
        let head = &self.head;
        if head.upgrade {
            return None;
        }
        let mut url = Parts::default();
        url.scheme = Some(scheme);
        url.authority = Some(Authority::from_maybe_shared(head.authority.clone()).ok()?);
        url.path_and_query = Some(PathAndQuery::from_maybe_shared(head.target.clone()).ok()?);
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_parts(url).ok()?;
        *request.method_mut() = head.method.clone();
        *request.version_mut() = Version::HTTP_2;
        let mut fields = map_of(self.fields(), |name| self.travels(name))?;
        if let Some(length) = self.length() {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        if head.takes_trailers {
            fields.insert(TE, HeaderValue::from_static("trailers"));
        }
        *request.headers_mut() = fields;
        Some(request)
    }

    /// Begins sending on a stream. Returns true if nothing follows the head.
    pub(in crate::upstream) fn begin_http2(&mut self) -> bool {
        self.restart(Pieces::plain(self.whole.clone()), Instant::now());
        self.is_complete()
    }

    /// Sends as much as the server's windows take now.
    pub(in crate::upstream) fn poll_http2(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut SendStream<Bytes>,
    ) -> Result<SendState, OriginError> {
        self.keeps_its_place(cx)?;
        while !self.cut_off {
            if !self.out.is_empty() {
                match poll_room(cx, stream, self.out.data.len()) {
                    Poll::Pending => return Ok(SendState::Server),
                    Poll::Ready(Some(room)) => self.send_some(room, stream),
                    // The server may have responded before it closed the stream, so reading continues.
                    Poll::Ready(None) => self.cut_off = true,
                }
                continue;
            }
            if self.ended {
                break;
            }
            let sent = match self.next(cx)? {
                Poll::Pending => return Ok(SendState::Client),
                Poll::Ready(BodyPiece::Data(data)) if data.is_empty() => {
                    // What would have ended the stream has to do so all the same.
                    self.ended = false;
                    continue;
                }
                Poll::Ready(BodyPiece::Data(data)) => {
                    self.out = Pieces::plain(data);
                    continue;
                }
                Poll::Ready(BodyPiece::Trailers(fields)) => {
                    let trailers = map_of(fields.fields(), |_| true).unwrap_or_default();
                    stream.send_trailers(trailers)
                }
                Poll::Ready(BodyPiece::End) => stream.send_data(Bytes::new(), true),
            };
            self.cut_off |= sent.is_err();
        }
        self.share = None;
        Ok(SendState::Done)
    }

    /// Sends as much of the pending data as fits, and `END_STREAM` with the last of it.
    fn send_some(&mut self, room: usize, stream: &mut SendStream<Bytes>) {
        let data = &mut self.out.data;
        let some = data.copy_to_bytes(room.min(data.len()));
        let is_last = self.ended && data.is_empty();
        self.sent += some.len() as u64;
        self.cut_off |= stream.send_data(some, is_last).is_err();
    }
}

/// Flow-control capacity of a stream, up to `wanted`; `None` if it is closed. More than that would only be
/// buffered here.
fn poll_room(
    cx: &mut Context<'_>,
    stream: &mut SendStream<Bytes>,
    wanted: usize,
) -> Poll<Option<usize>> {
    stream.reserve_capacity(wanted);
    match stream.capacity() {
        0 => stream
            .poll_capacity(cx)
            .map(|room| room.and_then(Result::ok)),
        room => Poll::Ready(Some(room)),
    }
}

/// Converts fields for the `h2` crate. Secrets are never indexed by HPACK: their compressed size would reveal
/// what they share with other clients' requests on the connection (RFC 7541 §7.1.3).
fn map_of(fields: Fields<'_>, travels: impl Fn(Option<KnownName>) -> bool) -> Option<HeaderMap> {
    let of_connection = hop::NominatedFields::default();
    let mut map = HeaderMap::new();
    for line in fields.lines() {
        if !travels(line.known()) || of_connection.stays_behind(line.field_name()) {
            continue;
        }
        let name = HeaderName::from_bytes(line.name()).ok()?;
        let mut value = HeaderValue::from_bytes(line.value()).ok()?;
        value.set_sensitive(name == AUTHORIZATION || name == COOKIE);
        map.try_append(name, value).ok()?;
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    use http::Method;
    use microcache_engine::origin::OriginRequest;

    use super::*;

    fn origin_request(
        method: Method,
        authority: &'static str,
        target: &'static str,
    ) -> OriginRequest {
        let authority = Bytes::from_static(authority.as_bytes());
        OriginRequest::bare(method, authority, Bytes::from_static(target.as_bytes()))
    }

    fn head(mut request: OriginRequest) -> Option<Request<()>> {
        Upload::whole(&mut request, None, Instant::now()).http2_head(Scheme::HTTPS)
    }

    #[test]
    fn every_target_is_sent_unchanged() {
        for target in [
            "/",
            "//a//b",
            "/a?b|c{d}\\^`?e[f]",
            "/%2e%2e/%00?a=%7C",
            "/?",
            "/a:b@c;d,e!$&'()*+=~_-.",
            "/a?http://b/c",
        ] {
            let request = head(origin_request(Method::GET, "a.example:81", target)).expect(target);
            let said = request.uri().path_and_query().map(PathAndQuery::as_str);
            assert_eq!(said, Some(target));
            assert_eq!(request.uri().scheme(), Some(&Scheme::HTTPS));
            let said = request.uri().authority().map(Authority::as_str);
            assert_eq!(said, Some("a.example:81"));
        }
        let request = head(origin_request(Method::OPTIONS, "[::1]:81", "*")).expect("a request");
        assert_eq!(request.uri().path(), "*");
    }

    #[test]
    fn requests_that_need_http1_are_left_to_it() {
        assert!(head(origin_request(Method::GET, "", "/")).is_none());
        assert!(head(origin_request(Method::GET, "a%20b", "/")).is_none());
        let mut upgrade = origin_request(Method::GET, "a", "/");
        upgrade.upgrade = true;
        upgrade.fields.push("Upgrade", "websocket");
        assert!(head(upgrade).is_none());
    }

    #[test]
    fn framing_and_connection_fields_of_the_request_are_not_forwarded() {
        for (method, length, framing) in [
            (Method::GET, None, None),
            (Method::GET, Some(0), Some("0")),
            (Method::POST, None, Some("0")),
        ] {
            let mut request = origin_request(method, "a", "/");
            request.length = length;
            for (name, value) in [
                ("Host", "b"),
                ("Content-Length", "7"),
                ("Transfer-Encoding", "chunked"),
                ("CONNECTION", "close"),
                ("Keep-Alive", "5"),
                ("TE", "gzip"),
                ("Upgrade", "h2c"),
                ("Expect", "100-continue"),
                ("X-A", "1"),
                ("Cookie", "a=b"),
                ("x-a", "\u{e4}"),
            ] {
                request.fields.push(name, value);
            }
            let request = head(request).expect("a request");
            let fields = request.headers();
            assert!(!fields.contains_key(TE));
            let said = fields.get(CONTENT_LENGTH);
            assert_eq!(said.map(HeaderValue::as_bytes), framing.map(str::as_bytes));
            assert_eq!(fields.len(), 3 + usize::from(framing.is_some()));
            let twice: Vec<_> = fields.get_all("x-a").iter().collect();
            assert_eq!(twice, ["1".as_bytes(), "\u{e4}".as_bytes()]);
            assert!(fields[COOKIE].is_sensitive() && !twice[0].is_sensitive());
        }
    }

    #[test]
    fn trailers_are_requested_where_the_client_accepts_them() {
        let mut request = origin_request(Method::POST, "a", "/");
        request.takes_trailers = true;
        let request = head(request).expect("a request");
        assert_eq!(request.headers()[TE], "trailers");
    }
}

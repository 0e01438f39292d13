//! The request to an authentication server.

use bytes::Bytes;
use http::Method;
use microcache_engine::{OriginRequest, Request};
use microcache_policy::{Fields, FieldsBuf};

/// The fields of the client that the server receives, beside those with its address and URL. Some servers answer programs
/// with 401 and browsers with a redirect.
const FORWARDED: [&str; 6] = [
    "Cookie",
    "Authorization",
    "Accept",
    "Accept-Language",
    "User-Agent",
    "X-Requested-With",
];

/// The request that is asked about.
pub(crate) struct AuthSubject<'a> {
    pub(crate) request: &'a Request<'a>,
    /// The scheme, the host and the address of the visitor, as far as trusted proxies name them.
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a [u8],
    pub(crate) address: &'a str,
}

/// The place that is asked.
pub(crate) struct AuthQuestion<'a> {
    pub(crate) authority: &'a str,
    pub(crate) target: &'a str,
    /// Names this server, so that a loop is noticed.
    pub(crate) via: &'a str,
}

impl AuthSubject<'_> {
    /// Returns everything that a kept decision depends on.
    pub(crate) fn identity<'a>(
        &'a self,
        question: &'a AuthQuestion<'a>,
    ) -> impl Iterator<Item = &'a [u8]> {
        let Request {
            method,
            target,
            fields,
            ..
        } = self.request;
        let parts: [&[u8]; 7] = [
            question.authority.as_bytes(),
            question.target.as_bytes(),
            self.scheme.as_bytes(),
            self.host,
            method.as_str().as_bytes(),
            target,
            self.address.as_bytes(),
        ];
        let credentials = ["Cookie", "Authorization"].into_iter();
        let credentials = credentials.flat_map(move |name| {
            let lines = fields.all(name);
            std::iter::once(name.as_bytes()).chain(lines)
        });
        parts.into_iter().chain(credentials)
    }
}

impl AuthQuestion<'_> {
    /// Returns the request to the server: a GET without content.
    pub(crate) fn about(&self, subject: &AuthSubject<'_>) -> OriginRequest {
        let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let mut question =
            OriginRequest::bare(Method::GET, copy(self.authority), copy(self.target));
        question.fields = fields_of(subject);
        question.fields.push("Via", self.via);
        question
    }
}

fn fields_of(subject: &AuthSubject<'_>) -> FieldsBuf {
    let request = subject.request;
    let client: Fields<'_> = request.fields;
    let method = request.method.as_str();
    let mut fields = FieldsBuf::new();
    for name in FORWARDED {
        for value in client.all(name) {
            fields.push(name, value);
        }
    }
    let url = [
        subject.scheme.as_bytes(),
        b"://",
        subject.host,
        request.target,
    ];
    fields.push("X-Forwarded-Method", method);
    fields.push("X-Forwarded-Proto", subject.scheme);
    fields.push("X-Forwarded-Host", subject.host);
    fields.push("X-Forwarded-Uri", request.target);
    fields.push("X-Forwarded-For", subject.address);
    fields.push("X-Original-Method", method);
    fields.push_joined(b"X-Original-URL", &url);
    fields
}

#[cfg(test)]
mod tests {
    use microcache_policy::Scheme;

    use super::*;

    #[test]
    fn the_server_receives_credentials_and_the_visitors_address_and_url() {
        let request = Request {
            fields: Fields::new(
                b"Cookie: a=b\r\nCookie: c=d\r\nAuthorization: x\r\nX-Forwarded-For: 6.6.6.6\r\nX-Original-URL: /\r\nRemote-User: root\r\nContent-Length: 3\r\n",
            ),
            method: &Method::POST,
            ..Request::of_url(Scheme::Http, b"h", b"/a?b")
        };
        let subject = AuthSubject {
            request: &request,
            scheme: "https",
            host: b"example.com",
            address: "192.0.2.1",
        };
        let question = AuthQuestion {
            authority: "auth:9091",
            target: "/verify?rd=x",
            via: "1.1 me",
        };
        let asked = question.about(&subject);
        assert_eq!(
            (asked.method, &asked.target[..]),
            (Method::GET, &b"/verify?rd=x"[..])
        );
        assert_eq!(&asked.authority[..], b"auth:9091");
        let text = String::from_utf8_lossy(asked.fields.fields().as_block()).into_owned();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Cookie: a=b",
                "Cookie: c=d",
                "Authorization: x",
                "X-Forwarded-Method: POST",
                "X-Forwarded-Proto: https",
                "X-Forwarded-Host: example.com",
                "X-Forwarded-Uri: /a?b",
                "X-Forwarded-For: 192.0.2.1",
                "X-Original-Method: POST",
                "X-Original-URL: https://example.com/a?b",
                "Via: 1.1 me",
            ]
        );
        assert!(subject.identity(&question).any(|part| part == b"c=d"));
    }
}

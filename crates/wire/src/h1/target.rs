//! The four forms of a request target (RFC 9112 §3.2). Nothing is decoded.

use std::borrow::Cow;

use super::bad_request::BadRequest;
use super::syntax::{HOST, span, target_span};

/// Request target, split into its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget<'a> {
    /// Origin form: `/path?query`.
    Origin(&'a [u8]),
    /// Absolute form: `http://host/path?query`. Its authority replaces the Host field (RFC 9112 §3.2.2).
    Absolute {
        /// The scheme is `https` if `true`, else `http`.
        secure: bool,
        /// Host and port, without user information and without an empty port.
        authority: &'a [u8],
        /// Path and query; an absent path is `/`, and `*` for OPTIONS without a query.
        path: Cow<'a, [u8]>,
    },
    /// Authority form: `host:port` of a CONNECT.
    Authority(&'a [u8]),
    /// Asterisk form: `*` of an OPTIONS.
    Asterisk,
}

/// Splits the target of a request with this method.
///
/// Fails if the form does not suit the method, or the authority is invalid.
pub fn split_target<'a>(method: &[u8], target: &'a [u8]) -> Result<RequestTarget<'a>, BadRequest> {
    if method == b"CONNECT" {
        // RFC 9110 §9.3.6: the port is mandatory here.
        return match authority(target) {
            Some(authority) if authority.len() == target.len() => {
                Ok(RequestTarget::Authority(authority))
            }
            _ => Err(BadRequest::malformed("CONNECT without an authority")),
        };
    }
    match target {
        _ if target_span(target) != target.len() => Err(BadRequest::malformed(
            "an invalid byte in the request target",
        )),
        [b'/', ..] => Ok(RequestTarget::Origin(target)),
        b"*" if method == b"OPTIONS" => Ok(RequestTarget::Asterisk),
        _ => split_absolute(method, target),
    }
}

fn split_absolute<'a>(method: &[u8], target: &'a [u8]) -> Result<RequestTarget<'a>, BadRequest> {
    let (secure, rest) = if let Some(rest) = strip_scheme(target, b"http://") {
        (false, rest)
    } else if let Some(rest) = strip_scheme(target, b"https://") {
        (true, rest)
    } else {
        return Err(BadRequest::malformed(
            "the form of the request target is invalid",
        ));
    };
    let end = rest
        .iter()
        .position(|b| matches!(b, b'/' | b'?'))
        .unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let authority =
        authority(host).ok_or(BadRequest::malformed("the target's authority is invalid"))?;
    let path = match path.first() {
        Some(b'/') => Cow::Borrowed(path),
        Some(_) => Cow::Owned([b"/", path].concat()),
        // RFC 9112 §3.2.4: a request to the server itself, through a proxy.
        None if method == b"OPTIONS" => Cow::Borrowed(&b"*"[..]),
        None => Cow::Borrowed(&b"/"[..]),
    };
    Ok(RequestTarget::Absolute {
        secure,
        authority,
        path,
    })
}

fn strip_scheme<'a>(target: &'a [u8], scheme: &[u8]) -> Option<&'a [u8]> {
    let (front, rest) = target.split_at_checked(scheme.len())?;
    front.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Validates a host with an optional port: no user information, no list. An empty port equals none (RFC 3986
/// §3.2.3) and is removed with its colon.
pub(crate) fn authority(authority: &[u8]) -> Option<&[u8]> {
    let rest = if let [b'[', rest @ ..] = authority {
        let (address, rest) = rest.split_at(memchr::memchr(b']', rest)?);
        let literal = address.contains(&b':')
            && address
                .iter()
                .all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'));
        if !literal {
            return None;
        }
        &rest[1..]
    } else {
        let (name, rest) = authority.split_at(span(authority, HOST));
        if name.is_empty() {
            return None;
        }
        rest
    };
    match rest {
        [b':'] => authority.strip_suffix(b":"),
        [] => Some(authority),
        [b':', port @ ..] if port.len() <= 5 && port.iter().all(u8::is_ascii_digit) => {
            Some(authority)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absolute<'a>(secure: bool, authority: &'a str, path: &'a str) -> RequestTarget<'a> {
        RequestTarget::Absolute {
            secure,
            authority: authority.as_bytes(),
            path: Cow::Borrowed(path.as_bytes()),
        }
    }

    #[test]
    fn every_form_is_taken_apart() {
        for (method, target, expected) in [
            ("GET", "/", RequestTarget::Origin(b"/")),
            ("GET", "//h/x?y=/", RequestTarget::Origin(b"//h/x?y=/")),
            ("GET", "http://h", absolute(false, "h", "/")),
            ("GET", "http://h?x", absolute(false, "h", "/?x")),
            ("GET", "HTTP://h:80/a?b", absolute(false, "h:80", "/a?b")),
            ("GET", "https://[::1]:8/", absolute(true, "[::1]:8", "/")),
            ("GET", "http://h:", absolute(false, "h", "/")),
            ("GET", "http://h:/", absolute(false, "h", "/")),
            ("GET", "http://[::1]:?x", absolute(false, "[::1]", "/?x")),
            ("GET", "/a?b|{c}", RequestTarget::Origin(b"/a?b|{c}")),
            ("OPTIONS", "*", RequestTarget::Asterisk),
            ("OPTIONS", "http://h", absolute(false, "h", "*")),
            ("OPTIONS", "http://h:", absolute(false, "h", "*")),
            ("OPTIONS", "http://h/", absolute(false, "h", "/")),
            ("OPTIONS", "http://h?", absolute(false, "h", "/?")),
            ("CONNECT", "h:443", RequestTarget::Authority(b"h:443")),
        ] {
            assert_eq!(
                split_target(method.as_bytes(), target.as_bytes()),
                Ok(expected),
                "{target}"
            );
        }
    }

    #[test]
    fn invalid_targets_are_refused() {
        for (method, target) in [
            ("GET", ""),
            ("GET", "*"),
            ("GET", "h"),
            ("GET", "h:80"),
            ("GET", "?x"),
            ("GET", "ftp://h/"),
            ("GET", "http:/h/"),
            ("GET", "http://"),
            ("GET", "http:///x"),
            ("GET", "http://user@h/"),
            ("GET", "http://a,b/"),
            ("GET", "http://h::/"),
            ("GET", "http://:/"),
            ("GET", "http://[]:/"),
            ("GET", "http://h:x/"),
            ("GET", "http://h:123456/"),
            ("GET", "http://[::1/"),
            ("GET", "http://[::1]x/"),
            ("GET", "http://[]/"),
            ("GET", "/a#b"),
            ("GET", "/a b"),
            ("GET", "/a|b"),
            ("GET", "/a?\"b\""),
            ("GET", "/\u{e4}"),
            ("GET", "http://h/a|b"),
            ("CONNECT", "h:"),
            ("CONNECT", "/"),
            ("CONNECT", "http://h/"),
        ] {
            let refused = split_target(method.as_bytes(), target.as_bytes()).unwrap_err();
            assert_eq!(refused.status(), 400, "{target}");
        }
    }
}

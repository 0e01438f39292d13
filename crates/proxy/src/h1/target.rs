//! The four forms of a request target (RFC 9112 §3.2). Nothing is decoded.

use std::borrow::Cow;

use super::head::BadRequest;
use super::syntax::{HOST, span, target_span};

/// A request target, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/path?query`.
    Origin(&'a [u8]),
    /// `http://host/path?query`. The authority stands in for the Host field (RFC 9112 §3.2.2).
    Absolute {
        /// Whether the scheme is `https`.
        secure: bool,
        /// Host and port, without user information and without an empty port.
        authority: &'a [u8],
        /// Path and query; an absent path is `/`, and with OPTIONS and no query `*`.
        path: Cow<'a, [u8]>,
    },
    /// `host:port` of a CONNECT.
    Authority(&'a [u8]),
    /// The `*` of an OPTIONS.
    Asterisk,
}

/// Takes the target of a request with this method apart.
pub fn split_target<'a>(method: &[u8], target: &'a [u8]) -> Result<Target<'a>, BadRequest> {
    if method == b"CONNECT" {
        // RFC 9110 §9.3.6: here a port is not left out.
        return match authority(target) {
            Some(authority) if authority.len() == target.len() => Ok(Target::Authority(authority)),
            _ => Err(BadRequest::malformed("CONNECT without an authority")),
        };
    }
    match target {
        _ if target_span(target) != target.len() => Err(BadRequest::malformed(
            "a byte that no request target may have",
        )),
        [b'/', ..] => Ok(Target::Origin(target)),
        b"*" if method == b"OPTIONS" => Ok(Target::Asterisk),
        _ => split_absolute(method, target),
    }
}

fn split_absolute<'a>(method: &[u8], target: &'a [u8]) -> Result<Target<'a>, BadRequest> {
    let (secure, rest) = if let Some(rest) = strip_scheme(target, b"http://") {
        (false, rest)
    } else if let Some(rest) = strip_scheme(target, b"https://") {
        (true, rest)
    } else {
        return Err(BadRequest::malformed("the request target has no form"));
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
        // RFC 9112 §3.2.4: asked of the server itself, by way of a proxy.
        None if method == b"OPTIONS" => Cow::Borrowed(&b"*"[..]),
        None => Cow::Borrowed(&b"/"[..]),
    };
    Ok(Target::Absolute {
        secure,
        authority,
        path,
    })
}

fn strip_scheme<'a>(target: &'a [u8], scheme: &[u8]) -> Option<&'a [u8]> {
    let (front, rest) = target.split_at_checked(scheme.len())?;
    front.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// A host with an optional port and nothing else: no user information, no list. A port that is left
/// empty means the same as none (RFC 3986 §3.2.3), and is left out with its colon.
pub fn authority(authority: &[u8]) -> Option<&[u8]> {
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

    fn absolute<'a>(secure: bool, authority: &'a str, path: &'a str) -> Target<'a> {
        Target::Absolute {
            secure,
            authority: authority.as_bytes(),
            path: Cow::Borrowed(path.as_bytes()),
        }
    }

    #[test]
    fn every_form_is_taken_apart() {
        for (method, target, expected) in [
            ("GET", "/", Target::Origin(b"/")),
            ("GET", "//h/x?y=/", Target::Origin(b"//h/x?y=/")),
            ("GET", "http://h", absolute(false, "h", "/")),
            ("GET", "http://h?x", absolute(false, "h", "/?x")),
            ("GET", "HTTP://h:80/a?b", absolute(false, "h:80", "/a?b")),
            ("GET", "https://[::1]:8/", absolute(true, "[::1]:8", "/")),
            ("GET", "http://h:", absolute(false, "h", "/")),
            ("GET", "http://h:/", absolute(false, "h", "/")),
            ("GET", "http://[::1]:?x", absolute(false, "[::1]", "/?x")),
            ("GET", "/a?b|{c}", Target::Origin(b"/a?b|{c}")),
            ("OPTIONS", "*", Target::Asterisk),
            ("OPTIONS", "http://h", absolute(false, "h", "*")),
            ("OPTIONS", "http://h:", absolute(false, "h", "*")),
            ("OPTIONS", "http://h/", absolute(false, "h", "/")),
            ("OPTIONS", "http://h?", absolute(false, "h", "/?")),
            ("CONNECT", "h:443", Target::Authority(b"h:443")),
        ] {
            assert_eq!(
                split_target(method.as_bytes(), target.as_bytes()),
                Ok(expected),
                "{target}"
            );
        }
    }

    #[test]
    fn what_has_no_form_is_refused() {
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

//! The four forms of a request target (RFC 9112 §3.2). Nothing is decoded.

use std::borrow::Cow;

use super::head::BadRequest;
use super::syntax::{HOST, TARGET, is_all, span};

/// A request target, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/path?query`.
    Origin(&'a [u8]),
    /// `http://host/path?query`. The authority stands in for the Host field (RFC 9112 §3.2.2).
    Absolute {
        /// Whether the scheme is `https`.
        secure: bool,
        /// Host and port, without user information.
        authority: &'a [u8],
        /// Path and query; an absent path is `/`.
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
        return if is_authority(target) {
            Ok(Target::Authority(target))
        } else {
            Err(BadRequest::malformed("CONNECT without an authority"))
        };
    }
    match target {
        _ if !is_all(target, TARGET) => Err(BadRequest::malformed(
            "a byte that no request target may have",
        )),
        [b'/', ..] => Ok(Target::Origin(target)),
        b"*" if method == b"OPTIONS" => Ok(Target::Asterisk),
        _ => split_absolute(target),
    }
}

fn split_absolute(target: &[u8]) -> Result<Target<'_>, BadRequest> {
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
    let (authority, path) = rest.split_at(end);
    if !is_authority(authority) {
        return Err(BadRequest::malformed("the target's authority is invalid"));
    }
    let path = match path.first() {
        Some(b'/') => Cow::Borrowed(path),
        Some(_) => Cow::Owned([b"/", path].concat()),
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

/// Whether this is a host with an optional port and nothing else: no user information, no list.
pub fn is_authority(authority: &[u8]) -> bool {
    let rest = if let [b'[', rest @ ..] = authority {
        let Some(end) = memchr::memchr(b']', rest) else {
            return false;
        };
        let (address, rest) = rest.split_at(end);
        let literal = address.contains(&b':')
            && address
                .iter()
                .all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'));
        if !literal {
            return false;
        }
        &rest[1..]
    } else {
        let (name, rest) = authority.split_at(span(authority, HOST));
        if name.is_empty() {
            return false;
        }
        rest
    };
    match rest {
        [] => true,
        [b':', port @ ..] => matches!(port.len(), 1..=5) && port.iter().all(u8::is_ascii_digit),
        _ => false,
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
            ("OPTIONS", "*", Target::Asterisk),
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
            ("GET", "http://h:/"),
            ("GET", "http://h:x/"),
            ("GET", "http://h:123456/"),
            ("GET", "http://[::1/"),
            ("GET", "http://[::1]x/"),
            ("GET", "http://[]/"),
            ("GET", "/a#b"),
            ("GET", "/a b"),
            ("CONNECT", "/"),
            ("CONNECT", "http://h/"),
        ] {
            let refused = split_target(method.as_bytes(), target.as_bytes()).unwrap_err();
            assert_eq!(refused.status(), 400, "{target}");
        }
    }
}

//! References to URLs, resolved against the target URI of a request (RFC 3986 §5).

use std::slice;

use crate::key::{Scheme, split_query, without_default_port};

/// Resolves a reference against the target URI (RFC 3986 §5.2). `None` if it leads to another origin.
pub(crate) fn resolve(
    reference: &[u8],
    schemes: &[Scheme],
    host: &[u8],
    base: &[u8],
) -> Option<Vec<u8>> {
    let reference = reference.split(|&b| b == b'#').next()?;
    let (base_path, base_query) = split_query(base);
    let (schemes, relative) = match split_scheme(reference) {
        Some((named, rest)) => {
            let is_named = |one: &&Scheme| named.eq_ignore_ascii_case(one.as_str().as_bytes());
            let named = schemes.iter().find(is_named)?;
            // A url with a scheme must have a host.
            (
                slice::from_ref(named),
                rest.starts_with(b"//").then_some(rest)?,
            )
        }
        None => (schemes, reference),
    };
    let relative = match relative.strip_prefix(b"//") {
        Some(rest) => {
            let end = rest
                .iter()
                .position(|b| b"/?".contains(b))
                .unwrap_or(rest.len());
            let (authority, path_and_query) = rest.split_at(end);
            if !schemes.iter().any(|&one| same_host(one, authority, host)) {
                return None;
            }
            let (path, query) = split_query(path_and_query);
            return Some(target(path, query));
        }
        None => relative,
    };
    Some(match split_query(relative) {
        (b"", None) => target(base_path, base_query),
        (b"", query) => target(base_path, query),
        (path, query) if path.starts_with(b"/") => target(path, query),
        (path, query) => {
            let directory =
                memchr::memrchr(b'/', base_path).map_or(&b"/"[..], |slash| &base_path[..=slash]);
            target(&[directory, path].concat(), query)
        }
    })
}

/// The scheme of an absolute url, and the part behind the colon.
fn split_scheme(reference: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = reference.iter().position(|b| b":/?".contains(b))?;
    let (scheme, rest) = reference.split_at(end);
    let valid = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    let rest = rest.strip_prefix(b":")?;
    valid.then_some((scheme, rest))
}

fn same_host(scheme: Scheme, authority: &[u8], host: &[u8]) -> bool {
    let named = authority.rsplit(|&b| b == b'@').next().unwrap_or(authority);
    without_default_port(scheme, named).eq_ignore_ascii_case(without_default_port(scheme, host))
}

fn target(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut target = without_dot_segments(path);
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

/// Removes dot segments (RFC 3986 §5.2.4) from a path that begins with a slash or is empty.
fn without_dot_segments(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 1);
    let mut segments = path
        .strip_prefix(b"/")
        .unwrap_or(path)
        .split(|&b| b == b'/')
        .peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    out.truncate(memchr::memrchr(b'/', &out).unwrap_or(0));
                }
                if last {
                    out.push(b'/');
                }
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reference: &str, expected: Option<&str>) {
        let found = resolve(
            reference.as_bytes(),
            &[Scheme::Http],
            b"Example.com:80",
            b"/a/b/c?d=e",
        );
        let found = found.map(|target| String::from_utf8_lossy(&target).into_owned());
        assert_eq!(found.as_deref(), expected, "{reference}");
    }

    #[test]
    fn references_are_resolved() {
        for (reference, expected) in [
            ("http://example.com/x?y", "/x?y"),
            ("HTTP://EXAMPLE.com:80/x#z", "/x"),
            ("http://user@example.com/x", "/x"),
            ("http://example.com", "/"),
            ("http://example.com?y", "/?y"),
            ("//example.com/x", "/x"),
            ("/x/y", "/x/y"),
            ("x", "/a/b/x"),
            ("x/y?z", "/a/b/x/y?z"),
            ("?z", "/a/b/c?z"),
            ("#z", "/a/b/c?d=e"),
            ("", "/a/b/c?d=e"),
            (".", "/a/b/"),
            ("./x", "/a/b/x"),
            ("..", "/a/"),
            ("../x", "/a/x"),
            ("../../../x", "/x"),
            ("/x/./y/../z", "/x/z"),
            ("x?y=../z", "/a/b/x?y=../z"),
        ] {
            check(reference, Some(expected));
        }
    }

    #[test]
    fn other_origins_are_left_alone() {
        for reference in [
            "http://other.com/x",
            "https://example.com/x",
            "http://example.com:8080/x",
            "//other.com/x",
            "http://example.com.evil/x",
            "http://evil@other.com/x",
            "http:x",
            "x:80/y",
            "mailto:a@example.com",
            "javascript:x",
        ] {
            check(reference, None);
        }
    }

    #[test]
    fn behind_a_terminator_both_schemes_are_the_request_s() {
        for (reference, expected) in [
            ("https://example.com/x", Some("/x")),
            ("https://example.com:443/x", Some("/x")),
            ("http://example.com/x", Some("/x")),
            ("//example.com:443/x", Some("/x")),
            ("x", Some("/x")),
            ("https://example.com:8443/x", None),
            ("https://example.com:80/x", None),
            ("http://example.com:443/x", None),
            ("https://other.com/x", None),
            ("ftp://example.com/x", None),
        ] {
            let schemes = [Scheme::Http, Scheme::Https];
            let found = resolve(reference.as_bytes(), &schemes, b"example.com", b"/");
            let expected = expected.map(|target| target.as_bytes().to_vec());
            assert_eq!(found, expected, "{reference}");
        }
    }
}

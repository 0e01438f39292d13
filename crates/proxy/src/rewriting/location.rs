//! URLs in responses of an origin whose paths are not the client's (nginx's `proxy_redirect`).

use crate::config::Rewrite;

/// The fields with URLs that clients follow, and caches too (RFC 9111 §4.4).
pub(super) const FIELDS: [&str; 3] = ["Location", "Content-Location", "Refresh"];

/// The rules by which an origin's URLs become the client's.
pub(super) struct LocationRules<'a> {
    pub(super) rewrite: &'a Rewrite,
    /// The host that the client asked for.
    pub(super) authority: &'a [u8],
    /// The hosts and ports of the origin's servers, which are not for clients.
    pub(super) servers: &'a [String],
}

impl LocationRules<'_> {
    /// Returns the value of a field for the client, or `None` if it stays.
    pub(super) fn changed(&self, name: &str, value: &[u8]) -> Option<Vec<u8>> {
        if name != "Refresh" {
            return self.url(value);
        }
        let is_mark = |part: &[u8]| part.eq_ignore_ascii_case(b"url=");
        let at = value.windows(4).position(is_mark)? + 4;
        let (before, url) = value.split_at(at);
        let quote = url
            .first()
            .copied()
            .filter(|byte| matches!(byte, b'"' | b'\''));
        let url = match quote {
            Some(quote) => url[1..].strip_suffix(&[quote]).unwrap_or(&url[1..]),
            None => url,
        };
        let url = self.url(url)?;
        let quote = quote.as_slice();
        Some([before, quote, &url[..], quote].concat())
    }

    fn url(&self, url: &[u8]) -> Option<Vec<u8>> {
        if url.starts_with(b"/") && !url.starts_with(b"//") {
            return self.path(url).map(|path| one_slash(&path));
        }
        let scheme = memchr::memmem::find(url, b"://").filter(|&at| {
            url[..at].eq_ignore_ascii_case(b"http") || url[..at].eq_ignore_ascii_case(b"https")
        })?;
        let begin = scheme + 3;
        let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#' | b'\\');
        let length = url[begin..].iter().position(is_end);
        let end = length.map_or(url.len(), |length| begin + length);
        let (authority, rest) = (&url[begin..end], &url[end..]);
        if authority.eq_ignore_ascii_case(self.authority) {
            return Some([&url[..end], &self.path(rest)?[..]].concat());
        }
        let is_server = |server: &String| authority.eq_ignore_ascii_case(server.as_bytes());
        self.servers.iter().any(is_server).then(|| {
            self.path(rest)
                .map_or_else(|| one_slash(rest), |path| one_slash(&path))
        })
    }

    /// Returns the client's form of a path with what follows it.
    fn path(&self, rest: &[u8]) -> Option<Vec<u8>> {
        let is_end = |byte: &u8| matches!(byte, b'?' | b'#');
        let end = rest.iter().position(is_end).unwrap_or(rest.len());
        let (path, after) = rest.split_at(end);
        let mut path = self.rewrite.path_of_client(path)?;
        path.extend_from_slice(after);
        Some(path)
    }
}

/// Returns a path with one slash at its beginning: browsers take two for another host.
fn one_slash(path: &[u8]) -> Vec<u8> {
    let is_slash = |byte: &&u8| matches!(byte, b'/' | b'\\');
    let slashes = path.iter().take_while(is_slash).count();
    [b"/", &path[slashes..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Input};

    fn changed(route: &str, name: &str, value: &str) -> Option<String> {
        let text = format!("origin = \"http://app:3000\"\n[[routes]]\n{route}\n");
        let input = Input {
            file: Some(("f", &text)),
            ..Input::default()
        };
        let config = Config::read(input).expect(route);
        let rules = LocationRules {
            rewrite: &config.routes[0].rewrite,
            authority: b"example.com",
            servers: &["app:3000".to_owned()],
        };
        let value = rules.changed(name, value.as_bytes());
        value.map(|it| String::from_utf8(it).expect("ASCII"))
    }

    #[test]
    fn urls_of_the_origin_become_those_of_the_client() {
        const BOTH: &str = "strip_prefix = \"/api\"\nadd_prefix = \"/v2\"";
        const HOST: &str = "rewrite_location = true";
        for (route, value, expected) in [
            (BOTH, "/v2/a?b#c", Some("/api/a?b#c")),
            (BOTH, "http://app:3000/v2/a", Some("/api/a")),
            (BOTH, "http://APP:3000", Some("/")),
            (
                BOTH,
                "https://example.com/v2/a",
                Some("https://example.com/api/a"),
            ),
            (BOTH, "https://example.com/other", None),
            (BOTH, "https://other.example/v2/a", None),
            (BOTH, "//example.com/v2/a", None),
            (BOTH, "a/b", None),
            (BOTH, "", None),
            (BOTH, "mailto:a@b", None),
            (HOST, "http://app:3000/a", Some("/a")),
            (HOST, "http://app:3000?a", Some("/?a")),
            (HOST, "http://app:3001/a", None),
            (HOST, "http://app:3000@evil.example/", None),
            // A host behind slashes stays a path.
            (HOST, "http://app:3000//evil.example", Some("/evil.example")),
            (
                HOST,
                "http://app:3000/\\evil.example",
                Some("/evil.example"),
            ),
            (
                "add_prefix = \"/v2\"",
                "/v2//evil.example",
                Some("/evil.example"),
            ),
        ] {
            assert_eq!(
                changed(route, "Location", value).as_deref(),
                expected,
                "{route} {value}"
            );
        }
    }

    #[test]
    fn the_url_in_refresh_is_changed() {
        const STRIP: &str = "strip_prefix = \"/api\"";
        for (value, expected) in [
            ("5; url=/a", Some("5; url=/api/a")),
            ("5;URL='/a'", Some("5;URL='/api/a'")),
            ("5", None),
        ] {
            assert_eq!(
                changed(STRIP, "Refresh", value).as_deref(),
                expected,
                "{value}"
            );
        }
    }
}

//! URLs of redirects and rewrites, as the operator writes them: text, with parts of the request in braces.

use crate::key::{Scheme, without_port};

/// A URL in literal pieces and placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    pieces: Vec<UrlPiece>,
    /// The query of the request is appended: the template has none.
    keeps_query: bool,
    /// The fragment with its `#`, or nothing.
    fragment: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum UrlPiece {
    Literal(String),
    Scheme,
    Host,
    Path,
    Query,
    /// The run of bytes that a star of the path pattern matched, counted from 1.
    Capture(usize),
}

/// The parts of a request that placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub struct UrlValues<'a> {
    /// The scheme of the connection.
    pub scheme: Scheme,
    /// The host, with or without a port.
    pub host: &'a [u8],
    /// The raw path.
    pub path: &'a [u8],
    /// The raw query, without its `?`.
    pub query: Option<&'a [u8]>,
    /// The runs that the stars of the path pattern matched.
    pub captures: &'a [&'a [u8]],
}

const SCHEMES: [&str; 3] = ["http://", "https://", "{scheme}://"];

impl UrlTemplate {
    /// Parses the target of a redirect: an absolute URL, or an absolute path.
    pub fn location(text: &str) -> Result<Self, String> {
        let mut schemes = SCHEMES.iter();
        match schemes.find_map(|scheme| text.strip_prefix(scheme)) {
            Some(rest) => check_authority(authority_of(rest))?,
            None => check_path(text)?,
        }
        Self::parse(text)
    }

    /// Parses the target of a request to the origin: an absolute path, with a query or without.
    pub fn target(text: &str) -> Result<Self, String> {
        check_path(text)?;
        let template = Self::parse(text)?;
        if !template.fragment.is_empty() {
            return Err(
                "an origin never receives a fragment: remove `#` and what follows it".to_owned(),
            );
        }
        Ok(template)
    }

    fn parse(text: &str) -> Result<Self, String> {
        if !text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        {
            return Err(
                "a URL is visible ASCII without `\\`: write spaces and other letters as %XX"
                    .to_owned(),
            );
        }
        let (text, fragment) = text.split_at(text.find('#').unwrap_or(text.len()));
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, braced) = rest.split_at(at);
            if !before.is_empty() {
                pieces.push(UrlPiece::Literal(before.to_owned()));
            }
            let inner = braced.strip_prefix('{').and_then(|it| it.split_once('}'));
            let (word, after) = inner.ok_or_else(unknown_placeholder)?;
            pieces.push(UrlPiece::parse(word).ok_or_else(unknown_placeholder)?);
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(UrlPiece::Literal(rest.to_owned()));
        }
        Ok(Self {
            keeps_query: !text.contains('?') && !pieces.contains(&UrlPiece::Query),
            pieces,
            fragment: fragment.to_owned(),
        })
    }

    /// Returns the URL for a request, or `None` if none can be made of it safely: a host that is none, a target that
    /// is no path.
    ///
    /// A path never begins with `//` or `/\`, which browsers take for another host.
    pub fn resolve(&self, values: &UrlValues<'_>) -> Option<Vec<u8>> {
        let mut url = Vec::new();
        for piece in &self.pieces {
            match piece {
                UrlPiece::Literal(text) => url.extend_from_slice(text.as_bytes()),
                UrlPiece::Scheme => url.extend_from_slice(values.scheme.as_str().as_bytes()),
                UrlPiece::Host => {
                    let host = without_port(values.host);
                    url.extend_from_slice(is_host(host).then_some(host)?);
                }
                UrlPiece::Path if values.path.starts_with(b"/") => {
                    push_visible(&mut url, values.path);
                }
                UrlPiece::Path => return None,
                UrlPiece::Query => push_query(&mut url, values.query),
                UrlPiece::Capture(number) => {
                    push_visible(&mut url, values.captures.get(number - 1)?);
                }
            }
        }
        if self.keeps_query {
            push_query(&mut url, values.query);
        }
        if url.ends_with(b"?") {
            url.pop();
        }
        let is_slash = |byte: &&u8| matches!(byte, b'/' | b'\\');
        let slashes = url.iter().take_while(is_slash).count();
        if slashes > 1 {
            url.drain(1..slashes);
        }
        url.extend_from_slice(self.fragment.as_bytes());
        Some(url)
    }

    /// Returns a template that drops the query of the request, unless it names it.
    #[must_use]
    pub fn without_query(self) -> Self {
        Self {
            keeps_query: false,
            ..self
        }
    }

    /// Returns the highest number of a `{1}`; 0 without any.
    pub fn captures(&self) -> usize {
        let numbers = self.pieces.iter().map(|piece| match piece {
            UrlPiece::Capture(number) => *number,
            _ => 0,
        });
        numbers.max().unwrap_or(0)
    }

    /// Returns true if the host of the request is a part of the URL.
    pub fn has_host(&self) -> bool {
        self.pieces.contains(&UrlPiece::Host)
    }

    /// Returns the directory that every URL begins with: the text before the first placeholder, to its last slash.
    pub fn directory(&self) -> &str {
        match self.pieces.first() {
            Some(UrlPiece::Literal(text)) => {
                let path = text.split_once('?').map_or(&**text, |(path, _)| path);
                &path[..path.rfind('/').map_or(0, |at| at + 1)]
            }
            _ => "",
        }
    }
}

impl UrlPiece {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "scheme" => Self::Scheme,
            "host" => Self::Host,
            "path" => Self::Path,
            "query" => Self::Query,
            _ => match word.as_bytes() {
                [digit @ b'1'..=b'9'] => Self::Capture(usize::from(digit - b'0')),
                _ => return None,
            },
        })
    }
}

fn unknown_placeholder() -> String {
    "placeholders are {scheme}, {host}, {path}, {query}, and {1} to {9} for the stars of the path"
        .to_owned()
}

fn check_path(text: &str) -> Result<(), String> {
    if text.starts_with("//") {
        Err(
            "a browser takes `//` for the beginning of a host: write https:// or a single `/`"
                .to_owned(),
        )
    } else if text.starts_with('/') || text.starts_with("{path}") {
        Ok(())
    } else if text.starts_with('{') {
        Err(format!(
            "a part of the path at the beginning could name another site: write \"/{text}\""
        ))
    } else {
        Err(format!(
            "write an absolute path or URL: \"/{text}\" or \"https://{text}\""
        ))
    }
}

/// Returns the authority at the beginning of a URL without its scheme.
fn authority_of(rest: &str) -> &str {
    let ends = ["/", "?", "#", "{path}", "{query}"];
    let end = ends.iter().filter_map(|end| rest.find(end)).min();
    &rest[..end.unwrap_or(rest.len())]
}

/// Refuses an authority that a client could choose.
fn check_authority(authority: &str) -> Result<(), String> {
    let (before, after) = authority.split_once("{host}").unwrap_or((authority, ""));
    if [before, after].iter().any(|it| it.contains('{')) {
        return Err(
            "a part of the path in the host would redirect visitors wherever a link says: write the host, and a `/` \
             after it"
                .to_owned(),
        );
    }
    let has_host = authority.contains("{host}");
    let is_label = !has_host
        || (before.is_empty() || before.ends_with('.'))
            && (after.is_empty() || after.starts_with(['.', ':']));
    let literal = format!("{before}{after}");
    let is_known = match literal.as_bytes() {
        b"" => has_host,
        [b':', ..] if !has_host => false,
        literal => is_host(literal),
    };
    if !is_label || !is_known {
        return Err("write a host after ://, such as \"https://example.com{path}\"".to_owned());
    }
    Ok(())
}

fn is_host(text: &[u8]) -> bool {
    let is_legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte);
    !text.is_empty() && text.iter().all(is_legal)
}

/// Appends a query with its `?`, or with `&` behind another one.
fn push_query(url: &mut Vec<u8>, query: Option<&[u8]>) {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return;
    };
    if !url.ends_with(b"?") && !url.ends_with(b"&") {
        url.push(if url.contains(&b'?') { b'&' } else { b'?' });
    }
    push_visible(url, query);
}

/// Appends text of the request. Bytes that are not visible ASCII are encoded.
fn push_visible(url: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        if byte.is_ascii_graphic() {
            url.push(byte);
        } else {
            url.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::glob;
    use crate::key::split_query;

    fn resolved(
        template: &UrlTemplate,
        host: &str,
        pattern: &str,
        target: &[u8],
    ) -> Option<String> {
        let (path, query) = split_query(target);
        let url = template.resolve(&UrlValues {
            scheme: Scheme::Https,
            host: host.as_bytes(),
            path,
            query,
            captures: &glob::captures(pattern.as_bytes(), path)?,
        });
        url.map(|url| String::from_utf8(url).expect("visible ASCII"))
    }

    fn check(to: &str, pattern: &str, target: &str, expected: &str) {
        let template = UrlTemplate::location(to).expect(to);
        let url = resolved(&template, "example.com:8443", pattern, target.as_bytes());
        assert_eq!(url.as_deref(), Some(expected), "{to} for {target}");
    }

    #[test]
    fn placeholders_stand_for_parts_of_the_request() {
        check(
            "https://new.example{path}",
            "*",
            "/a/b?c=d",
            "https://new.example/a/b?c=d",
        );
        check(
            "{scheme}://www.{host}{path}",
            "*",
            "/a",
            "https://www.example.com/a",
        );
        check(
            "http://{host}:8080{path}",
            "*",
            "/",
            "http://example.com:8080/",
        );
        check("/shop/{1}", "/store/*", "/store/a/b", "/shop/a/b");
        check("/{2}/{1}", "/*/x/*", "/a/x/b", "/b/a");
        check("/{1}", "*.html", "/a/b.html", "/a/b");
        check("{path}/", "*", "/a?b", "/a/?b");
        check("/a#part", "*", "/?q", "/a?q#part");
    }

    #[test]
    fn the_query_is_kept_unless_the_template_has_one() {
        check("/new", "*", "/old?a=1", "/new?a=1");
        check("/new?", "*", "/old?a=1", "/new");
        check("/new?b=2", "*", "/old?a=1", "/new?b=2");
        check("/new?b=2{query}", "*", "/old?a=1", "/new?b=2&a=1");
        check("/new?b=2{query}", "*", "/old", "/new?b=2");
        check("/new?{query}", "*", "/old", "/new");
        check("/new{query}#x", "*", "/old?", "/new#x");
        check(
            "https://a.example{query}",
            "*",
            "/old?a",
            "https://a.example?a",
        );
    }

    /// Open redirects: the target of each would be `evil.example` in a browser if it were not for the rules here.
    #[test]
    fn no_request_chooses_the_host() {
        check("/{1}", "/go/*", "/go//evil.example", "/evil.example");
        check("/{1}", "/go/*", "/go//\\evil.example", "/evil.example");
        check("/{1}", "/go/*", "/go/\\evil.example", "/evil.example");
        check("{path}", "*", "//evil.example/a", "/evil.example/a");
        check("{path}/", "*", "//evil.example", "/evil.example/");
        check(
            "/{1}",
            "/go/*",
            "/go/%2f%2fevil.example",
            "/%2f%2fevil.example",
        );
        check(
            "/{1}",
            "/go/*",
            "/go/https://evil.example",
            "/https://evil.example",
        );
        check(
            "https://a.example{path}",
            "*",
            "/@evil.example",
            "https://a.example/@evil.example",
        );
        check(
            "https://a.example/{1}",
            "/go/*",
            "/go/@evil.example",
            "https://a.example/@evil.example",
        );
        for (host, target) in [
            ("a@evil.example", "/"),
            ("a/evil.example", "/"),
            ("a\\evil.example", "/"),
            ("", "/"),
            ("a", "*"),
        ] {
            let template = UrlTemplate::location("https://{host}{path}").unwrap();
            assert_eq!(
                resolved(&template, host, "*", target.as_bytes()),
                None,
                "{host} {target}"
            );
        }
    }

    #[test]
    fn a_template_that_would_let_a_request_choose_the_host_is_refused() {
        for (text, says) in [
            ("https://{1}", "wherever a link says"),
            ("https://{1}.example.com/", "wherever a link says"),
            ("https://example.com{1}", "wherever a link says"),
            ("https://example.com:{1}/", "wherever a link says"),
            ("{scheme}://{1}{path}", "wherever a link says"),
            ("https://{host}{host}/", "wherever a link says"),
            ("https://evil{host}/", "write a host"),
            ("https://{host}evil/", "write a host"),
            ("https://user@example.com/", "write a host"),
            ("https://{path}", "write a host"),
            ("https:///x", "write a host"),
            ("{1}", "write \"/{1}\""),
            ("{host}{path}", "write \"/{host}{path}\""),
            ("//example.com", "write https://"),
            ("example.com/x", "\"https://example.com/x\""),
            ("javascript:alert(1)", "absolute path or URL"),
            ("/a{b}", "placeholders are"),
            ("/a{", "placeholders are"),
            ("/a}", "placeholders are"),
            ("/{0}", "placeholders are"),
            ("/{10}", "placeholders are"),
            ("/a b", "visible ASCII"),
            ("/\r\nSet-Cookie:a", "visible ASCII"),
            ("/\\evil.example", "visible ASCII"),
        ] {
            let why = UrlTemplate::location(text).expect_err(text);
            assert!(why.contains(says), "{text}: {why}");
        }
        assert!(UrlTemplate::target("https://example.com/").is_err());
        assert!(UrlTemplate::target("/a#b").is_err());
    }

    #[test]
    fn the_directory_ends_before_the_first_placeholder() {
        let directory = |text| UrlTemplate::target(text).unwrap().directory().to_owned();
        assert_eq!(directory("/v2/a{1}"), "/v2/");
        assert_eq!(directory("/index.php?p={1}"), "/");
        assert_eq!(directory("{path}"), "");
    }

    proptest! {
        /// A relative location has one slash at its beginning, an absolute one keeps its authority; neither has a
        /// byte that could end the line.
        #[test]
        fn locations_are_safe_for_all_targets(rest in prop::collection::vec(any::<u8>(), 0..12), host in ".{0,6}") {
            let target = [b"/", &rest[..]].concat();
            for to in ["/{1}", "{path}", "/a{1}?b", "https://a.example{path}", "https://a.example/{1}{query}", "{scheme}://www.{host}{path}"] {
                let template = UrlTemplate::location(to).unwrap();
                let Some(url) = resolved(&template, &host, "/*", &target) else {
                    prop_assert!(template.has_host());
                    continue;
                };
                prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic()));
                if to.starts_with("https") {
                    prop_assert!(url.starts_with("https://a.example/"));
                } else if !template.has_host() {
                    prop_assert!(url.starts_with('/') && !url[1..].starts_with(['/', '\\']));
                }
            }
        }
    }
}

//! Patterns for hosts and paths.

use microcache_policy::glob;
use microcache_policy::key::without_port;
use microcache_policy::readings::readings;

/// A pattern for paths: text, and `*` for any run of bytes, which may be empty or contain `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    text: String,
    /// Positions of the first star and of the last.
    stars: Option<(usize, usize)>,
    /// The other readings of the text: `/caf%C3%A9/*` matches the decoded path as well.
    readings: Vec<Vec<u8>>,
}

impl Glob {
    /// Parses a path pattern.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if looks_like_a_regex(text) {
            return Err(match from_regex(text) {
                Some(pattern) => format!("a path is not a regular expression: write \"{pattern}\""),
                None => "a path is not a regular expression: `*` matches any run of characters, and several paths \
                         are a list"
                    .to_owned(),
            });
        }
        if !text.starts_with(['/', '*']) {
            return Err(format!(
                "a path must begin with `/` or `*`: write \"/{text}\" or \"*{text}\""
            ));
        }
        if text.contains(['?', '#']) {
            return Err(
                "a route matches the path only: remove `?`, `#` and the text after it".to_owned(),
            );
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(
                "paths are matched encoded: write spaces and non-ASCII letters as %XX".to_owned(),
            );
        }
        Ok(Self::of(text.to_owned()))
    }

    /// Returns a pattern for all paths with a prefix.
    pub(super) fn beginning_with(prefix: &str) -> Self {
        Self::of(format!("{prefix}*"))
    }

    /// Returns a pattern for one path, which contains no star.
    pub(super) fn exactly(path: &str) -> Self {
        Self::of(path.to_owned())
    }

    fn of(text: String) -> Self {
        let mut readings = readings(text.as_bytes()).unwrap_or_default();
        readings.retain(|reading| reading != text.as_bytes());
        let stars = text.find('*').zip(text.rfind('*'));
        Self {
            text,
            stars,
            readings,
        }
    }

    /// Returns whether the pattern matches the whole of `path`.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let text = self.text.as_bytes();
        let Some((first, last)) = self.stars else {
            return text == path;
        };
        path.starts_with(&text[..first])
            && path.ends_with(&text[last + 1..])
            && if first == last {
                path.len() >= text.len() - 1
            } else {
                glob::matches(text, path)
            }
    }

    /// Returns the text that the stars stand for, if the pattern matches the whole of `path`.
    pub(super) fn captures<'a>(&self, path: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        glob::captures(self.text.as_bytes(), path)
    }

    /// Returns a path that matches, with this text for the stars.
    pub(super) fn example(&self, star: &str) -> String {
        let path = self.text.replace('*', star);
        if path.starts_with('/') {
            path
        } else {
            format!("/{path}")
        }
    }

    /// Returns the number of stars.
    pub(super) fn stars(&self) -> usize {
        self.text.matches('*').count()
    }

    /// Returns the first segment of the paths that match, as [`first_segment`] does, if it is always the same.
    pub(super) fn segment(&self) -> Option<&[u8]> {
        let text = self.text.as_bytes();
        let segment = first_segment(text);
        (!segment.contains(&b'*')).then_some(segment)
    }

    /// Returns the last byte of the paths that match, if it is always the same.
    pub(super) fn end(&self) -> Option<u8> {
        self.as_bytes().last().copied().filter(|end| *end != b'*')
    }

    pub(super) const fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Returns whether the pattern matches the whole of a reading of a path.
    pub(super) fn matches_reading(&self, reading: &[u8]) -> bool {
        let mut readings = self.readings.iter();
        self.matches(reading) || readings.any(|own| glob::matches(own, reading))
    }

    /// Returns whether it matches every path that `other` matches. A `*` of the other is matched only by a `*` here,
    /// so the other pattern can be matched as a path.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.matches(other.text.as_bytes())
    }
}

/// Returns the first segment of a path with the slashes around it, or the whole path if it is only one.
pub(crate) fn first_segment(path: &[u8]) -> &[u8] {
    let second = path.get(1..).and_then(|rest| memchr::memchr(b'/', rest));
    second.map_or(path, |at| &path[..at + 2])
}

/// Returns whether a text looks like a regular expression. `$`, brackets and `.*` are legal in a path;
/// `^`, `\`, `|` and braces are not, and paths do not end with `$`.
fn looks_like_a_regex(text: &str) -> bool {
    text.starts_with(['^', '~']) || text.ends_with('$') || text.contains(['\\', '^', '|', '{', '}'])
}

/// Returns the pattern equivalent to a simple regular expression.
fn from_regex(text: &str) -> Option<String> {
    let text = text.trim_start_matches('~').trim_start_matches('*').trim();
    let (open_start, text) = match text.strip_prefix('^') {
        Some(text) => (false, text),
        None => (!text.starts_with('/'), text),
    };
    let (open_end, text) = match text.strip_suffix('$') {
        Some(text) => (false, text),
        None => (true, text),
    };
    let text = text
        .replace(".*", "*")
        .replace(".+", "*")
        .replace("\\.", ".");
    let text = text.replace("\\/", "/");
    let star = |wanted: bool| if wanted { "*" } else { "" };
    let (before, after) = (
        star(open_start && !text.starts_with('*')),
        star(open_end && !text.ends_with('*')),
    );
    let pattern = format!("{before}{text}{after}");
    let is_plain = !pattern.contains(['\\', '^', '|', '{', '}', '(', ')', '[', ']', '+', '?', '$']);
    (is_plain && Glob::parse(&pattern).is_ok()).then_some(pattern)
}

/// A pattern for hosts, in lower case: a name, or `*.` and a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPattern {
    text: String,
}

impl HostPattern {
    /// Parses a host pattern.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.to_ascii_lowercase();
        if text.contains("://") || text.contains('/') {
            return Err("write a host name only, without scheme and path".to_owned());
        }
        let name = text.strip_prefix("*.").unwrap_or(&text);
        if name.contains('*') {
            return Err(
                "`*` is allowed only as `*.` at the beginning; remove host to match all".to_owned(),
            );
        }
        if without_port(name.as_bytes()).len() != name.len() {
            return Err("remove the port: routes match the name only".to_owned());
        }
        let address = name.starts_with('[') && name.ends_with(']');
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if name.is_empty() || !(address || name.bytes().all(legal)) {
            return Err("not a host name: write \"example.com\" or \"*.example.com\"".to_owned());
        }
        Ok(Self { text })
    }

    /// Returns whether it matches `host`, in any case, with or without a port.
    pub(super) fn matches(&self, host: &[u8]) -> bool {
        let host = without_port(host);
        let host = host.strip_suffix(b".").unwrap_or(host);
        match self.text.strip_prefix('*') {
            None => host.eq_ignore_ascii_case(self.text.as_bytes()),
            Some(end) => host
                .len()
                .checked_sub(end.len())
                .is_some_and(|at| at > 0 && host[at..].eq_ignore_ascii_case(end.as_bytes())),
        }
    }

    /// Returns a host that matches, with this text for the star.
    pub(super) fn example(&self, star: &str) -> String {
        self.text.replace('*', star)
    }

    pub(super) const fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Returns the host, if it is no pattern.
    pub(super) fn exact(&self) -> Option<&[u8]> {
        (!self.text.starts_with('*')).then_some(self.text.as_bytes())
    }

    /// Returns whether it matches every host that `other` matches; see [`Glob::covers`].
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.matches(other.text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(pattern: &str, path: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(path.as_bytes())
    }

    fn host(pattern: &str, host: &str) -> bool {
        HostPattern::parse(pattern)
            .unwrap()
            .matches(host.as_bytes())
    }

    #[test]
    fn a_path_without_a_star_is_itself() {
        assert!(path("/", "/"));
        assert!(!path("/", "/a"));
        assert!(path("/blog", "/blog"));
        assert!(!path("/blog", "/blog/"));
        assert!(!path("/blog", "/Blog"));
    }

    #[test]
    fn a_star_is_any_run() {
        assert!(path("/*", "/"));
        assert!(path("/blog/*", "/blog/"));
        assert!(path("/blog/*", "/blog/a/b"));
        assert!(!path("/blog/*", "/blog"));
        assert!(path("*.jpg", "/a/b.jpg"));
        assert!(!path("*.jpg", "/a/b.jpg/c"));
        assert!(path("/a*b*c", "/axxbxbxc"));
        assert!(!path("/a*b*c", "/axxbxbx"));
        assert!(path("*", ""));
    }

    #[test]
    fn a_regular_expression_is_answered_with_the_pattern() {
        let check = |regex: &str, pattern: &str| {
            let why = Glob::parse(regex).unwrap_err();
            let expected = format!("a path is not a regular expression: write \"{pattern}\"");
            assert_eq!(why, expected, "{regex}");
        };
        check("^/foo.*$", "/foo*");
        check("^/foo", "/foo*");
        check("^/foo$", "/foo");
        check("/foo/.*$", "/foo/*");
        check(r"~* \.css$", "*.css");
        check(r"^/a\.b/.+", "/a.b/*");
        for regex in ["^/(a|b)$", r"/a\d", "/a{2}", "/a|/b", "^/a?$"] {
            let why = Glob::parse(regex).unwrap_err();
            assert!(why.contains("several paths are a list"), "{regex}: {why}");
        }
        // Each of these may stand in a path.
        for plain in ["/a.*", "/(a)+", "/$a", "/a[1]", "*.css"] {
            assert!(Glob::parse(plain).is_ok(), "{plain}");
        }
    }

    #[test]
    fn many_stars_stay_quick() {
        let pattern = "*a".repeat(40) + "b";
        assert!(!path(&pattern, &"a".repeat(20_000)));
    }

    #[test]
    fn the_text_around_the_stars_must_not_overlap() {
        assert!(path("/ab*bc", "/abbc") && !path("/ab*bc", "/abc"));
        assert!(path("/a*b*b", "/abb") && !path("/a*b*b", "/ab"));
    }

    #[test]
    fn hosts_mind_neither_case_nor_port() {
        assert!(host("Example.com", "example.COM"));
        assert!(host("example.com", "example.com:8080"));
        assert!(host("example.com", "example.com."));
        assert!(!host("example.com", "www.example.com"));
        assert!(host("*.example.com", "WWW.example.com:80"));
        assert!(host("*.example.com", "a.b.example.com"));
        assert!(!host("*.example.com", "example.com"));
        assert!(!host("*.example.com", "badexample.com"));
        assert!(host("[::1]", "[::1]:8080"));
        assert!(host("[::1]", "[::1]"));
        assert!(!host("a", ""));
    }

    #[test]
    fn covering_is_matching_the_pattern_itself() {
        let covers = |a: &str, b: &str| Glob::parse(a).unwrap().covers(&Glob::parse(b).unwrap());
        assert!(covers("/blog/*", "/blog/a*"));
        assert!(covers("*", "/x"));
        assert!(!covers("/blog/a*", "/blog/*"));
        assert!(!covers("/x", "*"));
    }
}

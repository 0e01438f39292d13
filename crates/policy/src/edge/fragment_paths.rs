//! The fragments that pages may include, by path.

use crate::key::{Scheme, split_query};
use crate::patterns::Patterns;
use crate::readings::{is_plain, readings};
use crate::reference::resolve;

/// The paths of fragments.
///
/// A page may contain text of strangers, and so tags of strangers. A tag can name nothing but a target on the page's own
/// host, on a path that the operator lists; whatever programs read that path as is listed too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentPaths(Patterns);

/// The reason a URL in a tag is not fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentRefusal {
    /// It leads to another host, port or scheme.
    Host,
    /// No path of fragments matches it.
    Path,
    /// Some programs read the path as one that is not listed.
    AmbiguousPath,
    /// It is no target of a request.
    Malformed,
}

impl FragmentRefusal {
    /// Returns the reason in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "it is on another host",
            Self::Path => "its path is not in `edge_paths`",
            Self::AmbiguousPath => "its path can be read as one that is not in `edge_paths`",
            Self::Malformed => "it is no path of a request",
        }
    }
}

impl Default for FragmentPaths {
    /// Returns the paths of Symfony (so Sulu, Ibexa and Contao), Shopware and Magento.
    fn default() -> Self {
        ["/_fragment*", "/_esi/*", "/page_cache/block/*"]
            .into_iter()
            .collect()
    }
}

impl<P: AsRef<[u8]>> FromIterator<P> for FragmentPaths {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Self {
        let mut patterns = Patterns::new();
        for path in paths {
            patterns.push(path);
        }
        Self(patterns)
    }
}

impl FragmentPaths {
    /// Adds the path of a URL, which is without stars.
    pub fn allow(&mut self, url: &str) {
        self.0.push(split_query(url.as_bytes()).0);
    }

    /// Returns path and query of the fragment that a tag names. `host` and `page` are those of the page's request. `http`
    /// and `https` are not distinguished: behind a TLS terminator, applications write either.
    pub fn target(&self, url: &[u8], host: &[u8], page: &[u8]) -> Result<Vec<u8>, FragmentRefusal> {
        const SCHEMES: [Scheme; 2] = [Scheme::Http, Scheme::Https];
        let target = resolve(url, &SCHEMES, host, page).ok_or(FragmentRefusal::Host)?;
        let (path, query) = split_query(&target);
        let mut query = query.unwrap_or_default().iter();
        let is_query = query.all(|byte| byte.is_ascii_graphic() && *byte != b'\\');
        if !is_query || !path.iter().copied().all(is_of_path) {
            return Err(FragmentRefusal::Malformed);
        }
        if !self.0.matches(path) {
            return Err(FragmentRefusal::Path);
        }
        if is_plain(path) {
            return Ok(target);
        }
        let all = readings(path).ok_or(FragmentRefusal::AmbiguousPath)?;
        if !all.iter().all(|one| self.0.matches(one)) {
            return Err(FragmentRefusal::AmbiguousPath);
        }
        Ok(target)
    }
}

/// Returns true for the bytes of a path (RFC 3986 §3.3).
fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:@/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(url: &str) -> Result<String, FragmentRefusal> {
        let paths = FragmentPaths::default();
        let target = paths.target(url.as_bytes(), b"shop.example", b"/a/page?b=c");
        target.map(|target| String::from_utf8(target).expect("ASCII"))
    }

    #[test]
    fn urls_of_frameworks_are_fetched() {
        for (url, expected) in [
            (
                "/_fragment?_hash=Zm9v%2Bo%3D&_path=_controller%3DApp%5CHeader",
                "/_fragment?_hash=Zm9v%2Bo%3D&_path=_controller%3DApp%5CHeader",
            ),
            ("http://shop.example/_fragment?a", "/_fragment?a"),
            ("https://shop.example/_fragment?a", "/_fragment?a"),
            ("http://SHOP.example:80/_fragment?a#b", "/_fragment?a"),
            ("//shop.example/_fragment?a[0]=b", "/_fragment?a[0]=b"),
            ("../_fragment?a", "/_fragment?a"),
            (
                "http://shop.example/page_cache/block/esi/blocks/%5B%22catalog.topnav%22%5D/handles/WyJhIl0=/",
                "/page_cache/block/esi/blocks/%5B%22catalog.topnav%22%5D/handles/WyJhIl0=/",
            ),
        ] {
            assert_eq!(target(url), Ok(expected.to_owned()), "{url}");
        }
    }

    #[test]
    fn urls_of_attackers_are_refused() {
        use FragmentRefusal::{AmbiguousPath, Host, Malformed, Path};
        for (url, expected) in [
            ("http://evil.example/_fragment", Host),
            ("http://shop.example.evil/_fragment", Host),
            ("http://shop.example@evil.example/_fragment", Host),
            ("http://shop.example:8080/_fragment", Host),
            ("//evil.example/_fragment", Host),
            ("http://169.254.169.254/latest/meta-data/", Host),
            ("http:/_fragment", Host),
            ("ftp://shop.example/_fragment", Host),
            ("file:///etc/passwd", Host),
            ("gopher://shop.example/_fragment", Host),
            ("javascript:alert(1)", Host),
            ("data:text/html,_fragment", Host),
            ("/account", Path),
            ("/", Path),
            ("?a=b", Path),
            ("_fragment", Path),
            ("/_FRAGMENT", Path),
            ("/page_cache/block", Path),
            ("/_fragment/../account", Path),
            ("/page_cache/block/../../account", Path),
            ("/account?/_fragment", Path),
            ("/account#/_fragment", Path),
            ("///_fragment", Host),
            ("/_fragment/..%2faccount", AmbiguousPath),
            ("/_fragment/..%252faccount", AmbiguousPath),
            ("/_fragment/%2e%2e/account", AmbiguousPath),
            ("/_fragment/..;/account", AmbiguousPath),
            ("/page_cache/block/..%5c..%5caccount", AmbiguousPath),
            ("/page_cache/block/%2e./..%2faccount", AmbiguousPath),
            ("/page_cache%2fblock/..%2f..%2faccount", Path),
            ("/_fragment\\..\\account", Malformed),
            ("/\\evil.example/_fragment", Malformed),
            ("/_fragment/\u{e9}", Malformed),
            ("/_fragment?a=\u{e9}", Malformed),
            ("/_fragment?a=\r\nx: y", Malformed),
            ("/_fragment?a=b c", Malformed),
            ("/_fragment?a=\0", Malformed),
            ("/_fragment/<script>", Malformed),
        ] {
            assert_eq!(target(url), Err(expected), "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_reading_of_a_fetched_path_is_elsewhere(
            url in "(http://shop\\.example)?/(_fragment|page_cache/block/)?([./;%\\\\?#]|2[ef]|5c|25|a|_fragment){0,12}",
        ) {
            if let Ok(target) = target(&url) {
                let (path, _) = split_query(target.as_bytes());
                for reading in readings(path).expect("few readings") {
                    let is_listed = reading.starts_with(b"/_fragment")
                        || reading.starts_with(b"/page_cache/block/");
                    prop_assert!(is_listed, "{url}: {}", reading.escape_ascii());
                }
                prop_assert!(target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'));
            }
        }
    }
}

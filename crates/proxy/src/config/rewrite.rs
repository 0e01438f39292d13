//! The change of a path on the way to the origin.

use microcache_engine::Request;
use microcache_policy::key::{join_query, split_query};
use microcache_policy::readings::{is_plain, readings};
use microcache_policy::url_template::UrlTemplate;

use super::matcher::Matcher;
use super::redirect::resolve;

/// The change of the target of requests to the origin. The cache key stays the URL of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The prefix that is removed, without a slash at its end.
    pub(super) strip: String,
    /// The prefix that is added, without a slash at its end.
    pub(super) add: String,
    /// The target in place of the client's.
    pub(super) to: Option<UrlTemplate>,
    /// The origin's URLs in responses become the client's; by default where the path is changed.
    pub(super) location: Option<bool>,
}

impl Rewrite {
    /// Returns the change for an origin with a path in its URL, which comes after this one.
    pub(crate) fn of_origin(&self, path: &str) -> Self {
        Self {
            add: path.to_owned(),
            location: self.location.or(self.changes_location().then_some(true)),
            ..Self::default()
        }
    }

    /// Returns true if nothing changes, neither in requests nor in responses.
    pub(crate) fn is_off(&self) -> bool {
        !self.changes_path() && self.location != Some(true)
    }

    /// Returns true if the origin's URLs in responses are changed.
    pub(crate) fn changes_location(&self) -> bool {
        self.location.unwrap_or_else(|| self.changes_path())
    }

    fn changes_path(&self) -> bool {
        self.to.is_some() || self.has_prefix()
    }

    pub(super) fn has_prefix(&self) -> bool {
        !self.strip.is_empty() || !self.add.is_empty()
    }

    /// Returns path and query for the origin, or `None` for a path that leads out of the directory that was added.
    pub(crate) fn target(&self, request: &Request<'_>, matcher: &Matcher) -> Option<Vec<u8>> {
        let (path, query) = split_query(request.target);
        if !path.starts_with(b"/") {
            // OPTIONS of the server itself.
            return Some(request.target.to_vec());
        }
        let target = if let Some(template) = &self.to {
            resolve(template, request, matcher)?
        } else {
            let inner = without_prefix(path, self.strip.as_bytes()).unwrap_or(path);
            join_query(inner, query)
        };
        let target = with_prefix(self.add.as_bytes(), &target);
        self.stays_within(split_query(&target).0).then_some(target)
    }

    /// Returns the client's path for a path of the origin, or `None` if there is none, or if it is the client's already.
    pub(crate) fn path_of_client(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.to.is_some() {
            return None;
        }
        let (strip, add) = (self.strip.as_bytes(), self.add.as_bytes());
        let inner = without_prefix(path, add)?;
        if add.is_empty() && !strip.is_empty() && without_prefix(path, strip).is_some() {
            return None;
        }
        Some(with_prefix(strip, inner))
    }

    /// Returns true if no program could read a path as one outside the directory of all targets.
    fn stays_within(&self, path: &[u8]) -> bool {
        let directory = self
            .to
            .as_ref()
            .map_or("", UrlTemplate::directory)
            .as_bytes();
        let is_inside = |path: &Vec<u8>| {
            without_prefix(path, self.add.as_bytes()).is_some_and(|it| it.starts_with(directory))
        };
        self.add.is_empty() && directory.len() < 2
            || is_plain(path)
            || readings(path).is_some_and(|all| all.iter().all(is_inside))
    }
}

/// Returns the path without a prefix of whole segments, beginning with a slash or empty.
fn without_prefix<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix)?;
    matches!(rest.first(), None | Some(b'/')).then_some(rest)
}

/// Returns the path below a prefix.
fn with_prefix(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    [prefix, slash, path].concat()
}

#[cfg(test)]
mod tests {
    use microcache_policy::Scheme;

    use super::*;
    use crate::config::{Config, Input};

    fn read(route: &str) -> (Rewrite, Matcher) {
        let text = format!("origin = \"http://o:3000\"\n[[routes]]\n{route}\n");
        let input = Input {
            file: Some(("f", &text)),
            ..Input::default()
        };
        let config = Config::read(input).expect(route);
        (
            config.routes[0].rewrite.clone(),
            config.routes[0].matcher.clone(),
        )
    }

    fn check(route: &str, rows: &[(&str, Option<&str>)]) {
        let (rewrite, matcher) = read(route);
        for (target, expected) in rows {
            let request = Request::of_url(Scheme::Http, b"a", target.as_bytes());
            let target_there = rewrite.target(&request, &matcher);
            let text = target_there.map(|it| String::from_utf8(it).expect("ASCII"));
            assert_eq!(text.as_deref(), *expected, "{route} {target}");
        }
    }

    #[test]
    fn a_prefix_is_removed_as_whole_segments() {
        check(
            "strip_prefix = \"/api/\"",
            &[
                ("/api/a/b?c", Some("/a/b?c")),
                ("/api", Some("/")),
                ("/api/", Some("/")),
                ("/api?x", Some("/?x")),
                ("/apis", Some("/apis")),
                ("/b", Some("/b")),
                ("/api//b", Some("//b")),
                ("/api/..%2fb", Some("/..%2fb")),
                ("*", Some("*")),
            ],
        );
    }

    #[test]
    fn nothing_leads_out_of_an_added_prefix() {
        check(
            "strip_prefix = \"/api\"\nadd_prefix = \"/v2\"",
            &[
                ("/api/a", Some("/v2/a")),
                ("/api", Some("/v2/")),
                ("/api/a%20b/./c", Some("/v2/a%20b/./c")),
                ("/api/a/../b", Some("/v2/a/../b")),
                ("/api/..", None),
                ("/api/../b", None),
                ("/api/..%2fb", None),
                ("/api/%2e%2e/b", None),
                ("/api/..;/b", None),
                ("/api/..%5cb", None),
                ("/api/a/..%252f..%252fb", None),
            ],
        );
    }

    #[test]
    fn captures_are_raw() {
        check(
            "match = { path = \"/*\" }\nrewrite = { to = \"/index.php?p={1}\" }",
            &[
                ("/a/b", Some("/index.php?p=a/b")),
                ("/a?x=1", Some("/index.php?p=a")),
                ("/..%2fa", Some("/index.php?p=..%2fa")),
            ],
        );
        check(
            "match = { path = \"/old/*\" }\nrewrite = { to = \"/pages/{1}\" }",
            &[
                ("/old/a?x=1", Some("/pages/a?x=1")),
                ("/old/..%2f..%2fa", None),
                ("/old/../a", None),
            ],
        );
    }

    #[test]
    fn paths_of_the_origin_become_those_of_the_client() {
        let check = |route: &str, rows: &[(&str, Option<&str>)]| {
            let (rewrite, _) = read(route);
            for (path, expected) in rows {
                let found = rewrite.path_of_client(path.as_bytes());
                let found = found.map(|it| String::from_utf8(it).expect("ASCII"));
                assert_eq!(found.as_deref(), *expected, "{route} {path}");
            }
        };
        check(
            "strip_prefix = \"/api\"",
            &[
                ("/a", Some("/api/a")),
                ("/", Some("/api/")),
                ("/api/a", None),
                ("/apis", Some("/api/apis")),
            ],
        );
        check(
            "strip_prefix = \"/api\"\nadd_prefix = \"/v2\"",
            &[
                ("/v2/a", Some("/api/a")),
                ("/v2", Some("/api/")),
                ("/v2a", None),
                ("/a", None),
            ],
        );
        check(
            "add_prefix = \"/v2\"",
            &[("/v2/a", Some("/a")), ("/v2", Some("/")), ("/a", None)],
        );
        check(
            "match = { path = \"/*\" }\nrewrite = { to = \"/b/{1}\" }",
            &[("/b/a", None)],
        );
    }
}

//! Redirects of single URLs, listed in a file: `/old /new [status]`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::FixedState;
use microcache_policy::key::split_query;
use microcache_policy::url_template::UrlTemplate;

use super::redirect::Redirect;

/// The most lines of a file.
const MAX_LINES: usize = 100_000;

/// The most redirects that browsers follow.
const MOST_FOLLOWED: usize = 20;

/// Redirects by path, or by path and query.
#[derive(Debug, Default)]
pub struct RedirectList {
    redirects: HashMap<Box<str>, ListedRedirect, FixedState>,
    /// Some of them are for one query only.
    by_query: bool,
}

#[derive(Debug)]
struct ListedRedirect {
    redirect: Redirect,
    /// The path and query that it leads to on the same host.
    target: Option<Box<str>>,
    line: usize,
}

impl RedirectList {
    /// Parses a file, or returns its mistakes, each with its line.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<(usize, String)>> {
        let (mut list, mut mistakes) = (Self::default(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            if number > MAX_LINES {
                mistakes.push((
                    number,
                    format!("more than {MAX_LINES} lines: write a route with `redirect`"),
                ));
                break;
            }
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            if let Err(why) = list.add(&words, number) {
                mistakes.push((number, why));
            }
        }
        let loops = list
            .redirects
            .iter()
            .filter(|(source, _)| list.is_endless(source));
        let looping =
            loops.map(|(source, it)| (it.line, format!("`{source}` is redirected over and over")));
        mistakes.extend(looping);
        mistakes.sort();
        if mistakes.is_empty() {
            Ok(list)
        } else {
            Err(mistakes)
        }
    }

    fn add(&mut self, words: &[&str], line: usize) -> Result<(), String> {
        let (source, target, status) = match *words {
            [source, target] => (source, target, "302"),
            [source, target, status] => (source, target, status),
            _ => return Err("write /OLD /NEW, and a status if it is not 302".to_owned()),
        };
        let is_legal = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if !source.starts_with('/') || !source.bytes().all(is_legal) {
            return Err(format!("`{source}` is not the path of a request, encoded"));
        }
        if target.contains(['{', '}']) {
            return Err("a list has no placeholders: write a route with `redirect`".to_owned());
        }
        let status = match status {
            "301" | "302" | "303" | "307" | "308" => status.parse().unwrap_or(302),
            _ => {
                return Err(format!(
                    "`{status}` is no redirect: write 301, 302, 303, 307 or 308"
                ));
            }
        };
        let mut to = UrlTemplate::location(target)?;
        if source.contains('?') {
            self.by_query = true;
            to = to.without_query();
        }
        let path = target
            .split('#')
            .next()
            .filter(|path| path.starts_with('/'));
        let listed = ListedRedirect {
            redirect: Redirect { to, status },
            target: path.map(Into::into),
            line,
        };
        match self.redirects.entry(source.into()) {
            Entry::Vacant(entry) => {
                entry.insert(listed);
                Ok(())
            }
            Entry::Occupied(entry) => Err(format!(
                "`{source}` is on line {} already",
                entry.get().line
            )),
        }
    }

    /// Returns the redirect of a path and query, or of the path alone.
    pub(crate) fn find(&self, target: &[u8]) -> Option<&Redirect> {
        let target = std::str::from_utf8(target).ok()?;
        self.listed(target).map(|listed| &listed.redirect)
    }

    fn listed(&self, target: &str) -> Option<&ListedRedirect> {
        let path = split_query(target.as_bytes()).0.len();
        let whole = self.by_query.then(|| self.redirects.get(target)).flatten();
        whole.or_else(|| self.redirects.get(&target[..path]))
    }

    fn is_endless(&self, source: &str) -> bool {
        let mut at = Some(source);
        for _ in 0..MOST_FOLLOWED {
            let next = at.and_then(|at| self.listed(at));
            at = next.and_then(|next| next.target.as_deref());
        }
        at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use microcache_engine::Request;
    use microcache_policy::Scheme;

    use super::*;
    use crate::config::Matcher;

    fn check(text: &str, target: &str, expected: Option<(&str, u16)>) {
        let list = RedirectList::parse(text).expect(text);
        let request = Request::of_url(Scheme::Http, b"a", target.as_bytes());
        let found = list.find(target.as_bytes());
        let found = found.map(|it| {
            (
                it.location(&request, &Matcher::default()).unwrap(),
                it.status,
            )
        });
        let expected = expected.map(|(location, status)| (location.as_bytes().to_vec(), status));
        assert_eq!(found, expected, "{target}");
    }

    #[test]
    fn a_path_is_redirected_with_its_query_and_a_query_by_itself() {
        let text = "# moved\n\n/old /new\n/a  https://b.example/c 301\n/p?id=1 /first\n/p /pages 308\n/q /r?s=1#t\n";
        check(text, "/old", Some(("/new", 302)));
        check(text, "/old?a=b", Some(("/new?a=b", 302)));
        check(text, "/old/", None);
        check(text, "/Old", None);
        check(text, "/a", Some(("https://b.example/c", 301)));
        check(text, "/p?id=1", Some(("/first", 302)));
        check(text, "/p?id=2", Some(("/pages?id=2", 308)));
        check(text, "/p", Some(("/pages", 308)));
        check(text, "/q?u", Some(("/r?s=1#t", 302)));
        check("/old /new", "/old?a", Some(("/new?a", 302)));
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line, says) in [
            ("/a", 1, "write /OLD /NEW"),
            ("/a /b 301 x", 1, "write /OLD /NEW"),
            ("/a /b 200", 1, "no redirect"),
            ("a /b", 1, "not the path"),
            ("/ä /b", 1, "not the path"),
            ("/a //b", 1, "single `/`"),
            ("/a b", 1, "absolute path"),
            ("/a /{path}", 1, "no placeholders"),
            ("/a /b\n\n/a /c", 3, "on line 1 already"),
            ("/a /a", 1, "over and over"),
            ("/a /b\n/b /a?x", 1, "`/a` is redirected over and over"),
            ("#\n/a?x /a?x", 2, "over and over"),
        ] {
            let mistakes = RedirectList::parse(text).expect_err(text);
            assert_eq!(mistakes[0].0, line, "{text}: {mistakes:?}");
            assert!(mistakes[0].1.contains(says), "{text}: {mistakes:?}");
        }
        let many = "/a /b\n".repeat(MAX_LINES + 1);
        let mistakes = RedirectList::parse(&many).expect_err("too long");
        assert_eq!(mistakes.last().map(|(line, _)| *line), Some(MAX_LINES + 1));
    }

    #[test]
    fn a_chain_that_ends_is_no_loop() {
        assert!(RedirectList::parse("/a /b\n/b /c\n/c /d").is_ok());
        assert!(RedirectList::parse("/a?x /a").is_ok());
    }
}

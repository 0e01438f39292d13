//! Regular expressions of plugins, as far as they are equivalent to a list, one location, or everything. They
//! are translated, not matched; any other expression is refused.

/// Deepest nesting of groups. Plugins need two.
const MAX_DEPTH: usize = 4;

/// Prefixes and suffixes that anchor a name in a list.
const BEFORE: [&[u8]; 7] = [
    b"(^|,)",
    b"(?:^|,)",
    b"(^| )",
    b"(^|\\s)",
    b"(^|[\\s,])",
    b"^",
    b"\\b",
];
const BEHIND: [&[u8]; 9] = [
    b"(,|$)",
    b"(?:,|$)",
    b"( |$)",
    b"(\\s|$)",
    b"([\\s,]|$)",
    b"(,.+)?$",
    b"(,.*)?$",
    b"$",
    b"\\b",
];

/// Returns `true` if a pattern matches everything.
pub(super) fn is_everything(pattern: &[u8]) -> bool {
    const ALL: [&[u8]; 7] = [b".*", b".+", b"*", b"^.*$", b"^.+$", b"^.*", b".*$"];
    ALL.contains(&pattern.trim_ascii())
}

/// Returns the names in a list: separated by commas or white space, or an alternation with its groups and
/// anchors. `None` for other expressions.
pub(super) fn names(pattern: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    collect(pattern, 0, &mut names)?;
    Some(names)
}

fn collect(pattern: &[u8], depth: usize, names: &mut Vec<Vec<u8>>) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    for choice in choices(pattern)? {
        let bare = without_bounds(choice.trim_ascii());
        if let Some(inner) = group(bare) {
            collect(inner, depth + 1, names)?;
            continue;
        }
        let words = bare.split(|b| b", \t".contains(b));
        for word in words.filter(|word| !word.is_empty()) {
            names.push(literal(word, b"")?);
        }
    }
    Some(())
}

/// Splits at `|` outside of groups. `None` if groups are not closed.
fn choices(pattern: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut choices, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let mut escaped = false;
    for (at, &byte) in pattern.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b'|' if depth == 0 => {
                choices.push(&pattern[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    choices.push(&pattern[start..]);
    (depth == 0).then_some(choices)
}

/// Returns the inside of a group that spans the whole expression.
fn group(pattern: &[u8]) -> Option<&[u8]> {
    let inner = pattern.strip_prefix(b"(")?.strip_suffix(b")")?;
    // Otherwise the first parenthesis is closed before the end, as in `(a)(b)`.
    choices(inner)?;
    Some(inner.strip_prefix(b"?:").unwrap_or(inner))
}

fn without_bounds(mut name: &[u8]) -> &[u8] {
    loop {
        let before = BEFORE.iter().find_map(|bound| name.strip_prefix(*bound));
        let behind = BEHIND.iter().find_map(|bound| {
            let rest = name.strip_suffix(*bound)?;
            (!rest.ends_with(b"\\")).then_some(rest)
        });
        match before.or(behind) {
            Some(rest) => name = rest,
            None => return without_marks(name),
        }
    }
}

/// Removes the `#` that some sites put around each tag.
fn without_marks(name: &[u8]) -> &[u8] {
    let name = name.strip_prefix(b"#").unwrap_or(name);
    match name.strip_suffix(b"#") {
        Some(rest) if !rest.ends_with(b"\\") => rest,
        _ => name,
    }
}

/// Returns the text that a literal pattern matches. A dot counts as a dot, as plugins rarely escape it. Bytes
/// in `plain` have no special meaning.
fn literal(pattern: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter().copied();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'\\' => bytes.next().filter(u8::is_ascii_punctuation)?,
            byte if b"()[]{}*+?^$|".contains(&byte) && !plain.contains(&byte) => return None,
            byte => byte,
        };
        text.push(byte);
    }
    Some(text)
}

/// URLs of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UrlMatch {
    All,
    /// One path and query.
    One(Vec<u8>),
    /// A prefix of path and query.
    Beginning(Vec<u8>),
}

/// Returns the URLs that a pattern matches; a prefix unless it is anchored at the end. `None` for other
/// expressions. Bytes in `plain` have no special meaning.
pub(super) fn urls(pattern: &[u8], plain: &[u8]) -> Option<UrlMatch> {
    let pattern = pattern.trim_ascii();
    if is_everything(pattern) {
        return Some(UrlMatch::All);
    }
    let (is_held, rest) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    if !rest.starts_with(b"/") {
        return None;
    }
    if let Some(exact) = rest.strip_suffix(b"$")
        && is_held
        && !exact.ends_with(b"\\")
        && !exact.ends_with(b".*")
    {
        return literal(exact, plain).map(UrlMatch::One);
    }
    let rest = rest.strip_suffix(b".*$").unwrap_or(rest);
    beginning(rest, |path| literal(path, plain))
}

/// Returns the URLs of a request target, which may end in a wildcard and is otherwise literal.
pub(super) fn target(target: &[u8]) -> UrlMatch {
    if target.ends_with(b"*") {
        beginning(target, |path| Some(path.to_vec())).unwrap_or(UrlMatch::All)
    } else {
        UrlMatch::One(target.to_vec())
    }
}

fn beginning(pattern: &[u8], read: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<UrlMatch> {
    let path = pattern
        .strip_suffix(b"(.*)")
        .or_else(|| pattern.strip_suffix(b".*"))
        .or_else(|| pattern.strip_suffix(b"*"))
        .unwrap_or(pattern);
    let path = read(path)?;
    Some(if matches!(&path[..], b"" | b"/") {
        UrlMatch::All
    } else {
        UrlMatch::Beginning(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, expected: Option<&[&str]>) {
        let found = names(pattern.as_bytes());
        let expected: Option<Vec<Vec<u8>>> =
            expected.map(|names| names.iter().map(|&name| name.into()).collect());
        assert_eq!(found, expected, "{pattern}");
    }

    #[test]
    fn lists_are_read_in_every_spelling() {
        check("a", Some(&["a"]));
        check("a b,c , d|e", Some(&["a", "b", "c", "d", "e"]));
        check("node:1|node_list", Some(&["node:1", "node_list"]));
        check("node:1#|#node:2", Some(&["node:1", "node:2"]));
        check("(^| )node:1( |$)", Some(&["node:1"]));
        check("(^|\\s)(a|b)(\\s|$)", Some(&["a", "b"]));
        check("(a|b)(,.+)?$", Some(&["a", "b"]));
        check("(^|,)(a|b)(,|$)", Some(&["a", "b"]));
        check("(a|b)(,|$)", Some(&["a", "b"]));
        check("(?:a|b)", Some(&["a", "b"]));
        check("^a$|^b\\$$", Some(&["a", "b$"]));
        check("a\\-1|b\\.c\\|d", Some(&["a-1", "b.c|d"]));
        check(
            "((^|,)cat_p_1(,|$))|((^|,)cat_c_2(,|$))",
            Some(&["cat_p_1", "cat_c_2"]),
        );
        check("config:system.site", Some(&["config:system.site"]));
        for empty in ["", " ", "|", "()", "(^|,)(,|$)", ",", "^$"] {
            check(empty, Some(&[]));
        }
    }

    #[test]
    fn other_expressions_than_lists_are_refused() {
        for pattern in [
            "node:[0-9]",
            "node:\\d",
            "node:.*x*",
            "a+",
            "a?",
            "a{2}",
            "(a)(b)",
            "x(a|b)",
            "(a|b)x",
            "(a",
            "a)",
            ")(",
            "(a))(",
            "a\\",
            "a\\ x",
            "(?i)a",
            "(?!a)b",
            "((((((a))))))",
        ] {
            check(pattern, None);
        }
        // Neither nesting nor length costs more than linear time.
        let deep = ["(".repeat(30_000), ")".repeat(30_000)].concat();
        check(&deep, None);
        check(&"(".repeat(60_000), None);
        assert_eq!(names("^".repeat(60_000).as_bytes()), Some(Vec::new()));
    }

    #[test]
    fn urls_are_one_or_begin_alike() {
        let check = |pattern: &str, expected: Option<UrlMatch>| {
            assert_eq!(urls(pattern.as_bytes(), b"?"), expected, "{pattern}");
        };
        let one = |path: &str| Some(UrlMatch::One(path.into()));
        let beginning = |path: &str| Some(UrlMatch::Beginning(path.into()));
        check(".*", Some(UrlMatch::All));
        check("^/.*$", Some(UrlMatch::All));
        check("/.*", Some(UrlMatch::All));
        check("/", Some(UrlMatch::All));
        check("^/$", one("/"));
        check("^/news$", one("/news"));
        check("^/a\\.css\\?v=1$", one("/a.css?v=1"));
        check("^/news", beginning("/news"));
        check("/news", beginning("/news"));
        check("/news/.*", beginning("/news/"));
        check("/shop?b=.*", beginning("/shop?b="));
        check("^/news/(.*)", beginning("/news/"));
        check("^/a\\$", beginning("/a$"));
        for wrong in [
            "",
            "news",
            "\\.css$",
            "/news$",
            "^/(a|b)",
            "^/[a-z]",
            "https://a/x",
            ".*/feed",
            "/a.*b.*",
            "/a\\",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn targets_may_end_in_a_wildcard() {
        assert_eq!(target(b"/a(b"), UrlMatch::One(b"/a(b".to_vec()));
        assert_eq!(target(b"/a.*"), UrlMatch::Beginning(b"/a".to_vec()));
        assert_eq!(target(b"/a/*"), UrlMatch::Beginning(b"/a/".to_vec()));
        assert_eq!(target(b"/*"), UrlMatch::All);
    }
}

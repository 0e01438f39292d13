//! Mapping of request targets to paths.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use microcache_policy::key::split_query;
use microcache_policy::percent;

/// Path of a target, below the directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TargetPath {
    /// Path without the trailing slash; empty for the directory itself.
    pub(super) path: PathBuf,
    /// The target ends in a slash, so it names a directory.
    pub(super) is_folder: bool,
}

/// Parses the path of a target. `None` for targets that no link has: `..` and `.`, empty segments, an encoded
/// slash or NUL, hidden files except `.well-known` (RFC 8615), sources and backups.
pub(super) fn named(target: &[u8]) -> Option<TargetPath> {
    let (path, _query) = split_query(target);
    let path = path.strip_prefix(b"/")?;
    let (path, is_folder) = match path.strip_suffix(b"/") {
        Some(path) => (path, true),
        None => (path, path.is_empty()),
    };
    let mut named = PathBuf::new();
    if path.is_empty() {
        // "//" would be an empty segment.
        return (target.first_chunk() != Some(b"//")).then_some(TargetPath {
            path: named,
            is_folder,
        });
    }
    for segment in path.split(|&byte| byte == b'/') {
        let segment = decoded(segment)?;
        if segment.is_empty() || is_unsent(&segment) {
            return None;
        }
        named.push(OsString::from_vec(segment));
    }
    Some(TargetPath {
        path: named,
        is_folder,
    })
}

/// Suffixes of sources, dumps and backups, in lower case: an application's secrets are in them.
const UNSENT_SUFFIXES: [&[u8]; 8] = [
    b".php", b".phtml", b".phar", b".inc", b".sql", b".bak", b".swp", b"~",
];

/// Returns `true` for the names of files and directories that are never sent: hidden ones, sources and backups.
pub(super) fn is_unsent(name: &[u8]) -> bool {
    let ends_in = |suffix: &&[u8]| {
        let start = name.len().checked_sub(suffix.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(suffix))
    };
    name.first() == Some(&b'.') && name != b".well-known" || UNSENT_SUFFIXES.iter().any(ends_in)
}

fn decoded(segment: &[u8]) -> Option<Vec<u8>> {
    let decoded = percent::decoded(segment)?;
    (!decoded.contains(&b'/') && !decoded.contains(&0)).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::path::Component;

    use super::*;

    #[test]
    fn a_target_names_the_file_of_its_path() {
        let path =
            |target: &str| named(target.as_bytes()).map(|named| (named.path, named.is_folder));
        let file = |name: &str| Some((PathBuf::from(name), false));
        let folder = |name: &str| Some((PathBuf::from(name), true));
        assert_eq!(path("/"), folder(""));
        assert_eq!(path("/?a=/b"), folder(""));
        assert_eq!(path("/a/b.css?v=1"), file("a/b.css"));
        assert_eq!(path("/a/"), folder("a"));
        assert_eq!(path("/a%20b/%C3%A9%2e+"), file("a b/é.+"));
        assert_eq!(
            path("/.well-known/security.txt"),
            file(".well-known/security.txt")
        );
        for nothing in [
            "",
            "*",
            "a",
            "//",
            "///",
            "//a",
            "/a//b",
            "/a//",
            "/..",
            "/../a",
            "/a/../b",
            "/a/..",
            "/.",
            "/./a",
            "/%2e%2e/a",
            "/%2e",
            "/.%2e/",
            "/a%2fb",
            "/a%2F..%2Fb",
            "/a%00",
            "/a%",
            "/a%2",
            "/a%zz",
            "/.git/config",
            "/a/.htaccess",
            "/%2egit/config",
            "/.well-known.old/x",
            "/index.php",
            "/a.PHP/b",
            "/dump.sql",
            "/a~",
            "/config.inc",
        ] {
            assert_eq!(path(nothing), None, "{nothing}");
        }
    }

    proptest! {
        #[test]
        fn nothing_leads_out(target in "[/.%2eEfF0a]{0,24}") {
            if let Some(named) = named(target.as_bytes()) {
                prop_assert!(named.path.components().all(|part| matches!(part, Component::Normal(_))));
            }
        }
    }
}

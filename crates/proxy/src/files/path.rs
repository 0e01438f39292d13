//! Mapping of request targets to paths.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use microcache_policy::key::split_query;
use microcache_policy::percent;

/// Path of a target, below the directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TargetPath {
    /// Path without the trailing slash; empty for the directory itself.
    pub(crate) path: PathBuf,
    /// The target ends in a slash, so it names a directory.
    pub(crate) is_folder: bool,
}

/// Parses the path of a target. `None` for targets that no link has: `..` and `.`, empty segments, an encoded
/// slash or NUL, and hidden files except `.well-known` (RFC 8615).
pub(crate) fn named(target: &[u8]) -> Option<TargetPath> {
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
        if segment.is_empty() || is_hidden(&segment) {
            return None;
        }
        named.push(OsString::from_vec(segment));
    }
    Some(TargetPath {
        path: named,
        is_folder,
    })
}

/// Returns `true` for the names of hidden files and directories.
pub(crate) fn is_hidden(name: &[u8]) -> bool {
    name.first() == Some(&b'.') && name != b".well-known"
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

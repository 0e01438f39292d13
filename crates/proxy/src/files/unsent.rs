//! Names of files that are never sent: an application's secrets are in them.

/// Suffixes of sources, dumps and backups, in lower case.
const SUFFIXES: [&[u8]; 8] = [
    b".php", b".phtml", b".phar", b".inc", b".sql", b".bak", b".swp", b"~",
];

/// Returns `true` for the names of sources, dumps and backups.
pub(crate) fn is_unsent(name: &[u8]) -> bool {
    let ends_in = |suffix: &[u8]| {
        let start = name.len().checked_sub(suffix.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(suffix))
    };
    SUFFIXES.into_iter().any(ends_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_dumps_and_backups_are_never_sent() {
        for name in ["index.php", "a.PHP", "dump.sql", "a~", "config.inc", ".php"] {
            assert!(is_unsent(name.as_bytes()), "{name}");
        }
        for name in ["a.php.html", "php", "sql", "a.txt", ""] {
            assert!(!is_unsent(name.as_bytes()), "{name}");
        }
    }
}

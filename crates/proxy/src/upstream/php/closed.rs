//! Directories that an application closes by an `.htaccess` of its own: MediaWiki its deleted files and the sources of
//! libraries, Drupal its private files, plugins of WordPress their backups and logs. Only this is read of such a file.
//!
//! The document root's own file is the administrator's, and is not read.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::files::read_start;

/// Name that Apache reads by default.
const NAME: &str = ".htaccess";
/// Most bytes that are read of one.
const MAX_BYTES: u64 = 64 << 10;

/// Statement of an `.htaccess` about its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statement {
    Closed,
    Open,
    /// No statement, or one with exceptions.
    Silent,
}

/// Returns `true` if the nearest directory on the path with a statement closes it. The path has no links.
pub(super) fn is_closed(root: &File, path: &Path) -> io::Result<bool> {
    let directories = path.ancestors().skip(1);
    for directory in directories.filter(|it| !it.as_os_str().is_empty()) {
        let text = match read_start(root, &directory.join(NAME), MAX_BYTES) {
            Ok(None) => continue,
            Ok(Some(text)) => text,
            // Apache sends nothing either if it may not read the file.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(true),
            Err(error) => return Err(error),
        };
        match statement(&text) {
            Statement::Closed => return Ok(true),
            Statement::Open => return Ok(false),
            Statement::Silent => {}
        }
    }
    Ok(false)
}

/// Reads both of Apache's notations: an application that does not know the version writes both, each in an `<IfModule>`.
fn statement(text: &[u8]) -> Statement {
    let (mut depth, mut is_denied, mut is_granted, mut has_exceptions) =
        (0_usize, false, false, false);
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii().to_ascii_lowercase();
        let words: Vec<_> = line
            .split(u8::is_ascii_whitespace)
            .filter(|it| !it.is_empty())
            .collect();
        match words[..] {
            [
                b"<ifmodule" | b"<ifversion" | b"<ifdefine" | b"</ifmodule>" | b"</ifversion>"
                | b"</ifdefine>",
                ..,
            ] => {}
            [word, ..] if word.starts_with(b"</") => depth = depth.saturating_sub(1),
            [word, ..] if word.starts_with(b"<") => depth += 1,
            [b"require", b"all", b"denied"] | [b"deny", b"from", b"all"] if depth == 0 => {
                is_denied = true;
            }
            [b"require", b"all", b"granted"] | [b"allow", b"from", b"all"] => {
                is_granted |= depth == 0;
                has_exceptions |= depth > 0;
            }
            _ => {}
        }
    }
    match (is_denied, is_granted, has_exceptions) {
        (true, false, false) => Statement::Closed,
        (false, true, _) => Statement::Open,
        _ => Statement::Silent,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use microcache_testkit::Folder;

    use super::*;
    use crate::files::open_root;

    #[test]
    fn statements_are_read_in_both_notations() {
        let both = "<IfModule mod_authz_core.c>\n  Require all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\n\tDeny from all\n</IfModule>\n";
        for (text, expected) in [
            ("Require all denied\nSatisfy All\n", Statement::Closed),
            ("order deny,allow\r\nDENY  from all\r\n", Statement::Closed),
            (both, Statement::Closed),
            ("Require all granted", Statement::Open),
            ("", Statement::Silent),
            ("# Deny from all", Statement::Silent),
            (
                "RewriteEngine on\nRewriteRule . /index.php [L]",
                Statement::Silent,
            ),
            (
                "<FilesMatch \"\\.sql$\">\nRequire all denied\n</FilesMatch>",
                Statement::Silent,
            ),
            (
                "Deny from all\n<Files form.js>\nAllow from all\n</Files>",
                Statement::Silent,
            ),
            (
                "<Files a>\n<IfModule x>\n</IfModule>\nDeny from all\n</Files>\nDeny from all",
                Statement::Closed,
            ),
            ("</Files>\n</Files>\nDeny from all", Statement::Closed),
        ] {
            assert_eq!(statement(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_nearest_statement_counts() {
        let folder = Folder::new();
        let directory = |path: &str, text: &str| {
            fs::create_dir_all(folder.path().join(path)).unwrap();
            fs::write(folder.path().join(path).join(NAME), text).unwrap();
        };
        directory("", "Deny from all");
        directory("images/deleted", "Deny from all");
        directory("images/deleted/icons", "Allow from all");
        fs::create_dir_all(folder.path().join("images/deleted/a/b")).unwrap();
        let root = open_root(folder.path()).unwrap();
        for (path, expected) in [
            ("index.php", false),
            ("images/x.png", false),
            ("images/deleted/x.png", true),
            ("images/deleted/a/b/x.png", true),
            ("images/deleted/icons/x.png", false),
            ("images/deleted", false),
        ] {
            assert_eq!(
                is_closed(&root, Path::new(path)).unwrap(),
                expected,
                "{path}"
            );
        }
    }
}

//! Files of a PHP application that may be sent, and sources and secrets that may not: more than a plain directory has.

use crate::files::is_unsent;

/// Parts of a name, behind a dot, of source code and dumps: not even `config.php.txt` is sent.
const SOURCES: &[&str] = &[
    "inc", "phar", "php", "php3", "php4", "php5", "php7", "php8", "phps", "pht", "phtml", "sql",
];

/// Ends of a name, behind the last dot, of what applications read themselves.
const PRIVATE: &[&str] = &[
    "cfg", "conf", "engine", "env", "ini", "install", "lock", "log", "module", "old", "orig",
    "profile", "save", "sh", "swo", "theme", "tpl", "twig", "yaml", "yml",
];

/// Whole names.
const NAMES: &[&str] = &[
    "composer.json",
    "error_log",
    "installed.json",
    "package-lock.json",
    "package.json",
    "web.config",
];

/// Returns `true` if a file of this name may be sent.
pub(super) fn may_be_sent(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let is = |part: &[u8], list: &[&str]| list.iter().any(|known| known.as_bytes() == part);
    let mut parts = name.split(|&byte| byte == b'.').skip(1);
    let is_source = parts.any(|part| is(part.trim_ascii(), SOURCES));
    let dot = name.iter().rposition(|&byte| byte == b'.');
    let suffix = dot.map_or(&[][..], |dot| &name[dot + 1..]);
    let is_hidden = name.first() == Some(&b'.');
    let is_backup = is_unsent(&name) || name.ends_with(b"#");
    !(is_source || is_hidden || is_backup || is(suffix, PRIVATE) || is(&name, NAMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_and_secrets_are_not_sent() {
        for name in [
            "index.php",
            "INDEX.PHP",
            "a.phtml",
            "a.phar",
            "a.php5",
            "a.inc",
            "dump.sql",
            "dump.sql.gz",
            "wp-config.php.bak",
            "wp-config.php.txt",
            "wp-config.php~",
            "a.txt~",
            "a.bak",
            ".htaccess",
            ".env",
            "a.swp",
            "composer.json",
            "composer.lock",
            "package-lock.json",
            "error_log",
            "Web.config",
            "debug.log",
            "a.php ",
            "a.php.",
            "x.module",
            "services.yml",
        ] {
            assert!(!may_be_sent(name.as_bytes()), "{name}");
        }
        for name in [
            "style.css",
            "jquery.min.js",
            "a.jpg",
            "robots.txt",
            "LICENSE",
            "phpinfo",
            "a.php-logo.png",
            "include.js",
            "manifest.json",
            "favicon.ico",
            "font.woff2",
            "log",
        ] {
            assert!(may_be_sent(name.as_bytes()), "{name}");
        }
    }
}

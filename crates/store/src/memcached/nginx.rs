//! Entries that an application already writes for nginx's memcached module: the key is
//! `$uri?$args`, the value is the body and nothing else.

use std::fmt::Write as _;

/// What memcached allows.
const MAX_KEY: usize = 250;

/// The key of a request target. `None` if there can be no such entry, or nginx would first rewrite
/// the path (`//`, `/./`, `/../`) and we do not follow it there.
pub(super) fn key(prefix: &str, target: &[u8]) -> Option<String> {
    if target.first() != Some(&b'/') || target.contains(&b'#') {
        return None;
    }
    let question = target.iter().position(|&b| b == b'?');
    let (path, arguments) = match question {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &[][..]),
    };
    let path = decoded(path)?;
    let mut segments = path[1..].split(|&b| b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        if segment == b"." || segment == b".." || segment.is_empty() && !is_last {
            return None;
        }
    }
    let mut key = String::with_capacity(MAX_KEY);
    for part in [prefix.as_bytes(), &path, b"?", arguments] {
        escape(part, &mut key)?;
    }
    (key.len() <= MAX_KEY).then_some(key)
}

/// A path without percent signs, as `$uri` has it.
fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        rest = after;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let digits = str::from_utf8(digits).ok()?;
        match u8::from_str_radix(digits, 16).ok()? {
            0 => return None,
            byte => out.push(byte),
        }
    }
    Some(out)
}

/// Writes what nginx writes: blanks, control characters and percent signs in hexadecimal digits.
/// Keys that are not UTF-8 are left out.
fn escape(part: &[u8], key: &mut String) -> Option<()> {
    for character in str::from_utf8(part).ok()?.chars() {
        match character {
            '\0'..=' ' | '%' => write!(key, "%{:02X}", character as u32).ok()?,
            _ => key.push(character),
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_nginx_own() {
        let key = |target: &str| key("", target.as_bytes());
        let some = |key: &str| Some(key.to_owned());
        assert_eq!(key("/"), some("/?"));
        assert_eq!(key("/a/b.html?x=1&y=%20"), some("/a/b.html?x=1&y=%2520"));
        assert_eq!(key("/a%20b%25"), some("/a%20b%25?"));
        assert_eq!(key("/caf%C3%A9/?"), some("/café/?"));
        assert_eq!(key("/a?b?c"), some("/a?b?c"));
        assert_eq!(super::key("site:", b"/a"), some("site:/a?"));
    }

    #[test]
    fn what_has_no_key() {
        let long = format!("/{}", "x".repeat(MAX_KEY - 1));
        assert!(key("", &long.as_bytes()[1..]).is_none());
        assert!(key("", long.as_bytes()).is_none());
        assert!(key("", &long.as_bytes()[..MAX_KEY - 1]).is_some());
        for target in [
            "",
            "*",
            "a",
            "http://a/",
            "//a",
            "/a//b",
            "/a/../b",
            "/a/%2e%2e",
            "/.",
            "/a#b",
            "/%",
            "/%2",
            "/%zz",
            "/%00",
            "/%ff",
        ] {
            assert!(key("", target.as_bytes()).is_none(), "{target}");
        }
    }
}

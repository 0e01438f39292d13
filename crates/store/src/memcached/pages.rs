//! Pages written by an application for nginx's memcached module: the key consists of nginx variables, the
//! value is the plain body. Read-only.

use std::fmt::Write as _;
use std::str::FromStr;

use microcache_policy::percent;

/// Maximum length of a memcached key, in bytes.
const MAX_KEY: usize = 250;

/// Settings for pages in memcached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationPages {
    /// Key template.
    pub key: PageKey,
    /// Content-Type of pages without a known file extension.
    pub default_type: String,
}

/// Key template in the syntax of nginx's `memcached_key`, for example `$uri?$args`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageKey(Vec<KeyPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyPart {
    Text(String),
    Variable(KeyVariable),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyVariable {
    Uri,
    Args,
    IsArgs,
    RequestUri,
    Host,
}

const VARIABLES: [(&str, KeyVariable); 5] = [
    ("uri", KeyVariable::Uri),
    ("args", KeyVariable::Args),
    ("is_args", KeyVariable::IsArgs),
    ("request_uri", KeyVariable::RequestUri),
    ("host", KeyVariable::Host),
];

/// Reasons why a key template is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPageKey {
    /// Unknown variable.
    #[error("`${0}` is not one of $uri, $args, $is_args, $request_uri and $host")]
    Unknown(String),
    /// The key is the same for all pages.
    #[error("the key must contain $uri or $request_uri, to distinguish pages")]
    SameForAll,
    /// The key exceeds memcached's limit.
    #[error("the key must not exceed {MAX_KEY} bytes")]
    TooLong,
}

impl FromStr for PageKey {
    type Err = InvalidPageKey;

    fn from_str(text: &str) -> Result<Self, InvalidPageKey> {
        if text.len() > MAX_KEY {
            return Err(InvalidPageKey::TooLong);
        }
        let mut pieces = text.split('$');
        let mut parts = Vec::new();
        parts.extend(pieces.next().and_then(literal));
        for piece in pieces {
            let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = piece.find(|c| !name(c)).unwrap_or(piece.len());
            let (name, rest) = piece.split_at(end);
            let known = VARIABLES.iter().find(|(known, _)| *known == name);
            let (_, variable) = known.ok_or_else(|| InvalidPageKey::Unknown(name.to_owned()))?;
            parts.push(KeyPart::Variable(*variable));
            parts.extend(literal(rest));
        }
        let tells_pages_apart = |part: &KeyPart| {
            matches!(
                part,
                KeyPart::Variable(KeyVariable::Uri | KeyVariable::RequestUri)
            )
        };
        if !parts.iter().any(tells_pages_apart) {
            return Err(InvalidPageKey::SameForAll);
        }
        Ok(Self(parts))
    }
}

fn literal(text: &str) -> Option<KeyPart> {
    (!text.is_empty()).then(|| KeyPart::Text(text.to_owned()))
}

impl PageKey {
    /// Builds the key of a request. `None` if no page can have it, or if nginx would normalize the path
    /// (`//`, `/./`, `/../`).
    pub(super) fn build(&self, host: &[u8], target: &[u8]) -> Option<String> {
        if target.first() != Some(&b'/') || target.contains(&b'#') {
            return None;
        }
        let (path, args) = split(target);
        let uri = decoded(path)?;
        if is_rewritten(&uri) {
            return None;
        }
        let host = host_name(host);
        let mut key = String::with_capacity(MAX_KEY);
        for part in &self.0 {
            let bytes = match part {
                KeyPart::Text(text) => text.as_bytes(),
                KeyPart::Variable(KeyVariable::Uri) => &uri,
                KeyPart::Variable(KeyVariable::Args) => args,
                KeyPart::Variable(KeyVariable::IsArgs) if args.is_empty() => b"",
                KeyPart::Variable(KeyVariable::IsArgs) => b"?",
                KeyPart::Variable(KeyVariable::RequestUri) => target,
                KeyPart::Variable(KeyVariable::Host) => &host,
            };
            escape(bytes, &mut key)?;
        }
        (key.len() <= MAX_KEY).then_some(key)
    }
}

impl ApplicationPages {
    /// Returns the media type by the file extension of the path, as in nginx's mime.types.
    pub(super) fn content_type(&self, target: &[u8]) -> &str {
        let (path, _) = split(target);
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let ending = match name.iter().rposition(|&b| b == b'.') {
            Some(dot) => name[dot + 1..].to_ascii_lowercase(),
            None => return &self.default_type,
        };
        let known = TYPES.iter().find(|(known, _)| known.as_bytes() == ending);
        known.map_or(&self.default_type, |(_, content_type)| content_type)
    }
}

/// Common media types by file extension, from nginx's mime.types.
const TYPES: [(&str, &str); 22] = [
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("js", "application/javascript"),
    ("json", "application/json"),
    ("xml", "text/xml"),
    ("rss", "application/rss+xml"),
    ("atom", "application/atom+xml"),
    ("txt", "text/plain"),
    ("csv", "text/csv"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("ico", "image/x-icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("pdf", "application/pdf"),
    ("wasm", "application/wasm"),
];

fn split(target: &[u8]) -> (&[u8], &[u8]) {
    match target.iter().position(|&b| b == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &[]),
    }
}

/// Decodes the path like `$uri`.
fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    percent::decoded(path).filter(|decoded| !decoded.contains(&0))
}

/// Returns whether nginx would normalize this path.
fn is_rewritten(path: &[u8]) -> bool {
    let mut segments = path.split(|&b| b == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        if segment == b"." || segment == b".." || segment.is_empty() && !is_last {
            return true;
        }
    }
    false
}

/// Normalizes the host like `$host`: lower case, without port and trailing dot.
fn host_name(host: &[u8]) -> Vec<u8> {
    let colon = host.iter().rposition(|&b| b == b':');
    let end = colon.filter(|&at| host[at + 1..].iter().all(u8::is_ascii_digit));
    let name = &host[..end.unwrap_or(host.len())];
    name.strip_suffix(b".").unwrap_or(name).to_ascii_lowercase()
}

/// Escapes like nginx: spaces, control characters and percent signs. `None` for keys that are not UTF-8.
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

    fn key(format: &str, target: &str) -> Option<String> {
        let format: PageKey = format.parse().unwrap();
        format.build(b"Example.com:8080", target.as_bytes())
    }

    #[test]
    fn keys_are_nginx_own() {
        let check = |format: &str, target: &str, expected: &str| {
            assert_eq!(key(format, target).as_deref(), Some(expected));
        };
        check("$uri?$args", "/", "/?");
        check("$uri?$args", "/a/b.html?x=1&y=%20", "/a/b.html?x=1&y=%2520");
        check("$uri?$args", "/a%20b%25", "/a%20b%25?");
        check("$uri?$args", "/caf%C3%A9/?", "/café/?");
        check("$uri?$args", "/a?b?c", "/a?b?c");
        check("site:$uri", "/a?b", "site:/a");
        check("$uri$is_args$args", "/a", "/a");
        check("$uri$is_args$args", "/a?b", "/a?b");
        check("$request_uri", "/a%20b?c", "/a%2520b?c");
        check("$host$uri", "/a", "example.com/a");
    }

    #[test]
    fn hosts_are_names() {
        for (host, name) in [
            ("example.com", "example.com"),
            ("EXAMPLE.com.:80", "example.com"),
            ("[::1]", "[::1]"),
            ("[::1]:80", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(host_name(host.as_bytes()), name.as_bytes(), "{host}");
        }
    }

    #[test]
    fn requests_without_a_page_key() {
        let long = format!("/{}", "x".repeat(MAX_KEY - 1));
        assert!(key("$uri?", &long).is_none());
        assert!(key("$uri?", &long[..MAX_KEY - 1]).is_some());
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
            assert!(key("$uri?$args", target).is_none(), "{target}");
        }
    }

    #[test]
    fn formats_that_make_no_keys() {
        let read = |format: &str| format.parse::<PageKey>().unwrap_err();
        assert_eq!(read("$url"), InvalidPageKey::Unknown("url".to_owned()));
        assert_eq!(read("$"), InvalidPageKey::Unknown(String::new()));
        assert_eq!(read("page:$host$args"), InvalidPageKey::SameForAll);
        assert_eq!(read(""), InvalidPageKey::SameForAll);
        assert_eq!(read(&"x".repeat(MAX_KEY + 1)), InvalidPageKey::TooLong);
    }

    #[test]
    fn the_end_of_a_path_tells_the_type() {
        let pages = ApplicationPages {
            key: "$uri".parse().unwrap(),
            default_type: "text/html; charset=utf-8".to_owned(),
        };
        for (target, expected) in [
            ("/a.css", "text/css"),
            ("/a.min.JS?v=1.png", "application/javascript"),
            ("/a.b/c", "text/html; charset=utf-8"),
            ("/", "text/html; charset=utf-8"),
            ("/a.", "text/html; charset=utf-8"),
            ("/a.php", "text/html; charset=utf-8"),
        ] {
            assert_eq!(pages.content_type(target.as_bytes()), expected, "{target}");
        }
    }
}

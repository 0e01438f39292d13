//! `Cache-Control` for browsers, apart from what decides about storing here.

use crate::directives::{self, Directive, ResponseDirectives};
use crate::fields::{Fields, FieldsBuf};
use crate::known_name::names;

/// A lifetime in seconds of file names that change with their content.
const YEAR: u64 = 365 * 24 * 3600;
/// Minimum length of a hash in a file name.
const SHORTEST_HASH: usize = 8;

/// Directives beside which the application's lifetime stays.
const RESTRICTIONS: [Directive; 6] = [
    Directive::NoStore,
    Directive::NoCache,
    Directive::Private,
    Directive::MustRevalidate,
    Directive::MustRevalidateAtLeast,
    Directive::ProxyRevalidate,
];

/// The operator's lifetimes for browsers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrowserCache {
    /// The freshness lifetime.
    pub ttl: BrowserTtl,
    /// The responses that never change.
    pub immutable: Immutable,
}

/// The freshness lifetime of responses in browsers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrowserTtl {
    /// The application's.
    #[default]
    Origin,
    /// So many seconds.
    Seconds(u64),
    /// Browsers store nothing, whatever the application permits.
    NoStore,
}

/// The responses that never change under their url (RFC 8246).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Immutable {
    /// None.
    #[default]
    Off,
    /// Those whose file names contain a hash of the content.
    Hashed,
    /// All.
    All,
}

/// A response, as far as its lifetime in browsers depends on it.
#[derive(Clone, Copy, Debug)]
pub struct ResponseForBrowser<'a> {
    /// The status code.
    pub status: u16,
    /// The fields.
    pub fields: Fields<'a>,
    /// The age in seconds.
    pub age: u64,
    /// The raw path of the request.
    pub path: &'a [u8],
    /// It is not for one client.
    pub is_shared: bool,
}

impl BrowserCache {
    /// Returns true if the application's lifetimes are kept.
    pub fn is_off(self) -> bool {
        self == Self::default()
    }

    /// Returns the fields with the lifetime for browsers; `None` if those of the application are kept. It never
    /// loosens what the application said about sharing and revalidation.
    pub fn applied(self, response: &ResponseForBrowser<'_>) -> Option<FieldsBuf> {
        let is_immutable = match self.immutable {
            Immutable::Off => false,
            Immutable::Hashed => has_hash(response.path),
            Immutable::All => true,
        };
        let ttl = match self.ttl {
            BrowserTtl::NoStore => None,
            _ if is_immutable => Some(YEAR),
            BrowserTtl::Seconds(ttl) => Some(ttl),
            BrowserTtl::Origin => return None,
        };
        let is_kept = match ttl {
            // Nothing is stricter.
            None => directives(response.fields).says(Directive::NoStore),
            Some(_) => {
                !response.is_shared
                    || !is_cacheable(response.status)
                    || is_restricted(response.fields)
            }
        };
        if is_kept {
            return None;
        }
        let mut fields = FieldsBuf::with_capacity(response.fields.as_block().len());
        fields.extend_lines(response.fields, |line| {
            let name = line.field_name();
            !name.is(names::CACHE_CONTROL) && !name.is(names::EXPIRES) && !name.is(names::PRAGMA)
        });
        let immutable = if is_immutable { ", immutable" } else { "" };
        let value = match ttl {
            None => "no-store".to_owned(),
            Some(0) => "no-cache".to_owned(),
            // A browser subtracts the age.
            Some(ttl) => format!("max-age={}{immutable}", ttl.saturating_add(response.age)),
        };
        fields.push("Cache-Control", value);
        Some(fields)
    }
}

/// Returns the fields of a response that only browsers may keep, for as long as the application says, and no cache that
/// several clients share.
pub fn made_private(response: Fields<'_>) -> FieldsBuf {
    const SHARED: [&[u8]; 4] = [b"public", b"private", b"s-maxage", b"proxy-revalidate"];
    let is_for_caches = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"surrogate-control")
            || name.to_ascii_lowercase().ends_with(b"-cache-control")
    };
    let mut value = b"private".to_vec();
    for member in response.members("cache-control") {
        let name = member
            .split(|&byte| byte == b'=')
            .next()
            .unwrap_or_default();
        let name = name.trim_ascii_end();
        if !SHARED.iter().any(|one| name.eq_ignore_ascii_case(one)) {
            value.extend_from_slice(b", ");
            value.extend_from_slice(member);
        }
    }
    let mut fields = FieldsBuf::with_capacity(response.as_block().len() + value.len());
    fields.extend_lines(response, |line| {
        let name = line.field_name();
        !name.is(names::CACHE_CONTROL) && !is_for_caches(name.text())
    });
    fields.push("Cache-Control", value);
    fields
}

const fn is_cacheable(status: u16) -> bool {
    matches!(status, 200..=299 | 301 | 304 | 308)
}

/// Returns true if a response may be shared whatever the request was.
pub fn says_public(fields: Fields<'_>) -> bool {
    directives(fields).says(Directive::Public)
}

fn directives(fields: Fields<'_>) -> ResponseDirectives {
    let mut said = ResponseDirectives::default();
    let lines = fields.values(names::CACHE_CONTROL);
    for (name, argument) in lines.flat_map(directives::of_line) {
        said.note(name, argument);
    }
    said
}

/// Returns true if the application restricts who may keep the response, or how long without asking.
fn is_restricted(fields: Fields<'_>) -> bool {
    let said = directives(fields);
    // Also those of single fields, as `no-cache="set-cookie"`.
    let mut lines = fields.values(names::CACHE_CONTROL);
    let is_restriction = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"private") || name.eq_ignore_ascii_case(b"no-cache")
    };
    lines.any(|line| directives::of_line(line).any(|(name, _)| is_restriction(name)))
        || fields.value(names::SET_COOKIE).is_some()
        || fields.value(names::PRAGMA).is_some()
        || RESTRICTIONS.iter().any(|&it| said.says(it))
}

/// Returns true if the file name in a path contains a hash of its content, as build tools write it.
fn has_hash(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // Without a suffix it is no file.
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
        return false;
    };
    let mut parts = name[..dot].split(|byte| b".-_".contains(byte));
    parts.any(is_hash)
}

fn is_hash(part: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| part.iter().any(is);
    let is_hex = part
        .iter()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_mixed = part.iter().all(u8::is_ascii_alphanumeric)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase);
    // Words and dates are no hashes.
    part.len() >= SHORTEST_HASH
        && has(u8::is_ascii_digit)
        && (is_mixed || is_hex && has(u8::is_ascii_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_responses_are_for_browsers_only() {
        let check = |fields: &str, expected: &str| {
            let private = made_private(Fields::new(fields.as_bytes()));
            let text = String::from_utf8_lossy(private.fields().as_block()).into_owned();
            assert_eq!(text, expected, "{fields:?}");
        };
        check("", "Cache-Control: private\r\n");
        check(
            "A: b\r\nCache-Control: public, max-age=60, s-maxage=600\r\ncache-control: Private=\"a, b\", no-store\r\n",
            "A: b\r\nCache-Control: private, max-age=60, no-store\r\n",
        );
        check(
            "CDN-Cache-Control: max-age=9\r\nSurrogate-Control: x\r\nCloudflare-CDN-Cache-Control: y\r\nExpires: 0\r\n",
            "Expires: 0\r\nCache-Control: private\r\n",
        );
    }

    fn check(rules: BrowserCache, path: &str, fields: &str, expected: Option<&str>) {
        let response = ResponseForBrowser {
            status: 200,
            fields: Fields::new(fields.as_bytes()),
            age: 5,
            path: path.as_bytes(),
            is_shared: true,
        };
        let applied = rules.applied(&response);
        let value = applied.as_ref().map(|fields| {
            let fields = fields.fields();
            assert_eq!(fields.all("cache-control").count(), 1);
            assert!(!fields.contains("expires"));
            std::str::from_utf8(fields.get("cache-control").expect("a line")).expect("text")
        });
        assert_eq!(value, expected, "{path} {fields}");
    }

    const MINUTE: BrowserCache = BrowserCache {
        ttl: BrowserTtl::Seconds(60),
        immutable: Immutable::Off,
    };

    #[test]
    fn shared_responses_get_the_lifetime_for_browsers() {
        for fields in [
            "",
            "Cache-Control: public, max-age=3600\r\nExpires: x\r\n",
            "Cache-Control: s-maxage=9\r\n",
        ] {
            check(MINUTE, "/", fields, Some("max-age=65"));
        }
        let none = BrowserCache {
            ttl: BrowserTtl::Seconds(0),
            ..MINUTE
        };
        check(
            none,
            "/",
            "Cache-Control: max-age=3600\r\n",
            Some("no-cache"),
        );
        check(BrowserCache::default(), "/", "", None);
    }

    #[test]
    fn no_store_is_for_all_responses() {
        let nothing = BrowserCache {
            ttl: BrowserTtl::NoStore,
            immutable: Immutable::All,
        };
        for fields in [
            "",
            "Cache-Control: max-age=3600\r\n",
            "Cache-Control: public, s-maxage=60\r\nSet-Cookie: a=1\r\nExpires: x\r\n",
            "Cache-Control: private, max-age=60\r\n",
        ] {
            check(nothing, "/", fields, Some("no-store"));
            let personal = ResponseForBrowser {
                status: 404,
                fields: Fields::new(fields.as_bytes()),
                age: 0,
                path: b"/",
                is_shared: false,
            };
            assert!(nothing.applied(&personal).is_some(), "{fields:?}");
            assert!(MINUTE.applied(&personal).is_none(), "{fields:?}");
        }
        let said = "Cache-Control: no-store, no-cache\r\n";
        check(nothing, "/", said, None);
    }

    #[test]
    fn a_restriction_of_the_application_stays() {
        for fields in [
            "Cache-Control: private\r\n",
            "Cache-Control: max-age=1, No-Store\r\n",
            "Cache-Control: no-cache=\"set-cookie\"\r\n",
            "Cache-Control: must-revalidate\r\n",
            "Set-Cookie: a=1\r\n",
            "Pragma: no-cache\r\n",
        ] {
            check(MINUTE, "/", fields, None);
            let immutable = BrowserCache {
                immutable: Immutable::Hashed,
                ..MINUTE
            };
            check(immutable, "/app.3f9a1c7e.js", fields, None);
        }
    }

    #[test]
    fn names_with_a_hash_are_immutable() {
        let rules = BrowserCache {
            ttl: BrowserTtl::Origin,
            immutable: Immutable::Hashed,
        };
        for path in [
            "/a/app.3f9a1c7e.js",
            "/index-BkX3a9_d.css/main-DiwrgTda1.js",
            "/x-0123456789abcdef.css",
        ] {
            check(rules, path, "", Some("max-age=31536005, immutable"));
        }
        for path in [
            "/",
            "/app.js",
            "/2024-12-24.html",
            "/3f9a1c7e",
            "/deadbeef.js",
            "/20241224.js",
            "/jquery-3.7.1.min.js",
            "/Document1.pdf/x",
        ] {
            check(rules, path, "", None);
        }
        let all = BrowserCache {
            immutable: Immutable::All,
            ..rules
        };
        check(all, "/emoji/a.png", "", Some("max-age=31536005, immutable"));
    }
}

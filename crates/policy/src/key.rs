//! The cache key: scheme, host, raw path and raw query, and what the operator adds.
//!
//! Nothing is decoded and nothing cut off: two urls that any origin could tell apart have two keys
//! (web cache deception). Every component stands behind its length, so that none can pass for
//! another.

use smallvec::SmallVec;

use crate::encoding::{length, push_component, push_field, push_with_len, take_component};
use crate::fields::Fields;
use crate::request::cookies;
use crate::rules::{KeyRules, Query};
use crate::trust::only_from_trusted_peers;

/// A key. Those of ordinary urls need no allocation.
pub type KeyBuf = SmallVec<[u8; INLINE]>;

const INLINE: usize = 256;

/// Scheme, host, path and query as they stand in a key.
pub type UrlParts<'a> = (Scheme, &'a [u8], &'a [u8], Option<&'a [u8]>);

/// How the client reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// As it stands in a url.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> &'static [u8] {
        match self {
            Self::Http => b"80",
            Self::Https => b"443",
        }
    }

    const fn as_byte(self) -> u8 {
        match self {
            Self::Http => b'h',
            Self::Https => b's',
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'h' => Some(Self::Http),
            b's' => Some(Self::Https),
            _ => None,
        }
    }
}

/// The key of a request. `host` may be in any case and carry the default port.
pub fn build(
    scheme: Scheme,
    host: &[u8],
    path_and_query: &[u8],
    fields: Fields<'_>,
    rules: &KeyRules,
) -> KeyBuf {
    let (path, query) = split_query(path_and_query);
    let host = without_default_port(scheme, host);
    let path = if path.is_empty() { b"/" } else { path };
    let mut key = KeyBuf::from_buf_and_len([0; INLINE], INLINE);
    let plain = (rules.query == Query::All).then(|| plain(&mut key, scheme, host, path, query));
    key.truncate(plain.flatten().unwrap_or(0));
    if key.is_empty() {
        push_url(&mut key, scheme, host, path, query, &rules.query);
    }
    for name in &rules.headers {
        push_with_len(&mut key, |out| {
            out.extend(name.bytes().map(|b| b.to_ascii_lowercase()));
        });
        push_field(&mut key, fields, name);
    }
    for name in &rules.cookies {
        push_component(&mut key, name.as_bytes());
        push_cookie(&mut key, fields, name);
    }
    key
}

/// Writes the key of a url with all of its query, if it fits: nearly every key, in one go. Says how
/// long it is. A third of the instructions of a hit were once spent on appending its parts.
fn plain(
    buffer: &mut [u8],
    scheme: Scheme,
    host: &[u8],
    path: &[u8],
    query: Option<&[u8]>,
) -> Option<usize> {
    let mut rest = &mut buffer[..];
    let mut put = |bytes: &[u8]| -> Option<()> {
        let (here, after) = std::mem::take(&mut rest).split_at_mut_checked(bytes.len())?;
        here.copy_from_slice(bytes);
        rest = after;
        Some(())
    };
    put(&[scheme.as_byte()])?;
    put(&length(host))?;
    put(host)?;
    put(&length(path))?;
    put(path)?;
    match query {
        None => put(&[0])?,
        Some(query) => {
            put(&[1])?;
            put(&length(query))?;
            put(query)?;
        }
    }
    let left = rest.len();
    let host_at = 1 + length(host).len();
    buffer[host_at..host_at + host.len()].make_ascii_lowercase();
    Some(buffer.len() - left)
}

/// The same for any url and any rules.
fn push_url(
    key: &mut KeyBuf,
    scheme: Scheme,
    host: &[u8],
    path: &[u8],
    query: Option<&[u8]>,
    rules: &Query,
) {
    key.push(scheme.as_byte());
    push_with_len(key, |out| {
        let start = out.len();
        out.extend_from_slice(host);
        out[start..].make_ascii_lowercase();
    });
    push_component(key, path);
    push_query(key, query, rules);
}

/// Adds to the key what a trusted proxy says of the client's request: an origin that builds its
/// links from it answers differently for each. Addresses are left out; every client has his own.
pub fn push_vouched(out: &mut KeyBuf, fields: Fields<'_>) {
    const ADDRESSES: [&[u8]; 2] = [b"x-forwarded-for", b"x-real-ip"];
    for (name, value) in fields {
        if !only_from_trusted_peers(name) || ADDRESSES.iter().any(|a| name.eq_ignore_ascii_case(a))
        {
            continue;
        }
        push_with_len(out, |out| {
            out.extend(name.iter().map(u8::to_ascii_lowercase));
        });
        if name.eq_ignore_ascii_case(b"forwarded") {
            push_with_len(out, |out| {
                let parameters = value.split(|b| matches!(b, b',' | b';'));
                for parameter in parameters.map(<[u8]>::trim_ascii) {
                    if !is_node(parameter) {
                        out.extend_from_slice(parameter);
                        out.push(b';');
                    }
                }
            });
        } else {
            push_component(out, value);
        }
    }
}

/// Whether a parameter of `Forwarded` names one of the machines on the way.
fn is_node(parameter: &[u8]) -> bool {
    [&b"for="[..], b"by="].iter().any(|name| {
        parameter
            .get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    })
}

/// Reads scheme, host, path and query back from a key.
pub fn url_of(key: &[u8]) -> Option<UrlParts<'_>> {
    let (&scheme, mut rest) = key.split_first()?;
    let scheme = Scheme::from_byte(scheme)?;
    let host = take_component(&mut rest)?;
    let path = take_component(&mut rest)?;
    let (&has_query, mut rest) = rest.split_first()?;
    let query = match has_query {
        0 => None,
        _ => Some(take_component(&mut rest)?),
    };
    Some((scheme, host, path, query))
}

/// `example.com:80` names the same host as `example.com`, and so does `example.com:` (RFC 3986
/// §6.2.3).
pub(crate) fn without_default_port(scheme: Scheme, host: &[u8]) -> &[u8] {
    let before = host.strip_suffix(scheme.default_port()).unwrap_or(host);
    before.strip_suffix(b":").unwrap_or(host)
}

/// Divides a target at its first `?`.
pub(crate) fn split_query(path_and_query: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', path_and_query) {
        Some(mark) => (&path_and_query[..mark], Some(&path_and_query[mark + 1..])),
        None => (path_and_query, None),
    }
}

fn push_query(out: &mut KeyBuf, query: Option<&[u8]>, rules: &Query) {
    let Some(query) = query else {
        out.push(0);
        return;
    };
    let counts = |parameter: &&[u8]| {
        let name = parameter.split(|&b| b == b'=').next().unwrap_or(parameter);
        match rules {
            Query::All => true,
            Query::Except(patterns) => !patterns.matches(name),
            Query::Only(patterns) => patterns.matches(name),
        }
    };
    let parameters = || query.split(|&b| b == b'&').filter(counts);
    if *rules == Query::All {
        out.push(1);
        push_component(out, query);
    } else if parameters().next().is_none() {
        out.push(0);
    } else {
        out.push(1);
        push_with_len(out, |out| {
            for (i, parameter) in parameters().enumerate() {
                if i > 0 {
                    out.push(b'&');
                }
                out.extend_from_slice(parameter);
            }
        });
    }
}

/// Every value the cookie has, since nobody knows which one the origin takes.
fn push_cookie(out: &mut KeyBuf, fields: Fields<'_>, name: &str) {
    let pairs = fields.all("cookie").flat_map(cookies);
    for (_, value) in pairs.filter(|(found, _)| *found == name.as_bytes()) {
        out.push(1);
        push_component(out, value);
    }
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::Patterns;
    use crate::testing::fields;

    fn key_of(rules: &KeyRules, target: &str, request: &str) -> KeyBuf {
        let fields = fields(request);
        build(
            Scheme::Http,
            b"a",
            target.as_bytes(),
            fields.fields(),
            rules,
        )
    }

    #[test]
    fn a_key_written_in_one_go_is_the_same_key() {
        for length in [0, 1, 100, 200, 235, 236, 237, 238, 239, 240, 241, 242, 300] {
            let path = "p".repeat(length);
            for query in [None, Some(&b""[..]), Some(b"a=1&b=2")] {
                let (host, path) = (b"Shop.Example", path.as_bytes());
                let (mut long, mut short) = (KeyBuf::new(), [0; INLINE]);
                push_url(&mut long, Scheme::Https, host, path, query, &Query::All);
                let used = plain(&mut short, Scheme::Https, host, path, query);
                assert_eq!(used.is_some(), long.len() <= INLINE, "{length}");
                assert!(
                    used.is_none_or(|used| short[..used] == long[..]),
                    "{length}"
                );
            }
        }
    }

    fn check_url(host: &str, target: &str, expected: UrlParts<'_>) {
        let rules = KeyRules::default();
        let key = build(
            expected.0,
            host.as_bytes(),
            target.as_bytes(),
            Fields::default(),
            &rules,
        );
        assert_eq!(url_of(&key), Some(expected), "{host} {target}");
    }

    #[test]
    fn the_url_can_be_read_back() {
        use Scheme::{Http, Https};
        check_url(
            "Example.COM",
            "/A?b=c",
            (Http, b"example.com", b"/A", Some(b"b=c")),
        );
        check_url("a:80", "/", (Http, b"a", b"/", None));
        check_url("a:", "/", (Http, b"a", b"/", None));
        check_url("a:443", "/", (Https, b"a", b"/", None));
        check_url("a:443", "/", (Http, b"a:443", b"/", None));
        check_url("a:80", "/?", (Https, b"a:80", b"/", Some(b"")));
        check_url("[::1]", "", (Http, b"[::1]", b"/", None));
        check_url("[::1]:80", "?q", (Http, b"[::1]", b"/", Some(b"q")));
        check_url("a", "/b?c?d", (Http, b"a", b"/b", Some(b"c?d")));
    }

    #[test]
    fn what_is_no_key_has_no_url() {
        let key = key_of(&KeyRules::default(), "/b?c", "");
        for len in 0..key.len() {
            assert_eq!(url_of(&key[..len]), None, "{len}");
        }
        assert_eq!(url_of(b"x\xff\xff\xff\xff"), None);
        assert_eq!(url_of(b"h\xff\xff\xff\xffabc"), None);
    }

    #[test]
    fn components_cannot_pass_for_each_other() {
        let rules = KeyRules {
            headers: vec!["X-A".to_owned(), "x-b".to_owned()],
            cookies: vec!["c".to_owned()],
            ..KeyRules::default()
        };
        let requests = [
            "",
            "X-A:",
            "x-a: 1",
            "x-b: 1",
            "x-a: 1\nx-b: 1",
            "x-a: 11",
            "Cookie: c=1",
            "Cookie: c=",
            "Cookie: c=1; c=2",
            "Cookie: c=1c2",
        ];
        for (i, one) in requests.iter().enumerate() {
            for (j, other) in requests.iter().enumerate() {
                let same = key_of(&rules, "/", one) == key_of(&rules, "/", other);
                assert_eq!(same, i == j, "{one:?} {other:?}");
            }
        }
        assert_eq!(
            key_of(&rules, "/", "Cookie: d=1; c=2"),
            key_of(&rules, "/", "cookie: e=3\nCookie:c=2")
        );
        assert_ne!(
            key_of(&rules, "/", ""),
            key_of(&KeyRules::default(), "/", "")
        );
    }

    #[test]
    fn query_parameters_count_as_the_operator_says() {
        let keyed = |query: &Query, target: &str| {
            let rules = KeyRules {
                query: query.clone(),
                ..KeyRules::default()
            };
            let key = key_of(&rules, target, "");
            let (_, _, _, query) = url_of(&key).expect("a key");
            query.map(|query| String::from_utf8_lossy(query).into_owned())
        };
        let except = Query::Except(Patterns::from_iter(["utm_*", "gclid"]));
        let only = Query::Only(Patterns::from_iter(["id", "page"]));
        for (rules, target, expected) in [
            (&Query::All, "/?b&a=1&utm_x=2", Some("b&a=1&utm_x=2")),
            (&Query::All, "/?", Some("")),
            (&except, "/?b&utm_x=1&a=1&gclid=2&b", Some("b&a=1&b")),
            (&except, "/?utm_x=1", None),
            (&except, "/?UTM_x=1", Some("UTM_x=1")),
            (&except, "/", None),
            (&only, "/?x=1&page=2&id=3&id2=4", Some("page=2&id=3")),
            (&only, "/?x=1", None),
        ] {
            assert_eq!(
                keyed(rules, target).as_deref(),
                expected,
                "{rules:?} {target}"
            );
        }
    }

    #[test]
    fn an_ordinary_key_needs_no_allocation() {
        let key = key_of(
            &KeyRules::default(),
            "/some/ordinary/path?with=a&query=string",
            "",
        );
        assert!(!key.spilled());
    }
}

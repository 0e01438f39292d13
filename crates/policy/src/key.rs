//! The cache key: scheme, host, raw path and raw query, and what the operator adds.
//!
//! Nothing is decoded and nothing cut off: two urls that any origin could tell apart have two keys (web cache deception). Every
//! component stands behind its length, so that none can pass for another.

use smallvec::SmallVec;

use crate::encoding::{push_component, push_field, push_with_len, take_component};
use crate::fields::Fields;
use crate::request::cookies;
use crate::rules::{KeyRules, Query};

/// A key. Those of ordinary urls need no allocation.
pub type KeyBuf = SmallVec<[u8; 256]>;

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

/// Writes the key of a request in the place of what is in `out`. `host` may be in any case and carry the default port.
pub fn build(
    out: &mut KeyBuf,
    scheme: Scheme,
    host: &[u8],
    path_and_query: &[u8],
    fields: Fields<'_>,
    rules: &KeyRules,
) {
    let (path, query) = split_query(path_and_query);
    out.clear();
    out.push(scheme.as_byte());
    push_with_len(out, |out| {
        let host = without_default_port(scheme, host);
        out.extend(host.iter().map(u8::to_ascii_lowercase));
    });
    push_component(out, if path.is_empty() { b"/" } else { path });
    push_query(out, query, &rules.query);
    for name in &rules.headers {
        push_component(out, name.to_ascii_lowercase().as_bytes());
        push_field(out, fields, name);
    }
    for name in &rules.cookies {
        push_component(out, name.as_bytes());
        push_cookie(out, fields, name);
    }
}

/// Reads scheme, host, path and query back from a key.
pub fn url_of(key: &[u8]) -> Option<(Scheme, &[u8], &[u8], Option<&[u8]>)> {
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

/// `example.com:80` names the same host as `example.com`, and so does `example.com:` (RFC 3986 §6.2.3).
pub(crate) fn without_default_port(scheme: Scheme, host: &[u8]) -> &[u8] {
    match memchr::memrchr(b':', host) {
        Some(colon)
            if host[colon + 1..].is_empty() || &host[colon + 1..] == scheme.default_port() =>
        {
            &host[..colon]
        }
        _ => host,
    }
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

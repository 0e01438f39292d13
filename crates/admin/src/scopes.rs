//! Parsers of the names in purges: URLs, prefixes, hosts, tags.

use bytes::Bytes;
use microcache_engine::cache::Scope;
use microcache_policy::Scheme;
use microcache_policy::key::normal_host;

use crate::problem::Problem;

/// Returns the scopes of a URL, in the form of the cache keys of its routes.
pub(crate) fn url(
    name: &str,
    scopes_of_url: impl Fn(Scheme, &[u8], &[u8]) -> Vec<Scope>,
) -> Result<Vec<Scope>, Problem> {
    let at = read(name).map_err(of_field("url"))?;
    Ok(scopes_of_url(at.scheme, &at.host, &at.target))
}

/// Scheme, host and target of a URL.
pub(crate) struct TargetUrl {
    pub(crate) is_secure: bool,
    pub(crate) host: String,
    /// Path and query.
    pub(crate) target: String,
}

/// Parses the URL of a request.
pub(crate) fn address(url: &str) -> Result<TargetUrl, Problem> {
    let at = read(url).map_err(of_field("url"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(TargetUrl {
        is_secure: at.scheme == Scheme::Https,
        host: text(at.host),
        target: text(at.target),
    })
}

/// Returns the scope of all URLs with this prefix.
pub(crate) fn prefix(name: &str) -> Result<Scope, Problem> {
    let at = read(name).map_err(of_field("prefix"))?;
    Ok(Scope::prefixed(at.host.into(), at.target.into()))
}

/// Maximum length of a pattern.
const LONGEST_PATTERN: usize = 1024;

/// Returns the scope of all URLs that match a glob; `*` matches any run of characters.
pub(crate) fn glob(name: &str) -> Result<Scope, Problem> {
    let at = read(name).map_err(of_field("glob"))?;
    let problem = |what: String, remedy| Problem::of_field("glob", what, remedy);
    if at.host.contains(&b'*') {
        let what = format!("`{}` has a `*` in the host", shown(name));
        return Err(problem(
            what,
            "name the host; for several hosts, send several globs",
        ));
    }
    if at.target.len() > LONGEST_PATTERN {
        let what = format!("the pattern has {} bytes", at.target.len());
        let remedy = "use at most 1024 bytes, or a `prefix`";
        return Err(problem(what, remedy));
    }
    Ok(Scope::Glob {
        host: at.host.into(),
        pattern: at.target.into(),
    })
}

/// Returns the scope of all URLs of a host.
pub(crate) fn host(name: &str) -> Result<Scope, Problem> {
    let host = host_of(Scheme::Http, name).map_err(of_field("host"))?;
    Ok(Scope::Host(host.into()))
}

/// Returns the scope of all responses with a tag.
pub(crate) fn tag(name: &str) -> Scope {
    Scope::Tag(Bytes::copy_from_slice(name.as_bytes()))
}

/// Parses the id of a variant.
pub(crate) fn variant(name: &str) -> Result<u64, Problem> {
    const DIGITS: usize = 16;
    let is_one = name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(name, 16).ok().filter(|_| is_one);
    number.ok_or_else(|| {
        Problem::of_field(
            "variant",
            format!("`{}` is not a variant", shown(name)),
            "use a `variant` from GET /v1/entries, such as 9c1b6b39aeb2e4d0",
        )
    })
}

fn of_field(field: &'static str) -> impl Fn((String, &'static str)) -> Problem {
    move |(what, remedy)| Problem::of_field(field, what, remedy)
}

/// Parses a URL into scheme, host and target.
#[derive(Debug, PartialEq, Eq)]
struct Location {
    scheme: Scheme,
    /// Host in the form of cache keys.
    host: Vec<u8>,
    /// Path and query.
    target: Vec<u8>,
}

/// Parses `https://HOST/PATH?QUERY`. The error is the mistake and a hint.
fn read(url: &str) -> Result<Location, (String, &'static str)> {
    const WHOLE: &str = "use a complete URL, such as https://www.example.org/news?page=2";
    let (scheme, rest) = if let Some(rest) = strip_prefix_ignoring_case(url, "http://") {
        (Scheme::Http, rest)
    } else if let Some(rest) = strip_prefix_ignoring_case(url, "https://") {
        (Scheme::Https, rest)
    } else {
        return Err((
            format!("`{}` is not an http or https URL", shown(url)),
            WHOLE,
        ));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    let host = host_of(scheme, host)?;
    if target.contains('#') {
        let what = format!(
            "`{}` has a fragment, which is never sent to a server",
            shown(url)
        );
        return Err((what, "remove the # and everything after it"));
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = format!(
            "`{}` contains characters that are invalid in a URL",
            shown(url)
        );
        return Err((what, "percent-encode them"));
    }
    let target = match target.as_bytes() {
        [b'/', ..] => target.as_bytes().to_vec(),
        query => [b"/", query].concat(),
    };
    Ok(Location {
        scheme,
        host,
        target,
    })
}

/// Parses a host with an optional port.
fn host_of(scheme: Scheme, host: &str) -> Result<Vec<u8>, (String, &'static str)> {
    let is_host = |byte: u8| byte.is_ascii_graphic() && !b"/?#@\\\"<>^`{|}".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_host) {
        let what = format!("`{}` is not a host", shown(host));
        return Err((
            what,
            "use a host as in URLs, such as www.example.org or www.example.org:8080",
        ));
    }
    Ok(normal_host(scheme, host.as_bytes()))
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Shortens a value for an error message.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 100;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_keys_have_them() {
        let check = |url, scheme, host: &str, target: &str| {
            let expected = Location {
                scheme,
                host: host.into(),
                target: target.into(),
            };
            assert_eq!(read(url), Ok(expected), "{url}");
        };
        check("http://A.example", Scheme::Http, "a.example", "/");
        check("HTTPS://a.example:443/x", Scheme::Https, "a.example", "/x");
        check(
            "http://a.example:443/x?",
            Scheme::Http,
            "a.example:443",
            "/x?",
        );
        check("http://a:80?q=/", Scheme::Http, "a", "/?q=/");
        check("http://[::1]:8080/%20", Scheme::Http, "[::1]:8080", "/%20");
        for wrong in [
            "",
            "/x",
            "a.example/x",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://u@a/",
            "http://a b/",
            "http://a/b c",
            "http://a/é",
            "http://é/",
            "http://a/#x",
            "http://a/\n",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

//! Parser of purge requests, as plugins of applications write them.

use std::fmt;

use bytes::Bytes;
use http::Method;
use microcache_engine::Request;
use microcache_engine::cache::{Scope, Strength};
use microcache_policy::Fields;
use microcache_policy::key::normal_host;
use microcache_policy::tags::MAX_TAG_LENGTH;

use super::pattern::{self, UrlMatch};

/// Most names in one request. Magento sends up to 7680 bytes in one, some 360 names.
const MAX_NAMES: usize = 512;

/// Syntax of a field with tags.
#[derive(Clone, Copy)]
enum TagSyntax {
    /// List with these separator bytes.
    List(&'static [u8]),
    /// List, or the regular expression that plugins build from one.
    Pattern,
}

/// Request fields with tags: name, syntax, and strength of the purge.
const TAGS: [(&str, TagSyntax, Strength); 9] = [
    ("Cache-Tag", TagSyntax::List(b","), Strength::Hard),
    ("Surrogate-Key", TagSyntax::List(b" \t"), Strength::Hard),
    ("xkey", TagSyntax::List(b", \t"), Strength::Hard),
    ("xkey-purge", TagSyntax::List(b", \t"), Strength::Hard),
    ("xkey-softpurge", TagSyntax::List(b", \t"), Strength::Soft),
    ("Cache-Tags", TagSyntax::Pattern, Strength::Hard),
    ("X-Cache-Tags", TagSyntax::Pattern, Strength::Hard),
    ("Purge-Cache-Tags", TagSyntax::Pattern, Strength::Hard),
    ("X-Magento-Tags-Pattern", TagSyntax::Pattern, Strength::Hard),
];

/// Fields that request a soft purge.
const SOFT: [&str; 3] = ["Soft-Purge", "X-Soft-Purge", "Fastly-Soft-Purge"];

/// Fields with a URL pattern, for any method.
const URLS: [&str; 2] = ["X-Ban-Regex", "X-Purge-Regex"];
/// Fields of BAN with a URL pattern.
const BAN_URLS: [&str; 3] = ["X-Url", "X-Ban-Url", "Ban-Url"];
/// Fields of BAN with a host pattern.
const BAN_HOSTS: [&str; 3] = ["X-Host", "X-Ban-Host", "Ban-Host"];
/// Fields of BAN with a media type pattern.
const BAN_TYPES: [&str; 2] = ["X-Content-Type", "Ban-Content-Type"];

/// Error of a purge request: its reason, and a correct form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PurgeRequestError {
    field: &'static str,
    what: String,
    remedy: &'static str,
}

impl fmt::Display for PurgeRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            what,
            remedy,
        } = self;
        write!(f, "Nothing was purged. {field}: {what}; {remedy}.")
    }
}

/// Returns `true` for purge methods. Methods are case-sensitive (RFC 9110 §9.1), and no field overrides them.
pub(super) fn is_purge(method: &Method) -> bool {
    matches!(
        method.as_str(),
        "PURGE" | "PURGEALL" | "PURGEKEYS" | "BAN" | "URIBAN"
    )
}

/// Returns the scopes of one URL on the host of the request: all that a GET purges. Applications fetch URLs that
/// strangers name (pingbacks, embedded pages), so that a GET has neither patterns nor tags.
pub(super) fn one_url(
    request: &Request<'_>,
    target: &[u8],
    scopes_of_url: impl Fn(&[u8], &[u8]) -> Vec<Scope>,
) -> Vec<(Scope, Strength)> {
    let host = normal_host(request.scheme, request.host);
    let scopes = scopes_of_url(&host, target).into_iter();
    scopes.map(|scope| (scope, Strength::Hard)).collect()
}

/// Parses the scopes of a purge: tags, or without any, URLs. Fails as a whole if any part is not understood;
/// nothing is guessed.
pub(super) fn read(
    request: &Request<'_>,
    scopes_of_url: impl Fn(&[u8], &[u8]) -> Vec<Scope>,
) -> Result<Vec<(Scope, Strength)>, PurgeRequestError> {
    let is_soft = is_soft(request.fields)?;
    let mut named = match tags(request.fields)? {
        Some(named) => named,
        None => locations(request, scopes_of_url)?
            .into_iter()
            .map(|scope| (scope, Strength::Hard))
            .collect(),
    };
    if named.len() > MAX_NAMES {
        return Err(PurgeRequestError {
            field: "names",
            what: format!(
                "{} in one request exceed the limit of {MAX_NAMES}",
                named.len()
            ),
            remedy: "send several requests, or purge a common prefix or tag",
        });
    }
    if is_soft {
        for (_, strength) in &mut named {
            *strength = Strength::Soft;
        }
    }
    Ok(named)
}

fn is_soft(fields: Fields<'_>) -> Result<bool, PurgeRequestError> {
    let mut is_soft = false;
    for name in SOFT {
        for value in fields.all(name) {
            is_soft |= match value.trim_ascii().to_ascii_lowercase().as_slice() {
                b"1" | b"true" => true,
                b"0" | b"false" => false,
                _ => return Err(refused(name, value, "use 1 or 0")),
            };
        }
    }
    Ok(is_soft)
}

/// Parses the tags. `None` without a field for tags; an empty field is an error, not a purge of something else.
fn tags(fields: Fields<'_>) -> Result<Option<Vec<(Scope, Strength)>>, PurgeRequestError> {
    let mut named = Vec::new();
    for (field, form, strength) in TAGS {
        for value in fields.all(field) {
            let before = named.len();
            for name in names(field, form, value)? {
                named.push((name, strength));
            }
            if named.len() == before {
                return Err(refused(field, value, "list at least one tag"));
            }
        }
    }
    Ok((!named.is_empty()).then_some(named))
}

fn names(
    field: &'static str,
    form: TagSyntax,
    value: &[u8],
) -> Result<Vec<Scope>, PurgeRequestError> {
    const LIST: &str = "use a list of tags without patterns, or purge through the admin interface";
    let names = match form {
        TagSyntax::Pattern if pattern::is_everything(value) => return Ok(vec![Scope::Everything]),
        TagSyntax::Pattern => pattern::names(value).ok_or_else(|| refused(field, value, LIST))?,
        TagSyntax::List(separators) => value
            .split(|byte| separators.contains(byte))
            .map(|name| name.trim_ascii().to_vec())
            .filter(|name| !name.is_empty())
            .collect(),
    };
    if let Some(long) = names.iter().find(|name| name.len() > MAX_TAG_LENGTH) {
        return Err(refused(
            field,
            long,
            "it exceeds the maximum length of a tag",
        ));
    }
    Ok(names
        .into_iter()
        .map(|name| Scope::Tag(name.into()))
        .collect())
}

/// Parses the URLs.
fn locations(
    request: &Request<'_>,
    scopes_of_url: impl Fn(&[u8], &[u8]) -> Vec<Scope>,
) -> Result<Vec<Scope>, PurgeRequestError> {
    let hosts = hosts(request)?;
    let urls = urls(request)?;
    let Some(hosts) = hosts else {
        return match urls {
            UrlMatch::All => Ok(vec![Scope::Everything]),
            _ => Err(refused(
                BAN_HOSTS[0],
                b".*",
                "set a host, or several as in ^(a.example|b.example)$, to purge a path",
            )),
        };
    };
    Ok(hosts
        .into_iter()
        .flat_map(|host| match &urls {
            UrlMatch::All => vec![Scope::Host(host.into())],
            UrlMatch::One(target) => scopes_of_url(&host, target),
            UrlMatch::Beginning(path) => {
                vec![Scope::prefixed(host.into(), Bytes::copy_from_slice(path))]
            }
        })
        .collect())
}

/// Parses the hosts, in the form of keys; `None` is all of them. Default: the request's own host.
fn hosts(request: &Request<'_>) -> Result<Option<Vec<Vec<u8>>>, PurgeRequestError> {
    let Some((field, value)) = first(request, &BAN_HOSTS) else {
        return Ok(Some(vec![normal_host(request.scheme, request.host)]));
    };
    if pattern::is_everything(value) {
        return Ok(None);
    }
    match pattern::names(value) {
        Some(names) if !names.is_empty() => Ok(Some(
            names
                .iter()
                .map(|name| normal_host(request.scheme, name))
                .collect(),
        )),
        _ => Err(refused(field, value, "use a host, or .* for all")),
    }
}

fn urls(request: &Request<'_>) -> Result<UrlMatch, PurgeRequestError> {
    const PATH: &str = "use a path as in ^/news$, a prefix as in ^/news/, or .* for all";
    if let Some((field, value)) = first(request, &BAN_TYPES)
        && !pattern::is_everything(value)
    {
        return Err(refused(
            field,
            value,
            "purging by media type is not supported: remove the field",
        ));
    }
    let field = URLS
        .iter()
        .find_map(|name| Some((*name, request.fields.get(name)?)))
        .or_else(|| first(request, &BAN_URLS));
    if let Some((field, value)) = field {
        return pattern::urls(value, b"").ok_or_else(|| refused(field, value, PATH));
    }
    // `nginx-helper` of WordPress names everything so.
    let is_all = request.method.as_str() == "PURGE" && request.target == b"/purgeall";
    if is_all || request.method.as_str() == "PURGEALL" {
        return Ok(UrlMatch::All);
    }
    let method = request.fields.get("x-purge-method").unwrap_or_default();
    if !method.trim_ascii().eq_ignore_ascii_case(b"regex") {
        return Ok(pattern::target(request.target));
    }
    // In a target a plan mark begins the query.
    pattern::urls(request.target, b"?")
        .ok_or_else(|| refused("X-Purge-Method", request.target, PATH))
}

/// Returns the first of these fields, on a BAN.
fn first<'a>(request: &Request<'a>, names: &[&'static str]) -> Option<(&'static str, &'a [u8])> {
    if request.method.as_str() != "BAN" {
        return None;
    }
    names
        .iter()
        .find_map(|name| Some((*name, request.fields.get(name)?)))
}

fn refused(field: &'static str, value: &[u8], remedy: &'static str) -> PurgeRequestError {
    const LONGEST: usize = 100;
    let shown = value[..value.len().min(LONGEST)].escape_ascii();
    let rest = if value.len() > LONGEST { "…" } else { "" };
    PurgeRequestError {
        field,
        what: format!("`{shown}{rest}` is not supported"),
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::Scheme;

    use super::*;

    fn scope(text: &'static str) -> Scope {
        let name = |text: &'static str| Bytes::from_static(text.as_bytes());
        let at = |text: &'static str| text.split_at(text.find('/').expect("a path"));
        match text.split_once(' ') {
            None => Scope::Everything,
            Some(("tag", tag)) => Scope::Tag(name(tag)),
            Some(("host", host)) => Scope::Host(name(host)),
            Some(("url", url)) => Scope::Url {
                host: name(at(url).0),
                target: name(at(url).1),
            },
            Some((_, prefix)) => Scope::prefixed(name(at(prefix).0), name(at(prefix).1)),
        }
    }

    fn ask(line: &str, fields: &str) -> Result<Vec<(Scope, Strength)>, PurgeRequestError> {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let method: Method = method.parse().expect("a method");
        let request = Request {
            method: &method,
            fields: Fields::new(fields.as_bytes()),
            ..Request::of_url(Scheme::Http, b"Own.example:80", target.as_bytes())
        };
        read(&request, |host, target| {
            vec![Scope::Url {
                host: Bytes::copy_from_slice(host),
                target: Bytes::copy_from_slice(target),
            }]
        })
    }

    fn check(line: &str, fields: &str, expected: &[&'static str]) {
        let expected = expected
            .iter()
            .map(|text| match text.strip_prefix("soft ") {
                Some(text) => (scope(text), Strength::Soft),
                None => (scope(text), Strength::Hard),
            });
        assert_eq!(
            ask(line, fields),
            Ok(expected.collect()),
            "{line} {fields:?}"
        );
    }

    #[test]
    fn urls_are_the_targets_of_purges() {
        check("PURGE /", "", &["url own.example/"]);
        check("URIBAN /a?b", "", &["url own.example/a?b"]);
        check("BAN /a", "", &["url own.example/a"]);
        check("PURGE /a/*", "", &["prefix own.example/a/"]);
        check("PURGEALL /a", "", &["host own.example"]);
        check("PURGE /purgeall", "", &["host own.example"]);
        check(
            "PURGE /a",
            "X-Purge-Method: default\r\n",
            &["url own.example/a"],
        );
        let regex = "X-Purge-Method: regex\r\n";
        check("PURGE /.*", regex, &["host own.example"]);
        check("PURGE /a/.*", regex, &["prefix own.example/a/"]);
        check("PURGE /a?b=.*", regex, &["prefix own.example/a?b="]);
        check("PURGE /", "X-Purge-Regex: .*\r\n", &["host own.example"]);
        check("PURGE /", "Soft-Purge: 1\r\n", &["soft url own.example/"]);
        check("PURGE /", "Fastly-Soft-Purge: 0\r\n", &["url own.example/"]);
    }

    #[test]
    fn tags_are_named_in_the_fields_of_many_plugins() {
        check("PURGE /", "Surrogate-Key: a b,c\r\n", &["tag a", "tag b,c"]);
        check("PURGE /", "Cache-Tag: a b, c\r\n", &["tag a b", "tag c"]);
        check(
            "PURGEKEYS /",
            "xkey-softpurge: a b\r\n",
            &["soft tag a", "soft tag b"],
        );
        check(
            "PURGE /",
            "xkey: a\r\nxkey-purge: b\r\n",
            &["tag a", "tag b"],
        );
        check(
            "BAN /",
            "Cache-Tags: node:1|node_list\r\n",
            &["tag node:1", "tag node_list"],
        );
        check(
            "BAN /",
            "Cache-Tags: a\r\nX-Host: .*\r\nX-Url: ^/x$\r\n",
            &["tag a"],
        );
        check("PURGE /", "X-Magento-Tags-Pattern: .*\r\n", &["everything"]);
        check(
            "PURGE /",
            "X-Magento-Tags-Pattern: ((^|,)a(,|$))|((^|,)b(,|$))\r\n",
            &["tag a", "tag b"],
        );
    }

    #[test]
    fn bans_name_hosts_and_beginnings() {
        check(
            "BAN /",
            "X-Host: .*\r\nX-Url: .*\r\nX-Content-Type: .*\r\n",
            &["everything"],
        );
        check("BAN /", "X-Url: .*\r\n", &["host own.example"]);
        check(
            "BAN /",
            "X-Host: ^(A.example|b\\.example)$\r\nX-Url: ^/x/\r\n",
            &["prefix a.example/x/", "prefix b.example/x/"],
        );
        check(
            "BAN /",
            "X-Ban-Url: ^/x$\r\nX-Ban-Host: a.example\r\n",
            &["url a.example/x"],
        );
        // PURGE ignores these fields: its target is the URL.
        check(
            "PURGE /y",
            "X-Url: ^/x$\r\nX-Host: a.example\r\n",
            &["url own.example/y"],
        );
    }

    #[test]
    fn malformed_requests_purge_nothing() {
        let many = format!("xkey: {}\r\n", "x ".repeat(MAX_NAMES + 1));
        let long = format!("xkey: {}\r\n", "x".repeat(MAX_TAG_LENGTH + 1));
        for (line, fields) in [
            ("PURGE /", "X-Cache-Tags: \r\n"),
            ("PURGE /", "xkey: ,\r\n"),
            ("PURGE /", "xkey: a\r\nCache-Tags: (\r\n"),
            ("PURGE /", "X-Magento-Tags-Pattern: cat_p_[0-9]+\r\n"),
            ("PURGE /", "Soft-Purge: perhaps\r\n"),
            ("PURGE /(a|b)", "X-Purge-Method: regex\r\n"),
            ("PURGE /", "X-Ban-Regex: feed$\r\n"),
            ("BAN /", "X-Url: \\.css$\r\n"),
            ("BAN /", "X-Host: .*\r\nX-Url: ^/x\r\n"),
            ("BAN /", "X-Host: \r\nX-Url: .*\r\n"),
            ("BAN /", "X-Host: [a-z]+\r\n"),
            ("BAN /", "X-Url: .*\r\nX-Content-Type: image/png\r\n"),
            ("PURGE /", &many),
            ("PURGE /", &long),
        ] {
            let refusal = ask(line, fields).expect_err(fields);
            assert!(refusal.to_string().len() < 400, "{refusal}");
        }
    }

    #[test]
    fn methods_are_compared_as_they_are() {
        for method in ["PURGE", "PURGEALL", "PURGEKEYS", "BAN", "URIBAN"] {
            assert!(is_purge(&method.parse().unwrap()), "{method}");
        }
        for method in ["purge", "Purge", "PURGES", "BA", "GET", "DELETE", "POST"] {
            assert!(!is_purge(&method.parse().unwrap()), "{method}");
        }
    }
}

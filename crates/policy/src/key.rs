//! The cache key: scheme, host, raw path and raw query, and the additions of the configuration.
//!
//! Nothing is decoded or cut off: two urls that an origin could distinguish have two keys (web cache deception). Every
//! component is prefixed by its length, so the encoding is unambiguous. The first letter encodes the scheme and the
//! class of `Accept`; the `Accept` value of an unusual class follows the url. A key whose first letter is a capital
//! ends with the number of the rules that it was built by ([`Seal`]).

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use crate::accept::AcceptClass;
use crate::cookies;
use crate::encoding::{
    LEN_BYTES, length, push_component, push_field, push_with_len, take_component,
};
use crate::field_name::FieldName;
use crate::fields::Fields;
use crate::identity::identifies;
use crate::no_vary_search::NoVarySearch;
use crate::patterns::{Patterns, takes};
use crate::query::{decoded, in_any_reading, parameters, sort_by_name};
use crate::rules::{KeyRules, Query, RequestRules, Rules, Seal};
use crate::trust::{FieldForwarding, believed, field_forwarding};

/// A key. Those of ordinary urls need no allocation.
pub type KeyBuf = SmallVec<[u8; INLINE]>;

const INLINE: usize = 256;

/// Memory for the key of an ordinary request.
pub type KeySpace = [u8; INLINE];

/// Memory for a key that is not written yet.
pub const KEY_SPACE: KeySpace = [0; INLINE];

/// Scheme, host, path and query of a key.
pub type UrlParts<'a> = (Scheme, &'a [u8], &'a [u8], Option<&'a [u8]>);

/// The scheme of the target URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// The scheme in a url.
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

    /// The first byte of a key.
    const fn as_byte(self, accept: AcceptClass, seal: Seal) -> u8 {
        let first = match (self, seal) {
            (Self::Http, Seal::None | Seal::Usual) => b'h',
            (Self::Https, Seal::None | Seal::Usual) => b's',
            (Self::Http, Seal::Own(_)) => b'H',
            (Self::Https, Seal::Own(_)) => b'S',
        };
        first + accept as u8
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'h'..=b'k' | b'H'..=b'K' => Some(Self::Http),
            b's'..=b'v' | b'S'..=b'V' => Some(Self::Https),
            _ => None,
        }
    }
}

/// The kind of representation that a request asks for, as far as the key tells it.
pub fn accept_class(fields: Fields<'_>, rules: &Rules) -> AcceptClass {
    if rules.obeys_client {
        AcceptClass::Page
    } else {
        AcceptClass::of(fields)
    }
}

/// Builds the key of a request. `host` may be in any case and have the default port. `is_trusted`: the peer is a trusted
/// proxy, and its forwarding fields count; an origin that builds its links from them has a response for each value.
pub fn build(
    scheme: Scheme,
    host: &[u8],
    path_and_query: &[u8],
    fields: Fields<'_>,
    is_trusted: bool,
    rules: &Rules,
) -> KeyBuf {
    build_for(
        accept_class(fields, rules),
        scheme,
        host,
        path_and_query,
        fields,
        is_trusted,
        rules,
    )
}

/// Writes the key of an ordinary request: [`build_for`], without a move of the key. `None` if more than its url is part
/// of the key, or it does not fit.
pub fn plain<'s>(
    space: &'s mut KeySpace,
    accept: AcceptClass,
    scheme: Scheme,
    host: &[u8],
    path_and_query: &[u8],
    is_trusted: bool,
    rules: &KeyRules,
) -> Option<&'s [u8]> {
    let is_whole = accept != AcceptClass::Other && rules.seal == Seal::Usual && !is_trusted;
    if !is_whole || !takes_whole(rules) {
        return None;
    }
    let first = scheme.as_byte(accept, rules.seal);
    let host = without_default_port(scheme, host);
    write_url(space, first, host, path_and_query)
}

/// Builds the key of a request whose class of `Accept` is known.
pub fn build_for(
    accept: AcceptClass,
    scheme: Scheme,
    host: &[u8],
    path_and_query: &[u8],
    fields: Fields<'_>,
    is_trusted: bool,
    rules: &Rules,
) -> KeyBuf {
    let host = without_default_port(scheme, host);
    let seal = rules.key.seal;
    let first = scheme.as_byte(accept, seal);
    let mut space = KEY_SPACE;
    let is_whole = takes_whole(&rules.key);
    let whole = is_whole.then(|| write_url(&mut space, first, host, path_and_query));
    let mut key = KeyBuf::new();
    match whole.flatten() {
        Some(whole) => key.extend_from_slice(whole),
        None => push_url(&mut key, first, host, path_and_query, &rules.key),
    }
    if accept == AcceptClass::Other {
        push_component(&mut key, &accept.canonical_value(fields));
    }
    if seal == Seal::Usual && !is_trusted {
        return key;
    }
    for name in &rules.key.headers {
        push_header(&mut key, fields, name, is_trusted, &rules.request);
    }
    if !rules.key.cookies.is_empty() {
        push_cookies(&mut key, fields, rules);
    }
    if is_trusted || !rules.request.kept_fields.is_empty() {
        push_believed(&mut key, fields, is_trusted, &rules.request);
    }
    if rules.are_private() {
        push_identity(&mut key, fields, &rules.key);
    }
    if let Seal::Own(number) = seal {
        key.extend_from_slice(&number.to_le_bytes());
    }
    key
}

/// Appends the identity of the user: a private cache may serve a program with several identities. Only a hash of the
/// credentials is written.
fn push_identity(key: &mut KeyBuf, fields: Fields<'_>, rules: &KeyRules) {
    let mut all = KeyBuf::new();
    for line in fields.lines().filter(|line| identifies(line.field_name())) {
        push_lower(&mut all, line.name());
        push_component(&mut all, line.value());
    }
    key.push(u8::from(!all.is_empty()));
    if !all.is_empty() {
        key.extend_from_slice(&xxh3_128(&all).to_le_bytes());
    }
    push_component(key, &rules.partition);
}

/// Normalizes a host for keys and for the origin: lower case, without the default port. A trailing dot stays: some
/// origins treat it as another name.
pub fn normal_host(scheme: Scheme, host: &[u8]) -> Vec<u8> {
    without_default_port(scheme, host).to_ascii_lowercase()
}

/// The target with the parameters of the key alone, for the origin: the stored response serves all requests with this
/// key, so none of them may send more. `None` if that is the whole target.
pub fn kept_target(path_and_query: &[u8], rules: &KeyRules) -> Option<Vec<u8>> {
    if takes_whole(rules) || rules.whole_query {
        return None;
    }
    let (path, query) = split_query(path_and_query);
    let mut target = path.to_vec();
    for (i, parameter) in in_order(query?, rules).iter().enumerate() {
        target.push(if i == 0 { b'?' } else { b'&' });
        target.extend_from_slice(parameter);
    }
    Some(target)
}

/// Returns true if the key has the whole query as it is.
fn takes_whole(rules: &KeyRules) -> bool {
    rules.query == Query::All && !rules.sort
}

/// Returns true if a target has no query, or the origin sees only parameters of it that the key lists by name.
pub(crate) fn has_plain_query(path_and_query: &[u8], rules: &KeyRules) -> bool {
    let kept = kept_target(path_and_query, rules);
    let (_, query) = split_query(kept.as_deref().unwrap_or(path_and_query));
    query.is_none_or(<[u8]>::is_empty)
        || matches!(rules.query, Query::Only(_)) && !rules.whole_query
}

/// Writes the key of a url with its whole query in one pass, if it fits: the case of nearly every key. Appending the
/// components one by one took a third of the instructions of a hit.
fn write_url<'s>(
    space: &'s mut KeySpace,
    first: u8,
    host: &[u8],
    path_and_query: &[u8],
) -> Option<&'s [u8]> {
    let (path, query) = path_and_query_of(path_and_query);
    space[0] = first;
    write_host(&mut space[1..], host)?;
    let mut rest = &mut space[1 + LEN_BYTES + host.len()..];
    let mut put = |bytes: &[u8]| -> Option<()> {
        let (here, after) = std::mem::take(&mut rest).split_at_mut_checked(bytes.len())?;
        here.copy_from_slice(bytes);
        rest = after;
        Some(())
    };
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
    Some(&space[..INLINE - left])
}

/// Writes a host in lower case as a component. Nothing must be behind it yet: whole blocks are changed, which takes a
/// fraction of the instructions for single bytes.
fn write_host(space: &mut [u8], host: &[u8]) -> Option<()> {
    const BLOCK: usize = 16;
    let (len, space) = space.split_first_chunk_mut()?;
    *len = length(host);
    let (blocks, _) = space.as_chunks_mut::<BLOCK>();
    let blocks = blocks.get_mut(..host.len().div_ceil(BLOCK))?;
    blocks.as_flattened_mut()[..host.len()].copy_from_slice(host);
    for block in blocks {
        block.make_ascii_lowercase();
    }
    Some(())
}

/// Appends any url under any rules.
fn push_url(key: &mut KeyBuf, first: u8, host: &[u8], path_and_query: &[u8], rules: &KeyRules) {
    let (path, query) = path_and_query_of(path_and_query);
    key.push(first);
    push_with_len(key, |out| {
        let start = out.len();
        out.extend_from_slice(host);
        out[start..].make_ascii_lowercase();
    });
    push_component(key, path);
    push_query(key, query, rules);
}

/// Splits a target. An empty path is `/`.
fn path_and_query_of(path_and_query: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (path, query) = split_query(path_and_query);
    (if path.is_empty() { b"/" } else { path }, query)
}

/// Appends the forwarding fields that count because of trust.
fn push_believed(out: &mut KeyBuf, fields: Fields<'_>, is_trusted: bool, rules: &RequestRules) {
    for (name, value) in believed(fields, is_trusted, rules) {
        push_lower(out, name);
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

fn push_lower(out: &mut KeyBuf, name: &[u8]) {
    push_with_len(out, |out| {
        out.extend(name.iter().map(u8::to_ascii_lowercase));
    });
}

/// Returns true if a parameter of `Forwarded` names a node on the path.
fn is_node(parameter: &[u8]) -> bool {
    [&b"for="[..], b"by="].iter().any(|name| {
        parameter
            .get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    })
}

/// Parses scheme, host, path and query from a key.
pub fn url_of(key: &[u8]) -> Option<UrlParts<'_>> {
    split_url(key).map(|(url, _)| url)
}

/// Path and query of a key: the target that a shared fetch asks for.
pub fn target_of(key: &[u8]) -> Option<Vec<u8>> {
    url_of(key).map(|(_, _, path, query)| join_query(path, query))
}

/// Parses the url from a key, and returns what follows it.
fn split_url(key: &[u8]) -> Option<(UrlParts<'_>, &[u8])> {
    let (&scheme, mut rest) = key.split_first()?;
    let scheme = Scheme::from_byte(scheme)?;
    let host = take_component(&mut rest)?;
    let path = take_component(&mut rest)?;
    let (&has_query, mut rest) = rest.split_first()?;
    let query = match has_query {
        0 => None,
        _ => Some(take_component(&mut rest)?),
    };
    Some(((scheme, host, path, query), rest))
}

/// Returns true if a response stored under the key of a simpler url states that the url of `key` is equivalent.
pub fn is_equivalent(key: &[u8], simpler: &[u8], response: Fields<'_>) -> bool {
    let stated = NoVarySearch::of(response);
    let simplified = stated.and_then(|stated| simplified(key, &stated));
    simplified.is_some_and(|simplified| simplified[..] == *simpler)
}

/// The key of the equivalent url that has only the parameters that count by a `No-Vary-Search`; `None` if those are all.
pub fn simplified(key: &[u8], stated: &NoVarySearch) -> Option<KeyBuf> {
    let ((_, _, _, query), rest) = split_url(key)?;
    let query = query?;
    let counting = stated.counting(query).join(&b'&');
    if counting == query && !query.is_empty() {
        return None;
    }
    let before = key.len() - rest.len() - query.len() - length(query).len() - 1;
    let mut simplified = KeyBuf::from_slice(&key[..before]);
    simplified.push(u8::from(!counting.is_empty()));
    if !counting.is_empty() {
        push_component(&mut simplified, &counting);
    }
    simplified.extend_from_slice(rest);
    Some(simplified)
}

/// The URL of a key, as far as that contains it.
pub fn url_text(key: &[u8]) -> Option<String> {
    let (scheme, host, path, query) = url_of(key)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let target = join_query(path, query);
    Some(format!(
        "{}://{}{}",
        scheme.as_str(),
        text(host),
        text(&target)
    ))
}

/// Removes the default port: `example.com:80` and `example.com:` are equivalent to `example.com` (RFC 3986 §6.2.3).
pub fn without_default_port(scheme: Scheme, host: &[u8]) -> &[u8] {
    let before = host.strip_suffix(scheme.default_port()).unwrap_or(host);
    before.strip_suffix(b":").unwrap_or(host)
}

/// Removes the port of a host. A colon inside the brackets of an IPv6 address is not one before a port.
pub fn without_port(host: &[u8]) -> &[u8] {
    match memchr::memrchr(b':', host) {
        Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
        _ => host,
    }
}

/// Splits a target at its first `?`.
pub fn split_query(path_and_query: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', path_and_query) {
        Some(mark) => (&path_and_query[..mark], Some(&path_and_query[mark + 1..])),
        None => (path_and_query, None),
    }
}

/// Joins path and query to a target.
pub fn join_query(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    match query {
        Some(query) => [path, b"?", query].concat(),
        None => path.to_vec(),
    }
}

fn push_query(out: &mut KeyBuf, query: Option<&[u8]>, rules: &KeyRules) {
    let Some(query) = query else {
        out.push(0);
        return;
    };
    if takes_whole(rules) {
        out.push(1);
        push_component(out, query);
        return;
    }
    let parameters = in_order(query, rules);
    out.push(u8::from(!parameters.is_empty()));
    if !parameters.is_empty() {
        push_with_len(out, |out| {
            for (i, parameter) in parameters.iter().enumerate() {
                if i > 0 {
                    out.push(b'&');
                }
                out.extend_from_slice(parameter);
            }
        });
    }
}

/// The parameters of the key in the order that they have there. Those of one name keep theirs: the last or the first
/// one may count.
fn in_order<'a>(query: &'a [u8], rules: &'a KeyRules) -> SmallVec<[&'a [u8]; 16]> {
    let mut parameters: SmallVec<[_; 16]> = kept(query, &rules.query).collect();
    if rules.sort {
        sort_by_name(&mut parameters);
    }
    parameters
}

/// The parameters of the key, undecoded. Their names are compared decoded; a parameter counts if any reading of it
/// matches.
fn kept<'a>(query: &'a [u8], rules: &'a Query) -> impl Iterator<Item = &'a [u8]> {
    let counts = move |name: &[u8]| match rules {
        Query::All => true,
        Query::Except(patterns) => !matches_decoded(patterns, name),
        Query::Only(patterns) => matches_decoded(patterns, name),
    };
    parameters(query)
        .filter(move |parameter| in_any_reading(parameter).any(|(name, _)| counts(name)))
}

/// The parameters of a target that are not part of its key, undecoded.
pub fn left_out<'a>(
    path_and_query: &'a [u8],
    rules: &'a KeyRules,
) -> impl Iterator<Item = &'a [u8]> {
    let (_, query) = split_query(path_and_query);
    let all = query.into_iter().flat_map(parameters);
    all.filter(|parameter| !parameter.is_empty() && kept(parameter, &rules.query).next().is_none())
}

fn matches_decoded(patterns: &Patterns, name: &[u8]) -> bool {
    if memchr::memchr2(b'%', b'+', name).is_none() {
        return patterns.matches(name);
    }
    let name: SmallVec<[u8; 64]> = decoded(name).collect();
    patterns.matches(&name)
}

/// Appends a field as the origin sees it; of a pattern all matching fields, sorted by name.
fn push_header(
    out: &mut KeyBuf,
    fields: Fields<'_>,
    wanted: &str,
    is_trusted: bool,
    rules: &RequestRules,
) {
    let travels = |name: &[u8]| {
        let name = FieldName::of(name);
        field_forwarding(name, is_trusted, rules) == FieldForwarding::Forwarded
    };
    push_lower(out, wanted.as_bytes());
    let Some(beginning) = wanted.strip_suffix('*') else {
        if travels(wanted.as_bytes()) {
            push_field(out, fields, wanted);
        } else {
            out.push(0);
        }
        return;
    };
    let is_wanted = |name: &[u8]| {
        name.get(..beginning.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
    };
    let mut found: SmallVec<[_; 8]> = fields
        .iter()
        .filter(|(name, _)| is_wanted(name) && travels(name))
        .collect();
    let lower = |name: &'_ [u8]| {
        name.iter()
            .map(u8::to_ascii_lowercase)
            .collect::<SmallVec<[u8; 32]>>()
    };
    found.sort_by_cached_key(|(name, _)| lower(name));
    for (name, value) in found {
        out.push(1);
        push_lower(out, name);
        push_component(out, value);
    }
    out.push(0);
}

/// Appends every value of a cookie, since applications differ in the one that they use; of a pattern all matching
/// cookies, sorted by name. If parsers could disagree on the cookies, the whole field is appended.
fn push_cookies(out: &mut KeyBuf, fields: Fields<'_>, rules: &Rules) {
    if cookies::are_unclear(fields, rules) {
        for pair in cookies::sent(fields, &rules.request) {
            out.push(2);
            push_component(out, pair);
        }
        return;
    }
    for wanted in &rules.key.cookies {
        push_component(out, wanted.as_bytes());
        let pairs = cookies::sent(fields, &rules.request).map(cookies::split);
        let mut found: SmallVec<[_; 8]> = pairs
            .filter(|(name, _)| takes(wanted.as_bytes(), name))
            .collect();
        found.sort_by_key(|(name, _)| *name);
        for (name, value) in found {
            out.push(1);
            if wanted.ends_with('*') {
                push_component(out, name);
            }
            push_component(out, value);
        }
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::Patterns;
    use crate::testing::fields;

    fn key_of(rules: &KeyRules, target: &str, request: &str) -> KeyBuf {
        let fields = fields(request);
        let rules = Rules {
            key: rules.clone(),
            ..Rules::default()
        };
        build(
            Scheme::Http,
            b"a",
            target.as_bytes(),
            fields.fields(),
            false,
            &rules,
        )
    }

    #[test]
    fn entries_of_other_sharing_rules_are_not_found() {
        let rules = |ignored: &[&str]| Rules {
            cookies_ignored: ignored.iter().collect(),
            ..Rules::default()
        };
        let long = format!("/{}", "x".repeat(INLINE));
        for target in ["/", "/?q", &long] {
            let key = |rules: Rules, is_trusted| {
                let fields = fields("X-Forwarded-Proto: https");
                let (target, fields) = (target.as_bytes(), fields.fields());
                build(Scheme::Http, b"a", target, fields, is_trusted, &rules)
            };
            for is_trusted in [false, true] {
                let plain = key(Rules::default(), is_trusted);
                assert_eq!(key(Rules::default().sealed(), is_trusted), plain);
                assert_eq!(
                    key(rules(&["a"]), is_trusted),
                    plain,
                    "nobody tells them apart"
                );
                let own = key(rules(&["a"]).sealed(), is_trusted);
                assert_ne!(own, plain);
                assert_ne!(own, key(rules(&["b"]).sealed(), is_trusted));
                assert_eq!(own, key(rules(&["a"]).sealed(), is_trusted));
                assert_eq!(url_of(&own), url_of(&plain));
            }
        }
    }

    #[test]
    fn omitted_and_kept_parameters_are_the_whole_query() {
        let except = Query::Except(Patterns::from_iter(["utm_*"]));
        let only = Query::Only(Patterns::from_iter(["page"]));
        for (query, target, expected) in [
            (Query::All, "/?utm_a=1", vec![]),
            (except.clone(), "/", vec![]),
            (except.clone(), "/?", vec![]),
            (
                except.clone(),
                "/?utm_a=1&b=2&&utm%5Fc",
                vec!["utm_a=1", "utm%5Fc"],
            ),
            (except, "/?utm_a=1;b=2", vec![]),
            (only, "/?page=1&b&c=2", vec!["b", "c=2"]),
        ] {
            let rules = KeyRules {
                query,
                ..KeyRules::default()
            };
            let omitted: Vec<_> = left_out(target.as_bytes(), &rules)
                .map(|one| String::from_utf8_lossy(one).into_owned())
                .collect();
            assert_eq!(omitted, expected, "{target}");
            let kept = kept_target(target.as_bytes(), &rules);
            let kept = kept.unwrap_or_else(|| target.as_bytes().to_vec());
            assert!(left_out(&kept, &rules).next().is_none(), "{target}");
        }
    }

    #[test]
    fn a_key_written_in_one_go_is_the_same_key() {
        let hosts = [
            "",
            "H",
            "Shop.Example",
            "SHOP-EXAMPLE.ORG",
            "Shop.Example.Org:8080",
        ];
        let long_host = "Long.".repeat(40);
        for host in hosts.into_iter().chain([&*long_host]) {
            for length in [0, 1, 100, 200, 235, 236, 237, 238, 239, 240, 241, 242, 300] {
                for query in ["", "?", "?A=1&b=2"] {
                    let target = format!("{}{query}", "P".repeat(length));
                    let (host, target) = (host.as_bytes(), target.as_bytes());
                    let (mut long, mut short) = (KeyBuf::new(), KEY_SPACE);
                    push_url(&mut long, b's', host, target, &KeyRules::default());
                    let written = write_url(&mut short, b's', host, target);
                    assert_eq!(written.is_some(), long.len() <= INLINE, "{length}");
                    assert!(written.is_none_or(|it| *it == long[..]), "{length}");
                }
            }
        }
    }

    #[test]
    fn a_plain_key_is_that_of_any_request() {
        let page = fields("Accept: text/html");
        let other = fields("Accept: x/y");
        let sorted = KeyRules {
            sort: true,
            ..KeyRules::default()
        };
        for (fields, is_trusted, key, is_plain) in [
            (page.fields(), false, KeyRules::default(), true),
            (other.fields(), false, KeyRules::default(), false),
            (page.fields(), true, KeyRules::default(), false),
            (page.fields(), false, sorted, false),
        ] {
            let rules = Rules {
                key,
                ..Rules::default()
            }
            .sealed();
            let accept = AcceptClass::of(fields);
            let (scheme, host, target) = (Scheme::Https, b"Shop.Example:443", b"?A=1");
            let built = build_for(accept, scheme, host, target, fields, is_trusted, &rules);
            let mut space = KEY_SPACE;
            let plain = plain(
                &mut space, accept, scheme, host, target, is_trusted, &rules.key,
            );
            assert_eq!(plain, is_plain.then_some(&built[..]));
        }
    }

    fn check_url(host: &str, target: &str, expected: UrlParts<'_>) {
        let key = build(
            expected.0,
            host.as_bytes(),
            target.as_bytes(),
            Fields::default(),
            false,
            &Rules::default(),
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
    fn an_invalid_key_has_no_url() {
        let key = key_of(&KeyRules::default(), "/b?c", "");
        for len in 0..key.len() {
            assert_eq!(url_of(&key[..len]), None, "{len}");
        }
        assert_eq!(url_of(b"x\xff\xff\xff\xff"), None);
        assert_eq!(url_of(b"h\xff\xff\xff\xffabc"), None);
    }

    /// Checks that requests for one target have different keys.
    fn check_all_differ(rules: &KeyRules, requests: &[&str]) {
        for (i, one) in requests.iter().enumerate() {
            for (j, other) in requests.iter().enumerate() {
                let same = key_of(rules, "/", one) == key_of(rules, "/", other);
                assert_eq!(same, i == j, "{one:?} {other:?}");
            }
        }
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
        check_all_differ(&rules, &requests);
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
    fn query_parameters_count_as_configured() {
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
    fn names_of_parameters_are_compared_decoded_and_a_semicolon_hides_none() {
        let except = Query::Except(Patterns::from_iter(["utm_*", "gc lid"]));
        let only = Query::Only(Patterns::from_iter(["page", "id"]));
        for (query, target, expected) in [
            (&only, "/a?pag%65=EVIL", "/a?pag%65=EVIL"),
            (&only, "/a?%70%61%67%65=EVIL&x=1", "/a?%70%61%67%65=EVIL"),
            (&only, "/a?x=1;page=EVIL", "/a?x=1;page=EVIL"),
            (&only, "/a?x=1;y=2&id=3", "/a?id=3"),
            (&only, "/a?%2570age=1", "/a"),
            (&only, "/a?page", "/a?page"),
            (&only, "/a?id=2&id=1&x&id", "/a?id=2&id=1&id"),
            (&except, "/a?utm_x=1;id=EVIL", "/a?utm_x=1;id=EVIL"),
            (&except, "/a?utm_x=1;utm_y=2;&b", "/a?b"),
            (&except, "/a?ut%6D_x=1&b=2", "/a?b=2"),
            (&except, "/a?gc+lid=1&gc%20lid=2", "/a"),
            (&except, "/a?b=1&&c&", "/a?b=1&&c&"),
            (&except, "/a?b=1?c", "/a?b=1?c"),
            (&except, "/a?", "/a?"),
            (&except, "/a?utm_x", "/a"),
            (&Query::All, "/a?b&&utm_x=1", "/a?b&&utm_x=1"),
        ] {
            let rules = KeyRules {
                query: query.clone(),
                ..KeyRules::default()
            };
            let sent = kept_target(target.as_bytes(), &rules);
            let sent = sent.unwrap_or_else(|| target.into());
            assert_eq!(String::from_utf8_lossy(&sent), expected, "{target}");
            // The origin sees what is in the key, and no more.
            let sent = String::from_utf8(sent).expect("text");
            let key = key_of(&rules, target, "");
            assert_eq!(key, key_of(&rules, &sent, ""), "{target}");
            assert_eq!(key, key_of(&KeyRules::default(), &sent, ""), "{target}");
            let whole = KeyRules {
                whole_query: true,
                ..rules
            };
            assert_eq!(kept_target(target.as_bytes(), &whole), None);
        }
        let rules = KeyRules {
            query: only,
            ..KeyRules::default()
        };
        assert_eq!(kept_target(b"/a", &rules), None);
        assert_eq!(kept_target(b"*", &rules), None);
    }

    #[test]
    fn sorted_parameters_of_one_name_keep_their_order() {
        let except = Query::Except(Patterns::from_iter(["x"]));
        for (query, target, expected) in [
            (&Query::All, "/a?b=2&a=1", "/a?a=1&b=2"),
            (&Query::All, "/a?b=2&a=1&b=1&%62=0", "/a?a=1&b=2&b=1&%62=0"),
            (&Query::All, "/a?a[]=2&B&a[]=1", "/a?B&a[]=2&a[]=1"),
            (&Query::All, "/a?b&&a", "/a?&a&b"),
            (&Query::All, "/a?", "/a?"),
            (&except, "/a?b&x=1&a", "/a?a&b"),
            (&except, "/a?x=1", "/a"),
        ] {
            let rules = KeyRules {
                query: query.clone(),
                sort: true,
                ..KeyRules::default()
            };
            let sent = kept_target(target.as_bytes(), &rules).expect("a query");
            let sent = String::from_utf8(sent).expect("text");
            assert_eq!(sent, expected, "{target}");
            // The origin sees what is in the key.
            let key = key_of(&rules, target, "");
            assert_eq!(key, key_of(&KeyRules::default(), &sent, ""), "{target}");
            assert_eq!(key, key_of(&rules, &sent, ""), "{target}");
        }
    }

    #[test]
    fn a_simplified_key_is_that_of_the_simplified_url() {
        let stated = fields("No-Vary-Search: key-order, params=(\"utm\")");
        let stated = NoVarySearch::of(stated.fields()).expect("a valid field");
        let mut rules = KeyRules {
            cookies: vec!["c".to_owned()],
            ..KeyRules::default()
        };
        for seal in [Seal::Usual, Seal::Own(7)] {
            rules.seal = seal;
            for (target, expected) in [
                ("/p?utm=1", Some("/p")),
                ("/p?", Some("/p")),
                ("/p?utm=1&id=2", Some("/p?id=2")),
                ("/p?id=2&a", Some("/p?a&id=2")),
                ("/p?id=2", None),
                ("/p", None),
            ] {
                let key = |target| key_of(&rules, target, "Cookie: c=1\nAccept: text/x-a");
                let found = simplified(&key(target), &stated);
                assert_eq!(found, expected.map(key), "{target}");
            }
        }
        assert_eq!(simplified(b"h", &stated), None);
    }

    #[test]
    fn a_star_keys_everything_that_begins_so() {
        let rules = KeyRules {
            headers: vec!["X-C-*".to_owned()],
            cookies: vec!["c_*".to_owned()],
            ..KeyRules::default()
        };
        let requests = [
            "",
            "x-c-a: 1",
            "x-c-a: 1\nx-c-b: 1",
            "x-c-a: 1\nx-c-a: 1",
            "x-c-ab: 1",
            "x-c-b: 1",
            "Cookie: c_a=1",
            "Cookie: c_a=1; c_b=1",
            "Cookie: c_b=1",
            "Cookie: c_b=1; c_b=2",
            "Cookie: c_b=2; c_b=1",
            "Cookie: x=1, c_a=1",
            "Cookie: c_a=\"1\"",
        ];
        check_all_differ(&rules, &requests);
        assert_eq!(
            key_of(&rules, "/", "X-C-B: 1\nx-c-A: 2\nCookie: c_b=1; d=2; c_a=3"),
            key_of(&rules, "/", "x-c-a: 2\nx-c-b: 1\nCookie: c_a=3; c_b=1")
        );
    }

    #[test]
    fn fields_that_the_origin_does_not_see_are_not_keyed() {
        let mut rules = Rules {
            key: KeyRules {
                headers: vec![
                    "X-Forwarded-Host".to_owned(),
                    "X-*".to_owned(),
                    "b".to_owned(),
                ],
                cookies: vec!["c".to_owned(), "d*".to_owned()],
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        rules.request.removed_fields.push("B");
        rules.request.removed_cookies.push("c");
        rules.request.removed_cookies.push("d2");
        let key = |request: &str, is_trusted| {
            build(
                Scheme::Http,
                b"a",
                b"/",
                fields(request).fields(),
                is_trusted,
                &rules,
            )
        };
        let forged = "X-Forwarded-Host: e\nX-Forwarded-Port: 1\nx_a: 2\nB: 3\nCookie: c=1; d2=2";
        assert_eq!(key(forged, false), key("", false));
        assert_ne!(key("X-A: 2", false), key("", false));
        assert_ne!(key("Cookie: d1=2", false), key("", false));
        assert_ne!(key("X-Forwarded-Host: e", true), key("", true));
        rules.request.kept_fields.push("api_key");
        let key = |request: &str, is_trusted| {
            build(
                Scheme::Http,
                b"a",
                b"/",
                fields(request).fields(),
                is_trusted,
                &rules,
            )
        };
        assert_ne!(key("api_key: 1", false), key("", false));
        assert_ne!(key("Api_Key: 1", false), key("API_KEY: 2", false));
    }

    #[test]
    fn a_host_is_forwarded_as_it_is_keyed() {
        for (scheme, host, expected) in [
            (Scheme::Http, "SITE.example", "site.example"),
            (Scheme::Http, "site.example:80", "site.example"),
            (Scheme::Http, "site.example:", "site.example"),
            (Scheme::Http, "Site.Example.:8080", "site.example.:8080"),
            (Scheme::Http, "site.example.", "site.example."),
            (Scheme::Http, "site.example:443", "site.example:443"),
            (Scheme::Https, "site.example:443", "site.example"),
            (Scheme::Http, "[::A]:80", "[::a]"),
        ] {
            let normal = normal_host(scheme, host.as_bytes());
            assert_eq!(String::from_utf8_lossy(&normal), expected, "{host}");
            let key = build(
                scheme,
                host.as_bytes(),
                b"/",
                Fields::default(),
                false,
                &Rules::default(),
            );
            assert_eq!(url_of(&key).map(|url| url.1), Some(expected.as_bytes()));
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

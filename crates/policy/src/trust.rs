//! The forwarding of request fields: the one place that decides which of them reach the origin.

use crate::field_name::{FieldName, NameList};
use crate::fields::{Fields, split_list};
use crate::hop::is_hop_by_hop;
use crate::known_name::names;
use crate::patterns::FieldPatterns;
use crate::rules::RequestRules;

/// The treatment of a field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForwarding {
    /// Forwarded unchanged.
    Forwarded,
    /// Not forwarded.
    Removed,
    /// Replaced by a line of the proxy, with the peer's address or the host of the request. It includes the value of a
    /// trusted peer that [`is_believed`].
    Rewritten,
}

/// The treatment of a field called `name`. `is_trusted`: the peer is a trusted proxy. (Fields nominated by `Connection`
/// are removed as well; such a request passes.)
pub fn field_forwarding(
    name: FieldName<'_>,
    is_trusted: bool,
    rules: &RequestRules,
) -> FieldForwarding {
    // The origin needs a host, whatever the route removes.
    if name.is(names::HOST) {
        FieldForwarding::Rewritten
    } else if is_hop_by_hop(name)
        || rules.removed_fields.matches(name.text())
        || rules.is_granted(name.text())
    {
        FieldForwarding::Removed
    } else if is_rewritten(name) {
        FieldForwarding::Rewritten
    } else if only_from_trusted_peers(name)
        && !(is_trusted && is_believed(name, &rules.trusted_fields))
        && !rules.kept_fields.matches(name.text())
    {
        FieldForwarding::Removed
    } else {
        FieldForwarding::Forwarded
    }
}

/// Returns true if a field is always rewritten for the origin.
pub fn is_rewritten(name: FieldName<'_>) -> bool {
    REWRITTEN.has(name)
}

const REWRITTEN: NameList = NameList::new(&[
    "host",
    "content-length",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
]);

/// Returns true if a trusted peer's value of a field that only such peers may send counts: that of the three fields that
/// every proxy sets, and of those that the operator names. Proxies pass on all others as their clients wrote them.
pub fn is_believed(name: FieldName<'_>, trusted_fields: &FieldPatterns) -> bool {
    SET_BY_PROXIES.has(name) || trusted_fields.matches(name.text())
}

const SET_BY_PROXIES: NameList =
    NameList::new(&["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]);

/// The lines that influence the origin's response and are accepted only from trusted peers, or from any client where
/// the route keeps them. They are part of the key, except addresses, which differ for every client.
pub(crate) fn believed<'a>(
    fields: Fields<'a>,
    is_trusted: bool,
    rules: &'a RequestRules,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let counts = move |name: FieldName<'_>| {
        only_from_trusted_peers(name)
            && (is_trusted && is_believed(name, &rules.trusted_fields)
                || rules.kept_fields.matches(name.text()) && !is_rewritten(name))
            && !rules.removed_fields.matches(name.text())
            && !rules.is_granted(name.text())
            && !is_address(name)
    };
    let lines = fields.lines().filter(move |line| counts(line.field_name()));
    lines.map(|line| (line.name(), line.value()))
}

/// The names of the fields that are part of the key because of trust, for diagnostics.
pub fn keyed_by<'a>(
    fields: Fields<'a>,
    is_trusted: bool,
    rules: &'a RequestRules,
) -> impl Iterator<Item = &'a [u8]> {
    believed(fields, is_trusted, rules).map(|(name, _)| name)
}

/// Returns true if a client could use this field to make the origin see another url, method, host, peer or user than
/// the cache, and so poison the shared response. It is overwritten or removed unless the peer is trusted.
///
/// The same applies to every name with characters other than letters, digits and hyphens: many applications (CGI)
/// cannot distinguish `x_forwarded_host` from `X-Forwarded-Host`, or `accept_language` from `Accept-Language`. Other
/// proxies remove them too.
pub fn only_from_trusted_peers(name: FieldName<'_>) -> bool {
    let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'-';
    // Known names are plain.
    FROM_TRUSTED_PEERS.has(name) || !name.is_known() && !name.text().iter().all(is_plain)
}

const FROM_TRUSTED_PEERS: NameList = NameList::new(&[
    "cf-access-*",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-visitor",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "forwarded-for",
    "front-end-https",
    "proxy",
    "proxy-client-ip",
    "remote-user",
    "ssl-client-*",
    "true-client-ip",
    "wl-proxy-*",
    "wl-proxy-client-ip",
    "x-accel-*",
    "x-amzn-oidc-*",
    "x-auth-request-*",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-*",
    "x-forwarded",
    "x-forwarded-*",
    "x-goog-authenticated-user-*",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-invoke-*",
    "x-matched-path",
    "x-method-override",
    "x-middleware-*",
    "x-now-route-matches",
    "x-original-*",
    "x-originating-ip",
    "x-proxy-url",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-group",
    "x-remote-groups",
    "x-remote-ip",
    "x-remote-user",
    "x-rewrite-*",
    "x-scheme",
    "x-sendfile-type",
    "x-ssl-*",
    "x-url-scheme",
    "x-webauth-user",
]);

/// Returns true if a field contains the client's address. Any byte other than a letter or digit may replace a hyphen.
pub fn is_address(name: FieldName<'_>) -> bool {
    let same =
        |(&a, b): (&u8, u8)| a.to_ascii_lowercase() == b || b == b'-' && !a.is_ascii_alphanumeric();
    let is_spelt_like = |one: &&str| {
        let text = name.text();
        text.len() == one.len() && text.iter().zip(one.bytes()).all(same)
    };
    ADDRESSES.has(name) || !name.is_known() && ADDRESSES.names().iter().any(is_spelt_like)
}

const ADDRESSES: NameList = NameList::new(&[
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "client-ip",
    "fastly-client-ip",
    "forwarded-for",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded-for",
    "x-original-forwarded-for",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
]);

/// Returns true if `X-Forwarded-Proto` says that the visitor used TLS. Only valid from a trusted proxy.
pub fn says_https(request: Fields<'_>) -> bool {
    let mut members = request
        .values(names::X_FORWARDED_PROTO)
        .flat_map(split_list);
    members.any(is_https)
}

fn is_https(value: &[u8]) -> bool {
    value.trim_ascii().eq_ignore_ascii_case(b"https")
}

/// Returns true if a trusted proxy says that the visitor used TLS, in a field that [`is_believed`].
pub fn visitor_used_tls(request: Fields<'_>, trusted_fields: &FieldPatterns) -> bool {
    let proto = |pair: &[u8]| {
        let (name, value) = pair.split_at(memchr::memchr(b'=', pair).unwrap_or(pair.len()));
        let value = value.strip_prefix(b"=").unwrap_or_default();
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        name.trim_ascii().eq_ignore_ascii_case(b"proto")
            && is_https(value.strip_suffix(b"\"").unwrap_or(value))
    };
    let mut elements = request.values(names::FORWARDED).flat_map(split_list);
    says_https(request)
        || trusted_fields.matches(b"forwarded")
            && elements.any(|element| element.split(|&b| b == b';').any(proto))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn every_field_has_one_fate() {
        let mut rules = RequestRules::default();
        rules.removed_fields.push("X-Spy-*");
        rules.removed_fields.push("host");
        rules.kept_fields.push("api_key");
        rules.trusted_fields.push("x-forwarded-p*");
        for (name, stranger, trusted) in [
            (
                "Accept",
                FieldForwarding::Forwarded,
                FieldForwarding::Forwarded,
            ),
            (
                "Host",
                FieldForwarding::Rewritten,
                FieldForwarding::Rewritten,
            ),
            (
                "content-length",
                FieldForwarding::Rewritten,
                FieldForwarding::Rewritten,
            ),
            (
                "X-Forwarded-For",
                FieldForwarding::Rewritten,
                FieldForwarding::Rewritten,
            ),
            (
                "X-Forwarded-Port",
                FieldForwarding::Removed,
                FieldForwarding::Forwarded,
            ),
            ("Proxy", FieldForwarding::Removed, FieldForwarding::Removed),
            (
                "x_spy_1",
                FieldForwarding::Removed,
                FieldForwarding::Removed,
            ),
            (
                "x-SPY-1",
                FieldForwarding::Removed,
                FieldForwarding::Removed,
            ),
            (
                "API_Key",
                FieldForwarding::Forwarded,
                FieldForwarding::Forwarded,
            ),
            (
                "Connection",
                FieldForwarding::Removed,
                FieldForwarding::Removed,
            ),
            ("TE", FieldForwarding::Removed, FieldForwarding::Removed),
        ] {
            assert_eq!(
                field_forwarding(FieldName::of(name.as_bytes()), false, &rules),
                stranger,
                "{name}"
            );
            assert_eq!(
                field_forwarding(FieldName::of(name.as_bytes()), true, &rules),
                trusted,
                "{name}"
            );
        }
    }

    #[test]
    fn trusted_fields_belong_to_the_key_except_addresses() {
        let mut rules = RequestRules::default();
        rules.kept_fields.push("api_key");
        rules.kept_fields.push("x-forwarded-*");
        rules.trusted_fields.push("x_lang");
        rules.trusted_fields.push("x-*-ip");
        rules.removed_fields.push("x-forwarded-port");
        let request = fields(
            "Accept: a\nX-Forwarded-Proto: https\nX-Real-IP: 1\nx_real_ip: 2\nX-Client-IP: 3\n\
             X-Forwarded-Port: 4\napi_key: 5\nX_Lang: 6\nX-Original-URL: 7\nForwarded: proto=https",
        );
        let names = |is_trusted| -> Vec<_> {
            believed(request.fields(), is_trusted, &rules)
                .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
                .collect()
        };
        assert_eq!(names(true), ["X-Forwarded-Proto", "api_key", "X_Lang"]);
        assert_eq!(names(false), ["api_key"]);
    }

    #[test]
    fn every_address_is_only_from_trusted_peers() {
        for name in ["X-Forwarded-For", "True-Client-IP", "x.forwarded.for"] {
            assert!(is_address(FieldName::of(name.as_bytes())), "{name}");
            assert!(
                only_from_trusted_peers(FieldName::of(name.as_bytes())),
                "{name}"
            );
        }
    }
}

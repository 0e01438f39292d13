//! The request fields that a shared fetch sends: the one table that decides.
//!
//! The response of a shared fetch serves all clients, so none of them may influence it by a field that the others lack.
//! Fields that every client sends, with nothing specific to it, are sent. Fields by which applications choose between a
//! page and a fragment make the request pass. Unknown fields are withheld: they could mean anything. Fields of the key,
//! and those that the responses of a url are known to vary on, are always sent, since they select the stored response.
//!
//! Requests that pass carry all fields. A cache inside a client drops none of its caller's.

use crate::accept::AcceptClass;
use crate::cookies;
use crate::edge::{CAPABILITY_FIELD, EdgeMode};
use crate::field_name::{FieldName, NameList};
use crate::fields::{FieldLine, Fields, FieldsBuf};
use crate::identity::identifies;
use crate::known_name::{LineStart, names};
use crate::name_set::NameSet;
use crate::network::address;
use crate::origin_view::{OriginView, goes_with_fill};
use crate::rules::Rules;
use crate::syntax::is_token;
use crate::trust::{
    FieldForwarding, field_forwarding, is_address, is_rewritten, only_from_trusted_peers,
};
use crate::vary::{self, VaryNames};

/// The treatment of a request field by a shared fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedForwarding {
    /// The origin sees it.
    Sent,
    /// The origin does not see it, and its response does not depend on it.
    Dropped,
    /// The origin does not see it, and its response might depend on it.
    Withheld,
    /// It asks for something other than the page: such a request passes.
    Passes,
}

/// Maximum length of the values that are sent, in bytes; above it a request passes. No browser sends more, and an
/// origin that rejects them must not receive them in a shared fetch.
pub const MAX_SENT: usize = 1024;

/// The member of `CDN-Loop` (RFC 8586) by which a Microcache detects its own requests, without the id.
pub const CDN_LOOP_MEMBER: &str = "microcache; id=";

/// Maximum length of a trace id that is sent, in bytes.
const MAX_TRACE_ID: usize = 128;

/// Fields that every client sends, with nothing specific to it.
const COMMON: NameList = NameList::new(&[
    "accept",
    "accept-encoding",
    "accept-language",
    "host",
    "user-agent",
    "via",
]);

const ACCEPT: LineStart = LineStart::of("Accept: ");

/// Fields that are sent unchanged, whatever the rules say: of [`COMMON`], and those that the proxy writes itself.
const ALWAYS_SENT: NameSet = NameSet::of(&[
    names::ACCEPT_ENCODING,
    names::ACCEPT_LANGUAGE,
    names::FORWARDED,
    names::USER_AGENT,
    names::VIA,
    names::X_FORWARDED_HOST,
    names::X_FORWARDED_PROTO,
]);

/// Fields that no response depends on.
const INSIGNIFICANT: NameList = NameList::new(&[
    "alt-used",
    "baggage",
    "cookie",
    "cookie2",
    "device-memory",
    "dnt",
    "downlink",
    "dpr",
    "early-data",
    "ect",
    "max-forwards",
    "priority",
    "purpose",
    "referer",
    "rtt",
    "save-data",
    "sec-*",
    "upgrade-insecure-requests",
    "viewport-width",
    "width",
    "x-moz",
    "x-purpose",
]);

/// Fields by which these frameworks request a fragment of a page.
const PARTS: NameList = NameList::new(&[
    "datastar-request",
    "fx-request",
    "hx-*",
    "next-action",
    "next-router-*",
    "next-url",
    "rsc",
    "turbo-frame",
    "turbolinks-referrer",
    "unpoly-*",
    "x-alpine-*",
    "x-fragment",
    "x-inertia*",
    "x-livewire*",
    "x-pjax*",
    "x-requested-with",
    "x-turbo-*",
    "x-up-*",
]);

/// Fields that correlate log lines and spans of several programs.
const TRACE_IDS: NameList = NameList::new(&[
    "b3",
    "traceparent",
    "tracestate",
    "uber-trace-id",
    "x-amzn-trace-id",
    "x-b3-*",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-datadog-*",
    "x-request-id",
    "x-request-start",
    "x-trace-id",
]);

/// Fields in which a shared fetch sends the client's address: proxies overwrite them. In others a client's own value
/// may reach the origin.
const USUAL_ADDRESSES: NameList = NameList::new(&["x-forwarded-for", "x-real-ip"]);

/// The treatment of a field by a shared fetch under these rules for a url whose responses are known to vary on `known`.
pub fn shared_forwarding(
    name: FieldName<'_>,
    value: &[u8],
    rules: &Rules,
    known: &VaryNames,
) -> SharedForwarding {
    if !goes_with_fill(name, rules) {
        return SharedForwarding::Dropped;
    }
    if rules.request.is_granted(name.text()) {
        return SharedForwarding::Withheld;
    }
    // A private cache shares nothing between users.
    if rules.obeys_client {
        return SharedForwarding::Sent;
    }
    if !name.is(names::COOKIE) && (is_named(name, known) || is_chosen(name, rules)) {
        return SharedForwarding::Sent;
    }
    listed_forwarding(name, value)
}

/// The treatment of a field that is neither part of the key nor known to select.
fn listed_forwarding(name: FieldName<'_>, value: &[u8]) -> SharedForwarding {
    if TRACE_IDS.has(name) {
        return if is_trace_id(value) {
            SharedForwarding::Sent
        } else {
            SharedForwarding::Dropped
        };
    }
    if name.is(names::CDN_LOOP) {
        // Others of a client may make a CDN before the origin refuse the request.
        let is_ours = value.starts_with(CDN_LOOP_MEMBER.as_bytes()) && !value.contains(&b',');
        return if is_ours {
            SharedForwarding::Sent
        } else {
            SharedForwarding::Dropped
        };
    }
    if COMMON.has(name) {
        SharedForwarding::Sent
    } else if INSIGNIFICANT.has(name) || is_address(name) {
        SharedForwarding::Dropped
    } else if PARTS.has(name) {
        SharedForwarding::Passes
    } else {
        SharedForwarding::Withheld
    }
}

/// Returns true for a field that every client sends, or that no response depends on: a response that does not list it
/// in `Vary` may serve requests with other values. Identities are recognized by [`is_identity`](crate::is_identity).
pub fn is_common(name: &[u8], value: &[u8]) -> bool {
    let name = FieldName::of(name);
    !goes_with_fill(name, &Rules::default())
        || listed_forwarding(name, value) == SharedForwarding::Sent
}

/// Returns true if a field is always sent: the proxy writes it, the configuration names it, or it is part of the key.
fn is_chosen(name: FieldName<'_>, rules: &Rules) -> bool {
    is_rewritten(name)
        // Removed unless the peer is trusted; then part of the key, or an address.
        || only_from_trusted_peers(name) && (!is_address(name) || USUAL_ADDRESSES.has(name))
        || rules.key.has_header(name.text())
        || rules.request.forwarded_fields.matches(name.text())
        || rules.request.sets(name.text())
        || rules.edge != EdgeMode::Off && name.text().eq_ignore_ascii_case(CAPABILITY_FIELD)
}

/// Returns true if the responses of a url are known to vary on a field.
fn is_named(name: FieldName<'_>, known: &VaryNames) -> bool {
    let mut names = known.iter();
    names.any(|one| name.text().eq_ignore_ascii_case(one.as_bytes()))
}

/// Returns true for a field with a client's address that is neither in the key nor in a known `Vary`.
fn is_unkeyed_address(name: FieldName<'_>, rules: &Rules, known: &VaryNames) -> bool {
    is_address(name)
        && !rules.key.has_header(name.text())
        && !rules.request.forwarded_fields.matches(name.text())
        && !is_named(name, known)
}

/// Returns true for a list of addresses. A trusted proxy may forward any text of its client in such a field, and an
/// application may echo it: a shared fetch sends only the addresses of the list.
fn holds_addresses(value: &[u8]) -> bool {
    value.split(|&byte| byte == b',').all(names_client)
}

/// Returns true for an address, and for the word in its place (RFC 7239 §6.2).
fn names_client(member: &[u8]) -> bool {
    address(member).is_some() || member.trim_ascii().eq_ignore_ascii_case(b"unknown")
}

/// The names of the fields that a shared fetch would withhold, one per line; empty if there are none.
pub fn withheld_names(request: &OriginView<'_>, known: &VaryNames) -> Vec<u8> {
    names_of(request, known, |forwarding| {
        matches!(
            forwarding,
            SharedForwarding::Withheld | SharedForwarding::Passes
        )
    })
    .join(&b'\n')
}

/// Names of request fields that a shared fetch leaves out, in lower case and sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmittedFields {
    /// The response might depend on them.
    pub withheld: Vec<Vec<u8>>,
    /// The response does not depend on them.
    pub dropped: Vec<Vec<u8>>,
}

impl OmittedFields {
    /// The fields left out for a url that is known to vary on `known`.
    pub fn of(request: &OriginView<'_>, known: &VaryNames) -> Self {
        Self {
            withheld: names_of(request, known, |forwarding| {
                matches!(
                    forwarding,
                    SharedForwarding::Withheld | SharedForwarding::Passes
                )
            }),
            dropped: names_of(request, known, |forwarding| {
                forwarding == SharedForwarding::Dropped
            }),
        }
    }
}

/// The names of end-to-end fields with this treatment, in lower case and sorted.
fn names_of(
    request: &OriginView<'_>,
    known: &VaryNames,
    is_meant: impl Fn(SharedForwarding) -> bool,
) -> Vec<Vec<u8>> {
    let rules = request.rules;
    let is_meant = |line: &FieldLine<'_>| {
        let name = line.field_name();
        field_forwarding(name, request.is_trusted, &rules.request) == FieldForwarding::Forwarded
            && is_meant(shared_forwarding(name, line.value(), rules, known))
    };
    let meant = request.fields.lines().filter(is_meant);
    let mut names: Vec<_> = meant.map(|line| line.name().to_ascii_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns true if this field requests a fragment, unless the url is known to vary on it.
pub(crate) fn asks_for_another_form(name: FieldName<'_>, rules: &Rules) -> bool {
    // Excludes most names.
    PARTS.has(name)
        && shared_forwarding(name, b"", rules, &VaryNames::NONE) == SharedForwarding::Passes
        && !rules.request.removed_fields.matches(name.text())
}

fn is_trace_id(value: &[u8]) -> bool {
    let is_plain = |byte: &u8| is_token(&[*byte]) || b"=;,:/@".contains(byte);
    value.len() <= MAX_TRACE_ID && value.iter().all(is_plain)
}

/// The fields of a shared fetch, and those that it leaves out.
#[derive(Clone, Debug, Default)]
pub struct SharedRequest {
    /// The field lines.
    pub fields: FieldsBuf,
    /// Names of fields that are withheld, in lower case.
    pub withheld: Vec<String>,
    /// The fields that the origin does not see.
    left_out: LeftOut,
    /// The origin sees another `Accept` than the client sent.
    rewrites_accept: bool,
}

impl SharedRequest {
    /// The shared fetch for these field lines, which would be forwarded otherwise.
    pub fn of(outgoing: Fields<'_>, rules: &Rules, known: &VaryNames) -> Self {
        let mut shared = Self::without_cookies(outgoing, rules, known, |_| false);
        if !rules.obeys_client
            && let Some(line) = cookies::keyed(outgoing, rules)
        {
            shared.fields.push("Cookie", line);
        }
        shared
    }

    /// As [`Self::of`], with the credentials of the request, which is therefore not coalesced.
    pub fn with_credentials(outgoing: Fields<'_>, rules: &Rules, known: &VaryNames) -> Self {
        let is_credential = |name: FieldName<'_>| name.is(names::COOKIE) || identifies(name);
        Self::without_cookies(outgoing, rules, known, is_credential)
    }

    fn without_cookies(
        outgoing: Fields<'_>,
        rules: &Rules,
        known: &VaryNames,
        is_sent: impl Fn(FieldName<'_>) -> bool,
    ) -> Self {
        let mut shared = Self::default();
        let mut fields = FieldsBuf::indexed(outgoing.as_block().len());
        let lower = |name: FieldName<'_>| String::from_utf8_lossy(name.text()).to_ascii_lowercase();
        let accept = FieldName::indexed(b"accept", Some(names::ACCEPT));
        let sends_accept = rules.obeys_client
            || is_chosen(accept, rules)
            || is_named(accept, known)
            || rules.request.removed_fields.matches(accept.text());
        let mut addresses = FieldsBuf::default();
        fields.extend_lines(outgoing, |line| {
            if line.known().is_some_and(|name| ALWAYS_SENT.contains(name)) {
                return true;
            }
            let (name, value) = (line.field_name(), line.value());
            if is_sent(name) && !rules.request.is_granted(name.text()) {
                return true;
            }
            match shared_forwarding(name, value, rules, known) {
                SharedForwarding::Sent
                    if is_unkeyed_address(name, rules, known) && !holds_addresses(value) =>
                {
                    let members = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                    let kept: Vec<_> = members.filter(|one| names_client(one)).collect();
                    if !kept.is_empty() {
                        addresses.push(line.name(), kept.join(&b", "[..]));
                    }
                    shared.left_out.insert(name);
                    return false;
                }
                SharedForwarding::Sent if name.is(names::ACCEPT) => return sends_accept,
                SharedForwarding::Sent => return true,
                SharedForwarding::Dropped if !goes_with_fill(name, rules) => {}
                SharedForwarding::Dropped => shared.left_out.insert(name),
                SharedForwarding::Withheld | SharedForwarding::Passes => {
                    shared.left_out.insert(name);
                    shared.withheld.push(lower(name));
                }
            }
            false
        });
        fields.extend_lines(addresses.fields(), |_| true);
        if !sends_accept {
            let value = AcceptClass::of(outgoing).canonical_value(outgoing);
            shared.rewrites_accept = outgoing.value(names::ACCEPT) != Some(&value[..]);
            fields.push_line(ACCEPT, [&value[..]]);
        }
        vary::normalise(&mut fields, rules);
        shared.fields = fields;
        shared
    }

    /// Returns true if the response varies on a field that was left out. Cookies that count are excluded: a request
    /// that has any is not shared.
    pub fn lacks(&self, named: &VaryNames) -> bool {
        let is_missing = |name: &str| match name {
            "accept" => self.rewrites_accept,
            "cookie" => false,
            _ => self.left_out.has(FieldName::of(name.as_bytes())),
        };
        named.iter().any(is_missing)
    }

    /// Returns true if some response might be explained by the fields left out.
    pub fn may_explain(&self) -> bool {
        !self.withheld.is_empty() || self.rewrites_accept
    }

    /// Returns true if the response might have been another one with all fields: some are withheld, or the client's
    /// `Accept` might have allowed it.
    pub fn explains(&self, status: u16) -> bool {
        !self.withheld.is_empty() || status == 406 && self.rewrites_accept
    }

    /// Returns true if the origin sees less than the client sent.
    pub fn leaves_out(&self) -> bool {
        self.left_out != LeftOut::default()
    }
}

/// Names of fields. Browsers send many that are left out, so known ones take no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    known: NameSet,
    /// The others, in lower case.
    others: Vec<Vec<u8>>,
}

impl LeftOut {
    fn insert(&mut self, name: FieldName<'_>) {
        match name.known() {
            Some(known) => self.known.insert(known),
            None => self.others.push(name.text().to_ascii_lowercase()),
        }
    }

    fn has(&self, name: FieldName<'_>) -> bool {
        let is_other = || {
            self.others
                .iter()
                .any(|one| one.eq_ignore_ascii_case(name.text()))
        };
        name.known()
            .map_or_else(is_other, |known| self.known.contains(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_name::KnownName;

    #[test]
    fn fields_of_authentication_are_for_one_client() {
        let mut rules = Rules::default();
        rules.request.grant("Remote-User");
        rules.request.grant("X_Groups");
        rules.request.forwarded_fields.push("x-groups");
        let mut outgoing = FieldsBuf::new();
        for name in ["Remote-User", "REMOTE_USER", "X-Groups", "Accept-Language"] {
            outgoing.push(name, "a");
        }
        let known = VaryNames::NONE;
        for shared in [
            SharedRequest::of(outgoing.fields(), &rules, &known),
            SharedRequest::with_credentials(outgoing.fields(), &rules, &known),
        ] {
            let names: Vec<_> = shared
                .fields
                .fields()
                .iter()
                .map(|(name, _)| name)
                .collect();
            assert_eq!(names, [&b"Accept-Language"[..], b"Accept"]);
            assert_eq!(shared.withheld, ["remote-user", "remote_user", "x-groups"]);
        }
        for (name, is_trusted) in [
            ("Remote-User", true),
            ("remote_user", true),
            ("x.groups", false),
        ] {
            let name = FieldName::of(name.as_bytes());
            let forwarding = field_forwarding(name, is_trusted, &rules.request);
            assert_eq!(forwarding, FieldForwarding::Removed);
        }
    }
    use crate::rules::KeyRules;
    use crate::testing::fields;
    use crate::vary::Vary;

    fn forwarding_of(name: &str, rules: &Rules, known: &str) -> SharedForwarding {
        let known = match vary::of_response(fields(&format!("Vary: {known}")).fields(), &[]) {
            Vary::Names(names) => names,
            _ => VaryNames::NONE,
        };
        shared_forwarding(FieldName::of(name.as_bytes()), b"x", rules, &known)
    }

    #[test]
    fn fields_that_are_always_sent_are_sent_by_the_table() {
        let all = KnownName::all().into_iter();
        for name in all.filter(|&name| ALWAYS_SENT.contains(name)) {
            let name = name.as_str();
            for rules in [Rules::default(), Rules::private()] {
                let forwarding = forwarding_of(name, &rules, "");
                assert_eq!(forwarding, SharedForwarding::Sent, "{name}");
            }
            assert!(!is_address(FieldName::of(name.as_bytes())), "{name}");
            assert!(name != "accept", "it is rewritten");
        }
    }

    #[test]
    fn few_fields_are_common() {
        for name in [
            "Accept-Language",
            "user-agent",
            "If-None-Match",
            "Range",
            "Traceparent",
            "Cache-Control",
        ] {
            assert!(is_common(name.as_bytes(), b"x"), "{name}");
        }
        for name in [
            "Cookie",
            "X-Shop",
            "HX-Request",
            "Save-Data",
            "X-Forwarded-For",
            "Referer",
        ] {
            assert!(!is_common(name.as_bytes(), b"x"), "{name}");
        }
        assert!(!is_common(b"Traceparent", &[b'x'; 129]));
    }

    #[test]
    fn every_field_has_one_treatment_on_a_shared_fetch() {
        use SharedForwarding::{Dropped, Passes, Sent, Withheld};
        for (forwarding, names) in [
            (
                Sent,
                &[
                    "Accept",
                    "User-Agent",
                    "accept-language",
                    "X-Forwarded-For",
                    "Forwarded",
                    "X-Real-IP",
                    "Traceparent",
                    "X-Request-ID",
                ][..],
            ),
            (
                Dropped,
                &[
                    "Cookie",
                    "Referer",
                    "Sec-Fetch-Mode",
                    "sec-ch-ua",
                    "Sec-Purpose",
                    "DNT",
                    "Save-Data",
                    "Priority",
                    "Upgrade-Insecure-Requests",
                    "baggage",
                    "If-None-Match",
                    "Range",
                    "Cache-Control",
                ],
            ),
            (
                Passes,
                &[
                    "X-Requested-With",
                    "X-PJAX",
                    "HX-Request",
                    "Turbo-Frame",
                    "X-Inertia",
                    "X-Livewire",
                    "RSC",
                    "Next-Router-State-Tree",
                    "Datastar-Request",
                    "X-Alpine-Target",
                    "FX-Request",
                ],
            ),
            (
                Withheld,
                &[
                    "Surrogate-Capability",
                    "X-React-Router-SPA-Mode",
                    "X-React-Router-Prerender-Data",
                    "X-HTTP-Path-Override",
                    "CloudFront-Forwarded-Proto",
                    "CF-Ray",
                    "Origin",
                    "X-Anything",
                    "Accept-Charset",
                ],
            ),
        ] {
            for name in names {
                assert_eq!(
                    forwarding_of(name, &Rules::default(), ""),
                    forwarding,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn selecting_fields_are_sent_except_cookies() {
        let mut rules = Rules {
            key: KeyRules {
                headers: vec!["X-Tenant".to_owned(), "HX-*".to_owned()],
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        rules.request.forwarded_fields.push("Req-*");
        for name in ["x-tenant", "HX-Request", "Req-Num", "Origin", "RSC", "DNT"] {
            let forwarding = forwarding_of(name, &rules, "Origin, RSC, DNT");
            assert_eq!(forwarding, SharedForwarding::Sent, "{name}");
        }
        let forwarding = forwarding_of("Cookie", &rules, "Cookie");
        assert_eq!(forwarding, SharedForwarding::Dropped);
        let mine = Rules::private();
        assert_eq!(
            forwarding_of("X-Anything", &mine, ""),
            SharedForwarding::Sent
        );
    }

    #[test]
    fn an_id_of_a_trace_is_sent_if_it_can_be_nothing_else() {
        let forwarding = |name: &str, value: &str| {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            shared_forwarding(
                FieldName::of(name),
                value,
                &Rules::default(),
                &VaryNames::NONE,
            )
        };
        assert_eq!(
            forwarding("tracestate", "a=1,b@c=2"),
            SharedForwarding::Sent
        );
        assert_eq!(
            forwarding("X-Request-Id", "<script>"),
            SharedForwarding::Dropped
        );
        let long = "a".repeat(MAX_TRACE_ID + 1);
        assert_eq!(forwarding("X-Request-Id", &long), SharedForwarding::Dropped);
    }

    #[test]
    fn of_cdn_loop_a_shared_fetch_has_what_microcache_wrote() {
        for (value, expected) in [
            ("microcache; id=0123456789abcdef", SharedForwarding::Sent),
            ("microcache", SharedForwarding::Dropped),
            ("cloudflare", SharedForwarding::Dropped),
            ("microcache; id=1, cloudflare", SharedForwarding::Dropped),
        ] {
            let (name, rules) = (FieldName::of(b"cdn-loop"), Rules::default());
            let forwarding = shared_forwarding(name, value.as_bytes(), &rules, &VaryNames::NONE);
            assert_eq!(forwarding, expected, "{value}");
        }
    }

    #[test]
    fn a_shared_fetch_has_the_cookies_of_the_key_only() {
        let rules = Rules {
            key: KeyRules {
                cookies: vec!["lang".to_owned()],
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        let request = fields("Accept-Language: de\nCookie: _ga=1; lang=de\nX-A: 1\nReferer: b");
        let shared = SharedRequest::of(request.fields(), &rules, &VaryNames::NONE);
        let left = fields("Accept-Language: de\nAccept: text/html,*/*;q=0.8\nCookie: lang=de");
        assert_eq!(shared.fields, left);
        assert_eq!(shared.withheld, ["x-a"]);
        let names =
            |vary: &str| vary::of_response(fields(&format!("Vary: {vary}")).fields(), &[]).names();
        assert!(shared.lacks(&names("X-A")));
        assert!(shared.lacks(&names("Referer, Accept")));
        assert!(!shared.lacks(&names("Cookie, X-B")));
        assert!(shared.lacks(&names("Accept")));
        let all = SharedRequest::of(request.fields(), &rules, &names("Accept"));
        assert_eq!(all.fields.fields().get("accept"), None);
    }

    #[test]
    fn of_fields_with_addresses_the_addresses_are_sent() {
        let sent = |lines: &str, rules: &Rules| {
            let request = fields(&format!("Accept: */*\n{lines}"));
            let mut shared = SharedRequest::of(request.fields(), rules, &VaryNames::NONE).fields;
            shared.remove("Accept");
            shared
        };
        let rules = Rules::default();
        for (from, to) in [
            (
                "X-Forwarded-For: 1.2.3.4, ::1",
                "X-Forwarded-For: 1.2.3.4, ::1",
            ),
            ("X-Forwarded-For: <b>, 1.2.3.4", "X-Forwarded-For: 1.2.3.4"),
            ("X-Forwarded-For: unknown", "X-Forwarded-For: unknown"),
            ("X-Real-IP: \"[::1]:80\"", "X-Real-IP: \"[::1]:80\""),
            ("X-Real-IP: anna", ""),
            ("CF-Connecting-IP: 1.2.3.4", ""),
            ("X-Client-IP: 1.2.3.4\nX_Real_IP: 1.2.3.4", ""),
        ] {
            assert_eq!(sent(from, &rules), fields(to), "{from}");
        }
        let mut keyed = Rules::default();
        keyed.key.headers.push("X-Real-IP".to_owned());
        let line = "X-Real-IP: anna";
        assert_eq!(sent(line, &keyed), fields(line));
        let mut keyed = Rules::default();
        keyed.key.headers.push("CF-Connecting-IP".to_owned());
        let line = "CF-Connecting-IP: 1.2.3.4";
        assert_eq!(sent(line, &keyed), fields(line));
    }
}

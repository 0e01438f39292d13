//! The caching semantics of a request, parsed in one pass over its fields.
//!
//! Clients may restrict: `max-age`, `min-fresh`, `no-store` and `only-if-cached` are honoured. They may not relax the
//! rules or force requests to the origin: `max-stale` is ignored unless the cache is the client's own, and so is a
//! reload (`no-cache`, `Pragma: no-cache`, and the `max-age=0` of browsers) unless the route enables it.

use std::mem;

use http::Method;

use crate::accept::AcceptClass;
use crate::byte_range::RequestedRange;
use crate::cookies;
use crate::detail::Detail;
use crate::directives::RequestDirectives;
use crate::field_name::{FieldName, NameList};
use crate::fields::{FieldLine, Fields, split_list};
use crate::hop;
use crate::identity::{identifies, makes_personal};
use crate::key::has_plain_query;
use crate::known_name::{KnownName, names};
use crate::name_set::NameSet;
use crate::request_fields::{MAX_SENT, asks_for_another_form};
use crate::rules::{Reload, Rules};
use crate::time::Millis;

/// The handling of a request by the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Look up, coalesce, store the response.
    Cache,
    /// Like `Cache`, for a request with credentials that count: only responses marked as shareable may serve it or be
    /// stored, and it is never coalesced.
    Credentialed,
    /// Forward to the origin.
    Pass(PassReason),
}

/// The reason that a request is forwarded without the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassReason {
    /// The method is neither GET nor HEAD.
    Method,
    /// A GET with a body: the response may depend on it.
    Body,
    /// The request asks to switch protocols.
    Upgrade,
    /// The request accepts an event stream.
    EventStream,
    /// `Connection` names fields that are removed, so the origin would see another request than the one looked up.
    Connection,
    /// The request asks for a fragment of the page ([`SharedForwarding::Passes`](crate::SharedForwarding::Passes)).
    Fragment,
    /// The fields that a shared fetch sends exceed [`MAX_SENT`] together.
    LongFields,
    /// The client's `no-store`.
    NoStore,
}

impl PassReason {
    /// The reason in `Cache-Status`.
    pub const fn detail(self) -> Detail {
        match self {
            Self::Method => Detail::Method,
            Self::Body => Detail::Body,
            Self::Upgrade => Detail::Upgrade,
            Self::EventStream => Detail::EventStream,
            Self::Connection => Detail::Connection,
            Self::Fragment => Detail::Fragment,
            Self::LongFields => Detail::LongFields,
            Self::NoStore => Detail::NoStore,
        }
    }
}

/// The field with the user context of a request: a hash of the user's role, as `FOSHttpCache` names it.
pub const USER_CONTEXT: &str = "X-User-Context-Hash";

/// Returns true for [`USER_CONTEXT`], and for a name that programs take for it.
pub fn is_user_context(name: &[u8]) -> bool {
    let is_alike =
        |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b) || *b == b'-' && !a.is_ascii_alphanumeric();
    name.len() == USER_CONTEXT.len() && name.iter().zip(USER_CONTEXT.as_bytes()).all(is_alike)
}

/// The credentials that make a request personal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// `Authorization`, or another identifying field ([`identities`](crate::identity::identities)).
    pub authorization: bool,
    /// A cookie that the origin sees and that is neither ignored nor part of the key.
    pub cookie: bool,
}

/// The facts about a request that caching depends on.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a request is or not"
)]
pub struct RequestFacts {
    handling: Handling,
    credentials: Credentials,
    signed_in: bool,
    wants_fragment: bool,
    has_context: bool,
    head: bool,
    conditional: bool,
    has_plain_target: bool,
    accept: AcceptClass,
    directives: RequestDirectives,
    range: Option<RequestedRange>,
    ttl: Option<Millis>,
    obeyed: bool,
}

impl Credentials {
    /// Every kind of credentials.
    pub(crate) const ALL: Self = Self {
        authorization: true,
        cookie: true,
    };
}

impl RequestFacts {
    /// Parses the fields in one pass.
    #[expect(
        clippy::inline_always,
        reason = "a hit pays for the call, which others make only now and then"
    )]
    #[inline(always)]
    pub fn read(method: &Method, fields: Fields<'_>, has_body: bool, rules: &Rules) -> Self {
        let seen = FieldScan::read(fields, rules);
        let mut directives = seen.directives;
        // Pragma counts only without Cache-Control (RFC 9111 §5.4).
        directives.no_cache |= seen.pragma_no_cache && !seen.cache_control;
        if rules.reload == Reload::Ignore {
            directives.no_cache = false;
            directives.max_age = directives.max_age.filter(|&age| age > 0);
        }
        directives.max_stale = directives.max_stale.filter(|_| rules.obeys_client);
        directives.stale_if_error = directives.stale_if_error.filter(|_| rules.obeys_client);
        // A private cache shares nothing between users.
        let credentials = if rules.are_private() {
            Credentials::default()
        } else {
            Credentials {
                cookie: seen.cookies.are_personal(),
                ..seen.credentials
            }
        };
        let handling = if method != Method::GET && method != Method::HEAD {
            Handling::Pass(PassReason::Method)
        } else if has_body {
            Handling::Pass(PassReason::Body)
        } else if seen.event_stream {
            Handling::Pass(PassReason::EventStream)
        } else if seen.connection_names_fields {
            Handling::Pass(PassReason::Connection)
        } else if directives.no_store {
            Handling::Pass(PassReason::NoStore)
        } else if seen.may_send_too_much(fields)
            && !rules.obeys_client
            && sent_bytes(fields) > MAX_SENT
        {
            Handling::Pass(PassReason::LongFields)
        } else if credentials.authorization || credentials.cookie {
            Handling::Credentialed
        } else {
            Handling::Cache
        };
        Self {
            handling,
            credentials,
            signed_in: false,
            wants_fragment: seen.wants_fragment,
            has_context: seen.has_context,
            head: method == Method::HEAD,
            conditional: seen.conditional,
            has_plain_target: false,
            accept: seen
                .accept
                .filter(|_| !rules.obeys_client)
                .unwrap_or_default(),
            directives,
            range: seen.range.filter(|_| !seen.several_ranges),
            ttl: None,
            obeyed: rules.obeys_client,
        }
    }

    /// The same facts for a request with a forced lifetime, in milliseconds ([`Rules::forced_ttl`]).
    #[must_use]
    pub const fn fresh_for(mut self, ttl: Millis) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The forced lifetime of the response on a route with these rules, in milliseconds.
    pub fn forced_ttl(&self, rules: &Rules) -> Option<Millis> {
        self.ttl.or(rules.forced_ttl)
    }

    /// The same facts for a request for which the origin is asked, with its target. A hit does not need it.
    #[must_use]
    pub fn of_target(mut self, target: &[u8], rules: &Rules) -> Self {
        self.has_plain_target =
            rules.anonymous_ttl.is_some() && has_plain_query(target, &rules.key);
        self
    }

    /// Returns true if the response may be stored by [`Rules::anonymous_ttl`].
    pub(crate) fn is_anonymous(&self) -> bool {
        self.has_plain_target && !self.head && self.handling() == Handling::Cache
    }

    /// The same facts for a request on a connection that is authenticated: as if it had `Authorization`.
    #[must_use]
    pub const fn signed_in(mut self) -> Self {
        self.signed_in = true;
        self
    }

    /// The same facts for a request that asks to switch protocols
    /// ([`upgrade::is_requested`](crate::upgrade::is_requested)).
    #[must_use]
    pub const fn upgrading(mut self) -> Self {
        self.handling = Handling::Pass(PassReason::Upgrade);
        self
    }

    /// The facts of the shared fetch for this request: a GET without conditions, on a connection that is not
    /// authenticated. The range that its client wants is kept.
    #[must_use]
    pub const fn as_fill(mut self) -> Self {
        self.head = false;
        self.conditional = false;
        self.signed_in = false;
        self
    }

    /// The same facts for a request whose `Range` is ignored.
    #[must_use]
    pub const fn without_range(mut self) -> Self {
        self.range = None;
        self
    }

    /// The handling by the cache.
    pub const fn handling(&self) -> Handling {
        match self.handling {
            Handling::Cache | Handling::Credentialed if self.wants_fragment => {
                Handling::Pass(PassReason::Fragment)
            }
            Handling::Cache if self.signed_in => Handling::Credentialed,
            handling => handling,
        }
    }

    /// The same facts for a request to a url whose `Vary` distinguishes fragments from pages.
    #[must_use]
    pub const fn distinguishing_fragments(mut self) -> Self {
        self.wants_fragment = false;
        self
    }

    /// The credentials that make the request personal.
    pub const fn credentials(&self) -> Credentials {
        Credentials {
            authorization: self.credentials.authorization || self.signed_in,
            cookie: self.credentials.cookie,
        }
    }

    /// Returns true if the request has credentials, and shares what is stored for its user context. Such requests are
    /// coalesced, and a fetch carries the credentials of one of them: only a response that permits sharing is for others.
    pub fn shares_context(&self) -> bool {
        self.has_context && !self.signed_in && self.handling() == Handling::Credentialed
    }

    /// Returns true for `only-if-cached`: 504 if no response is stored.
    pub const fn only_if_cached(&self) -> bool {
        self.directives.only_if_cached
    }

    /// The maximum age that the client accepts, in milliseconds.
    pub const fn max_age(&self) -> Option<Millis> {
        self.directives.max_age
    }

    /// The minimum remaining freshness, in milliseconds.
    pub const fn min_fresh(&self) -> Option<Millis> {
        self.directives.min_fresh
    }

    /// The staleness that the client accepts, in milliseconds, if that counts ([`Rules::obeys_client`]).
    pub const fn max_stale(&self) -> Option<Millis> {
        self.directives.max_stale
    }

    /// The staleness that the client accepts if the origin fails, in milliseconds, if that counts
    /// ([`Rules::obeys_client`]).
    pub const fn stale_if_error(&self) -> Option<Millis> {
        self.directives.stale_if_error
    }

    /// Returns true if the client reloads and the route honours that.
    pub const fn forces_reload(&self) -> bool {
        self.directives.no_cache
    }

    /// Returns true if all its directives count ([`Rules::obeys_client`]).
    pub const fn is_obeyed(&self) -> bool {
        self.obeyed
    }

    /// The class of representation that the client prefers.
    pub const fn accept(&self) -> AcceptClass {
        self.accept
    }

    /// Returns true for HEAD.
    pub const fn is_head(&self) -> bool {
        self.head
    }

    /// The requested range of bytes, if there is exactly one, in exactly one `Range` field.
    pub const fn range(&self) -> Option<RequestedRange> {
        self.range
    }

    /// Returns true if there is a precondition: `If-Match`, `If-None-Match`, `If-Modified-Since` or
    /// `If-Unmodified-Since`.
    pub const fn is_conditional(&self) -> bool {
        self.conditional
    }
}

/// The raw observations of the pass.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing seen or not"
)]
struct FieldScan {
    directives: RequestDirectives,
    credentials: Credentials,
    cookies: cookies::CookieFacts,
    cache_control: bool,
    pragma_no_cache: bool,
    connection_names_fields: bool,
    event_stream: bool,
    wants_fragment: bool,
    has_context: bool,
    accept: Option<AcceptClass>,
    /// Bytes of the lines with cookies.
    cookie_bytes: usize,
    conditional: bool,
    has_range: bool,
    range: Option<RequestedRange>,
    several_ranges: bool,
}

impl FieldScan {
    #[expect(
        clippy::inline_always,
        reason = "a hit pays for the call, which others make only now and then"
    )]
    #[inline(always)]
    fn read(fields: Fields<'_>, rules: &Rules) -> Self {
        let mut seen = Self::default();
        fields.visit(OBSERVED, |name, line| match name {
            Some(name) => seen.note(name, line, fields, rules),
            None => seen.note_other(line, rules),
        });
        seen
    }

    #[expect(
        clippy::inline_always,
        reason = "a hit pays for the call, which others make only now and then"
    )]
    #[inline(always)]
    fn note(&mut self, name: KnownName, line: FieldLine<'_>, fields: Fields<'_>, rules: &Rules) {
        match name {
            names::ACCEPT => {
                let value = line.value();
                self.event_stream |= accepts_event_stream(value);
                self.note_accept(value, fields);
            }
            names::COOKIE => {
                self.cookie_bytes += line.len();
                let is_removed = || rules.request.removed_fields.matches(b"cookie");
                if !rules.are_private() && !is_removed() {
                    self.cookies.take_line(line.value(), rules);
                }
            }
            names::CONNECTION => {
                let value = line.value();
                // The values of nearly all clients contain no restriction.
                self.connection_names_fields |= value != b"keep-alive" && hop::names_fields(value);
            }
            names::CACHE_CONTROL => {
                self.cache_control = true;
                self.directives.note_line(line.value());
            }
            names::IF_MATCH
            | names::IF_MODIFIED_SINCE
            | names::IF_NONE_MATCH
            | names::IF_UNMODIFIED_SINCE => self.conditional = true,
            names::PRAGMA => {
                self.pragma_no_cache |=
                    split_list(line.value()).any(|member| member.eq_ignore_ascii_case(b"no-cache"));
            }
            names::RANGE => {
                self.several_ranges |= mem::replace(&mut self.has_range, true);
                self.range = RequestedRange::parse(line.value());
            }
            // It is in [`JUDGED`].
            _ => self.note_other(line, rules),
        }
    }

    /// Returns false if the values that a shared fetch sends unchanged are certainly not above [`MAX_SENT`]: nearly all heads
    /// are shorter, but for their cookies.
    fn may_send_too_much(&self, fields: Fields<'_>) -> bool {
        fields.as_block().len() > MAX_SENT + self.cookie_bytes
    }

    /// Adds a line of `Accept`. Several lines count together.
    #[inline]
    fn note_accept(&mut self, value: &[u8], fields: Fields<'_>) {
        self.accept = Some(match self.accept {
            None => AcceptClass::of_line(value),
            Some(_) => AcceptClass::of(fields),
        });
    }

    /// Adds a line whose name is unknown, or one of [`JUDGED`].
    #[cold]
    #[inline(never)]
    fn note_other(&mut self, line: FieldLine<'_>, rules: &Rules) {
        let name = line.field_name();
        if NEGOTIATING.has(name) {
            return;
        }
        self.credentials.authorization |= identifies(name) && makes_personal(name, rules);
        self.wants_fragment |= asks_for_another_form(name, rules);
        self.has_context |= rules.user_context && is_user_context(name.text());
    }
}

/// The known names that facts depend on.
const OBSERVED: NameSet = NameSet::of(&[
    names::ACCEPT,
    names::CACHE_CONTROL,
    names::CONNECTION,
    names::COOKIE,
    names::IF_MATCH,
    names::IF_MODIFIED_SINCE,
    names::IF_NONE_MATCH,
    names::IF_UNMODIFIED_SINCE,
    names::PRAGMA,
    names::RANGE,
])
.and(JUDGED);

/// The known names that identify a user or ask for a fragment.
const JUDGED: NameSet = NameSet::of(&[
    names::AUTHORIZATION,
    names::PERSISTENT_AUTH,
    names::PROXY_AUTHENTICATION_INFO,
    names::PROXY_AUTHORIZATION,
    names::SEC_WEBSOCKET_KEY,
    names::SURROGATE_KEY,
    names::X_REQUESTED_WITH,
]);

/// Beginnings of names by which clients negotiate: none identifies a user, whatever its words
/// (`Accept-Signature`).
const NEGOTIATING: NameList =
    NameList::new(&["accept-*", "if-m*", "if-n*", "if-u*", "sec-c*", "sec-f*"]);

/// Bytes of the values that a shared fetch sends unchanged.
#[cold]
fn sent_bytes(fields: Fields<'_>) -> usize {
    const SENT: NameSet = NameSet::of(&[names::ACCEPT, names::ACCEPT_LANGUAGE, names::USER_AGENT]);
    let mut bytes = 0;
    fields.visit(SENT, |name, line| {
        bytes += name.map_or(0, |_| line.value().len());
    });
    bytes
}

/// The fields by which a request asks for a fragment of the page.
pub fn fragment_fields<'a>(fields: Fields<'a>, rules: &'a Rules) -> impl Iterator<Item = &'a [u8]> {
    let names = fields.lines().map(FieldLine::field_name);
    let asking = names.filter(|&name| asks_for_another_form(name, rules));
    asking.map(FieldName::text)
}

fn accepts_event_stream(accept: &[u8]) -> bool {
    has_hyphen_behind_t(accept) && accept.split(|&b| b == b',').any(is_event_stream)
}

/// Returns true for an event stream, and for few other values of `Accept`.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "without branches the compiler tests all sixteen at once"
)]
fn has_hyphen_behind_t(text: &[u8]) -> bool {
    let is_place = |(&t, &hyphen): (&u8, &u8)| (t | 0x20 == b't') & (hyphen == b'-');
    let is_in = |(before, behind): (&[u8; 16], &[u8; 16])| {
        let places = before.iter().zip(behind);
        places.fold(false, |found, place| found | is_place(place))
    };
    let (Some((_, behind)), Some((_, before))) = (text.split_first(), text.split_last()) else {
        return false;
    };
    // Sixteen places at a time, the last of them once more.
    let (Some(last_before), Some(last_behind)) = (before.last_chunk(), behind.last_chunk()) else {
        return before.iter().zip(behind).any(is_place);
    };
    let (before, _) = before.as_chunks();
    let (behind, _) = behind.as_chunks();
    before.iter().zip(behind).any(is_in) || is_in((last_before, last_behind))
}

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Returns true if a media type, with any parameters, is that of event streams.
pub fn is_event_stream(media_type: &[u8]) -> bool {
    media_type
        .trim_ascii_start()
        .split_at_checked(EVENT_STREAM.len())
        .is_some_and(|(essence, rest)| {
            essence.eq_ignore_ascii_case(EVENT_STREAM)
                && matches!(rest.trim_ascii_start(), [] | [b';', ..])
        })
}

/// Returns true if a media type is that of gRPC, with any message format.
pub fn is_grpc(media_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    media_type
        .trim_ascii_start()
        .split_at_checked(GRPC.len())
        .is_some_and(|(essence, rest)| {
            essence.eq_ignore_ascii_case(GRPC)
                && matches!(rest.trim_ascii_start(), [] | [b';' | b'+', ..])
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::Patterns;
    use crate::rules::KeyRules;
    use crate::testing::{fields, get};

    fn check(method: &Method, request: &str, has_body: bool, expected: Handling) {
        let request = fields(request);
        let facts = RequestFacts::read(method, request.fields(), has_body, &Rules::default());
        assert_eq!(facts.handling(), expected, "{method} {request:?}");
    }

    fn is_personal(rules: &Rules, request: &str) -> bool {
        get(&fields(request), rules).credentials().cookie
    }

    #[test]
    fn known_names_are_judged_once() {
        for name in KnownName::all() {
            let judged = FieldName::of(name.as_str().as_bytes());
            let judged = identifies(judged) || asks_for_another_form(judged, &Rules::default());
            assert_eq!(JUDGED.contains(name), judged, "{name:?}");
        }
    }

    #[test]
    fn calls_of_grpc_say_so_by_their_media_type() {
        for (media_type, expected) in [
            ("application/grpc", true),
            ("Application/GRPC+proto", true),
            ("application/grpc ; a=b", true),
            ("application/grpc-web", false),
            ("application/grpcs", false),
            ("text/plain", false),
            ("", false),
        ] {
            assert_eq!(is_grpc(media_type.as_bytes()), expected, "{media_type}");
        }
    }

    #[test]
    fn methods_other_than_plain_get_and_head_pass() {
        for method in [
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::PATCH,
            Method::OPTIONS,
            Method::TRACE,
            Method::CONNECT,
        ] {
            check(&method, "", false, Handling::Pass(PassReason::Method));
        }
        let unknown = Method::from_bytes(b"FROBNICATE").expect("a method");
        check(
            &unknown,
            "Authorization: x",
            true,
            Handling::Pass(PassReason::Method),
        );
        check(&Method::GET, "", true, Handling::Pass(PassReason::Body));
        check(&Method::HEAD, "", true, Handling::Pass(PassReason::Body));
        check(
            &Method::GET,
            "Cache-Control: foo, No-Store",
            false,
            Handling::Pass(PassReason::NoStore),
        );
        check(
            &Method::GET,
            "Connection: keep-alive, TE",
            false,
            Handling::Cache,
        );
    }

    #[test]
    fn event_streams_are_recognized_by_their_media_type_only() {
        for (accept, expected) in [
            ("text/event-stream", true),
            ("text/html, \tText/Event-Stream ; q=0.5", true),
            ("text/event-stream;q=1", true),
            ("text/event-streams", false),
            ("text/event-stream x", false),
            ("TEXT/EVENT-STREAM", true),
            ("text/html, a/long-type, TEXT/Event-Stream ;q=1", true),
            ("text/html, a/long-type, text/event_stream, b/t-x", false),
            ("text/event", false),
            ("application/text/event-stream", false),
            ("", false),
        ] {
            let request = fields(&format!("Accept: {accept}"));
            let handling = get(&request, &Rules::default()).handling();
            let is_stream = handling == Handling::Pass(PassReason::EventStream);
            assert_eq!(is_stream, expected, "{accept}");
        }
    }

    #[test]
    fn conditions_ranges_and_only_if_cached_are_noticed() {
        let rules = Rules::default();
        for name in [
            "If-Match",
            "If-None-Match",
            "If-Modified-Since",
            "If-Unmodified-Since",
        ] {
            assert!(
                get(&fields(&format!("{name}: x")), &rules).is_conditional(),
                "{name}"
            );
        }
        assert!(!get(&fields("If-Range: x"), &rules).is_conditional());
        assert!(get(&fields("Cache-Control: Only-If-Cached"), &rules).only_if_cached());
        assert_eq!(
            get(&fields("Range: bytes=1-2"), &rules).range(),
            Some(RequestedRange::From {
                first: 1,
                last: Some(2)
            })
        );
        assert_eq!(
            get(&fields("Range: bytes=1-2\nRange: bytes=1-2"), &rules).range(),
            None
        );
        assert!(!get(&fields(""), &rules).is_head());
    }

    #[test]
    fn cookies_are_personal_unless_ignored_or_keyed() {
        let rules = Rules::default();
        for (request, expected) in [
            ("Cookie: a=b", true),
            ("Cookie: _ga=1; _gid=2; OptanonConsent=x=y", false),
            ("Cookie: _ga=1;a=2", true),
            ("Cookie: _ga=1\nCookie: a=2", true),
            ("Cookie: value-without-name", true),
            ("Cookie: =value", true),
            ("Cookie: ; ;", false),
            ("Cookie:", false),
            ("", false),
        ] {
            assert_eq!(is_personal(&rules, request), expected, "{request}");
        }
        let rules = Rules {
            cookies_ignored: Patterns::from_iter(["theme*"]),
            key: KeyRules {
                cookies: vec!["lang".to_owned()],
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        assert!(!is_personal(&rules, "Cookie: theme_x=1; lang=de"));
        assert!(!is_personal(&rules, "Cookie: _ga=1"));
        assert!(is_personal(&rules, "Cookie: Lang=de"));
    }

    #[test]
    fn the_fields_of_a_browser_make_nothing_personal() {
        let request = "Host: a\nConnection: keep-alive\nsec-ch-ua: a\nSEC-CH-UA-Mobile: ?0\n\
            Upgrade-Insecure-Requests: 1\nUser-Agent: a\nAccept: text/html\nSec-Fetch-Site: none\n\
            Sec-Fetch-Mode: navigate\nSEC-FETCH-USER: ?1\nSec-Fetch-Dest: document\nReferer: a\n\
            Accept-Encoding: gzip\nAccept-Language: de\nPriority: u=0\nDNT: 1\nSave-Data: on\nAccept-Signature: a\nSec-CH-New: a";
        check(&Method::GET, request, false, Handling::Cache);
    }

    #[test]
    fn an_identity_is_personal_unless_it_is_keyed() {
        let keyed = Rules {
            key: KeyRules {
                headers: vec!["x-api-key".to_owned()],
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        let request = fields("X-Api-Key: 1");
        assert_eq!(get(&request, &keyed).handling(), Handling::Cache);
        let plain = get(&request, &Rules::default());
        assert_eq!(plain.handling(), Handling::Credentialed);
        assert!(plain.credentials().authorization);
        let private = get(&request, &Rules::private());
        assert_eq!(private.handling(), Handling::Cache);
    }

    #[test]
    fn credentials_with_a_user_context_are_shared_by_those_with_the_same_one() {
        let mut rules = Rules::default();
        rules.key.headers.push(USER_CONTEXT.to_owned());
        for (request, expected) in [
            ("X-User-Context-Hash: a\nCookie: session=1", true),
            ("x-user-context-hash: a\nAuthorization: b", true),
            ("X-User-Context-Hash: a", false),
            ("Cookie: session=1", false),
            (
                "X-User-Context-Hash: a\nCookie: session=1\nCache-Control: no-store",
                false,
            ),
        ] {
            for user_context in [true, false] {
                rules.user_context = user_context;
                let facts = get(&fields(request), &rules);
                assert_eq!(
                    facts.shares_context(),
                    expected && user_context,
                    "{request}"
                );
                assert!(!facts.signed_in().shares_context());
            }
        }
        for (name, expected) in [
            ("X_User.Context Hash", true),
            ("x-user-context-hash", true),
            ("X-User-Context-Hash2", false),
            ("XAUser-Context-Hash", false),
        ] {
            assert_eq!(is_user_context(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn credentials_that_the_origin_never_sees_are_none() {
        let mut rules = Rules::default();
        rules.request.removed_fields.push("authorization");
        rules.request.removed_cookies.push("*");
        let request = fields("Authorization: Basic x\nCookie: session=1");
        assert_eq!(get(&request, &rules).handling(), Handling::Cache);
    }
}

//! Field names that rules know, as small numbers: a name is looked up once, when its line is parsed, and is compared as
//! a number from then on.

use crate::text_table::{Case, TextTable};

/// A field name that some rule knows. Its number is its place in [`TEXTS`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KnownName(u8);

/// The known names, in lower case: letters, digits and hyphens. At most 127. A name is here if
/// clients or origins send it often, or if a rule is about it alone.
const TEXTS: [&str; 117] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "access-control-allow-origin",
    "access-control-request-headers",
    "access-control-request-method",
    "age",
    "allow",
    "alt-svc",
    "alt-used",
    "authorization",
    "available-dictionary",
    "cache-control",
    "cache-status",
    "cache-tag",
    "cdn-cache-control",
    "cdn-loop",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-security-policy",
    "content-type",
    "cookie",
    "cookie2",
    "date",
    "dnt",
    "early-data",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "from",
    "host",
    "http2-settings",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "last-event-id",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "no-vary-search",
    "origin",
    "permissions-policy",
    "persistent-auth",
    "pragma",
    "priority",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "purpose",
    "range",
    "referer",
    "referrer-policy",
    "request-range",
    "retry-after",
    "save-data",
    "sec-ch-prefers-color-scheme",
    "sec-ch-ua",
    "sec-ch-ua-arch",
    "sec-ch-ua-bitness",
    "sec-ch-ua-full-version-list",
    "sec-ch-ua-mobile",
    "sec-ch-ua-model",
    "sec-ch-ua-platform",
    "sec-ch-ua-platform-version",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-storage-access",
    "sec-fetch-user",
    "sec-gpc",
    "sec-purpose",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "server",
    "set-cookie",
    "strict-transport-security",
    "surrogate-control",
    "surrogate-key",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "use-as-dictionary",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-accel-expires",
    "x-cache",
    "x-content-type-options",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-frame-options",
    "x-powered-by",
    "x-real-ip",
    "x-request-id",
    "x-requested-with",
];

impl KnownName {
    /// The known name that equals this one in any ASCII case.
    #[inline]
    pub fn of(name: &[u8]) -> Option<Self> {
        static TABLE: TextTable<{ TEXTS.len() }> = TextTable::new(&TEXTS, Case::Any);
        TABLE.find(name).map(Self)
    }

    /// The known name that equals this one in any ASCII case. For constants: fails to compile for another text.
    pub(crate) const fn constant(text: &str) -> Self {
        match Self::of_constant(text) {
            Some(name) => name,
            None => panic!("not a known name"),
        }
    }

    /// As [`Self::of`], for constants.
    pub(crate) const fn of_constant(text: &str) -> Option<Self> {
        let mut place = 0;
        while place < TEXTS.len() {
            if TEXTS[place].eq_ignore_ascii_case(text) {
                return Some(Self(place as u8));
            }
            place += 1;
        }
        None
    }

    /// The text in lower case.
    pub const fn as_str(self) -> &'static str {
        TEXTS[self.0 as usize]
    }

    /// Every known name, in order.
    pub(crate) const fn all() -> [Self; TEXTS.len()] {
        let mut all = [Self(0); TEXTS.len()];
        let mut place = 0;
        while place < all.len() {
            all[place] = Self(place as u8);
            place += 1;
        }
        all
    }

    /// The number of all names that are not known.
    pub(crate) const UNKNOWN: u8 = 127;

    /// Its number, below [`Self::UNKNOWN`].
    #[inline]
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// The name with this number.
    #[inline]
    pub(crate) fn numbered(number: u8) -> Option<Self> {
        (number != Self::UNKNOWN).then_some(Self(number))
    }
}

/// The start of a line with a known name, as it is written.
#[derive(Clone, Copy, Debug)]
pub struct LineStart {
    name: KnownName,
    /// The name, the colon and a space.
    text: &'static str,
}

impl LineStart {
    /// The start of a line, such as `Via: `. For constants: fails to compile for another text.
    pub const fn of(text: &'static str) -> Self {
        let (name, colon) = text.split_at(text.len() - 2);
        assert!(matches!(colon.as_bytes(), b": "), "a name and a colon");
        let name = KnownName::constant(name);
        Self { name, text }
    }

    /// The known name.
    pub(crate) const fn known(self) -> KnownName {
        self.name
    }

    /// The name as it is written.
    pub const fn name(self) -> &'static str {
        self.text.split_at(self.text.len() - 2).0
    }

    /// The name, the colon and a space.
    pub(crate) const fn text(self) -> &'static str {
        self.text
    }
}

impl std::fmt::Debug for KnownName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names that rules look for.
#[expect(missing_docs, reason = "each is the name that it is called by")]
pub mod names {
    use super::KnownName;

    pub const ACCEPT: KnownName = KnownName::constant("accept");
    pub const ACCEPT_ENCODING: KnownName = KnownName::constant("accept-encoding");
    pub const ACCEPT_LANGUAGE: KnownName = KnownName::constant("accept-language");
    pub const AGE: KnownName = KnownName::constant("age");
    pub const AUTHORIZATION: KnownName = KnownName::constant("authorization");
    pub const CACHE_CONTROL: KnownName = KnownName::constant("cache-control");
    pub const CACHE_STATUS: KnownName = KnownName::constant("cache-status");
    pub const CDN_LOOP: KnownName = KnownName::constant("cdn-loop");
    pub const CONNECTION: KnownName = KnownName::constant("connection");
    pub const CONTENT_LENGTH: KnownName = KnownName::constant("content-length");
    pub const CONTENT_TYPE: KnownName = KnownName::constant("content-type");
    pub const COOKIE: KnownName = KnownName::constant("cookie");
    pub const DATE: KnownName = KnownName::constant("date");
    pub const ETAG: KnownName = KnownName::constant("etag");
    pub const EXPECT: KnownName = KnownName::constant("expect");
    pub const EXPIRES: KnownName = KnownName::constant("expires");
    pub const FORWARDED: KnownName = KnownName::constant("forwarded");
    pub const HOST: KnownName = KnownName::constant("host");
    pub const IF_MATCH: KnownName = KnownName::constant("if-match");
    pub const IF_MODIFIED_SINCE: KnownName = KnownName::constant("if-modified-since");
    pub const IF_NONE_MATCH: KnownName = KnownName::constant("if-none-match");
    pub const IF_RANGE: KnownName = KnownName::constant("if-range");
    pub const IF_UNMODIFIED_SINCE: KnownName = KnownName::constant("if-unmodified-since");
    pub const KEEP_ALIVE: KnownName = KnownName::constant("keep-alive");
    pub const LAST_MODIFIED: KnownName = KnownName::constant("last-modified");
    pub const LINK: KnownName = KnownName::constant("link");
    pub const MAX_FORWARDS: KnownName = KnownName::constant("max-forwards");
    pub const NO_VARY_SEARCH: KnownName = KnownName::constant("no-vary-search");
    pub const PERSISTENT_AUTH: KnownName = KnownName::constant("persistent-auth");
    pub const PRAGMA: KnownName = KnownName::constant("pragma");
    pub const PRIORITY: KnownName = KnownName::constant("priority");
    pub const PROXY_AUTHENTICATE: KnownName = KnownName::constant("proxy-authenticate");
    pub const PROXY_AUTHENTICATION_INFO: KnownName =
        KnownName::constant("proxy-authentication-info");
    pub const PROXY_AUTHORIZATION: KnownName = KnownName::constant("proxy-authorization");
    pub const PROXY_CONNECTION: KnownName = KnownName::constant("proxy-connection");
    pub const PURPOSE: KnownName = KnownName::constant("purpose");
    pub const RANGE: KnownName = KnownName::constant("range");
    pub const REQUEST_RANGE: KnownName = KnownName::constant("request-range");
    pub const SEC_FETCH_DEST: KnownName = KnownName::constant("sec-fetch-dest");
    pub const SEC_FETCH_MODE: KnownName = KnownName::constant("sec-fetch-mode");
    pub const SEC_PURPOSE: KnownName = KnownName::constant("sec-purpose");
    pub const SEC_WEBSOCKET_KEY: KnownName = KnownName::constant("sec-websocket-key");
    pub const SET_COOKIE: KnownName = KnownName::constant("set-cookie");
    pub const SURROGATE_KEY: KnownName = KnownName::constant("surrogate-key");
    pub const TE: KnownName = KnownName::constant("te");
    pub const TRACEPARENT: KnownName = KnownName::constant("traceparent");
    pub const TRACESTATE: KnownName = KnownName::constant("tracestate");
    pub const TRAILER: KnownName = KnownName::constant("trailer");
    pub const TRANSFER_ENCODING: KnownName = KnownName::constant("transfer-encoding");
    pub const UPGRADE: KnownName = KnownName::constant("upgrade");
    pub const USER_AGENT: KnownName = KnownName::constant("user-agent");
    pub const VARY: KnownName = KnownName::constant("vary");
    pub const VIA: KnownName = KnownName::constant("via");
    pub const WWW_AUTHENTICATE: KnownName = KnownName::constant("www-authenticate");
    pub const X_FORWARDED_FOR: KnownName = KnownName::constant("x-forwarded-for");
    pub const X_FORWARDED_HOST: KnownName = KnownName::constant("x-forwarded-host");
    pub const X_FORWARDED_PROTO: KnownName = KnownName::constant("x-forwarded-proto");
    pub const X_REQUESTED_WITH: KnownName = KnownName::constant("x-requested-with");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_found_in_any_case() {
        assert!(TEXTS.is_sorted());
        for name in KnownName::all() {
            let text = name.as_str();
            assert_eq!(KnownName::of(text.as_bytes()), Some(name));
            let upper = text.to_ascii_uppercase();
            assert_eq!(KnownName::of(upper.as_bytes()), Some(name));
        }
        assert_eq!(KnownName::of(b"x-unknown"), None);
    }
}

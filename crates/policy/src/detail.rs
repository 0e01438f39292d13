//! The reasons that `Cache-Status` gives in `detail`: all that there are, in one place.

/// Defines the reasons with their tokens, so that none is missing from [`Detail::ALL`].
macro_rules! details {
    ($($(#[doc = $meaning:literal])+ $name:ident = $token:literal,)+) => {
        /// Why a request was handled as it was. docs/caching-rules.md has a row for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Detail {
            $($(#[doc = $meaning])+ $name,)+
            /// The response was not in memory, but in the tier of this name, which is a token.
            Tier(&'static str),
        }

        impl Detail {
            /// All of them, but for the names of tiers.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// As it stands in the field: always a token.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $token,)+
                    Self::Tier(name) => name,
                }
            }
        }
    };
}

details! {
    // The request.

    /// Neither GET nor HEAD.
    Method = "method",
    /// A GET with a body: the answer may depend on it.
    Body = "body",
    /// Its path can be read as that of another route.
    AmbiguousPath = "ambiguous-path",
    /// It asks for another protocol.
    Upgrade = "upgrade",
    /// It accepts an event stream, or the response is one: it has no end.
    EventStream = "event-stream",
    /// `Connection` names fields that the origin will not see, so that it would answer another
    /// request than the one looked up.
    Connection = "connection",
    /// It asks for another form of the page, by a field such as `HX-Request` that is no part of the key.
    Fragment = "fragment",
    /// More is in the fields that a fetch for everyone would send than any browser has there.
    LongFields = "long-fields",
    /// `no-store`, said by the client or by the origin.
    NoStore = "no-store",
    /// It has credentials, and the response does not say that it can be shared.
    Credentials = "credentials",
    /// It wanted no answer from the origin, and nothing usable is stored.
    OnlyIfCached = "only-if-cached",
    /// `Max-Forwards`: it was not to go any further than here.
    MaxForwards = "max-forwards",
    /// It was a purge, as plugins send them.
    Purge = "purge",
    /// It was sent from here and came back.
    Loop = "loop",
    /// It could not be read.
    BadRequest = "bad-request",
    /// Its client, or whatever else its route counts by, asks faster than that lets through.
    RateLimited = "rate-limited",

    // Its way.

    /// The origin refused the client who asked: what is stored stays.
    Refused = "refused",
    /// A response to such a request was not storable a moment ago, so it did not wait for others.
    HitForMiss = "hit-for-miss",
    /// It has fields that no fetch for everyone sends, and what came without them was not to be shared.
    Withheld = "withheld",
    /// The route makes every miss a request of its own.
    CollapseOff = "collapse-off",
    /// It could not share the answer that it waited for.
    Uncollapsed = "uncollapsed",

    // The response was not stored.

    /// The response is for one user.
    Private = "private",
    /// It sets a cookie.
    SetCookie = "set-cookie",
    /// `Vary: *`, or something in `Vary` that is no field name.
    VaryAny = "vary-any",
    /// A status that is stored with explicit freshness only, or one that is not understood.
    Status = "status",
    /// A part, or a confirmation, where a whole response was wanted.
    Partial = "partial",
    /// It could never be used: no freshness, no stale window, nothing to validate it with.
    NoLifetime = "no-lifetime",
    /// The operator's `status_ttl` for this status is 0.
    StatusTtl = "status-ttl",
    /// It has more tags than are kept of one response.
    TooManyTags = "too-many-tags",
    /// It is too large to be kept, or was a moment ago.
    TooLarge = "too-large",
    /// The request passes by the cache, and so does its response.
    Request = "request",

    // The origin failed; on a hit, a stale response was served instead.

    /// There was no connection.
    OriginUnreachable = "origin-unreachable",
    /// There was no answer in time.
    OriginTimeout = "origin-timeout",
    /// There was no answer in the time that visitors give it; the request goes on.
    OriginSlow = "origin-slow",
    /// The connection was closed before the answer.
    OriginDisconnected = "origin-disconnected",
    /// The answer is not proper HTTP.
    OriginMalformed = "origin-malformed",
    /// It answered with an error of its own: 500, 502, 503 or 504.
    OriginError = "origin-error",
    /// As many requests as allowed were with it, and the queue was full or too slow.
    OriginBusy = "origin-busy",
    /// As many requests as allowed waited for a fetch, or were fetches that others could wait for, and its address
    /// had most of them.
    TooManyWait = "too-many-wait",
    /// As many tunnels and event streams as allowed were open.
    TooManyTunnels = "too-many-tunnels",

    // Something else.

    /// A page that the application itself has put into the memcached pool.
    MemcachedPage = "memcached-page",
    /// The client's body was malformed or did not arrive.
    RequestBody = "request-body",
    /// The fetch ended without an answer.
    FetchAbandoned = "fetch-abandoned",
    /// A fault of ours in this one request.
    InternalError = "internal-error",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::syntax::is_token;

    #[test]
    fn each_is_a_token_of_its_own() {
        let tokens: BTreeSet<_> = Detail::ALL.iter().map(|one| one.as_str()).collect();
        assert_eq!(tokens.len(), Detail::ALL.len());
        for token in tokens {
            let letters = token.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            assert!(letters && is_token(token.as_bytes()), "{token}");
        }
    }
}

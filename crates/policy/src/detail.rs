//! The reasons in the `detail` parameter of `Cache-Status` (RFC 9211 §2.8).

/// Defines the reasons with their tokens, so that [`Detail::ALL`] is complete.
macro_rules! details {
    ($($(#[doc = $meaning:literal])+ $name:ident = $token:literal,)+) => {
        /// The reason for the handling of a request. docs/caching-rules.md has a row for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Detail {
            $($(#[doc = $meaning])+ $name,)+
            /// Found in this tier, not in memory. The name is a token.
            Tier(&'static str),
        }

        impl Detail {
            /// Every reason but [`Detail::Tier`].
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The value of the parameter: always a token.
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
    // Requests.

    /// The method is neither GET nor HEAD.
    Method = "method",
    /// A GET with a body: the response may depend on it.
    Body = "body",
    /// The path can be read as one of another route.
    AmbiguousPath = "ambiguous-path",
    /// The user context of the request's credentials is unknown.
    UserContext = "user-context",
    /// The request asks to switch protocols.
    Upgrade = "upgrade",
    /// The request accepts an event stream, or the response is one: it has no end.
    EventStream = "event-stream",
    /// `Connection` names fields that are removed, so the origin would see another request than the one looked up.
    Connection = "connection",
    /// The request asks for a fragment of the page, by a field such as `HX-Request` that is not part of the key.
    Fragment = "fragment",
    /// The fields that a shared fetch would send are longer than those of any browser.
    LongFields = "long-fields",
    /// `no-store` in the request or the response.
    NoStore = "no-store",
    /// The request has credentials, and the response is not marked as shareable.
    Credentials = "credentials",
    /// `only-if-cached` in the request, and no usable response is stored.
    OnlyIfCached = "only-if-cached",
    /// `Max-Forwards` is zero.
    MaxForwards = "max-forwards",
    /// A purge request, as sent by plugins.
    Purge = "purge",
    /// A forwarding loop: the request was sent by this proxy.
    Loop = "loop",
    /// The request is malformed.
    BadRequest = "bad-request",
    /// The rate limit of the route is exceeded for the client, or for another key of that limit.
    RateLimited = "rate-limited",
    /// The request is a prefetch, and nothing stored answers it on a route with `prefetch = "hits"`.
    Prefetch = "prefetch",
    /// The route does not admit the client.
    AccessDenied = "access-denied",
    /// The route requires a client certificate that this connection lacks.
    CertificateRequired = "certificate-required",
    /// The server is in maintenance mode.
    Maintenance = "maintenance",
    /// The request has no valid credentials for the route.
    AuthenticationRequired = "authentication-required",
    /// Too many requests wait for authentication.
    AuthenticationBusy = "authentication-busy",
    /// The route redirects.
    Redirect = "redirect",
    /// The route has a response of its own.
    Respond = "respond",
    /// The authentication server has not decided about the request.
    AuthenticationUnavailable = "authentication-unavailable",
    /// A fragment of the page failed, on a route with `edge_strict`.
    FragmentFailed = "fragment-failed",

    // Forwarding.

    /// The origin refused this client's request (401, 403, …); the stored response stays.
    Refused = "refused",
    /// A recent response for the same key was not storable, so the request was not coalesced.
    HitForMiss = "hit-for-miss",
    /// The request has fields that shared fetches withhold, and the response without them was not shareable.
    Withheld = "withheld",
    /// Coalescing is off on this route.
    CollapseOff = "collapse-off",
    /// The response that it waited for could not be shared.
    Uncollapsed = "uncollapsed",

    // Responses that are not stored.

    /// `private`: the response is for one user.
    Private = "private",
    /// The response has `Set-Cookie`.
    SetCookie = "set-cookie",
    /// `Vary: *`, or an invalid field name in `Vary`.
    VaryAny = "vary-any",
    /// The status requires explicit freshness to be stored, or is not understood.
    Status = "status",
    /// A 206 or a 304 where a complete response was requested.
    Partial = "partial",
    /// The response could never be reused: no freshness lifetime, no stale window, no validator.
    NoLifetime = "no-lifetime",
    /// The route's `status_ttl` for this status is 0.
    StatusTtl = "status-ttl",
    /// The response has more tags than the limit. It is stored, and every purge by tag removes it.
    TooManyTags = "too-many-tags",
    /// The response has a token for one visitor, and only `anonymous_ttl` would permit storing it.
    FormToken = "form-token",
    /// The response is above the size limit, or a recent one for the same key was.
    TooLarge = "too-large",
    /// The request bypassed the cache, so its response is not stored.
    Request = "request",

    // Failures of the origin; on a hit, a stale response was served instead.

    /// Connecting failed.
    OriginUnreachable = "origin-unreachable",
    /// The response did not begin within the timeout.
    OriginTimeout = "origin-timeout",
    /// The response did not begin within the time that a visitor waits; the fetch continues.
    OriginSlow = "origin-slow",
    /// The connection was closed before the response.
    OriginDisconnected = "origin-disconnected",
    /// The response is not valid HTTP.
    OriginMalformed = "origin-malformed",
    /// The origin responded with 500, 502, 503 or 504.
    OriginError = "origin-error",
    /// The concurrency limit of the origin was reached, and the queue was full or its timeout expired.
    OriginBusy = "origin-busy",
    /// The limit of waiting or shared fetches was reached, and this client's address had most of them.
    TooManyWait = "too-many-wait",
    /// The limit of tunnels and event streams was reached.
    TooManyTunnels = "too-many-tunnels",

    // Others.

    /// A page that the application has written to the memcached pool itself.
    MemcachedPage = "memcached-page",
    /// The request body was malformed or incomplete.
    RequestBody = "request-body",
    /// The fetch ended without a response.
    FetchAbandoned = "fetch-abandoned",
    /// An internal error in this request.
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

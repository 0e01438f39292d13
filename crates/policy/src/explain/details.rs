//! Explanations of every `detail` of `Cache-Status`.

use super::Explanation;
use crate::detail::Detail;
use crate::request::PassReason;
use crate::storable::NotStorable;

impl Detail {
    /// The explanation of this reason. `no-store` and `event-stream` occur for requests and for responses: see
    /// [`PassReason::explanation`] and [`NotStorable::explanation`].
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Method => PassReason::Method.explanation(),
            Self::Body => PassReason::Body.explanation(),
            Self::AmbiguousPath => AMBIGUOUS_PATH,
            Self::UserContext => USER_CONTEXT,
            Self::Upgrade => PassReason::Upgrade.explanation(),
            Self::EventStream => EVENT_STREAM,
            Self::Connection => PassReason::Connection.explanation(),
            Self::Fragment => PassReason::Fragment.explanation(),
            Self::LongFields => PassReason::LongFields.explanation(),
            Self::NoStore => NO_STORE,
            Self::Credentials => NotStorable::Credentials.explanation(),
            Self::OnlyIfCached => ONLY_IF_CACHED,
            Self::MaxForwards => MAX_FORWARDS,
            Self::Purge => PURGE,
            Self::Loop => LOOP,
            Self::BadRequest => BAD_REQUEST,
            Self::RateLimited => RATE_LIMITED,
            Self::Prefetch => PREFETCH,
            Self::AccessDenied => ACCESS_DENIED,
            Self::CertificateRequired => CERTIFICATE_REQUIRED,
            Self::Maintenance => MAINTENANCE,
            Self::AuthenticationRequired => AUTHENTICATION_REQUIRED,
            Self::AuthenticationBusy => AUTHENTICATION_BUSY,
            Self::Redirect => REDIRECT,
            Self::Respond => RESPOND,
            Self::AuthenticationUnavailable => AUTHENTICATION_UNAVAILABLE,
            Self::FragmentFailed => FRAGMENT_FAILED,
            Self::Refused => REFUSED,
            Self::HitForMiss => HIT_FOR_MISS,
            Self::Withheld => WITHHELD,
            Self::CollapseOff => COLLAPSE_OFF,
            Self::Uncollapsed => UNCOLLAPSED,
            Self::Private => NotStorable::Private.explanation(),
            Self::SetCookie => NotStorable::SetCookie.explanation(),
            Self::VaryAny => NotStorable::VaryAny.explanation(),
            Self::Status => NotStorable::Status.explanation(),
            Self::Partial => NotStorable::Partial.explanation(),
            Self::NoLifetime => NotStorable::NoLifetime.explanation(),
            Self::StatusTtl => NotStorable::StatusTtl.explanation(),
            Self::TooManyTags => TOO_MANY_TAGS,
            Self::FormToken => NotStorable::FormToken.explanation(),
            Self::TooLarge => TOO_LARGE,
            Self::Request => NotStorable::Request.explanation(),
            Self::OriginUnreachable => ORIGIN_UNREACHABLE,
            Self::OriginTimeout => ORIGIN_TIMEOUT,
            Self::OriginSlow => ORIGIN_SLOW,
            Self::OriginDisconnected => ORIGIN_DISCONNECTED,
            Self::OriginMalformed => ORIGIN_MALFORMED,
            Self::OriginError => ORIGIN_ERROR,
            Self::OriginBusy => ORIGIN_BUSY,
            Self::TooManyWait => TOO_MANY_WAIT,
            Self::TooManyTunnels => TOO_MANY_TUNNELS,
            Self::MemcachedPage => MEMCACHED_PAGE,
            Self::RequestBody => REQUEST_BODY,
            Self::FetchAbandoned => FETCH_ABANDONED,
            Self::InternalError => INTERNAL_ERROR,
            Self::Tier(_) => TIER,
        }
    }
}

const AMBIGUOUS_PATH: Explanation = Explanation::of(
    "the path is ambiguous (decoded, with `..` resolved, or without `;` and what follows), and another reading of \
     it matches another route",
)
.by("RFC 3986 §6.2.2")
.unless("request the decoded and resolved path");

const USER_CONTEXT: Explanation = Explanation::of(
    "the request has credentials on a route with `user_context`, and the application has given no hash for them",
)
.unless("check that the application answers the `url` of `user_context` with `X-User-Context-Hash`");

const NO_STORE: Explanation =
    Explanation::of("`no-store` in the request or the response forbids storing")
        .by("RFC 9111 §5.2.2.5")
        .unless("remove `no-store` from that `Cache-Control`");

const EVENT_STREAM: Explanation = Explanation::of(
    "the request accepts `text/event-stream`, or the response is an event stream, which has no end",
)
.unless("remove `text/event-stream` from `Accept`, or send another `Content-Type`");

const TOO_MANY_TAGS: Explanation = Explanation::of(
    "the response has more than 4,096 tags, or one longer than 1 KiB, so it is stored, and every purge by tag removes it",
)
.unless("have the application send fewer tags, such as one for the list instead of one for each of its items");

const WITHHELD: Explanation = Explanation::of(
    "the request has fields that a shared fetch omits, and a recent response without them was not shareable, so \
     the request is sent complete and not coalesced",
)
.unless(
    "add the field that selects the page to `key.headers` on the route, or have the application list it in `Vary`",
);

const ONLY_IF_CACHED: Explanation =
    Explanation::of("the request has `only-if-cached`, and nothing usable is stored")
        .by("RFC 9111 §5.2.1.7")
        .unless("remove `only-if-cached` from `Cache-Control` of the request");

const MAX_FORWARDS: Explanation =
    Explanation::of("`Max-Forwards` is 0, so the request is not forwarded")
        .by("RFC 9110 §7.6.2")
        .unless("omit `Max-Forwards`, or send a larger number");

const PURGE: Explanation =
    Explanation::of("the request is a purge, as application plugins send it, and is not forwarded")
        .unless("remove `purge_from`, or `purge_path` for a GET, if the application should receive such requests");

const LOOP: Explanation = Explanation::of(
    "the request was forwarded by this server and came back: an origin address leads to this server",
)
.by("RFC 9110 §7.6.3")
.unless(
    "set the servers of the group to the application, not to this server or a proxy in front of it",
);

const BAD_REQUEST: Explanation =
    Explanation::of("the request is malformed and is rejected by the parser")
        .by("RFC 9112 §3")
        .unless("send a request that conforms to the RFC");

const MAINTENANCE: Explanation = Explanation::of("the server is in maintenance mode")
    .unless("run `microcache maintenance off`, or list the client in `maintenance_allow`");

const RATE_LIMITED: Explanation = Explanation::of("the rate limit of the route is exceeded")
    .by("RFC 6585 §4")
    .unless("wait as long as `Retry-After` says, or raise `rate` or `burst` of the route");

const PREFETCH: Explanation = Explanation::of(
    "the request is a prefetch (`Sec-Purpose`), nothing stored answers it, and the route has `prefetch = \"hits\"`",
)
.unless("set prefetch = \"all\" on the route; a visitor who follows the link is not affected");

const ACCESS_DENIED: Explanation =
    Explanation::of("`deny` of the route has the client's address, or `allow` does not")
        .by("RFC 9110 §15.5.4")
        .unless("change `allow` or `deny`; behind a proxy, add it to `trusted_proxies`");

const CERTIFICATE_REQUIRED: Explanation = Explanation::of(
    "`client_certificate` of the route requires a certificate that the connection does not have",
)
.by("RFC 9110 §15.5.4")
.unless("connect by TLS with a certificate of `client_ca`; a simulated request has none");

const AUTHENTICATION_REQUIRED: Explanation =
    Explanation::of("the route requires authentication, and the request has no valid credentials")
        .by("RFC 9110 §15.5.2")
        .unless("send valid credentials, or set `basic_auth = \"off\"` on the route");

const AUTHENTICATION_BUSY: Explanation =
    Explanation::of("too many requests wait for authentication").by("RFC 9110 §11.4");

const REDIRECT: Explanation =
    Explanation::of("the route redirects").unless("change `redirect` of the route");

const RESPOND: Explanation =
    Explanation::of("the route has a response of its own").unless("change `respond` of the route");

const AUTHENTICATION_UNAVAILABLE: Explanation =
    Explanation::of("the authentication server of the route failed, or was too slow")
        .by("RFC 9110 §15.6.4")
        .unless("check the server that `forward_auth` names, or raise its `timeout`");

const FRAGMENT_FAILED: Explanation =
    Explanation::of("a fragment of the page failed, and the route has `edge_strict`")
        .unless("see the log for the fragment, or set edge_strict = false");

const REFUSED: Explanation = Explanation::of(
            "the origin rejected this client (4xx other than 404 and 410), which does not apply to other clients",
        )
        .by("RFC 9111 §4.3.3")
        .unless("check why the application rejects this request");

const HIT_FOR_MISS: Explanation = Explanation::of(
    "a recent response to such a request was not storable, so requests are not coalesced",
)
.unless(
    "`microcache explain --fetch` shows the reason; `hit_for_miss` sets how long it is remembered",
);

const COLLAPSE_OFF: Explanation =
    Explanation::of("the route has `collapse = false`: every miss is a separate origin request")
        .unless("remove `collapse = false` from the route");

const UNCOLLAPSED: Explanation = Explanation::of(
    "the request waited for another request's fetch, whose response could not be shared",
);

const TOO_MANY_WAIT: Explanation = Explanation::of(
    "the limit of waiting requests was reached, and no address had more of them than this client's",
)
.unless(
    "raise `max_waiters` or `max_fetches`; if many clients share the address of a proxy, add the proxy to \
     `trusted_proxies`",
);

const TOO_LARGE: Explanation =
    Explanation::of("the body exceeds the size limit of stored responses, or did so recently")
        .unless("raise `max_object` on the route, and `memory` or `disk` if necessary");

const MEMCACHED_PAGE: Explanation =
    Explanation::of("the application itself stored the page in the memcached pool");

const TIER: Explanation = Explanation::of("the response was not in memory, but in a tier");

const REQUEST_BODY: Explanation =
    Explanation::of("the request content was malformed or did not arrive")
        .by("RFC 9112 §8")
        .unless("check what the client sends; `client_body_rate` sets the minimum rate");

const FETCH_ABANDONED: Explanation = Explanation::of("the fetch ended without a response")
    .unless("retry; if it persists, see the error log");

const INTERNAL_ERROR: Explanation =
    Explanation::of("an internal error of the cache affected this request")
        .unless("report it with the message in the error log");

const ORIGIN_TIMEOUT: Explanation = Explanation::of("the origin did not respond in time")
    .by("RFC 5861 §4")
    .unless("check why the application is slow, or raise `first_byte_timeout`");

const ORIGIN_SLOW: Explanation = Explanation::of(
            "the origin did not respond within `stale_wait`, so the stored response is served while the fetch \
             continues",
        )
        .by("RFC 9111 §4.2.4")
        .unless("check why the application is slow, or raise `stale_wait`");

const ORIGIN_DISCONNECTED: Explanation =
    Explanation::of("the origin closed the connection without a response")
        .by("RFC 5861 §4")
        .unless("check the log of the application");

const ORIGIN_MALFORMED: Explanation = Explanation::of("the response from the origin is malformed")
    .by("RFC 9112 §4")
    .unless("fix the application; the error log shows what is malformed");

const ORIGIN_ERROR: Explanation =
    Explanation::of("the origin answered with an error: 500, 502, 503 or 504")
        .by("RFC 5861 §4")
        .unless("check the log of the application");

const TOO_MANY_TUNNELS: Explanation =
    Explanation::of("the limit of open tunnels and event streams was reached")
        .unless("raise `max_tunnels`");

const ORIGIN_BUSY: Explanation = Explanation::of(
    "the limit of concurrent origin requests was reached, and the queue was full or timed out",
)
.unless("raise `max_concurrent` of the group if the application can handle more, or `max_queue`");

const ORIGIN_UNREACHABLE: Explanation = Explanation::of(
    "no server of the origin group accepted a connection",
)
.by("RFC 5861 §4")
.unless(
    "check that the application runs at the address in `origin`; `microcache stats` shows its servers",
);

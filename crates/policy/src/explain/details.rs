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
            Self::TooManyTags => NotStorable::TooManyTags.explanation(),
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
    "programs read its path in more than one way (decoded, with `..` resolved, without `;` and what follows), and \
     another reading takes another route",
)
.by("RFC 3986 §6.2.2")
.unless("ask for the path as it is when it is decoded and resolved");

const NO_STORE: Explanation = Explanation::of(
    "`no-store` was said, by the client in the request or by the origin in the response",
)
.by("RFC 9111 §5.2.2.5")
.unless("leave `no-store` out of that `Cache-Control`");

const EVENT_STREAM: Explanation = Explanation::of(
    "the request accepts `text/event-stream`, or the response is one: it has no end",
)
.unless("leave `text/event-stream` out of `Accept`, or send another `Content-Type`");

const WITHHELD: Explanation = Explanation::of(
    "the request has fields that a fetch for everyone does not send, and what the origin answered without them a \
     moment ago was not to be shared, so it was sent whole and alone",
)
.unless(
    "name the field that selects the page in `key.headers` on the route, or have the application name it in `Vary`",
);

const ONLY_IF_CACHED: Explanation = Explanation::of(
    "the client wants no answer from the origin (`only-if-cached`), and nothing usable is stored",
)
.by("RFC 9111 §5.2.1.7")
.unless("leave `only-if-cached` out of the request's `Cache-Control`");

const MAX_FORWARDS: Explanation =
    Explanation::of("`Max-Forwards` says that it goes no further than here")
        .by("RFC 9110 §7.6.2")
        .unless("leave `Max-Forwards` out, or count from a larger number");

const PURGE: Explanation =
    Explanation::of("it is a purge, as plugins of applications send them, and goes no further")
        .unless("leave `purge_from` out, if the application is to get such requests");

const LOOP: Explanation = Explanation::of(
    "it was sent from here and came back: an origin leads to this server",
)
.by("RFC 9110 §7.6.3")
.unless(
    "give the group servers that are the application, and not this server or one in front of it",
);

const BAD_REQUEST: Explanation =
    Explanation::of("it is no proper HTTP and is refused before anybody looks at it")
        .by("RFC 9112 §3")
        .unless("send it as the RFC has it");

const RATE_LIMITED: Explanation =
    Explanation::of("as many requests as the route lets through in a while have been made")
        .by("RFC 6585 §4")
        .unless("wait as long as `Retry-After` says, or raise `rate` or `burst` of the route");

const REFUSED: Explanation = Explanation::of(
            "the origin refused the client (4xx, but for 404 and 410), which says nothing of what others get",
        )
        .by("RFC 9111 §4.3.3")
        .unless("see in the application why it refuses this request");

const HIT_FOR_MISS: Explanation = Explanation::of(
            "the response to such a request was not to be stored a moment ago, so nobody waits for somebody \
             else's",
        )
        .unless("`microcache explain --fetch` says why it was not; `hit_for_miss` is how long that is remembered");

const COLLAPSE_OFF: Explanation =
    Explanation::of("the route has `collapse = false`: every miss is a request of its own")
        .unless("leave `collapse = false` out of the route");

const UNCOLLAPSED: Explanation =
    Explanation::of("it waited for somebody else's fetch and could not share the answer");

const TOO_MANY_WAIT: Explanation = Explanation::of(
    "as many requests as allowed waited, and no address had more of them than this client's",
)
.unless(
    "raise `max_waiters` or `max_fetches`; where many clients come through one address, name the proxy there in `trusted_proxies`",
);

const TOO_LARGE: Explanation =
    Explanation::of("the body is larger than is kept, or was a moment ago")
        .unless("raise `max_object` on the route, and `memory` or `disk` if it has to fit there");

const MEMCACHED_PAGE: Explanation =
    Explanation::of("the application itself has put the page into the memcached pool");

const TIER: Explanation = Explanation::of("it was not in memory, but in a tier behind it");

const REQUEST_BODY: Explanation =
    Explanation::of("the client's body was malformed or did not arrive")
        .by("RFC 9112 §8")
        .unless("see what the client sends; `client_body_rate` says how slowly it may");

const FETCH_ABANDONED: Explanation = Explanation::of("the fetch ended without an answer")
    .unless("ask again; the log of errors has more, if it goes on");

const INTERNAL_ERROR: Explanation =
    Explanation::of("there was a fault of this cache's in this one request")
        .unless("report it, with what the log of errors says");

const ORIGIN_TIMEOUT: Explanation = Explanation::of("the origin did not answer in time")
    .by("RFC 5861 §4")
    .unless("see why the application is slow, or raise `first_byte_timeout`");

const ORIGIN_SLOW: Explanation = Explanation::of(
            "the origin did not answer in the time that visitors give it where there is a stored response; the \
             request goes on",
        )
        .by("RFC 9111 §4.2.4")
        .unless("see why the application is slow, or raise `stale_wait`");

const ORIGIN_DISCONNECTED: Explanation =
    Explanation::of("the origin closed the connection before it had answered")
        .by("RFC 5861 §4")
        .unless("see in the application's log why it does");

const ORIGIN_MALFORMED: Explanation = Explanation::of("what the origin answered is no proper HTTP")
    .by("RFC 9112 §4")
    .unless("have the application answer as the RFC has it; the log of errors says what is wrong");

const ORIGIN_ERROR: Explanation =
    Explanation::of("the origin answered with an error of its own: 500, 502, 503 or 504")
        .by("RFC 5861 §4")
        .unless("see in the application's log why it fails");

const TOO_MANY_TUNNELS: Explanation =
    Explanation::of("as many tunnels and event streams as allowed were open")
        .unless("raise `max_tunnels`");

const ORIGIN_BUSY: Explanation = Explanation::of(
            "as many requests as allowed were with the origin, and the queue before it was full or too slow",
        )
        .unless("raise `max_concurrent` of the group if the application can take more, or its `max_queue`");

const ORIGIN_UNREACHABLE: Explanation = Explanation::of(
    "no server of the group could be connected to",
)
.by("RFC 5861 §4")
.unless(
    "see whether the application runs where `origin` says; `microcache stats` shows its servers",
);

//! The sources of the lifetime of a response.

use super::Explanation;
use crate::freshness::{self, Freshness, LifetimeSource, ReceivedResponse};
use crate::request::RequestFacts;
use crate::response::ResponseFacts;
use crate::storable::{Storable, storable};
use crate::time::{Millis, Times};

impl LifetimeSource {
    /// Every source, by precedence.
    pub const ALL: [Self; 8] = [
        Self::AnonymousTtl,
        Self::ForcedTtl,
        Self::SMaxage,
        Self::MaxAge,
        Self::Expires,
        Self::StatusTtl,
        Self::Heuristic,
        Self::Ttl,
    ];

    /// The name in JSON and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AnonymousTtl => "anonymous_ttl",
            Self::ForcedTtl => "forced_ttl",
            Self::SMaxage => "s-maxage",
            Self::MaxAge => "max-age",
            Self::Expires => "Expires",
            Self::StatusTtl => "status_ttl",
            Self::Heuristic => "heuristic",
            Self::Ttl => "ttl",
        }
    }

    /// The reason that this source counts, and the change that leads to another lifetime.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::AnonymousTtl => Explanation::of(
                "`anonymous_ttl` of the route, or `status_ttl` for this status, overrides the response for requests \
                 without credentials",
            )
            .unless("change `anonymous_ttl` on the route, or have the application send `no-store`, which it obeys"),
            Self::ForcedTtl => Explanation::of(
                "`forced_ttl` of the route overrides the lifetime in the response",
            )
            .unless("change `forced_ttl` on the route, or remove it to use the lifetime in the response"),
            Self::SMaxage => Explanation::of("the response has an explicit lifetime for shared caches (`s-maxage`)")
                .by("RFC 9111 §5.2.2.10")
                .unless("have the application send another `s-maxage`"),
            Self::MaxAge => Explanation::of("the response has an explicit lifetime (`max-age`)")
                .by("RFC 9111 §5.2.2.1")
                .unless(
                    "have the application send another `max-age`, or `s-maxage`, which applies to shared caches only",
                ),
            Self::Expires => {
                Explanation::of("the response has an explicit lifetime (from `Date` to `Expires`)")
                    .by("RFC 9111 §5.3")
                    .unless("have the application send `Cache-Control: max-age=`, which takes precedence over \
                             `Expires`")
            }
            Self::StatusTtl => Explanation::of(
                "the response has no explicit lifetime, and `status_ttl` of the route sets one for this status",
            )
            .unless("change `status_ttl` on the route, or have the application send `max-age`"),
            Self::Heuristic => Explanation::of(
                "the response has no explicit lifetime, and `heuristic` of the route sets a share of the time \
                 since `Last-Modified`",
            )
            .by("RFC 9111 §4.2.2")
            .unless("have the application send `max-age`"),
            Self::Ttl => Explanation::of("the response has no explicit lifetime, and `ttl` of the route sets the \
             default")
                .by("RFC 9111 §4.2.2")
                .unless("have the application send `max-age`, or change `ttl` on the route"),
        }
    }
}

/// The source of a stale-while-revalidate window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleWindowSource {
    /// `stale-while-revalidate` of the response (RFC 5861 §3).
    Response,
    /// The route's `stale_while_revalidate`.
    Route,
    /// `must-revalidate`, `proxy-revalidate` or `s-maxage`, which forbid it (RFC 9111 §4.2.4).
    Forbidden,
    /// An explicit lifetime of zero, for which the route's default does not apply.
    Zero,
}

impl StaleWindowSource {
    /// The reason that the window has this length, in milliseconds, and the change that leads to another.
    pub const fn explanation(self, window: Millis) -> Explanation {
        match (self, window) {
            (Self::Response, 0) => {
                Explanation::of("`stale-while-revalidate` in the response is 0 or invalid")
                    .by("RFC 5861 §3")
            }
            (Self::Route, 0) => Explanation::of("`stale_while_revalidate` of the route is 0"),
            (Self::Forbidden, 0) => Explanation::of(
                "`must-revalidate`, `proxy-revalidate` and `s-maxage` forbid stale responses",
            )
            .by("RFC 9111 §4.2.4")
            .unless("have the application send `max-age` only, if a stale page does no harm"),
            (Self::Zero, 0) => {
                Explanation::of("an explicit lifetime of zero requires validation before reuse")
                    .by("RFC 9111 §4.2.1")
                    .unless(
                        "have the application send `stale-while-revalidate`, or a longer `max-age`",
                    )
            }
            (Self::Response, _) => {
                Explanation::of("the response has `stale-while-revalidate`").by("RFC 5861 §3")
            }
            // A response that was stored under other rules may have a window where the rules of today allow none.
            (Self::Route | Self::Forbidden | Self::Zero, _) => {
                Explanation::of("`stale_while_revalidate` of the route applies")
                    .by("RFC 9111 §4.2.4")
            }
        }
    }
}

/// The decision on storing a response together with the facts behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseExplanation {
    /// The decision on storing it.
    pub verdict: Storable,
    /// The source of its freshness lifetime. `None` without one, if the status allows no heuristic.
    pub source: Option<LifetimeSource>,
    /// The freshness lifetime in milliseconds.
    pub fresh_for: Millis,
    /// The directives come from a targeted field (RFC 9213), so `Cache-Control` and `Expires` are ignored.
    pub is_targeted: bool,
    /// The source of its stale-while-revalidate window.
    pub window_source: StaleWindowSource,
    /// It must be validated before every use (`no-cache`).
    pub must_validate: bool,
    /// It has a validator.
    pub has_validator: bool,
}

impl ResponseExplanation {
    /// Explains the response to a request, with the origin's fields or the stored ones.
    pub fn of(
        request: &RequestFacts,
        status: u16,
        response: &ResponseFacts<'_>,
        times: Times,
    ) -> Self {
        let arrived = ReceivedResponse::new(request, response, status, times);
        let (freshness, source) = arrived.decided();
        let directives = &arrived.directives;
        let windows = freshness::windows(directives, freshness, response.rules);
        Self {
            verdict: storable(request, status, response, times),
            source,
            fresh_for: match freshness {
                Freshness::Explicit(span) | Freshness::Heuristic(span) => span,
                Freshness::Operator(span) => arrived.operators(span),
                Freshness::Unknown => 0,
            },
            is_targeted: response.is_targeted,
            window_source: if freshness::is_never_stale(directives) {
                StaleWindowSource::Forbidden
            } else if directives.stale_while_revalidate.is_some() {
                StaleWindowSource::Response
            } else if windows.operators || response.rules.stale_while_revalidate == 0 {
                StaleWindowSource::Route
            } else {
                StaleWindowSource::Zero
            },
            must_validate: arrived.must_be_validated(),
            has_validator: response.has_validator(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;
    use crate::testing::{RECEIVED, fields, get};

    fn account(rules: &Rules, status: u16, response: &str) -> ResponseExplanation {
        let (request, response) = (fields(""), fields(response));
        let facts = get(&request, rules);
        let read = ResponseFacts::read(response.fields(), rules);
        ResponseExplanation::of(&facts, status, &read, Times::at(RECEIVED))
    }

    #[test]
    fn the_source_of_the_lifetime_is_explained() {
        let plain = Rules::default();
        let heuristic = Rules {
            heuristic: Some(10),
            ..Rules::default()
        };
        let by_status = Rules {
            status_ttl: vec![(404, 300)],
            ..Rules::default()
        };
        let forced = Rules {
            forced_ttl: Some(7_000),
            ..Rules::default()
        };
        let modified = "Last-Modified: Sun, 06 Nov 1994 07:09:37 GMT";
        for (rules, status, response, source, fresh_for) in [
            (&plain, 200, "", Some(LifetimeSource::Ttl), 1_000),
            (&plain, 404, "", Some(LifetimeSource::Ttl), 1_000),
            (&plain, 500, "", None, 0),
            (
                &plain,
                500,
                "Cache-Control: max-age=5",
                Some(LifetimeSource::MaxAge),
                5_000,
            ),
            (
                &plain,
                200,
                "Cache-Control: max-age=5, s-maxage=6",
                Some(LifetimeSource::SMaxage),
                6_000,
            ),
            (
                &plain,
                200,
                "Cache-Control: max-age=5\nExpires: 0",
                Some(LifetimeSource::MaxAge),
                5_000,
            ),
            (
                &plain,
                200,
                "Expires: Sun, 06 Nov 1994 08:50:37 GMT",
                Some(LifetimeSource::Expires),
                60_000,
            ),
            (&plain, 200, "Expires: 0", Some(LifetimeSource::Expires), 0),
            (&plain, 200, modified, Some(LifetimeSource::Ttl), 1_000),
            (
                &heuristic,
                200,
                modified,
                Some(LifetimeSource::Heuristic),
                600_000,
            ),
            (&heuristic, 200, "", Some(LifetimeSource::Ttl), 1_000),
            (&by_status, 404, "", Some(LifetimeSource::StatusTtl), 300),
            (
                &by_status,
                404,
                "Expires: 0",
                Some(LifetimeSource::Expires),
                0,
            ),
            (
                &forced,
                200,
                "Cache-Control: max-age=5",
                Some(LifetimeSource::ForcedTtl),
                7_000,
            ),
            (&forced, 500, "", None, 0),
        ] {
            let account = account(rules, status, response);
            assert_eq!(
                (account.source, account.fresh_for),
                (source, fresh_for),
                "{status} {response}"
            );
            assert!(!account.is_targeted);
        }
        let targeted = account(
            &plain,
            200,
            "CDN-Cache-Control: max-age=9\nCache-Control: no-store",
        );
        assert_eq!(
            (targeted.source, targeted.is_targeted),
            (Some(LifetimeSource::MaxAge), true)
        );
    }

    #[test]
    fn the_source_of_the_stale_window_is_explained() {
        for (response, expected) in [
            ("", StaleWindowSource::Route),
            ("Cache-Control: max-age=5", StaleWindowSource::Route),
            (
                "Cache-Control: max-age=5, stale-while-revalidate=9",
                StaleWindowSource::Response,
            ),
            (
                "Cache-Control: max-age=0, stale-while-revalidate=9",
                StaleWindowSource::Response,
            ),
            ("Cache-Control: max-age=0", StaleWindowSource::Zero),
            (
                "Cache-Control: s-maxage=5, stale-while-revalidate=9",
                StaleWindowSource::Forbidden,
            ),
            (
                "Cache-Control: max-age=5, must-revalidate",
                StaleWindowSource::Forbidden,
            ),
        ] {
            let account = account(&Rules::default(), 200, &format!("{response}\nETag: \"a\""));
            assert_eq!(account.window_source, expected, "{response}");
        }
    }
}

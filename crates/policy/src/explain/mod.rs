//! Explanations of decisions for people: the reason, the section that it comes from, and the setting to change.
//!
//! An explanation is a function of the decision alone, so it cannot disagree with it. [`ResponseExplanation`]
//! explains the storing and lifetime of a response.

mod compression;
mod details;
mod response;
mod span;

pub use response::{ResponseExplanation, StaleWindowSource};
pub use span::span;

pub use crate::freshness::LifetimeSource;

use crate::request::{Handling, PassReason};
use crate::reuse::{Reuse, RevalidationReason};
use crate::status::Forward;
use crate::storable::NotStorable;

/// The explanation of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The reason: the middle of a sentence, such as `the response is for one user`.
    pub because: &'static str,
    /// The section that requires it, such as `RFC 9111 §3.5`. `None` for a rule of this cache.
    pub rfc: Option<&'static str>,
    /// The change that leads to another decision; `None` if none is needed.
    pub remedy: Option<&'static str>,
}

impl Explanation {
    /// An explanation without section and remedy.
    pub const fn of(because: &'static str) -> Self {
        Self {
            because,
            rfc: None,
            remedy: None,
        }
    }

    /// Adds the section.
    #[must_use]
    pub const fn by(self, rfc: &'static str) -> Self {
        Self {
            rfc: Some(rfc),
            ..self
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub const fn unless(self, remedy: &'static str) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }
}

impl Handling {
    /// The explanation of this decision.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Cache => Explanation::of("GET or HEAD without content and without credentials")
                .by("RFC 9111 §4"),
            Self::Credentialed => Explanation::of("the request has credentials")
                .by("RFC 9111 §3.5")
                .unless(
                    "if all users get the same response, have the application send `Cache-Control: public, \
                     max-age=60`; list cookies that the application does not read in `ignore_cookies`, and cookies \
                     that select the page in `key.cookies`",
                ),
            Self::Pass(why) => why.explanation(),
        }
    }
}

impl PassReason {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Method => Explanation::of(
                "the cache answers only GET, HEAD, and QUERY with content of a known length up to 64 KiB; other methods may change state",
            )
            .by("RFC 9111 §4")
            .unless("use GET for requests that only read"),
            Self::Body => Explanation::of(
                "the GET request has content, which may select the response and is not part of the cache key",
            )
            .by("RFC 9110 §9.3.1")
            .unless("select the response by the query instead, and send no content"),
            Self::Upgrade => Explanation::of("the request upgrades to another protocol, such as WebSocket")
                .by("RFC 9110 §7.8")
                .unless("omit `Upgrade` if no other protocol is needed"),
            Self::EventStream => {
                Explanation::of("the request accepts `text/event-stream`, and an event stream has no end")
                    .unless("remove `text/event-stream` from `Accept` if no stream is needed")
            }
            Self::Connection => Explanation::of(
                "`Connection` lists fields that are not forwarded, so the origin would answer a different request \
                 than the one looked up",
            )
            .by("RFC 9110 §7.6.1")
            .unless("list only hop-by-hop fields in `Connection`"),
            Self::Fragment => Explanation::of(
                "a field such as `X-Requested-With` or `HX-Request` selects another form of the page, and is \
                 neither in the cache key nor known to be in `Vary` of the URL",
            )
            .unless(
                "add the field to `key.headers` on the route, or have the application list it in `Vary` of the \
                 page too",
            ),
            Self::LongFields => Explanation::of(
                "`Accept`, `Accept-Language` and `User-Agent` together exceed 1 KiB, which is more than any \
                 browser sends",
            )
            .unless("send shorter fields"),
            Self::NoStore => Explanation::of("`no-store` in the request forbids storing")
                .by("RFC 9111 §5.2.1.5")
                .unless("remove `no-store` from `Cache-Control` of the request"),
        }
    }
}

impl NotStorable {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Request => {
                Explanation::of("the request bypasses the cache, and so does its response")
                    .by("RFC 9111 §3")
            }
            Self::Private => Explanation::of("`private` limits the response to a single user")
                .by("RFC 9111 §5.2.2.7")
                .unless(
                    "if all users get the same response, have the application send `Cache-Control: public, \
                     max-age=60` for this page",
                ),
            Self::NoStore => Explanation::of("`no-store` in the response forbids storing")
                .by("RFC 9111 §5.2.2.5")
                .unless(
                    "if all users get the same response, have the application omit `no-store` for this page; to \
                     keep it out of browsers only, it can add `CDN-Cache-Control: max-age=60`, which applies to \
                     visitors with cookies too",
                ),
            Self::SetCookie => Explanation::of(
                "the response sets a cookie, which every client would receive with the stored response",
            )
            .by("RFC 9111 §7.3")
            .unless(
                "have the application set cookies only where they are needed; if this cookie is not personal and \
                 not in `key.cookies`, `set_cookie = \"strip\"` on the route stores the page without it",
            ),
            Self::VaryAny => Explanation::of(
                "`Vary` is `*` or contains an invalid field name, so the requests that the response matches are \
                 unknown",
            )
            .by("RFC 9111 §4.1")
            .unless("have the application list in `Vary` the request fields that select the response"),
            Self::Credentials => Explanation::of(
                "the request is personal (`Authorization`, another identifying field, or a cookie), and the \
                 response is not marked as shareable",
            )
            .by("RFC 9111 §3.5")
            .unless(
                "if all users get the same response, have the application send `Cache-Control: public, \
                 max-age=60`; list cookies that the application does not read in `ignore_cookies`, cookies that \
                 select the page in `key.cookies`, and fields that select it in `key.headers`",
            ),
            Self::EventStream => {
                Explanation::of("the response is an event stream, which has no end")
                    .unless("send another `Content-Type` if it is not an event stream")
            }
            Self::Status => Explanation::of(
                "the status is not cacheable without an explicit lifetime, or is not understood",
            )
            .by("RFC 9111 §3")
            .unless(
                "have the application send `Cache-Control: max-age=` with this status, or add it to `status_ttl` \
                 of the route",
            ),
            Self::Partial => {
                Explanation::of("the origin answered 206 or 304 to a request for the complete response")
                    .by("RFC 9111 §3.3")
                    .unless("have the application answer 206 and 304 only to range and conditional requests")
            }
            Self::NoLifetime => Explanation::of(
                "the response could never be reused: it is not fresh, must not be served stale, and has no validator",
            )
            .by("RFC 9111 §3")
            .unless(
                "have the application send a lifetime (`Cache-Control: max-age=60`), or an `ETag` or `Last-Modified`",
            ),
            Self::StatusTtl => {
                Explanation::of("`status_ttl` of the route is 0 for this status")
                    .unless("change or remove `status_ttl` for this status on the route")
            }
            Self::FormToken => Explanation::of(
                "the response has a token for one visitor (of a form, a nonce, or a field), so `anonymous_ttl` does \
                 not store it",
            )
            .unless("have the application add tokens only to pages with forms, or fetch them by a script"),
        }
    }
}

impl RevalidationReason {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Expired => Explanation::of(
                "the stored response is stale and past its stale window",
            )
            .by("RFC 9111 §4.2.4")
            .unless(
                "use a longer lifetime (`max-age`) or a longer `stale_while_revalidate` to avoid the wait",
            ),
            Self::NoCache => Explanation::of(
                "the origin requires validation before every reuse (`no-cache`), or an unsafe request such as POST \
                 has invalidated the page",
            )
            .by("RFC 9111 §5.2.2.4")
            .unless("have the application send `max-age` instead of `no-cache`"),
            Self::MaxAge => {
                Explanation::of("the stored response is older than `max-age` of the request allows")
                    .by("RFC 9111 §5.2.1.1")
                    .unless("remove `max-age` from `Cache-Control` of the request")
            }
            Self::MinFresh => Explanation::of(
                "the stored response does not stay fresh for as long as `min-fresh` of the request demands",
            )
            .by("RFC 9111 §5.2.1.3")
            .unless("remove `min-fresh` from `Cache-Control` of the request"),
            Self::Reload => Explanation::of(
                "the client reloads (`no-cache` in the request), and the route has `reload = \"honour\"`",
            )
            .by("RFC 9111 §5.2.1.4")
            .unless("set `reload = \"ignore\"` on the route to serve reloads from the cache"),
        }
    }
}

impl Reuse {
    /// The explanation of this decision.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Fresh => Explanation::of("the stored response is fresh").by("RFC 9111 §4.2"),
            Self::Stale => Explanation::of(
                "the stored response is stale, and is served while one background request revalidates it",
            )
            .by("RFC 5861 §3"),
            Self::Revalidate(why) => why.explanation(),
            Self::NotShareable => Explanation::of(
                "the request is personal (`Authorization` or a cookie), and the stored response is not marked as \
                 shareable",
            )
            .by("RFC 9111 §3.5")
            .unless(
                "if all users get the same response, have the application send `Cache-Control: public, \
                 max-age=60`; list cookies that the application does not read in `ignore_cookies`",
            ),
        }
    }
}

impl Forward {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Bypass => Explanation::of("the request bypasses the cache").by("RFC 9211 §2.2"),
            Self::Method => PassReason::Method.explanation(),
            Self::UriMiss | Self::Miss => {
                Explanation::of("nothing usable is stored for its cache key").by("RFC 9111 §4")
            }
            Self::VaryMiss => Explanation::of(
                "responses are stored for its cache key, but only for other values of the fields in `Vary`",
            )
            .by("RFC 9111 §4.1")
            .unless(
                "have the application vary on as few fields as possible; `ignore_vary` on the route omits fields \
                 that do not matter, and `languages` reduces `Accept-Language` to the languages of the site",
            ),
            Self::Request => Explanation::of(
                "the request does not allow the use of a stored response",
            )
            .by("RFC 9111 §4"),
            Self::Stale => Explanation::of("the stored response is stale, or requires validation")
                .by("RFC 9111 §4.2"),
            Self::Partial => {
                Explanation::of("only another part of the response is stored").by("RFC 9111 §3.3")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::SentCoding;
    use crate::detail::Detail;

    const PASSES: [PassReason; 6] = [
        PassReason::Method,
        PassReason::Body,
        PassReason::Upgrade,
        PassReason::EventStream,
        PassReason::Connection,
        PassReason::NoStore,
    ];
    const NOT_STORABLE: [NotStorable; 12] = [
        NotStorable::Request,
        NotStorable::Private,
        NotStorable::NoStore,
        NotStorable::SetCookie,
        NotStorable::VaryAny,
        NotStorable::Credentials,
        NotStorable::EventStream,
        NotStorable::Status,
        NotStorable::Partial,
        NotStorable::NoLifetime,
        NotStorable::StatusTtl,
        NotStorable::FormToken,
    ];
    const REUSES: [Reuse; 8] = [
        Reuse::Fresh,
        Reuse::Stale,
        Reuse::Revalidate(RevalidationReason::Expired),
        Reuse::Revalidate(RevalidationReason::NoCache),
        Reuse::Revalidate(RevalidationReason::MaxAge),
        Reuse::Revalidate(RevalidationReason::MinFresh),
        Reuse::Revalidate(RevalidationReason::Reload),
        Reuse::NotShareable,
    ];
    const FORWARDS: [Forward; 8] = [
        Forward::Bypass,
        Forward::Method,
        Forward::UriMiss,
        Forward::VaryMiss,
        Forward::Miss,
        Forward::Request,
        Forward::Stale,
        Forward::Partial,
    ];

    const STALE_WINDOWS: [StaleWindowSource; 4] = [
        StaleWindowSource::Response,
        StaleWindowSource::Route,
        StaleWindowSource::Forbidden,
        StaleWindowSource::Zero,
    ];

    /// Checks that the reason reads as the middle of a sentence, and the form of section and remedy.
    fn check(what: &str, explanation: Explanation) {
        let is_phrase = |text: &str| {
            let starts = text
                .chars()
                .next()
                .is_some_and(|first| !first.is_uppercase() || text.starts_with("GET"));
            starts
                && text.len() > 10
                && !text.ends_with('.')
                && !text.contains("  ")
                && text.is_ascii()
        };
        assert!(is_phrase(explanation.because), "{what}: {explanation:?}");
        assert!(
            explanation.remedy.is_none_or(is_phrase),
            "{what}: {explanation:?}"
        );
        let is_section = |rfc: &str| {
            let (document, section) = rfc.strip_prefix("RFC ")?.split_once(" §")?;
            let numbers = section
                .split('.')
                .all(|number| number.parse::<u8>().is_ok());
            (document.parse::<u16>().is_ok() && numbers).then_some(())
        };
        let is_known = explanation.rfc.is_none_or(|rfc| is_section(rfc).is_some());
        assert!(is_known, "{what}: {explanation:?}");
    }

    #[test]
    fn every_reason_that_there_is_has_an_explanation() {
        for one in PASSES {
            check(&format!("{one:?}"), one.explanation());
            assert!(one.explanation().remedy.is_some(), "{one:?}");
        }
        for one in NOT_STORABLE {
            check(&format!("{one:?}"), one.explanation());
            let has_remedy = one.explanation().remedy.is_some();
            assert_eq!(has_remedy, one != NotStorable::Request, "{one:?}");
        }
        for one in REUSES {
            check(&format!("{one:?}"), one.explanation());
            let is_good = matches!(one, Reuse::Fresh | Reuse::Stale);
            assert_eq!(one.explanation().remedy.is_none(), is_good, "{one:?}");
        }
        for one in FORWARDS {
            check(&format!("{one:?}"), one.explanation());
        }
        for one in [Handling::Cache, Handling::Credentialed] {
            check(&format!("{one:?}"), one.explanation());
        }
        for one in LifetimeSource::ALL {
            check(&format!("{one:?}"), one.explanation());
        }
        for one in STALE_WINDOWS {
            check(&format!("{one:?}"), one.explanation(0));
            check(&format!("{one:?}"), one.explanation(1));
        }
        for one in SentCoding::ALL {
            check(&format!("{one:?}"), one.explanation());
        }
        for one in Detail::ALL.iter().chain(&[Detail::Tier("disk")]) {
            check(one.as_str(), one.explanation());
        }
    }

    #[test]
    fn a_detail_has_the_explanation_of_its_decision() {
        for one in PASSES {
            let explanation = one.detail().explanation();
            // These two occur for requests and for responses.
            if !matches!(one, PassReason::NoStore | PassReason::EventStream) {
                assert_eq!(explanation, one.explanation(), "{one:?}");
            }
        }
        for one in NOT_STORABLE {
            let explanation = one.detail().explanation();
            if !matches!(one, NotStorable::NoStore | NotStorable::EventStream) {
                assert_eq!(explanation, one.explanation(), "{one:?}");
            }
        }
    }
}

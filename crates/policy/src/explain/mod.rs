//! Explanations of decisions for people: the reason, the section that it comes from, and the setting to change.
//!
//! An explanation is a function of the decision alone, so it cannot disagree with it. [`ResponseExplanation`]
//! explains the storing and lifetime of a response.

mod compression;
mod details;
mod response;

pub use response::{ResponseExplanation, StaleWindowSource};

pub use crate::freshness::LifetimeSource;

use crate::request::PassReason;
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
    pub(crate) const fn of(because: &'static str) -> Self {
        Self {
            because,
            rfc: None,
            remedy: None,
        }
    }

    /// Adds the section.
    pub(crate) const fn by(self, rfc: &'static str) -> Self {
        Self {
            rfc: Some(rfc),
            ..self
        }
    }

    /// Adds the remedy.
    pub(crate) const fn unless(self, remedy: &'static str) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }
}

impl PassReason {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Method => Explanation::of(
                "the method is neither GET nor HEAD, so the request may change something and its answer is the client's alone",
            )
            .by("RFC 9111 §4")
            .unless("use GET for what only reads"),
            Self::Body => Explanation::of(
                "it is a GET with a body: the answer may depend on the body, which is no part of the key",
            )
            .by("RFC 9110 §9.3.1")
            .unless("say in the query what selects the answer, and send no body"),
            Self::Upgrade => Explanation::of("it asks for another protocol, such as WebSocket")
                .by("RFC 9110 §7.8")
                .unless("leave `Upgrade` out, if no other protocol is wanted"),
            Self::EventStream => {
                Explanation::of("it accepts `text/event-stream`, and such a stream has no end")
                    .unless("leave `text/event-stream` out of `Accept`, if no stream is wanted")
            }
            Self::Connection => Explanation::of(
                "its `Connection` field names fields that the origin will not see, so the origin would answer \
                 another request than the one that is looked up",
            )
            .by("RFC 9110 §7.6.1")
            .unless("name nothing in `Connection` but what this connection is about"),
            Self::Fragment => Explanation::of(
                "a field such as `X-Requested-With` or `HX-Request` asks for another form of the page, and is neither \
                 part of the key nor known to be in the url's `Vary`",
            )
            .unless(
                "name the field in `key.headers` on the route, or have the application name it in `Vary` of the page too",
            ),
            Self::LongFields => Explanation::of(
                "its `Accept`, `Accept-Language` and `User-Agent` are longer than any browser's, together more than 1 KiB",
            )
            .unless("send shorter ones"),
            Self::NoStore => Explanation::of("the client asks that nothing of it is stored")
                .by("RFC 9111 §5.2.1.5")
                .unless("leave `no-store` out of the request's `Cache-Control`"),
        }
    }
}

impl NotStorable {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Request => {
                Explanation::of("the request passes by the cache, and so does its response")
                    .by("RFC 9111 §3")
            }
            Self::Private => Explanation::of("`private` says that the response is for one user")
                .by("RFC 9111 §5.2.2.7")
                .unless(
                    "if everybody gets the same, have the application send `Cache-Control: public, max-age=60` \
                     for this page",
                ),
            Self::NoStore => Explanation::of("`no-store` forbids to keep the response")
                .by("RFC 9111 §5.2.2.5")
                .unless(
                    "if everybody gets the same, have the application leave `no-store` out for this page; to keep it from \
                     browsers only, it can add `CDN-Cache-Control: max-age=60`, which counts for visitors with cookies too",
                ),
            Self::SetCookie => Explanation::of(
                "the response sets a cookie, which everybody would get who gets the stored one",
            )
            .by("RFC 9111 §7.3")
            .unless(
                "have the application set cookies only where they are needed; where this one is nobody's own, \
                 and none of `key.cookies`, `set_cookie = \"strip\"` on the route stores the page without it",
            ),
            Self::VaryAny => Explanation::of(
                "`Vary: *`, or something in `Vary` that is no field name, says that nobody knows for whom else the \
                 response is",
            )
            .by("RFC 9111 §4.1")
            .unless("have the application name in `Vary` the request fields that it looks at"),
            Self::Credentials => Explanation::of(
                "the request has `Authorization`, another field that says who asks, or a cookie that counts, and the \
                 response does not say that it can be shared",
            )
            .by("RFC 9111 §3.5")
            .unless(
                "if everybody gets the same, have the application send `Cache-Control: public, max-age=60`; cookies \
                 that it does not look at can be named in `ignore_cookies`, and those that select the page in \
                 `key.cookies`; fields that select it in `key.headers`",
            ),
            Self::EventStream => {
                Explanation::of("the response is an event stream, which has no end")
                    .unless("send another `Content-Type`, if it is none")
            }
            Self::Status => Explanation::of(
                "the status is one that is kept only if somebody says for how long, or one that is not understood",
            )
            .by("RFC 9111 §3")
            .unless(
                "have the application send `Cache-Control: max-age=` with this status, or name it in the route's \
                 `status_ttl`",
            ),
            Self::Partial => {
                Explanation::of("it is a part, or a confirmation, where a whole response was wanted")
                    .by("RFC 9111 §3.3")
                    .unless("have the application answer 206 and 304 only to those who ask for them")
            }
            Self::NoLifetime => Explanation::of(
                "it could never be used again: it is not fresh, may not be used stale, and has nothing to ask the \
                 origin with whether it is still good",
            )
            .by("RFC 9111 §3")
            .unless(
                "have the application say how long it is fresh (`Cache-Control: max-age=60`), or send an `ETag` or \
                 `Last-Modified`",
            ),
            Self::StatusTtl => {
                Explanation::of("the route's `status_ttl` for this status is 0")
                    .unless("give this status another `status_ttl` on the route, or none")
            }
            Self::TooManyTags => Explanation::of(
                "it has more tags than are kept of one response, and a purge would miss it",
            )
            .unless("have the application name 128 tags at most, of 16 KiB together"),
        }
    }
}

impl RevalidationReason {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Expired => Explanation::of(
                "what is stored is stale, and older than it may be used while it is refreshed",
            )
            .by("RFC 9111 §4.2.4")
            .unless(
                "a longer lifetime (`max-age`), or a longer `stale_while_revalidate`, if nobody should have to wait",
            ),
            Self::NoCache => Explanation::of(
                "the origin wants to be asked before every use (`no-cache`), or has changed the page by a POST or \
                 the like since",
            )
            .by("RFC 9111 §5.2.2.4")
            .unless("have the application send `max-age` in the place of `no-cache`"),
            Self::MaxAge => {
                Explanation::of("what is stored is older than the client accepts (`max-age` of the request)")
                    .by("RFC 9111 §5.2.1.1")
                    .unless("leave `max-age` out of the request's `Cache-Control`")
            }
            Self::MinFresh => Explanation::of(
                "what is stored does not stay fresh for as long as the client wants (`min-fresh` of the request)",
            )
            .by("RFC 9111 §5.2.1.3")
            .unless("leave `min-fresh` out of the request's `Cache-Control`"),
            Self::Reload => Explanation::of(
                "the client reloads (`no-cache` of the request), and the route has `reload = \"honour\"`",
            )
            .by("RFC 9111 §5.2.1.4")
            .unless("`reload = \"ignore\"` on the route keeps reloads from the application"),
        }
    }
}

impl Reuse {
    /// The explanation of this decision.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Fresh => Explanation::of("what is stored is fresh").by("RFC 9111 §4.2"),
            Self::Stale => Explanation::of(
                "what is stored is stale, and may be used while one request in the background refreshes it",
            )
            .by("RFC 5861 §3"),
            Self::Revalidate(why) => why.explanation(),
            Self::NotShareable => Explanation::of(
                "what is stored may not answer a request with `Authorization` or a cookie that counts",
            )
            .by("RFC 9111 §3.5")
            .unless(
                "if everybody gets the same, have the application send `Cache-Control: public, max-age=60`; cookies \
                 that it does not look at can be named in `ignore_cookies`",
            ),
        }
    }
}

impl Forward {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Bypass => Explanation::of("the cache was not to handle it").by("RFC 9211 §2.2"),
            Self::Method => PassReason::Method.explanation(),
            Self::UriMiss | Self::Miss => {
                Explanation::of("nothing usable is stored under its key").by("RFC 9111 §4")
            }
            Self::VaryMiss => Explanation::of(
                "something is stored under its key, but for other values of the fields in `Vary`",
            )
            .by("RFC 9111 §4.1")
            .unless(
                "have the application vary on as little as it can; `ignore_vary` on the route leaves out fields that \
                 make no difference, and `languages` counts `Accept-Language` only as far as the site goes",
            ),
            Self::Request => Explanation::of(
                "the request could not be answered from what is stored, or must not be",
            )
            .by("RFC 9111 §4"),
            Self::Stale => Explanation::of("what is stored is too old, or has to be confirmed first")
                .by("RFC 9111 §4.2"),
            Self::Partial => {
                Explanation::of("a part is stored, and another one is wanted").by("RFC 9111 §3.3")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        NotStorable::TooManyTags,
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

    /// Checks that the reason reads as the middle of a sentence, and the form of section and remedy.
    fn check(what: &str, told: Explanation) {
        let is_phrase = |text: &str| {
            let starts = text
                .chars()
                .next()
                .is_some_and(|first| !first.is_uppercase() || text.starts_with("HTTP"));
            starts
                && text.len() > 10
                && !text.ends_with('.')
                && !text.contains("  ")
                && text.is_ascii()
        };
        assert!(is_phrase(told.because), "{what}: {told:?}");
        assert!(told.remedy.is_none_or(is_phrase), "{what}: {told:?}");
        let is_section = |rfc: &str| {
            let (document, section) = rfc.strip_prefix("RFC ")?.split_once(" §")?;
            let numbers = section
                .split('.')
                .all(|number| number.parse::<u8>().is_ok());
            (document.parse::<u16>().is_ok() && numbers).then_some(())
        };
        let is_known = told.rfc.is_none_or(|rfc| is_section(rfc).is_some());
        assert!(is_known, "{what}: {told:?}");
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
        for one in LifetimeSource::ALL {
            check(&format!("{one:?}"), one.explanation());
        }
        for one in Detail::ALL.iter().chain(&[Detail::Tier("disk")]) {
            check(one.as_str(), one.explanation());
        }
    }

    #[test]
    fn a_detail_says_what_the_decision_says_that_it_stands_for() {
        for one in PASSES {
            let told = one.detail().explanation();
            // These two occur for requests and for responses.
            if !matches!(one, PassReason::NoStore | PassReason::EventStream) {
                assert_eq!(told, one.explanation(), "{one:?}");
            }
        }
        for one in NOT_STORABLE {
            let told = one.detail().explanation();
            if !matches!(one, NotStorable::NoStore | NotStorable::EventStream) {
                assert_eq!(told, one.explanation(), "{one:?}");
            }
        }
    }
}

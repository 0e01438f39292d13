//! Storability of responses (RFC 9111 §3).

use crate::detail::Detail;
use crate::directives::Directive;
use crate::form_tokens;
use crate::freshness::{self, Freshness, ReceivedResponse, StaleWindows};
use crate::lifetime::{
    ANONYMOUS, FOR_AUTHORIZATION, FOR_COOKIES, HAS_VALIDATOR, IMMUTABLE, Lifetime, MUST_VALIDATE,
    NEVER_STALE, OPERATORS_WINDOW,
};
use crate::request::{Credentials, Handling, RequestFacts, is_event_stream};
use crate::response::ResponseFacts;
use crate::rules::SetCookie;
use crate::time::Times;
use crate::vary::Vary;

/// The decision on storing a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storable {
    /// Stored, with this lifetime.
    Yes(Lifetime),
    /// Not stored.
    No(NotStorable),
}

/// The reason that a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStorable {
    /// The request bypasses the cache: its method, its body, its `no-store`.
    Request,
    /// `private`: the response is for one user.
    Private,
    /// `no-store`.
    NoStore,
    /// The response has `Set-Cookie`.
    SetCookie,
    /// `Vary: *`.
    VaryAny,
    /// The request had credentials, and the response is not marked as shareable.
    Credentials,
    /// An event stream, which has no end.
    EventStream,
    /// The status requires explicit freshness to be stored, or is not understood.
    Status,
    /// A 206 or a 304 is not a complete response.
    Partial,
    /// The response could never be reused: no freshness lifetime, no stale window, no validator.
    NoLifetime,
    /// The route's `status_ttl` for this status is 0.
    StatusTtl,
    /// The response has a token for one visitor, and only `anonymous_ttl` would permit storing it.
    FormToken,
}

impl NotStorable {
    /// Returns true if the response is for this client only, and so allows no conclusion on those of others.
    pub const fn is_for_one(self) -> bool {
        matches!(
            self,
            Self::Private | Self::NoStore | Self::SetCookie | Self::FormToken
        )
    }

    /// The reason in `Cache-Status`.
    pub const fn detail(self) -> Detail {
        match self {
            Self::Request => Detail::Request,
            Self::Private => Detail::Private,
            Self::NoStore => Detail::NoStore,
            Self::SetCookie => Detail::SetCookie,
            Self::VaryAny => Detail::VaryAny,
            Self::Credentials => Detail::Credentials,
            Self::EventStream => Detail::EventStream,
            Self::Status => Detail::Status,
            Self::Partial => Detail::Partial,
            Self::NoLifetime => Detail::NoLifetime,
            Self::StatusTtl => Detail::StatusTtl,
            Self::FormToken => Detail::FormToken,
        }
    }
}

/// Decides on the response to a GET, or to a HEAD that was forwarded as a GET, with the origin's fields.
pub fn storable(
    request: &RequestFacts,
    status: u16,
    response: &ResponseFacts<'_>,
    times: Times,
) -> Storable {
    let arrived = ReceivedResponse::new(request, response, status, times);
    if let Some(reason) = refusal(request, &arrived) {
        return Storable::No(reason);
    }
    match lifetime(&arrived) {
        Err(reason) => Storable::No(reason),
        Ok(lifetime) if !lifetime.is_shareable(request.credentials()) => {
            Storable::No(NotStorable::Credentials)
        }
        Ok(lifetime) => Storable::Yes(lifetime),
    }
}

/// The reason that forbids storing, whatever the freshness lifetime.
fn refusal(request: &RequestFacts, arrived: &ReceivedResponse<'_, '_>) -> Option<NotStorable> {
    let (status, response) = (arrived.status, arrived.facts);
    let is_anonymous = arrived.anonymous.is_some();
    let must_understand = response.says(Directive::MustUnderstand);
    if matches!(request.handling(), Handling::Pass(_)) {
        Some(NotStorable::Request)
    } else if matches!(status, 206 | 304) {
        Some(NotStorable::Partial)
    } else if !(200..600).contains(&status) || (must_understand && !is_understood(status)) {
        Some(NotStorable::Status)
    } else if response.says(Directive::NoStore) && !must_understand {
        Some(NotStorable::NoStore)
    } else if response.says(Directive::Private) && !is_anonymous {
        Some(NotStorable::Private)
    } else if response.seen.has_set_cookie
        && (response.rules.set_cookie == SetCookie::Refuse && !is_anonymous
            || response.sets_keyed_cookie())
    {
        Some(NotStorable::SetCookie)
    } else if response.vary == Vary::Any {
        Some(NotStorable::VaryAny)
    } else if response.seen.content_type.is_some_and(is_event_stream) {
        Some(NotStorable::EventStream)
    } else if is_anonymous && form_tokens::in_fields(response) {
        Some(NotStorable::FormToken)
    } else {
        None
    }
}

/// Returns true if the response is not stored because of a `status_ttl` of 0.
fn is_zero_for(arrived: &ReceivedResponse<'_, '_>) -> bool {
    let by_status = &arrived.facts.rules.status_ttl;
    arrived.forced.is_none() && by_status.contains(&(arrived.status, 0))
}

fn lifetime(arrived: &ReceivedResponse<'_, '_>) -> Result<Lifetime, NotStorable> {
    let response = arrived.facts;
    let (rules, directives) = (response.rules, &arrived.directives);
    let is_anonymous = arrived.anonymous.is_some();
    let freshness = arrived.freshness();
    let initial_age = arrived.initial_age();
    let StaleWindows {
        while_revalidate,
        if_error,
        operators,
    } = freshness::windows(directives, freshness, rules);
    let must_validate = arrived.must_be_validated();
    let validator = response.has_validator();
    let fresh_for = match freshness {
        Freshness::Unknown => return Err(NotStorable::Status),
        Freshness::Operator(0) if is_zero_for(arrived) => {
            return Err(NotStorable::StatusTtl);
        }
        // A private cache stores it for validation.
        Freshness::Operator(0) if !(rules.are_private() && arrived.forced.is_none()) => {
            return Err(NotStorable::NoLifetime);
        }
        Freshness::Operator(ttl) => initial_age.saturating_add(arrived.operators(ttl)),
        Freshness::Explicit(lifetime) | Freshness::Heuristic(lifetime) => lifetime,
    };
    let within_window = fresh_for.saturating_add(while_revalidate) > initial_age;
    let may_outlast_errors = directives.stale_if_error.is_some() && if_error > 0;
    let usable = !must_validate && (within_window || may_outlast_errors);
    if !usable && !validator {
        return Err(NotStorable::NoLifetime);
    }
    let shared = if rules.are_private() {
        Credentials::ALL
    } else if is_anonymous {
        Credentials::default()
    } else {
        shared_with(response, arrived.is_explicit())
    };
    let flags = [
        (must_validate, MUST_VALIDATE),
        (directives.immutable(), IMMUTABLE),
        (shared.cookie, FOR_COOKIES),
        (shared.authorization, FOR_AUTHORIZATION),
        (validator, HAS_VALIDATOR),
        (operators, OPERATORS_WINDOW),
        (is_anonymous, ANONYMOUS),
        (
            rules.obeys_client && freshness::is_never_stale(directives),
            NEVER_STALE,
        ),
    ];
    Ok(Lifetime {
        response_time: arrived.times.response,
        initial_age,
        fresh_for,
        stale_while_revalidate: while_revalidate,
        stale_if_error: if_error,
        flags: flags
            .iter()
            .filter(|(set, _)| *set)
            .fold(0, |all, (_, flag)| all | flag),
    })
}

/// The credentials of requests that may share the response: `Authorization` by RFC 9111 §3.5, cookies if the origin
/// addresses shared caches. `must-revalidate` or a targeted field alone does not permit sharing: default lifetimes of
/// the route are for requests without credentials.
fn shared_with(response: &ResponseFacts<'_>, explicit: bool) -> Credentials {
    let shared = response.says(Directive::Public) || response.said.directives.s_maxage.is_some();
    Credentials {
        authorization: shared || explicit && response.says(Directive::MustRevalidate),
        cookie: shared || explicit && response.is_targeted,
    }
}

/// Returns true for statuses whose caching requirements are implemented, for `must-understand` (RFC 9111 §5.2.2.3).
const fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200..=205 | 207 | 208 | 226
        | 300..=303 | 305 | 307 | 308
        | 400..=417 | 421..=426 | 428 | 429 | 431 | 451
        | 500..=508 | 510 | 511
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use crate::rules::Rules;
    use crate::testing::{RECEIVED, fields, judge};

    fn check(status: u16, response: &str, expected: Option<NotStorable>) {
        let verdict = judge(&Rules::default(), "", status, response);
        assert_eq!(verdict.err(), expected, "{status} {response}");
    }

    #[test]
    fn any_final_status_with_explicit_freshness_is_stored() {
        for status in [
            200, 201, 202, 203, 204, 205, 299, 302, 303, 307, 400, 403, 405, 418, 429, 451, 500,
            503, 599,
        ] {
            check(status, "Cache-Control: max-age=5", None);
            check(status, "CDN-Cache-Control: max-age=5", None);
            check(status, "Expires: Sun, 06 Nov 1994 09:00:00 GMT", None);
        }
        for status in [201, 202, 205, 302, 303, 307, 403, 500] {
            check(status, "", Some(NotStorable::Status));
            check(status, "Cache-Control: public", Some(NotStorable::Status));
        }
    }

    #[test]
    fn parts_confirmations_and_interim_responses_never_are() {
        check(206, "Cache-Control: max-age=5", Some(NotStorable::Partial));
        check(304, "Cache-Control: max-age=5", Some(NotStorable::Partial));
        for status in [100, 101, 103, 0, 600] {
            check(
                status,
                "Cache-Control: max-age=5",
                Some(NotStorable::Status),
            );
        }
    }

    #[test]
    fn no_store_and_private_forbid_it() {
        check(
            200,
            "Cache-Control: max-age=5, no-store",
            Some(NotStorable::NoStore),
        );
        check(
            200,
            "Cache-Control: max-age=5\nCache-Control: No-Store",
            Some(NotStorable::NoStore),
        );
        check(
            200,
            "Cache-Control: public, private, max-age=5",
            Some(NotStorable::Private),
        );
        check(200, "Cache-Control: private=\"x-user\", max-age=5", None);
        check(
            200,
            "Cache-Control: private=\"\", max-age=5",
            Some(NotStorable::Private),
        );
    }

    #[test]
    fn a_targeted_field_replaces_cache_control() {
        check(
            200,
            "CDN-Cache-Control: max-age=5\nCache-Control: no-store",
            None,
        );
        check(
            200,
            "CDN-Cache-Control: max-age=5\nCache-Control: private",
            None,
        );
        check(
            200,
            "CDN-Cache-Control: no-store\nCache-Control: max-age=5",
            Some(NotStorable::NoStore),
        );
        check(
            200,
            "CDN-Cache-Control: private\nCache-Control: public, max-age=5",
            Some(NotStorable::Private),
        );
        check(
            200,
            "CDN-Cache-Control: max-age=\"5\"\nCache-Control: no-store",
            Some(NotStorable::NoStore),
        );
        check(
            200,
            "CDN-Cache-Control:\nCache-Control: no-store",
            Some(NotStorable::NoStore),
        );
        check(
            200,
            "Other-Cache-Control: max-age=5\nCache-Control: no-store",
            Some(NotStorable::NoStore),
        );
        let rules = Rules {
            targeted: vec!["Other-Cache-Control".to_owned()],
            ..Rules::default()
        };
        let response = "Other-Cache-Control: max-age=5\nCache-Control: no-store";
        assert!(judge(&rules, "", 200, response).is_ok());
    }

    #[test]
    fn must_understand_lifts_no_store_for_known_statuses_and_forbids_unknown_ones() {
        check(
            200,
            "Cache-Control: max-age=5, no-store, must-understand",
            None,
        );
        check(
            299,
            "Cache-Control: max-age=5, no-store, must-understand",
            Some(NotStorable::Status),
        );
        check(
            299,
            "Cache-Control: max-age=5, must-understand",
            Some(NotStorable::Status),
        );
        check(
            200,
            "Cache-Control: max-age=5, private, must-understand",
            Some(NotStorable::Private),
        );
    }

    #[test]
    fn an_unusable_response_is_not_stored() {
        let never = Some(NotStorable::NoLifetime);
        for (response, without, with_validator) in [
            ("Cache-Control: max-age=0", never, None),
            ("Expires: 0", never, None),
            ("Cache-Control: no-cache", never, None),
            ("Cache-Control: no-cache, max-age=60", never, None),
            ("Cache-Control: max-age=60\nAge: 100", never, None),
            ("Cache-Control: max-age=60\nAge: 65", None, None),
            (
                "Cache-Control: max-age=0, stale-while-revalidate=5",
                None,
                None,
            ),
            ("Cache-Control: max-age=0, stale-if-error=5", None, None),
            (
                "Cache-Control: max-age=0, stale-if-error=5, must-revalidate",
                Some(NotStorable::NoLifetime),
                None,
            ),
        ] {
            check(200, response, without);
            check(200, &format!("{response}\nETag: \"a\""), with_validator);
            check(
                200,
                &format!("{response}\nLast-Modified: Sun, 06 Nov 1994 08:00:00 GMT"),
                with_validator,
            );
        }
    }

    #[test]
    fn an_operators_zero_means_not_at_all() {
        let rules = Rules {
            ttl: 0,
            status_ttl: vec![(404, 0), (410, 5), (500, 0)],
            ..Rules::default()
        };
        for (status, response, refused) in [
            (200, "ETag: \"a\"", Some(NotStorable::NoLifetime)),
            (200, "Cache-Control: max-age=5", None),
            (404, "", Some(NotStorable::StatusTtl)),
            (410, "", None),
            (500, "", Some(NotStorable::StatusTtl)),
            (503, "", Some(NotStorable::Status)),
        ] {
            assert_eq!(
                judge(&rules, "", status, response).err(),
                refused,
                "{status} {response}"
            );
        }
        let rules = Rules {
            forced_ttl: Some(0),
            ..rules
        };
        let verdict = judge(&rules, "", 404, "Cache-Control: max-age=5");
        assert_eq!(verdict.err(), Some(NotStorable::NoLifetime));
    }

    #[test]
    fn a_request_that_passes_stores_nothing() {
        let rules = Rules::default();
        for request in [
            "Cache-Control: no-store",
            "Accept: text/event-stream",
            "Connection: x-a",
        ] {
            let verdict = judge(&rules, request, 200, "Cache-Control: max-age=5");
            assert_eq!(verdict.err(), Some(NotStorable::Request), "{request}");
        }
        let post = RequestFacts::read(&http::Method::POST, Fields::default(), false, &rules);
        let response = fields("Cache-Control: max-age=5");
        let facts = ResponseFacts::read(response.fields(), &rules);
        let verdict = storable(&post, 200, &facts, Times::at(RECEIVED));
        assert_eq!(verdict, Storable::No(NotStorable::Request));
    }

    #[test]
    fn set_cookie_is_the_operators_choice() {
        for (set_cookie, stored) in [
            (SetCookie::Refuse, false),
            (SetCookie::Strip, true),
            (SetCookie::Store, true),
        ] {
            let rules = Rules {
                set_cookie,
                ..Rules::default()
            };
            let verdict = judge(&rules, "", 200, "Set-Cookie: a=b");
            assert_eq!(verdict.is_ok(), stored, "{set_cookie:?}");
        }
    }

    #[test]
    fn several_vary_lines_are_read() {
        check(200, "Vary: a\nVary: b, c", None);
        check(200, "Vary: a\nVary: b, *", Some(NotStorable::VaryAny));
        check(200, "Vary: a b", Some(NotStorable::VaryAny));
    }
}

//! May this response be stored? (RFC 9111 §3)

use crate::directives::{Directive, ResponseDirectives};
use crate::fields::Fields;
use crate::freshness::{self, Freshness, InForce, Windows};
use crate::lifetime::{
    FOR_AUTHORIZATION, FOR_COOKIES, HAS_VALIDATOR, IMMUTABLE, Lifetime, MUST_VALIDATE,
};
use crate::request::{Credentials, Handling, RequestFacts};
use crate::rules::{Rules, SetCookie};
use crate::targeted;
use crate::time::Time;
use crate::vary::{self, Vary};

/// Whether a response may be stored, and for how long it may then be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storable {
    /// It may, and this is how long and for whom it can be used.
    Yes(Lifetime),
    /// It may not.
    No(NotStorable),
}

/// Why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStorable {
    /// The request passes by the cache: its method, its body, its own `no-store`.
    Request,
    /// The response is for one user (`private`).
    Private,
    /// `no-store`.
    NoStore,
    /// It sets a cookie.
    SetCookie,
    /// `Vary: *`.
    VaryAny,
    /// The request had credentials, and the response does not say that it can be shared.
    Credentials,
    /// An event stream has no end.
    EventStream,
    /// The status is not one to store without explicit freshness, or not one that is understood.
    Status,
    /// A part, or a confirmation, is not a whole response.
    Partial,
    /// It could never be used: no freshness, no stale window, nothing to validate it with.
    NoLifetime,
}

impl NotStorable {
    /// A token for the `detail` of `Cache-Status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Private => "private",
            Self::NoStore => "no-store",
            Self::SetCookie => "set-cookie",
            Self::VaryAny => "vary-any",
            Self::Credentials => "credentials",
            Self::EventStream => "event-stream",
            Self::Status => "status",
            Self::Partial => "partial",
            Self::NoLifetime => "no-lifetime",
        }
    }
}

/// Judges the response to a GET (a HEAD that was sent on as a GET counts as one). `response` is what the origin sent.
pub fn storable(
    request: &RequestFacts<'_>,
    status: u16,
    response: Fields<'_>,
    request_time: Time,
    response_time: Time,
    rules: &Rules,
) -> Storable {
    let in_force = in_force(response, rules);
    if let Some(reason) = refusal(request, status, response, &in_force, rules) {
        return Storable::No(reason);
    }
    match lifetime(
        &in_force,
        status,
        response,
        request_time,
        response_time,
        rules,
    ) {
        Err(reason) => Storable::No(reason),
        Ok(lifetime) if !lifetime.is_shareable(request.credentials()) => {
            Storable::No(NotStorable::Credentials)
        }
        Ok(lifetime) => Storable::Yes(lifetime),
    }
}

/// The directives that count: those of the first valid targeted field, else those of `Cache-Control` (RFC 9213 §2.2).
fn in_force(response: Fields<'_>, rules: &Rules) -> InForce {
    match targeted::select(response, &rules.targeted) {
        Some(members) => InForce {
            directives: targeted::directives(&members),
            targeted: true,
        },
        None => InForce {
            directives: ResponseDirectives::read(response),
            targeted: false,
        },
    }
}

/// What forbids storing, whatever the freshness.
fn refusal(
    request: &RequestFacts<'_>,
    status: u16,
    response: Fields<'_>,
    in_force: &InForce,
    rules: &Rules,
) -> Option<NotStorable> {
    let says = |directive| in_force.directives.says(directive);
    let must_understand = says(Directive::MustUnderstand);
    if matches!(request.handling(), Handling::Pass(_)) {
        Some(NotStorable::Request)
    } else if matches!(status, 206 | 304) {
        Some(NotStorable::Partial)
    } else if !(200..600).contains(&status) || (must_understand && !is_understood(status)) {
        Some(NotStorable::Status)
    } else if says(Directive::NoStore) && !must_understand {
        Some(NotStorable::NoStore)
    } else if says(Directive::Private) {
        Some(NotStorable::Private)
    } else if rules.set_cookie == SetCookie::Refuse && response.contains("set-cookie") {
        Some(NotStorable::SetCookie)
    } else if vary::of_response(response) == Vary::Any {
        Some(NotStorable::VaryAny)
    } else if is_event_stream(response) {
        Some(NotStorable::EventStream)
    } else {
        None
    }
}

fn lifetime(
    in_force: &InForce,
    status: u16,
    response: Fields<'_>,
    request_time: Time,
    response_time: Time,
    rules: &Rules,
) -> Result<Lifetime, NotStorable> {
    let directives = &in_force.directives;
    let freshness = freshness::freshness(in_force, status, response, response_time, rules);
    let initial_age = freshness::initial_age(response, request_time, response_time);
    let Windows {
        while_revalidate,
        if_error,
    } = freshness::windows(directives, freshness, rules);
    let must_validate =
        rules.forced_ttl.is_none() && freshness::must_validate(in_force, response, response_time);
    let validator = response.contains("etag") || response.contains("last-modified");
    let fresh_for = match freshness {
        Freshness::Unknown => return Err(NotStorable::Status),
        Freshness::Operator(0) => return Err(NotStorable::NoLifetime),
        Freshness::Operator(ttl) => initial_age.saturating_add(ttl),
        Freshness::Explicit(lifetime) | Freshness::Heuristic(lifetime) => lifetime,
    };
    let usable = !must_validate
        && (fresh_for.saturating_add(while_revalidate) > initial_age
            || directives.stale_if_error.is_some_and(|window| window > 0));
    if !usable && !validator {
        return Err(NotStorable::NoLifetime);
    }
    let shared = shared_with(in_force);
    let flags = [
        (must_validate, MUST_VALIDATE),
        (directives.immutable(), IMMUTABLE),
        (shared.cookie, FOR_COOKIES),
        (shared.authorization, FOR_AUTHORIZATION),
        (validator, HAS_VALIDATOR),
    ];
    Ok(Lifetime {
        response_time,
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

/// With which credentials the response can be shared: for `Authorization` by RFC 9111 §3.5, for cookies if the origin
/// speaks of shared caches.
fn shared_with(in_force: &InForce) -> Credentials {
    let directives = &in_force.directives;
    let shared = directives.says(Directive::Public) || directives.s_maxage.is_some();
    Credentials {
        authorization: shared || directives.says(Directive::MustRevalidate),
        cookie: shared || in_force.targeted,
    }
}

/// Statuses whose caching requirements are known here, for `must-understand` (RFC 9111 §5.2.2.3).
const fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200..=205 | 207 | 208 | 226 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421..=426 | 428 | 429 | 431 | 451 | 500..=508 | 510 | 511
    )
}

fn is_event_stream(response: Fields<'_>) -> bool {
    response.get("content-type").is_some_and(|value| {
        let media_type = value.split(|&b| b == b';').next().unwrap_or(value);
        media_type
            .trim_ascii()
            .eq_ignore_ascii_case(b"text/event-stream")
    })
}

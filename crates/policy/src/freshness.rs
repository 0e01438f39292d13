//! Freshness arithmetic (RFC 9111 §4.2).

use crate::date;
use crate::directives::{Directive, ResponseDirectives, delta_seconds};
use crate::fields::Fields;
use crate::rules::Rules;
use crate::time::{Millis, Time};

/// A `Date` counts whole seconds, and clocks drift: an apparent age below this says nothing, and would make
/// half of all one-second responses stale on arrival.
const DATE_RESOLUTION: Millis = 2_000;

/// Statuses that the route's `ttl` or a heuristic may make fresh when the origin says nothing.
const IMPLICIT_STATUSES: [u16; 8] = [200, 203, 204, 300, 301, 308, 404, 410];

/// How long a response is fresh, and on whose word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The origin's word, compared with the age of the response.
    Explicit(Millis),
    /// A guess from its dates, likewise (§4.2.2).
    Heuristic(Millis),
    /// The operator's word, counted from the receipt: it speaks of this cache, not of those before it.
    Operator(Millis),
    /// Nobody's: the origin says nothing, and the status is not one to guess about.
    Unknown,
}

/// The directives that are in force for a response, and whether a targeted field gave them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    pub(crate) directives: ResponseDirectives,
    pub(crate) targeted: bool,
}

/// Who says how long the response is fresh: targeted field, `s-maxage`, `max-age`, `Expires`, then the route.
pub(crate) fn freshness(
    in_force: &InForce,
    status: u16,
    response: Fields<'_>,
    received: Time,
    rules: &Rules,
) -> Freshness {
    let explicit = explicit(in_force, response, received);
    let by_status = rules
        .status_ttl
        .iter()
        .find(|(of, _)| *of == status)
        .map(|(_, ttl)| *ttl);
    let storable = explicit.is_some() || by_status.is_some() || IMPLICIT_STATUSES.contains(&status);
    match (rules.forced_ttl, explicit, by_status) {
        _ if !storable => Freshness::Unknown,
        (Some(forced), ..) => Freshness::Operator(forced),
        (None, Some(lifetime), _) => Freshness::Explicit(lifetime),
        (None, None, Some(ttl)) => Freshness::Operator(ttl),
        (None, None, None) => heuristic(response, received, rules)
            .map_or(Freshness::Operator(rules.ttl), Freshness::Heuristic),
    }
}

/// A response may be used only after validation, every time. Without a word on freshness, an old `Pragma: no-cache` says so too.
pub(crate) fn must_validate(in_force: &InForce, response: Fields<'_>, received: Time) -> bool {
    let pragma = || {
        let silent = !response.contains("cache-control")
            && !in_force.targeted
            && explicit(in_force, response, received).is_none();
        silent
            && response
                .members("pragma")
                .any(|member| member.eq_ignore_ascii_case(b"no-cache"))
    };
    in_force.directives.says(Directive::NoCache) || pragma()
}

fn explicit(in_force: &InForce, response: Fields<'_>, received: Time) -> Option<Millis> {
    let directives = &in_force.directives;
    let stated = directives.s_maxage.or(directives.max_age);
    stated.or_else(|| {
        (!in_force.targeted)
            .then(|| expires(response, received))
            .flatten()
    })
}

/// `Expires` minus `Date`. An invalid value, or two different ones, lie in the past (§5.3, §4.2.1).
fn expires(response: Fields<'_>, received: Time) -> Option<Millis> {
    let mut lines = response.all("expires");
    let first = lines.next()?;
    if lines.any(|other| other != first) {
        return Some(0);
    }
    let lifetime = date::parse(first, received)
        .map_or(0, |expires| expires.since(date_of(response, received)));
    Some(lifetime)
}

/// `corrected_initial_age` of §4.2.3.
pub(crate) fn initial_age(response: Fields<'_>, requested: Time, received: Time) -> Millis {
    let apparent = received.since(date_of(response, received));
    let apparent = if apparent < DATE_RESOLUTION {
        0
    } else {
        apparent
    };
    let corrected = age_value(response).saturating_add(received.since(requested));
    apparent.max(corrected)
}

/// The first member of `Age` counts; an invalid one says nothing (§5.1).
fn age_value(response: Fields<'_>) -> Millis {
    response
        .members("age")
        .next()
        .and_then(delta_seconds)
        .map_or(0, |seconds| seconds * 1000)
}

/// `Date`, or the time of receipt where it is missing or invalid (RFC 9110 §6.6.1).
fn date_of(response: Fields<'_>, received: Time) -> Time {
    response
        .get("date")
        .and_then(|value| date::parse(value, received))
        .unwrap_or(received)
}

/// A percentage of the time since the last modification.
fn heuristic(response: Fields<'_>, received: Time, rules: &Rules) -> Option<Millis> {
    let percent = rules.heuristic?;
    let modified = date::parse(response.get("last-modified")?, received)?;
    let unchanged_for = date_of(response, received).since(modified);
    (unchanged_for > 0).then(|| unchanged_for / 100 * u64::from(percent))
}

/// How long a response may be served stale, while it is refreshed and when the origin fails.
pub(crate) struct Windows {
    pub(crate) while_revalidate: Millis,
    pub(crate) if_error: Millis,
}

/// The stale windows: the response's own, else the route's. `must-revalidate`, `proxy-revalidate` and `s-maxage` allow none
/// (§4.2.4, §5.2.2.10). An origin that gives no freshness at all does not want its response reused, so the route's window to
/// revalidate behind the client's back is not added to it.
pub(crate) fn windows(
    directives: &ResponseDirectives,
    freshness: Freshness,
    rules: &Rules,
) -> Windows {
    let prohibited = directives.says(Directive::MustRevalidate)
        || directives.says(Directive::ProxyRevalidate)
        || directives.s_maxage.is_some();
    if prohibited {
        return Windows {
            while_revalidate: 0,
            if_error: 0,
        };
    }
    let by_default = match freshness {
        Freshness::Explicit(0) => 0,
        _ => rules.stale_while_revalidate,
    };
    Windows {
        while_revalidate: directives.stale_while_revalidate.unwrap_or(by_default),
        if_error: directives.stale_if_error.unwrap_or(rules.stale_if_error),
    }
}

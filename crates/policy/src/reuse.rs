//! Reuse of a stored response for a request (RFC 9111 §4).

use crate::lifetime::{IMMUTABLE, Lifetime, MUST_VALIDATE, NEVER_STALE, OPERATORS_WINDOW};
use crate::request::RequestFacts;
use crate::time::Time;

/// The decision on a stored response that was selected for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Serve it: it is fresh, or as stale as the client accepts.
    Fresh,
    /// Serve it, and revalidate it in the background (RFC 5861 §3).
    Stale,
    /// Revalidate it first.
    Revalidate(RevalidationReason),
    /// The request has credentials, and the response may not be shared with it.
    NotShareable,
}

/// The reason that the origin must be asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevalidationReason {
    /// It is stale, and beyond its stale window.
    Expired,
    /// `no-cache`, or the response was invalidated.
    NoCache,
    /// It is older than the client's `max-age`.
    MaxAge,
    /// Its remaining freshness is below the client's `min-fresh`.
    MinFresh,
    /// The client reloads, and the route honours that.
    Reload,
}

/// Decides on reuse. A client with `max-age` or `min-fresh` gets no stale response (§5.2.1.1); without either, the
/// stale window counts.
#[inline]
pub fn reuse(lifetime: &Lifetime, request: &RequestFacts, now: Time) -> Reuse {
    if !lifetime.is_shareable(request.credentials()) {
        return Reuse::NotShareable;
    }
    let ttl = lifetime.ttl(now);
    if lifetime.has(MUST_VALIDATE) {
        Reuse::Revalidate(RevalidationReason::NoCache)
    } else if request.forces_reload() {
        Reuse::Revalidate(RevalidationReason::Reload)
    } else if let Some(why) = beyond_clients_limits(lifetime, request, now) {
        Reuse::Revalidate(why)
    } else if ttl > 0 {
        Reuse::Fresh
    } else if ttl.unsigned_abs() < lifetime.stale_while_revalidate {
        Reuse::Stale
    } else if accepts_stale(lifetime, request, now) {
        Reuse::Fresh
    } else {
        Reuse::Revalidate(RevalidationReason::Expired)
    }
}

/// Returns true if the client of a private cache accepts this staleness (`max-stale`, §5.2.1.2). It has no effect if
/// the origin forbids stale reuse (§4.2.4).
fn accepts_stale(lifetime: &Lifetime, request: &RequestFacts, now: Time) -> bool {
    let stale_for = lifetime.ttl(now).min(0).unsigned_abs();
    !lifetime.has(NEVER_STALE) && request.max_stale().is_some_and(|most| stale_for <= most)
}

/// Returns true if the stored response may be served until its revalidation has ended, even beyond the stale window in
/// which that began. If the window is the operator's, it is extended to the stale-if-error window: a slow origin is no
/// better than a failing one. A window given by the origin is not extended (RFC 5861 §3).
pub fn awaits_refresh(lifetime: &Lifetime, now: Time) -> bool {
    lifetime.has(OPERATORS_WINDOW) && lifetime.ttl(now).unsigned_abs() < lifetime.stale_if_error
}

/// The time until which a stale response may be served during its revalidation.
pub fn in_use_until(lifetime: &Lifetime) -> Time {
    let window = if lifetime.has(OPERATORS_WINDOW) {
        lifetime.stale_while_revalidate.max(lifetime.stale_if_error)
    } else {
        lifetime.stale_while_revalidate
    };
    let age = lifetime.fresh_for.saturating_add(window);
    lifetime
        .response_time
        .plus(age.saturating_sub(lifetime.initial_age))
}

/// Returns true if a stored response may be served when the origin fails: 500, 502, 503, 504, a timeout, a disconnect.
/// Not if it must be validated before use, or if the client insists.
pub fn on_error(lifetime: &Lifetime, request: &RequestFacts, now: Time) -> bool {
    let ttl = lifetime.ttl(now);
    // The client's value counts unless the origin forbids it (RFC 5861 §4).
    let clients = request.stale_if_error();
    let clients = clients.filter(|_| !lifetime.has(NEVER_STALE)).unwrap_or(0);
    let window = lifetime.stale_if_error.max(clients);
    let insists =
        || request.forces_reload() || beyond_clients_limits(lifetime, request, now).is_some();
    lifetime.is_shareable(request.credentials())
        && !(request.is_obeyed() && insists())
        && !lifetime.has(MUST_VALIDATE)
        && (ttl > 0 || ttl.unsigned_abs() < window)
}

/// Returns true for statuses that count as a failure of the origin (RFC 5861 §4).
pub const fn is_origin_failure(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

/// Returns true for statuses with which the origin refuses a request. They may be due to this one client and do not
/// concern the stored response, unlike 404 and 410.
pub const fn is_refusal(status: u16) -> bool {
    matches!(status, 400..500) && !matches!(status, 404 | 410)
}

#[inline]
fn beyond_clients_limits(
    lifetime: &Lifetime,
    request: &RequestFacts,
    now: Time,
) -> Option<RevalidationReason> {
    let ttl = lifetime.ttl(now);
    let fresh = ttl > 0;
    if let Some(max_age) = request.max_age() {
        // Immutable while fresh: a plain reload, `max-age=0`, causes no revalidation (RFC 8246 §2.1).
        let unchanged = max_age == 0 && fresh && lifetime.has(IMMUTABLE);
        let not_fresh = !fresh && !accepts_stale(lifetime, request, now);
        if !unchanged && (not_fresh || lifetime.age(now) > max_age) {
            return Some(RevalidationReason::MaxAge);
        }
    }
    let min_fresh = request.min_fresh()?;
    let lasts = fresh && ttl.unsigned_abs() >= min_fresh;
    (!lasts).then_some(RevalidationReason::MinFresh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Reload, Rules};
    use crate::testing::{RECEIVED, fields, get, lifetime};

    /// The decision for a request this many milliseconds after the receipt of the response.
    fn check(response: &str, request: &str, after: u64, expected: Reuse) {
        check_with(&Rules::default(), response, request, after, expected);
    }

    fn check_with(rules: &Rules, response: &str, request: &str, after: u64, expected: Reuse) {
        let request = fields(request);
        let verdict = reuse(
            &lifetime(response),
            &get(&request, rules),
            RECEIVED.plus(after),
        );
        assert_eq!(
            verdict, expected,
            "{response:?} after {after} for {request:?}"
        );
    }

    fn check_on_error(response: &str, after: u64, expected: bool) {
        let request = fields("");
        let facts = get(&request, &Rules::default());
        assert_eq!(
            on_error(&lifetime(response), &facts, RECEIVED.plus(after)),
            expected,
            "{response:?} after {after}"
        );
    }

    #[test]
    fn fresh_then_stale_then_expired() {
        let response = "Cache-Control: max-age=60";
        check(response, "", 0, Reuse::Fresh);
        check(response, "", 59_999, Reuse::Fresh);
        check(response, "", 60_000, Reuse::Stale);
        check(response, "", 69_999, Reuse::Stale);
        check(
            response,
            "",
            70_000,
            Reuse::Revalidate(RevalidationReason::Expired),
        );
        check_on_error(response, 70_000, true);
    }

    #[test]
    fn a_refresh_outlasts_the_operators_window_and_no_other() {
        let awaits = |response, after| {
            let lifetime = lifetime(response);
            let now = RECEIVED.plus(after);
            let awaits = awaits_refresh(&lifetime, now);
            assert_eq!(
                awaits,
                now < in_use_until(&lifetime),
                "{response} after {after}"
            );
            awaits
        };
        let a_day = 86_400_000;
        assert!(awaits("Cache-Control: max-age=60", 70_000));
        assert!(awaits("Cache-Control: max-age=60", 60_000 + a_day - 1));
        assert!(!awaits("Cache-Control: max-age=60", 60_000 + a_day));
        assert!(!awaits(
            "Cache-Control: max-age=60, stale-if-error=10",
            70_000
        ));
        for strict in [
            "Cache-Control: max-age=60, stale-while-revalidate=10",
            "Cache-Control: max-age=0\nETag: \"a\"",
            "Cache-Control: max-age=60, must-revalidate",
            "Cache-Control: s-maxage=60",
        ] {
            assert!(!awaits(strict, 70_000), "{strict}");
        }
    }

    #[test]
    fn must_revalidate_is_never_stale() {
        let expired = Reuse::Revalidate(RevalidationReason::Expired);
        for response in [
            "Cache-Control: max-age=60, must-revalidate",
            "Cache-Control: max-age=60, proxy-revalidate",
            "Cache-Control: s-maxage=60",
            "Cache-Control: s-maxage=60, stale-while-revalidate=60, stale-if-error=60",
            "CDN-Cache-Control: max-age=60, must-revalidate",
        ] {
            check(response, "", 59_999, Reuse::Fresh);
            check(response, "", 60_000, expired);
            check_on_error(response, 59_999, true);
            check_on_error(response, 60_000, false);
        }
    }

    #[test]
    fn no_cache_asks_the_origin_every_time() {
        let response = "Cache-Control: no-cache, max-age=60\nETag: \"a\"";
        check(
            response,
            "",
            0,
            Reuse::Revalidate(RevalidationReason::NoCache),
        );
        check_on_error(response, 0, false);
        check(
            "Cache-Control: no-cache=\"x-a\", max-age=60",
            "",
            0,
            Reuse::Fresh,
        );
    }

    #[test]
    fn invalidated_means_mandatory_validation() {
        let mut stored = lifetime("Cache-Control: max-age=60");
        stored.invalidate();
        let request = fields("");
        let facts = get(&request, &Rules::default());
        assert_eq!(
            reuse(&stored, &facts, RECEIVED),
            Reuse::Revalidate(RevalidationReason::NoCache)
        );
        assert!(!on_error(&stored, &facts, RECEIVED));
    }

    #[test]
    fn expired_by_hand_is_stale_and_still_serves_on_error() {
        let mut stored = lifetime("Cache-Control: max-age=60");
        stored.expire(RECEIVED, 60_000);
        let request = fields("");
        let facts = get(&request, &Rules::default());
        assert_eq!(reuse(&stored, &facts, RECEIVED), Reuse::Stale);
        assert_eq!(
            reuse(&stored, &facts, RECEIVED.plus(10_000)),
            Reuse::Revalidate(RevalidationReason::Expired)
        );
        assert!(on_error(&stored, &facts, RECEIVED.plus(10_000)));
    }

    #[test]
    fn a_client_can_ask_for_a_younger_answer() {
        let response = "Cache-Control: max-age=60";
        let too_old = Reuse::Revalidate(RevalidationReason::MaxAge);
        check(response, "Cache-Control: max-age=5", 5_000, Reuse::Fresh);
        check(response, "Cache-Control: max-age=5", 5_001, too_old);
        check(response, "Cache-Control: max-age=500", 60_000, too_old);
        check(
            response,
            "Cache-Control: max-age=5, max-stale=9",
            6_000,
            too_old,
        );
        check(response, "Cache-Control: max-age=x", 60_000, Reuse::Stale);
        check(
            "Cache-Control: max-age=60\nAge: 10",
            "Cache-Control: max-age=5",
            0,
            too_old,
        );
    }

    #[test]
    fn a_client_can_ask_for_a_longer_lasting_answer() {
        let response = "Cache-Control: max-age=60";
        let too_short = Reuse::Revalidate(RevalidationReason::MinFresh);
        check(
            response,
            "Cache-Control: min-fresh=10",
            50_000,
            Reuse::Fresh,
        );
        check(response, "Cache-Control: min-fresh=10", 50_001, too_short);
        check(response, "Cache-Control: min-fresh=0", 60_000, too_short);
    }

    #[test]
    fn a_reload_is_honoured_where_configured() {
        let rules = Rules {
            reload: Reload::Honour,
            ..Rules::default()
        };
        let reload = Reuse::Revalidate(RevalidationReason::Reload);
        let plain = "Cache-Control: max-age=60";
        check_with(&rules, plain, "Cache-Control: no-cache", 0, reload);
        check_with(&rules, plain, "Pragma: no-cache", 0, reload);
        check_with(
            &rules,
            plain,
            "Pragma: no-cache\nCache-Control: foo",
            0,
            Reuse::Fresh,
        );
        check_with(
            &rules,
            plain,
            "Cache-Control: max-age=0",
            1,
            Reuse::Revalidate(RevalidationReason::MaxAge),
        );
        let immutable = "Cache-Control: max-age=60, immutable";
        check_with(
            &rules,
            immutable,
            "Cache-Control: max-age=0",
            1,
            Reuse::Fresh,
        );
        check_with(
            &rules,
            immutable,
            "Cache-Control: max-age=0",
            60_000,
            Reuse::Revalidate(RevalidationReason::MaxAge),
        );
        check_with(
            &rules,
            immutable,
            "Cache-Control: max-age=5",
            5_001,
            Reuse::Revalidate(RevalidationReason::MaxAge),
        );
        check_with(&rules, immutable, "Cache-Control: no-cache", 1, reload);
    }

    #[test]
    fn a_response_stale_on_arrival_can_be_within_its_window() {
        check("Cache-Control: max-age=60\nAge: 65", "", 0, Reuse::Stale);
        check(
            "Cache-Control: max-age=0, stale-while-revalidate=5",
            "",
            0,
            Reuse::Stale,
        );
        check_on_error("Cache-Control: max-age=0, stale-if-error=5", 4_999, true);
        check_on_error("Cache-Control: max-age=0, stale-if-error=5", 5_000, false);
    }
}

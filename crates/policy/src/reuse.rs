//! May this stored response answer this request? (RFC 9111 §4)

use crate::lifetime::{IMMUTABLE, Lifetime, MUST_VALIDATE};
use crate::request::RequestFacts;
use crate::time::Time;

/// What to do with a stored response that was selected for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Serve it.
    Fresh,
    /// Serve it, and refresh it in the background (RFC 5861 §3).
    Stale,
    /// Ask the origin first.
    Revalidate(Why),
    /// The request has credentials with which this response may not be shared.
    NotShareable,
}

/// Why the origin must be asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is stale, and beyond its stale window.
    Expired,
    /// The origin wants to be asked every time, or the response was invalidated.
    NoCache,
    /// It is older than the client accepts.
    MaxAge,
    /// It does not stay fresh for as long as the client wants.
    MinFresh,
    /// The client reloads, and the operator honours that.
    Reload,
}

impl Why {
    /// A token for the `detail` of `Cache-Status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::NoCache => "no-cache",
            Self::MaxAge => "max-age",
            Self::MinFresh => "min-fresh",
            Self::Reload => "reload",
        }
    }
}

/// Decides. A client that names `max-age` or `min-fresh` gets no stale answer (§5.2.1.1); without either, the stale window counts.
pub fn reuse(lifetime: &Lifetime, request: &RequestFacts<'_>, now: Time) -> Reuse {
    if !lifetime.is_shareable(request.credentials()) {
        return Reuse::NotShareable;
    }
    let ttl = lifetime.ttl(now);
    if lifetime.has(MUST_VALIDATE) {
        Reuse::Revalidate(Why::NoCache)
    } else if request.forces_reload() {
        Reuse::Revalidate(Why::Reload)
    } else if let Some(why) = beyond_clients_limits(lifetime, request, now) {
        Reuse::Revalidate(why)
    } else if ttl > 0 {
        Reuse::Fresh
    } else if ttl.unsigned_abs() < lifetime.stale_while_revalidate {
        Reuse::Stale
    } else {
        Reuse::Revalidate(Why::Expired)
    }
}

/// May a stored response answer when the origin fails: an error (500, 502, 503, 504), a time-out, a disconnect? What must be validated
/// before use never does.
pub fn on_error(lifetime: &Lifetime, request: &RequestFacts<'_>, now: Time) -> bool {
    let ttl = lifetime.ttl(now);
    lifetime.is_shareable(request.credentials())
        && !lifetime.has(MUST_VALIDATE)
        && (ttl > 0 || ttl.unsigned_abs() < lifetime.stale_if_error)
}

fn beyond_clients_limits(
    lifetime: &Lifetime,
    request: &RequestFacts<'_>,
    now: Time,
) -> Option<Why> {
    let ttl = lifetime.ttl(now);
    let fresh = ttl > 0;
    if let Some(max_age) = request.max_age() {
        // Immutable while fresh: a plain reload, `max-age=0`, need not ask (RFC 8246 §2.1).
        let unchanged = max_age == 0 && fresh && lifetime.has(IMMUTABLE);
        if !unchanged && (!fresh || lifetime.age(now) > max_age) {
            return Some(Why::MaxAge);
        }
    }
    let min_fresh = request.min_fresh()?;
    let lasts = fresh && ttl.unsigned_abs() >= min_fresh;
    (!lasts).then_some(Why::MinFresh)
}

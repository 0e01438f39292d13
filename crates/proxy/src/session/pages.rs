//! The pages that are not the application's: short, plain, and never stored.

use microcache_engine::{Response, plain_response};
use microcache_policy::{CacheStatus, Detail, Time};

/// The engine was not asked, or gave no answer.
fn page(status: u16, text: &str, detail: Detail, now: Time) -> Response {
    let cache_status = CacheStatus {
        detail: Some(detail),
        ..CacheStatus::default()
    };
    plain_response(status, text, cache_status, now)
}

/// To a request that cannot be read.
pub(crate) fn refused(status: u16, reason: &str, now: Time) -> Response {
    page(status, reason, Detail::BadRequest, now)
}

/// To a request that was sent from here.
pub(crate) fn leads_back(now: Time) -> Response {
    let text = "The way to the application leads back here.";
    page(502, text, Detail::Loop, now)
}

/// To a request that ran into a fault of ours. The panic itself is in the log.
pub(crate) fn panicked(now: Time) -> Response {
    let text = "This request failed. The others go on.";
    page(500, text, Detail::InternalError, now)
}

/// Instead of a tunnel or an event stream for which there is no room.
pub(crate) fn too_many_streams(now: Time) -> Response {
    let text = "There are too many open streams. Please try again.";
    page(503, text, Detail::TooManyTunnels, now)
}

/// Instead of an answer that turned out to be broken before any of it was sent on.
pub(crate) fn broke_off(now: Time) -> Response {
    let text = "The application did not give a proper answer.";
    page(502, text, Detail::OriginMalformed, now)
}

//! The pages that are not the application's: short, plain, and never stored.

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Failure, NoResponse, OriginError, Outcome, Response};
use microcache_policy::{CacheStatus, Detail, FieldsBuf, Time, date};

/// The engine was not asked, or gave no answer.
fn page(status: u16, text: &str, detail: Detail, now: Time) -> Response {
    let cache_status = CacheStatus {
        detail: Some(detail),
        ..CacheStatus::default()
    };
    plain(status, text, cache_status, now)
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

/// To a purge that is in force.
pub(crate) fn purged(told: &str, now: Time) -> Response {
    Response {
        outcome: Outcome::Pass,
        ..page(200, told.trim_end(), Detail::Purge, now)
    }
}

/// To one that is not.
pub(crate) fn not_purged(status: u16, reason: &str, now: Time) -> Response {
    page(status, reason, Detail::Purge, now)
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

/// To a request that the engine has no response for.
pub(crate) fn failed(failed: &NoResponse, now: Time) -> Response {
    let (status, text) = match &failed.cause {
        Failure::OnlyIfCached => (
            504,
            "This response is not in the cache, and the request wanted no other.",
        ),
        Failure::Origin(OriginError::Busy) => (
            503,
            "The application is at its limit. Please try again in a moment.",
        ),
        Failure::Origin(OriginError::Connect(_)) => (502, "The application cannot be reached."),
        Failure::Origin(OriginError::Down) => (
            503,
            "The application is not available. Please try again in a moment.",
        ),
        Failure::Origin(OriginError::Timeout) => (504, "The application did not answer in time."),
        Failure::Origin(OriginError::RequestBody(BodyError::Timeout)) => {
            (408, "The request body did not arrive in time.")
        }
        Failure::Origin(OriginError::RequestBody(_)) => (400, "The request body was malformed."),
        Failure::Status(_) | Failure::Origin(_) => {
            (502, "The application did not give a proper answer.")
        }
        Failure::Abandoned => (500, "This request failed. The others go on."),
    };
    plain(status, text, failed.cache_status, now)
}

fn plain(status: u16, text: &str, cache_status: CacheStatus, now: Time) -> Response {
    let mut fields = FieldsBuf::new();
    fields.push("Date", date::format(now));
    fields.push("Content-Type", "text/plain; charset=utf-8");
    fields.push("Cache-Control", "no-store");
    if status == 503 {
        fields.push("Retry-After", "1");
    }
    let body = Bytes::from(format!("{text}\n"));
    Response {
        status,
        fields: Some(fields.into()),
        age: None,
        cache_status,
        length: Some(body.len() as u64),
        body: Body::Full(body),
        tunnel: None,
        outcome: Outcome::Error,
    }
}

//! The pages that are not the application's: short, plain, and never stored.

use bytes::Bytes;
use microcache_engine::{
    Body, BodyError, Failure, NoResponse, OriginError, Outcome, Response, clock,
};
use microcache_policy::key::without_port;
use microcache_policy::{CacheStatus, Detail, FieldsBuf, Time, date};

use crate::rates::RateLimit;
use crate::rates::gcra::TooEarly;

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

/// To a request whose path can be read as that of a route that guards what is there.
pub(crate) fn ambiguous_path(now: Time) -> Response {
    let text = "The path can be read in more than one way.";
    page(400, text, Detail::AmbiguousPath, now)
}

/// To a request that is to come by TLS, at this port (RFC 9110 §15.4.9). Whoever names no host is shown no way.
pub(crate) fn elsewhere(host: &[u8], target: &[u8], port: u16, now: Time) -> Response {
    let bare = std::str::from_utf8(without_port(host)).unwrap_or_default();
    if bare.is_empty() || !target.starts_with(b"/") {
        return refused(400, "requests are taken by TLS only", now);
    }
    let mut location = format!("https://{bare}").into_bytes();
    if port != 443 {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    location.extend_from_slice(target);
    let cache_status = CacheStatus::default();
    let mut page = plain(308, "This is found by https://", cache_status, now);
    if let Some(fields) = page.fields.take() {
        let mut with = FieldsBuf::new();
        with.push("Location", location);
        with.extend_if(fields.fields(), |_, _| true);
        page.fields = Some(with.into());
    }
    Response {
        outcome: Outcome::Pass,
        ..page
    }
}

/// To an authority that wants to see that a name is ours (RFC 8555 §8.3): this, and nothing behind it.
pub(crate) fn challenge(answer: String, now: Time) -> Response {
    let body = Bytes::from(answer);
    let page = plain(200, "", CacheStatus::default(), now);
    Response {
        length: Some(body.len() as u64),
        body: Body::Full(body),
        outcome: Outcome::Pass,
        ..page
    }
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

/// To a request that comes too early (draft-ietf-httpapi-ratelimit-headers-11). The name of the policy is no name of the configuration.
pub(crate) fn too_many(limit: &RateLimit, early: TooEarly, now: Time) -> Response {
    let seconds = early.by.div_ceil(1_000_000);
    let (policy, quota) = (limit.by.policy(), limit.quota);
    let more = [
        ("Retry-After", seconds.to_string()),
        (
            "RateLimit-Policy",
            format!("\"{policy}\";q={};w={}", quota.count, quota.seconds),
        ),
        ("RateLimit", format!("\"{policy}\";r=0;t={seconds}")),
    ];
    let text = "There were too many requests. Please try again in a moment.";
    Response {
        outcome: Outcome::Limited,
        ..with(page(429, text, Detail::RateLimited, now), &more)
    }
}

/// The same page with more fields.
fn with(page: Response, more: &[(&str, String)]) -> Response {
    let mut fields = FieldsBuf::new();
    fields.extend_if(page.fields(), |_, _| true);
    for (name, value) in more {
        fields.push(name, value);
    }
    Response {
        fields: Some(fields.into()),
        ..page
    }
}

/// To a request that says that its body is larger than it may be.
pub(crate) fn too_large(now: Time) -> Response {
    let text = "The request body is too large.";
    page(413, text, Detail::RequestBody, now)
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

/// To an extended CONNECT that the application has answered without changing the protocol.
pub(crate) fn not_switched(now: Time) -> Response {
    let text = "The application does not speak this protocol here.";
    page(502, text, Detail::Upgrade, now)
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
        Failure::Origin(OriginError::RequestBody(BodyError::TooLarge)) => {
            (413, "The request body is too large.")
        }
        Failure::Origin(OriginError::RequestBody(_)) => (400, "The request body was malformed."),
        Failure::Status(_) | Failure::Origin(_) => {
            (502, "The application did not give a proper answer.")
        }
        Failure::TooManyWait => (
            503,
            "Too many requests wait for this. Please try again in a moment.",
        ),
        Failure::Abandoned => (500, "This request failed. The others go on."),
    };
    plain(status, text, failed.cache_status, now)
}

fn plain(status: u16, text: &str, cache_status: CacheStatus, now: Time) -> Response {
    let mut fields = FieldsBuf::new();
    fields.push("Date", date::format(clock::date(now)));
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

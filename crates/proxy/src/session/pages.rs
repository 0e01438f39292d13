//! Generated responses: short plain text, never stored.

use bytes::Bytes;
use microcache_engine::{
    Body, BodyError, Failure, NoResponse, OriginError, Outcome, Response, clock,
};
use microcache_policy::key::without_port;
use microcache_policy::{CacheStatus, Detail, FieldsBuf, Time, date};

use crate::rates::RateLimit;
use crate::rates::gcra::TooEarly;

/// Response without a decision of the engine.
fn page(status: u16, text: &str, detail: Detail, now: Time) -> Response {
    let cache_status = CacheStatus {
        detail: Some(detail),
        ..CacheStatus::default()
    };
    plain(status, text, cache_status, now)
}

/// Response to a request that cannot be parsed.
pub(crate) fn refused(status: u16, reason: &str, now: Time) -> Response {
    page(status, reason, Detail::BadRequest, now)
}

/// Response to a path that another interpretation assigns to a protected route.
pub(crate) fn ambiguous_path(now: Time) -> Response {
    let text = "The path is ambiguous.";
    page(400, text, Detail::AmbiguousPath, now)
}

/// Response to a client that the route does not admit.
pub(crate) fn denied(now: Time) -> Response {
    let text = "Access denied.";
    Response {
        outcome: Outcome::Limited,
        ..page(403, text, Detail::AccessDenied, now)
    }
}

/// Response to a prefetch that nothing stored answers. Without `Retry-After`, by which browsers stop prefetching pages that
/// are stored.
pub(crate) fn prefetch_denied(now: Time) -> Response {
    let page = page(503, "This page is not prefetched.", Detail::Prefetch, now);
    let mut fields = FieldsBuf::new();
    fields.extend_if(page.fields(), |name, _| {
        !name.eq_ignore_ascii_case(b"retry-after")
    });
    Response {
        fields: Some(fields.into()),
        outcome: Outcome::Limited,
        ..page
    }
}

/// Response to a client without a certificate that the route requires.
pub(crate) fn certificate_required(now: Time) -> Response {
    let text = "This page requires a client certificate.";
    Response {
        outcome: Outcome::Limited,
        ..page(403, text, Detail::CertificateRequired, now)
    }
}

/// Response to a request in maintenance mode.
pub(crate) fn maintenance(retry_after: u32, now: Time) -> Response {
    let text = "This site is being maintained. Please try again later.";
    let page = page(503, text, Detail::Maintenance, now);
    let mut fields = FieldsBuf::new();
    fields.extend_if(page.fields(), |_, _| true);
    fields.set("Retry-After", retry_after.to_string());
    Response {
        fields: Some(fields.into()),
        outcome: Outcome::Limited,
        ..page
    }
}

/// Response to a client without valid credentials (RFC 7617 §2).
pub(crate) fn unauthorized(realm: &str, now: Time) -> Response {
    let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
    let text = "These pages require a user name and a password.";
    let page = page(401, text, Detail::AuthenticationRequired, now);
    Response {
        outcome: Outcome::Limited,
        ..with(page, &[("WWW-Authenticate", challenge)])
    }
}

/// Response to a password of a client that has too many waiting.
pub(crate) fn too_many_passwords(now: Time) -> Response {
    let text = "Too many passwords. Please try again in a moment.";
    let page = page(429, text, Detail::AuthenticationBusy, now);
    Response {
        outcome: Outcome::Limited,
        ..with(page, &[("Retry-After", "1".to_owned())])
    }
}

/// Response to a password while too many wait.
pub(crate) fn passwords_busy(now: Time) -> Response {
    let text = "Passwords cannot be verified. Please try again in a moment.";
    page(503, text, Detail::AuthenticationBusy, now)
}

/// Response to a request that the authentication server has not decided about.
pub(crate) fn authentication_unavailable(now: Time) -> Response {
    let text = "Authentication is not available. Please try again in a moment.";
    page(503, text, Detail::AuthenticationUnavailable, now)
}

/// Redirect to TLS at this port, as 308 (RFC 9110 §15.4.9). Without a host there is no target.
pub(crate) fn elsewhere(host: &[u8], target: &[u8], port: u16, now: Time) -> Response {
    let bare = std::str::from_utf8(without_port(host)).unwrap_or_default();
    if bare.is_empty() || !target.starts_with(b"/") {
        return refused(400, "requests require TLS", now);
    }
    let mut location = format!("https://{bare}").into_bytes();
    if port != 443 {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    location.extend_from_slice(target);
    let cache_status = CacheStatus::default();
    let mut page = plain(308, "Use https:// for this address.", cache_status, now);
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

/// Response to an ACME http-01 challenge (RFC 8555 §8.3): the key authorization alone.
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

/// Response to a request that this process has sent itself.
pub(crate) fn leads_back(now: Time) -> Response {
    let text = "The origin address leads back to this server.";
    page(502, text, Detail::Loop, now)
}

/// Response to a successful purge.
pub(crate) fn purged(text: &str, now: Time) -> Response {
    Response {
        outcome: Outcome::Pass,
        ..page(200, text.trim_end(), Detail::Purge, now)
    }
}

/// Response to a refused or failed purge.
pub(crate) fn not_purged(status: u16, reason: &str, now: Time) -> Response {
    page(status, reason, Detail::Purge, now)
}

/// Response to a request above the rate limit (draft-ietf-httpapi-ratelimit-headers-11). The policy's name does
/// not reveal the configuration.
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
    let text = "Too many requests. Please try again in a moment.";
    Response {
        outcome: Outcome::Limited,
        ..with(page(429, text, Detail::RateLimited, now), &more)
    }
}

/// Adds fields to a response.
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

/// Response to a request whose announced body is too large.
pub(crate) fn too_large(now: Time) -> Response {
    let text = "The request body is too large.";
    page(413, text, Detail::RequestBody, now)
}

/// Response to a request whose handling panicked. The panic is in the log.
pub(crate) fn panicked(now: Time) -> Response {
    let text = "This request failed because of an internal error.";
    page(500, text, Detail::InternalError, now)
}

/// Response in place of a tunnel or an event stream above their limit.
pub(crate) fn too_many_streams(now: Time) -> Response {
    let text = "There are too many open streams. Please try again.";
    page(503, text, Detail::TooManyTunnels, now)
}

/// Response to an extended CONNECT whose protocol the application has not switched.
pub(crate) fn not_switched(now: Time) -> Response {
    let text = "The application does not speak this protocol here.";
    page(502, text, Detail::Upgrade, now)
}

/// Response in place of one that broke off before any of it was sent.
pub(crate) fn broke_off(now: Time) -> Response {
    let text = "The application sent no valid response.";
    page(502, text, Detail::OriginMalformed, now)
}

/// Response in place of a page without one of its fragments.
pub(crate) fn fragment_failed(now: Time) -> Response {
    let text = "A part of this page is missing.";
    page(502, text, Detail::FragmentFailed, now)
}

/// Response in place of one that the engine could not get.
pub(crate) fn failed(failed: &NoResponse, now: Time) -> Response {
    let (status, text) = match &failed.cause {
        Failure::OnlyIfCached => (
            504,
            "This response is not in the cache, and the request has only-if-cached.",
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
        Failure::Status(_) | Failure::Origin(_) => (502, "The application sent no valid response."),
        Failure::TooManyWait => (
            503,
            "Too many requests are waiting for this page. Please try again in a moment.",
        ),
        Failure::Abandoned => (500, "This request failed. Please try again."),
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

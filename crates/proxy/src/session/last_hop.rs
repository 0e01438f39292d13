//! Requests that must not be forwarded: `Max-Forwards` (RFC 9110 §7.6.2).

use http::Method;
use microcache_engine::{Body, Outcome, Request, Response, clock};
use microcache_policy::fields::is_one_of;
use microcache_policy::{CacheStatus, Detail, FieldsBuf, MaxForwards, Time, date, max_forwards};

/// Request fields that TRACE reflects: those of its path, without sensitive ones (RFC 9110 §9.3.8) or any that
/// a proxy may have added for the application alone.
const TRACED: [&str; 3] = ["host", "via", "max-forwards"];

/// Returns the response to a request that must not be forwarded; `None` for all others.
pub(crate) fn answer(request: &Request<'_>, now: Time) -> Option<Response> {
    if max_forwards(request.method, request.fields) != MaxForwards::Last {
        return None;
    }
    let mut fields = FieldsBuf::new();
    fields.push("Date", date::format(clock::date(now)));
    let (status, length, body) = if *request.method == Method::TRACE {
        fields.push("Content-Type", "message/http");
        let seen = reflection(request);
        (200, Some(seen.len() as u64), Body::Full(seen.into()))
    } else {
        // Only the application knows the allowed methods, and the request must not be forwarded to it.
        (204, None, Body::Empty)
    };
    Some(Response {
        status,
        fields: Some(fields.into()),
        age: None,
        cache_status: CacheStatus {
            detail: Some(Detail::MaxForwards),
            ..CacheStatus::default()
        },
        length,
        body,
        tunnel: None,
        outcome: Outcome::Pass,
    })
}

/// Returns the request as received.
fn reflection(request: &Request<'_>) -> Vec<u8> {
    let mut seen = FieldsBuf::new();
    for (name, value) in request.fields {
        if is_one_of(name, &TRACED) {
            seen.push(name, value);
        }
    }
    let fields = seen.fields();
    [
        b"TRACE ",
        request.target,
        b" HTTP/1.1\r\n",
        fields.as_block(),
        b"\r\n",
    ]
    .concat()
}

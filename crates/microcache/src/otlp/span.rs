//! Spans in the JSON encoding of OTLP (opentelemetry-proto 1.x, `trace.proto`).
//!
//! Names of attributes are those of the semantic conventions for HTTP where there are any. No query, no
//! cookie, no address of a client is among them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use microcache_policy::Time;
use microcache_policy::trace::Span;
use microcache_proxy::{FinishedRequest, OriginSpan, shown_path};
use serde_json::{Value, json};

/// The kinds of span, server and client, in OTLP.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// The status of a span that failed.
const ERROR: u8 = 2;
/// The maximum length of a host.
const LONGEST_HOST: usize = 255;

/// The span of a request of a client.
pub(super) fn of_request(span: Span, finished: &FinishedRequest<'_>) -> String {
    let mut attributes = Vec::new();
    let mut name = "request".to_owned();
    if let Some(request) = &finished.request {
        let route = finished.route.map(|route| &*route.name);
        name = format!("{} {}", request.method, route.unwrap_or("-"));
        let host = &request.host[..request.host.len().min(LONGEST_HOST)];
        attributes.extend([
            text("http.request.method", request.method.as_str()),
            text("url.scheme", request.scheme.as_str()),
            text("url.path", &shown_path(request.target)),
            text("server.address", &String::from_utf8_lossy(host)),
        ]);
        attributes.extend(route.map(|route| text("microcache.route", route)));
    }
    attributes.push(number("http.response.body.size", finished.bytes));
    let mut failed = None;
    match finished.answer {
        Some(answer) => {
            attributes.extend([
                number("http.response.status_code", answer.status.into()),
                text("microcache.outcome", answer.outcome.as_str()),
            ]);
            let detail = answer.cache_status.detail;
            attributes.extend(detail.map(|detail| text("microcache.detail", detail.as_str())));
            failed =
                (answer.status >= 500).then(|| detail.map_or("error", |detail| detail.as_str()));
        }
        None => attributes.push(text("microcache.outcome", "aborted")),
    }
    let times = (nanos_of(finished.began), nanos_of(finished.ended));
    encoded(span, &name, SERVER, times, &attributes, failed)
}

/// The span of a request to an origin.
pub(super) fn of_origin(request: &OriginSpan) -> String {
    let mut attributes = vec![
        text("http.request.method", &request.method),
        text("url.path", &request.path),
        text(
            "server.address",
            &request.host[..floor(&request.host, LONGEST_HOST)],
        ),
        text("microcache.upstream", &request.upstream),
    ];
    if request.is_refresh {
        attributes.push(json!({"key": "microcache.refresh", "value": {"boolValue": true}}));
    }
    attributes.extend(
        request
            .status
            .map(|status| number("http.response.status_code", status.into())),
    );
    let is_failure = request.status.is_some_and(|status| status >= 500);
    let failed = request
        .error
        .as_deref()
        .or(is_failure.then_some("the origin failed"));
    let name = format!("{} {}", request.method, request.upstream);
    let times = (since_1970(request.began), since_1970(request.ended));
    encoded(request.span, &name, CLIENT, times, &attributes, failed)
}

fn encoded(
    span: Span,
    name: &str,
    kind: u8,
    (began, ended): (u128, u128),
    attributes: &[Value],
    failed: Option<&str>,
) -> String {
    let mut value = json!({
        "traceId": hex::encode(span.trace),
        "spanId": hex::encode(span.id),
        "name": name,
        "kind": kind,
        // Numbers of 64 bits are text in this encoding.
        "startTimeUnixNano": began.to_string(),
        "endTimeUnixNano": ended.max(began).to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = json!(hex::encode(parent));
    }
    if let Some(why) = failed {
        value["status"] = json!({"code": ERROR, "message": why});
    }
    value.to_string()
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

fn nanos_of(time: Time) -> u128 {
    Duration::from_millis(time.as_millis()).as_nanos()
}

fn since_1970(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos())
}

/// Returns the length of the longest prefix of at most `most` bytes that ends between two characters.
fn floor(text: &str, most: usize) -> usize {
    (0..=most.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0)
}

//! The `microcache` protocol on a socket: JSON in both directions. Events are the `data` of event streams;
//! commands are `{"subscribe": "/live/x"}`, `{"unsubscribe": "/live/x"}` and `{"get": "/live/x"}`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Order;
use crate::changes::change::Change;
use crate::changes::events::{Form, encode};
use crate::changes::version::Version;
use crate::documents::no_url::NoUrl;
use crate::name::MAX_NAME;

/// A command as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    subscribe: Option<String>,
    unsubscribe: Option<String>,
    get: Option<String>,
    /// For a page: the version of the client's copy.
    version: Option<String>,
}

/// A reply.
#[derive(Default, Serialize)]
struct Answer<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_event_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

impl Answer<'_> {
    fn written(&self) -> Bytes {
        // Serializing these fields cannot fail.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

/// Parses a command.
pub(super) fn read(text: &str) -> Result<Order, NoUrl> {
    let said: Said = serde_json::from_str(text).map_err(|_| unknown())?;
    let urls = [&said.subscribe, &said.unsubscribe, &said.get];
    if urls.into_iter().flatten().any(|url| url.len() > MAX_NAME) {
        return Err(NoUrl::too_long());
    }
    match (said.subscribe, said.unsubscribe, said.get, said.version) {
        (Some(url), None, None, version) => Ok(Order::Subscribe { url, version }),
        (None, Some(url), None, None) => Ok(Order::Unsubscribe(Some(url))),
        (None, None, Some(url), None) => Ok(Order::Get(url)),
        _ => Err(unknown()),
    }
}

fn unknown() -> NoUrl {
    NoUrl::new(
        400,
        "say {\"subscribe\": URL}, {\"unsubscribe\": URL} or {\"get\": URL}",
    )
}

pub(super) fn subscribed(url: &str, place: &str) -> Bytes {
    let answer = Answer {
        event: "subscribed",
        url: Some(url),
        last_event_id: Some(place),
        ..Answer::default()
    };
    answer.written()
}

pub(super) fn unsubscribed(url: Option<&str>) -> Bytes {
    let answer = Answer {
        event: "unsubscribed",
        url,
        ..Answer::default()
    };
    answer.written()
}

pub(super) fn error(url: Option<&str>, error: &NoUrl) -> Bytes {
    let answer = Answer {
        event: "error",
        url,
        status: Some(error.status),
        why: Some(&error.why),
        ..Answer::default()
    };
    answer.written()
}

/// Encodes the document of a `get`.
pub(super) fn value(change: &Change, version: Version) -> Bytes {
    encode(change, version, Form::Value).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_objects_with_one_thing_in_them() {
        let url = || "/live/x".to_owned();
        let subscribe = |version| Order::Subscribe {
            url: url(),
            version,
        };
        for (text, expected) in [
            (r#"{"subscribe":"/live/x"}"#, subscribe(None)),
            (
                r#"{"subscribe":"/live/x","version":"ab"}"#,
                subscribe(Some("ab".to_owned())),
            ),
            (
                r#"{"unsubscribe":"/live/x"}"#,
                Order::Unsubscribe(Some(url())),
            ),
            (r#" { "get" : "/live/x" } "#, Order::Get(url())),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "{}",
            "[]",
            "null",
            "subscribe /live/x",
            r#"{"subscribe":1}"#,
            r#"{"subscribe":"/a","get":"/b"}"#,
            r#"{"subscribe":"/a","subscribe":"/b"}"#,
            r#"{"get":"/a","version":"1"}"#,
            r#"{"subscribe":"/a","x":1}"#,
            r#"{"subscribe":"/a"}{"subscribe":"/b"}"#,
        ] {
            assert_eq!(read(text), Err(unknown()), "{text}");
        }
        for order in ["subscribe", "unsubscribe", "get"] {
            let long = format!("{{\"{order}\":\"{}\"}}", "x".repeat(MAX_NAME + 1));
            assert_eq!(read(&long), Err(NoUrl::too_long()));
        }
    }

    #[test]
    fn answers_are_events() {
        let why = NoUrl::new(404, "\"no\"");
        for (answer, expected) in [
            (
                subscribed("/x", "1f.7"),
                r#"{"event":"subscribed","url":"/x","last_event_id":"1f.7"}"#,
            ),
            (
                unsubscribed(Some("/x")),
                r#"{"event":"unsubscribed","url":"/x"}"#,
            ),
            (
                error(Some("/x"), &why),
                r#"{"event":"error","url":"/x","status":404,"why":"\"no\""}"#,
            ),
        ] {
            assert_eq!(answer, expected);
        }
    }
}

//! The `microcache` protocol on a socket: JSON in both directions. Events are the `data` of event streams;
//! commands are `{"subscribe": "/live/x"}`, `{"unsubscribe": "/live/x"}` and `{"get": "/live/x"}`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::SocketCommand;
use crate::changes::change::DocumentChange;
use crate::changes::events::{EventFormat, encode};
use crate::changes::version::DocumentVersion;
use crate::documents::url_error::UrlError;
use crate::name::MAX_NAME;

/// A command as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandJson {
    subscribe: Option<String>,
    unsubscribe: Option<String>,
    get: Option<String>,
    /// For a page: the version of the client's copy.
    version: Option<String>,
}

/// A reply.
#[derive(Default, Serialize)]
struct ReplyJson<'a> {
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

impl ReplyJson<'_> {
    fn encode(&self) -> Bytes {
        // Serializing these fields cannot fail.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

/// Parses a command.
pub(super) fn read(text: &str) -> Result<SocketCommand, UrlError> {
    let command: CommandJson = serde_json::from_str(text).map_err(|_| unknown())?;
    let urls = [&command.subscribe, &command.unsubscribe, &command.get];
    if urls.into_iter().flatten().any(|url| url.len() > MAX_NAME) {
        return Err(UrlError::too_long());
    }
    match (
        command.subscribe,
        command.unsubscribe,
        command.get,
        command.version,
    ) {
        (Some(url), None, None, version) => Ok(SocketCommand::Subscribe { url, version }),
        (None, Some(url), None, None) => Ok(SocketCommand::Unsubscribe(Some(url))),
        (None, None, Some(url), None) => Ok(SocketCommand::Get(url)),
        _ => Err(unknown()),
    }
}

fn unknown() -> UrlError {
    UrlError::new(
        400,
        "unknown command; use {\"subscribe\": URL}, {\"unsubscribe\": URL} or {\"get\": URL}",
    )
}

pub(super) fn subscribed(url: &str, place: &str) -> Bytes {
    let answer = ReplyJson {
        event: "subscribed",
        url: Some(url),
        last_event_id: Some(place),
        ..ReplyJson::default()
    };
    answer.encode()
}

pub(super) fn unsubscribed(url: Option<&str>) -> Bytes {
    let answer = ReplyJson {
        event: "unsubscribed",
        url,
        ..ReplyJson::default()
    };
    answer.encode()
}

pub(super) fn error(url: Option<&str>, error: &UrlError) -> Bytes {
    let answer = ReplyJson {
        event: "error",
        url,
        status: Some(error.status),
        why: Some(&error.message),
        ..ReplyJson::default()
    };
    answer.encode()
}

/// Encodes the document of a `get`.
pub(super) fn value(change: &DocumentChange, version: DocumentVersion) -> Bytes {
    encode(change, version, EventFormat::Value).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_objects_with_one_thing_in_them() {
        let url = || "/live/x".to_owned();
        let subscribe = |version| SocketCommand::Subscribe {
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
                SocketCommand::Unsubscribe(Some(url())),
            ),
            (r#" { "get" : "/live/x" } "#, SocketCommand::Get(url())),
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
            assert_eq!(read(&long), Err(UrlError::too_long()));
        }
    }

    #[test]
    fn answers_are_events() {
        let why = UrlError::new(404, "\"no\"");
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

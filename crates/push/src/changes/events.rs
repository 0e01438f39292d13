//! Encoders of changes, as server-sent events and as JSON.
//!
//! Both carry the same JSON, one object for each change:
//! `{"id":"1f.7","event":"put","url":"/live/x","type":"application/json","value":{…}}`. Documents that are
//! neither JSON nor text have to be fetched.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::changes::change::{DocumentChange, DocumentContent};
use crate::changes::json::is_json;
use crate::changes::version::DocumentVersion;

/// The format of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventFormat {
    /// A server-sent event with the document as its data.
    Document,
    /// A server-sent event with the change as JSON.
    Event,
    /// As `Event`, with the patch in place of the content.
    EventDelta,
    /// The change as bare JSON.
    Json,
    /// As `Json`, with the patch in place of the content.
    JsonDelta,
    /// A document as bare JSON, outside of the order of changes: with an entity tag in place of an event id.
    Value,
}

/// The JSON of a change.
#[derive(Serialize)]
struct ChangeJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    event: &'static str,
    url: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

/// An event about the subscription itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlEvent {
    /// The subscriber's position is unusable: full snapshots of all documents follow.
    Reset,
    /// Changes since the last event are missing from the history.
    Gap,
}

/// Encodes a change, whose version is `id`.
pub(crate) fn encode(change: &DocumentChange, id: DocumentVersion, form: EventFormat) -> Vec<u8> {
    if form == EventFormat::Value {
        return encode_value(change, id);
    }
    let delta = change.delta.as_ref();
    let delta = delta.filter(|_| matches!(form, EventFormat::EventDelta | EventFormat::JsonDelta));
    let event = match (&change.content, delta) {
        (None, _) => "delete",
        (Some(_), Some(_)) => "patch",
        (Some(_), None) => "put",
    };
    if form == EventFormat::Document {
        let body = change.content.as_ref().and_then(DocumentContent::as_text);
        return encode_event(Some(id), event, body.unwrap_or_default());
    }
    let patch = delta.and_then(|delta| serde_json::from_slice(&delta.patch).ok());
    let json_fields = ChangeJson {
        id: Some(id.to_string()),
        event,
        patch,
        ..ChangeJson::put(change, patch.is_none())
    };
    // Serializing these fields cannot fail.
    let json = serde_json::to_string(&json_fields).unwrap_or_default();
    match form {
        EventFormat::Json | EventFormat::JsonDelta => json.into_bytes(),
        _ => encode_event(Some(id), event, &json),
    }
}

/// Encodes a document without an event id: reconnecting with its id would skip earlier changes that were not
/// delivered yet.
fn encode_value(change: &DocumentChange, version: DocumentVersion) -> Vec<u8> {
    let json_fields = ChangeJson {
        etag: Some(version.entity_tag()),
        ..ChangeJson::put(change, true)
    };
    serde_json::to_vec(&json_fields).unwrap_or_default()
}

impl<'a> ChangeJson<'a> {
    /// Creates the JSON of a put, with or without its content.
    fn put(change: &'a DocumentChange, with_content: bool) -> Self {
        let whole = change.content.as_ref().filter(|_| with_content);
        let text = whole.and_then(DocumentContent::as_text);
        let value = whole.zip(text).and_then(|(content, text)| {
            is_json(&content.media_type).then(|| serde_json::from_str(text).ok())?
        });
        Self {
            id: None,
            event: "put",
            url: &change.name,
            media_type: change.content.as_ref().map(|it| &*it.media_type),
            value,
            text: text.filter(|_| value.is_none()),
            patch: None,
            etag: None,
        }
    }
}

/// Encodes a control event. It has no id.
pub(crate) fn encode_control(event: ControlEvent, is_json: bool) -> Vec<u8> {
    let name = match event {
        ControlEvent::Reset => "reset",
        ControlEvent::Gap => "gap",
    };
    let json = format!("{{\"event\":\"{name}\"}}");
    if is_json {
        json.into_bytes()
    } else {
        encode_event(None, name, &json)
    }
}

/// Encodes a server-sent event. Its id is the position after it.
pub(crate) fn encode_event(id: Option<DocumentVersion>, event: &str, data: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + 64);
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.as_bytes());
    out.push(b'\n');
    write_data(&mut out, data);
    out.push(b'\n');
    out
}

/// Encodes the data of an event, line by line.
pub(crate) fn write_data(out: &mut Vec<u8>, data: &str) {
    let mut rest = data;
    loop {
        let end = rest.find(['\r', '\n']).unwrap_or(rest.len());
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&rest.as_bytes()[..end]);
        out.push(b'\n');
        let after = &rest[end..];
        rest = match after.strip_prefix("\r\n") {
            Some(next) => next,
            None if after.is_empty() => break,
            None => &after[1..],
        };
    }
}

impl DocumentContent {
    /// Returns the body, if it is text.
    pub(crate) fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::change::Delta;

    fn change(media_type: &str, body: &'static [u8]) -> DocumentChange {
        DocumentChange {
            number: 7,
            name: "/live/x".into(),
            content: Some(DocumentContent {
                media_type: media_type.into(),
                body: body.into(),
            }),
            expires: None,
            delta: None,
        }
    }

    fn check(change: &DocumentChange, form: EventFormat, expected: &str) {
        let id = DocumentVersion {
            epoch: 0x1f,
            number: change.number,
        };
        let encoded = encode(change, id, form);
        assert_eq!(String::from_utf8(encoded).as_deref(), Ok(expected));
    }

    #[test]
    fn a_document_is_the_data_of_its_own_events() {
        let json = change("application/json", b"{\"a\":1,\n\"b\":2}");
        check(
            &json,
            EventFormat::Document,
            "id: 1f.7\nevent: put\ndata: {\"a\":1,\ndata: \"b\":2}\n\n",
        );
        let text = change("text/plain", b"a\r\nb\rc\n");
        check(
            &text,
            EventFormat::Document,
            "id: 1f.7\nevent: put\ndata: a\ndata: b\ndata: c\ndata: \n\n",
        );
        // Binary content has to be fetched.
        check(
            &change("image/png", b"\x89PNG"),
            EventFormat::Document,
            "id: 1f.7\nevent: put\ndata: \n\n",
        );
    }

    #[test]
    fn changes_are_formatted_as_json() {
        let json = change("application/json", b"{\"a\": 1}");
        check(
            &json,
            EventFormat::Json,
            r#"{"id":"1f.7","event":"put","url":"/live/x","type":"application/json","value":{"a": 1}}"#,
        );
        check(
            &change("text/plain", b"\"a\nb"),
            EventFormat::Event,
            "id: 1f.7\nevent: put\ndata: {\"id\":\"1f.7\",\"event\":\"put\",\"url\":\"/live/x\",\"type\":\"text/plain\",\"text\":\"\\\"a\\nb\"}\n\n",
        );
        check(
            &change("image/png", b"\x89PNG"),
            EventFormat::Json,
            r#"{"id":"1f.7","event":"put","url":"/live/x","type":"image/png"}"#,
        );
        let gone = DocumentChange {
            content: None,
            ..json
        };
        check(
            &gone,
            EventFormat::Json,
            r#"{"id":"1f.7","event":"delete","url":"/live/x"}"#,
        );
    }

    #[test]
    fn a_value_is_no_event_that_was_seen() {
        let json = change("application/json", b"{\"a\": 1}");
        check(
            &json,
            EventFormat::Value,
            r#"{"event":"put","url":"/live/x","type":"application/json","value":{"a": 1},"etag":"\"1f.7\""}"#,
        );
    }

    #[test]
    fn a_delta_is_sent_where_requested() {
        let patched = DocumentChange {
            delta: Some(Delta {
                from: 6,
                patch: "{\"a\":1}".into(),
            }),
            ..change("application/json", b"{\"a\":1}")
        };
        check(
            &patched,
            EventFormat::JsonDelta,
            r#"{"id":"1f.7","event":"patch","url":"/live/x","type":"application/json","patch":{"a":1}}"#,
        );
        check(
            &patched,
            EventFormat::Json,
            r#"{"id":"1f.7","event":"put","url":"/live/x","type":"application/json","value":{"a":1}}"#,
        );
    }

    #[test]
    fn words_have_no_id() {
        assert_eq!(
            encode_control(ControlEvent::Reset, false),
            b"event: reset\ndata: {\"event\":\"reset\"}\n\n"
        );
        assert_eq!(
            encode_control(ControlEvent::Gap, true),
            b"{\"event\":\"gap\"}"
        );
    }
}

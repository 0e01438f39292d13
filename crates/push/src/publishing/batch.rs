//! Batches: writes to many documents, applied together or not at all.

use bytes::Bytes;
use microcache_engine::OriginResponse;
use microcache_policy::is_event_stream;
use serde::Deserialize;
use serde_json::Number;
use serde_json::json;
use serde_json::value::RawValue;

use crate::answer;
use crate::changes::change::DocumentContent;
use crate::changes::json::check;
use crate::changes::version::DocumentVersion;
use crate::name::parse_name;
use crate::publishing::write_request::{
    TTL_RANGE, WriteCondition, WriteOp, WriteOutcome, WriteRequest, ttl_in_millis,
};

/// Limit of documents in a batch.
const MAX_BATCH: usize = 1000;

/// One item of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchItem<'a> {
    url: String,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    text: Option<String>,
    #[serde(rename = "type")]
    media_type: Option<String>,
    ttl: Option<Number>,
    if_match: Option<String>,
    #[serde(default)]
    delete: bool,
}

/// Parses a batch, all of whose documents have to be under `prefix`.
pub(crate) fn read(body: &[u8], prefix: &[u8]) -> Result<Vec<WriteRequest>, String> {
    let items: Vec<BatchItem<'_>> = serde_json::from_slice(body).map_err(|error| {
        format!("a batch must be a list such as [{{\"url\": \"/live/x\", \"value\": 1}}]: {error}")
    })?;
    if items.len() > MAX_BATCH {
        return Err(format!("a batch may have at most {MAX_BATCH} documents"));
    }
    items
        .into_iter()
        .map(|item| write_request(item, prefix))
        .collect()
}

fn write_request(item: BatchItem<'_>, prefix: &[u8]) -> Result<WriteRequest, String> {
    let url = &item.url;
    let name = parse_name(url.as_bytes()).map_err(|why| format!("{url}: {why}"))?;
    if !url.as_bytes().starts_with(prefix) {
        let prefix = String::from_utf8_lossy(prefix);
        return Err(format!(
            "{url} is not under {prefix}, to which the batch was sent"
        ));
    }
    let condition = match item.if_match.as_deref() {
        None => WriteCondition::default(),
        Some(text) => {
            let version: Result<DocumentVersion, _> = text.trim_matches('"').parse();
            let version =
                version.map_err(|_| format!("{url}: if_match is not the ETag of a document"))?;
            WriteCondition::if_match(version)
        }
    };
    let (body, usual) = match (item.value, item.text, item.delete) {
        (Some(value), None, false) => (
            Bytes::copy_from_slice(value.get().as_bytes()),
            "application/json",
        ),
        (None, Some(text), false) => (Bytes::from(text), "text/plain; charset=utf-8"),
        (None, None, true) => {
            return Ok(WriteRequest {
                name,
                op: WriteOp::Delete,
                condition,
            });
        }
        _ => {
            return Err(format!(
                "{url}: exactly one of value, text and delete is required"
            ));
        }
    };
    let ttl = match item.ttl {
        None => None,
        Some(seconds) => {
            let ttl = seconds.as_u64().and_then(ttl_in_millis);
            Some(ttl.ok_or_else(|| format!("{url}: ttl must be {TTL_RANGE}"))?)
        }
    };
    let media_type = item.media_type.unwrap_or_else(|| usual.to_owned());
    if !media_type.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(format!("{url}: type must be visible ASCII"));
    }
    if is_event_stream(media_type.as_bytes()) {
        return Err(format!("{url}: a document cannot be an event stream"));
    }
    check(&media_type, &body)
        .map_err(|why| format!("{url}: the value is not valid JSON: {why}"))?;
    let content = DocumentContent {
        media_type: media_type.into(),
        body,
    };
    Ok(WriteRequest {
        name,
        op: WriteOp::Put(content, ttl),
        condition,
    })
}

/// Builds the response: the entity tag of each document in the order of the batch, `null` for deleted ones.
pub(crate) fn answer(done: &[WriteOutcome]) -> OriginResponse {
    let tags: Vec<_> = done
        .iter()
        .map(|done| match done {
            WriteOutcome::Created(version)
            | WriteOutcome::Changed(version)
            | WriteOutcome::Same(version) => {
                json!({"etag": version.entity_tag()})
            }
            WriteOutcome::Deleted => json!({"etag": null}),
        })
        .collect();
    let body = serde_json::Value::Array(tags).to_string();
    let mut answer = answer::whole(200, "application/json", body.into());
    answer.fields.push("Cache-Control", "no-store");
    answer
}

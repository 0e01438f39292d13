//! Batches: writes to many documents, applied together or not at all.

use bytes::Bytes;
use microcache_engine::OriginResponse;
use microcache_policy::is_event_stream;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::answer;
use crate::changes::change::Content;
use crate::changes::json::check;
use crate::changes::version::Version;
use crate::name::name;
use crate::publishing::wish::{Condition, Deed, Done, Wish};

/// Limit of documents in a batch.
const MAX_BATCH: usize = 1000;

/// One item of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said<'a> {
    url: String,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    text: Option<String>,
    #[serde(rename = "type")]
    media_type: Option<String>,
    ttl: Option<u32>,
    if_match: Option<String>,
    #[serde(default)]
    delete: bool,
}

/// Parses a batch, all of whose documents have to be under `prefix`.
pub(crate) fn read(body: &[u8], prefix: &[u8]) -> Result<Vec<Wish>, String> {
    let said: Vec<Said<'_>> = serde_json::from_slice(body).map_err(|error| {
        format!("a batch is a list such as [{{\"url\": \"/live/x\", \"value\": 1}}]: {error}")
    })?;
    if said.len() > MAX_BATCH {
        return Err(format!("a batch has {MAX_BATCH} documents at most"));
    }
    said.into_iter().map(|said| wish(said, prefix)).collect()
}

fn wish(said: Said<'_>, prefix: &[u8]) -> Result<Wish, String> {
    let url = &said.url;
    let name = name(url.as_bytes()).map_err(|why| format!("{url}: {why}"))?;
    if !url.as_bytes().starts_with(prefix) {
        let prefix = String::from_utf8_lossy(prefix);
        return Err(format!(
            "{url} is not under {prefix}, where the batch was sent to"
        ));
    }
    let condition = match said.if_match.as_deref() {
        None => Condition::default(),
        Some(text) => {
            let version: Result<Version, _> = text.trim_matches('"').parse();
            let version =
                version.map_err(|_| format!("{url}: if_match is no ETag of a document"))?;
            Condition::only(version)
        }
    };
    let (body, usual) = match (said.value, said.text, said.delete) {
        (Some(value), None, false) => (
            Bytes::copy_from_slice(value.get().as_bytes()),
            "application/json",
        ),
        (None, Some(text), false) => (Bytes::from(text), "text/plain; charset=utf-8"),
        (None, None, true) => {
            return Ok(Wish {
                name,
                deed: Deed::Delete,
                condition,
            });
        }
        _ => return Err(format!("{url}: say one of value, text and delete")),
    };
    if said.ttl == Some(0) {
        return Err(format!("{url}: ttl is a number of seconds from 1 on"));
    }
    let media_type = said.media_type.unwrap_or_else(|| usual.to_owned());
    if !media_type.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(format!(
            "{url}: the type has something in it that is not visible ASCII"
        ));
    }
    if is_event_stream(media_type.as_bytes()) {
        return Err(format!("{url}: a document is no event stream"));
    }
    check(&media_type, &body).map_err(|why| format!("{url}: it is not JSON: {why}"))?;
    let content = Content {
        media_type: media_type.into(),
        body,
    };
    let ttl = said.ttl.map(|seconds| u64::from(seconds) * 1000);
    Ok(Wish {
        name,
        deed: Deed::Put(content, ttl),
        condition,
    })
}

/// Builds the response: the entity tag of each document in the order of the batch, `null` for deleted ones.
pub(crate) fn answer(done: &[Done]) -> OriginResponse {
    let tags: Vec<_> = done
        .iter()
        .map(|done| match done {
            Done::Created(version) | Done::Changed(version) | Done::Same(version) => {
                json!({"etag": version.entity_tag()})
            }
            Done::Deleted => json!({"etag": null}),
        })
        .collect();
    let body = serde_json::Value::Array(tags).to_string();
    let mut answer = answer::whole(200, "application/json", body.into());
    answer.fields.push("Cache-Control", "no-store");
    answer
}

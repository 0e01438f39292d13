//! What is answered, in HTTP's words.

use bytes::Bytes;
use microcache_engine::{Body, OriginResponse};
use microcache_policy::FieldsBuf;
use microcache_store::Hit;
use serde_json::json;

/// The patches that are understood.
pub(crate) const ACCEPTED_PATCHES: &str =
    "application/merge-patch+json, application/json-patch+json";
/// What may be asked of a document.
const ALLOWED: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// An answer without content.
pub(crate) fn bare(status: u16) -> OriginResponse {
    OriginResponse {
        status,
        fields: FieldsBuf::new(),
        length: (status != 204).then_some(0),
        body: Body::Empty,
        tunnel: None,
        waited: 0,
    }
}

/// An answer with all of its content.
pub(crate) fn whole(status: u16, media_type: &str, body: Bytes) -> OriginResponse {
    let mut answer = bare(status);
    answer.fields.push("Content-Type", media_type);
    answer.length = Some(body.len() as u64);
    answer.body = Body::Full(body);
    answer
}

/// Why there is nothing else (RFC 9457). It is never kept.
pub(crate) fn problem(status: u16, detail: impl std::fmt::Display) -> OriginResponse {
    let body = json!({"status": status, "detail": detail.to_string()}).to_string();
    let mut answer = whole(status, "application/problem+json", body.into());
    answer.fields.push("Cache-Control", "no-store");
    answer
}

/// To a request that is not for this method.
pub(crate) fn not_allowed() -> OriginResponse {
    let mut answer = problem(405, format!("documents have {ALLOWED}"));
    answer.fields.push("Allow", ALLOWED);
    answer
}

/// To a request that asks what may be asked.
pub(crate) fn options() -> OriginResponse {
    let mut answer = bare(204);
    answer.fields.push("Allow", ALLOWED);
    answer.fields.push("Accept-Patch", ACCEPTED_PATCHES);
    answer
}

/// To a patch of a kind that is not understood.
pub(crate) fn unknown_patch() -> OriginResponse {
    let mut answer = problem(415, format!("a patch is one of {ACCEPTED_PATCHES}"));
    answer.fields.push("Accept-Patch", ACCEPTED_PATCHES);
    answer
}

/// To somebody who may not publish.
pub(crate) fn unauthorised(has_token: bool) -> OriginResponse {
    if !has_token {
        return problem(
            403,
            "nobody may publish: name a file with a secret as `push_token_file`",
        );
    }
    let mut answer = problem(
        401,
        "send the secret of `push_token_file` as Authorization: Bearer SECRET",
    );
    answer.fields.push("WWW-Authenticate", "Bearer");
    answer
}

/// A document.
pub(crate) fn page(page: Hit) -> OriginResponse {
    let mut answer = bare(page.status);
    answer.fields = FieldsBuf::from(page.fields());
    answer.length = Some(page.body.len());
    answer.body = Body::Stored(page);
    answer
}

/// The same, with a word that it is worth another try.
pub(crate) fn later(mut answer: OriginResponse) -> OriginResponse {
    answer.fields.push("Retry-After", "1");
    answer
}

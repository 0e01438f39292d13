//! Builders of HTTP responses.

use bytes::Bytes;
use microcache_engine::{Body, OriginResponse};
use microcache_policy::FieldsBuf;
use microcache_store::Hit;
use serde_json::json;

/// `Accept-Patch` of documents (RFC 5789 §3.1).
pub(crate) const ACCEPTED_PATCHES: &str =
    "application/merge-patch+json, application/json-patch+json";
/// `Allow` of documents.
const ALLOWED: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// A response without content.
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

/// A response with its whole content.
pub(crate) fn whole(status: u16, media_type: &str, body: Bytes) -> OriginResponse {
    let mut answer = bare(status);
    answer.fields.push("Content-Type", media_type);
    answer.length = Some(body.len() as u64);
    answer.body = Body::Full(body);
    answer
}

/// A problem document (RFC 9457), never stored by caches.
pub(crate) fn problem(status: u16, detail: impl std::fmt::Display) -> OriginResponse {
    let body = json!({"status": status, "detail": detail.to_string()}).to_string();
    let mut answer = whole(status, "application/problem+json", body.into());
    answer.fields.push("Cache-Control", "no-store");
    answer
}

/// 405, for a method that documents do not support.
pub(crate) fn not_allowed() -> OriginResponse {
    let mut answer = problem(405, format!("the method is not allowed; use {ALLOWED}"));
    answer.fields.push("Allow", ALLOWED);
    answer
}

/// The response to OPTIONS.
pub(crate) fn options() -> OriginResponse {
    let mut answer = bare(204);
    answer.fields.push("Allow", ALLOWED);
    answer.fields.push("Accept-Patch", ACCEPTED_PATCHES);
    answer
}

/// 415, for a patch in an unsupported format.
pub(crate) fn unknown_patch() -> OriginResponse {
    let mut answer = problem(
        415,
        format!("the Content-Type of a patch must be one of {ACCEPTED_PATCHES}"),
    );
    answer.fields.push("Accept-Patch", ACCEPTED_PATCHES);
    answer
}

/// 401 or, where no publisher token is configured, 403.
pub(crate) fn unauthorised(has_token: bool) -> OriginResponse {
    if !has_token {
        return problem(
            403,
            "publishing is disabled: set push_token_file to a file with the publishers' secret",
        );
    }
    let mut answer = problem(
        401,
        "publishing requires the secret of push_token_file: Authorization: Bearer SECRET",
    );
    answer.fields.push("WWW-Authenticate", "Bearer");
    answer
}

/// A stored document.
pub(crate) fn page(page: Hit) -> OriginResponse {
    let mut answer = bare(page.status());
    answer.fields = FieldsBuf::from(page.fields());
    answer.length = Some(page.body_len());
    answer.body = Body::Stored(page);
    answer
}

/// Adds `Retry-After` to a response.
pub(crate) fn later(mut answer: OriginResponse) -> OriginResponse {
    answer.fields.push("Retry-After", "1");
    answer
}

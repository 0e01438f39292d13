//! Pages of the operator in place of error responses.

use microcache_engine::{Body, Outcome, Response};
use microcache_policy::fields::is_one_of;
use microcache_policy::{Detail, FieldBlock, FieldsBuf};

use crate::config::{ErrorPage, ErrorPages};

/// The fields about the content that a page replaces.
const OF_CONTENT: [&str; 13] = [
    "accept-ranges",
    "cache-control",
    "cdn-cache-control",
    "content-digest",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-type",
    "etag",
    "expires",
    "last-modified",
    "surrogate-control",
];

/// Replaces the content of an error response by the page for its status, if there is one. Missing files of a directory
/// are errors of Microcache itself.
#[cold]
pub(super) fn put_error_page(pages: &ErrorPages, response: &mut Response, has_files: bool) {
    let Some(page) = pages.page(response.status, has_files || is_generated(response)) else {
        return;
    };
    put_page(page, response);
}

/// Replaces the content of a response.
pub(super) fn put_page(page: &ErrorPage, response: &mut Response) {
    let mut fields = FieldsBuf::new();
    fields.extend_if(response.fields(), |name, _| !is_one_of(name, &OF_CONTENT));
    fields.push("Content-Type", &page.content_type);
    fields.push("Cache-Control", "no-store");
    response.fields = Some(FieldBlock::from(fields));
    response.age = None;
    response.length = Some(page.body.len() as u64);
    response.body = Body::Full(page.body.clone());
}

/// Returns true for a response that Microcache itself has made, without content of the operator's.
fn is_generated(response: &Response) -> bool {
    match response.outcome {
        Outcome::Error | Outcome::Limited => true,
        _ => response.cache_status.detail == Some(Detail::Respond) && response.length == Some(0),
    }
}

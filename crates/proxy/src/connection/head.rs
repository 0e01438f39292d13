//! Serialisation of response heads.

use std::cell::RefCell;

use bytes::Bytes;
use http::{StatusCode, Version};
use microcache_engine::{Body, Interim, Response};

use crate::session::{CacheFields, STRICT, is_bodiless, never_has_content, strict_unless_said};

thread_local! {
    static CACHE_FIELDS: RefCell<CacheFields> = RefCell::default();
}

/// Framing that ends a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnding {
    /// `Content-Length`, or no body.
    Counted,
    /// The last chunk.
    Chunked,
    /// The end of the connection.
    Close,
}

/// Properties of a request that decide how its response is framed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseFraming {
    pub(crate) head_only: bool,
    pub(crate) http10: bool,
    pub(crate) keep_alive: bool,
}

impl ResponseFraming {
    /// Returns the HTTP version of the request.
    pub(crate) const fn version(self) -> Version {
        if self.http10 {
            Version::HTTP_10
        } else {
            Version::HTTP_11
        }
    }
}

/// Returns the framing of this response's body (RFC 9112 §6.3).
pub(crate) fn ending(response: &Response, response_framing: ResponseFraming) -> BodyEnding {
    if is_bodiless(response.status, response_framing.head_only) || response.length.is_some() {
        BodyEnding::Counted
    } else if response_framing.http10 {
        BodyEnding::Close
    } else {
        BodyEnding::Chunked
    }
}

/// Writes the head of a final response.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    response: &Response,
    response_framing: ResponseFraming,
    ending: BodyEnding,
) {
    write_status_line(out, response.status);
    out.extend_from_slice(response.fields().as_block());
    CACHE_FIELDS.with_borrow_mut(|fields| fields.append(response, out, write_cache_fields));
    if ending == BodyEnding::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    } else if let Some(length) = response.length
        && !never_has_content(response.status)
    {
        out.extend_from_slice(b"Content-Length: ");
        write_number(out, length);
        out.extend_from_slice(b"\r\n");
    }
    if response.status == 101 {
        out.extend_from_slice(b"Connection: upgrade\r\n");
    } else if !response_framing.keep_alive || ending == BodyEnding::Close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if response_framing.http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn write_cache_fields(response: &Response, out: &mut Vec<u8>) {
    if let Some(age) = response.age {
        out.extend_from_slice(b"Age: ");
        write_number(out, age);
        out.extend_from_slice(b"\r\n");
    }
    if response.cache_status.is_hidden {
        return;
    }
    out.extend_from_slice(b"Cache-Status: ");
    response.cache_status.write(out);
    out.extend_from_slice(b"\r\n");
}

/// Adds `Strict-Transport-Security` to the head written last, unless the response has its own.
pub(crate) fn be_strict(out: &mut Vec<u8>, response: &Response, policy: &str) {
    if let Some(policy) = strict_unless_said(Some(policy), response) {
        // Before the empty line.
        out.truncate(out.len() - 2);
        for piece in [STRICT, ": ", policy, "\r\n\r\n"] {
            out.extend_from_slice(piece.as_bytes());
        }
    }
}

/// Writes an interim response (1xx).
pub(crate) fn write_interim(out: &mut Vec<u8>, interim: &Interim) {
    write_status_line(out, interim.status);
    out.extend_from_slice(interim.fields.fields().as_block());
    out.extend_from_slice(b"\r\n");
}

/// Framing of the last response on a connection.
pub(crate) const LAST: ResponseFraming = ResponseFraming {
    head_only: false,
    http10: false,
    keep_alive: false,
};

/// Returns head and body of a generated response.
pub(crate) fn whole(page: &Response, response_framing: ResponseFraming) -> Bytes {
    let mut out = Vec::with_capacity(512);
    write_head(&mut out, page, response_framing, BodyEnding::Counted);
    if let Body::Full(body) = &page.body
        && !response_framing.head_only
    {
        out.extend_from_slice(body);
    }
    out.into()
}

#[inline]
fn write_status_line(out: &mut Vec<u8>, status: u16) {
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        write_other_status(out, status);
    }
}

#[inline(never)]
fn write_other_status(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    write_number(out, status.into());
    out.push(b' ');
    let reason = StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason());
    out.extend_from_slice(reason.unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

//! Serialisation of response heads.

use std::cell::RefCell;

use microcache_engine::{Interim, Response};
use microcache_policy::Fields;

use super::Outbound;
use super::head_blocks::with_block;
use super::stream_fields::stream_fields;
use crate::h2::hpack::Encoder;
use crate::h2::write;
use crate::session::{CacheFields, STRICT, never_has_content, strict_unless_said};

thread_local! {
    static CACHE_FIELDS: RefCell<CacheFields> = RefCell::default();
}

impl Outbound {
    /// Writes the head of a final response. `strict`: policy of the server, if the connection is secure.
    pub(in crate::h2) fn head(
        &mut self,
        stream: u32,
        response: &Response,
        ends: bool,
        strict: Option<&str>,
    ) {
        let strict = strict_unless_said(strict, response);
        let encoder = &mut self.encoder;
        write::headers(self.buffer.bytes(), stream, ends, |out| {
            let mut number = itoa::Buffer::new();
            let is_stored = with_block(response, |block| encoder.begin_with(out, block));
            if !is_stored {
                encoder.begin(out, response.status);
                fields(encoder, out, response.fields());
                if let Some(length) = response.length
                    && !never_has_content(response.status)
                {
                    encoder.field(out, b"content-length", number.format(length).as_bytes());
                }
            }
            if let Some(policy) = strict {
                encoder.field(out, STRICT.as_bytes(), policy.as_bytes());
            }
            CACHE_FIELDS.with_borrow_mut(|fields| fields.append(response, out, cache_fields));
        });
    }

    /// Writes an interim response.
    pub(in crate::h2) fn interim(&mut self, stream: u32, interim: &Interim) {
        let encoder = &mut self.encoder;
        write::headers(self.buffer.bytes(), stream, false, |out| {
            encoder.begin(out, interim.status);
            fields(encoder, out, interim.fields.fields());
        });
    }

    /// Writes 100 (Continue).
    pub(in crate::h2) fn go_on(&mut self, stream: u32) {
        let encoder = &mut self.encoder;
        write::headers(self.buffer.bytes(), stream, false, |out| {
            encoder.begin(out, 100);
        });
    }

    /// Ends a stream with trailers.
    pub(in crate::h2) fn trailers(&mut self, stream: u32, trailers: Fields<'_>) {
        let encoder = &mut self.encoder;
        write::headers(self.buffer.bytes(), stream, true, |out| {
            encoder.begin_trailers(out);
            fields(encoder, out, trailers);
        });
    }
}

/// Writes fields that change from second to second: without the dynamic table.
fn cache_fields(response: &Response, out: &mut Vec<u8>) {
    if let Some(age) = response.age {
        let mut number = itoa::Buffer::new();
        let age = number.format(age).as_bytes();
        Encoder::single(out, b"age", |out| out.extend_from_slice(age));
    }
    if !response.cache_status.is_hidden {
        Encoder::single(out, b"cache-status", |out| response.cache_status.write(out));
    }
}

fn fields(encoder: &mut Encoder, out: &mut Vec<u8>, fields: Fields<'_>) {
    for (name, value) in stream_fields(fields) {
        encoder.field(out, name, value);
    }
}

//! Serialisation of response heads.

use microcache_engine::{Interim, Response};
use microcache_policy::Fields;

use super::connection::Http2ServerConnection;
use super::hpack::Encoder;
use super::write;
use crate::session::{STRICT, never_has_content, strict_unless_said};

impl Http2ServerConnection<'_> {
    /// Sends the head of a final response.
    pub(super) fn write_head(&mut self, id: u32, response: &Response, ends: bool) {
        let strict = strict_unless_said(self.session.strict(), response);
        let encoder = &mut self.encoder;
        write::headers(&mut self.out.bytes, id, ends, |out| {
            encoder.begin(out, response.status);
            fields(encoder, out, response.fields());
            if let Some(policy) = strict {
                encoder.field(out, STRICT.as_bytes(), policy.as_bytes());
            }
            let mut number = itoa::Buffer::new();
            if let Some(age) = response.age {
                encoder.field(out, b"age", number.format(age).as_bytes());
            }
            if let Some(length) = response.length
                && !never_has_content(response.status)
            {
                encoder.field(out, b"content-length", number.format(length).as_bytes());
            }
            let start = out.len();
            response.cache_status.write(out);
            let value = smallvec::SmallVec::<[u8; 128]>::from_slice(&out[start..]);
            out.truncate(start);
            encoder.field(out, b"cache-status", &value);
        });
    }

    /// Sends an interim response.
    pub(super) fn write_interim(&mut self, id: u32, interim: &Interim) {
        let encoder = &mut self.encoder;
        write::headers(&mut self.out.bytes, id, false, |out| {
            encoder.begin(out, interim.status);
            fields(encoder, out, interim.fields.fields());
        });
    }

    /// Sends 100 (Continue).
    pub(super) fn write_continue(&mut self, id: u32) {
        let encoder = &mut self.encoder;
        write::headers(&mut self.out.bytes, id, false, |out| {
            encoder.begin(out, 100);
        });
    }

    /// Ends a stream with trailers.
    pub(super) fn write_trailers(&mut self, id: u32, trailers: Fields<'_>) {
        let encoder = &mut self.encoder;
        write::headers(&mut self.out.bytes, id, true, |out| {
            encoder.begin_trailers(out);
            fields(encoder, out, trailers);
        });
    }
}

fn fields(encoder: &mut Encoder, out: &mut Vec<u8>, fields: Fields<'_>) {
    for (name, value) in fields {
        if !is_of_connection(name) {
            encoder.field(out, name, value);
        }
    }
}

/// Returns `true` for connection-specific fields, which HTTP/2 forbids (RFC 9113 §8.2.2).
fn is_of_connection(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    match name.len() {
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        _ => false,
    }
}

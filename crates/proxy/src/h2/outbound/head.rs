//! Serialisation of response heads.

use microcache_engine::{Interim, Response};
use microcache_policy::Fields;

use super::Outbound;
use crate::h2::hpack::Encoder;
use crate::h2::write;
use crate::session::{STRICT, never_has_content, strict_unless_said};

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

//! Encoding of the chunked transfer coding (RFC 9112 §7.1).

use microcache_policy::Fields;

/// Line end behind the bytes of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// End of a body without trailers.
pub const BODY_END: &[u8] = b"0\r\n\r\n";

/// Encodes a chunk. Empty data is skipped, because an empty chunk would end the body.
pub fn chunk(out: &mut Vec<u8>, data: &[u8]) {
    if !data.is_empty() {
        chunk_size(out, data.len());
        out.extend_from_slice(data);
        out.extend_from_slice(CHUNK_END);
    }
}

/// Encodes the line before a chunk of `size` bytes.
pub fn chunk_size(out: &mut Vec<u8>, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(size >> (digit * 4)) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Encodes the last chunk and the trailer section.
pub fn trailers(out: &mut Vec<u8>, fields: Fields<'_>) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(fields.as_block());
    out.extend_from_slice(b"\r\n");
}

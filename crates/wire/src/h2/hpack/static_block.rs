//! Field blocks that are encoded once and sent many times.

use super::{fixed, literal};

/// Beginning of a response's field block, valid on every connection: it has references to the static table and literals
/// without indexing only. Strings have the shorter of both forms. Huffman coding costs the sender nothing when the block
/// is sent again, and a receiver less than the bytes that it saves.
#[derive(Debug)]
pub struct StaticBlock(Vec<u8>);

impl StaticBlock {
    /// Block with the status.
    pub fn new(status: u16) -> Self {
        let mut bytes = Vec::new();
        literal::status(&mut bytes, status);
        Self(bytes)
    }

    /// Adds a field. Names are converted to lower case (RFC 9113 §8.2.1).
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        // RFC 7541 §7.1.3: a secret is not indexed by intermediaries either.
        let never_indexed = name.eq_ignore_ascii_case(b"set-cookie");
        let pattern = if never_indexed { 0x10 } else { 0 };
        literal::shortest(
            &mut self.0,
            (pattern, 4),
            fixed::of_response(name),
            name,
            value,
        );
    }

    /// Bytes of the block.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

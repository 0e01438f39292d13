//! Field lines of a decoded section, in the form of HTTP/1, with their index.

use microcache_policy::{FieldIndex, Fields, KnownName};

/// Field lines as `name: value\r\n`.
#[derive(Debug, Default)]
pub(super) struct SectionLines {
    block: Vec<u8>,
    index: FieldIndex,
}

impl SectionLines {
    /// Removes all lines, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.block.clear();
        self.index.clear();
    }

    /// Appends a valid line. `known`: the name, if it is known.
    pub(super) fn push(&mut self, name: &[u8], known: Option<KnownName>, value: &[u8]) {
        self.index
            .push(name.len(), known, name.len() + value.len() + 4);
        self.block.extend_from_slice(name);
        self.block.extend_from_slice(b": ");
        self.block.extend_from_slice(value);
        self.block.extend_from_slice(b"\r\n");
    }

    /// Returns a view of the lines.
    pub(super) fn fields(&self) -> Fields<'_> {
        Fields::indexed(&self.block, &self.index)
    }
}

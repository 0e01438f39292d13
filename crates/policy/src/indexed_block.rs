//! The field lines of a request in shared memory, with their index.

use std::sync::Arc;

use bytes::Bytes;

use crate::field_block::FieldBlock;
use crate::field_index::FieldIndex;
use crate::fields::{Fields, FieldsBuf};

/// A shared block of well-formed field lines and its index.
#[derive(Clone, Debug, Default)]
pub struct IndexedBlock {
    block: FieldBlock,
    /// `None` for no lines.
    index: Option<Arc<FieldIndex>>,
}

impl IndexedBlock {
    /// Copies the lines and their index, and the other bytes behind the lines.
    pub fn copied_with(fields: Fields<'_>, others: &[&[u8]]) -> (Self, Bytes) {
        let (block, others) = FieldBlock::copied_with(fields, others);
        let index = Some(Arc::new(fields.to_index()));
        (Self { block, index }, others)
    }

    /// A view of the lines.
    pub fn fields(&self) -> Fields<'_> {
        let fields = self.block.fields();
        match &self.index {
            Some(index) => Fields::indexed(fields.as_block(), index),
            None => fields,
        }
    }
}

impl From<FieldsBuf> for IndexedBlock {
    fn from(fields: FieldsBuf) -> Self {
        let block = FieldBlock::from(fields);
        let index = Some(Arc::new(block.fields().to_index()));
        Self { block, index }
    }
}

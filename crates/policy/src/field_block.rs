//! Validated field lines in shared memory.

use bytes::Bytes;

use crate::fields::{Fields, FieldsBuf};
use crate::stored_fields::is_stored_form;

/// A shared block of well-formed field lines. It can only be made of validated lines, so it is written to a connection
/// without another check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldBlock(Bytes);

impl FieldBlock {
    /// Parses the fields of a stored response from storage that other processes can write. `None` if the block cannot
    /// be sent in the head of a response: it has malformed lines, framing fields or hop-by-hop fields.
    pub fn of_stored(block: Bytes) -> Option<Self> {
        is_stored_form(&block).then_some(Self(block))
    }

    /// Copies the lines, and the other bytes behind them, into one allocation.
    pub fn copied_with(fields: Fields<'_>, others: &[&[u8]]) -> (Self, Bytes) {
        let block = fields.as_block();
        let length = block.len() + others.iter().map(|one| one.len()).sum::<usize>();
        let mut together = Vec::with_capacity(length);
        together.extend_from_slice(block);
        for one in others {
            together.extend_from_slice(one);
        }
        let mut together = Bytes::from(together);
        (Self(together.split_to(block.len())), together)
    }

    /// A view of the lines.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.0)
    }

    /// A slice of the lines in [`FieldBlock::fields`]. It shares the allocation.
    pub fn part(&self, part: &[u8]) -> Bytes {
        self.0.slice_ref(part)
    }
}

impl From<Fields<'_>> for FieldBlock {
    fn from(fields: Fields<'_>) -> Self {
        Self(Bytes::copy_from_slice(fields.as_block()))
    }
}

impl From<FieldsBuf> for FieldBlock {
    fn from(fields: FieldsBuf) -> Self {
        Self(fields.into_block().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_fields_are_parsed() {
        for (block, expected) in [
            ("", true),
            ("A: 1\r\nb:\t2 \r\n", true),
            ("A: 1", false),
            ("A: 1\n", false),
            ("A 1\r\n", false),
            (": 1\r\n", false),
            ("A : 1\r\n", false),
            (" A: 1\r\n", false),
            ("A: 1\rB: 2\r\n", false),
            ("A: \0\r\n", false),
            ("A: 1\r\n\r\n", false),
            ("Content-Length: 1\r\n", false),
            ("Transfer-Encoding: chunked\r\n", false),
            ("Connection: close\r\n", false),
            ("Age: 1\r\n", false),
        ] {
            let read = FieldBlock::of_stored(Bytes::from_static(block.as_bytes()));
            assert_eq!(read.is_some(), expected, "{block:?}");
            if let Some(read) = read {
                assert_eq!(read.fields().as_block(), block.as_bytes());
            }
        }
    }

    #[test]
    fn a_copy_is_followed_by_the_added_fields() {
        let fields = Fields::new(b"A: 1\r\n");
        let (block, rest) = FieldBlock::copied_with(fields, &[b"one", b"", b"two"]);
        assert_eq!(block.fields(), fields);
        assert_eq!(&rest[..], b"onetwo");
    }

    #[test]
    fn an_assembled_block_is_valid() {
        let mut fields = FieldsBuf::new();
        fields.push("A", "1\r\nB: 2\0");
        let block = FieldBlock::from(fields);
        assert_eq!(block.fields().as_block(), b"A: 1  B: 2 \r\n");
        assert!(FieldBlock::of_stored(Bytes::copy_from_slice(block.fields().as_block())).is_some());
    }
}

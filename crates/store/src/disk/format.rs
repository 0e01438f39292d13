//! Format of an entry file: fixed prefix, head, body, and a checksum per block of the body.
//!
//! The prefix contains a checksum of prefix, head and checksum table, so that a reader can verify each part
//! without reading the others.

use std::ops::Range;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::content::BLOCK;
use crate::tier::EntryId;

/// Magic number; the last byte is the format version.
const MAGIC: [u8; 4] = *b"MCD\x01";

/// Prefix of an entry file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePrefix {
    /// Id of the entry.
    pub id: EntryId,
    /// Expiry, in seconds since the Unix epoch.
    pub expires: u64,
    /// Length of the head, which follows the prefix, in bytes.
    pub head_len: u32,
    /// Offset of the body, possibly after a hole.
    pub body_offset: u32,
    /// Length of the body, in bytes. The checksum table follows and ends the file.
    pub body_len: u64,
    /// Checksum of the table.
    pub table_sum: u64,
}

/// Reasons why a file is not a valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Other magic number or version.
    #[error("not a file of this format")]
    Foreign,
    /// The lengths do not add up to that of the file.
    #[error("file length mismatch")]
    Length,
    /// The contents do not match their checksum.
    #[error("checksum mismatch")]
    Checksum,
    /// Entry of another id.
    #[error("entry of another id")]
    Id,
}

impl FilePrefix {
    /// Length of the prefix, in bytes.
    pub const LEN: usize = 4 + 4 + 4 + 8 + 8 + 16 + 8 + 8;

    /// Encodes the prefix of a file with this head.
    pub fn encode(&self, head: &[u8]) -> [u8; Self::LEN] {
        let mut out = Vec::with_capacity(Self::LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.head_len.to_le_bytes());
        out.extend_from_slice(&self.body_offset.to_le_bytes());
        out.extend_from_slice(&self.body_len.to_le_bytes());
        out.extend_from_slice(&self.expires.to_le_bytes());
        out.extend_from_slice(&self.id.to_bytes());
        out.extend_from_slice(&self.table_sum.to_le_bytes());
        let sum = seal(&out, head);
        out.extend_from_slice(&sum.to_le_bytes());
        out.try_into().expect("the fields' lengths add up")
    }

    /// Decodes the prefix from the beginning of a file of `file_len` bytes. The head is yet to be verified.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if it is not the prefix of a file of that length.
    pub fn decode(opening: &[u8], file_len: u64) -> Result<Self, FormatError> {
        let opening: &[u8; Self::LEN] = opening.first_chunk().ok_or(FormatError::Length)?;
        let mut rest = &opening[..];
        if take::<4>(&mut rest)? != MAGIC {
            return Err(FormatError::Foreign);
        }
        let prefix = Self {
            head_len: u32::from_le_bytes(take(&mut rest)?),
            body_offset: u32::from_le_bytes(take(&mut rest)?),
            body_len: u64::from_le_bytes(take(&mut rest)?),
            expires: u64::from_le_bytes(take(&mut rest)?),
            id: EntryId::from_bytes(take(&mut rest)?),
            table_sum: u64::from_le_bytes(take(&mut rest)?),
        };
        let head_end = Self::LEN as u64 + u64::from(prefix.head_len);
        let table_len = prefix.body_len.div_ceil(BLOCK) * 8;
        let end = u64::from(prefix.body_offset)
            .checked_add(prefix.body_len)
            .and_then(|end| end.checked_add(table_len));
        if head_end > u64::from(prefix.body_offset) || end != Some(file_len) {
            return Err(FormatError::Length);
        }
        Ok(prefix)
    }

    /// Verifies the head against the checksum in `opening`, the encoded prefix.
    ///
    /// # Errors
    ///
    /// [`FormatError::Checksum`] if it does not match.
    pub fn check_head(&self, opening: &[u8], head: &[u8]) -> Result<(), FormatError> {
        let (fields, mut rest) = opening
            .split_at_checked(Self::LEN - 8)
            .ok_or(FormatError::Length)?;
        let sum = u64::from_le_bytes(take(&mut rest)?);
        if head.len() == self.head_len as usize && seal(fields, head) == sum {
            Ok(())
        } else {
            Err(FormatError::Checksum)
        }
    }

    /// Returns the checksum of prefix and head from the encoded prefix.
    pub fn seal(opening: &[u8]) -> u64 {
        let sum = opening
            .get(Self::LEN - 8..)
            .and_then(|rest| rest.first_chunk());
        sum.map_or(0, |sum| u64::from_le_bytes(*sum))
    }

    /// Range of the head in the file.
    pub const fn head(&self) -> Range<usize> {
        Self::LEN..Self::LEN + self.head_len as usize
    }

    /// Range of the body in the file.
    pub const fn body(&self) -> Range<u64> {
        self.body_offset as u64..self.body_offset as u64 + self.body_len
    }

    /// Length of the checksum table, in bytes.
    pub const fn table_len(&self) -> usize {
        self.body_len.div_ceil(BLOCK) as usize * 8
    }

    /// Decodes and verifies the checksum table.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if its length or checksum does not match.
    pub fn sums(&self, table: &[u8]) -> Result<Box<[u64]>, FormatError> {
        if table.len() != self.table_len() {
            return Err(FormatError::Length);
        }
        if xxh3_64(table) != self.table_sum {
            return Err(FormatError::Checksum);
        }
        let (sums, _) = table.as_chunks();
        Ok(sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect())
    }
}

/// Verifies all blocks of a body.
///
/// # Errors
///
/// [`FormatError::Checksum`] if one does not match.
pub fn check_body(body: &[u8], sums: &[u64]) -> Result<(), FormatError> {
    let blocks = body.chunks(BLOCK as usize);
    if blocks.len() == sums.len() && blocks.zip(sums).all(|(block, sum)| xxh3_64(block) == *sum) {
        Ok(())
    } else {
        Err(FormatError::Checksum)
    }
}

/// Incremental block checksums of a body.
pub(crate) struct BlockSums {
    done: Vec<u64>,
    block: Xxh3,
    len: u64,
}

impl BlockSums {
    pub(crate) fn new() -> Self {
        Self {
            done: Vec::new(),
            block: Xxh3::new(),
            len: 0,
        }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = BLOCK - self.len % BLOCK;
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            self.block.update(now);
            self.len += now.len() as u64;
            if self.len.is_multiple_of(BLOCK) {
                self.end_block();
            }
            bytes = later;
        }
    }

    /// Number of bytes so far.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn finish(mut self) -> Box<[u64]> {
        if !self.len.is_multiple_of(BLOCK) {
            self.end_block();
        }
        self.done.into()
    }

    fn end_block(&mut self) {
        self.done.push(self.block.digest());
        self.block.reset();
    }
}

/// Encodes the checksum table. Returns it with its own checksum.
pub(crate) fn table(sums: &[u64]) -> (Vec<u8>, u64) {
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let sum = xxh3_64(&bytes);
    (bytes, sum)
}

fn seal(fields: &[u8], head: &[u8]) -> u64 {
    xxh3_64(fields) ^ xxh3_64(head).rotate_left(1)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FormatError> {
    let (first, after) = rest.split_first_chunk().ok_or(FormatError::Length)?;
    *rest = after;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(head_len: u32, body_offset: u32, body_len: u64) -> FilePrefix {
        FilePrefix {
            id: EntryId::of(b"key"),
            expires: 1_800_000_000,
            head_len,
            body_offset,
            body_len,
            table_sum: 7,
        }
    }

    #[test]
    fn lengths_that_lie_are_noticed() {
        const LEN: u32 = FilePrefix::LEN as u32;
        for (one, file_len, expected) in [
            (prefix(4, LEN + 4, 0), u64::from(LEN) + 4, Ok(())),
            (prefix(4, LEN + 4, 1), u64::from(LEN) + 4 + 1 + 8, Ok(())),
            (prefix(4, LEN + 9, 1), u64::from(LEN) + 9 + 1 + 8, Ok(())),
            (
                prefix(4, LEN + 4, 1),
                u64::from(LEN) + 4 + 1,
                Err(FormatError::Length),
            ),
            (
                prefix(5, LEN + 4, 0),
                u64::from(LEN) + 4,
                Err(FormatError::Length),
            ),
            (
                prefix(u32::MAX, LEN, 0),
                u64::from(LEN),
                Err(FormatError::Length),
            ),
            (
                prefix(0, u32::MAX, u64::MAX),
                u64::from(LEN),
                Err(FormatError::Length),
            ),
            (
                prefix(0, LEN, u64::MAX - 100),
                u64::from(LEN),
                Err(FormatError::Length),
            ),
        ] {
            let bytes = one.encode(b"head");
            let read = FilePrefix::decode(&bytes, file_len);
            assert_eq!(read, expected.map(|()| one), "{one:?} in {file_len}");
        }
    }

    #[test]
    fn foreign_and_short_files_are_detected() {
        let bytes = prefix(0, FilePrefix::LEN as u32, 0).encode(b"");
        let len = bytes.len() as u64;
        assert_eq!(
            FilePrefix::decode(&[b'x'; 100], len),
            Err(FormatError::Foreign)
        );
        assert_eq!(
            FilePrefix::decode(&bytes[..59], len),
            Err(FormatError::Length)
        );
        assert_eq!(FilePrefix::decode(b"", 0), Err(FormatError::Length));
    }

    proptest! {
        #[test]
        fn sums_do_not_depend_on_the_pieces(
            len in 0..3 * BLOCK as usize + 10,
            pieces in proptest::collection::vec(1..200_000usize, 1..40),
        ) {
            let body: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut sums = BlockSums::new();
            let mut rest = &body[..];
            for piece in pieces {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                sums.update(now);
                rest = later;
            }
            sums.update(rest);
            prop_assert_eq!(sums.len(), len as u64);
            prop_assert_eq!(check_body(&body, &sums.finish()), Ok(()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(prefix) = FilePrefix::decode(&bytes, bytes.len() as u64) {
                prop_assert!(prefix.head().end <= bytes.len());
            }
        }
    }
}

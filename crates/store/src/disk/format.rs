//! What one file holds: a fixed prefix, the head, the body, and the checksum of each block of the
//! body.
//!
//! The prefix's checksum covers the head too, and the checksum of the table at the end, so
//! that a reader believes each part as soon as it has read that part and nothing else.

use std::ops::Range;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::content::BLOCK;
use crate::tier::EntryId;

/// Every file begins with it; the last byte is the version of this format.
const MAGIC: [u8; 4] = *b"MCD\x01";

/// What stands before the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Whose entry this is.
    pub id: EntryId,
    /// The second, since 1970, from which on it is as if it were not there.
    pub expires: u64,
    /// The length of the head, which follows at once.
    pub head_len: u32,
    /// Where the body begins. There may be a hole between it and the head.
    pub body_offset: u32,
    /// The length of the body. The table of checksums follows at once, and is the end.
    pub body_len: u64,
    /// The checksum of the table.
    pub table_sum: u64,
}

/// Why a file is not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It begins with something else, or another version.
    #[error("not a file of this format")]
    Foreign,
    /// The lengths it gives are not those it has.
    #[error("truncated, or with bytes to spare")]
    Length,
    /// Its contents are not what was written.
    #[error("checksum mismatch")]
    Checksum,
    /// It was written under another id.
    #[error("the entry of another id")]
    Id,
}

impl Prefix {
    /// How long it is.
    pub const LEN: usize = 4 + 4 + 4 + 8 + 8 + 16 + 8 + 8;

    /// Its bytes, for a file with this head.
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

    /// Reads the prefix at the beginning of a file that is `file_len` long. The head is still to
    /// be checked.
    pub fn decode(opening: &[u8], file_len: u64) -> Result<Self, Flaw> {
        let opening: &[u8; Self::LEN] = opening.first_chunk().ok_or(Flaw::Length)?;
        let mut rest = &opening[..];
        if take::<4>(&mut rest)? != MAGIC {
            return Err(Flaw::Foreign);
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
            return Err(Flaw::Length);
        }
        Ok(prefix)
    }

    /// Whether this is the head that was written with the prefix, whose bytes `opening` begins
    /// with.
    pub fn check_head(&self, opening: &[u8], head: &[u8]) -> Result<(), Flaw> {
        let (fields, mut rest) = opening
            .split_at_checked(Self::LEN - 8)
            .ok_or(Flaw::Length)?;
        let sum = u64::from_le_bytes(take(&mut rest)?);
        if head.len() == self.head_len as usize && seal(fields, head) == sum {
            Ok(())
        } else {
            Err(Flaw::Checksum)
        }
    }

    /// The checksum over prefix and head, as it stands in what [`Prefix::decode`] has read.
    pub fn seal(opening: &[u8]) -> u64 {
        let sum = opening
            .get(Self::LEN - 8..)
            .and_then(|rest| rest.first_chunk());
        sum.map_or(0, |sum| u64::from_le_bytes(*sum))
    }

    /// Where the head lies.
    pub const fn head(&self) -> Range<usize> {
        Self::LEN..Self::LEN + self.head_len as usize
    }

    /// Where the body lies.
    pub const fn body(&self) -> Range<u64> {
        self.body_offset as u64..self.body_offset as u64 + self.body_len
    }

    /// How long the table is.
    pub const fn table_len(&self) -> usize {
        self.body_len.div_ceil(BLOCK) as usize * 8
    }

    /// The checksum of each block, from the bytes of the table.
    pub fn sums(&self, table: &[u8]) -> Result<Box<[u64]>, Flaw> {
        if table.len() != self.table_len() {
            return Err(Flaw::Length);
        }
        if xxh3_64(table) != self.table_sum {
            return Err(Flaw::Checksum);
        }
        let (sums, _) = table.as_chunks();
        Ok(sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect())
    }
}

/// Whether each block of a body has its checksum.
pub fn check_body(body: &[u8], sums: &[u64]) -> Result<(), Flaw> {
    let blocks = body.chunks(BLOCK as usize);
    if blocks.len() == sums.len() && blocks.zip(sums).all(|(block, sum)| xxh3_64(block) == *sum) {
        Ok(())
    } else {
        Err(Flaw::Checksum)
    }
}

/// The checksums of a body that comes in pieces.
pub(crate) struct Sums {
    done: Vec<u64>,
    block: Xxh3,
    len: u64,
}

impl Sums {
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

    /// How much there was so far.
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

/// The table's bytes, and their checksum.
pub(crate) fn table(sums: &[u64]) -> (Vec<u8>, u64) {
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let sum = xxh3_64(&bytes);
    (bytes, sum)
}

fn seal(fields: &[u8], head: &[u8]) -> u64 {
    xxh3_64(fields) ^ xxh3_64(head).rotate_left(1)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Flaw> {
    let (first, after) = rest.split_first_chunk().ok_or(Flaw::Length)?;
    *rest = after;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(head_len: u32, body_offset: u32, body_len: u64) -> Prefix {
        Prefix {
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
        const LEN: u32 = Prefix::LEN as u32;
        for (one, file_len, expected) in [
            (prefix(4, LEN + 4, 0), u64::from(LEN) + 4, Ok(())),
            (prefix(4, LEN + 4, 1), u64::from(LEN) + 4 + 1 + 8, Ok(())),
            (prefix(4, LEN + 9, 1), u64::from(LEN) + 9 + 1 + 8, Ok(())),
            (
                prefix(4, LEN + 4, 1),
                u64::from(LEN) + 4 + 1,
                Err(Flaw::Length),
            ),
            (prefix(5, LEN + 4, 0), u64::from(LEN) + 4, Err(Flaw::Length)),
            (prefix(u32::MAX, LEN, 0), u64::from(LEN), Err(Flaw::Length)),
            (
                prefix(0, u32::MAX, u64::MAX),
                u64::from(LEN),
                Err(Flaw::Length),
            ),
            (
                prefix(0, LEN, u64::MAX - 100),
                u64::from(LEN),
                Err(Flaw::Length),
            ),
        ] {
            let bytes = one.encode(b"head");
            let read = Prefix::decode(&bytes, file_len);
            assert_eq!(read, expected.map(|()| one), "{one:?} in {file_len}");
        }
    }

    #[test]
    fn what_is_foreign_or_short_is_noticed() {
        let bytes = prefix(0, Prefix::LEN as u32, 0).encode(b"");
        let len = bytes.len() as u64;
        assert_eq!(Prefix::decode(&[b'x'; 100], len), Err(Flaw::Foreign));
        assert_eq!(Prefix::decode(&bytes[..59], len), Err(Flaw::Length));
        assert_eq!(Prefix::decode(b"", 0), Err(Flaw::Length));
    }

    proptest! {
        #[test]
        fn sums_do_not_depend_on_the_pieces(
            len in 0..3 * BLOCK as usize + 10,
            pieces in proptest::collection::vec(1..200_000usize, 1..40),
        ) {
            let body: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut sums = Sums::new();
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
            if let Ok(prefix) = Prefix::decode(&bytes, bytes.len() as u64) {
                prop_assert!(prefix.head().end <= bytes.len());
            }
        }
    }
}

//! Encoding of items: a whole record, or the manifest of a record in pieces.
//!
//! ```text
//! "mcW\x01" | length of head: u32 | head | body
//! "mcM\x01" | length of body: u64 | of each piece but the last: u32 | generation: u128
//!           | checksum of each piece: u64… | head
//! ```
//! Integers are little-endian. The head contains checksums of itself and of the whole body.

use bytes::{BufMut, Bytes, BytesMut};

use crate::encoding::checksum;

const WHOLE: &[u8; 4] = b"mcW\x01";
const MANIFEST: &[u8; 4] = b"mcM\x01";

/// Decoded item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemValue {
    /// Whole record.
    Whole {
        /// Head.
        head: Bytes,
        /// Body.
        body: Bytes,
    },
    /// Manifest of a record in pieces.
    Manifest(Manifest),
}

/// Manifest of a record in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Head.
    pub head: Bytes,
    /// Length of the body, in bytes.
    pub body_len: u64,
    /// Length of each piece except the last, in bytes.
    pub piece_len: u32,
    /// Unique part of the pieces' names.
    pub generation: u128,
    /// Checksum of each piece.
    pub sums: Vec<u64>,
}

impl ItemValue {
    /// Decodes an item. `None` if it is not a valid record or its body exceeds `max_object`.
    pub fn decode(bytes: &Bytes, max_object: u64) -> Option<Self> {
        let mut rest = &bytes[..];
        let magic = take::<4>(&mut rest)?;
        if magic == *WHOLE {
            let head_len = u32::from_le_bytes(take(&mut rest)?) as usize;
            let start = bytes.len() - rest.len();
            let (head, _) = rest.split_at_checked(head_len)?;
            return Some(Self::Whole {
                head: bytes.slice_ref(head),
                body: bytes.slice(start + head_len..),
            });
        }
        if magic != *MANIFEST {
            return None;
        }
        let body_len = u64::from_le_bytes(take(&mut rest)?);
        let piece_len = u32::from_le_bytes(take(&mut rest)?);
        let generation = u128::from_le_bytes(take(&mut rest)?);
        if body_len > max_object || piece_len == 0 {
            return None;
        }
        let mut sums = Vec::new();
        for _ in 0..body_len.div_ceil(u64::from(piece_len)) {
            sums.push(u64::from_le_bytes(take(&mut rest)?));
        }
        Some(Self::Manifest(Manifest {
            head: bytes.slice_ref(rest),
            body_len,
            piece_len,
            generation,
            sums,
        }))
    }
}

/// Encodes the beginning of a whole record; the body follows.
pub fn whole(head: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + head.len());
    out.put_slice(WHOLE);
    out.put_u32_le(head.len() as u32);
    out.put_slice(head);
    out.freeze()
}

impl Manifest {
    /// Creates the manifest of a body.
    pub fn new(head: Bytes, body: &[u8], piece_len: u32, generation: u128) -> Self {
        Self {
            head,
            body_len: body.len() as u64,
            piece_len,
            generation,
            sums: body.chunks(piece_len as usize).map(checksum).collect(),
        }
    }

    /// Encodes the item.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        out.put_slice(MANIFEST);
        out.put_u64_le(self.body_len);
        out.put_u32_le(self.piece_len);
        out.put_u128_le(self.generation);
        for &sum in &self.sums {
            out.put_u64_le(sum);
        }
        out.put_slice(&self.head);
        out.freeze()
    }

    /// Length of the encoded item, in bytes.
    pub fn encoded_len(&self) -> usize {
        4 + 8 + 4 + 16 + 8 * self.sums.len() + self.head.len()
    }

    /// Joins the pieces of the body, if all checksums match.
    pub fn assemble(&self, pieces: &[Bytes]) -> Option<Bytes> {
        let fits = pieces.len() == self.sums.len()
            && pieces.iter().map(|piece| piece.len() as u64).sum::<u64>() == self.body_len
            && pieces
                .iter()
                .zip(&self.sums)
                .all(|(piece, &sum)| checksum(piece) == sum);
        fits.then(|| pieces.concat().into())
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PIECE: usize = 1000;
    const MAX: u64 = 3 * PIECE as u64;

    fn pieces(body: &Bytes) -> Vec<Bytes> {
        body.chunks(PIECE)
            .map(|piece| body.slice_ref(piece))
            .collect()
    }

    #[test]
    fn a_whole_record_is_read_back() {
        for (head, body) in [
            (&b"head"[..], &b"body"[..]),
            (b"", b""),
            (b"h", b""),
            (b"", b"b"),
        ] {
            let bytes = Bytes::from([&whole(head), body].concat());
            let expected = ItemValue::Whole {
                head: Bytes::copy_from_slice(head),
                body: Bytes::copy_from_slice(body),
            };
            assert_eq!(ItemValue::decode(&bytes, MAX), Some(expected));
        }
    }

    #[test]
    fn a_body_in_pieces_is_read_back() {
        for len in [0, 1, PIECE, PIECE + 1, 2 * PIECE + 500] {
            let body: Bytes = (0..len).map(|n| (n % 251) as u8).collect();
            let manifest = Manifest::new(Bytes::from_static(b"head"), &body, PIECE as u32, 7);
            let encoded = manifest.encode();
            assert_eq!(encoded.len(), manifest.encoded_len());
            let read = ItemValue::decode(&encoded, MAX);
            assert_eq!(read, Some(ItemValue::Manifest(manifest.clone())));
            assert_eq!(manifest.assemble(&pieces(&body)), Some(body));
        }
    }

    #[test]
    fn a_wrong_piece_spoils_the_body() {
        let body = Bytes::from(vec![1; 2 * PIECE + 500]);
        let manifest = Manifest::new(Bytes::new(), &body, PIECE as u32, 7);
        let right = pieces(&body);
        let mut foreign = right.clone();
        foreign[1] = Bytes::from(vec![2; PIECE]);
        let mut short = right.clone();
        short[2] = short[2].slice(1..);
        let mut swapped = right.clone();
        swapped.swap(1, 2);
        for wrong in [
            &foreign,
            &short,
            &swapped,
            &right[..2].to_vec(),
            &Vec::new(),
        ] {
            assert_eq!(manifest.assemble(wrong), None);
        }
    }

    #[test]
    fn lengths_that_lie_are_noticed() {
        let lies = Manifest {
            head: Bytes::new(),
            body_len: MAX + 1,
            piece_len: PIECE as u32,
            generation: 1,
            sums: vec![0; 4],
        };
        assert_eq!(ItemValue::decode(&lies.encode(), MAX), None);
        let few = Manifest {
            body_len: MAX,
            sums: vec![0; 2],
            ..lies
        };
        assert_eq!(ItemValue::decode(&few.encode(), MAX), None);
        let endless = Manifest {
            piece_len: 0,
            ..few.clone()
        };
        assert_eq!(ItemValue::decode(&endless.encode(), MAX), None);
        let long_head = Bytes::from_static(b"mcW\x01\xff\xff\xff\xffhead");
        assert_eq!(ItemValue::decode(&long_head, MAX), None);
        let other_version = Bytes::from_static(b"mcW\x02\0\0\0\0");
        assert_eq!(ItemValue::decode(&other_version, MAX), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(kind in 0..3usize, tail in proptest::collection::vec(any::<u8>(), 0..100)) {
            let magic: &[u8] = [&WHOLE[..], &MANIFEST[..], &[]][kind];
            let bytes = Bytes::from([magic, &tail].concat());
            if let Some(ItemValue::Manifest(manifest)) = ItemValue::decode(&bytes, MAX) {
                prop_assert_eq!(manifest.encode(), bytes);
            }
        }
    }
}

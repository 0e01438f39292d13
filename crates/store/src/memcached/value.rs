//! What is in an item: a record, or the beginning of one whose body is in pieces.
//!
//! ```text
//! "mcW\x01" | length of head: u32 | head | body
//! "mcM\x01" | length of body: u64 | of each piece but the last: u32 | generation: u128
//!           | checksum of each piece: u64… | head
//! ```
//! Numbers are little-endian. The head carries checksums of itself and of the whole body.

use bytes::{BufMut, Bytes, BytesMut};

use crate::encoding::checksum;

const WHOLE: &[u8; 4] = b"mcW\x01";
const MANIFEST: &[u8; 4] = b"mcM\x01";

/// What an item holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// All of a record.
    Whole {
        /// The head.
        head: Bytes,
        /// The body.
        body: Bytes,
    },
    /// A record whose body is in pieces.
    Manifest(Manifest),
}

/// The beginning of a record whose body is in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The head.
    pub head: Bytes,
    /// The length of the body.
    pub body_len: u64,
    /// The length of each piece but the last.
    pub piece_len: u32,
    /// Part of the pieces' names, never used twice.
    pub generation: u128,
    /// The checksum of each piece.
    pub sums: Vec<u64>,
}

impl Value {
    /// Reads an item. `None`: it is not ours, or damaged, or says that its body is larger than
    /// `max_object`.
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

/// What a record in one item begins with; the body follows.
pub fn whole(head: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + head.len());
    out.put_slice(WHOLE);
    out.put_u32_le(head.len() as u32);
    out.put_slice(head);
    out.freeze()
}

impl Manifest {
    /// The manifest of this body.
    pub fn new(head: Bytes, body: &[u8], piece_len: u32, generation: u128) -> Self {
        Self {
            head,
            body_len: body.len() as u64,
            piece_len,
            generation,
            sums: body.chunks(piece_len as usize).map(checksum).collect(),
        }
    }

    /// The item.
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

    /// Its length.
    pub fn encoded_len(&self) -> usize {
        4 + 8 + 4 + 16 + 8 * self.sums.len() + self.head.len()
    }

    /// The body, if this is what belongs into each piece.
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
    fn a_whole_record_comes_back() {
        for (head, body) in [
            (&b"head"[..], &b"body"[..]),
            (b"", b""),
            (b"h", b""),
            (b"", b"b"),
        ] {
            let bytes = Bytes::from([&whole(head), body].concat());
            let expected = Value::Whole {
                head: Bytes::copy_from_slice(head),
                body: Bytes::copy_from_slice(body),
            };
            assert_eq!(Value::decode(&bytes, MAX), Some(expected));
        }
    }

    #[test]
    fn a_body_in_pieces_comes_back() {
        for len in [0, 1, PIECE, PIECE + 1, 2 * PIECE + 500] {
            let body: Bytes = (0..len).map(|n| (n % 251) as u8).collect();
            let manifest = Manifest::new(Bytes::from_static(b"head"), &body, PIECE as u32, 7);
            let encoded = manifest.encode();
            assert_eq!(encoded.len(), manifest.encoded_len());
            let read = Value::decode(&encoded, MAX);
            assert_eq!(read, Some(Value::Manifest(manifest.clone())));
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
        assert_eq!(Value::decode(&lies.encode(), MAX), None);
        let few = Manifest {
            body_len: MAX,
            sums: vec![0; 2],
            ..lies
        };
        assert_eq!(Value::decode(&few.encode(), MAX), None);
        let endless = Manifest {
            piece_len: 0,
            ..few.clone()
        };
        assert_eq!(Value::decode(&endless.encode(), MAX), None);
        let long_head = Bytes::from_static(b"mcW\x01\xff\xff\xff\xffhead");
        assert_eq!(Value::decode(&long_head, MAX), None);
        let other_version = Bytes::from_static(b"mcW\x02\0\0\0\0");
        assert_eq!(Value::decode(&other_version, MAX), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(kind in 0..3usize, tail in proptest::collection::vec(any::<u8>(), 0..100)) {
            let magic: &[u8] = [&WHOLE[..], &MANIFEST[..], &[]][kind];
            let bytes = Bytes::from([magic, &tail].concat());
            if let Some(Value::Manifest(manifest)) = Value::decode(&bytes, MAX) {
                prop_assert_eq!(manifest.encode(), bytes);
            }
        }
    }
}

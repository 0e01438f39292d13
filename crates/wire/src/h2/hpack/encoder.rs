//! Encoder of response fields.
//!
//! A field sent for the first time on a connection is a literal without indexing, because most are never sent
//! again. The second time it is inserted into the table, and from then on takes a byte or two. So dates and
//! entity tags do not pollute the table, without a list of names.

use super::static_block::StaticBlock;
use super::table::DynamicTable;
use super::{TABLE_SIZE, fixed, integer, literal};

/// Slots of the hash table over fields sent before. A power of two.
const SLOTS: usize = 64;
/// Entries above this fraction of the table are not inserted.
const SHARE: usize = 8;

/// Encodes the field blocks of one connection, in their order. Allocates only for fields that are inserted into
/// the table.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// Fingerprint of the field last sent in each slot.
    seen: [u16; SLOTS],
    /// Insertion number of the entry last inserted from each slot, counted from 1.
    entry: [u32; SLOTS],
    /// Pending size updates of the table: the smallest size meanwhile, and the current one (RFC 7541 §4.2).
    resized: Option<(usize, usize)>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            table: DynamicTable::new(TABLE_SIZE),
            seen: [0; SLOTS],
            entry: [0; SLOTS],
            resized: None,
        }
    }
}

impl Encoder {
    /// Applies the peer's limit of the table size, in bytes. At most the default is used.
    pub fn allow(&mut self, size: usize) {
        let size = size.min(TABLE_SIZE);
        if size == self.table.max() && self.resized.is_none() {
            return;
        }
        let least = self.resized.map_or(size, |(least, _)| least.min(size));
        self.table.resize(size);
        self.resized = Some((least, size));
    }

    /// Begins the block of a response with its status.
    pub fn begin(&mut self, out: &mut Vec<u8>, status: u16) {
        self.begin_trailers(out);
        literal::status(out, status);
    }

    /// Begins the block of a response with one that was encoded before.
    pub fn begin_with(&mut self, out: &mut Vec<u8>, block: &StaticBlock) {
        self.begin_trailers(out);
        out.extend_from_slice(block.as_bytes());
    }

    /// Begins the block of a trailer section.
    pub fn begin_trailers(&mut self, out: &mut Vec<u8>) {
        if let Some((least, size)) = self.resized.take() {
            if least < size {
                integer::write(out, 0x20, 5, least);
            }
            integer::write(out, 0x20, 5, size);
        }
    }

    /// Adds a field that is not repeated, whose value is appended by `value`. It leaves all tables alone.
    pub fn single(out: &mut Vec<u8>, name: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
        literal::with_value(out, name, value);
    }

    /// Adds a field. Names are converted to lower case (RFC 9113 §8.2.1).
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        // RFC 7541 §7.1.3: a secret must not be guessed by the compression of later fields.
        if name.eq_ignore_ascii_case(b"set-cookie") {
            return literal::plain(out, 0x10, fixed::of_response(name), name, value);
        }
        let mark = mark(name, value);
        let slot = usize::from(mark) % SLOTS;
        if let Some(age) = self.age_at(slot, name, value) {
            return integer::write(out, 0x80, 7, fixed::LEN + 1 + age);
        }
        let known = fixed::of_response(name);
        if self.seen[slot] != mark || name.len() + value.len() > self.table.max() / SHARE {
            self.seen[slot] = mark;
            return literal::plain(out, 0, known, name, value);
        }
        // It is sent once, so Huffman coding pays.
        literal::shortest(out, (0x40, 6), known, name, value);
        // Static names are in lower case.
        if known == 0 {
            self.table.insert(&name.to_ascii_lowercase(), value);
        } else if let Some((name, _)) = fixed::get(known) {
            self.table.insert(name, value);
        }
        self.entry[slot] = self.table.inserted();
    }

    /// Returns the age of the entry inserted from this slot, if it is still in the table and equals this field.
    fn age_at(&self, slot: usize, name: &[u8], value: &[u8]) -> Option<usize> {
        if self.entry[slot] == 0 {
            return None;
        }
        let age = self.table.inserted().wrapping_sub(self.entry[slot]) as usize;
        let (known, same) = self.table.get(age)?;
        (same == value && known.eq_ignore_ascii_case(name)).then_some(age)
    }
}

/// Returns a fingerprint of a field; never 0, which marks an empty slot.
fn mark(name: &[u8], value: &[u8]) -> u16 {
    let edge = |bytes: &[u8]| {
        let first = bytes.first_chunk::<8>();
        let last = bytes.last_chunk::<8>();
        match (first, last) {
            (Some(first), Some(last)) => {
                u64::from_le_bytes(*first).rotate_left(23) ^ u64::from_le_bytes(*last)
            }
            _ => bytes
                .iter()
                .fold(0, |sum, &byte| sum << 7 ^ u64::from(byte)),
        }
    };
    let name_mark = (name.len() as u64) << 8 | u64::from(name.first().unwrap_or(&0) | 0x20);
    let both = edge(value) ^ (value.len() as u64) << 48 ^ name_mark << 20;
    (both.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16 | 1 << 15
}

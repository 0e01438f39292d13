//! From a field block to fields (RFC 7541 §3, §6).

use super::table::Table;
use super::{TABLE_SIZE, fixed, huffman, integer};

/// A field block that cannot be read. What follows cannot be either: the table is not what the
/// other side thinks it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadBlock(pub &'static str);

const CUT_OFF: BadBlock = BadBlock("a field block that is cut off");
const NO_ENTRY: BadBlock = BadBlock("an index that no table has");

/// Where strings are put together. One serves all connections of a thread.
#[derive(Debug, Default)]
pub struct Scratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Decodes the field blocks of one connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: Table::new(TABLE_SIZE),
        }
    }
}

impl Decoder {
    /// Gives every field of a whole block to `take`. It has to be read to its end, however little
    /// of it is wanted: what comes later refers to it. A field that refers to an entry costs no
    /// more than its reference, however large the entry is, unless `take` copies it.
    pub fn decode(
        &mut self,
        block: &[u8],
        scratch: &mut Scratch,
        mut take: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), BadBlock> {
        let mut rest = block;
        let mut begun = false;
        while let Some(&first) = rest.first() {
            // RFC 7541 §4.2: a change of the size comes before all fields.
            if first & 0xe0 == 0x20 {
                if begun {
                    return Err(BadBlock("the table is resized behind a field"));
                }
                self.resize(&mut rest)?;
                continue;
            }
            begun = true;
            if first & 0x80 != 0 {
                let index = integer::read(&mut rest, 7).ok_or(CUT_OFF)?;
                let (name, value) = lookup(&self.table, index)?;
                take(name, value);
            } else if first & 0x40 != 0 {
                self.literal(&mut rest, 6, scratch, &mut take)?;
                self.table.insert(&scratch.name, &scratch.value);
            } else {
                self.literal(&mut rest, 4, scratch, &mut take)?;
            }
        }
        Ok(())
    }

    fn resize(&mut self, rest: &mut &[u8]) -> Result<(), BadBlock> {
        let size = integer::read(rest, 5).ok_or(CUT_OFF)?;
        if size > TABLE_SIZE {
            return Err(BadBlock("the table is made larger than allowed"));
        }
        self.table.resize(size);
        Ok(())
    }

    /// A field that is written out, or its value alone.
    fn literal(
        &self,
        rest: &mut &[u8],
        prefix: u32,
        scratch: &mut Scratch,
        take: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), BadBlock> {
        let index = integer::read(rest, prefix).ok_or(CUT_OFF)?;
        scratch.name.clear();
        if index == 0 {
            string(rest, &mut scratch.name)?;
        } else {
            scratch
                .name
                .extend_from_slice(lookup(&self.table, index)?.0);
        }
        scratch.value.clear();
        string(rest, &mut scratch.value)?;
        take(&scratch.name, &scratch.value);
        Ok(())
    }
}

fn lookup(table: &Table, index: usize) -> Result<(&[u8], &[u8]), BadBlock> {
    match index.checked_sub(fixed::LEN + 1) {
        Some(age) => table.get(age),
        None => fixed::get(index),
    }
    .ok_or(NO_ENTRY)
}

/// Takes a string off the front (RFC 7541 §5.2). It is no longer than what is left of the block
/// allows, so neither is what is decoded.
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), BadBlock> {
    let coded = rest.first().ok_or(CUT_OFF)? & 0x80 != 0;
    let length = integer::read(rest, 7).ok_or(CUT_OFF)?;
    let bytes = rest.split_off(..length).ok_or(CUT_OFF)?;
    if coded {
        let decoded = huffman::decode(bytes, out);
        return decoded.map_err(|_| BadBlock("a string that is no Huffman code"));
    }
    out.extend_from_slice(bytes);
    Ok(())
}

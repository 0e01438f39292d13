//! Decoder of field blocks (RFC 7541 §3, §6).

use super::table::DynamicTable;
use super::{TABLE_SIZE, fixed, huffman, integer};

/// Error of a field block that cannot be decoded. It ends the connection, as the dynamic tables are out of
/// sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadBlock(pub &'static str);

const CUT_OFF: BadBlock = BadBlock("a truncated field block");
const NO_ENTRY: BadBlock = BadBlock("an invalid HPACK index");

/// Buffers for decoded strings. One per thread serves all connections.
#[derive(Debug, Default)]
pub struct Scratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Decodes the field blocks of one connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: DynamicTable::new(TABLE_SIZE),
        }
    }
}

impl Decoder {
    /// Decodes a complete block and passes every field to `take`. All of it is decoded, even if it is not
    /// needed, as later blocks depend on it. A reference to an entry costs no more than its own bytes, however
    /// large the entry, unless `take` copies it.
    ///
    /// Fails with [`BadBlock`] if the block is malformed.
    pub fn decode(
        &mut self,
        block: &[u8],
        scratch: &mut Scratch,
        mut take: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), BadBlock> {
        let mut rest = block;
        let mut begun = false;
        while let Some(&first) = rest.first() {
            // RFC 7541 §4.2: a change of the table size precedes all fields.
            if first & 0xe0 == 0x20 {
                if begun {
                    return Err(BadBlock("a dynamic table size update after a field"));
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
            return Err(BadBlock("a dynamic table size above the limit"));
        }
        self.table.resize(size);
        Ok(())
    }

    /// Decodes a literal field, or its value alone.
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

fn lookup(table: &DynamicTable, index: usize) -> Result<(&[u8], &[u8]), BadBlock> {
    match index.checked_sub(fixed::LEN + 1) {
        Some(age) => table.get(age),
        None => fixed::get(index),
    }
    .ok_or(NO_ENTRY)
}

/// Decodes a string (RFC 7541 §5.2). Its length is limited by the rest of the block, and so is the decoded one.
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), BadBlock> {
    let coded = rest.first().ok_or(CUT_OFF)? & 0x80 != 0;
    let length = integer::read(rest, 7).ok_or(CUT_OFF)?;
    let bytes = rest.split_off(..length).ok_or(CUT_OFF)?;
    if coded {
        let decoded = huffman::decode(bytes, out);
        return decoded.map_err(|_| BadBlock("an invalid Huffman code"));
    }
    out.extend_from_slice(bytes);
    Ok(())
}

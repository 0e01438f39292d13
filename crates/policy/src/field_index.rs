//! The index of a block of field lines: where its lines and names end, and which names are known. The parser of a head
//! makes it, so that later questions do not read the text again.

use std::ops::Range;

use smallvec::SmallVec;

use crate::known_name::KnownName;
use crate::name_set::NameSet;

/// Lines that an index holds without an allocation. Browsers send about fifteen.
const INLINE: usize = 16;

/// The index of a block of field lines.
#[derive(Clone, Debug, Default)]
pub struct FieldIndex {
    names: NameSet,
    lines: SmallVec<[IndexedLine; INLINE]>,
}

/// The places in one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedLine {
    length: u32,
    name_length: u32,
    /// The number of the name ([`KnownName::number`]).
    number: u8,
}

impl FieldIndex {
    /// Removes all lines, and keeps the memory for the next block.
    #[inline]
    pub fn clear(&mut self) {
        self.names = NameSet::default();
        self.lines.clear();
    }

    /// Adds the line behind those of before: the length of its name, its known name ([`KnownName::of`]), and its whole
    /// length, line end included.
    #[inline]
    pub fn push(&mut self, name_length: usize, known: Option<KnownName>, length: usize) {
        let number = known.map_or(KnownName::UNKNOWN, KnownName::number);
        self.names.insert_number(number);
        self.lines.push(IndexedLine {
            length: length as u32,
            name_length: name_length as u32,
            number,
        });
    }

    /// Removes the lines with this name, and their bytes from the block that it is the index of.
    pub(crate) fn remove(&mut self, name: KnownName, block: &mut Vec<u8>) {
        self.names.remove(name);
        // Adjacent lines are moved together.
        let (mut run, mut length) = (0..0, 0);
        let mut shift = |run: Range<usize>, length: &mut usize| {
            let end = *length + run.len();
            if run.start != *length {
                block.copy_within(run, *length);
            }
            *length = end;
        };
        self.lines.retain(|line| {
            let end = run.end + line.len();
            let is_kept = line.known() != Some(name);
            if is_kept {
                run.end = end;
            } else {
                shift(run.clone(), &mut length);
                run = end..end;
            }
            is_kept
        });
        shift(run, &mut length);
        block.truncate(length);
    }

    /// The number of lines.
    #[inline]
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// The names that occur.
    pub(crate) const fn names(&self) -> NameSet {
        self.names
    }

    pub(crate) fn lines(&self) -> &[IndexedLine] {
        &self.lines
    }
}

impl IndexedLine {
    /// The length of the line in bytes, with its end.
    pub(crate) const fn len(self) -> usize {
        self.length as usize
    }

    /// The length of the name: the place of the colon.
    pub(crate) const fn name_len(self) -> usize {
        self.name_length as usize
    }

    /// The name, if it is known.
    #[inline]
    pub(crate) fn known(self) -> Option<KnownName> {
        KnownName::numbered(self.number)
    }

    /// The number of the name.
    #[inline]
    pub(crate) const fn number(self) -> u8 {
        self.number
    }
}

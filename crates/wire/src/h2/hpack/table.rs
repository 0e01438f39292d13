//! The dynamic table (RFC 7541 §2.3.2, §4): earlier fields, newest first, within a size limit.

use std::collections::VecDeque;

/// Overhead of an entry in bytes (RFC 7541 §4.1).
const OVERHEAD: usize = 32;

/// Dynamic table. An empty one owns no memory; a full one has its bytes in one allocation.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// Names and values of the entries, oldest first, behind those of evicted ones.
    bytes: Vec<u8>,
    entries: VecDeque<TableEntry>,
    size: usize,
    max: usize,
    /// Number of insertions so far.
    inserted: u32,
}

#[derive(Clone, Copy, Debug)]
struct TableEntry {
    at: usize,
    name: usize,
    value: usize,
}

impl TableEntry {
    const fn size(self) -> usize {
        self.name + self.value + OVERHEAD
    }
}

impl DynamicTable {
    /// Empty table of this size in bytes, by RFC 7541 §4.1.
    pub(super) const fn new(max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            max,
            inserted: 0,
        }
    }

    /// Returns name and value of the entry of this age; 0 is the newest.
    pub(super) fn get(&self, age: usize) -> Option<(&[u8], &[u8])> {
        let newest = self.entries.len().checked_sub(1)?;
        let entry = *self.entries.get(newest.checked_sub(age)?)?;
        let both = self.bytes.get(entry.at..)?;
        let (name, rest) = both.split_at_checked(entry.name)?;
        Some((name, rest.get(..entry.value)?))
    }

    /// Inserts an entry, and evicts others for it. One larger than the table empties it.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        self.shrink_to(self.max.saturating_sub(size));
        if size > self.max {
            return;
        }
        if self.bytes.len() + name.len() + value.len() > self.max {
            self.close_up();
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(TableEntry {
            at,
            name: name.len(),
            value: value.len(),
        });
        self.size += size;
        self.inserted = self.inserted.wrapping_add(1);
    }

    /// Changes the size limit, and evicts entries above it.
    pub(super) fn resize(&mut self, max: usize) {
        self.max = max;
        self.shrink_to(max);
    }

    /// Returns the size limit in bytes.
    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// Returns the size of the entries in bytes.
    #[cfg(test)]
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of insertions so far.
    pub(super) const fn inserted(&self) -> u32 {
        self.inserted
    }

    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_front() else {
                return;
            };
            self.size -= oldest.size();
        }
    }

    /// Moves the entries to the front of the buffer.
    fn close_up(&mut self) {
        let start = self.entries.front().map_or(self.bytes.len(), |it| it.at);
        self.bytes.drain(..start);
        for entry in &mut self.entries {
            entry.at -= start;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_entries_are_evicted_first_and_a_large_one_empties_the_table() {
        let mut table = DynamicTable::new(100);
        assert_eq!(table.get(0), None);
        table.insert(b"a", b"1");
        table.insert(b"b", b"22");
        assert_eq!(table.get(0), Some((&b"b"[..], &b"22"[..])));
        assert_eq!(table.get(1), Some((&b"a"[..], &b"1"[..])));
        assert_eq!(table.get(2), None);
        table.insert(b"c", b"3");
        assert_eq!(
            (table.get(1), table.size()),
            (Some((&b"b"[..], &b"22"[..])), 69)
        );
        table.resize(40);
        assert_eq!(
            (table.get(0), table.get(1)),
            (Some((&b"c"[..], &b"3"[..])), None)
        );
        table.insert(b"d", &[0; 100]);
        assert_eq!((table.get(0), table.size()), (None, 0));
    }

    proptest! {
        #[test]
        fn it_is_a_list_with_a_bound(
            max in 0usize..400,
            entries in proptest::collection::vec((".{0,40}", ".{0,90}"), 0..60),
        ) {
            let mut table = DynamicTable::new(max);
            let mut model: Vec<(String, String)> = Vec::new();
            for (name, value) in entries {
                table.insert(name.as_bytes(), value.as_bytes());
                model.insert(0, (name, value));
                let mut size = 0;
                let fits = model.iter().take_while(|(name, value)| {
                    size += name.len() + value.len() + OVERHEAD;
                    size <= max
                });
                let fits = fits.count();
                model.truncate(fits);
                for (age, (name, value)) in model.iter().enumerate() {
                    prop_assert_eq!(table.get(age), Some((name.as_bytes(), value.as_bytes())));
                }
                prop_assert_eq!(table.get(model.len()), None);
                prop_assert!(table.bytes.len() <= max && table.size() <= max);
            }
        }
    }
}

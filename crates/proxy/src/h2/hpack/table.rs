//! The dynamic table (RFC 7541 §2.3.2, §4): what was sent before, newest first, within a bound.

use std::collections::VecDeque;

/// What an entry counts beyond its bytes (RFC 7541 §4.1).
const OVERHEAD: usize = 32;

/// A dynamic table. One that is empty owns no memory; a full one has its bytes in one piece.
#[derive(Debug)]
pub(super) struct Table {
    /// Names and values of the entries, oldest first, behind what has gone.
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    size: usize,
    max: usize,
    /// How many entries there ever were.
    inserted: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: usize,
    name: usize,
    value: usize,
}

impl Entry {
    const fn size(self) -> usize {
        self.name + self.value + OVERHEAD
    }
}

impl Table {
    /// An empty table for so many bytes, as RFC 7541 counts them.
    pub(super) const fn new(max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            max,
            inserted: 0,
        }
    }

    /// Name and value of the entry that came so many before the newest.
    pub(super) fn get(&self, age: usize) -> Option<(&[u8], &[u8])> {
        let newest = self.entries.len().checked_sub(1)?;
        let entry = *self.entries.get(newest.checked_sub(age)?)?;
        let both = self.bytes.get(entry.at..)?;
        let (name, rest) = both.split_at_checked(entry.name)?;
        Some((name, rest.get(..entry.value)?))
    }

    /// Adds an entry; others go to make room for it. One that is larger than the table empties it.
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
        self.entries.push_back(Entry {
            at,
            name: name.len(),
            value: value.len(),
        });
        self.size += size;
        self.inserted = self.inserted.wrapping_add(1);
    }

    /// Bounds it anew.
    pub(super) fn resize(&mut self, max: usize) {
        self.max = max;
        self.shrink_to(max);
    }

    /// Its bound.
    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// What its entries count.
    #[cfg(test)]
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// How many entries there ever were.
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

    /// Moves the entries to the front of their bytes.
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
    fn the_oldest_go_first_and_what_is_too_large_empties_it() {
        let mut table = Table::new(100);
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
            let mut table = Table::new(max);
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

//! Entries that were evicted on probation, remembered by fingerprints.

/// Fingerprints in one set.
const WAYS: usize = 8;

/// Fingerprints of the latest entries that were evicted, at most two for each entry that is present. They are kept in
/// sets, and each set drops its oldest one. Two hashes may have the same fingerprint.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// A power of two of sets, or none. A fingerprint of 0 is none.
    sets: Vec<[u32; WAYS]>,
}

impl Ghosts {
    pub(super) const fn new() -> Self {
        Self { sets: Vec::new() }
    }

    /// Grows to at least a fingerprint for each of `entries` entries.
    pub(super) fn grow(&mut self, entries: usize) {
        if self.sets.len() * WAYS < entries {
            self.resize(entries);
        }
    }

    /// Changes to as few sets as have a fingerprint for each of `entries` entries.
    pub(super) fn resize(&mut self, entries: usize) {
        let size = entries.div_ceil(WAYS).next_power_of_two();
        let before = std::mem::replace(&mut self.sets, vec![[0; WAYS]; size]);
        for fingerprint in before.iter().flat_map(|set| set.iter().rev()) {
            if *fingerprint != 0 {
                self.put(*fingerprint);
            }
        }
    }

    /// Memory used, in bytes.
    pub(super) const fn heap_size(&self) -> usize {
        size_of::<[u32; WAYS]>() * self.sets.capacity()
    }

    /// Remembers an evicted entry.
    pub(super) fn remember(&mut self, hash: u64) {
        self.put(fingerprint(hash));
    }

    /// Forgets an entry. Returns whether it was remembered.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        let fingerprint = fingerprint(hash);
        let Some(set) = self.set(fingerprint) else {
            return false;
        };
        let found = set.iter().position(|one| *one == fingerprint);
        if let Some(at) = found {
            set.copy_within(at + 1.., at);
            set[WAYS - 1] = 0;
        }
        found.is_some()
    }

    fn put(&mut self, fingerprint: u32) {
        if let Some(set) = self.set(fingerprint) {
            set.copy_within(..WAYS - 1, 1);
            set[0] = fingerprint;
        }
    }

    fn set(&mut self, fingerprint: u32) -> Option<&mut [u32; WAYS]> {
        let mask = self.sets.len().wrapping_sub(1);
        self.sets.get_mut(fingerprint as usize & mask)
    }
}

const fn fingerprint(hash: u64) -> u32 {
    match hash as u32 {
        0 => 1,
        fingerprint => fingerprint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    }

    #[test]
    fn the_latest_are_remembered_once() {
        let mut ghosts = Ghosts::new();
        assert!(!ghosts.take(hash(1)));
        ghosts.grow(1000);
        (0..100_000).for_each(|number| ghosts.remember(hash(number)));
        let latest = (99_700..100_000).filter(|&number| ghosts.take(hash(number)));
        assert!(latest.count() > 290);
        assert!((99_700..100_000).all(|number| !ghosts.take(hash(number))));
        let old = (0..90_000).filter(|&number| ghosts.take(hash(number)));
        assert_eq!(old.count(), 0);
    }

    #[test]
    fn growth_forgets_none() {
        let mut ghosts = Ghosts::new();
        ghosts.grow(1);
        (0..8).for_each(|number| ghosts.remember(hash(number)));
        ghosts.grow(5000);
        assert!((0..8).all(|number| ghosts.take(hash(number))));
    }

    #[test]
    fn fewer_fingerprints_are_as_many_as_entries() {
        let mut ghosts = Ghosts::new();
        ghosts.grow(100_000);
        let large = ghosts.heap_size();
        (0..8).for_each(|number| ghosts.remember(hash(number)));
        ghosts.resize(1_000);
        assert!(ghosts.heap_size() <= large / 64 && ghosts.heap_size() >= 4_000);
        assert!((0..8).all(|number| ghosts.take(hash(number))));
    }

    #[test]
    fn they_are_bounded() {
        let mut ghosts = Ghosts::new();
        (0..10_000).for_each(|entries| ghosts.grow(entries));
        assert!(ghosts.sets.len() * WAYS <= 20_000);
    }
}

//! Surrogate keys (tags) of a stored response, as hashes that a purge compares.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::allocation::allocated;

/// Sorted hashes of the tags and groups of a response. A collision causes a needless purge, and is likely
/// only among four billion names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagNumbers(Option<Arc<[u64]>>);

impl TagNumbers {
    /// No tags.
    pub const NONE: Self = Self(None);
    /// Length of an encoded hash, in bytes.
    const ENCODED: usize = 8;

    /// Returns whether there are no tags.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Iterates over the hashes.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|all| all.iter().copied())
    }

    /// Returns whether a hash is among them.
    pub fn contains(&self, number: u64) -> bool {
        let all = self.0.as_deref().unwrap_or_default();
        all.binary_search(&number).is_ok()
    }

    /// Memory used, in bytes.
    pub fn heap_size(&self) -> usize {
        let counts = 2 * size_of::<usize>();
        let all = self.0.as_deref();
        all.map_or(0, |all| allocated(counts + size_of_val(all)))
    }

    /// Encodes the hashes for a tier.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes the hashes; `None` if the length is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<{ Self::ENCODED }>();
        let numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        rest.is_empty().then(|| numbers.collect())
    }
}

impl FromIterator<u64> for TagNumbers {
    fn from_iter<T: IntoIterator<Item = u64>>(numbers: T) -> Self {
        let mut all: Vec<u64> = numbers.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Self((!all.is_empty()).then(|| all.into()))
    }
}

/// Returns the hash of a name with these parts, the same in every process.
pub fn tag_number(kind: u8, parts: &[&[u8]]) -> u64 {
    let mut all = vec![kind];
    for part in parts {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part);
    }
    xxh3_64(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_sorted_and_each_once() {
        let numbers: TagNumbers = [7, 1, 7].into_iter().collect();
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [1, 7]);
        assert!(numbers.contains(7) && !numbers.contains(2));
        assert_eq!(
            TagNumbers::from_bytes(&numbers.to_bytes()),
            Some(numbers.clone())
        );
        assert_eq!(TagNumbers::from_bytes(b""), Some(TagNumbers::default()));
        assert_eq!(TagNumbers::from_bytes(b"too short"), None);
        assert!(TagNumbers::default().is_empty() && !numbers.is_empty());
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(tag_number(0, &[b"ab", b"c"]), tag_number(0, &[b"a", b"bc"]));
        assert_ne!(tag_number(0, &[b"a"]), tag_number(1, &[b"a"]));
    }
}

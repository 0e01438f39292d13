//! Surrogate keys (tags) of a stored response, as hashes that a purge compares.

use std::sync::Arc;

use microcache_policy::tags::MAX_TAGS;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::allocation::allocated;

/// Sorted hashes of the tags and groups of a response. A collision causes a needless purge, and is likely
/// only among four billion names. A response with more than [`MAX_TAGS`] has the hash [`Self::EVERY`] alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagNumbers(Option<Arc<[u64]>>);

impl TagNumbers {
    /// No tags.
    pub const NONE: Self = Self(None);
    /// The hash that every purge by a tag or group covers.
    pub const EVERY: u64 = u64::MAX;
    /// The encoded form of [`Self::EVERY`]. Earlier versions, whose purges do not cover it, refuse the record.
    const ENCODED_EVERY: &[u8] = b"*";
    /// Length of an encoded hash, in bytes.
    const ENCODED: usize = 8;

    /// Returns whether there are no tags.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether every purge by a tag or group covers the response.
    pub fn are_every(&self) -> bool {
        self.contains(Self::EVERY)
    }

    /// The number of hashes.
    pub fn len(&self) -> usize {
        self.0.as_deref().map_or(0, <[u64]>::len)
    }

    /// The hashes of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (_, None) => self.clone(),
            (None, _) => other.clone(),
            _ => self.iter().chain(other.iter()).collect(),
        }
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
        if self.are_every() {
            return Self::ENCODED_EVERY.to_vec();
        }
        self.iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes the hashes; `None` if the length is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes == Self::ENCODED_EVERY {
            return Some([Self::EVERY].into_iter().collect());
        }
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
        // The largest number, so the last one.
        if all.len() > MAX_TAGS || all.last() == Some(&Self::EVERY) {
            all = vec![Self::EVERY];
        }
        Self((!all.is_empty()).then(|| all.into()))
    }
}

/// Returns the hash of a name with these parts, the same in every process.
pub fn tag_number(kind: u8, parts: &[&[u8]]) -> u64 {
    let mut all: SmallVec<[u8; 128]> = SmallVec::from_slice(&[kind]);
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
    fn with_more_than_are_kept_each_purge_covers_it() {
        let most: TagNumbers = (0..MAX_TAGS as u64).collect();
        assert!(most.len() == MAX_TAGS && !most.are_every() && most.and(&most) == most);
        let more = most.and(&[MAX_TAGS as u64].into_iter().collect());
        assert!(more.are_every() && more.len() == 1 && more.and(&most) == more);
        assert_eq!(more.heap_size(), TagNumbers::from_iter([0]).heap_size());
        assert_eq!(TagNumbers::from_bytes(&more.to_bytes()), Some(more.clone()));
        assert_eq!(more.to_bytes(), b"*", "earlier versions refuse it");
        assert_eq!(most.and(&TagNumbers::NONE), most);
        assert_eq!(TagNumbers::NONE.and(&most), most);
    }

    /// They are in tiers, which other versions read.
    #[test]
    fn the_hash_of_a_name_never_changes() {
        let number = tag_number(b't', &[b"product-17"]);
        assert_eq!(number, 4_740_790_595_809_751_533);
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(tag_number(0, &[b"ab", b"c"]), tag_number(0, &[b"a", b"bc"]));
        assert_ne!(tag_number(0, &[b"a"]), tag_number(1, &[b"a"]));
    }
}

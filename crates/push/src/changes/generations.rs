//! Names of versions that stay unique across restarts.
//!
//! A directory may be an older copy of itself, after restoring a backup or a power failure. The numbers of
//! the lost changes are then assigned again, to other content. Therefore each start begins a generation:
//! versions written from then on carry its epoch, and older ones keep theirs. A version of a lost change has
//! an epoch that is unknown here.

use std::sync::Arc;

use crate::changes::version::DocumentVersion;

/// Limit of remembered generations. Versions of older ones get the epoch of the oldest.
const MAX_GENERATIONS: usize = 256;

/// The versions written by one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) epoch: u64,
    /// The number of its first version.
    pub(crate) first: u64,
}

/// The generations in order. There is at least one, and the first one also covers older versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generations(Arc<[Generation]>);

impl Generations {
    /// Creates a single generation of all versions.
    pub(crate) fn new(epoch: u64) -> Self {
        Self([Generation { epoch, first: 0 }].into())
    }

    /// Starts a generation.
    pub(crate) fn begin(&mut self, generation: Generation) {
        let mut all: Vec<_> = self.0.to_vec();
        all.retain(|it| it.first < generation.first);
        all.push(generation);
        // The oldest remaining generation inherits earlier numbers, none of which it has assigned to other
        // content.
        let surplus = all.len().saturating_sub(MAX_GENERATIONS);
        self.0 = all.drain(surplus..).collect();
    }

    /// Returns the epoch of new versions.
    pub(crate) fn current(&self) -> u64 {
        self.0.last().map_or(0, |it| it.epoch)
    }

    /// Returns the generations, oldest first.
    pub(crate) fn all(&self) -> &[Generation] {
        &self.0
    }

    /// Returns the version with this number.
    pub(crate) fn version(&self, number: u64) -> DocumentVersion {
        let of = self.0.iter().rfind(|it| it.first <= number);
        DocumentVersion {
            epoch: of.or(self.0.first()).map_or(0, |it| it.epoch),
            number,
        }
    }

    /// Returns whether the version is, or may become, one of these generations. A process may also name an
    /// inherited version with its own epoch: both mean the same content.
    pub(crate) fn has(&self, version: DocumentVersion) -> bool {
        let at = self.0.iter().position(|it| it.epoch == version.epoch);
        at.is_some_and(|at| {
            let next = self.0.get(at + 1);
            next.is_none_or(|next| version.number < next.first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(epoch: u64, number: u64) -> DocumentVersion {
        DocumentVersion { epoch, number }
    }

    #[test]
    fn versions_keep_the_epoch_that_they_were_written_in() {
        let mut all = Generations::new(1);
        all.begin(Generation {
            epoch: 2,
            first: 11,
        });
        // A generation without versions.
        all.begin(Generation {
            epoch: 3,
            first: 11,
        });
        all.begin(Generation {
            epoch: 4,
            first: 13,
        });
        assert_eq!(all.current(), 4);
        for (epoch, number) in [(1, 0), (1, 10), (3, 11), (3, 12), (4, 13), (4, 99)] {
            assert_eq!(all.version(number), version(epoch, number));
            assert!(all.has(version(epoch, number)));
        }
        assert!(all.has(version(4, 10)), "all that was there when it began");
        for (epoch, number) in [(1, 11), (2, 11), (3, 13), (5, 10)] {
            assert!(!all.has(version(epoch, number)), "{epoch}.{number}");
        }
    }

    #[test]
    fn remembered_generations_are_bounded() {
        let mut all = Generations::new(1);
        for epoch in 2..=1000 {
            all.begin(Generation {
                epoch,
                first: 10 * epoch,
            });
        }
        let oldest = 1001 - MAX_GENERATIONS as u64;
        assert_eq!(all.all().len(), MAX_GENERATIONS);
        assert_eq!(all.version(7), version(oldest, 7));
        assert!(!all.has(version(1, 7)));
        assert_eq!(all.version(9999), version(999, 9999));
    }
}

//! The names of versions over restarts.
//!
//! A directory may be an older copy of itself: a backup was put back, or the power failed before the last changes were on
//! the disk. Their numbers are then given out a second time, for other content. So each start begins a generation: the
//! versions that are written from then on bear its epoch, and older ones keep theirs. What a client was told by a process
//! whose changes are lost has an epoch that is not here.

use std::sync::Arc;

use crate::changes::version::Version;

/// Generations that are remembered. Versions of older ones are known by the epoch of the oldest that is.
const MAX_GENERATIONS: usize = 256;

/// The versions that one process has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) epoch: u64,
    /// The number of its first version.
    pub(crate) first: u64,
}

/// All that are remembered, in order. There is at least one, and the first also names what is older.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generations(Arc<[Generation]>);

impl Generations {
    /// One of all versions.
    pub(crate) fn new(epoch: u64) -> Self {
        Self([Generation { epoch, first: 0 }].into())
    }

    /// Versions have this epoch from this number on.
    pub(crate) fn begin(&mut self, begun: Generation) {
        let mut all: Vec<_> = self.0.to_vec();
        all.retain(|it| it.first < begun.first);
        all.push(begun);
        // To the oldest that is left fall numbers that it has found, and has never given out for anything else.
        let surplus = all.len().saturating_sub(MAX_GENERATIONS);
        self.0 = all.drain(surplus..).collect();
    }

    /// The epoch of versions to come.
    pub(crate) fn current(&self) -> u64 {
        self.0.last().map_or(0, |it| it.epoch)
    }

    /// Each, the oldest first.
    pub(crate) fn all(&self) -> &[Generation] {
        &self.0
    }

    /// The version with this number.
    pub(crate) fn version(&self, number: u64) -> Version {
        let of = self.0.iter().rfind(|it| it.first <= number);
        Version {
            epoch: of.or(self.0.first()).map_or(0, |it| it.epoch),
            number,
        }
    }

    /// Whether this is, or will be, a version of ours. A process may also name with its own epoch a version that it has
    /// found: both mean the same.
    pub(crate) fn has(&self, version: Version) -> bool {
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

    fn version(epoch: u64, number: u64) -> Version {
        Version { epoch, number }
    }

    #[test]
    fn versions_keep_the_epoch_that_they_were_written_in() {
        let mut all = Generations::new(1);
        all.begin(Generation {
            epoch: 2,
            first: 11,
        });
        // Nothing was written under it.
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
    fn those_that_are_remembered_are_bounded() {
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

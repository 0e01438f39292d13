//! The places of purge rules in the copies of the shared log.

use microcache_store::LOG_COPIES;

use crate::cache::logs::LogPlace;

/// The place of a rule in each copy of the log, if it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RulePlaces([Option<LogPlace>; LOG_COPIES]);

impl RulePlaces {
    pub(crate) const fn new(places: [Option<LogPlace>; LOG_COPIES]) -> Self {
        Self(places)
    }

    /// The place of a rule that was found in one copy.
    pub(crate) fn in_copy(copy: usize, place: LogPlace) -> Self {
        let mut places = Self::default();
        places.set(copy, place);
        places
    }

    pub(crate) const fn get(&self, copy: usize) -> Option<LogPlace> {
        self.0[copy]
    }

    pub(crate) const fn set(&mut self, copy: usize, place: LogPlace) {
        self.0[copy] = Some(place);
    }

    /// Returns true if the rule is in no copy, so no process can have read it there.
    pub(crate) fn is_unplaced(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Returns true if the copy lacks a rule that another copy has.
    pub(crate) fn is_missing(&self, copy: usize) -> bool {
        self.0[copy].is_none() && !self.is_unplaced()
    }
}

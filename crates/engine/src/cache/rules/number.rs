//! Numbers of purge rules.

use std::sync::atomic::Ordering;

use microcache_store::Stored;

use crate::sync::AtomicU64;

/// The number of a purge rule, in the order in which this process added them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuleNumber(u64);

impl RuleNumber {
    /// The number before the first.
    pub(crate) const NONE: Self = Self(0);

    /// The number up to which a response has been checked.
    pub(crate) fn checked(response: &Stored) -> Self {
        Self(response.purges_checked())
    }

    /// Records that a response has been checked up to this number.
    pub(crate) fn note_checked(self, response: &Stored) {
        response.set_purges_checked(self.0);
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(crate) const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A rule number that grows while others read it.
#[derive(Debug, Default)]
pub(crate) struct SharedRuleNumber(AtomicU64);

impl SharedRuleNumber {
    pub(crate) fn get(&self) -> RuleNumber {
        RuleNumber(self.0.load(Ordering::Acquire))
    }

    /// Sets the number, unless it is already greater.
    pub(crate) fn raise(&self, number: RuleNumber) {
        self.0.fetch_max(number.0, Ordering::Release);
    }
}

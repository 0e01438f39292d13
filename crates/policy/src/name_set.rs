//! Sets of known field names.

use crate::known_name::KnownName;

/// A set of known names: one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameSet(u128);

impl NameSet {
    /// The set of these names.
    pub const fn of(names: &[KnownName]) -> Self {
        let mut set = Self(0);
        let mut at = 0;
        while at < names.len() {
            set.insert(names[at]);
            at += 1;
        }
        set
    }

    /// The names of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Adds a name.
    #[inline]
    pub const fn insert(&mut self, name: KnownName) {
        self.0 |= name.bit();
    }

    /// Removes a name.
    #[inline]
    pub(crate) const fn remove(&mut self, name: KnownName) {
        self.0 &= !name.bit();
    }

    /// Returns true if the name is in the set.
    #[inline]
    pub const fn contains(self, name: KnownName) -> bool {
        self.0 & name.bit() != 0
    }

    /// Returns true if the sets have a name in common.
    #[inline]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

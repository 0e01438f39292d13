//! Sets of known field names.

use crate::known_name::KnownName;

/// A set of known names: one bit for each, and one for all names that are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameSet([u64; 2]);

impl NameSet {
    /// The set of these names.
    pub const fn of(names: &[KnownName]) -> Self {
        let mut set = Self([0; 2]);
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
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// The set with all names that are not known, too.
    pub(crate) const fn with_unknown(mut self) -> Self {
        self.insert_number(KnownName::UNKNOWN);
        self
    }

    /// Adds a name.
    #[inline]
    pub const fn insert(&mut self, name: KnownName) {
        self.insert_number(name.number());
    }

    /// Adds the name with this number.
    #[inline]
    pub(crate) const fn insert_number(&mut self, number: u8) {
        self.0[number as usize >> 6 & 1] |= 1 << (number & 63);
    }

    /// Removes a name.
    #[inline]
    pub(crate) const fn remove(&mut self, name: KnownName) {
        let number = name.number();
        self.0[number as usize >> 6 & 1] &= !(1 << (number & 63));
    }

    /// Returns true if the name is in the set.
    #[inline]
    pub const fn contains(self, name: KnownName) -> bool {
        self.has_number(name.number())
    }

    /// Returns true if the name with this number is in the set.
    #[inline]
    pub(crate) const fn has_number(self, number: u8) -> bool {
        self.0[number as usize >> 6 & 1] >> (number & 63) & 1 != 0
    }

    /// Returns true if the sets have a name in common.
    #[inline]
    pub const fn meets(self, other: Self) -> bool {
        self.0[0] & other.0[0] | self.0[1] & other.0[1] != 0
    }
}

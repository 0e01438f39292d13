//! Place of a stored response in the table of the memory tier.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::eviction::MAX_USES;

/// Place in the table. It belongs to the table and is written under the lock of a shard; it is kept in the response so
/// that a look-up reads no other memory.
#[derive(Debug, Default)]
pub(crate) struct TablePlace {
    /// Hash of the key.
    hash: AtomicU32,
    /// Number in the queue of the shard.
    slot: AtomicU32,
    /// Weight that the table was charged, in units of [`TablePlace::UNIT`].
    charge: AtomicU32,
}

impl TablePlace {
    /// Resolution of weights, in bytes.
    const UNIT: u64 = 16;

    pub(crate) fn hash(&self) -> u32 {
        self.hash.load(Ordering::Relaxed)
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// Weight that the table was charged, in bytes.
    pub(crate) fn charge(&self) -> u64 {
        u64::from(self.charge.load(Ordering::Relaxed)) * Self::UNIT
    }

    /// Sets the place. The weight is a [rounded](TablePlace::rounded) one.
    pub(crate) fn set(&self, hash: u32, slot: u32, weight: u64) {
        self.hash.store(hash, Ordering::Relaxed);
        self.slot.store(slot, Ordering::Relaxed);
        let units = (weight / Self::UNIT) as u32;
        self.charge.store(units, Ordering::Relaxed);
    }

    /// Changes the number in the queue.
    pub(crate) fn move_to(&self, slot: u32) {
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// Rounds a weight up to one that can be charged.
    pub(crate) fn rounded(weight: u64) -> u64 {
        let units = weight.div_ceil(Self::UNIT).min(u32::MAX.into());
        units * Self::UNIT
    }
}

/// Uses of the key since the queue of the table looked last, in the response that leads its object.
#[derive(Debug, Default)]
pub(crate) struct RecentUses(AtomicU8);

impl RecentUses {
    /// Counts a use, and writes nothing once there are [`MAX_USES`].
    #[inline]
    pub(crate) fn count(&self) {
        let uses = self.0.load(Ordering::Relaxed);
        if uses < MAX_USES {
            self.0.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Returns the number and begins anew.
    pub(crate) fn take(&self) -> u8 {
        self.0.swap(0, Ordering::Relaxed)
    }

    /// Takes over the uses of the response that this one replaces.
    pub(crate) fn inherit(&self, other: &Self) {
        let uses = other.0.load(Ordering::Relaxed);
        self.0.store(uses, Ordering::Relaxed);
    }
}

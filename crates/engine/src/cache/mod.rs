//! The one place where the cache changes.
//!
//! Memory, the tiers behind it, the table of fetches and what was purged belong together: what one
//! of them is told, another must not undo. So nobody else has them, and four verbs are all that
//! reads or changes them:
//!
//! - **look up** ([`look_up`]): what memory has for a request;
//! - **lift** ([`lift`]): what lies in a tier, into memory;
//! - **commit** ([`commit`]): what a leader has brought, into memory and the tiers;
//! - **purge** ([`purge`]): out of all of them.
//!
//! A purge is never undone: nothing that was asked for, or stored, before it answers a request that
//! comes after it. What keeps it so:
//!
//! - whoever fetches, or lifts, has a [`Leader`] (or a [`Lone`]) from before the origin or a tier is
//!   asked. A purge of its key finds it in the table of fetches, and what it brings is not stored;
//! - what a tier has is held against the time of the key's last purge, since a tier may learn of a
//!   purge late, or never;
//! - memory and the tiers are changed by commit and purge under the lock of the key's shard in the
//!   table of fetches, so that one of them comes first.
//!
//! Locks are taken in this order, and none is held over an await: the shard of a key in the table of
//! fetches; the state of one fetch; a key's turn in memory; what was purged; the queue of a tier.

mod commit;
pub mod flight;
mod lift;
mod look_up;
mod oversized;
mod purge;
mod purges;

use std::sync::Arc;

use microcache_store::{Memory, MemoryLimits, MemoryStats, TierReport, Tiers};

use crate::clock::Clock;
use flight::{FlightLimits, Flights};
use oversized::Oversized;
use purges::Purges;

pub(crate) use lift::{FoundBehind, LookedBehind, Where};
pub(crate) use look_up::Known;

/// What is stored, where it lies, who is bringing more of it, and what was purged.
pub struct Cache {
    memory: Memory,
    tiers: Tiers,
    flights: Arc<Flights>,
    purges: Purges,
    oversized: Oversized,
    clock: Clock,
}

impl Cache {
    /// An empty memory with these bounds in front of these tiers.
    pub fn new(memory: MemoryLimits, flights: FlightLimits, tiers: Tiers, clock: Clock) -> Self {
        Self {
            memory: Memory::new(memory),
            tiers,
            flights: Flights::new(flights),
            purges: Purges::default(),
            oversized: Oversized::new(),
            clock,
        }
    }

    /// What memory holds and has done.
    pub fn memory_stats(&self) -> MemoryStats {
        self.memory.stats()
    }

    /// What the tiers have done and say of themselves.
    pub fn tier_reports(&self) -> Vec<TierReport> {
        self.tiers.reports()
    }

    /// Waits until the tiers have done what they were asked for so far.
    pub async fn settle(&self) {
        self.tiers.settle().await;
    }
}

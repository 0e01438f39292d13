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
//! - a purge of more than one key is a rule ([`Rule`]). Every entry is held against it once: where it is
//!   looked up, found in a tier, joined, or committed. A rule that has been forgotten since a fetch
//!   began counts as if it had named what is fetched;
//! - processes that share a tier tell each other of rules, and what lies behind memory is held against them by
//!   their place in that log ([`fleet`]);
//! - memory and the tiers are changed by commit and purge under the lock of the key's shard in the
//!   table of fetches, so that one of them comes first.
//!
//! Locks are taken in this order, and none is held over an await: the shard of a key in the table of
//! fetches; a key's turn in memory; the state of one fetch; what was purged, by key or by rule; the
//! mailboxes of those who watch; the queue of a tier.

mod changes;
mod commit;
pub mod entries;
mod fleet;
pub mod flight;
mod journal;
mod lift;
mod logs;
mod look_up;
mod marks;
mod purge;
mod purges;
mod rule;
mod rules;
mod sweep;
mod url_notes;

#[cfg(all(test, not(shuttle)))]
mod model;
#[cfg(all(test, shuttle))]
mod shuttle;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use microcache_store::{Key, Memory, MemoryLimits, MemoryStats, TierError, TierReport, Tiers};

use tokio::sync::Notify;

use crate::compress::{CompressionStats, Compressor};
use changes::Changes;
use fleet::Fleet;
use flight::{FlightLimits, Flights, UnderWay};
use marks::Marks;
use microcache_store::Clock;
use purges::Purges;
use rules::Rules;
use url_notes::UrlNotes;

pub use changes::{
    Change, ChangeKind, MAX_WATCHERS, Notice, Subject, TooManyWatchers, Watched, Watcher,
};
pub use fleet::FleetReport;
pub use purge::{NotWritten, PurgeProgress, Purged};
pub use rule::{Rule, Scope, Strength, variant_number};

pub(crate) use lift::{FoundBehind, LookedBehind, Where};
pub(crate) use look_up::Known;
pub(crate) use rule::tag_numbers;

/// What purges take that are remembered one by one, by url or by rule, is this share of memory each; and at most as
/// much each that the parts take by which older ones are remembered, twice for rules. It comes on top of memory.
const PURGES_SHARE: u64 = 32;

/// What is stored, where it lies, who is bringing more of it, and what was purged.
pub struct Cache {
    pub(crate) memory: Memory,
    pub(crate) compressor: Compressor,
    tiers: Tiers,
    flights: Arc<Flights>,
    purges: Purges,
    rules: Arc<Rules>,
    fleet: Fleet,
    /// What is too large to be kept.
    oversized: Marks,
    /// What was not to be shared when the origin saw less than a client had sent.
    whole: Marks,
    /// What requests with credentials got and was for everyone.
    open: Marks,
    urls: UrlNotes,
    changes: Arc<Changes>,
    /// There is a rule that has not been swept yet.
    unswept: Notify,
    /// Memory has been held against the rules up to this number.
    swept_through: AtomicU64,
    /// Who writes the journal of rules has it.
    journal: tokio::sync::Mutex<()>,
    clock: Clock,
}

impl Cache {
    /// An empty memory with these bounds in front of these tiers.
    pub fn new(memory: MemoryLimits, flights: FlightLimits, tiers: Tiers, clock: Clock) -> Self {
        let of_purges = usize::try_from(memory.capacity / PURGES_SHARE).unwrap_or(usize::MAX);
        let rules = Arc::new(Rules::new(of_purges));
        Self {
            memory: Memory::new(memory),
            compressor: Compressor::new(),
            tiers,
            flights: Flights::new(flights, Arc::clone(&rules)),
            purges: Purges::new(of_purges),
            rules,
            fleet: Fleet::default(),
            oversized: Marks::new(),
            whole: Marks::new(),
            open: Marks::new(),
            urls: UrlNotes::new(),
            changes: Arc::default(),
            unswept: Notify::new(),
            swept_through: AtomicU64::new(0),
            journal: tokio::sync::Mutex::default(),
            clock,
        }
    }

    /// Other bounds from now on.
    pub(crate) fn rebound(&self, variants: usize, flights: FlightLimits) {
        self.memory.rebound(variants);
        self.flights.rebound(flights);
    }

    /// Begins to watch a key, or whatever a purge could name.
    pub fn watch(&self, what: Watched) -> Result<Watcher, TooManyWatchers> {
        self.changes.watch(what)
    }

    /// What memory holds and has done.
    pub fn memory_stats(&self) -> MemoryStats {
        self.memory.stats()
    }

    /// What was compressed so far.
    pub fn compression_stats(&self) -> CompressionStats {
        self.compressor.stats()
    }

    /// Fetches under way that others can wait for.
    pub fn fetches(&self) -> usize {
        self.flights.under_way()
    }

    /// The fetches that most wait for, and how many wait for any.
    pub fn most_wanted(&self, limit: usize) -> (Vec<UnderWay>, usize) {
        self.flights.most_wanted(limit)
    }

    /// The fetch that a request would join, if there is one.
    pub(crate) fn to_join(&self, key: &Key, selection: &[u8]) -> Option<UnderWay> {
        self.flights.to_join(key, selection)
    }

    /// What the tiers have done and say of themselves, the log of purges in one of them included.
    pub fn tier_reports(&self) -> Vec<TierReport> {
        let mut reports = self.tiers.reports();
        let fleet = self.fleet().unwrap_or_default();
        let has_log = self.tiers.log().map(|log| log.name());
        let report = reports
            .iter_mut()
            .find(|report| Some(report.name) == has_log);
        if let (Some(report), Some(trouble)) = (report, fleet.trouble) {
            let what = if fleet.is_reached {
                "one of the two copies of the log of purges"
            } else {
                "the log of purges"
            };
            let line = format!("{what} cannot be reached: {trouble}");
            report.stats.degraded.push(line);
        }
        reports
    }

    /// The largest body that goes to a tier while it arrives; 0 if there is no tier for such.
    pub fn largest_behind(&self) -> u64 {
        self.tiers.largest()
    }

    /// Lets another process have the tier that is this one's alone, as it is now.
    pub async fn give_up_local(&self) -> Result<(), TierError> {
        match self.tiers.local() {
            Some(local) => local.give_up().await,
            None => Ok(()),
        }
    }

    /// Takes it back, if the other one does not have it.
    pub fn take_back_local(&self) -> Result<(), TierError> {
        self.tiers.local().map_or(Ok(()), |local| local.take_back())
    }

    /// Waits until the tiers have done what they were asked for so far.
    pub async fn settle(&self) {
        self.tiers.settle().await;
    }
}

//! The one place where the cache changes.
//!
//! Memory, the tiers behind it, the table of fetches and the purges belong together: one must not
//! undo what another has done. So only this module owns them, and four verbs are all that reads or
//! changes them:
//!
//! - **look up** ([`look_up`]): the response in memory that a request selects;
//! - **promote** ([`promote`]): moves a response from a tier into memory;
//! - **commit** ([`commit`]): stores a leader's response in memory and the tiers;
//! - **purge** ([`purge`]): removes entries from all of them.
//!
//! A purge is never undone: no response that was requested or stored before it answers a request
//! that comes after it. Five rules hold this:
//!
//! - a fetch or a promotion holds a [`Leader`] (or a [`UnsharedFetch`]) from before the origin or a tier is
//!   asked. A purge of its key finds it in the table of fetches, and its response is not stored;
//! - a tier's entry is checked against the time of the key's last purge, since a tier may learn of
//!   a purge late, or never. That time is kept while a search of the tiers is under way ([`purges`]);
//! - a purge of more than one key is a rule ([`Rule`]). Every entry is checked against it once:
//!   when it is looked up, found in a tier, joined, or committed. A rule that was dropped since a
//!   fetch began counts as if it had covered that fetch;
//! - processes that share a tier exchange rules, and tiers' entries are checked against them by
//!   their position in that log ([`fleet`]);
//! - memory and the tiers are changed by commit and purge under the lock of the key's shard in the
//!   table of fetches, so that one of them comes first.
//!
//! Locks are taken in this order, and none is held over an await: the shard of a key in the table
//! of fetches; a key's turn in memory; the state of one fetch; the purges, by key or by rule; the
//! mailboxes of the watchers; the queue of a tier.

mod changes;
mod commit;
pub mod entries;
pub(crate) mod fetch_outcome;
mod fleet;
mod fleet_state;
pub mod flight;
mod journal;
mod logs;
mod look_up;
mod marks;
mod nodes;
mod popularity;
mod promote;
mod purge;
mod purges;
mod query_notes;
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
use std::sync::atomic::{AtomicU64, Ordering};

use microcache_store::{Key, Memory, MemoryLimits, MemoryStats, TierError, TierReport, Tiers};

use tokio::sync::Notify;

use crate::compress::{CompressionStats, Compressor, MemoryOwner};
use changes::Changes;
use fleet_state::PurgeFleet;
use flight::{ActiveFetch, FlightLimits, Flights};
use marks::Marks;
use microcache_store::Clock;
use purges::Purges;
use query_notes::QueryNotes;
use rules::{PurgeRules, SharedRuleNumber};
use url_notes::UrlNotes;

pub use changes::{
    CacheChange, ChangeKind, MAX_WATCHERS, Notice, Subject, TooManyWatchers, WatchTarget, Watcher,
};
pub use fleet::FleetReport;
pub use nodes::{NodeFigures, NodeSlot};
pub use popularity::PopularEntry;
pub use purge::{NotWritten, Purged, RuleProgress};
pub use rule::{Rule, Scope, Strength, variant_number};

pub(crate) use look_up::MemoryLookup;
pub(crate) use promote::{TierHit, TierScope, TierSearch};
pub(crate) use query_notes::SimplifiedKey;
pub(crate) use rule::tag_numbers;

/// The divisor of memory's capacity that bounds each of the indexes of purged keys and of rules.
/// The coarse parts that replace older entries take at most as much each, so that all of them
/// take an eighth of the capacity, in addition to memory.
const PURGES_SHARE: u64 = 32;

/// The cache: memory, tiers, fetches under way and purges.
pub struct Cache {
    pub(crate) memory: Memory,
    pub(crate) compressor: Compressor,
    tiers: Tiers,
    flights: Arc<Flights>,
    purges: Purges,
    rules: Arc<PurgeRules>,
    fleet: PurgeFleet,
    /// Variants too large to be stored.
    oversized: Marks,
    /// Requests whose response was not shareable when fields were withheld.
    whole: Marks,
    /// Keys whose responses to requests with credentials are shareable.
    open: Marks,
    /// Urls with responses to QUERY.
    queried: Marks,
    urls: UrlNotes,
    pub(crate) queries: QueryNotes,
    changes: Arc<Changes>,
    /// The number of responses stored with more tags than are kept.
    too_many_tags: AtomicU64,
    /// Notified when a rule has to be swept.
    unswept: Notify,
    /// The rule number up to which memory was swept.
    swept_through: SharedRuleNumber,
    /// Held while writing the journal of rules.
    journal: tokio::sync::Mutex<()>,
    pub(crate) clock: Clock,
}

impl MemoryOwner for Cache {
    fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Cache {
    /// An empty memory with these limits in front of these tiers.
    pub fn new(memory: MemoryLimits, flights: FlightLimits, tiers: Tiers, clock: Clock) -> Self {
        let of_purges = usize::try_from(memory.capacity / PURGES_SHARE).unwrap_or(usize::MAX);
        let rules = Arc::new(PurgeRules::new(of_purges));
        Self {
            memory: Memory::new(memory),
            compressor: Compressor::new(),
            tiers,
            flights: Flights::new(flights, Arc::clone(&rules)),
            purges: Purges::new(of_purges),
            rules,
            fleet: PurgeFleet::default(),
            oversized: Marks::new(),
            whole: Marks::new(),
            open: Marks::new(),
            queried: Marks::new(),
            urls: UrlNotes::new(),
            queries: QueryNotes::new(),
            changes: Arc::default(),
            too_many_tags: AtomicU64::new(0),
            unswept: Notify::new(),
            swept_through: SharedRuleNumber::default(),
            journal: tokio::sync::Mutex::default(),
            clock,
        }
    }

    /// Replaces the limits.
    pub(crate) fn set_limits(&self, variants: usize, flights: FlightLimits) {
        self.memory.set_max_variants(variants);
        self.flights.set_limits(flights);
    }

    /// Watches a key, or a purge scope.
    pub fn watch(&self, what: WatchTarget) -> Result<Watcher, TooManyWatchers> {
        self.changes.watch(what)
    }

    /// The usage and counters of memory.
    pub fn memory_stats(&self) -> MemoryStats {
        self.memory.stats()
    }

    /// The totals of compression.
    pub fn compression_stats(&self) -> CompressionStats {
        self.compressor.stats()
    }

    /// The number of responses stored with more tags than are kept.
    pub fn too_many_tags(&self) -> u64 {
        self.too_many_tags.load(Ordering::Relaxed)
    }

    pub(crate) fn count_too_many_tags(&self) {
        self.too_many_tags.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of fetches that can be joined.
    pub fn fetches(&self) -> usize {
        self.flights.under_way()
    }

    /// The fetches with most waiters, and the number of waiters of all fetches.
    pub fn most_wanted(&self, limit: usize) -> (Vec<ActiveFetch>, usize) {
        self.flights.most_wanted(limit)
    }

    /// The fetch that a request would join, if there is one.
    pub(crate) fn to_join(&self, key: &Key, selection: &[u8]) -> Option<ActiveFetch> {
        self.flights.to_join(key, selection)
    }

    /// The usage and counters of the tiers, including the state of the purge log kept in one of
    /// them.
    pub fn tier_reports(&self) -> Vec<TierReport> {
        let mut reports = self.tiers.reports();
        let fleet = self.fleet().unwrap_or_default();
        let has_log = self.tiers.log().map(|log| log.name());
        let report = reports
            .iter_mut()
            .find(|report| Some(report.name) == has_log);
        if let (Some(report), Some(trouble)) = (report, fleet.trouble) {
            let what = if fleet.is_reached {
                "one of the two copies of the purge log"
            } else {
                "the purge log"
            };
            let line = format!("{what} cannot be reached: {trouble}");
            report.stats.degraded.push(line);
        }
        reports
    }

    /// The largest body that a tier stores while it arrives, in bytes; 0 without such a tier.
    pub fn largest_in_tiers(&self) -> u64 {
        self.tiers.largest()
    }

    /// Uses other users and passwords for the servers of the shared tier from now on.
    pub async fn change_tier_login(&self, urls: &[String]) -> Result<(), TierError> {
        match self.tiers.log() {
            Some(shared) => shared.change_login(urls.to_vec()).await,
            None => Ok(()),
        }
    }

    /// Releases the local tier to another process, for a handover.
    pub async fn give_up_local(&self) -> Result<(), TierError> {
        match self.tiers.local() {
            Some(local) => local.give_up().await,
            None => Ok(()),
        }
    }

    /// Takes the local tier back, unless the other process has it.
    pub fn take_back_local(&self) -> Result<(), TierError> {
        self.tiers.local().map_or(Ok(()), |local| local.take_back())
    }

    /// Waits until the tiers have processed all requests made so far.
    pub async fn settle(&self) {
        self.tiers.settle().await;
    }
}

//! The sweep: removes entries covered by purge rules in the background, so that the rules can be
//! dropped.

use std::time::Duration;

use microcache_policy::Millis;
use microcache_store::{Key, Revision, Stored, TierError};
use tokio::time::{sleep, timeout};

use super::Cache;
use super::changes::ChangeKind;
use super::rule::{EntryNames, RuleSubject};
use super::rules::{Covered, RuleNumber, Since};

/// The shortest time, in milliseconds, that a rule is kept, swept or not: a fetch that began before
/// it and is still under way is then judged by the rule's scope, not by its age.
const RULES_KEPT: Millis = 600_000;
/// The time, in milliseconds, that a soft rule is kept: as long as a stale copy is usable by
/// default. On disk the entry is still fresh but for the rule.
const SOFT_KEPT: Millis = 86_400_000;
/// The interval between two checks for droppable rules.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// The pause after a sweep, so that many purges in a row are one sweep.
const PAUSE: Duration = Duration::from_secs(1);
/// Disk entries listed in one batch.
const BATCH: usize = 256;
/// Keys in memory checked in one batch, with a [`BREATH`] after each: requests on the same core are
/// delayed by a few hundredths of a millisecond, for as small a share of the time.
const AT_ONCE: usize = 16;
const BREATH: Duration = Duration::from_millis(1);

impl Cache {
    /// Sweeps when there are new rules, for as long as it is polled.
    pub async fn keep_swept(&self) {
        loop {
            if self.rules.is_empty() {
                self.unswept.notified().await;
            } else {
                let _ = timeout(LOOK_EVERY, self.unswept.notified()).await;
            }
            self.sweep().await;
            sleep(PAUSE).await;
        }
    }

    /// Removes the entries that the rules so far cover: from memory at once; from a disk, which
    /// takes long, for many rules together before they are dropped.
    pub async fn sweep(&self) {
        let newest = self.rules.newest();
        self.sweep_memory(newest).await;
        self.swept_through.raise(newest);
        let Some(number) = self.forgettable() else {
            return;
        };
        if self.rules.waits_for_log() {
            return;
        }
        // Writes to tiers that were queued before these rules came are complete now.
        self.tiers.settle().await;
        // A shared tier cannot be listed, and keeps an entry for as long as its writer chose, so
        // the rule never becomes superfluous there. It is kept until newer rules need its place, as
        // in the log.
        if self.sweep_disk().await.is_ok() && !self.tiers.is_shared() {
            self.rules.drop_through(number);
            // A journal that could not be shortened has the same effect.
            let _ = self.shorten_journal().await;
        }
    }

    /// The newest rule that has been in effect for long enough to be dropped.
    fn forgettable(&self) -> Option<RuleNumber> {
        let now = self.clock.now();
        let hard = self.rules.newest_at(now.before(RULES_KEPT))?;
        let soft = self.rules.newest_at(now.before(SOFT_KEPT));
        let soft = soft.unwrap_or(RuleNumber::NONE);
        let first_soft = self.rules.first_soft_after(soft);
        Some(first_soft.map_or(hard, |first| hard.min(first.previous())))
    }

    async fn sweep_memory(&self, swept: RuleNumber) {
        for (number, object) in self.memory.entries().enumerate() {
            let is_behind = |one: &Stored| RuleNumber::checked(one) < swept;
            if object.variants().any(is_behind) {
                self.revise(&object.key().into());
            }
            if number % AT_ONCE == AT_ONCE - 1 {
                sleep(BREATH).await;
            }
        }
    }

    async fn sweep_disk(&self) -> Result<(), TierError> {
        let Some(tier) = self.tiers.local() else {
            return Ok(());
        };
        let mut after = None;
        while !self.rules.is_empty() {
            let listing = tier.list(after, BATCH).await?;
            for listed in &listing.entries {
                let Some(head) = listed.response() else {
                    continue;
                };
                let entry = EntryNames::new(RuleSubject::head(&head));
                let since = Since::Fetch {
                    at: head.began,
                    purges_known: head.purges_known(),
                };
                let covered = self.rules.covers(&entry, since);
                let now = self.clock.now();
                let is_over = |covered| match covered {
                    Covered::Hard => true,
                    // Its stale windows have passed.
                    Covered::Soft(at) => at <= now.before(SOFT_KEPT),
                };
                if covered.is_some_and(is_over) && tier.remove_listed(listed).await? {
                    self.changes.notify_removed(&head.key);
                }
            }
            after = listing.next;
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Checks every response of a key in memory against the rules.
    pub(super) fn revise(&self, key: &Key) {
        let newest = self.rules.newest();
        let decide = |one: &Stored| {
            let held = RuleSubject::stored(key, one);
            let checked = RuleNumber::checked(one);
            let covered = self.covered(held, checked);
            if covered.is_some() {
                self.rules.note_hit(held, checked);
            }
            match covered {
                None => Revision::Keep,
                Some(Covered::Soft(at)) => {
                    self.changes.notify(key, one, ChangeKind::Expired);
                    Revision::Expire(at)
                }
                Some(Covered::Hard) => {
                    self.changes.notify(key, one, ChangeKind::Purged);
                    Revision::Drop
                }
            }
        };
        let note_checked = |one: &Stored| newest.note_checked(one);
        self.memory.revise(key, decide, note_checked);
    }
}

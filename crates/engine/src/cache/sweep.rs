//! What purges by rule cover is removed in the background; then the rules can be forgotten.

use std::time::Duration;

use microcache_policy::{Millis, Time};
use microcache_store::{Key, Revision, Stored};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::Cache;
use super::changes::ChangeKind;
use super::rule::Strength;

/// A rule is remembered for so long at least, swept or not: a fetch that began before it and is still
/// under way is then judged by what the rule names, and not by its age.
const RULES_KEPT: Millis = 600_000;
/// How often it is looked whether rules can be forgotten.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Keys that are looked at in one go, before others get their turn on the thread.
const BATCH: usize = 256;

impl Cache {
    /// Sweeps whenever there are new rules, for as long as it is polled.
    pub async fn keep_swept(&self) {
        loop {
            if self.rules.is_empty() {
                self.unswept.notified().await;
            } else {
                let _ = timeout(LOOK_EVERY, self.unswept.notified()).await;
            }
            self.sweep().await;
            // Many purges in a row are one sweep.
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Removes what the rules so far cover, and forgets those that have been held against everything.
    pub async fn sweep(&self) {
        let swept = self.rules.newest();
        let now = self.clock.now().as_millis();
        let old = Time::from_millis(now.saturating_sub(RULES_KEPT));
        let forgettable = self.rules.newest_at(old).filter(|number| *number <= swept);
        for (number, (key, object)) in self.memory.entries().enumerate() {
            let is_behind = |one: &Stored| one.purges_checked() < swept;
            if object.variants().iter().any(is_behind) {
                self.revise(&key);
            }
            if number % BATCH == BATCH - 1 {
                yield_now().await;
            }
        }
        // What lies in a tier is held against the rules when it is found there.
        if let Some(number) = forgettable
            && self.tiers.is_empty()
        {
            self.rules.drop_through(number);
        }
    }

    /// Holds every response of a key in memory against the rules.
    pub(super) fn revise(&self, key: &Key) {
        let newest = self.rules.newest();
        self.memory.revise(key, |one| {
            let covered = self.covered(key, &one.tags, one.purges_checked());
            one.note_purges_checked(newest);
            match covered {
                None => Revision::Keep,
                Some(covered) if covered.strength == Strength::Soft => {
                    self.changes.tell(key, one, ChangeKind::Expired);
                    Revision::Expire(covered.at)
                }
                Some(_) => {
                    self.changes.tell(key, one, ChangeKind::Purged);
                    Revision::Drop
                }
            }
        });
    }
}

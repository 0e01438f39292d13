//! The journal on the local disk: purge rules survive a restart.

use bytes::Bytes;
use microcache_store::{Epoch, TierError};

use super::Cache;
use super::rule::Rule;
use super::rules::RulePlaces;

/// The rules read from the journal at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedRules {
    /// Rules in effect from now on.
    pub rules: usize,
    /// The file was damaged, so rules may be missing: entries they covered that were not removed
    /// yet may be served again.
    pub is_damaged: bool,
}

impl Cache {
    /// Loads the rules of the previous process, and those of the processes that share a tier. Must
    /// run before the first request. Until the other processes' log can be read, nothing is served
    /// from tiers.
    pub async fn load_rules(&self) -> Result<LoadedRules, TierError> {
        let loaded = self.load_journal().await;
        if self.tiers.log().is_some() {
            self.catch_up_with_all().await;
        }
        loaded
    }

    async fn load_journal(&self) -> Result<LoadedRules, TierError> {
        let Some(tier) = self.tiers.local() else {
            return Ok(LoadedRules::default());
        };
        let journal = tier.load_journal().await?;
        let mut loaded = LoadedRules {
            rules: 0,
            is_damaged: journal.is_damaged,
        };
        if !journal.records.is_empty() {
            self.fleet.note_written();
        }
        let epoch = Epoch::now();
        for record in journal.records {
            match Rule::decode(&record, &epoch) {
                // It covers entries stored before it was issued.
                Some(rule) => {
                    let at = rule.at;
                    self.queue_for_fleet(&rule);
                    loaded.rules +=
                        usize::from(self.rules.add(rule, at, RulePlaces::default()).is_some());
                }
                None => loaded.is_damaged = true,
            }
        }
        self.unswept.notify_one();
        Ok(loaded)
    }

    /// Journals rules as one record, with the time at which they took effect here.
    pub(super) async fn write_journal(&self, rules: &[Rule]) -> Result<(), TierError> {
        let Some(tier) = self.tiers.local() else {
            // Memory ends with the process.
            return Ok(());
        };
        self.fleet.note_written();
        let (at, epoch) = (self.clock.now(), Epoch::now());
        let record = |rule: &Rule| Bytes::from(Rule { at, ..rule.clone() }.encode(&epoch));
        let records = rules.iter().map(record).collect();
        let _others_wait = self.journal.lock().await;
        tier.append_to_journal(records).await
    }

    /// Reduces the journal to the live rules that the shared log does not have.
    pub(super) async fn shorten_journal(&self) -> Result<(), TierError> {
        let Some(tier) = self.tiers.local() else {
            return Ok(());
        };
        let _others_wait = self.journal.lock().await;
        let rules = self.rules.unplaced();
        let epoch = Epoch::now();
        let records = rules.iter().map(|rule| Bytes::from(rule.encode(&epoch)));
        tier.replace_journal(records.collect()).await
    }
}

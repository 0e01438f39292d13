//! Rules outlive the process: where there is a disk, its journal has them.

use bytes::Bytes;
use microcache_store::TierError;

use super::Cache;
use super::purge::NotWritten;
use super::rule::Rule;

/// What the journal had at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedRules {
    /// Rules that count from now on.
    pub rules: usize,
    /// Whether some may be missing, because the file was damaged: what they covered and was not removed
    /// yet may be found again.
    pub is_damaged: bool,
}

impl Cache {
    /// Reads the rules that the process before this one left. Comes before the first request.
    pub async fn load_rules(&self) -> Result<LoadedRules, TierError> {
        let Some(tier) = self.tiers.local() else {
            return Ok(LoadedRules::default());
        };
        let journal = tier.load_journal().await?;
        let mut loaded = LoadedRules {
            rules: 0,
            is_damaged: journal.is_damaged,
        };
        for record in journal.records {
            match Rule::decode(&record) {
                // It means what was stored before it was decided.
                Some(rule) => {
                    let at = rule.at;
                    loaded.rules += usize::from(self.rules.add(rule, at).is_some());
                }
                None => loaded.is_damaged = true,
            }
        }
        self.unswept.notify_one();
        Ok(loaded)
    }

    /// Writes rules down together, as of the moment since when they count here.
    pub(super) async fn write_down(&self, rules: &[Rule]) -> Result<(), NotWritten> {
        let Some(tier) = self.tiers.local() else {
            // Memory ends with the process; what others share does not.
            let is_over = !self.tiers.is_shared();
            return is_over.then_some(()).ok_or(NotWritten::NoDisk);
        };
        let at = self.clock.now();
        let record = |rule: &Rule| Bytes::from(Rule { at, ..rule.clone() }.encode());
        let records = rules.iter().map(record).collect();
        let _others_wait = self.journal.lock().await;
        Ok(tier.append_to_journal(records).await?)
    }

    /// Leaves only the rules in the journal that still count.
    pub(super) async fn shorten_journal(&self) -> Result<(), TierError> {
        let Some(tier) = self.tiers.local() else {
            return Ok(());
        };
        let _others_wait = self.journal.lock().await;
        let rules = self.rules.live();
        let records = rules.iter().map(|rule| Bytes::from(rule.encode()));
        tier.replace_journal(records.collect()).await
    }
}

//! Purges by rule reach every process that shares a tier, through a log that the tier keeps.
//!
//! Whoever decides a rule puts it into the log; everybody reads on in it several times a second. Its
//! place there says what it means: whatever was asked for by somebody who had not read that far yet.
//! Clocks of other machines do not count. Who was away, or cannot know what is missing, purges everything
//! that is older than what the log still has.
//!
//! What could not be told is told as soon as that is possible; what could not be read yet when the process
//! began keeps it from using what lies behind memory ([`Rules::wait_for_log`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use microcache_store::{LogPage, SharedTier, TierError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Cache;
use super::rule::{Rule, Scope, Strength};

/// How often the log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// So many rules are told at once.
const TOLD_AT_ONCE: usize = 256;
/// Rules that wait to be told. Beyond it they are told as a purge of everything.
const MAX_UNTOLD: usize = 4096;

/// What is between this process and the others.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// Rules that are not in the log yet, the oldest first.
    untold: Mutex<VecDeque<Rule>>,
    /// Who tells the others has it.
    telling: tokio::sync::Mutex<()>,
    /// Who reads the log has it: what was read earlier is taken in earlier.
    reading: tokio::sync::Mutex<()>,
    /// Why the log was not reached when it was last tried.
    trouble: Mutex<Option<TierError>>,
    /// There is something in the log that ought to be read.
    news: Notify,
    /// The journal has rules that the log may have by now.
    has_written: AtomicBool,
}

/// How it stands with the processes that share a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReport {
    /// Up to where the log of purges was read; 0 if it was not.
    pub position: u64,
    /// Purges that the others have not been told of yet.
    pub untold: usize,
    /// Why the log cannot be reached.
    pub trouble: Option<TierError>,
}

impl Fleet {
    /// Notes that the journal has rules.
    pub(super) fn note_written(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }
}

impl Cache {
    /// Stays in step with the processes that share a tier, for as long as it is polled.
    pub async fn keep_in_step(&self) {
        if self.tiers.log().is_none() {
            return std::future::pending().await;
        }
        loop {
            self.step_in().await;
            let _ = timeout(LOOK_EVERY, self.fleet.news.notified()).await;
        }
    }

    /// Tells the others what they do not know, and learns what they know. What fails is tried again the
    /// next time.
    pub(super) async fn step_in(&self) {
        let _ = self.tell().await;
        let caught_up = loop {
            match self.catch_up().await {
                Ok(true) => {}
                Ok(false) => break true,
                Err(_) => break false,
            }
        };
        if caught_up {
            self.forget_written().await;
        }
    }

    /// How it stands with the other processes, if there are any.
    pub fn fleet(&self) -> Option<FleetReport> {
        self.tiers.log().map(|_| FleetReport {
            position: self.rules.read_through(),
            untold: self.fleet.untold.lock().len(),
            trouble: self.fleet.trouble.lock().clone(),
        })
    }

    /// A rule that the others have to be told of, whatever becomes of who has decided it.
    pub(super) fn owe(&self, rule: &Rule) {
        if self.tiers.log().is_none() {
            return;
        }
        let mut untold = self.fleet.untold.lock();
        if untold.len() == MAX_UNTOLD {
            *untold = VecDeque::from([self.everything()]);
        } else {
            untold.push_back(rule.clone());
        }
    }

    /// What the log has need not be in the journal.
    async fn forget_written(&self) {
        let has_written = &self.fleet.has_written;
        if has_written.swap(false, Ordering::Relaxed) && self.shorten_journal().await.is_err() {
            has_written.store(true, Ordering::Relaxed);
        }
    }

    /// Puts the rules into the log that are not there yet.
    pub(super) async fn tell(&self) -> Result<(), TierError> {
        let Some(log) = self.tiers.log() else {
            return Ok(());
        };
        let _others_wait = self.fleet.telling.lock().await;
        loop {
            let next: Vec<_> = {
                let untold = self.fleet.untold.lock();
                untold.iter().take(TOLD_AT_ONCE).cloned().collect()
            };
            if next.is_empty() {
                return Ok(());
            }
            let records = next.iter().map(encoded).collect();
            let told = log.append_to_log(records, encoded(&self.everything()));
            self.noted(told.await)?;
            let told = |rule: &Rule| next.iter().any(|told| told.id == rule.id);
            self.fleet.untold.lock().retain(|rule| !told(rule));
            self.fleet.news.notify_one();
        }
    }

    /// Has the rules count that came into the log since it was last read. Says whether there may be more.
    pub(super) async fn catch_up(&self) -> Result<bool, TierError> {
        let Some(log) = self.tiers.log().map(Arc::clone) else {
            return Ok(false);
        };
        let _others_wait = self.fleet.reading.lock().await;
        let page = self.read_on(&*log).await?;
        let has_more = page.has_more;
        self.take_in(page);
        Ok(has_more)
    }

    /// Reads on until these rules have their places in the log: what is asked for from then on is known by all
    /// to be newer. Where that fails, what is asked for before they are read is asked for once more by others.
    pub(super) async fn learn_places(&self, rules: &[Rule]) {
        while !rules.iter().all(|rule| self.rules.is_placed(rule.id)) {
            let Ok(true) = self.catch_up().await else {
                return;
            };
        }
    }

    async fn read_on(&self, log: &dyn SharedTier) -> Result<LogPage, TierError> {
        let beginning = encoded(&self.everything());
        let page = log.read_log(self.rules.read_through(), beginning);
        self.noted(page.await)
    }

    fn take_in(&self, page: LogPage) {
        let ends = page.records.first().zip(page.records.last());
        let (first, last) = match ends {
            Some(((first, _), (last, _))) => (*first, *last),
            None if page.is_gapless => {
                let last = self.rules.read_through();
                return self.rules.note_read_through(last, !page.has_more);
            }
            None => return,
        };
        if !page.is_gapless {
            // Nobody can say what came before the first of these.
            self.begin(&self.everything(), Some(first));
        }
        for (position, record) in page.records {
            // What a later version writes may name anything.
            let rule = Rule::decode(&record).unwrap_or_else(|| self.everything());
            self.begin(&rule, Some(position));
            let was_told = |owed: &Rule| owed.id == rule.id;
            self.fleet.untold.lock().retain(|owed| !was_told(owed));
        }
        self.rules.note_read_through(last, !page.has_more);
    }

    fn noted<T>(&self, done: Result<T, TierError>) -> Result<T, TierError> {
        *self.fleet.trouble.lock() = done.as_ref().err().cloned();
        done
    }

    /// A purge of everything there is, by nobody in particular.
    fn everything(&self) -> Rule {
        Rule {
            id: microcache_store::random::number(),
            scope: Scope::Everything,
            strength: Strength::Hard,
            at: self.clock.now(),
        }
    }
}

fn encoded(rule: &Rule) -> Bytes {
    rule.encode().into()
}

//! Purge rules reach every process that shares a tier, through a log that the tier keeps.
//!
//! The process that issues a rule appends it to the log; every process reads the log several times
//! a second, and at once if the tier announces new records. A rule covers every response whose
//! fetch began before its process had read the log up to the rule's position, so clocks of other
//! machines do not matter. A process that was away, or finds a gap in the log, purges everything
//! older than the oldest record.
//!
//! The log may be kept in two copies, on independent servers. A rule counts as delivered once both
//! have it, so a process that has read either copy without a gap knows every delivered rule: a gap
//! in one copy costs nothing once the other has been read to its end. Everything is purged only if
//! neither copy can fill the gap ([`Cache::decide_doubt`]).
//!
//! Rules that could not be appended are retried; until the log has been read once after the start,
//! nothing is served from tiers ([`PurgeRules::wait_for_log`]).

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use microcache_store::{Epoch, LogPage, SharedTier, TierError, count_in_log, random};
use tokio::time::{sleep, timeout};

use super::Cache;
use super::fleet_state::{BEGINNING, MAX_QUEUED, PurgeLogCopy, QueuedRule};
use super::purge::NotWritten;
use super::rule::{Rule, Scope, Strength};
use super::rules::RulePlaces;

/// The interval between two reads of the log.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The shortest time between two reads if the tier announces new records, so that many rules are
/// read together.
const READ_PAUSE: Duration = Duration::from_millis(50);
/// The longest wait for an announcement after that pause: it may be lost.
const LOOK_ANNOUNCED: Duration = Duration::from_millis(450);
/// Most rules appended in one batch.
const APPEND_BATCH: usize = 256;
/// The time a silent copy of the log is waited for if it may hold records that the other one has
/// lost: twice the read interval.
const DOUBT: Duration = Duration::from_millis(500);

/// The state of the purge log shared with other processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReport {
    /// The position up to which the log of purges was read, in the copy that is further; 0 before
    /// the first read. It only grows within one log.
    pub position: u64,
    /// Number of times everything older was purged because the log was lost or could not be read.
    pub lost: u64,
    /// Rules not yet in every copy of the log.
    pub queued: usize,
    /// The error of a copy that cannot be reached.
    pub trouble: Option<TierError>,
    /// At least one copy is reachable.
    pub is_reached: bool,
}

impl Cache {
    /// Keeps this process in step with the others that share a tier, for as long as it is polled. A
    /// hanging copy of the log does not delay the other one.
    pub async fn keep_in_step(&self) {
        if self.tiers.log().is_none() {
            return pending().await;
        }
        let keep = |copy: usize| async move {
            loop {
                self.step_in_at(copy).await;
                self.wait_for_news(copy).await;
            }
        };
        join_all((0..self.log_copies()).map(keep)).await;
    }

    /// Waits until a copy of the log is to be read again.
    async fn wait_for_news(&self, copy: usize) {
        let own = self.fleet.copies[copy].news.notified();
        let Some(log) = self.tiers.log() else {
            return;
        };
        let (others, longest) = if let Some(announced) = log.log_news(copy) {
            sleep(READ_PAUSE).await;
            (announced, LOOK_ANNOUNCED)
        } else {
            let wake = log.log_wake(copy);
            (wake.unwrap_or_else(|| Box::pin(pending())), LOOK_EVERY)
        };
        let news = async {
            tokio::select! {
                // In this order, so that a simulation with one seed is one run.
                biased;
                () = own => {}
                () = others => {}
            }
        };
        let _ = timeout(longest, news).await;
    }

    /// Sends the outgoing rules and reads new ones. Failures are retried in the next step.
    #[cfg(test)]
    pub(super) async fn step_in(&self) {
        let step = |copy| self.step_in_at(copy);
        join_all((0..self.log_copies()).map(step)).await;
    }

    /// Does a step with one copy of the log.
    async fn step_in_at(&self, copy: usize) {
        let _ = self.append_queued(copy).await;
        if self.catch_up(copy).await.is_ok() {
            self.forget_written().await;
        }
    }

    /// The state of the shared purge log; `None` without a shared tier.
    pub fn fleet(&self) -> Option<FleetReport> {
        self.tiers.log()?;
        let copies = &self.fleet.copies[..self.log_copies()];
        let troubles = copies.iter().map(|copy| copy.trouble.lock().clone());
        let troubles: Vec<_> = troubles.collect();
        let queued = copies.iter().map(|copy| copy.queued.lock().len());
        let positions = self.rules.read_through().into_iter();
        Some(FleetReport {
            position: positions.map(count_in_log).max().unwrap_or(0),
            lost: self.fleet.lost.load(Ordering::Relaxed),
            queued: queued.max().unwrap_or(0),
            is_reached: troubles.iter().any(Option::is_none),
            trouble: troubles.into_iter().flatten().next(),
        })
    }

    fn log_copies(&self) -> usize {
        self.tiers.log().map_or(0, |log| log.log_copies())
    }

    /// Queues a rule for the other processes. It is delivered even if the request that issued it is
    /// cancelled.
    pub(super) fn queue_for_fleet(&self, rule: &Rule) {
        let epoch = Epoch::now().anywhere();
        for copy in &self.fleet.copies[..self.log_copies()] {
            let (id, record) = (rule.id, Bytes::from(rule.encode(&epoch)));
            let mut queued = copy.queued.lock();
            if queued.len() >= MAX_QUEUED {
                let (id, record) = (random::number(), BEGINNING);
                *queued = VecDeque::from([QueuedRule { id, record }]);
            } else {
                queued.push_back(QueuedRule { id, record });
            }
        }
    }

    /// Drops rules that are in every copy of the log from the journal.
    async fn forget_written(&self) {
        let is_delivered = |copy: &PurgeLogCopy| copy.queued.lock().is_empty();
        let has_written = &self.fleet.has_written;
        if self.fleet.copies.iter().all(is_delivered)
            && has_written.swap(false, Ordering::Relaxed)
            && self.shorten_journal().await.is_err()
        {
            has_written.store(true, Ordering::Relaxed);
        }
    }

    /// Delivers these rules, and all queued ones, to the other processes. A rule in only one of two
    /// copies counts as not delivered: it would be lost with that copy.
    pub(super) async fn deliver(&self, rules: &[Rule]) -> Result<(), NotWritten> {
        let deliver = |copy| async move {
            self.append_queued(copy).await?;
            self.learn_places(copy, rules).await;
            Ok(())
        };
        let delivered = join_all((0..self.log_copies()).map(deliver)).await;
        let reached = delivered
            .iter()
            .filter(|delivered| delivered.is_ok())
            .count();
        match delivered.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) if reached == 0 => Err(NotWritten::NotDelivered(error)),
            Some(error) => Err(NotWritten::HalfDelivered(error)),
        }
    }

    /// Appends the outgoing rules to a copy of the log.
    async fn append_queued(&self, copy: usize) -> Result<(), TierError> {
        let Some(log) = self.tiers.log() else {
            return Ok(());
        };
        let at = &self.fleet.copies[copy];
        let _others_wait = at.appending.lock().await;
        loop {
            let (ids, records): (Vec<_>, Vec<_>) = {
                let queued = at.queued.lock();
                let next = queued.iter().take(APPEND_BATCH);
                next.map(|queued| (queued.id, queued.record.clone()))
                    .unzip()
            };
            if records.is_empty() {
                return Ok(());
            }
            at.noted(log.append_to_log(copy, records, BEGINNING).await)?;
            at.note_appended(&ids);
            at.news.notify_one();
        }
    }

    /// Applies the rules added to a copy of the log since it was last read.
    pub(super) async fn catch_up(&self, copy: usize) -> Result<(), TierError> {
        let Some(log) = self.tiers.log().map(Arc::clone) else {
            return Ok(());
        };
        let _others_wait = self.fleet.copies[copy].reading.lock().await;
        let (from, newest) = (self.fleet.doubt.lock().next_moment(), self.rules.newest());
        let read = self.read_on(&*log, copy).await;
        if read == Ok(true) {
            self.rules.settle(copy, newest);
            self.fleet.doubt.lock().read_from[copy] = from;
        }
        self.decide_doubt();
        read.map(drop)
    }

    /// Reads all copies for the first time; twice, since a gap in one may only be filled after the
    /// others were read.
    pub(super) async fn catch_up_with_all(&self) {
        self.rules.wait_for_log();
        for _ in 0..2 {
            join_all((0..self.log_copies()).map(|copy| self.catch_up(copy))).await;
        }
    }

    /// Reads a copy until these rules have their places: fetches that begin later are then known to
    /// be newer in every process. If that fails, other processes repeat the fetches that begin
    /// before the rules are read.
    async fn learn_places(&self, copy: usize, rules: &[Rule]) {
        if !rules.iter().all(|rule| self.rules.is_placed(rule.id, copy)) {
            let _ = self.catch_up(copy).await;
        }
    }

    /// Reads all new records of a copy. Returns true at its end.
    async fn read_on(&self, log: &dyn SharedTier, copy: usize) -> Result<bool, TierError> {
        loop {
            let after = self.rules.read_through()[copy];
            let page = log.read_log(copy, after, BEGINNING);
            let page = self.fleet.copies[copy].awaited(page).await?;
            let (has_more, is_held_up) = (page.has_more, page.is_held_up);
            self.take_in(copy, page);
            if !has_more {
                return Ok(!is_held_up);
            }
        }
    }

    fn take_in(&self, copy: usize, page: LogPage) {
        let ends = page.records.first().zip(page.records.last());
        let Some((first, last)) = ends.map(|(first, last)| (first.0, last.0)) else {
            return;
        };
        let is_loss = self.rules.read_through()[copy] > 0 || page.was_unreadable;
        let place = |position| self.rules.place(copy, position);
        // Records before the first of these are missing.
        let mut gap = (!page.is_gapless).then(|| place(first));
        if gap.is_some() && is_loss && self.log_copies() == 1 {
            // Processes that had not read them see no gap. The rules that are still there are removed below.
            self.fleet.copies[copy].append_again();
        }
        for (position, record) in page.records {
            if record == BEGINNING {
                gap = Some(place(position));
                continue;
            }
            // A record in a newer format may cover anything.
            let rule = Rule::decode(&record, &Epoch::now()).unwrap_or_else(|| self.everything());
            self.add_rule(&rule, RulePlaces::in_copy(copy, place(position)));
            let mut queued = self.fleet.copies[copy].queued.lock();
            queued.retain(|queued| queued.id != rule.id);
        }
        if let Some(place) = gap {
            let mut doubt = self.fleet.doubt.lock();
            doubt.note_gap(copy, place, is_loss);
            drop(doubt);
            self.fleet.queue_again(copy);
        }
        self.rules.note_read_through(copy, last);
    }

    /// Purges everything older where no copy of the log can fill a gap: the others have gaps too,
    /// or are unreachable. A copy that may still answer is waited for.
    fn decide_doubt(&self) {
        let mut doubt = self.fleet.doubt.lock();
        doubt.find_in_others();
        if let Some(since) = doubt.since() {
            let places = doubt.places();
            let may_answer =
                |copy: usize| places.get(copy).is_none() && !self.fleet.copies[copy].is_down();
            if since.elapsed() < DOUBT && (0..self.log_copies()).any(may_answer) {
                return;
            }
            self.add_rule(&self.everything(), places);
            let is_loss = doubt.gaps.iter().flatten().any(|gap| gap.is_loss);
            self.fleet.lost.fetch_add(is_loss.into(), Ordering::Relaxed);
            doubt.gaps = Default::default();
        }
        if doubt.read_from.iter().any(|from| *from > 0) {
            self.rules.note_log_read();
        }
    }

    /// A hard purge of everything, issued by this process itself.
    fn everything(&self) -> Rule {
        Rule {
            id: random::number(),
            scope: Scope::Everything,
            strength: Strength::Hard,
            at: self.clock.now(),
        }
    }
}

//! Purges by rule reach every process that shares a tier, through a log that the tier keeps.
//!
//! Whoever decides a rule puts it into the log; everybody reads on in it several times a second. Its
//! place there says what it means: whatever was asked for by somebody who had not read that far yet.
//! Clocks of other machines do not count. Who was away, or cannot know what is missing, purges everything
//! that is older than what the log still has.
//!
//! The log may lie in two copies, on servers that know nothing of each other. A rule is told when both have it. So who has read
//! on in one of them without a gap knows all that were told, whatever has become of the other: a gap in one copy
//! costs nothing as soon as the other one has been read on without. Only where none can say what is missing everything
//! is purged ([`Cache::decide_doubt`]).
//!
//! What could not be told is told as soon as that is possible; what could not be read yet when the process
//! began keeps it from using what lies behind memory ([`Rules::wait_for_log`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use microcache_store::{Epoch, LOG_COPIES, LogPage, SharedTier, TierError, count_in_log, random};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::Cache;
use super::purge::NotWritten;
use super::rule::{Rule, Scope, Strength};
use super::rules::Places;

/// How often the log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// So many rules are told at once.
const TOLD_AT_ONCE: usize = 256;
/// Rules that wait to be told. Beyond it they are told as a gap: who reads on there cannot know what they
/// were.
pub(super) const MAX_UNTOLD: usize = 4096;
/// How long a copy of the log that does not answer is waited for, if it may have what the other one has lost.
/// That is as often as it is looked at in half a second.
const DOUBT: Duration = Duration::from_millis(500);
/// Stands in a log where something may be missing before it. It is no rule, and who does not know it purges
/// everything.
pub(super) const BEGINNING: Bytes = Bytes::from_static(b"beginning");

/// What is between this process and the others.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// Each copy of the log by itself. Of a log in one copy the others are not used.
    copies: [Copy; LOG_COPIES],
    doubt: Mutex<Doubt>,
    /// The journal has rules that the log may have by now.
    has_written: AtomicBool,
    /// How often everything was purged because of what had become of the log.
    lost: AtomicU64,
}

/// What is between this process and one copy of the log.
#[derive(Debug, Default)]
struct Copy {
    /// What is not in it yet, the oldest first.
    untold: Mutex<VecDeque<Untold>>,
    /// Who tells the others has it.
    telling: tokio::sync::Mutex<()>,
    /// Who reads the log has it: what was read earlier is taken in earlier.
    reading: tokio::sync::Mutex<()>,
    /// Why it was not reached when that was last tried.
    trouble: Mutex<Option<TierError>>,
    /// There is something in it that ought to be read.
    news: Notify,
}

#[derive(Clone, Debug)]
struct Untold {
    /// Of the rule.
    id: u64,
    record: Bytes,
}

/// What may have been lost.
#[derive(Debug, Default)]
struct Doubt {
    /// By the copies of the log, and was not found in the others yet.
    gaps: [Option<Gap>; LOG_COPIES],
    /// When each copy was last read to its end: when that began.
    read_from: [u64; LOG_COPIES],
    /// Counts what happens here, to say what came before what.
    moment: u64,
}

/// Nobody can say what a copy had before this.
#[derive(Clone, Copy, Debug)]
struct Gap {
    position: u64,
    noticed: u64,
    since: Instant,
    /// Something was lost of what this process reads, which has not just begun to read.
    is_loss: bool,
}

/// How it stands with the processes that share a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReport {
    /// Up to where the log of purges was read, in the copy that is further; 0 if it was not. It grows as long as that log
    /// lasts.
    pub position: u64,
    /// How often everything that was older counted as purged, because the log was lost or could not be read.
    pub lost: u64,
    /// Purges that the others have not been told of yet, or by one copy alone.
    pub untold: usize,
    /// Why the log, or a copy of it, cannot be reached.
    pub trouble: Option<TierError>,
    /// Whether one of the copies can be.
    pub is_reached: bool,
}

impl Fleet {
    /// A copy of the log has lost something. What the other one does not have yet, nobody might have now.
    fn tell_again(&self, copy: usize) {
        let others = self.copies.iter().enumerate().filter(|(it, _)| *it != copy);
        for (_, other) in others {
            let owed: Vec<_> = other.untold.lock().iter().cloned().collect();
            let mut untold = self.copies[copy].untold.lock();
            let is_new = |owed: &Untold| untold.iter().all(|untold| untold.id != owed.id);
            let new: Vec<_> = owed.into_iter().filter(is_new).collect();
            untold.extend(new);
        }
    }

    /// Notes that the journal has rules.
    pub(super) fn note_written(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }
}

impl Cache {
    /// Stays in step with the processes that share a tier, for as long as it is polled. A copy of the log that hangs
    /// keeps nobody from the other one.
    pub async fn keep_in_step(&self) {
        if self.tiers.log().is_none() {
            return std::future::pending().await;
        }
        let keep = |copy: usize| async move {
            loop {
                self.step_in_at(copy).await;
                let news = self.fleet.copies[copy].news.notified();
                let _ = timeout(LOOK_EVERY, news).await;
            }
        };
        join_all((0..self.log_copies()).map(keep)).await;
    }

    /// Tells the others what they do not know, and learns what they know. What fails is tried again the
    /// next time.
    #[cfg(test)]
    pub(super) async fn step_in(&self) {
        let step = |copy| self.step_in_at(copy);
        join_all((0..self.log_copies()).map(step)).await;
    }

    /// The same with one copy of the log.
    async fn step_in_at(&self, copy: usize) {
        let _ = self.tell(copy).await;
        if self.catch_up(copy).await.is_ok() {
            self.forget_written().await;
        }
    }

    /// How it stands with the other processes, if there are any.
    pub fn fleet(&self) -> Option<FleetReport> {
        self.tiers.log()?;
        let copies = &self.fleet.copies[..self.log_copies()];
        let troubles = copies.iter().map(|copy| copy.trouble.lock().clone());
        let troubles: Vec<_> = troubles.collect();
        let untold = copies.iter().map(|copy| copy.untold.lock().len());
        let positions = self.rules.read_through().into_iter();
        Some(FleetReport {
            position: positions.map(count_in_log).max().unwrap_or(0),
            lost: self.fleet.lost.load(Ordering::Relaxed),
            untold: untold.max().unwrap_or(0),
            is_reached: troubles.iter().any(Option::is_none),
            trouble: troubles.into_iter().flatten().next(),
        })
    }

    fn log_copies(&self) -> usize {
        self.tiers.log().map_or(0, |log| log.log_copies())
    }

    /// A rule that the others have to be told of, whatever becomes of who has decided it.
    pub(super) fn owe(&self, rule: &Rule) {
        let epoch = Epoch::now().anywhere();
        for copy in &self.fleet.copies[..self.log_copies()] {
            let (id, record) = (rule.id, Bytes::from(rule.encode(&epoch)));
            let mut untold = copy.untold.lock();
            if untold.len() >= MAX_UNTOLD {
                let (id, record) = (random::number(), BEGINNING);
                *untold = VecDeque::from([Untold { id, record }]);
            } else {
                untold.push_back(Untold { id, record });
            }
        }
    }

    /// What all copies of the log have need not be in the journal.
    async fn forget_written(&self) {
        let is_told = |copy: &Copy| copy.untold.lock().is_empty();
        let has_written = &self.fleet.has_written;
        if self.fleet.copies.iter().all(is_told)
            && has_written.swap(false, Ordering::Relaxed)
            && self.shorten_journal().await.is_err()
        {
            has_written.store(true, Ordering::Relaxed);
        }
    }

    /// Tells the other processes of these rules, and of all that they do not know yet. What only one of two copies of
    /// the log has taken counts as not told: nobody would know of it if that was lost.
    pub(super) async fn tell_all(&self, rules: &[Rule]) -> Result<(), NotWritten> {
        let tell = |copy| async move {
            self.tell(copy).await?;
            self.learn_places(copy, rules).await;
            Ok(())
        };
        let told = join_all((0..self.log_copies()).map(tell)).await;
        let reached = told.iter().filter(|told| told.is_ok()).count();
        match told.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) if reached == 0 => Err(NotWritten::NotTold(error)),
            Some(error) => Err(NotWritten::HalfTold(error)),
        }
    }

    /// Puts the rules into a copy of the log that are not there yet.
    async fn tell(&self, copy: usize) -> Result<(), TierError> {
        let Some(log) = self.tiers.log() else {
            return Ok(());
        };
        let at = &self.fleet.copies[copy];
        let _others_wait = at.telling.lock().await;
        loop {
            let (ids, records): (Vec<_>, Vec<_>) = {
                let untold = at.untold.lock();
                let next = untold.iter().take(TOLD_AT_ONCE);
                next.map(|untold| (untold.id, untold.record.clone()))
                    .unzip()
            };
            if records.is_empty() {
                return Ok(());
            }
            at.noted(log.append_to_log(copy, records, BEGINNING).await)?;
            at.untold.lock().retain(|untold| !ids.contains(&untold.id));
            at.news.notify_one();
        }
    }

    /// Has the rules count that came into a copy of the log since it was last read.
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

    /// The same at all copies, for who has not read any. What one of them says of the others it says the second time.
    pub(super) async fn catch_up_with_all(&self) {
        self.rules.wait_for_log();
        for _ in 0..2 {
            join_all((0..self.log_copies()).map(|copy| self.catch_up(copy))).await;
        }
    }

    /// Reads on until these rules have their places in a copy of the log: what is asked for from then on is known by all
    /// to be newer. Where that fails, what is asked for before they are read is asked for once more by others.
    async fn learn_places(&self, copy: usize, rules: &[Rule]) {
        if !rules.iter().all(|rule| self.rules.is_placed(rule.id, copy)) {
            let _ = self.catch_up(copy).await;
        }
    }

    /// Takes in all that is new in a copy of the log. Says whether it has come to the end.
    async fn read_on(&self, log: &dyn SharedTier, copy: usize) -> Result<bool, TierError> {
        loop {
            let after = self.rules.read_through()[copy];
            let page = log.read_log(copy, after, BEGINNING).await;
            let page = self.fleet.copies[copy].noted(page)?;
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
        // Nobody can say what came before the first of these.
        let mut gap = (!page.is_gapless).then(|| place(first));
        for (position, record) in page.records {
            if record == BEGINNING {
                gap = Some(place(position));
                continue;
            }
            // What a later version writes may name anything.
            let rule = Rule::decode(&record, &Epoch::now()).unwrap_or_else(|| self.everything());
            let mut places = Places::default();
            places[copy] = Some(place(position));
            self.begin(&rule, places);
            let mut untold = self.fleet.copies[copy].untold.lock();
            untold.retain(|untold| untold.id != rule.id);
        }
        if let Some(position) = gap {
            let mut doubt = self.fleet.doubt.lock();
            doubt.note_gap(copy, position, is_loss);
            drop(doubt);
            self.fleet.tell_again(copy);
        }
        self.rules.note_read_through(copy, last);
    }

    /// Purges everything that is older where nobody can say what a copy of the log has lost: the others have lost
    /// something too, or cannot be asked. One that may answer is waited for.
    fn decide_doubt(&self) {
        let mut doubt = self.fleet.doubt.lock();
        doubt.find_in_others();
        if let Some(since) = doubt.since() {
            let places = doubt.places();
            let may_say =
                |copy: usize| places[copy].is_none() && !self.fleet.copies[copy].is_down();
            if since.elapsed() < DOUBT && (0..self.log_copies()).any(may_say) {
                return;
            }
            self.begin(&self.everything(), places);
            let is_loss = doubt.gaps.iter().flatten().any(|gap| gap.is_loss);
            self.fleet.lost.fetch_add(is_loss.into(), Ordering::Relaxed);
            doubt.gaps = Default::default();
        }
        if doubt.read_from.iter().any(|from| *from > 0) {
            self.rules.note_log_read();
        }
    }

    /// A purge of everything there is, by nobody in particular.
    fn everything(&self) -> Rule {
        Rule {
            id: random::number(),
            scope: Scope::Everything,
            strength: Strength::Hard,
            at: self.clock.now(),
        }
    }
}

impl Copy {
    fn noted<T>(&self, done: Result<T, TierError>) -> Result<T, TierError> {
        *self.trouble.lock() = done.as_ref().err().cloned();
        done
    }

    /// Nobody is going to answer soon.
    fn is_down(&self) -> bool {
        *self.trouble.lock() == Some(TierError::Down)
    }
}

impl Doubt {
    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn note_gap(&mut self, copy: usize, position: u64, is_loss: bool) {
        self.gaps[copy] = Some(Gap {
            position,
            noticed: self.next_moment(),
            since: Instant::now(),
            is_loss,
        });
    }

    /// What a copy has lost another one has that was read on without a gap, to its end, since that was noticed.
    fn find_in_others(&mut self) {
        let whole = (0..LOG_COPIES).filter(|copy| self.gaps[*copy].is_none());
        let read_from = whole.map(|copy| self.read_from[copy]).max().unwrap_or(0);
        for gap in &mut self.gaps {
            *gap = gap.filter(|gap| gap.noticed >= read_from);
        }
    }

    /// Since when there is a gap.
    fn since(&self) -> Option<Instant> {
        self.gaps.iter().flatten().map(|gap| gap.since).min()
    }

    /// From where on nothing is missing in each copy. Of one that was not read to its end since the newest gap was noticed
    /// nobody knows that.
    fn places(&self) -> Places {
        let newest = self.gaps.iter().flatten().map(|gap| gap.noticed).max();
        std::array::from_fn(|copy| {
            let gap = self.gaps[copy]?;
            let is_current = Some(gap.noticed.max(self.read_from[copy])) >= newest;
            is_current.then_some(gap.position)
        })
    }
}

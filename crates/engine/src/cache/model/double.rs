//! A tier that responds late, never, or with an error after doing what was requested.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use microcache_store::tier::{Spool, TierFuture};
use microcache_store::{
    Claim, Entry, EntryId, GetOutcome, JournalRecords, LOG_COPIES, ListEntry, Listing, LocalTier,
    LogPage, PutOutcome, SharedTier, Tier, TierError, TierStats, Token, log_of,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::pages::Chance;
use crate::cache::fleet_state::BEGINNING;

/// Records of the log read at a time.
const PAGE: usize = 3;

/// The contents of a tier; they outlive the processes that use it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    records: BTreeMap<[u8; 16], Record>,
    claims: HashMap<EntryId, (Token, Instant)>,
    journal: Vec<Bytes>,
    /// The two copies of the purge log.
    logs: [Log; LOG_COPIES],
    /// A counter that distinguishes records and claims from their successors.
    number: u64,
    /// The step in which an entry was last certainly removed.
    removed: HashMap<EntryId, usize>,
    pub(super) step: usize,
}

/// A copy of the log.
#[derive(Debug, Default)]
struct Log {
    records: Vec<(u64, Bytes)>,
    last_position: u64,
    /// The number of removals, including this one.
    number: u64,
}

#[derive(Debug)]
struct Record {
    entry: Entry,
    version: u64,
    until: Instant,
}

/// The behaviour of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Works,
    /// Fails without doing anything.
    Fails,
    /// Fails to remove anything.
    KeepsAll,
    /// Does what is requested, and fails nevertheless.
    SaysNothing,
    /// Delays requests until its mood changes.
    HoldsRequests,
    /// Processes requests, and delays the responses until its mood changes.
    HoldsAnswers,
}

impl Mood {
    pub(super) fn any(chance: &mut Chance) -> Self {
        match chance.below(8) {
            0 => Self::Fails,
            1 => Self::KeepsAll,
            2 => Self::SaysNothing,
            3 => Self::HoldsRequests,
            4 => Self::HoldsAnswers,
            _ => Self::Works,
        }
    }
}

/// A tier as one process sees it.
#[derive(Debug)]
pub(super) struct Double {
    kept: Arc<Mutex<Kept>>,
    mood: watch::Sender<Mood>,
    /// The behaviour of each copy of the log towards this process.
    lines: Mutex<[Line; LOG_COPIES]>,
    /// The process has ended: its requests no longer arrive.
    is_cut_off: AtomicBool,
}

/// The behaviour of a copy of the log towards one process, while the tier itself responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Line {
    #[default]
    Works,
    /// Known to be down.
    Down,
    /// Does nothing, and never responds.
    Hangs,
    /// Does what is requested, and never responds.
    SaysNothing,
}

impl Line {
    pub(super) fn any(chance: &mut Chance) -> Self {
        match chance.below(6) {
            0 => Self::Down,
            1 => Self::Hangs,
            2 => Self::SaysNothing,
            _ => Self::Works,
        }
    }
}

impl Double {
    pub(super) fn new(kept: Arc<Mutex<Kept>>) -> Arc<Self> {
        Arc::new(Self {
            kept,
            mood: watch::Sender::new(Mood::Works),
            lines: Mutex::default(),
            is_cut_off: AtomicBool::new(false),
        })
    }

    pub(super) fn set_mood(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    pub(super) fn set_line(&self, copy: usize, line: Line) {
        self.lines.lock()[copy] = line;
    }

    pub(super) fn line(&self, copy: usize) -> Line {
        self.lines.lock()[copy]
    }

    async fn act_on_log<T>(
        &self,
        copy: usize,
        act: impl FnOnce(&mut Log) -> T,
    ) -> Result<T, TierError> {
        let line = self.line(copy);
        match line {
            Line::Down => return Err(TierError::Down),
            Line::Hangs => return Err(TierError::Timeout),
            Line::Works | Line::SaysNothing => {}
        }
        let done = self.act(false, move |kept| act(&mut kept.logs[copy])).await;
        done.and_then(|done| match line {
            Line::SaysNothing => Err(TierError::Timeout),
            _ => Ok(done),
        })
    }

    /// Returns true while it never responds.
    pub(super) fn hangs(&self) -> bool {
        matches!(
            *self.mood.borrow(),
            Mood::HoldsRequests | Mood::HoldsAnswers
        )
    }

    pub(super) fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::Relaxed);
    }

    /// Returns true if the entries of an id have certainly been removed since this step.
    pub(super) fn has_removed(&self, id: EntryId, step: usize) -> bool {
        let kept = self.kept.lock();
        kept.removed.get(&id).is_some_and(|at| *at >= step)
    }

    async fn until_mood_is_not(&self, mood: Mood) {
        let mut moods = self.mood.subscribe();
        let changed = moods.wait_for(|now| *now != mood).await;
        changed.map(drop).expect("it lasts as long as this");
    }

    async fn act<T>(
        &self,
        is_removal: bool,
        act: impl FnOnce(&mut Kept) -> T,
    ) -> Result<T, TierError> {
        self.until_mood_is_not(Mood::HoldsRequests).await;
        let mood = *self.mood.borrow();
        let is_lost = mood == Mood::Fails || mood == Mood::KeepsAll && is_removal;
        if is_lost || self.is_cut_off.load(Ordering::Relaxed) {
            return Err(TierError::Down);
        }
        let done = act(&mut self.kept.lock());
        if mood == Mood::HoldsAnswers {
            self.until_mood_is_not(mood).await;
        }
        if mood == Mood::SaysNothing {
            return Err(TierError::Timeout);
        }
        Ok(done)
    }
}

impl Kept {
    fn record(&mut self, id: EntryId) -> Option<&Record> {
        let record = self.records.get(&id.to_bytes())?;
        (Instant::now() < record.until).then_some(record)
    }

    fn claim(&mut self, id: EntryId, hold: Duration) -> Claim {
        let now = Instant::now();
        if self.claims.get(&id).is_some_and(|(_, until)| now < *until) {
            return Claim::HeldElsewhere;
        }
        let token = Token(self.next_number());
        self.claims.insert(id, (token, now + hold));
        Claim::Granted(token)
    }

    /// Ends a claim. Returns whether it was valid.
    fn spend(&mut self, id: EntryId, token: Token) -> bool {
        let now = Instant::now();
        let is_it = |(held, until): &(Token, Instant)| *held == token && now < *until;
        let is_good = self.claims.get(&id).is_some_and(is_it);
        if is_good {
            self.claims.remove(&id);
        }
        is_good
    }

    fn put(&mut self, id: EntryId, entry: Entry, expires: Duration) -> PutOutcome {
        let record = Record {
            entry,
            version: self.next_number(),
            until: Instant::now() + expires,
        };
        self.records.insert(id.to_bytes(), record);
        PutOutcome::Stored
    }

    fn renew(&mut self, id: EntryId, from: &Bytes, head: Bytes, expires: Duration) -> PutOutcome {
        match self.record(id).map(|record| record.entry.clone()) {
            Some(Entry { head: old, body }) if old == *from => {
                self.put(id, Entry { head, body }, expires)
            }
            _ => PutOutcome::Superseded,
        }
    }

    /// Loses the records of a copy of the log but the newest ones.
    pub(super) fn forget_log(&mut self, copy: usize, kept: usize) {
        self.logs[copy].forget(kept);
    }

    /// Loses the newest record of a copy, after a reader has noticed the gap.
    pub(super) fn lose_newest(&mut self, copy: usize) {
        if let Some((_, record)) = self.logs[copy].records.last_mut() {
            *record = BEGINNING;
        }
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

impl Log {
    fn append(&mut self, records: Vec<Bytes>, beginning: Bytes) {
        let beginning = self.records.is_empty().then_some(beginning);
        if beginning.is_some() {
            // Positions in the next log may be smaller or larger, but are never the same.
            self.number += 1;
            self.last_position = log_of(self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        for record in beginning.into_iter().chain(records) {
            self.last_position += 1;
            self.records.push((self.last_position, record));
        }
    }

    fn read(&mut self, after: u64, beginning: Bytes) -> LogPage {
        self.append(Vec::new(), beginning);
        let mut positions = self.records.iter().map(|(position, _)| *position);
        let known = positions.position(|position| position == after);
        let next = known.map_or(0, |known| known + 1);
        let mut later = self.records[next..].iter().cloned();
        LogPage {
            records: later.by_ref().take(PAGE).collect(),
            is_gapless: known.is_some(),
            has_more: later.next().is_some(),
            ..LogPage::default()
        }
    }

    fn forget(&mut self, kept: usize) {
        let gone = self.records.len().saturating_sub(kept);
        self.records.drain(..gone);
    }
}

impl Tier for Double {
    fn name(&self) -> &'static str {
        "double"
    }

    fn get(&self, id: EntryId) -> TierFuture<'_, Option<Entry>> {
        Box::pin(self.act(false, move |kept| {
            kept.record(id).map(|record| record.entry.clone())
        }))
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(self.act(false, move |kept| {
            if token.is_none_or(|token| kept.spend(id, token)) {
                kept.put(id, entry, expires)
            } else {
                PutOutcome::Superseded
            }
        }))
    }

    fn renew(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(self.act(false, move |kept| {
            let claim = kept.claims.get(&id).copied();
            if token.is_some_and(|token| !kept.spend(id, token)) {
                return PutOutcome::Superseded;
            }
            let put = kept.renew(id, &from, head, expires);
            if put == PutOutcome::Superseded {
                kept.claims.extend(claim.map(|claim| (id, claim)));
            }
            put
        }))
    }

    fn remove(&self, id: EntryId) -> TierFuture<'_, ()> {
        Box::pin(self.act(true, move |kept| {
            kept.records.remove(&id.to_bytes());
            kept.claims.remove(&id);
            kept.removed.insert(id, kept.step);
        }))
    }

    fn stats(&self) -> TierStats {
        TierStats::default()
    }
}

impl SharedTier for Double {
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, GetOutcome> {
        Box::pin(self.act(false, move |kept| match kept.record(id) {
            Some(record) => GetOutcome::Entry(record.entry.clone()),
            None => GetOutcome::Missing(kept.claim(id, hold)),
        }))
    }

    fn claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, Claim> {
        Box::pin(self.act(false, move |kept| kept.claim(id, hold)))
    }

    fn release(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        Box::pin(self.act(false, move |kept| {
            kept.spend(id, token);
        }))
    }

    fn head(&self, id: EntryId) -> TierFuture<'_, Option<Bytes>> {
        Box::pin(self.act(false, move |kept| {
            kept.record(id).map(|record| record.entry.head.clone())
        }))
    }

    fn log_copies(&self) -> usize {
        LOG_COPIES
    }

    fn append_to_log(
        &self,
        copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> TierFuture<'_, ()> {
        Box::pin(self.act_on_log(copy, move |log| log.append(records, beginning)))
    }

    fn read_log(&self, copy: usize, after: u64, beginning: Bytes) -> TierFuture<'_, LogPage> {
        Box::pin(self.act_on_log(copy, move |log| log.read(after, beginning)))
    }
}

impl LocalTier for Double {
    fn try_get(&self, id: EntryId) -> Option<Entry> {
        let mut kept = self.kept.lock();
        let record = kept.record(id).filter(|_| !self.hangs())?;
        Some(record.entry.clone())
    }

    fn largest(&self) -> u64 {
        0
    }

    fn spool(&self) -> Option<Box<dyn Spool>> {
        None
    }

    fn list(&self, after: Option<EntryId>, most: usize) -> TierFuture<'_, Listing> {
        Box::pin(self.act(false, move |kept| {
            let is_after = |id: &[u8; 16]| after.is_none_or(|after| *id > after.to_bytes());
            let mut later = kept.records.iter().filter(|(id, _)| is_after(id));
            let page = later.by_ref().take(most);
            let entries: Vec<_> = page
                .map(|(id, record)| ListEntry {
                    id: EntryId::from_bytes(*id),
                    head: record.entry.head.clone(),
                    version: record.version,
                })
                .collect();
            let last = entries.last().map(|last| last.id);
            let next = later.next().and(last);
            Listing { entries, next }
        }))
    }

    fn remove_listed<'a>(&'a self, seen: &'a ListEntry) -> TierFuture<'a, bool> {
        Box::pin(self.act(true, move |kept| {
            let id = seen.id.to_bytes();
            let record = kept.records.get(&id);
            let is_it = record.is_some_and(|record| record.version == seen.version);
            if is_it {
                kept.records.remove(&id);
            }
            is_it
        }))
    }

    fn load_journal(&self) -> TierFuture<'_, JournalRecords> {
        Box::pin(self.act(false, |kept| JournalRecords {
            records: kept.journal.clone(),
            is_damaged: false,
        }))
    }

    fn append_to_journal(&self, records: Vec<Bytes>) -> TierFuture<'_, ()> {
        Box::pin(self.act(false, move |kept| kept.journal.extend(records)))
    }

    fn replace_journal(&self, records: Vec<Bytes>) -> TierFuture<'_, ()> {
        Box::pin(self.act(false, move |kept| kept.journal = records))
    }
}

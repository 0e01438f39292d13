//! Purges that cover more than one key: rules, checked against an entry when it is looked up, found
//! in a tier, or about to be stored.
//!
//! A rule has a number. An entry remembers the number up to which it was checked, so each rule
//! costs an entry one check, and an entry that is up to date costs one comparison. Rules are kept
//! until a sweep has removed the entries they cover ([`PurgeRules::drop_through`]).
//!
//! Numbers are local to this process. Entries in tiers are older, or come from other processes:
//! they are checked by a rule's position in the log that processes share, or by time where there is
//! no log.
//!
//! The log may be kept in two independent copies. A rule has a position in each; a fetch is newer
//! than the rule if its process had read either copy up to that position before the fetch began. A
//! rule that is in one copy only has no position in the other: that copy is not consulted until it
//! has been read once more. A process that reads it from there on is later, so the end of that read
//! becomes the position ([`PurgeRules::settle`]).
//!
//! A place is a position that can be compared across the successive logs of a copy: see
//! [`super::logs`].
//!
//! The number of rules kept one by one is bounded ([`MAX_RULES`]), and so is their memory. Beyond
//! either bound the oldest rule is merged into a coarse part of the name space ([`index`]). Every
//! entry of a part that is older than the merged rule counts as purged.

mod index;
mod mark;
mod number;
mod places;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use microcache_policy::Time;
use microcache_store::{LOG_COPIES, LogPositions};

use super::logs::{LogHistory, LogPlace};
use super::rule::{EntryNames, Rule, RuleSubject, Scope, Strength};
use crate::sync::{AtomicBool, AtomicU64, RwLock};
use index::RuleIndex;
use mark::{EntryAge, RuleMark};

pub(super) use number::{RuleNumber, SharedRuleNumber};
pub(super) use places::RulePlaces;

/// The most rules kept one by one.
pub(super) const MAX_RULES: usize = 64 * 1024;
/// The memory of a rule in bytes, besides its texts, which are stored twice where they are matched.
const COST: usize = 512;

/// All purge rules that entries still have to be checked against.
#[derive(Debug)]
pub(super) struct PurgeRules {
    /// The bound of the rules kept one by one, in bytes.
    capacity: usize,
    /// The number of the newest rule.
    newest: SharedRuleNumber,
    /// The position up to which each copy of the shared log was read.
    read_through: [AtomicU64; LOG_COPIES],
    /// The log has not been read yet: every tier entry may be purged.
    waits_for_log: AtomicBool,
    /// The successive logs of each copy.
    logs: [RwLock<LogHistory>; LOG_COPIES],
    table: RwLock<RuleTable>,
}

#[derive(Debug)]
struct RuleTable {
    /// The memory of the rules kept one by one, in bytes.
    held: usize,
    /// The rules kept one by one, by number.
    live: BTreeMap<RuleNumber, LiveRule>,
    /// The rules' numbers, by id.
    numbers: HashMap<u64, RuleNumber>,
    hard: RuleIndex,
    soft: RuleIndex,
    /// The number of the newest rule that is no longer kept.
    dropped_through: RuleNumber,
    /// Per copy of the log, the number of rules that are only in the other one so far.
    missing: [usize; LOG_COPIES],
}

#[derive(Debug)]
struct LiveRule {
    rule: Rule,
    /// The time from which it is in effect here.
    since: Time,
    places: RulePlaces,
    /// The entries in memory that it has covered.
    hits: AtomicU64,
}

/// The purges known to a process when it begins a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PurgesKnown {
    /// The local rules up to this number.
    pub(super) number: RuleNumber,
    /// Other processes' rules, up to this position in each copy of the log.
    pub(super) positions: LogPositions,
}

/// The age of an entry, for a rule that may cover it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// Already checked against the rules up to this number, or newer than them.
    Rule(RuleNumber),
    /// Fetched at `at`, when its process had read the log up to `purges_known`.
    Fetch {
        at: Time,
        purges_known: LogPositions,
    },
}

/// The effect of a rule on an entry that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Covered {
    /// The entry is removed.
    Hard,
    /// The entry is stale since the newest such purge.
    Soft(Time),
}

impl Default for PurgeRules {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl PurgeRules {
    /// An empty set. Rules kept one by one take at most `capacity` bytes, and so do the parts.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            newest: SharedRuleNumber::default(),
            read_through: Default::default(),
            waits_for_log: AtomicBool::default(),
            logs: Default::default(),
            table: RwLock::new(RuleTable {
                held: 0,
                live: BTreeMap::new(),
                numbers: HashMap::new(),
                hard: RuleIndex::new(capacity / 2),
                soft: RuleIndex::new(capacity / 2),
                dropped_through: RuleNumber::NONE,
                missing: Default::default(),
            }),
        }
    }

    /// The number of the newest rule.
    pub(super) fn newest(&self) -> RuleNumber {
        self.newest.get()
    }

    /// The purges known to a fetch that begins now.
    pub(super) fn known(&self) -> PurgesKnown {
        // In this order: a rule added in between is known, whatever its position.
        let positions = self.read_through();
        let number = self.newest();
        PurgesKnown { number, positions }
    }

    /// The positions up to which the log was read.
    pub(super) fn read_through(&self) -> LogPositions {
        std::array::from_fn(|copy| self.read_through[copy].load(Ordering::Acquire))
    }

    /// Records that all rules up to this position of a copy have been added.
    pub(super) fn note_read_through(&self, copy: usize, position: u64) {
        self.read_through[copy].store(position, Ordering::Release);
    }

    /// The place of a record that was just read at this position of a copy.
    pub(super) fn place(&self, copy: usize, position: u64) -> LogPlace {
        let mut logs = self.logs[copy].write();
        logs.note(position);
        logs.place(position)
    }

    /// After a read to the end of a copy, places the rules missing there after that end. Only if no
    /// rule was added since: `newest` is the number of the newest rule when the read began.
    pub(super) fn settle(&self, copy: usize, newest: RuleNumber) {
        let mut table = self.table.write();
        if table.missing[copy] > 0 && newest == self.newest() {
            let end = self.logs[copy].read().place(self.read_through()[copy]);
            table.settle(copy, end.next());
        }
    }

    /// Returns true if the rule with this id has its place in this copy of the log, or is no longer
    /// kept and needs none.
    pub(super) fn is_placed(&self, id: u64, copy: usize) -> bool {
        let table = self.table.read();
        let live = table.numbers.get(&id).and_then(|it| table.live.get(it));
        live.is_none_or(|live| live.places.get(copy).is_some())
    }

    /// Distrusts all tier entries until the log has been read.
    pub(super) fn wait_for_log(&self) {
        self.waits_for_log.store(true, Ordering::Release);
    }

    /// Records that the log has been read.
    pub(super) fn note_log_read(&self) {
        self.waits_for_log.store(false, Ordering::Release);
    }

    pub(super) fn waits_for_log(&self) -> bool {
        self.waits_for_log.load(Ordering::Acquire)
    }

    /// Adds a rule, in effect from `now`, with its known places in the log. Returns its number;
    /// `None` if the rule is already known.
    pub(super) fn add(&self, rule: Rule, now: Time, places: RulePlaces) -> Option<RuleNumber> {
        let mut table = self.table.write();
        if let Some(&known) = table.numbers.get(&rule.id) {
            for copy in 0..LOG_COPIES {
                if let Some(place) = places.get(copy) {
                    table.place(known, copy, place);
                }
            }
            return None;
        }
        let scope = rule.scope.compact();
        let rule = Rule { scope, ..rule };
        let number = self.newest().next();
        table.numbers.insert(rule.id, number);
        let mark = RuleMark::new(number, now, places);
        table.note_missing(places);
        table.index(rule.strength).note(&rule.scope, mark);
        if rule.scope == Scope::Everything && rule.strength == Strength::Hard {
            table.forget_before(number, places);
        }
        let live = LiveRule {
            rule,
            since: now,
            places,
            hits: AtomicU64::new(0),
        };
        table.held += live.cost();
        table.live.insert(number, live);
        while table.live.len() > MAX_RULES || table.held > self.capacity && table.live.len() > 1 {
            table.widen_oldest();
        }
        self.newest.raise(number);
        Some(number)
    }

    /// The effect of the rules on an entry of this age.
    pub(super) fn covers(&self, entry: &EntryNames<'_>, since: Since) -> Option<Covered> {
        if let Since::Rule(number) = since
            && number == self.newest()
        {
            return None;
        }
        if matches!(since, Since::Fetch { .. }) && self.waits_for_log() {
            return Some(Covered::Hard);
        }
        let age = self.age(since);
        let table = self.table.read();
        if table.hard.newest_of(entry, age).is_some() {
            return Some(Covered::Hard);
        }
        let soft = table.soft.newest_of(entry, age);
        soft.map(|mark| Covered::Soft(mark.at()))
    }

    /// The age by which this process compares an entry with rules.
    fn age(&self, since: Since) -> EntryAge {
        match since {
            Since::Rule(number) => EntryAge::Checked(number),
            Since::Fetch { at, purges_known } => {
                let worth = |copy: usize| self.logs[copy].read().worth(purges_known[copy]);
                let known = std::array::from_fn(worth);
                EntryAge::Fetched { at, known }
            }
        }
    }

    /// The effect of the rules issued after `number` on an entry. A later rule that is no longer
    /// kept counts as covering it.
    pub(super) fn covers_since(
        &self,
        subject: RuleSubject<'_>,
        number: RuleNumber,
    ) -> Option<Covered> {
        if number == self.newest() {
            return None;
        }
        let covered = self.covers(&EntryNames::new(subject), Since::Rule(number));
        // In this order: a rule dropped between the two counts.
        covered.or_else(|| self.has_dropped_since(number).then_some(Covered::Hard))
    }

    /// Returns true if a rule issued after `number` is no longer kept: a fetch that began before it
    /// cannot be checked against it.
    pub(super) fn has_dropped_since(&self, number: RuleNumber) -> bool {
        number != self.newest() && number < self.table.read().dropped_through
    }

    /// Drops the rules up to this number: no entry that they cover is left, and none can appear.
    pub(super) fn drop_through(&self, number: RuleNumber) {
        let mut table = self.table.write();
        table.forget(number);
        table.dropped_through = table.dropped_through.max(number);
    }

    /// The kept rules without a place in the log, oldest first.
    pub(super) fn unplaced(&self) -> Vec<Rule> {
        let table = self.table.read();
        let unplaced = table.live.values().filter(|live| live.places.is_unplaced());
        unplaced.map(|live| live.rule.clone()).collect()
    }

    /// The newest kept rules, newest first.
    pub(super) fn newest_live(&self, most: usize) -> Vec<Rule> {
        let table = self.table.read();
        let newest = table.live.values().rev().take(most);
        newest.map(|live| live.rule.clone()).collect()
    }

    /// Counts an entry in memory for the newest rule after number `since` that covers it.
    pub(super) fn note_hit(&self, subject: RuleSubject<'_>, since: RuleNumber) {
        let (entry, age) = (EntryNames::new(subject), EntryAge::Checked(since));
        let table = self.table.read();
        let hard = table.hard.newest_of(&entry, age);
        let mark = hard.or_else(|| table.soft.newest_of(&entry, age));
        if let Some(live) = mark.and_then(|mark| table.live.get(&mark.number())) {
            live.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The rule with this id, its number, and the entries in memory that it has covered.
    pub(super) fn hits(&self, id: u64) -> Option<(Rule, RuleNumber, u64)> {
        let table = self.table.read();
        let number = *table.numbers.get(&id)?;
        let live = table.live.get(&number)?;
        Some((live.rule.clone(), number, live.hits.load(Ordering::Relaxed)))
    }

    /// The number of live rules.
    pub(super) fn live_count(&self) -> usize {
        self.table.read().live.len()
    }

    /// The number of the newest rule in effect since that time or earlier.
    pub(super) fn newest_at(&self, moment: Time) -> Option<RuleNumber> {
        let table = self.table.read();
        let old = table
            .live
            .iter()
            .take_while(|(_, live)| live.since <= moment);
        old.last().map(|(number, _)| *number)
    }

    /// The number of the first soft rule after this one.
    pub(super) fn first_soft_after(&self, number: RuleNumber) -> Option<RuleNumber> {
        let table = self.table.read();
        let mut later = table.live.range(number.next()..);
        later
            .find(|(_, live)| live.rule.strength == Strength::Soft)
            .map(|(number, _)| *number)
    }

    /// Returns true if no rule has to be checked.
    pub(super) fn is_empty(&self) -> bool {
        self.table.read().is_empty()
    }
}

impl RuleTable {
    fn is_empty(&self) -> bool {
        self.live.is_empty() && !self.hard.has_parts() && !self.soft.has_parts()
    }

    fn index(&mut self, strength: Strength) -> &mut RuleIndex {
        match strength {
            Strength::Hard => &mut self.hard,
            Strength::Soft => &mut self.soft,
        }
    }

    /// Sets the place of a rule in a copy. Of two places the first one counts: fetches that had
    /// read up to it are newer.
    fn place(&mut self, number: RuleNumber, copy: usize, place: LogPlace) {
        let Some(live) = self.live.get_mut(&number) else {
            return;
        };
        if live.places.get(copy).is_some() {
            return;
        }
        let was_unplaced = live.places.is_unplaced();
        live.places.set(copy, place);
        let (places, scope) = (live.places, live.rule.scope.clone());
        let strength = live.rule.strength;
        self.index(strength).change(&scope, |mark| {
            mark.place(number, copy, place, was_unplaced);
        });
        if was_unplaced {
            self.note_missing(places);
        } else {
            self.missing[copy] = self.missing[copy].saturating_sub(1);
        }
    }

    fn note_missing(&mut self, places: RulePlaces) {
        for (copy, missing) in self.missing.iter_mut().enumerate() {
            *missing += usize::from(places.is_missing(copy));
        }
    }

    /// Places all rules missing in a copy at `place`.
    fn settle(&mut self, copy: usize, place: LogPlace) {
        self.missing[copy] = 0;
        for live in self.live.values_mut() {
            if live.places.is_missing(copy) {
                live.places.set(copy, place);
            }
        }
        self.hard.settle(copy, place);
        self.soft.settle(copy, place);
    }

    fn widen_oldest(&mut self) {
        if let Some((number, live)) = self.live.pop_first() {
            self.held -= live.cost();
            let rule = live.rule;
            self.numbers.remove(&rule.id);
            self.index(rule.strength).widen(&rule.scope, number);
        }
    }

    /// Drops the rules that a hard purge of everything supersedes. In a log it may precede some
    /// that arrived here earlier.
    fn forget_before(&mut self, number: RuleNumber, places: RulePlaces) {
        let is_unplaced = |live: &LiveRule| live.places.is_unplaced();
        if places.is_unplaced() && self.live.values().all(is_unplaced) {
            self.forget(number.previous());
        }
    }

    fn forget(&mut self, through: RuleNumber) {
        let kept = self.live.split_off(&through.next());
        for live in std::mem::replace(&mut self.live, kept).values() {
            self.numbers.remove(&live.rule.id);
            self.held -= live.cost();
        }
        self.hard.forget(through);
        self.soft.forget(through);
    }
}

impl LiveRule {
    fn cost(&self) -> usize {
        COST + 2 * self.rule.scope.len()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;

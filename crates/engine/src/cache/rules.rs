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
//! either bound the oldest rule is merged into a coarse part of the name space: one of at most
//! [`MAX_PARTS`] parts for hosts, urls and tags, fewer with little memory; a prefix or a glob is
//! widened to its host. Globs have a bound of their own ([`MAX_GLOBS`]), since each costs a match.
//! Every entry of a part that is older than the merged rule counts as purged.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use microcache_policy::Time;
use microcache_store::{LOG_COPIES, LogPositions};

use super::logs::LogHistory;
use super::rule::{EntryNames, Rule, RuleSubject, Scope, Strength};
use crate::sync::{AtomicBool, AtomicU64, RwLock};

/// The most rules kept one by one.
pub(super) const MAX_RULES: usize = 64 * 1024;
/// The most globs kept one by one.
pub(super) const MAX_GLOBS: usize = 64;
/// The most parts of the name space.
const MAX_PARTS: usize = 256 * 1024;
/// The fewest parts of the name space.
const MIN_PARTS: usize = 4 * 1024;
/// The memory of a rule in bytes, besides its texts, which are stored twice where they are matched.
const COST: usize = 512;

/// All purge rules that entries still have to be checked against.
#[derive(Debug)]
pub(super) struct PurgeRules {
    /// The bound of the rules kept one by one, in bytes.
    capacity: usize,
    /// The number of the newest rule; 0 before the first.
    newest: AtomicU64,
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
    live: BTreeMap<u64, LiveRule>,
    /// The rules' numbers, by id.
    numbers: HashMap<u64, u64>,
    hard: RuleIndex,
    soft: RuleIndex,
    /// The number of the newest rule that is no longer kept.
    dropped_through: u64,
    /// Per copy of the log, the number of rules that are only in the other one so far.
    missing: [usize; LOG_COPIES],
}

/// The place of a rule in each copy of the log, if it is there.
pub(super) type Places = [Option<u64>; LOG_COPIES];

#[derive(Debug)]
struct LiveRule {
    rule: Rule,
    /// The time from which it is in effect here.
    since: Time,
    places: Places,
    /// The entries in memory that it has covered.
    hits: AtomicU64,
}

/// An index to the newest rule that covers an entry.
#[derive(Debug)]
struct RuleIndex {
    /// The most parts, a power of two.
    part_count: usize,
    everything: RuleMark,
    /// By the number of a host, a url, a tag or a group.
    named: HashMap<u64, RuleMark, RandomState>,
    /// The same for older ones, by part. Empty until needed.
    parts: Vec<RuleMark>,
    /// Prefixes of urls, host included, by length.
    prefixes: BTreeMap<usize, HashMap<Vec<u8>, RuleMark, RandomState>>,
    /// The globs of urls, host included, with their scopes; oldest first.
    globs: Vec<(Vec<u8>, Scope, RuleMark)>,
}

/// The newest rule of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RuleMark {
    number: u64,
    at: Time,
    /// Per copy of the shared log, the last place of these rules; 0 if there is none.
    places: LogPositions,
    /// Per copy, the number of logged rules that have no place in it yet.
    missing: [u32; LOG_COPIES],
    /// The time from which the newest rule without a position is in effect; 0 if there is none.
    unplaced_since: Time,
}

/// The purges known to a process when it begins a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PurgesKnown {
    /// The local rules up to this number.
    pub(super) number: u64,
    /// Other processes' rules, up to this position in each copy of the log.
    pub(super) positions: LogPositions,
}

/// The age of an entry, for a rule that may cover it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// Already checked against the rules up to this number, or newer than them.
    Rule(u64),
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
        let most = (capacity / size_of::<RuleMark>() / 2).clamp(MIN_PARTS, MAX_PARTS);
        let part_count = 1 << most.ilog2();
        Self {
            capacity,
            newest: AtomicU64::default(),
            read_through: Default::default(),
            waits_for_log: AtomicBool::default(),
            logs: Default::default(),
            table: RwLock::new(RuleTable {
                held: 0,
                live: BTreeMap::new(),
                numbers: HashMap::new(),
                hard: RuleIndex::new(part_count),
                soft: RuleIndex::new(part_count),
                dropped_through: 0,
                missing: Default::default(),
            }),
        }
    }

    /// The number of the newest rule.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
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
    pub(super) fn place(&self, copy: usize, position: u64) -> u64 {
        let mut logs = self.logs[copy].write();
        logs.note(position);
        logs.place(position)
    }

    /// After a read to the end of a copy, places the rules missing there after that end. Only if no
    /// rule was added since: `newest` is the number of the newest rule when the read began.
    pub(super) fn settle(&self, copy: usize, newest: u64) {
        let mut table = self.table.write();
        if table.missing[copy] > 0 && newest == self.newest() {
            let end = self.logs[copy].read().place(self.read_through()[copy]);
            table.settle(copy, end + 1);
        }
    }

    /// Returns true if the rule with this id has its place in this copy of the log, or is no longer
    /// kept and needs none.
    pub(super) fn is_placed(&self, id: u64, copy: usize) -> bool {
        let table = self.table.read();
        let live = table.numbers.get(&id).and_then(|it| table.live.get(it));
        live.is_none_or(|live| live.places[copy].is_some())
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
    pub(super) fn add(&self, rule: Rule, now: Time, places: Places) -> Option<u64> {
        let mut table = self.table.write();
        if let Some(&known) = table.numbers.get(&rule.id) {
            for (copy, place) in places.into_iter().enumerate() {
                if let Some(place) = place {
                    table.place(known, copy, place);
                }
            }
            return None;
        }
        let scope = rule.scope.compact();
        let rule = Rule { scope, ..rule };
        let number = self.newest.load(Ordering::Relaxed) + 1;
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
        self.newest.store(number, Ordering::Release);
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
        let since = self.as_seen_here(since);
        let table = self.table.read();
        if table.hard.newest_of(entry, since).is_some() {
            return Some(Covered::Hard);
        }
        let soft = table.soft.newest_of(entry, since);
        soft.map(|mark| Covered::Soft(mark.at))
    }

    /// Translates log positions to places.
    fn as_seen_here(&self, since: Since) -> Since {
        match since {
            Since::Rule(_) => since,
            Since::Fetch { at, purges_known } => {
                let worth = |copy: usize| self.logs[copy].read().worth(purges_known[copy]);
                Since::Fetch {
                    at,
                    purges_known: std::array::from_fn(worth),
                }
            }
        }
    }

    /// The effect of the rules issued after `number` on an entry. A later rule that is no longer
    /// kept counts as covering it.
    pub(super) fn covers_since(&self, held: RuleSubject<'_>, number: u64) -> Option<Covered> {
        if number == self.newest() {
            return None;
        }
        let covered = self.covers(&EntryNames::new(held), Since::Rule(number));
        // In this order: a rule dropped between the two counts.
        covered.or_else(|| self.has_dropped_since(number).then_some(Covered::Hard))
    }

    /// Returns true if a rule issued after `number` is no longer kept: a fetch that began before it
    /// cannot be checked against it.
    pub(super) fn has_dropped_since(&self, number: u64) -> bool {
        number != self.newest() && number < self.table.read().dropped_through
    }

    /// Drops the rules up to this number: no entry that they cover is left, and none can appear.
    pub(super) fn drop_through(&self, number: u64) {
        let mut table = self.table.write();
        table.forget(number);
        table.dropped_through = table.dropped_through.max(number);
    }

    /// The kept rules without a place in the log, oldest first.
    pub(super) fn unplaced(&self) -> Vec<Rule> {
        let table = self.table.read();
        let unplaced = table.live.values().filter(|live| is_unplaced(live.places));
        unplaced.map(|live| live.rule.clone()).collect()
    }

    /// The newest kept rules, newest first.
    pub(super) fn newest_live(&self, most: usize) -> Vec<Rule> {
        let table = self.table.read();
        let newest = table.live.values().rev().take(most);
        newest.map(|live| live.rule.clone()).collect()
    }

    /// Counts an entry in memory for the newest rule after number `since` that covers it.
    pub(super) fn note_hit(&self, held: RuleSubject<'_>, since: u64) {
        let (entry, since) = (EntryNames::new(held), Since::Rule(since));
        let table = self.table.read();
        let hard = table.hard.newest_of(&entry, since);
        let mark = hard.or_else(|| table.soft.newest_of(&entry, since));
        if let Some(live) = mark.and_then(|mark| table.live.get(&mark.number)) {
            live.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The rule with this id, its number, and the entries in memory that it has covered.
    pub(super) fn hits(&self, id: u64) -> Option<(Rule, u64, u64)> {
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
    pub(super) fn newest_at(&self, moment: Time) -> Option<u64> {
        let table = self.table.read();
        let old = table
            .live
            .iter()
            .take_while(|(_, live)| live.since <= moment);
        old.last().map(|(number, _)| *number)
    }

    /// The number of the first soft rule after this one.
    pub(super) fn first_soft_after(&self, number: u64) -> Option<u64> {
        let table = self.table.read();
        let mut later = table.live.range(number + 1..);
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
        self.live.is_empty() && self.hard.parts.is_empty() && self.soft.parts.is_empty()
    }

    fn index(&mut self, strength: Strength) -> &mut RuleIndex {
        match strength {
            Strength::Hard => &mut self.hard,
            Strength::Soft => &mut self.soft,
        }
    }

    /// Sets the place of a rule in a copy. Of two places the first one counts: fetches that had
    /// read up to it are newer.
    fn place(&mut self, number: u64, copy: usize, place: u64) {
        let Some(live) = self.live.get_mut(&number) else {
            return;
        };
        if live.places[copy].is_some() {
            return;
        }
        let was_unplaced = is_unplaced(live.places);
        live.places[copy] = Some(place);
        let (places, scope) = (live.places, live.rule.scope.clone());
        let index = match live.rule.strength {
            Strength::Hard => &mut self.hard,
            Strength::Soft => &mut self.soft,
        };
        if let Some(mark) = index.mark(&scope) {
            mark.place(number, copy, place, was_unplaced);
        }
        if was_unplaced {
            self.note_missing(places);
        } else {
            self.missing[copy] = self.missing[copy].saturating_sub(1);
        }
    }

    fn note_missing(&mut self, places: Places) {
        for copy in missing_in(places) {
            self.missing[copy] += 1;
        }
    }

    /// Places all rules missing in a copy at `place`.
    fn settle(&mut self, copy: usize, place: u64) {
        self.missing[copy] = 0;
        for live in self.live.values_mut() {
            if live.places[copy].is_none() && !is_unplaced(live.places) {
                live.places[copy] = Some(place);
            }
        }
        let marks = self.hard.marks_mut().chain(self.soft.marks_mut());
        for mark in marks.filter(|mark| mark.missing[copy] > 0) {
            mark.missing[copy] = 0;
            mark.places[copy] = mark.places[copy].max(place);
        }
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
    fn forget_before(&mut self, number: u64, places: Places) {
        let mut all = self.live.values().map(|live| live.places);
        if is_unplaced(places) && all.all(is_unplaced) {
            self.forget(number - 1);
        }
    }

    fn forget(&mut self, through: u64) {
        let kept = self.live.split_off(&(through + 1));
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

impl RuleIndex {
    fn new(part_count: usize) -> Self {
        Self {
            part_count,
            everything: RuleMark::default(),
            named: HashMap::default(),
            parts: Vec::new(),
            prefixes: BTreeMap::new(),
            globs: Vec::new(),
        }
    }

    /// The part of a number; only valid if there are parts.
    const fn part_of(&self, number: u64) -> usize {
        (number >> 40) as usize & (self.part_count - 1)
    }

    fn note(&mut self, scope: &Scope, mark: RuleMark) {
        match scope {
            Scope::Everything => self.everything.renew(mark),
            Scope::Prefix { .. } => {
                let prefix = scope.pattern();
                let of_length = self.prefixes.entry(prefix.len()).or_default();
                of_length.entry(prefix).or_default().renew(mark);
            }
            Scope::Glob { .. } => self.note_glob(scope, mark),
            Scope::Host(_)
            | Scope::Url { .. }
            | Scope::Variant { .. }
            | Scope::Tag(_)
            | Scope::Group { .. } => {
                for number in scope.numbers() {
                    self.named.entry(number).or_default().renew(mark);
                }
            }
        }
    }

    fn note_glob(&mut self, scope: &Scope, mark: RuleMark) {
        let pattern = scope.pattern();
        let known = self.globs.iter().position(|(known, ..)| *known == pattern);
        let mut newest = RuleMark::default();
        if let Some(known) = known {
            newest = self.globs.remove(known).2;
        } else if self.globs.len() == MAX_GLOBS {
            let (_, oldest, mark) = self.globs.remove(0);
            self.named.entry(oldest.number()).or_default().renew(mark);
        }
        newest.renew(mark);
        self.globs.push((pattern, scope.clone(), newest));
    }

    fn mark(&mut self, scope: &Scope) -> Option<&mut RuleMark> {
        match scope {
            Scope::Everything => Some(&mut self.everything),
            Scope::Prefix { .. } => {
                let prefix = scope.pattern();
                self.prefixes.get_mut(&prefix.len())?.get_mut(&prefix)
            }
            Scope::Glob { .. } => {
                let pattern = scope.pattern();
                let known = self.globs.iter().position(|(known, ..)| *known == pattern);
                match known {
                    Some(known) => Some(&mut self.globs[known].2),
                    None => self.named.get_mut(&scope.number()),
                }
            }
            scope => self.named.get_mut(&scope.number()),
        }
    }

    fn marks_mut(&mut self) -> impl Iterator<Item = &mut RuleMark> {
        let prefixes = self.prefixes.values_mut().flat_map(HashMap::values_mut);
        let globs = self.globs.iter_mut().map(|(.., mark)| mark);
        [&mut self.everything]
            .into_iter()
            .chain(self.named.values_mut())
            .chain(&mut self.parts)
            .chain(prefixes)
            .chain(globs)
    }

    /// Merges the rule of this number into the parts of its names.
    fn widen(&mut self, scope: &Scope, number: u64) {
        let (mark, name) = match scope {
            // It has a mark of its own.
            Scope::Everything => return,
            Scope::Prefix { host, .. } => {
                let prefix = scope.pattern();
                let Some(of_length) = self.prefixes.get_mut(&prefix.len()) else {
                    return;
                };
                let mark = of_length.get(&prefix).copied();
                if mark.is_some_and(|mark| mark.number == number) {
                    of_length.remove(&prefix);
                }
                (mark, Scope::Host(host.clone()).number())
            }
            Scope::Glob { .. } => {
                let pattern = scope.pattern();
                let is_it = |(known, _, mark): &(Vec<u8>, Scope, RuleMark)| {
                    *known == pattern && mark.number == number
                };
                let known = self.globs.iter().position(is_it);
                let mark = known.map(|known| self.globs.remove(known).2);
                (mark, scope.number())
            }
            scope => {
                for name in scope.numbers() {
                    let mark = self.named.get(&name).copied();
                    if mark.is_some_and(|mark| mark.number == number) {
                        self.named.remove(&name);
                    }
                    self.keep_in_part(mark, name, number);
                }
                return;
            }
        };
        self.prefixes.retain(|_, of_length| !of_length.is_empty());
        self.keep_in_part(mark, name, number);
    }

    /// Merges a mark into the part of its name if rule `number` set it; a newer rule of the same
    /// name is kept by itself.
    fn keep_in_part(&mut self, mark: Option<RuleMark>, name: u64, number: u64) {
        if let Some(mark) = mark.filter(|mark| mark.number == number) {
            if self.parts.is_empty() {
                self.parts = vec![RuleMark::default(); self.part_count];
            }
            let part = self.part_of(name);
            self.parts[part].renew(mark);
        }
    }

    /// The newest mark that covers an entry of this age.
    fn newest_of(&self, entry: &EntryNames<'_>, since: Since) -> Option<RuleMark> {
        let by_name = entry.numbers().flat_map(|number| {
            let part = self.parts.get(self.part_of(number));
            [self.named.get(&number), part]
        });
        let by_prefix = self
            .prefixes
            .iter()
            .map(|(length, of_length)| of_length.get(entry.begins_with(*length)?));
        let alike = self.globs.iter().map(|(pattern, _, mark)| {
            let may_cover = mark.covers(since) && entry.is_like(pattern);
            may_cover.then_some(mark)
        });
        let marks = [Some(&self.everything)]
            .into_iter()
            .chain(by_name)
            .chain(by_prefix)
            .chain(alike)
            .flatten();
        let covering = marks.filter(|mark| mark.covers(since)).copied();
        covering.max_by_key(|mark| mark.number)
    }

    fn forget(&mut self, through: u64) {
        let stays = |mark: &RuleMark| mark.number > through;
        if !stays(&self.everything) {
            self.everything = RuleMark::default();
        }
        self.named.retain(|_, mark| stays(mark));
        for of_length in self.prefixes.values_mut() {
            of_length.retain(|_, mark| stays(mark));
        }
        self.prefixes.retain(|_, of_length| !of_length.is_empty());
        self.globs.retain(|(.., mark)| stays(mark));
        for mark in &mut self.parts {
            if !stays(mark) {
                *mark = RuleMark::default();
            }
        }
        if self.parts.iter().all(|mark| mark.number == 0) {
            self.parts = Vec::new();
        }
    }
}

impl RuleMark {
    fn new(number: u64, now: Time, places: Places) -> Self {
        let mut mark = Self {
            number,
            at: now,
            places: places.map(Option::unwrap_or_default),
            ..Self::default()
        };
        if is_unplaced(places) {
            mark.unplaced_since = now;
        }
        for copy in missing_in(places) {
            mark.missing[copy] = 1;
        }
        mark
    }

    /// Merges another rule of the same name, usually a newer one.
    fn renew(&mut self, other: Self) {
        let newer = if self.number < other.number {
            other
        } else {
            *self
        };
        *self = Self {
            places: std::array::from_fn(|copy| self.places[copy].max(other.places[copy])),
            missing: std::array::from_fn(|copy| {
                self.missing[copy].saturating_add(other.missing[copy])
            }),
            unplaced_since: self.unplaced_since.max(other.unplaced_since),
            ..newer
        };
    }

    /// Sets a place of rule `number`, perhaps its first.
    fn place(&mut self, number: u64, copy: usize, place: u64, was_unplaced: bool) {
        self.places[copy] = self.places[copy].max(place);
        if !was_unplaced {
            self.missing[copy] = self.missing[copy].saturating_sub(1);
            return;
        }
        for other in (0..LOG_COPIES).filter(|other| *other != copy) {
            self.missing[other] += 1;
        }
        if self.number == number {
            self.unplaced_since = Time::default();
        }
    }

    /// Returns true if a process that had read the log up to there knew every rule in it.
    fn was_known(&self, positions: LogPositions) -> bool {
        let says_so = |copy: usize| self.missing[copy] == 0 && positions[copy] >= self.places[copy];
        (0..LOG_COPIES).any(says_so)
    }

    fn covers(&self, since: Since) -> bool {
        self.number > 0
            && match since {
                Since::Rule(number) => number < self.number,
                Since::Fetch { at, purges_known } => {
                    let is_unplaced = self.unplaced_since > Time::default();
                    !self.was_known(purges_known) || is_unplaced && at <= self.unplaced_since
                }
            }
    }
}

/// Returns true if the rule is not in the log, so no process can have read it there.
fn is_unplaced(places: Places) -> bool {
    places.iter().all(Option::is_none)
}

/// The copies that lack a rule which another copy has.
fn missing_in(places: Places) -> impl Iterator<Item = usize> {
    let is_missing = move |copy: &usize| !is_unplaced(places) && places[*copy].is_none();
    (0..LOG_COPIES).filter(is_missing)
}

#[cfg(all(test, not(shuttle)))]
mod tests;

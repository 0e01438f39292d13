//! Purges that name more than one key: rules with a time, held against an entry where it is looked up,
//! found in a tier, or about to be stored.
//!
//! A rule has a number. An entry remembers up to which number rules were held against it, so that each
//! rule costs an entry one look, and an entry that has seen them all costs a comparison. Rules last until
//! a sweep has removed what they cover ([`Rules::drop_through`]).
//!
//! Numbers are this process's own. What lies behind memory is older than it, or another's: it is held
//! against rules by their position in the log that processes share, and where they have none, by the time.
//!
//! There is a bound on how many are remembered one by one ([`MAX_RULES`]). Beyond it the oldest is
//! remembered by a part of what can be named: of hosts, urls and tags 1 in [`PARTS`], of a prefix or a glob
//! its host counts as named. Globs have a bound of their own ([`MAX_GLOBS`]), since each has to be looked at. What is as old as that and lies there is purged with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use microcache_policy::Time;

use super::rule::{Held, Named, Rule, Scope, Strength};
use crate::sync::{AtomicBool, AtomicU64, RwLock};

/// Rules that are remembered one by one.
pub(super) const MAX_RULES: usize = 64 * 1024;
/// Globs that are remembered one by one.
pub(super) const MAX_GLOBS: usize = 64;
/// Into so many parts names are divided where there are more.
const PARTS: usize = 256 * 1024;

/// All purges by rule that are still to be held against something.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The number of the newest; 0 before the first.
    newest: AtomicU64,
    /// Up to which position the log that processes share was read.
    read_through: AtomicU64,
    /// It has not been read yet: what lies behind memory may be purged.
    waits_for_log: AtomicBool,
    books: RwLock<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// The rules one by one, under their numbers.
    live: BTreeMap<u64, Live>,
    /// Their numbers by their ids.
    numbers: HashMap<u64, u64>,
    hard: Index,
    soft: Index,
    /// The newest one that is not remembered any more.
    dropped_through: u64,
}

#[derive(Debug)]
struct Live {
    rule: Rule,
    /// Since when it counts here.
    since: Time,
    /// Its place in the log that processes share, once it is known.
    position: Option<u64>,
    /// The entries in memory that it has hit.
    hits: AtomicU64,
}

/// Where to find the newest rule that covers an entry.
#[derive(Debug, Default)]
struct Index {
    everything: Mark,
    /// By the number of a host, a url, a tag or a group.
    named: HashMap<u64, Mark, RandomState>,
    /// The same for older ones. Empty until it is needed.
    parts: Vec<Mark>,
    /// By the length of what urls begin with, host included.
    prefixes: BTreeMap<usize, HashMap<Vec<u8>, Mark, RandomState>>,
    /// What urls are like, host included, and the scopes that say so; the oldest first.
    globs: Vec<(Vec<u8>, Scope, Mark)>,
}

/// The newest rule of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    number: u64,
    at: Time,
    /// The last position of one of them in the log that processes share; 0 if there is none.
    position: u64,
    /// Since when the newest counts that has no position yet; 0 if there is none.
    unplaced_since: Time,
}

/// Which purges by rule somebody knows of who begins to fetch something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PurgesKnown {
    /// Those up to this number.
    pub(super) number: u64,
    /// Of other processes, those up to this position in their log.
    pub(super) position: u64,
}

/// How old an entry is, for a rule that may cover it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// The rules up to this number came before it, or have been held against it.
    Rule(u64),
    /// It was asked for at that moment, by somebody who had read the log up to there.
    Fetch { at: Time, purges_known: u64 },
}

/// What becomes of an entry that a rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Covered {
    /// It is gone.
    Hard,
    /// It is stale since the newest such purge.
    Soft(Time),
}

impl Rules {
    /// The number of the newest rule.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// What whoever begins now knows of.
    pub(super) fn known(&self) -> PurgesKnown {
        // In this order: a rule that comes between the two is one that is known, whatever its position.
        let position = self.read_through();
        let number = self.newest();
        PurgesKnown { number, position }
    }

    /// Up to which position the log was read.
    pub(super) fn read_through(&self) -> u64 {
        self.read_through.load(Ordering::Acquire)
    }

    /// Notes that all rules up to this position have been added; and whether those are all.
    pub(super) fn note_read_through(&self, position: u64, is_all: bool) {
        self.read_through.store(position, Ordering::Release);
        if is_all {
            self.waits_for_log.store(false, Ordering::Release);
        }
    }

    /// Whether the rule of this id has its place in the log, or needs none because it is not remembered.
    pub(super) fn is_placed(&self, id: u64) -> bool {
        let books = self.books.read();
        let live = books.numbers.get(&id).and_then(|it| books.live.get(it));
        live.is_none_or(|live| live.position.is_some())
    }

    /// Nothing that lies behind memory is good for anything until the log has been read.
    pub(super) fn wait_for_log(&self) {
        self.waits_for_log.store(true, Ordering::Release);
    }

    pub(super) fn waits_for_log(&self) -> bool {
        self.waits_for_log.load(Ordering::Acquire)
    }

    /// Adds a rule, which counts from `now` on and has this position in the log, if that is known. Gives
    /// its number; `None` if the rule is known already.
    pub(super) fn add(&self, rule: Rule, now: Time, position: Option<u64>) -> Option<u64> {
        let mut books = self.books.write();
        if let Some(&known) = books.numbers.get(&rule.id) {
            if let Some(position) = position {
                books.place(known, position);
            }
            return None;
        }
        let number = self.newest.load(Ordering::Relaxed) + 1;
        books.numbers.insert(rule.id, number);
        let mark = Mark {
            number,
            at: now,
            position: position.unwrap_or(0),
            unplaced_since: if position.is_none() {
                now
            } else {
                Time::default()
            },
        };
        books.index(rule.strength).note(&rule.scope, mark);
        if rule.scope == Scope::Everything && rule.strength == Strength::Hard {
            // It says all that the others say.
            books.forget(number - 1);
        }
        let live = Live {
            rule,
            since: now,
            position,
            hits: AtomicU64::new(0),
        };
        books.live.insert(number, live);
        if books.live.len() > MAX_RULES {
            books.widen_oldest();
        }
        self.newest.store(number, Ordering::Release);
        Some(number)
    }

    /// The purge that covers an entry of this age, if there is one.
    pub(super) fn covers(&self, entry: &Named<'_>, since: Since) -> Option<Covered> {
        if let Since::Rule(number) = since
            && number == self.newest()
        {
            return None;
        }
        if matches!(since, Since::Fetch { .. }) && self.waits_for_log() {
            return Some(Covered::Hard);
        }
        let books = self.books.read();
        if books.hard.newest_of(entry, since).is_some() {
            return Some(Covered::Hard);
        }
        let soft = books.soft.newest_of(entry, since);
        soft.map(|mark| Covered::Soft(mark.at))
    }

    /// What becomes of what has been held against the rules up to this number. A later one that is not
    /// remembered any more counts as if it had named it.
    pub(super) fn covers_since(&self, held: Held<'_>, number: u64) -> Option<Covered> {
        if number == self.newest() {
            return None;
        }
        let covered = self.covers(&Named::new(held), Since::Rule(number));
        // In this order: a rule that is forgotten between the two counts.
        covered.or_else(|| self.has_dropped_since(number).then_some(Covered::Hard))
    }

    /// Whether a rule is not remembered any more that came after this one: whoever began before it can
    /// no longer know whether it was meant.
    pub(super) fn has_dropped_since(&self, number: u64) -> bool {
        number != self.newest() && number < self.books.read().dropped_through
    }

    /// Forgets the rules up to this number: nothing is left that they cover, and nothing can come.
    pub(super) fn drop_through(&self, number: u64) {
        let mut books = self.books.write();
        books.forget(number);
        books.dropped_through = books.dropped_through.max(number);
    }

    /// The rules that are remembered one by one and have no position in the log, the oldest first.
    pub(super) fn unplaced(&self) -> Vec<Rule> {
        let books = self.books.read();
        let unplaced = books.live.values().filter(|live| live.position.is_none());
        unplaced.map(|live| live.rule.clone()).collect()
    }

    /// The newest of them, the newest first.
    pub(super) fn newest_live(&self, most: usize) -> Vec<Rule> {
        let books = self.books.read();
        let newest = books.live.values().rev().take(most);
        newest.map(|live| live.rule.clone()).collect()
    }

    /// Counts an entry in memory under the newest rule that covers it since that one.
    pub(super) fn note_hit(&self, held: Held<'_>, since: u64) {
        let (entry, since) = (Named::new(held), Since::Rule(since));
        let books = self.books.read();
        let hard = books.hard.newest_of(&entry, since);
        let mark = hard.or_else(|| books.soft.newest_of(&entry, since));
        if let Some(live) = mark.and_then(|mark| books.live.get(&mark.number)) {
            live.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The rule of this id, its number, and how many entries in memory it has hit.
    pub(super) fn hits(&self, id: u64) -> Option<(Rule, u64, u64)> {
        let books = self.books.read();
        let number = *books.numbers.get(&id)?;
        let live = books.live.get(&number)?;
        Some((live.rule.clone(), number, live.hits.load(Ordering::Relaxed)))
    }

    /// How many there are.
    pub(super) fn live_count(&self) -> usize {
        self.books.read().live.len()
    }

    /// The number of the newest rule that has counted since that moment, or for longer.
    pub(super) fn newest_at(&self, moment: Time) -> Option<u64> {
        let books = self.books.read();
        let old = books
            .live
            .iter()
            .take_while(|(_, live)| live.since <= moment);
        old.last().map(|(number, _)| *number)
    }

    /// The number of the first soft rule after this one.
    pub(super) fn first_soft_after(&self, number: u64) -> Option<u64> {
        let books = self.books.read();
        let mut later = books.live.range(number + 1..);
        later
            .find(|(_, live)| live.rule.strength == Strength::Soft)
            .map(|(number, _)| *number)
    }

    /// Whether none is to be held against anything.
    pub(super) fn is_empty(&self) -> bool {
        self.books.read().is_empty()
    }
}

impl Books {
    fn is_empty(&self) -> bool {
        self.live.is_empty() && self.hard.parts.is_empty() && self.soft.parts.is_empty()
    }

    fn index(&mut self, strength: Strength) -> &mut Index {
        match strength {
            Strength::Hard => &mut self.hard,
            Strength::Soft => &mut self.soft,
        }
    }

    fn place(&mut self, number: u64, position: u64) {
        let Some(live) = self.live.get_mut(&number) else {
            return;
        };
        live.position = Some(position);
        let index = match live.rule.strength {
            Strength::Hard => &mut self.hard,
            Strength::Soft => &mut self.soft,
        };
        if let Some(mark) = index.mark(&live.rule.scope) {
            mark.place(number, position);
        }
    }

    fn widen_oldest(&mut self) {
        if let Some((number, Live { rule, .. })) = self.live.pop_first() {
            self.numbers.remove(&rule.id);
            self.index(rule.strength).widen(&rule.scope, number);
        }
    }

    fn forget(&mut self, through: u64) {
        let kept = self.live.split_off(&(through + 1));
        for live in std::mem::replace(&mut self.live, kept).values() {
            self.numbers.remove(&live.rule.id);
        }
        self.hard.forget(through);
        self.soft.forget(through);
    }
}

impl Index {
    fn note(&mut self, scope: &Scope, mark: Mark) {
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

    fn note_glob(&mut self, scope: &Scope, mark: Mark) {
        let pattern = scope.pattern();
        let known = self.globs.iter().position(|(known, ..)| *known == pattern);
        let mut newest = Mark::default();
        if let Some(known) = known {
            newest = self.globs.remove(known).2;
        } else if self.globs.len() == MAX_GLOBS {
            let (_, oldest, mark) = self.globs.remove(0);
            self.named.entry(oldest.number()).or_default().renew(mark);
        }
        newest.renew(mark);
        self.globs.push((pattern, scope.clone(), newest));
    }

    fn mark(&mut self, scope: &Scope) -> Option<&mut Mark> {
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

    /// From now on the rule of this number is remembered by a part of what can be named.
    fn widen(&mut self, scope: &Scope, number: u64) {
        let (mark, name) = match scope {
            // There is one at most.
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
                let is_it = |(known, _, mark): &(Vec<u8>, Scope, Mark)| {
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

    /// Remembers a mark by the part of what can be named that its name lies in, if the rule of this number
    /// has made it: a newer rule of the same name is remembered by itself.
    fn keep_in_part(&mut self, mark: Option<Mark>, name: u64, number: u64) {
        if let Some(mark) = mark.filter(|mark| mark.number == number) {
            if self.parts.is_empty() {
                self.parts = vec![Mark::default(); PARTS];
            }
            self.parts[part_of(name)].renew(mark);
        }
    }

    /// The newest mark here that covers an entry of this age.
    fn newest_of(&self, entry: &Named<'_>, since: Since) -> Option<Mark> {
        let by_name = entry.numbers().flat_map(|number| {
            let part = self.parts.get(part_of(number));
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
        let stays = |mark: &Mark| mark.number > through;
        if !stays(&self.everything) {
            self.everything = Mark::default();
        }
        self.named.retain(|_, mark| stays(mark));
        for of_length in self.prefixes.values_mut() {
            of_length.retain(|_, mark| stays(mark));
        }
        self.prefixes.retain(|_, of_length| !of_length.is_empty());
        self.globs.retain(|(.., mark)| stays(mark));
        for mark in &mut self.parts {
            if !stays(mark) {
                *mark = Mark::default();
            }
        }
        if self.parts.iter().all(|mark| mark.number == 0) {
            self.parts = Vec::new();
        }
    }
}

impl Mark {
    /// There is another rule of the same name, mostly a newer one.
    fn renew(&mut self, other: Self) {
        let newer = if self.number < other.number {
            other
        } else {
            *self
        };
        *self = Self {
            position: self.position.max(other.position),
            unplaced_since: self.unplaced_since.max(other.unplaced_since),
            ..newer
        };
    }

    /// The rule of this number has a position now.
    fn place(&mut self, number: u64, position: u64) {
        self.position = self.position.max(position);
        if self.number == number {
            self.unplaced_since = Time::default();
        }
    }

    fn covers(&self, since: Since) -> bool {
        self.number > 0
            && match since {
                Since::Rule(number) => number < self.number,
                Since::Fetch { at, purges_known } => {
                    let is_unplaced = self.unplaced_since > Time::default();
                    purges_known < self.position || is_unplaced && at <= self.unplaced_since
                }
            }
    }
}

const fn part_of(number: u64) -> usize {
    (number >> 40) as usize % PARTS
}

#[cfg(all(test, not(shuttle)))]
mod tests;

//! Purges that name more than one key: rules with a time, held against an entry where it is looked up,
//! found in a tier, or about to be stored.
//!
//! A rule has a number. An entry remembers up to which number rules were held against it, so that each
//! rule costs an entry one look, and an entry that has seen them all costs a comparison. Rules last until
//! a sweep has removed what they cover ([`Rules::drop_through`]).
//!
//! There is a bound on how many are remembered one by one ([`MAX_RULES`]). Beyond it the oldest is
//! remembered by a part of what can be named: of hosts, urls and tags 1 in [`PARTS`], of a prefix its host
//! counts as named. What is as old as that and lies there is purged with it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use microcache_policy::Time;
use microcache_store::TagNumbers;

use super::rule::{Named, Rule, Scope, Strength};
use crate::sync::{AtomicU64, RwLock};

/// Rules that are remembered one by one.
pub(super) const MAX_RULES: usize = 64 * 1024;
/// Into so many parts names are divided where there are more.
const PARTS: usize = 256 * 1024;

/// All purges by rule that are still to be held against something.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The number of the newest; 0 before the first.
    newest: AtomicU64,
    books: RwLock<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// The rules one by one, under their numbers.
    live: BTreeMap<u64, Live>,
    ids: HashSet<u64>,
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
}

/// The newest rule of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    number: u64,
    at: Time,
}

/// How old an entry is, for a rule that may cover it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// The rules up to this number came before it, or have been held against it.
    Rule(u64),
    /// It was asked for at that moment, by whoever.
    Moment(Time),
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

    /// Adds a rule, which counts from `now` on. Gives its number; `None` if it is known already.
    pub(super) fn add(&self, rule: Rule, now: Time) -> Option<u64> {
        let mut books = self.books.write();
        if !books.ids.insert(rule.id) {
            return None;
        }
        let number = self.newest.load(Ordering::Relaxed) + 1;
        let mark = Mark { number, at: now };
        books.index(rule.strength).note(&rule.scope, mark);
        if rule.scope == Scope::Everything && rule.strength == Strength::Hard {
            // It says all that the others say.
            books.forget(number - 1);
        }
        books.live.insert(number, Live { rule, since: now });
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
        let books = self.books.read();
        if books.hard.newest_of(entry, since).is_some() {
            return Some(Covered::Hard);
        }
        books.soft.newest_of(entry, since).map(Covered::Soft)
    }

    /// What becomes of what has this key and these tags, and has been held against the rules up to this
    /// number. A later one that is not remembered any more counts as if it had named it.
    pub(super) fn covers_since(
        &self,
        key: &[u8],
        tags: &TagNumbers,
        number: u64,
    ) -> Option<Covered> {
        if number == self.newest() {
            return None;
        }
        let covered = self.covers(&Named::new(key, tags), Since::Rule(number));
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

    /// The rules that are remembered one by one, the oldest first.
    pub(super) fn live(&self) -> Vec<Rule> {
        let books = self.books.read();
        books.live.values().map(|live| live.rule.clone()).collect()
    }

    /// The newest of them, the newest first.
    pub(super) fn newest_live(&self, most: usize) -> Vec<Rule> {
        let books = self.books.read();
        let newest = books.live.values().rev().take(most);
        newest.map(|live| live.rule.clone()).collect()
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

    fn widen_oldest(&mut self) {
        if let Some((number, Live { rule, .. })) = self.live.pop_first() {
            self.ids.remove(&rule.id);
            self.index(rule.strength).widen(&rule.scope, number);
        }
    }

    fn forget(&mut self, through: u64) {
        let kept = self.live.split_off(&(through + 1));
        for live in std::mem::replace(&mut self.live, kept).values() {
            self.ids.remove(&live.rule.id);
        }
        self.hard.forget(through);
        self.soft.forget(through);
    }
}

impl Index {
    fn note(&mut self, scope: &Scope, mark: Mark) {
        match scope {
            Scope::Everything => self.everything = mark,
            Scope::Prefix { .. } => {
                let prefix = scope.prefix();
                let of_length = self.prefixes.entry(prefix.len()).or_default();
                of_length.insert(prefix, mark);
            }
            Scope::Host(_) | Scope::Url { .. } | Scope::Tag(_) | Scope::Group { .. } => {
                self.named.insert(scope.number(), mark);
            }
        }
    }

    /// From now on the rule of this number is remembered by a part of what can be named.
    fn widen(&mut self, scope: &Scope, number: u64) {
        let (mark, name) = match scope {
            // There is one at most.
            Scope::Everything => return,
            Scope::Prefix { host, .. } => {
                let prefix = scope.prefix();
                let Some(of_length) = self.prefixes.get_mut(&prefix.len()) else {
                    return;
                };
                let mark = of_length.get(&prefix).copied();
                if mark.is_some_and(|mark| mark.number == number) {
                    of_length.remove(&prefix);
                }
                (mark, Scope::Host(host.clone()).number())
            }
            scope => {
                let name = scope.number();
                let mark = self.named.get(&name).copied();
                if mark.is_some_and(|mark| mark.number == number) {
                    self.named.remove(&name);
                }
                (mark, name)
            }
        };
        self.prefixes.retain(|_, of_length| !of_length.is_empty());
        // A newer rule of the same name is remembered by itself.
        if let Some(mark) = mark.filter(|mark| mark.number == number) {
            if self.parts.is_empty() {
                self.parts = vec![Mark::default(); PARTS];
            }
            self.parts[part_of(name)] = mark;
        }
    }

    /// The moment of the newest rule here that covers an entry of this age.
    fn newest_of(&self, entry: &Named<'_>, since: Since) -> Option<Time> {
        let by_name = entry.numbers().flat_map(|number| {
            let part = self.parts.get(part_of(number));
            [self.named.get(&number), part]
        });
        let by_prefix = self
            .prefixes
            .iter()
            .map(|(length, of_length)| of_length.get(entry.begins_with(*length)?));
        let marks = [Some(&self.everything)]
            .into_iter()
            .chain(by_name)
            .chain(by_prefix)
            .flatten();
        let covering = marks.filter(|mark| mark.covers(since));
        covering.map(|mark| mark.at).max()
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
    fn covers(&self, since: Since) -> bool {
        self.number > 0
            && match since {
                Since::Rule(number) => number < self.number,
                Since::Moment(moment) => moment <= self.at,
            }
    }
}

const fn part_of(number: u64) -> usize {
    (number >> 40) as usize % PARTS
}

#[cfg(all(test, not(shuttle)))]
mod tests;

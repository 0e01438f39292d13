//! The index to purge rules.
//!
//! Rules no longer kept one by one are merged into coarse parts of the name space: at most
//! [`MAX_PARTS`] parts for hosts, urls and tags, fewer with little memory; a prefix or a glob is
//! widened to its host. Globs have a bound of their own ([`MAX_GLOBS`]), since each costs a match.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use super::mark::{EntryAge, RuleMark};
use super::number::RuleNumber;
use crate::cache::logs::LogPlace;
use crate::cache::rule::{EntryNames, Scope};

/// The most globs kept one by one.
const MAX_GLOBS: usize = 64;
/// The most parts of the name space.
const MAX_PARTS: usize = 256 * 1024;
/// The fewest parts of the name space.
const MIN_PARTS: usize = 4 * 1024;

/// An index to the newest rule that covers an entry.
#[derive(Debug)]
pub(crate) struct RuleIndex {
    /// The most parts, a power of two.
    part_count: usize,
    everything: RuleMark,
    /// Rules kept one by one, by the number of a host, a url, a tag or a group.
    named: HashMap<u64, RuleMark, RandomState>,
    /// Older rules, merged by part of the name space. Empty until needed.
    parts: Vec<RuleMark>,
    /// Prefixes of urls, host included, by length.
    prefixes: BTreeMap<usize, HashMap<Vec<u8>, RuleMark, RandomState>>,
    /// The globs of urls, host included, with their scopes; oldest first.
    globs: Vec<(Vec<u8>, Scope, RuleMark)>,
}

impl RuleIndex {
    /// An empty index, whose parts will take at most `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        let most = (capacity / size_of::<RuleMark>()).clamp(MIN_PARTS, MAX_PARTS);
        Self {
            part_count: 1 << most.ilog2(),
            everything: RuleMark::default(),
            named: HashMap::default(),
            parts: Vec::new(),
            prefixes: BTreeMap::new(),
            globs: Vec::new(),
        }
    }

    /// Returns true if rules were merged into parts.
    pub(crate) const fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Adds a rule of this scope.
    pub(crate) fn note(&mut self, scope: &Scope, mark: RuleMark) {
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
                for name in scope.numbers() {
                    self.named.entry(name).or_default().renew(mark);
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

    /// Changes the marks of a scope.
    pub(crate) fn change(&mut self, scope: &Scope, mut change: impl FnMut(&mut RuleMark)) {
        match scope {
            Scope::Everything => change(&mut self.everything),
            Scope::Prefix { .. } => {
                let prefix = scope.pattern();
                let of_length = self.prefixes.get_mut(&prefix.len());
                let mark = of_length.and_then(|all| all.get_mut(&prefix));
                mark.into_iter().for_each(change);
            }
            Scope::Glob { .. } => {
                let pattern = scope.pattern();
                let known = self.globs.iter().position(|(known, ..)| *known == pattern);
                let mark = match known {
                    Some(known) => Some(&mut self.globs[known].2),
                    None => self.named.get_mut(&scope.number()),
                };
                mark.into_iter().for_each(change);
            }
            scope => {
                for name in scope.numbers() {
                    self.named.get_mut(&name).into_iter().for_each(&mut change);
                }
            }
        }
    }

    /// Places all rules missing in a copy at `place`.
    pub(crate) fn settle(&mut self, copy: usize, place: LogPlace) {
        for mark in self.marks_mut() {
            mark.settle(copy, place);
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
    pub(crate) fn widen(&mut self, scope: &Scope, number: RuleNumber) {
        let (mark, name) = match scope {
            // It has a mark of its own.
            Scope::Everything => return,
            Scope::Prefix { host, .. } => {
                let prefix = scope.pattern();
                let Some(of_length) = self.prefixes.get_mut(&prefix.len()) else {
                    return;
                };
                let mark = of_length.get(&prefix).copied();
                if mark.is_some_and(|mark| mark.number() == number) {
                    of_length.remove(&prefix);
                }
                (mark, Scope::Host(host.clone()).number())
            }
            Scope::Glob { .. } => {
                let pattern = scope.pattern();
                let is_it = |(known, _, mark): &(Vec<u8>, Scope, RuleMark)| {
                    *known == pattern && mark.number() == number
                };
                let known = self.globs.iter().position(is_it);
                let mark = known.map(|known| self.globs.remove(known).2);
                (mark, scope.number())
            }
            scope => {
                for name in scope.numbers() {
                    let mark = self.named.get(&name).copied();
                    if mark.is_some_and(|mark| mark.number() == number) {
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
    fn keep_in_part(&mut self, mark: Option<RuleMark>, name: u64, number: RuleNumber) {
        if let Some(mark) = mark.filter(|mark| mark.number() == number) {
            if self.parts.is_empty() {
                self.parts = vec![RuleMark::default(); self.part_count];
            }
            let part = self.part_of(name);
            self.parts[part].renew(mark);
        }
    }

    /// The newest mark that covers an entry of this age.
    pub(crate) fn newest_of(&self, entry: &EntryNames<'_>, age: EntryAge) -> Option<RuleMark> {
        let by_name = entry.numbers().flat_map(|name| {
            let part = self.parts.get(self.part_of(name));
            [self.named.get(&name), part]
        });
        let by_prefix = self
            .prefixes
            .iter()
            .map(|(length, of_length)| of_length.get(entry.begins_with(*length)?));
        let alike = self.globs.iter().map(|(pattern, _, mark)| {
            let may_cover = mark.covers(age) && entry.is_like(pattern);
            may_cover.then_some(mark)
        });
        let marks = [Some(&self.everything)]
            .into_iter()
            .chain(by_name)
            .chain(by_prefix)
            .chain(alike)
            .flatten();
        let covering = marks.filter(|mark| mark.covers(age)).copied();
        covering.max_by_key(RuleMark::number)
    }

    /// Drops the rules up to this number.
    pub(crate) fn forget(&mut self, through: RuleNumber) {
        let stays = |mark: &RuleMark| mark.number() > through;
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
        if self
            .parts
            .iter()
            .all(|mark| mark.number() == RuleNumber::NONE)
        {
            self.parts = Vec::new();
        }
    }

    /// The part of a name; only valid if there are parts.
    const fn part_of(&self, name: u64) -> usize {
        (name >> 40) as usize & (self.part_count - 1)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_parts_take_no_more_memory_than_they_may() {
        for capacity in [1 << 20, 3 << 20, 1 << 22] {
            let index = RuleIndex::new(capacity);
            assert!(index.part_count * size_of::<RuleMark>() <= capacity);
        }
        assert_eq!(RuleIndex::new(0).part_count, MIN_PARTS);
        assert_eq!(RuleIndex::new(usize::MAX).part_count, MAX_PARTS);
    }
}

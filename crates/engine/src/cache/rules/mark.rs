//! The mark of a name in the index: the rules that name it, reduced to the values that decide
//! whether one of them is newer than an entry.

use microcache_policy::Time;
use microcache_store::LOG_COPIES;

use super::number::RuleNumber;
use super::places::RulePlaces;
use crate::cache::logs::LogPlace;

/// The newest rule of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleMark {
    number: RuleNumber,
    at: Time,
    /// Per copy of the shared log, the last place of these rules.
    places: [LogPlace; LOG_COPIES],
    /// Per copy, the number of logged rules that have no place in it yet.
    missing: [u32; LOG_COPIES],
    /// The time from which the newest rule without a place is in effect; 0 if there is none.
    unplaced_since: Time,
}

/// The age of an entry, as this process compares it with rules.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EntryAge {
    /// Already checked against the rules up to this number, or newer than them.
    Checked(RuleNumber),
    /// Fetched at `at`, when its process had read each copy of the log up to a place.
    Fetched {
        at: Time,
        known: [LogPlace; LOG_COPIES],
    },
}

impl RuleMark {
    pub(crate) fn new(number: RuleNumber, now: Time, places: RulePlaces) -> Self {
        let is_missing = |copy| u32::from(places.is_missing(copy));
        Self {
            number,
            at: now,
            places: std::array::from_fn(|copy| places.get(copy).unwrap_or_default()),
            missing: std::array::from_fn(is_missing),
            unplaced_since: if places.is_unplaced() {
                now
            } else {
                Time::default()
            },
        }
    }

    /// The number of the newest rule; [`RuleNumber::NONE`] without rules.
    pub(crate) const fn number(&self) -> RuleNumber {
        self.number
    }

    /// The time from which the newest rule is in effect.
    pub(crate) const fn at(&self) -> Time {
        self.at
    }

    /// Merges another rule of the same name, usually a newer one.
    pub(crate) fn renew(&mut self, other: Self) {
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
    pub(crate) fn place(
        &mut self,
        number: RuleNumber,
        copy: usize,
        place: LogPlace,
        was_unplaced: bool,
    ) {
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

    /// Places the rules missing in a copy at `place`.
    pub(crate) fn settle(&mut self, copy: usize, place: LogPlace) {
        if std::mem::take(&mut self.missing[copy]) > 0 {
            self.places[copy] = self.places[copy].max(place);
        }
    }

    /// Returns true if one of these rules is newer than an entry of this age.
    pub(crate) fn covers(&self, age: EntryAge) -> bool {
        self.number > RuleNumber::NONE
            && match age {
                EntryAge::Checked(number) => number < self.number,
                EntryAge::Fetched { at, known } => {
                    let is_unplaced = self.unplaced_since > Time::default();
                    !self.was_known(known) || is_unplaced && at <= self.unplaced_since
                }
            }
    }

    /// Returns true if a process that had read the log up to there knew every rule in it.
    fn was_known(&self, known: [LogPlace; LOG_COPIES]) -> bool {
        let says_so = |copy: usize| self.missing[copy] == 0 && known[copy] >= self.places[copy];
        (0..LOG_COPIES).any(says_so)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::cache::logs::LogHistory;

    const NOW: Time = Time::from_secs(1_000);

    fn place(position: u64) -> LogPlace {
        LogHistory::default().place(position)
    }

    fn number(rules: usize) -> RuleNumber {
        (0..rules).fold(RuleNumber::NONE, |number, _| number.next())
    }

    /// A mark of rules with these places in the copies of the log, each added a second after the
    /// one before.
    fn mark(rules: &[[Option<u64>; LOG_COPIES]]) -> RuleMark {
        let mut mark = RuleMark::default();
        for (at, places) in rules.iter().enumerate() {
            let places = RulePlaces::new(places.map(|position| position.map(place)));
            let now = NOW.plus(1_000 * at as u64);
            mark.renew(RuleMark::new(number(at + 1), now, places));
        }
        mark
    }

    #[test]
    fn a_mark_covers_an_entry_whose_process_may_have_missed_a_rule() {
        const IN_NEITHER: [Option<u64>; LOG_COPIES] = [None, None];
        const IN_BOTH: [Option<u64>; LOG_COPIES] = [Some(10), Some(100)];
        const IN_FIRST: [Option<u64>; LOG_COPIES] = [Some(20), None];
        for (rules, millis, known, is_covered) in [
            (&[][..], 0, [0, 0], false),
            // Its place counts, in either copy, and not the time.
            (&[IN_BOTH], 9_000, [9, 99], true),
            (&[IN_BOTH], 0, [10, 0], false),
            (&[IN_BOTH], 0, [0, 100], false),
            // A copy that lacks the rule says nothing of it.
            (&[IN_FIRST], 9_000, [19, 1_000], true),
            (&[IN_FIRST], 0, [20, 0], false),
            (&[IN_BOTH, IN_FIRST], 0, [19, 1_000], true),
            (&[IN_BOTH, IN_FIRST], 0, [20, 0], false),
            // Without a place the time counts, and that of the newest such rule.
            (&[IN_NEITHER], 0, [0, 0], true),
            (&[IN_NEITHER], 1, [0, 0], false),
            (&[IN_NEITHER, IN_NEITHER], 1_000, [0, 0], true),
            (&[IN_NEITHER, IN_NEITHER], 1_001, [0, 0], false),
            // Both count if there are rules of both kinds.
            (&[IN_BOTH, IN_NEITHER], 1_000, [10, 0], true),
            (&[IN_BOTH, IN_NEITHER], 1_001, [10, 0], false),
            (&[IN_BOTH, IN_NEITHER], 1_001, [9, 99], true),
        ] {
            let age = EntryAge::Fetched {
                at: NOW.plus(millis),
                known: known.map(place),
            };
            let covers = mark(rules).covers(age);
            assert_eq!(covers, is_covered, "{rules:?} {millis} {known:?}");
        }
    }

    #[test]
    fn an_entry_that_was_checked_is_covered_by_later_rules_only() {
        let mark = mark(&[[None, None]; 2]);
        let covers = |rules| mark.covers(EntryAge::Checked(number(rules)));
        assert!(covers(0) && covers(1) && !covers(2) && !covers(3));
        assert!(!RuleMark::default().covers(EntryAge::Checked(RuleNumber::NONE)));
    }

    #[test]
    fn a_record_missing_from_a_copy_precedes_the_next_record_of_the_copy() {
        let mut mark = mark(&[[Some(10), None]]);
        let covers = |mark: &RuleMark, known: [u64; LOG_COPIES]| {
            let known = known.map(place);
            mark.covers(EntryAge::Fetched { at: NOW, known })
        };
        assert!(covers(&mark, [0, 1_000]));
        mark.settle(1, place(101));
        assert!(covers(&mark, [0, 100]) && !covers(&mark, [0, 101]));
    }
}

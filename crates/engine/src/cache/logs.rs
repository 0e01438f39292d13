//! The successive logs of one copy, in the order in which this process met them.
//!
//! A log that was lost is replaced by a new one, and positions of two logs cannot be compared. A
//! process that has seen one replace the other knows that every position of the first is earlier;
//! so it numbers the logs and compares positions by log number first. A tier's entry with a
//! position in a log that this process has not seen counts as older than every rule.

use std::collections::VecDeque;

use microcache_store::{count_in_log, in_log, log_number};

/// A position in this process's order of logs; 0 is before all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogPlace(u64);

impl LogPlace {
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The most logs remembered per copy.
const MAX_LOGS: usize = 64;

/// The successive logs of one copy.
#[derive(Debug, Default)]
pub(crate) struct LogHistory {
    /// The newest last.
    seen: VecDeque<KnownLog>,
    /// The number of the newest log, counted from 1.
    number: u64,
}

#[derive(Debug)]
struct KnownLog {
    log: u64,
    number: u64,
    /// The log disappeared and came back, so the order of its positions is unknown.
    is_ambiguous: bool,
}

impl LogHistory {
    /// Records that the copy is now the log of this position.
    pub(super) fn note(&mut self, position: u64) {
        let log = log_number(position);
        if self.seen.back().is_some_and(|seen| seen.log == log) {
            return;
        }
        let mut is_ambiguous = false;
        for seen in self.seen.iter_mut().filter(|seen| seen.log == log) {
            (seen.is_ambiguous, is_ambiguous) = (true, true);
        }
        self.number += 1;
        if self.seen.len() == MAX_LOGS {
            self.seen.pop_front();
        }
        self.seen.push_back(KnownLog {
            log,
            number: self.number,
            is_ambiguous,
        });
    }

    /// The place of a position in the log that is read now.
    pub(crate) fn place(&self, position: u64) -> LogPlace {
        LogPlace(in_log(self.number, count_in_log(position)))
    }

    /// The place of any position; before all if its log is unknown or ambiguous.
    pub(super) fn worth(&self, position: u64) -> LogPlace {
        let log = log_number(position);
        if log == 0 {
            // In no log, and before all.
            return LogPlace(position);
        }
        let seen = self.seen.iter().find(|seen| seen.log == log);
        let seen = seen.filter(|seen| !seen.is_ambiguous);
        LogPlace(seen.map_or(0, |seen| in_log(seen.number, count_in_log(position))))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const NOWHERE: LogPlace = LogPlace(0);

    #[test]
    fn of_two_logs_the_later_one_counts_despite_its_numbers() {
        for [first, second] in [[7, 9], [9, 7]] {
            let mut logs = LogHistory::default();
            let (old, new) = (in_log(first, 1000), in_log(second, 1));
            logs.note(old);
            assert_eq!(logs.worth(old), logs.place(old));
            assert_eq!(logs.worth(new), NOWHERE, "nobody has seen it");
            let old_place = logs.place(old);
            logs.note(new);
            assert!(logs.worth(new) > old_place);
            assert_eq!(logs.worth(old), old_place, "it is what it was");
            assert!(logs.worth(old) < logs.place(new));
        }
    }

    #[test]
    fn records_of_a_log_that_vanished_and_returned_are_discarded() {
        let mut logs = LogHistory::default();
        for log in [7, 9, 7] {
            logs.note(in_log(log, 5));
        }
        assert_eq!(logs.worth(in_log(7, 5)), NOWHERE);
        assert!(logs.worth(in_log(9, 5)) > NOWHERE);
        assert!(logs.place(in_log(7, 5)) > logs.worth(in_log(9, 1000)));
    }

    #[test]
    fn there_is_a_bound_on_how_many_are_remembered() {
        let mut logs = LogHistory::default();
        for log in 1..=MAX_LOGS as u64 + 1 {
            logs.note(in_log(log, 5));
        }
        assert_eq!(logs.seen.len(), MAX_LOGS);
        assert_eq!(logs.worth(in_log(1, 5)), NOWHERE);
        assert!(logs.worth(in_log(2, 5)) > NOWHERE);
    }
}

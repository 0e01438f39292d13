//! Whether a server is in service, and what it must be told before it is again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::tier::EntryId;

/// What a server says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Its process.
    pub(super) process: u64,
    /// The date by its own clock, in seconds.
    pub(super) date: u64,
    /// How many seconds ago it was started. It holds nothing from before.
    pub(super) uptime: u64,
    /// Items held.
    pub(super) items: u64,
    /// Bytes held.
    pub(super) bytes: u64,
    /// Items that had to leave for others.
    pub(super) evicted: u64,
}

/// The state of one server, as this process sees it.
#[derive(Debug)]
pub(super) struct Health {
    in_service: AtomicBool,
    /// In a row.
    failures: AtomicU32,
    max_failures: u32,
    max_missed: usize,
    state: Mutex<HealthState>,
    lost: Notify,
}

#[derive(Debug, Default)]
struct HealthState {
    /// Why it is out of service.
    why: String,
    /// Records to be removed there before anything is read.
    missed: HashSet<EntryId>,
    /// There were more of them than we remember. Those up to this moment are not known any more.
    forgot: Option<Instant>,
    report: Option<Report>,
}

/// What a server that answers again has to be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owed {
    /// Nothing: it is back in service.
    Nothing,
    /// To remove these first.
    Removals(Vec<EntryId>),
    /// We do not know any more what: it may hold anything.
    Unknown,
}

impl Health {
    /// In service until it turns out otherwise.
    pub(super) fn new(max_failures: u32, max_missed: usize) -> Self {
        Self {
            in_service: AtomicBool::new(true),
            failures: AtomicU32::new(0),
            max_failures,
            max_missed,
            state: Mutex::default(),
            lost: Notify::new(),
        }
    }

    /// Whether it may be asked.
    pub(super) fn is_in_service(&self) -> bool {
        self.in_service.load(Ordering::Acquire)
    }

    /// It answered.
    pub(super) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// It did not, or not in time, or not as it should.
    pub(super) fn failed(&self, why: &str) {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if failures >= self.max_failures {
            self.eject(why);
        }
    }

    /// Takes it out of service.
    pub(super) fn eject(&self, why: &str) {
        self.take_out(&mut self.state.lock(), why);
    }

    fn take_out(&self, state: &mut HealthState, why: &str) {
        why.clone_into(&mut state.why);
        if self.in_service.swap(false, Ordering::AcqRel) {
            self.lost.notify_one();
        }
    }

    /// Waits until it is taken out of service.
    pub(super) async fn lost(&self) {
        while self.is_in_service() {
            self.lost.notified().await;
        }
    }

    /// Remembers a removal for later if the server is out of service. If not, it can be told.
    pub(super) fn remember_if_lost(&self, id: EntryId, now: Instant) -> bool {
        let mut state = self.state.lock();
        let lost = !self.is_in_service();
        if lost {
            state.remember(id, self.max_missed, now);
        }
        lost
    }

    /// A removal was not confirmed. Nothing may be read there until it is.
    pub(super) fn owe(&self, id: EntryId, why: &str, now: Instant) {
        let mut state = self.state.lock();
        state.remember(id, self.max_missed, now);
        self.take_out(&mut state, why);
    }

    /// It answers. Puts it back in service if there is nothing it has to be told first.
    pub(super) fn answered(&self, report: Report, now: Instant) -> Owed {
        let mut state = self.state.lock();
        let before = state.report.replace(report);
        if self.is_in_service() {
            return Owed::Nothing;
        }
        if let Some(forgot) = state.forgot {
            // Its uptime alone is no proof: a server that was halted tells an old one at first.
            let is_new = before.is_none_or(|before| report.is_of_another_process(&before));
            let age = Duration::from_secs(report.uptime);
            if !is_new || now.saturating_duration_since(forgot) <= age {
                state.why = format!(
                    "more than {} removals could not be delivered; it stays out of service until it is restarted",
                    self.max_missed
                );
                return Owed::Unknown;
            }
            state.forgot = None;
        }
        if !state.missed.is_empty() {
            return Owed::Removals(state.missed.iter().copied().collect());
        }
        state.why = String::new();
        self.failures.store(0, Ordering::Relaxed);
        self.in_service.store(true, Ordering::Release);
        Owed::Nothing
    }

    /// These removals have been confirmed.
    pub(super) fn delivered(&self, ids: &[EntryId]) {
        let mut state = self.state.lock();
        for id in ids {
            state.missed.remove(id);
        }
    }

    /// What it last said about itself, and why it is out of service.
    pub(super) fn describe(&self) -> (Option<Report>, Option<String>) {
        let state = self.state.lock();
        if self.is_in_service() {
            (state.report, None)
        } else {
            (None, Some(state.why.clone()))
        }
    }
}

impl Report {
    /// Two processes may have one number, in containers, but not one beginning.
    fn is_of_another_process(&self, other: &Self) -> bool {
        let began = |report: &Self| report.date.saturating_sub(report.uptime);
        self.process != other.process || began(self).abs_diff(began(other)) > 1
    }
}

impl HealthState {
    fn remember(&mut self, id: EntryId, max: usize, now: Instant) {
        if self.missed.len() >= max && !self.missed.contains(&id) {
            self.missed.clear();
            self.forgot = Some(now);
        } else {
            self.missed.insert(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Report = Report {
        process: 7,
        date: 5000,
        uptime: 1000,
        items: 1,
        bytes: 2,
        evicted: 3,
    };

    fn ids(count: u8) -> Vec<EntryId> {
        (0..count).map(|n| EntryId::of(&[n])).collect()
    }

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn failures_in_a_row_end_the_service() {
        let now = Instant::now();
        let health = Health::new(2, 10);
        health.failed("late");
        health.succeeded();
        health.failed("late");
        assert!(health.is_in_service());
        health.failed("gone");
        assert!(!health.is_in_service());
        assert_eq!(health.describe(), (None, Some("gone".to_owned())));
        assert_eq!(health.answered(SAME, now), Owed::Nothing);
        assert!(health.is_in_service());
        assert_eq!(health.describe(), (Some(SAME), None));
        health.failed("late");
        assert!(health.is_in_service(), "the count began anew");
    }

    #[test]
    fn removals_come_before_service() {
        let now = Instant::now();
        let health = Health::new(1, 10);
        let ids = ids(3);
        assert!(!health.remember_if_lost(ids[0], now));
        health.owe(ids[0], "late", now);
        assert!(!health.is_in_service());
        assert!(health.remember_if_lost(ids[1], now));
        assert!(health.remember_if_lost(ids[1], now));
        let Owed::Removals(mut owed) = health.answered(SAME, now) else {
            panic!("nothing owed");
        };
        assert!(
            health.remember_if_lost(ids[2], now),
            "while they are delivered"
        );
        owed.sort_unstable();
        let mut expected = ids[..2].to_vec();
        expected.sort_unstable();
        assert_eq!(owed, expected);
        health.delivered(&owed);
        assert_eq!(health.answered(SAME, now), Owed::Removals(vec![ids[2]]));
        health.delivered(&ids);
        assert_eq!(health.answered(SAME, now), Owed::Nothing);
        assert!(health.is_in_service());
    }

    /// Others may have stored there after it was restarted, and before the purge.
    #[test]
    fn a_restarted_server_is_told_as_well() {
        let now = Instant::now();
        let health = Health::new(1, 10);
        assert_eq!(health.answered(SAME, now), Owed::Nothing);
        health.owe(ids(1)[0], "late", now);
        let restarted = Report {
            process: 8,
            uptime: 2,
            ..SAME
        };
        assert_eq!(
            health.answered(restarted, now + seconds(10)),
            Owed::Removals(ids(1))
        );
    }

    #[test]
    fn what_was_forgotten_needs_a_restart_after_it() {
        let now = Instant::now();
        let lost_track = || {
            let health = Health::new(1, 2);
            assert_eq!(health.answered(SAME, now), Owed::Nothing);
            for id in ids(3) {
                health.owe(id, "late", now);
            }
            health
        };
        let later = now + seconds(10);
        let reported = |report: Report| {
            let health = lost_track();
            let owed = health.answered(report, later);
            let (_, why) = health.describe();
            let told = why.is_some_and(|why| why.contains("more than 2 removals"));
            assert_eq!(told, owed == Owed::Unknown);
            assert_eq!(health.is_in_service(), owed == Owed::Nothing);
            owed
        };
        assert_eq!(reported(SAME), Owed::Unknown);
        let halted = Report {
            uptime: 5,
            date: 4005,
            ..SAME
        };
        assert_eq!(
            reported(halted),
            Owed::Unknown,
            "another uptime, the same process"
        );
        let before_the_purge = Report {
            process: 8,
            uptime: 10,
            ..SAME
        };
        assert_eq!(reported(before_the_purge), Owed::Unknown);
        let after_the_purge = Report {
            process: 8,
            uptime: 9,
            ..SAME
        };
        assert_eq!(reported(after_the_purge), Owed::Nothing);
        let in_a_container = Report { uptime: 9, ..SAME };
        assert_eq!(
            reported(in_a_container),
            Owed::Nothing,
            "the same number, another beginning"
        );

        let health = lost_track();
        health.remember_if_lost(ids(1)[0], later);
        assert_eq!(
            health.answered(after_the_purge, later),
            Owed::Removals(ids(1))
        );
    }
}

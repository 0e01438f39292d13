//! Whether a server is in service, and what it must be told before it is again.

use std::collections::HashSet;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::tier::EntryId;

/// What a server says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// When it was started, by its own clock. It holds nothing from before.
    pub(super) started: u64,
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
    state: Mutex<State>,
    lost: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Why it is out of service.
    why: String,
    /// Records to be removed there before anything is read.
    missed: HashSet<EntryId>,
    /// There were more of them than we remember.
    lost_track: bool,
    report: Option<Report>,
}

/// What a server that answers again has to be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owed {
    /// Nothing: it is back in service.
    Nothing,
    /// To remove these first.
    Removals(Vec<EntryId>),
    /// It cannot be told: it may hold anything.
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

    fn take_out(&self, state: &mut State, why: &str) {
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
    pub(super) fn remember_if_lost(&self, id: EntryId) -> bool {
        let mut state = self.state.lock();
        let lost = !self.is_in_service();
        if lost {
            state.remember(id, self.max_missed);
        }
        lost
    }

    /// A removal was not confirmed. Nothing may be read there until it is.
    pub(super) fn owe(&self, id: EntryId, why: &str) {
        let mut state = self.state.lock();
        state.remember(id, self.max_missed);
        self.take_out(&mut state, why);
    }

    /// It answers. Puts it back in service if there is nothing it has to be told first.
    pub(super) fn answered(&self, report: Report) -> Owed {
        let mut state = self.state.lock();
        let before = state.report.replace(report);
        // Another process, with nothing in it. Its clock is not exact to the second.
        if before.is_some_and(|before| report.started.abs_diff(before.started) > 1) {
            state.missed = HashSet::new();
            state.lost_track = false;
        }
        if self.is_in_service() {
            return Owed::Nothing;
        }
        if state.lost_track {
            state.why = format!(
                "more than {} removals could not be delivered; it stays out of service until it is restarted",
                self.max_missed
            );
            return Owed::Unknown;
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

impl State {
    fn remember(&mut self, id: EntryId, max: usize) {
        if self.lost_track || self.missed.contains(&id) {
            return;
        }
        if self.missed.len() < max {
            self.missed.insert(id);
        } else {
            self.lost_track = true;
            drop(mem::take(&mut self.missed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Report = Report {
        started: 1000,
        items: 1,
        bytes: 2,
        evicted: 3,
    };
    const RESTARTED: Report = Report {
        started: 1002,
        ..SAME
    };

    fn ids(count: u8) -> Vec<EntryId> {
        (0..count).map(|n| EntryId::of(&[n])).collect()
    }

    #[test]
    fn failures_in_a_row_end_the_service() {
        let health = Health::new(2, 10);
        health.failed("late");
        health.succeeded();
        health.failed("late");
        assert!(health.is_in_service());
        health.failed("gone");
        assert!(!health.is_in_service());
        assert_eq!(health.describe(), (None, Some("gone".to_owned())));
        assert_eq!(health.answered(SAME), Owed::Nothing);
        assert!(health.is_in_service());
        assert_eq!(health.describe(), (Some(SAME), None));
        health.failed("late");
        assert!(health.is_in_service(), "the count began anew");
    }

    #[test]
    fn removals_come_before_service() {
        let health = Health::new(1, 10);
        assert_eq!(health.answered(SAME), Owed::Nothing);
        let ids = ids(3);
        assert!(!health.remember_if_lost(ids[0]));
        health.owe(ids[0], "late");
        assert!(!health.is_in_service());
        assert!(health.remember_if_lost(ids[1]));
        assert!(health.remember_if_lost(ids[1]));
        let Owed::Removals(mut owed) = health.answered(SAME) else {
            panic!("nothing owed");
        };
        assert!(health.remember_if_lost(ids[2]), "while they are delivered");
        owed.sort_unstable();
        let mut expected = ids[..2].to_vec();
        expected.sort_unstable();
        assert_eq!(owed, expected);
        health.delivered(&owed);
        assert_eq!(health.answered(SAME), Owed::Removals(vec![ids[2]]));
        health.delivered(&ids);
        assert_eq!(health.answered(SAME), Owed::Nothing);
        assert!(health.is_in_service());
    }

    #[test]
    fn a_restarted_server_owes_nothing() {
        let health = Health::new(1, 2);
        assert_eq!(health.answered(SAME), Owed::Nothing);
        for id in ids(2) {
            health.owe(id, "late");
        }
        assert_eq!(health.answered(RESTARTED), Owed::Nothing);
        assert!(health.is_in_service());
    }

    #[test]
    fn too_many_removals_need_a_restart() {
        let health = Health::new(1, 2);
        assert_eq!(health.answered(SAME), Owed::Nothing);
        for id in ids(3) {
            health.owe(id, "late");
        }
        for _ in 0..2 {
            assert_eq!(health.answered(SAME), Owed::Unknown);
            let (_, why) = health.describe();
            assert!(why.is_some_and(|why| why.contains("more than 2 removals")));
        }
        assert_eq!(health.answered(RESTARTED), Owed::Nothing);
        assert!(health.is_in_service());
    }
}

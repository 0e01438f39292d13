//! Health state of a server, with the removals to be delivered before it returns to service.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::tier::EntryId;

/// Statistics of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerStats {
    /// Process id.
    pub(super) process: u64,
    /// Date by the server's clock, in seconds since the Unix epoch.
    pub(super) date: u64,
    /// Uptime in seconds; the server holds nothing older.
    pub(super) uptime: u64,
    /// Number of items.
    pub(super) items: u64,
    /// Stored bytes.
    pub(super) bytes: u64,
    /// Number of evicted items.
    pub(super) evicted: u64,
}

/// Health state of a server.
#[derive(Debug)]
pub(super) struct ServerHealth {
    in_service: AtomicBool,
    /// Consecutive failures.
    failures: AtomicU32,
    max_failures: u32,
    max_missed: usize,
    state: Mutex<HealthState>,
    lost: Notify,
}

#[derive(Debug, Default)]
struct HealthState {
    /// Reason for being out of service.
    why: String,
    /// Removals to be delivered before the server is used again.
    missed: HashSet<EntryId>,
    /// Time until which removals were dropped because there were too many.
    forgot: Option<Instant>,
    report: Option<ServerStats>,
}

/// Removals owed to a server that responds again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwedRemovals {
    /// None: the server is back in service.
    Nothing,
    /// Removals to be delivered first.
    Removals(Vec<EntryId>),
    /// Unknown removals: the server may hold purged records.
    Unknown,
}

impl ServerHealth {
    /// Creates the state of a server in service.
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

    /// Returns whether requests may be sent.
    pub(super) fn is_in_service(&self) -> bool {
        self.in_service.load(Ordering::Acquire)
    }

    /// Records a response.
    pub(super) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records a failure, timeout or protocol error.
    pub(super) fn failed(&self, why: &str) {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if failures >= self.max_failures {
            self.eject(why);
        }
    }

    /// Takes the server out of service.
    pub(super) fn eject(&self, why: &str) {
        self.take_out(&mut self.state.lock(), why);
    }

    fn take_out(&self, state: &mut HealthState, why: &str) {
        why.clone_into(&mut state.why);
        if self.in_service.swap(false, Ordering::AcqRel) {
            self.lost.notify_one();
        }
    }

    /// Waits until the server is taken out of service.
    pub(super) async fn lost(&self) {
        while self.is_in_service() {
            self.lost.notified().await;
        }
    }

    /// Queues a removal if the server is out of service. Returns whether it was queued.
    pub(super) fn remember_if_lost(&self, id: EntryId, now: Instant) -> bool {
        let mut state = self.state.lock();
        let lost = !self.is_in_service();
        if lost {
            state.remember(id, self.max_missed, now);
        }
        lost
    }

    /// Queues a removal that was not confirmed, and takes the server out of service until it is.
    pub(super) fn owe(&self, id: EntryId, why: &str, now: Instant) {
        let mut state = self.state.lock();
        state.remember(id, self.max_missed, now);
        self.take_out(&mut state, why);
    }

    /// Records the statistics of a responding server, and returns it to service unless removals are owed.
    pub(super) fn answered(&self, report: ServerStats, now: Instant) -> OwedRemovals {
        let mut state = self.state.lock();
        let before = state.report.replace(report);
        if self.is_in_service() {
            return OwedRemovals::Nothing;
        }
        if let Some(forgot) = state.forgot {
            // The uptime alone does not prove it: a resumed process reports an old one at first.
            let is_new = before.is_none_or(|before| report.is_of_another_process(&before));
            let age = Duration::from_secs(report.uptime);
            if !is_new || now.saturating_duration_since(forgot) <= age {
                state.why = format!(
                    "more than {} removals are undelivered; out of service until restarted",
                    self.max_missed
                );
                return OwedRemovals::Unknown;
            }
            state.forgot = None;
        }
        if !state.missed.is_empty() {
            return OwedRemovals::Removals(state.missed.iter().copied().collect());
        }
        state.why = String::new();
        self.failures.store(0, Ordering::Relaxed);
        self.in_service.store(true, Ordering::Release);
        OwedRemovals::Nothing
    }

    /// Records removals as delivered.
    pub(super) fn delivered(&self, ids: &[EntryId]) {
        let mut state = self.state.lock();
        for id in ids {
            state.missed.remove(id);
        }
    }

    /// Returns the latest statistics while in service, and the reason otherwise.
    pub(super) fn describe(&self) -> (Option<ServerStats>, Option<String>) {
        let state = self.state.lock();
        if self.is_in_service() {
            (state.report, None)
        } else {
            (None, Some(state.why.clone()))
        }
    }
}

impl ServerStats {
    /// Compares process id and start time: in containers the id alone may be the same.
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

    const SAME: ServerStats = ServerStats {
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
        let health = ServerHealth::new(2, 10);
        health.failed("late");
        health.succeeded();
        health.failed("late");
        assert!(health.is_in_service());
        health.failed("gone");
        assert!(!health.is_in_service());
        assert_eq!(health.describe(), (None, Some("gone".to_owned())));
        assert_eq!(health.answered(SAME, now), OwedRemovals::Nothing);
        assert!(health.is_in_service());
        assert_eq!(health.describe(), (Some(SAME), None));
        health.failed("late");
        assert!(health.is_in_service(), "the count began anew");
    }

    #[test]
    fn removals_come_before_service() {
        let now = Instant::now();
        let health = ServerHealth::new(1, 10);
        let ids = ids(3);
        assert!(!health.remember_if_lost(ids[0], now));
        health.owe(ids[0], "late", now);
        assert!(!health.is_in_service());
        assert!(health.remember_if_lost(ids[1], now));
        assert!(health.remember_if_lost(ids[1], now));
        let OwedRemovals::Removals(mut owed) = health.answered(SAME, now) else {
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
        assert_eq!(
            health.answered(SAME, now),
            OwedRemovals::Removals(vec![ids[2]])
        );
        health.delivered(&ids);
        assert_eq!(health.answered(SAME, now), OwedRemovals::Nothing);
        assert!(health.is_in_service());
    }

    /// Another node may have stored a record between the restart and the purge.
    #[test]
    fn a_restarted_server_gets_the_removals_too() {
        let now = Instant::now();
        let health = ServerHealth::new(1, 10);
        assert_eq!(health.answered(SAME, now), OwedRemovals::Nothing);
        health.owe(ids(1)[0], "late", now);
        let restarted = ServerStats {
            process: 8,
            uptime: 2,
            ..SAME
        };
        assert_eq!(
            health.answered(restarted, now + seconds(10)),
            OwedRemovals::Removals(ids(1))
        );
    }

    #[test]
    fn forgotten_removals_require_a_later_restart() {
        let now = Instant::now();
        let lost_track = || {
            let health = ServerHealth::new(1, 2);
            assert_eq!(health.answered(SAME, now), OwedRemovals::Nothing);
            for id in ids(3) {
                health.owe(id, "late", now);
            }
            health
        };
        let later = now + seconds(10);
        let reported = |report: ServerStats| {
            let health = lost_track();
            let owed = health.answered(report, later);
            let (_, why) = health.describe();
            let is_reported = why.is_some_and(|why| why.contains("more than 2 removals"));
            assert_eq!(is_reported, owed == OwedRemovals::Unknown);
            assert_eq!(health.is_in_service(), owed == OwedRemovals::Nothing);
            owed
        };
        assert_eq!(reported(SAME), OwedRemovals::Unknown);
        let halted = ServerStats {
            uptime: 5,
            date: 4005,
            ..SAME
        };
        assert_eq!(
            reported(halted),
            OwedRemovals::Unknown,
            "another uptime, the same process"
        );
        let before_the_purge = ServerStats {
            process: 8,
            uptime: 10,
            ..SAME
        };
        assert_eq!(reported(before_the_purge), OwedRemovals::Unknown);
        let after_the_purge = ServerStats {
            process: 8,
            uptime: 9,
            ..SAME
        };
        assert_eq!(reported(after_the_purge), OwedRemovals::Nothing);
        let in_a_container = ServerStats { uptime: 9, ..SAME };
        assert_eq!(
            reported(in_a_container),
            OwedRemovals::Nothing,
            "the same number, another beginning"
        );

        let health = lost_track();
        health.remember_if_lost(ids(1)[0], later);
        assert_eq!(
            health.answered(after_the_purge, later),
            OwedRemovals::Removals(ids(1))
        );
    }
}

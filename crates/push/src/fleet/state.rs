//! The state of a node: its position in the stream, and the health of its connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use microcache_store::redis::NoReply;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::time::Instant;

use super::TARGET;
use super::written::Written;
use crate::changes::version::Version;
use crate::stats::Counter;

/// State shared by the reader and the writers.
pub(super) struct State {
    /// The last change applied.
    seen: watch::Sender<Version>,
    hearing: Mutex<Hearing>,
    /// True if the documents have been loaded.
    has_documents: Mutex<bool>,
    has_them: Condvar,
    refusal: Mutex<Option<Refusal>>,
    pub(super) written: Written,
    /// Time of the last report about lost changes.
    astray: Mutex<Option<Instant>>,
    is_too_small: AtomicBool,
    has_foreign: AtomicBool,
    outages: Counter,
    loads: Counter,
}

struct Hearing {
    last: Instant,
    /// The current outage, if any.
    lost: Option<Lost>,
}

struct Lost {
    since: Instant,
    why: String,
}

/// A rejection by Redis while it answers: its disk is full, it became a replica, or permissions are missing.
struct Refusal {
    why: String,
    /// Time of the last report.
    told: Instant,
    /// True if no write has succeeded since.
    stands: bool,
}

/// Interval between reports of the same rejection.
const TOLD_EVERY: Duration = Duration::from_mins(1);

/// The report about lost changes.
const ASTRAY: &str = "push_redis has taken changes that are missing where this node reads them: it has lost them, or connections to it lead to several servers; let it be one, and no load balancer of several";

/// Statistics of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetStats {
    /// True if Redis answers.
    pub is_connected: bool,
    /// Time since its last answer, in milliseconds.
    pub silent_for: u64,
    /// Connection losses.
    pub outages: u64,
    /// Full loads: at the start, and after changes were missed.
    pub loads: u64,
    /// The number of the last change applied.
    pub newest: u64,
    /// Problems that need an operator's attention.
    pub warnings: Vec<String>,
    /// True if no documents have been loaded yet.
    pub is_empty_handed: bool,
}

impl State {
    pub(super) fn new() -> Self {
        let nothing = Version {
            epoch: 0,
            number: 0,
        };
        Self {
            seen: watch::Sender::new(nothing),
            hearing: Mutex::new(Hearing {
                last: Instant::now(),
                lost: None,
            }),
            has_documents: Mutex::new(false),
            has_them: Condvar::new(),
            refusal: Mutex::default(),
            written: Written::default(),
            astray: Mutex::default(),
            is_too_small: AtomicBool::new(false),
            has_foreign: AtomicBool::new(false),
            outages: Counter::default(),
            loads: Counter::default(),
        }
    }

    /// Records that the reader has applied everything up to a version.
    pub(super) fn see(&self, version: Version) {
        self.seen.send_replace(version);
    }

    /// Waits until the reader has reached a change, or another epoch.
    pub(super) async fn until_seen(&self, epoch: u64, number: u64) {
        let mut seen = self.seen.subscribe();
        let has = |it: &Version| it.epoch == epoch && it.number >= number;
        let _ = seen.wait_for(has).await;
    }

    /// Records a full load.
    pub(super) fn loaded(&self) {
        self.loads.add_one();
        self.written.forget();
        *self.has_documents.lock() = true;
        self.has_them.notify_all();
    }

    /// Waits for the first load; false after the timeout.
    pub(super) fn wait_for_documents(&self, patience: Duration) -> bool {
        let mut has_documents = self.has_documents.lock();
        let wait = |has: &mut bool| !*has;
        let waited = self
            .has_them
            .wait_while_for(&mut has_documents, wait, patience);
        !waited.timed_out()
    }

    /// Records an answer of Redis.
    pub(super) fn heard(&self) {
        let mut hearing = self.hearing.lock();
        hearing.last = Instant::now();
        let lost = hearing.lost.take();
        drop(hearing);
        if let Some(lost) = lost {
            let seconds = lost.since.elapsed().as_secs();
            tracing::info!(target: TARGET, "push_redis is there again after {seconds} s: documents are changed again");
        }
    }

    /// Records a failure; reported once per outage.
    pub(super) fn lost(&self, why: &NoReply, detail: &[String]) {
        let mut hearing = self.hearing.lock();
        let why = match detail.first() {
            Some(detail) => detail.clone(),
            None => why.to_string(),
        };
        if let Some(lost) = &mut hearing.lost {
            lost.why = why;
            return;
        }
        self.outages.add_one();
        tracing::error!(
            target: TARGET,
            "push_redis: {why}: documents are answered and told as they were, and changes are answered 503, until it is there again"
        );
        hearing.lost = Some(Lost {
            since: Instant::now(),
            why,
        });
    }

    /// Records the result of a write.
    pub(super) fn note_answer(&self, fault: Option<&NoReply>) {
        let why = match fault {
            None => {
                if let Some(refusal) = &mut *self.refusal.lock() {
                    refusal.stands = false;
                }
                return;
            }
            Some(why @ (NoReply::Refused(_) | NoReply::Full)) => why.to_string(),
            // Outages are reported by the reader.
            Some(_) => return,
        };
        let mut refusal = self.refusal.lock();
        let last = refusal.as_ref().map(|it| it.told);
        let told = last.filter(|told| told.elapsed() < TOLD_EVERY);
        if told.is_none() {
            tracing::error!(
                target: TARGET,
                "push_redis refuses changes, and documents stay as they are: {why}"
            );
        }
        *refusal = Some(Refusal {
            why,
            told: told.unwrap_or_else(Instant::now),
            stands: true,
        });
    }

    /// Compares the newest change in the stream with the writes that Redis has acknowledged.
    pub(super) fn compare(&self, newest: Version) {
        if !self.written.misses(newest) {
            return;
        }
        let told = self.astray.lock().replace(Instant::now());
        if told.is_none_or(|told| told.elapsed() > TOLD_EVERY) {
            tracing::error!(target: TARGET, "{ASTRAY}");
        }
    }

    /// Reports documents that exceed this node's memory limit.
    pub(super) fn note_size(&self, size: u64, memory: u64) {
        let is_too_small = size > memory;
        let was = self.is_too_small.swap(is_too_small, Ordering::Relaxed);
        if is_too_small && !was {
            tracing::error!(
                target: TARGET,
                "the documents of all nodes take {size} bytes, more than the {memory} of push_memory here: they are all held, and other nodes take more; give all nodes the same push_memory"
            );
        }
    }

    /// Reports the first entry that is no document.
    pub(super) fn note_foreign(&self, name: &str) {
        if !self.has_foreign.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: TARGET,
                "push_redis has something that is no document of ours, and is left out: {name:?}"
            );
        }
    }

    pub(super) fn stats(&self) -> FleetStats {
        let hearing = self.hearing.lock();
        let is_empty_handed = !*self.has_documents.lock();
        let mut warnings = Vec::new();
        if let Some(lost) = &hearing.lost {
            warnings.push(format!(
                "push_redis: {}: documents are answered as they were, and changes are refused",
                lost.why
            ));
        }
        if let Some(refusal) = &*self.refusal.lock()
            && refusal.stands
        {
            warnings.push(format!("push_redis refuses changes: {}", refusal.why));
        }
        let astray = *self.astray.lock();
        if astray.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            warnings.push(ASTRAY.to_owned());
        }
        if self.is_too_small.load(Ordering::Relaxed) {
            warnings.push(
                "documents take more than push_memory: other nodes have more of it".to_owned(),
            );
        }
        FleetStats {
            is_connected: hearing.lost.is_none() && !is_empty_handed,
            silent_for: hearing.last.elapsed().as_millis() as u64,
            outages: self.outages.get(),
            loads: self.loads.get(),
            newest: self.seen.borrow().number,
            warnings,
            is_empty_handed,
        }
    }
}

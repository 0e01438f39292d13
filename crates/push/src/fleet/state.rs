//! The state of a node: its position in the stream, and the health of its connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use microcache_store::redis::NoReply;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::TARGET;
use super::lost_writes::LostWrites;
use crate::changes::version::DocumentVersion;
use crate::stats::Counter;

/// Limit of the wait for this node's reader to reach a change before it is acknowledged.
pub(crate) const APPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of the wait for the first load at the start. Without it, requests are answered 503.
pub(crate) const FIRST_LOAD: Duration = Duration::from_secs(3);

/// The parts of messages that name what is shared.
pub(crate) struct OutageTexts {
    /// The effects of an outage.
    pub(crate) during: &'static str,
    /// The effect of its end.
    pub(crate) after: &'static str,
    /// The effect of rejected writes.
    pub(crate) rejection: &'static str,
    /// The kind of entry that foreign ones are not.
    pub(crate) foreign: &'static str,
}

/// State shared by the reader and the writers.
pub(crate) struct State {
    texts: &'static OutageTexts,
    /// The last change applied.
    applied: watch::Sender<DocumentVersion>,
    contact: Mutex<RedisContact>,
    /// True if the documents have been loaded.
    has_documents: Mutex<bool>,
    documents_loaded: Condvar,
    rejection: Mutex<Option<WriteRejection>>,
    pub(crate) lost_writes: LostWrites,
    /// Time of the last report about lost changes.
    lost_writes_reported: Mutex<Option<Instant>>,
    exceeds_memory: AtomicBool,
    foreign: Counter,
    outages: Counter,
    loads: Counter,
}

struct RedisContact {
    last: Instant,
    /// The current outage, if any.
    outage: Option<Outage>,
}

struct Outage {
    since: Instant,
    why: String,
}

/// A rejection by Redis while it answers: its disk is full, it became a replica, or permissions are missing.
struct WriteRejection {
    why: String,
    /// Time of the last report.
    reported: Instant,
    /// True if no write has succeeded since.
    is_current: bool,
}

/// Interval between reports of the same rejection.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// The report about lost changes.
const LOST_WRITES: &str = "changes acknowledged by push_redis are missing where this node reads: Redis has lost them, or push_redis leads to several independent servers; use a single server, not a load balancer";

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
    /// Entries ignored because they are damaged or of another program.
    pub ignored: u64,
    /// Problems that need an operator's attention.
    pub warnings: Vec<String>,
    /// True if no documents have been loaded yet.
    pub is_empty_handed: bool,
}

impl State {
    pub(crate) fn new(texts: &'static OutageTexts) -> Self {
        let nothing = DocumentVersion {
            epoch: 0,
            number: 0,
        };
        Self {
            texts,
            applied: watch::Sender::new(nothing),
            contact: Mutex::new(RedisContact {
                last: Instant::now(),
                outage: None,
            }),
            has_documents: Mutex::new(false),
            documents_loaded: Condvar::new(),
            rejection: Mutex::default(),
            lost_writes: LostWrites::default(),
            lost_writes_reported: Mutex::default(),
            exceeds_memory: AtomicBool::new(false),
            foreign: Counter::default(),
            outages: Counter::default(),
            loads: Counter::default(),
        }
    }

    /// Records that the reader has applied everything up to a version.
    pub(crate) fn advance(&self, version: DocumentVersion) {
        self.applied.send_replace(version);
    }

    /// Waits until the reader has reached a change, or another epoch.
    pub(crate) async fn wait_until_applied(&self, epoch: u64, number: u64) {
        let mut applied = self.applied.subscribe();
        let has = |it: &DocumentVersion| it.epoch == epoch && it.number >= number;
        let _ = applied.wait_for(has).await;
    }

    /// Records a full load.
    pub(crate) fn record_load(&self) {
        self.loads.add_one();
        self.lost_writes.forget();
        *self.has_documents.lock() = true;
        self.documents_loaded.notify_all();
    }

    /// Waits for the first load; false after the timeout.
    pub(crate) fn wait_for_documents(&self, time_limit: Duration) -> bool {
        let mut has_documents = self.has_documents.lock();
        let wait = |has: &mut bool| !*has;
        let waited = self
            .documents_loaded
            .wait_while_for(&mut has_documents, wait, time_limit);
        !waited.timed_out()
    }

    /// Records an answer of Redis.
    pub(crate) fn record_contact(&self) {
        let mut contact = self.contact.lock();
        contact.last = Instant::now();
        let outage = contact.outage.take();
        drop(contact);
        if let Some(outage) = outage {
            let seconds = outage.since.elapsed().as_secs();
            tracing::info!(target: TARGET, "push_redis is reachable again after {seconds} s: {}", self.texts.after);
        }
    }

    /// Records a failure; reported once per outage.
    pub(crate) fn record_outage(&self, why: &NoReply, detail: &[String]) {
        let mut contact = self.contact.lock();
        let why = match detail.first() {
            Some(detail) => detail.clone(),
            None => why.to_string(),
        };
        if let Some(outage) = &mut contact.outage {
            outage.why = why;
            return;
        }
        self.outages.add_one();
        tracing::error!(
            target: TARGET,
            "push_redis: {why}: {} with 503, until it is reachable again",
            self.texts.during
        );
        contact.outage = Some(Outage {
            since: Instant::now(),
            why,
        });
    }

    /// Records the result of a write.
    pub(crate) fn record_reply(&self, fault: Option<&NoReply>) {
        let why = match fault {
            None => {
                if let Some(rejection) = &mut *self.rejection.lock() {
                    rejection.is_current = false;
                }
                return;
            }
            Some(why @ (NoReply::Refused(_) | NoReply::Full)) => why.to_string(),
            // Outages are reported by the reader.
            Some(_) => return,
        };
        let mut rejection = self.rejection.lock();
        let last = rejection.as_ref().map(|it| it.reported);
        let reported = last.filter(|reported| reported.elapsed() < REPORT_INTERVAL);
        if reported.is_none() {
            tracing::error!(
                target: TARGET,
                "push_redis rejects writes, so {}: {why}",
                self.texts.rejection
            );
        }
        *rejection = Some(WriteRejection {
            why,
            reported: reported.unwrap_or_else(Instant::now),
            is_current: true,
        });
    }

    /// Compares the newest change in the stream with the writes that Redis has acknowledged.
    pub(crate) fn compare(&self, newest: DocumentVersion) {
        if !self.lost_writes.is_overdue(newest) {
            return;
        }
        let reported = self.lost_writes_reported.lock().replace(Instant::now());
        if reported.is_none_or(|reported| reported.elapsed() > REPORT_INTERVAL) {
            tracing::error!(target: TARGET, "{LOST_WRITES}");
        }
    }

    /// Reports documents that exceed this node's memory limit.
    pub(crate) fn check_size(&self, size: u64, memory: u64) {
        let exceeds_memory = size > memory;
        let was = self.exceeds_memory.swap(exceeds_memory, Ordering::Relaxed);
        if exceeds_memory && !was {
            tracing::error!(
                target: TARGET,
                "the shared documents use {size} bytes, above this node's push_memory of {memory}: other nodes accept more; set the same push_memory on all nodes"
            );
        }
    }

    /// Counts an entry that is damaged or of another program, and reports the first one.
    pub(crate) fn report_foreign(&self, name: &str) {
        if self.foreign.get() == 0 {
            tracing::error!(
                target: TARGET,
                "push_redis contains an entry that is not {} and is ignored: {name:?}",
                self.texts.foreign
            );
        }
        self.foreign.add_one();
    }

    pub(crate) fn stats(&self) -> FleetStats {
        let contact = self.contact.lock();
        let is_empty_handed = !*self.has_documents.lock();
        let mut warnings = Vec::new();
        if let Some(outage) = &contact.outage {
            warnings.push(format!("push_redis: {}: {}", outage.why, self.texts.during));
        }
        if let Some(rejection) = &*self.rejection.lock()
            && rejection.is_current
        {
            warnings.push(format!("push_redis rejects writes: {}", rejection.why));
        }
        let lost_writes_reported = *self.lost_writes_reported.lock();
        if lost_writes_reported.is_some_and(|reported| reported.elapsed() < REPORT_INTERVAL) {
            warnings.push(LOST_WRITES.to_owned());
        }
        if self.exceeds_memory.load(Ordering::Relaxed) {
            warnings.push(
                "the shared documents exceed this node's push_memory: other nodes have a larger one".to_owned(),
            );
        }
        FleetStats {
            is_connected: contact.outage.is_none() && !is_empty_handed,
            silent_for: contact.last.elapsed().as_millis() as u64,
            outages: self.outages.get(),
            loads: self.loads.get(),
            newest: self.applied.borrow().number,
            ignored: self.foreign.get(),
            warnings,
            is_empty_handed,
        }
    }
}

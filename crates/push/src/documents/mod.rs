//! The documents: state shared by readers, publishers and subscribers.

pub(crate) mod client_network;
pub(crate) mod index;
pub(crate) mod monitor;
pub(crate) mod privacy;
pub(crate) mod responses;
pub(crate) mod sockets;
pub(crate) mod topics;
pub(crate) mod url_error;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use microcache_engine::Clock;
use parking_lot::{Mutex, RwLock};

use crate::access::cors::CookieUse;
use crate::access::read_grant::PushKeys;
use crate::changes::change::DocumentChange;
use crate::changes::journal::LogContents;
use crate::documents::index::{DocumentIndex, SnapshotDiff, SnapshotExtras};
use crate::documents::responses::DocumentResponses;
use crate::documents::sockets::Sockets;
use crate::name::DocumentName;
use crate::settings::PushSettings;
use crate::stats::PushCounters;
use crate::wait_list::Wakeups;

/// All documents, their subscribers and their settings.
pub(crate) struct Documents {
    pub(crate) index: Mutex<DocumentIndex>,
    pub(crate) settings: PushSettings,
    pub(crate) counters: PushCounters,
    pub(crate) clock: Clock,
    /// The responses of documents.
    pub(crate) responses: DocumentResponses,
    pub(crate) sockets: Sockets,
    pub(crate) keys: RwLock<PushKeys>,
    /// True if the documents are loaded. Those of Redis may arrive after the start.
    are_loaded: AtomicBool,
}

impl Documents {
    /// Creates the state. Documents in Redis are loaded later.
    pub(crate) fn new(index: DocumentIndex, settings: PushSettings, keys: PushKeys) -> Arc<Self> {
        let are_loaded = AtomicBool::new(!index.is_shared);
        let documents = Arc::new(Self {
            index: Mutex::new(index),
            settings,
            counters: PushCounters::default(),
            clock: Clock::start(),
            responses: DocumentResponses::default(),
            sockets: Sockets::default(),
            keys: RwLock::new(keys),
            are_loaded,
        });
        documents.build_responses();
        documents
    }

    /// Commits a change: updates the response, the index and the subscribers.
    pub(crate) fn apply(&self, change: &Arc<DocumentChange>) {
        let mut index = self.index.lock();
        // Before subscribers are notified, so that a request they make then gets the new version.
        let is_private = self.is_private(&change.name);
        self.responses.update(
            change,
            index.generations.version(change.number),
            (self.clock.now(), is_private),
        );
        let wakeups = index.apply(change);
        drop(index);
        self.counters.changes.add_one();
        wakeups.into_iter().for_each(Wakeups::wake);
    }

    /// Records that a change of a document did not arrive here.
    pub(crate) fn record_missing(&self, name: &DocumentName, number: u64) {
        let wakeups = self.index.lock().record_missing(name, number);
        wakeups.into_iter().for_each(Wakeups::wake);
    }

    /// Replaces all documents by a snapshot of Redis; returns the differences.
    pub(crate) fn replace_all(&self, loaded: LogContents, extras: SnapshotExtras) -> SnapshotDiff {
        let now = self.clock.now();
        let mut index = self.index.lock();
        let mut diff = index.replace_all(loaded, extras);
        // A document that still exists keeps its old response until it is replaced.
        let still_there: HashSet<_> = diff.changed.iter().map(|it| &it.name).collect();
        for name in diff.removed.iter().filter(|it| !still_there.contains(it)) {
            self.responses.remove(name);
        }
        for change in &diff.changed {
            if change.has_expired(now) {
                self.responses.remove(&change.name);
            } else {
                let is_private = self.is_private(&change.name);
                self.responses.update(
                    change,
                    index.generations.version(change.number),
                    (now, is_private),
                );
            }
        }
        drop(index);
        self.are_loaded.store(true, Ordering::Release);
        self.counters.changes.add(diff.changed.len() as u64);
        diff.wakeups.drain(..).for_each(Wakeups::wake);
        diff.waiting_for_numbers.drain(..).for_each(Waker::wake);
        diff
    }

    /// Restores the response of a document, if this is its newest change.
    pub(crate) fn restore_response(&self, change: &DocumentChange) {
        let index = self.index.lock();
        if index.is_current(change) {
            let is_private = self.is_private(&change.name);
            self.responses.update(
                change,
                index.generations.version(change.number),
                (self.clock.now(), is_private),
            );
        }
    }

    /// Returns whether the documents are loaded.
    pub(crate) fn are_loaded(&self) -> bool {
        self.are_loaded.load(Ordering::Acquire)
    }

    /// Builds the responses of the loaded documents.
    fn build_responses(&self) {
        let (index, now) = (self.index.lock(), self.clock.now());
        for change in index.all() {
            if index.is_current(&change) && !change.has_expired(now) {
                let is_private = self.is_private(&change.name);
                self.responses.update(
                    &change,
                    index.generations.version(change.number),
                    (now, is_private),
                );
            }
        }
    }

    /// Returns whether cookies of other origins' pages matter: only private documents need them.
    pub(crate) const fn cookie_use(&self) -> CookieUse {
        if self.settings.private.is_empty() {
            CookieUse::Ignored
        } else {
            CookieUse::Listed
        }
    }
}

//! The documents: state shared by readers, publishers and subscribers.

pub(crate) mod books;
pub(crate) mod client;
pub(crate) mod monitor;
pub(crate) mod no_url;
pub(crate) mod pages;
pub(crate) mod privacy;
pub(crate) mod sockets;
pub(crate) mod topics;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use microcache_engine::Clock;
use parking_lot::{Mutex, RwLock};

use crate::access::readers::PushKeys;
use crate::access::sites::WithCookies;
use crate::changes::change::Change;
use crate::changes::journal::Loaded;
use crate::documents::books::{Beside, Books, TakenOver};
use crate::documents::pages::Pages;
use crate::documents::sockets::Sockets;
use crate::name::Name;
use crate::settings::PushSettings;
use crate::stats::Counters;
use crate::waiting::Woken;

/// All documents, their subscribers and their settings.
pub(crate) struct Documents {
    pub(crate) books: Mutex<Books>,
    pub(crate) settings: PushSettings,
    pub(crate) counters: Counters,
    pub(crate) clock: Clock,
    /// The responses of documents.
    pub(crate) pages: Pages,
    pub(crate) sockets: Sockets,
    pub(crate) keys: RwLock<PushKeys>,
    /// True if the documents are loaded. Those of Redis may arrive after the start.
    are_there: AtomicBool,
}

impl Documents {
    /// Creates the state. Documents in Redis are loaded later.
    pub(crate) fn new(books: Books, settings: PushSettings, keys: PushKeys) -> Arc<Self> {
        let are_there = AtomicBool::new(!books.is_shared);
        let documents = Arc::new(Self {
            books: Mutex::new(books),
            settings,
            counters: Counters::default(),
            clock: Clock::start(),
            pages: Pages::default(),
            sockets: Sockets::default(),
            keys: RwLock::new(keys),
            are_there,
        });
        documents.open_pages();
        documents
    }

    /// Commits a change: updates the response, the index and the subscribers.
    pub(crate) fn note(&self, change: &Arc<Change>) {
        let mut books = self.books.lock();
        // Before subscribers are notified, so that a request they make then gets the new version.
        let is_private = self.is_private(&change.name);
        self.pages.note(
            change,
            books.generations.version(change.number),
            (self.clock.now(), is_private),
        );
        let woken = books.note(change);
        drop(books);
        self.counters.changes.add_one();
        woken.into_iter().for_each(Woken::wake);
    }

    /// Records that a change of a document did not arrive here.
    pub(crate) fn note_missing(&self, name: &Name, number: u64) {
        let woken = self.books.lock().note_missing(name, number);
        woken.into_iter().for_each(Woken::wake);
    }

    /// Replaces all documents by a snapshot of Redis; returns the differences.
    pub(crate) fn take_over(&self, loaded: Loaded, beside: Beside) -> TakenOver {
        let now = self.clock.now();
        let mut books = self.books.lock();
        let mut taken = books.take_over(loaded, beside);
        // A document that still exists keeps its old response until it is replaced.
        let again: HashSet<_> = taken.changed.iter().map(|it| &it.name).collect();
        for name in taken.vanished.iter().filter(|it| !again.contains(it)) {
            self.pages.hide(name);
        }
        for change in &taken.changed {
            if change.has_expired(now) {
                self.pages.hide(&change.name);
            } else {
                let is_private = self.is_private(&change.name);
                self.pages.note(
                    change,
                    books.generations.version(change.number),
                    (now, is_private),
                );
            }
        }
        drop(books);
        self.are_there.store(true, Ordering::Release);
        self.counters.changes.add(taken.changed.len() as u64);
        taken.woken.drain(..).for_each(Woken::wake);
        taken.ahead.drain(..).for_each(Waker::wake);
        taken
    }

    /// Restores the response of a document, if this is its newest change.
    pub(crate) fn show(&self, change: &Change) {
        let books = self.books.lock();
        if books.is_now(change) {
            let is_private = self.is_private(&change.name);
            self.pages.note(
                change,
                books.generations.version(change.number),
                (self.clock.now(), is_private),
            );
        }
    }

    /// Returns whether the documents are loaded.
    pub(crate) fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Acquire)
    }

    /// Builds the responses of the loaded documents.
    fn open_pages(&self) {
        let (books, now) = (self.books.lock(), self.clock.now());
        for change in books.all() {
            if books.is_now(&change) && !change.has_expired(now) {
                let is_private = self.is_private(&change.name);
                self.pages.note(
                    &change,
                    books.generations.version(change.number),
                    (now, is_private),
                );
            }
        }
    }

    /// Returns whether cookies of other origins' pages matter: only private documents need them.
    pub(crate) const fn cookies(&self) -> WithCookies {
        if self.settings.private.is_empty() {
            WithCookies::No
        } else {
            WithCookies::Named
        }
    }
}

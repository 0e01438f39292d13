//! The memory budget of all bodies being received.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Fill;
use crate::serve::Clients;
use crate::sync::Mutex;

/// Bytes buffered for bodies under way, over all fills, beyond a free allowance per body.
///
/// Storable bodies arrive as fast as the origin sends and are soon complete. Bytes pinned by slow
/// readers may stay for long, so they get a share only: slow readers must not keep other bodies
/// from being stored.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    clients: Clients,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    arriving: u64,
    behind: u64,
    /// Fills with readers that have fallen behind.
    slow: Vec<Weak<Fill>>,
    /// The length at which the list is purged of completed fills.
    look_through_at: usize,
}

/// The budget charged for a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// A storable body that is not complete yet.
    Arriving(u64),
    /// Bytes of an unstored body that readers have not read yet.
    Behind(u64),
}

impl Charge {
    const fn bytes(self) -> u64 {
        match self {
            Self::Arriving(bytes) | Self::Behind(bytes) => bytes,
        }
    }
}

impl Budget {
    /// The divisor of the budget that slow readers may pin.
    const SLOW_SHARE: u64 = 2;

    /// At most `limit` bytes.
    pub(crate) fn new(limit: u64, clients: Clients) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            clients,
            books: Mutex::new(Books::default()),
        }
    }

    /// Changes the charge of an arriving body, if the budget allows.
    pub(super) fn grow(&self, charge: &mut Charge, bytes: u64) -> bool {
        let mut books = self.books.lock();
        let others = books.arriving + books.behind - charge.bytes();
        let fits = others + bytes <= self.limit();
        if fits {
            books.change(charge, Charge::Arriving(bytes));
        }
        fits
    }

    /// Changes the charge of readers that are behind. It is never refused, as the bytes are already
    /// there; see [`Self::shed`].
    pub(super) fn set_behind(&self, charge: &mut Charge, bytes: u64) {
        if *charge != Charge::Behind(bytes) {
            self.books.lock().change(charge, Charge::Behind(bytes));
        }
    }

    /// Returns the whole charge.
    pub(super) fn give_back(&self, charge: &mut Charge) {
        if charge.bytes() > 0 {
            self.books.lock().change(charge, Charge::Behind(0));
        }
    }

    /// Returns true if readers may fall behind by more than the free allowance.
    pub(super) fn has_room(&self) -> bool {
        let books = self.books.lock();
        books.behind < self.slow_limit() && books.arriving + books.behind < self.limit()
    }

    /// Adds a fill with slow readers.
    pub(super) fn watch(&self, fill: Weak<Fill>) {
        let mut books = self.books.lock();
        books.slow.push(fill);
        if books.slow.len() > books.look_through_at {
            books.slow.retain(|fill| fill.strong_count() > 0);
            books.look_through_at = 64 + 2 * books.slow.len();
        }
    }

    /// Drops the readers that have stalled longest while readers are behind by more than the limit.
    /// Readers that keep reading are never dropped: they soon finish, and all of them together are
    /// within the budget.
    pub(super) fn shed(&self) {
        // A program's own slow readers only delay the program itself.
        if self.clients == Clients::Program {
            return;
        }
        let fills: Vec<_> = {
            let mut books = self.books.lock();
            if books.behind <= self.slow_limit() {
                return;
            }
            books.slow.retain(|fill| fill.strong_count() > 0);
            books.slow.iter().filter_map(Weak::upgrade).collect()
        };
        let mut stalled: Vec<_> = fills.iter().flat_map(Fill::stalled).collect();
        stalled.sort_unstable_by_key(|reader| reader.since);
        for reader in stalled {
            if self.books.lock().behind <= self.slow_limit() {
                return;
            }
            reader.let_go();
        }
    }

    /// Replaces the limit. Bytes already buffered stay.
    pub(crate) fn rebound(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    fn slow_limit(&self) -> u64 {
        self.limit() / Self::SLOW_SHARE
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn used(&self) -> (u64, u64) {
        let books = self.books.lock();
        (books.arriving, books.behind)
    }
}

impl Books {
    fn change(&mut self, charge: &mut Charge, to: Charge) {
        *self.of(*charge) -= charge.bytes();
        *self.of(to) += to.bytes();
        *charge = to;
    }

    fn of(&mut self, charge: Charge) -> &mut u64 {
        match charge {
            Charge::Arriving(_) => &mut self.arriving,
            Charge::Behind(_) => &mut self.behind,
        }
    }
}

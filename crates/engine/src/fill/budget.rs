//! The memory budget of all bodies being received.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Fill;
use super::charge::FillCharge;
use crate::request::route::Clients;
use crate::sync::Mutex;

/// Bytes buffered for bodies under way, over all fills, beyond a free allowance per body.
///
/// Storable bodies arrive as fast as the origin sends and are soon complete. Bytes pinned by slow
/// readers may stay for long, so they get a share only: slow readers must not keep other bodies
/// from being stored.
#[derive(Debug)]
pub(crate) struct FillBudget {
    limit: AtomicU64,
    clients: Clients,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    arriving: u64,
    behind: u64,
    /// Fills with readers that have fallen behind.
    slow: Vec<Weak<Fill>>,
    /// The length at which the list is purged of completed fills.
    look_through_at: usize,
}

impl FillBudget {
    /// The divisor of the budget that slow readers may pin.
    const SLOW_SHARE: u64 = 2;

    /// At most `limit` bytes.
    pub(crate) fn new(limit: u64, clients: Clients) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            clients,
            state: Mutex::new(BudgetState::default()),
        }
    }

    /// Changes the charge of an arriving body, if the budget allows.
    pub(super) fn grow(&self, charge: &mut FillCharge, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let others = state.arriving + state.behind - charge.bytes();
        let fits = others + bytes <= self.limit();
        if fits {
            state.change(charge, FillCharge::Arriving(bytes));
        }
        fits
    }

    /// Changes the charge of readers that are behind. It is never refused, as the bytes are already
    /// there; see [`Self::shed`].
    pub(super) fn set_behind(&self, charge: &mut FillCharge, bytes: u64) {
        if *charge != FillCharge::Behind(bytes) {
            self.state.lock().change(charge, FillCharge::Behind(bytes));
        }
    }

    /// Returns the whole charge.
    pub(super) fn give_back(&self, charge: &mut FillCharge) {
        if charge.bytes() > 0 {
            self.state.lock().change(charge, FillCharge::Behind(0));
        }
    }

    /// Returns true if readers may fall behind by more than the free allowance.
    pub(super) fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.behind < self.slow_limit() && state.arriving + state.behind < self.limit()
    }

    /// Adds a fill with slow readers.
    pub(super) fn watch(&self, fill: Weak<Fill>) {
        let mut state = self.state.lock();
        state.slow.push(fill);
        if state.slow.len() > state.look_through_at {
            state.slow.retain(|fill| fill.strong_count() > 0);
            state.look_through_at = 64 + 2 * state.slow.len();
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
            let mut state = self.state.lock();
            if state.behind <= self.slow_limit() {
                return;
            }
            state.slow.retain(|fill| fill.strong_count() > 0);
            state.slow.iter().filter_map(Weak::upgrade).collect()
        };
        let mut stalled: Vec<_> = fills.iter().flat_map(Fill::stalled).collect();
        stalled.sort_unstable_by_key(|reader| reader.since);
        for reader in stalled {
            if self.state.lock().behind <= self.slow_limit() {
                return;
            }
            reader.release();
        }
    }

    /// Replaces the limit. Bytes already buffered stay.
    pub(crate) fn set_limit(&self, limit: u64) {
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
        let state = self.state.lock();
        (state.arriving, state.behind)
    }
}

impl BudgetState {
    fn change(&mut self, charge: &mut FillCharge, to: FillCharge) {
        *self.of(*charge) -= charge.bytes();
        *self.of(to) += to.bytes();
        *charge = to;
    }

    fn of(&mut self, charge: FillCharge) -> &mut u64 {
        match charge {
            FillCharge::Arriving(_) => &mut self.arriving,
            FillCharge::Behind(_) => &mut self.behind,
        }
    }
}

//! Those who wait for something to happen to one thing.

use std::task::Waker;

use slab::Slab;

/// All who wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    wakers: Slab<Waker>,
    /// How often they were woken.
    round: u64,
}

/// A place among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    round: u64,
    number: usize,
}

impl Waiting {
    /// Has this one woken when something happens. A place from earlier is taken again.
    pub(crate) fn wait(&mut self, seat: Option<Seat>, waker: &Waker) -> Seat {
        if let Some(seat) = seat.filter(|seat| seat.round == self.round)
            && let Some(known) = self.wakers.get_mut(seat.number)
        {
            known.clone_from(waker);
            return seat;
        }
        Seat {
            round: self.round,
            number: self.wakers.insert(waker.clone()),
        }
    }

    /// Something happens. Gives those who are to be woken.
    pub(crate) fn happen(&mut self) -> Slab<Waker> {
        self.round += 1;
        std::mem::take(&mut self.wakers)
    }

    /// One of them waits no more.
    pub(crate) fn leave(&mut self, seat: Seat) {
        if seat.round == self.round {
            self.wakers.try_remove(seat.number);
        }
    }

    /// Whether nothing has happened since this place was taken.
    pub(crate) fn is_quiet(&self, seat: Option<Seat>) -> bool {
        seat.is_some_and(|seat| seat.round == self.round)
    }
}

/// To be done without the lock of whatever they wait for.
pub(crate) fn wake(all: Slab<Waker>) {
    all.into_iter().for_each(|(_, waker)| waker.wake());
}

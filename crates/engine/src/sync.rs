//! The locks the engine uses, and wakers under them. Under `--cfg shuttle` the locks are
//! shuttle's, so that `cache/shuttle.rs` can try many orders in which threads meet.

use std::task::Waker;

use slab::Slab;

#[cfg(not(shuttle))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64};
#[cfg(shuttle)]
pub(crate) use under_shuttle::{Mutex, MutexGuard, RwLock};

#[cfg(shuttle)]
mod under_shuttle {
    pub(crate) use shuttle::sync::MutexGuard;
    use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

    /// shuttle's lock in parking_lot's shape.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no test panics under the lock")
        }
    }

    /// The same of its lock for many readers.
    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("no test panics under the lock")
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("no test panics under the lock")
        }
    }
}

/// Tasks that wait for the same thing. Each has a place, and a waker there while it waits.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    places: Slab<Option<Waker>>,
}

/// A place among the [`Wakers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

impl Place {
    /// Its number; low ones are used again.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

impl Wakers {
    /// Takes a place. Give it back with [`Self::leave`].
    pub(crate) fn take_place(&mut self) -> Place {
        Place(self.places.insert(None))
    }

    /// Waits at `place` for the next [`Self::take_all`].
    pub(crate) fn wait(&mut self, place: Place, waker: &Waker) {
        match &mut self.places[place.0] {
            Some(known) => known.clone_from(waker),
            vacant => *vacant = Some(waker.clone()),
        }
    }

    /// Gives a place back.
    pub(crate) fn leave(&mut self, place: Place) {
        self.places.remove(place.0);
    }

    /// The number of waiters.
    pub(crate) fn taken(&self) -> usize {
        self.places.len()
    }

    /// The places that are taken.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.places.iter().map(|(place, _)| Place(place))
    }

    /// Everyone who waits, to be woken when the lock is free again.
    #[must_use]
    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        let waiting = self.places.iter_mut();
        waiting.filter_map(|(_, waker)| waker.take()).collect()
    }
}

/// Wakes them all.
pub(crate) fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

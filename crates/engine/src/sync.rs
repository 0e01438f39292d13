//! The engine's locks, and wakers under them. Under `--cfg shuttle` the locks are shuttle's, so
//! that `cache/shuttle.rs` can try many interleavings.

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

    /// shuttle's mutex with parking_lot's interface.
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

    /// shuttle's read-write lock with parking_lot's interface.
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

/// Tasks waiting for the same event. Each has a slot, with a waker while it waits.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    places: Slab<Option<Waker>>,
}

/// A slot among the [`Wakers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakerSlot(usize);

impl WakerSlot {
    /// The index; low ones are reused.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

impl Wakers {
    /// Takes a slot. Return it with [`Self::leave`].
    pub(crate) fn take_slot(&mut self) -> WakerSlot {
        WakerSlot(self.places.insert(None))
    }

    /// Waits in the slot for the next [`Self::take_all`].
    pub(crate) fn wait(&mut self, place: WakerSlot, waker: &Waker) {
        match &mut self.places[place.0] {
            Some(known) => known.clone_from(waker),
            vacant => *vacant = Some(waker.clone()),
        }
    }

    /// Returns a slot.
    pub(crate) fn leave(&mut self, place: WakerSlot) {
        self.places.remove(place.0);
    }

    /// The number of waiters.
    pub(crate) fn taken(&self) -> usize {
        self.places.len()
    }

    /// The slots in use.
    pub(crate) fn places(&self) -> impl Iterator<Item = WakerSlot> {
        self.places.iter().map(|(place, _)| WakerSlot(place))
    }

    /// Takes the wakers of all waiting tasks, to be woken after the lock is released.
    #[must_use]
    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        let waiting = self.places.iter_mut();
        waiting.filter_map(|(_, waker)| waker.take()).collect()
    }
}

/// Wakes all tasks.
pub(crate) fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

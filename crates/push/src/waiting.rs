//! A list of tasks that wait for one thing to change.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;

use slab::Slab;
use smallvec::SmallVec;

use crate::bell::Bell;

/// All waiting tasks, grouped by thread.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    rooms: SmallVec<[Room; 1]>,
    /// Number of notifications so far; it invalidates older registrations.
    round: u64,
}

/// The waiting tasks of one thread.
#[derive(Debug)]
struct Room {
    bell: Option<Arc<Bell>>,
    wakers: Slab<Waker>,
}

/// A task's entry in a [`WaitList`]. `Option<Registration>` is no larger: there is one per subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    round: NonZeroU64,
    room: u32,
    number: u32,
}

/// The tasks to wake, taken out so that they are woken without holding the lock around the list.
#[must_use]
pub(crate) struct Woken(SmallVec<[Room; 1]>);

impl Waiting {
    /// Registers a task for the next notification, or replaces the waker of an existing registration.
    pub(crate) fn wait(&mut self, seat: Option<Seat>, waker: &Waker) -> Seat {
        if let Some(seat) = seat.filter(|seat| seat.round == self.this_round())
            && let Some(room) = self.rooms.get_mut(seat.room as usize)
            && let Some(known) = room.wakers.get_mut(seat.number as usize)
        {
            known.clone_from(waker);
            return seat;
        }
        let room = self.room();
        Seat {
            round: self.this_round(),
            room: room as u32,
            number: self.rooms[room].wakers.insert(waker.clone()) as u32,
        }
    }

    fn this_round(&self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.round)
    }

    /// Returns the index of the current thread's group, adding it if necessary.
    fn room(&mut self) -> usize {
        let bell = Bell::here();
        let address = |bell: &Option<Arc<Bell>>| bell.as_ref().map(Arc::as_ptr);
        let mut rooms = self.rooms.iter();
        let known = rooms.position(|room| address(&room.bell) == address(&bell));
        known.unwrap_or_else(|| {
            let wakers = Slab::new();
            self.rooms.push(Room { bell, wakers });
            self.rooms.len() - 1
        })
    }

    /// Notifies: removes all registrations and returns their tasks.
    pub(crate) fn happen(&mut self) -> Woken {
        self.round += 1;
        Woken(std::mem::take(&mut self.rooms))
    }

    /// Removes one registration.
    pub(crate) fn leave(&mut self, seat: Seat) {
        if seat.round == self.this_round()
            && let Some(room) = self.rooms.get_mut(seat.room as usize)
        {
            room.wakers.try_remove(seat.number as usize);
        }
    }

    /// Returns whether the registration is still valid: nothing has been notified since.
    pub(crate) fn is_quiet(&self, seat: Option<Seat>) -> bool {
        seat.is_some_and(|seat| seat.round == self.this_round())
    }
}

impl Woken {
    pub(crate) fn wake(self) {
        for Room { bell, wakers } in self.0 {
            match bell {
                // A single task is woken as cheaply without a batch.
                Some(bell) if wakers.len() > 1 => bell.ring(wakers),
                _ => wakers.into_iter().for_each(|(_, waker)| waker.wake()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::thread;

    use super::*;
    use parking_lot::Mutex;
    use tokio::runtime::Builder;

    #[test]
    fn all_are_woken_on_whatever_thread_they_wait() {
        let waiting = Arc::new(Mutex::new((0, Waiting::default())));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let waiting = Arc::clone(&waiting);
                thread::spawn(move || {
                    let runtime = Builder::new_current_thread().build().expect("a runtime");
                    let each = (0..50).map(|_| {
                        let (waiting, mut seat) = (Arc::clone(&waiting), None);
                        runtime.spawn(poll_fn(move |cx| {
                            let mut waiting = waiting.lock();
                            if waiting.0 == 100 {
                                return Poll::Ready(());
                            }
                            seat = Some(waiting.1.wait(seat, cx.waker()));
                            Poll::Pending
                        }))
                    });
                    let each: Vec<_> = each.collect();
                    runtime.block_on(async {
                        for one in each {
                            one.await.expect("no panic");
                        }
                    });
                })
            })
            .collect();
        for _ in 0..100 {
            let mut all = waiting.lock();
            all.0 += 1;
            let woken = all.1.happen();
            drop(all);
            woken.wake();
            thread::yield_now();
        }
        for thread in threads {
            thread.join().expect("all are told");
        }
    }
}

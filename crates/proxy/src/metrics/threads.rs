//! Per-thread counters, written with plain loads and stores.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Concurrent threads with counters of their own. The others share one set with atomic additions.
const THREADS: usize = 256;
const SHARED: usize = THREADS;
const UNKNOWN: usize = usize::MAX;

/// One value per thread, created on first use.
pub(super) struct PerThread<T>(Box<[OnceLock<Box<T>>]>);

/// Concurrency of writes to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteMode {
    /// One thread writes it.
    Alone,
    /// Several threads write it.
    Many,
}

impl WriteMode {
    /// Adds to a counter.
    pub(super) fn add(self, cell: &AtomicU64, more: u64) {
        match self {
            Self::Alone => {
                let sum = cell.load(Ordering::Relaxed).wrapping_add(more);
                cell.store(sum, Ordering::Relaxed);
            }
            Self::Many => {
                cell.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
}

impl<T> PerThread<T> {
    pub(super) fn new() -> Self {
        Self((0..=SHARED).map(|_| OnceLock::new()).collect())
    }

    /// Returns this thread's value, and how to write it.
    pub(super) fn mine(&self, make: impl FnOnce() -> T) -> (&T, WriteMode) {
        let number = number();
        let writer = if number == SHARED {
            WriteMode::Many
        } else {
            WriteMode::Alone
        };
        (self.0[number].get_or_init(|| Box::new(make())), writer)
    }

    /// Iterates over the values of all threads.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get).map(Box::as_ref)
    }
}

/// Thread numbers that are free. A number is reused, with its counters, after its thread has ended.
static NUMBERS: Mutex<ThreadNumbers> = Mutex::new(ThreadNumbers {
    next: 0,
    free: Vec::new(),
});

struct ThreadNumbers {
    next: usize,
    free: Vec<usize>,
}

/// A thread's number, released on drop.
struct ThreadNumber(usize);

thread_local! {
    /// Separate from `SEAT`, because a thread local without a destructor is read without a check.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static SEAT: ThreadNumber = ThreadNumber::take();
}

impl ThreadNumber {
    fn take() -> Self {
        let mut numbers = NUMBERS.lock();
        let number = numbers.free.pop().unwrap_or_else(|| {
            let number = numbers.next;
            numbers.next = (number + 1).min(SHARED);
            number
        });
        Self(number)
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        // For counts while the thread ends.
        NUMBER.set(SHARED);
        if self.0 != SHARED {
            NUMBERS.lock().free.push(self.0);
        }
    }
}

fn number() -> usize {
    match NUMBER.get() {
        UNKNOWN => {
            let number = SEAT.try_with(|seat| seat.0).unwrap_or(SHARED);
            NUMBER.set(number);
            number
        }
        number => number,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn counts_of_many_threads_are_added_up() {
        let cells: Arc<PerThread<AtomicU64>> = Arc::new(PerThread::new());
        // More than there are cells for, one after the other and at the same time.
        for _ in 0..2 {
            let threads: Vec<_> = (0..THREADS + 20)
                .map(|_| {
                    let cells = Arc::clone(&cells);
                    thread::spawn(move || {
                        for _ in 0..1000 {
                            let (cell, writer) = cells.mine(AtomicU64::default);
                            writer.add(cell, 1);
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().expect("it counts");
            }
        }
        let sum: u64 = cells.all().map(|cell| cell.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 2 * (THREADS as u64 + 20) * 1000);
    }
}

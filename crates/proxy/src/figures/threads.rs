//! Cells for each thread: only that thread writes them, with plain loads and stores.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Threads at a time that have cells of their own. Those beyond share one, which costs them more and is
/// as right.
const THREADS: usize = 256;
const SHARED: usize = THREADS;
const UNKNOWN: usize = usize::MAX;

/// What each thread has one of. It is made when the thread first needs it.
pub(super) struct PerThread<T>(Box<[OnceLock<Box<T>>]>);

/// Who writes a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// The thread that it belongs to, and nobody else.
    Alone,
    /// Whoever comes.
    Many,
}

impl Writer {
    /// Adds to a cell.
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

    /// This thread's, and how it is to be written.
    pub(super) fn mine(&self, make: impl FnOnce() -> T) -> (&T, Writer) {
        let number = number();
        let writer = if number == SHARED {
            Writer::Many
        } else {
            Writer::Alone
        };
        (self.0[number].get_or_init(|| Box::new(make())), writer)
    }

    /// Those that there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get).map(Box::as_ref)
    }
}

/// Numbers that no thread has. One that ends gives its number back, and the next one goes on in its
/// cells.
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers {
    next: 0,
    free: Vec::new(),
});

struct Numbers {
    next: usize,
    free: Vec<usize>,
}

/// The right to a number.
struct Seat(usize);

thread_local! {
    /// Beside the seat, because what has nothing to drop is had without a check.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static SEAT: Seat = Seat::take();
}

impl Seat {
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

impl Drop for Seat {
    fn drop(&mut self) {
        // Whatever this thread still counts while it ends.
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
    fn what_many_threads_count_at_once_is_all_counted() {
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

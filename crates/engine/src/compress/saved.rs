//! Bytes saved by compression, counted on many threads: each thread has a slot of its own, as long
//! as there are enough.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use microcache_policy::SentCoding;

const PLACES: usize = 16;

#[derive(Default)]
pub(super) struct Saved([CounterSlot; PLACES]);

/// A slot the size of a CPU cache line.
#[derive(Default)]
#[repr(align(64))]
struct CounterSlot {
    /// Responses sent compressed, by coding.
    answers: [AtomicU64; SentCoding::ALL.len()],
    bytes: AtomicU64,
}

thread_local! {
    static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

impl Saved {
    pub(super) fn note(&self, coding: SentCoding, bytes: u64) {
        let number = PLACE.get().unwrap_or_else(|| {
            let number = THREADS.fetch_add(1, Ordering::Relaxed) % PLACES;
            PLACE.set(Some(number));
            number
        });
        let place = &self.0[number];
        place.answers[coding.index()].fetch_add(1, Ordering::Relaxed);
        place.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Responses by coding, and bytes saved.
    pub(super) fn all(&self) -> ([u64; SentCoding::ALL.len()], u64) {
        let count = |one: &AtomicU64| one.load(Ordering::Relaxed);
        let answers = |at: usize| self.0.iter().map(|place| count(&place.answers[at])).sum();
        let bytes = self.0.iter().map(|place| count(&place.bytes));
        (std::array::from_fn(answers), bytes.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_of_all_threads_are_added_up() {
        let saved = Saved::default();
        std::thread::scope(|scope| {
            for number in 0..PLACES + 4 {
                let coding = SentCoding::ALL[number % 4];
                let saved = &saved;
                scope.spawn(move || (0..100).for_each(|_| saved.note(coding, 3)));
            }
        });
        assert_eq!(saved.all(), ([500, 500, 500, 500, 0], 6000));
    }
}

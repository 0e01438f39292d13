//! What became of a request. Every request has one outcome; counters read them, nobody else.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered from a fresh stored response.
    Hit,
    /// Answered from a stale one while it was refreshed, or because the origin failed.
    Stale,
    /// Answered from a stored response that the origin confirmed first.
    Revalidated,
    /// Answered by the origin.
    Miss,
    /// Answered by the fetch that somebody else had begun.
    Collapsed,
    /// Sent to the origin without the cache.
    Pass,
    /// Answered with an error of our own.
    Error,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Hit,
        Self::Stale,
        Self::Revalidated,
        Self::Miss,
        Self::Collapsed,
        Self::Pass,
        Self::Error,
    ];

    /// The word that logs and metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
            Self::Collapsed => "collapsed",
            Self::Pass => "pass",
            Self::Error => "error",
        }
    }
}

/// Counts per thread, so that no two cores share a line; added up when somebody asks.
#[derive(Debug)]
pub struct Counters {
    cells: Box<[Cell]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    origin_requests: AtomicU64,
}

impl Counters {
    /// Threads beyond this share cells, which is slower and just as right.
    const CELLS: usize = 64;

    /// All zero.
    pub fn new() -> Self {
        Self {
            cells: (0..Self::CELLS).map(|_| Cell::default()).collect(),
        }
    }

    /// Counts a request that the engine knows nothing of, or that it ran into a fault with. All others it
    /// counts itself.
    pub fn count(&self, outcome: Outcome) {
        self.cell().outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A request that was counted has come to something else.
    pub fn count_instead(&self, outcome: Outcome, counted: Outcome) {
        self.take_back(counted);
        self.count(outcome);
    }

    /// A request that was counted is not answered yet.
    pub(crate) fn take_back(&self, counted: Outcome) {
        self.cell().outcomes[counted as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a request to the origin.
    pub fn count_origin_request(&self) {
        self.cell().origin_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests with this outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.sum(|cell| &cell.outcomes[outcome as usize])
    }

    /// Requests sent to the origin.
    pub fn origin_requests(&self) -> u64 {
        self.sum(|cell| &cell.origin_requests)
    }

    fn sum(&self, counter: impl Fn(&Cell) -> &AtomicU64) -> u64 {
        // What one thread has counted another one may have taken back.
        self.cells
            .iter()
            .map(|cell| counter(cell).load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }

    fn cell(&self) -> &Cell {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        &self.cells[THREAD.with(|&thread| thread) % Self::CELLS]
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

//! A bounded number of renders at a time, and what each of them costs.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::counters::Counters;
use super::settings::{PageSettings, WorkKind};

/// Those who render, and the queue before them.
pub(super) struct Workers {
    seats: Arc<Semaphore>,
    waiting: AtomicUsize,
    queue: usize,
}

/// Nobody is free, and the queue is full.
pub(super) struct Busy;

impl Workers {
    pub(super) fn new(workers: usize, queue: usize) -> Self {
        Self {
            seats: Arc::new(Semaphore::new(workers)),
            waiting: AtomicUsize::new(0),
            queue,
        }
    }

    /// Waits for a worker and for its render. The render is finished even if nobody wants it any
    /// more, as applications do; only who still queues can leave.
    pub(super) async fn render(
        &self,
        page: &PageSettings,
        url: &str,
        counters: &Arc<Counters>,
    ) -> Result<(), Busy> {
        let seats = Arc::clone(&self.seats);
        let seat = if let Ok(seat) = Arc::clone(&seats).try_acquire_owned() {
            seat
        } else {
            let _place = self.place().ok_or(Busy)?;
            seats.acquire_owned().await.map_err(|_| Busy)?
        };
        let render = counters.render(url);
        let (work, kind) = (page.work, page.work_kind);
        if work.is_zero() {
            return Ok(());
        }
        let done = match kind {
            WorkKind::Cpu => spawn_blocking(move || {
                burn(work);
                drop((render, seat));
            }),
            WorkKind::Sleep => tokio::spawn(async move {
                tokio::time::sleep(work).await;
                drop((render, seat));
            }),
        };
        done.await.map_err(|_| Busy)
    }

    fn place(&self) -> Option<Place<'_>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Place(&self.waiting);
        (before < self.queue).then_some(place)
    }
}

/// A place in the queue, free again when its holder has gone.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Computes until this thread has used so much time of a processor, however long that takes.
fn burn(work: Duration) {
    let end = thread_time() + work;
    let mut number = 1_u64;
    while thread_time() < end {
        for _ in 0..10_000 {
            number = black_box(
                number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

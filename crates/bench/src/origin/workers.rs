//! Worker pool: bounded concurrency of renders, and their cost.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::counters::OriginCounters;
use super::settings::{PageSettings, WorkKind};

/// Worker pool with a bounded queue.
pub(super) struct WorkerPool {
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    queue: usize,
}

/// Error: all workers are busy and the queue is full.
pub(super) struct QueueFull;

impl WorkerPool {
    pub(super) fn new(workers: usize, queue: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(workers)),
            waiting: AtomicUsize::new(0),
            queue,
        }
    }

    /// Waits for a worker and its render. A render that has started is completed even if the client
    /// disconnects, as in real applications; a queued one is cancelled.
    pub(super) async fn render(
        &self,
        page: &PageSettings,
        url: &str,
        counters: &Arc<OriginCounters>,
    ) -> Result<(), QueueFull> {
        let slots = Arc::clone(&self.slots);
        let slot = if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
            slot
        } else {
            let _queued = self.enqueue().ok_or(QueueFull)?;
            slots.acquire_owned().await.map_err(|_| QueueFull)?
        };
        let render = counters.render(url);
        let (work, kind) = (page.work, page.work_kind);
        if work.is_zero() {
            return Ok(());
        }
        let done = match kind {
            WorkKind::Cpu => spawn_blocking(move || {
                burn(work);
                drop((render, slot));
            }),
            WorkKind::Sleep => tokio::spawn(async move {
                tokio::time::sleep(work).await;
                drop((render, slot));
            }),
        };
        done.await.map_err(|_| QueueFull)
    }

    fn enqueue(&self) -> Option<QueuePlace<'_>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = QueuePlace(&self.waiting);
        (before < self.queue).then_some(place)
    }
}

/// Place in the queue, released on drop.
struct QueuePlace<'a>(&'a AtomicUsize);

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Computes until this thread has used `work` of CPU time.
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

//! I/O pool: blocking file operations with bounded concurrency, a timeout and a circuit breaker.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::error::DiskFailure;
use super::health::PoolHealth;
use crate::tier::TierError;

/// Pool for one kind of operation.
pub(crate) struct IoPool {
    handle: Handle,
    places: Arc<Semaphore>,
    all: usize,
    /// `true` if the pool is stopped.
    is_off: AtomicBool,
    deadline: Duration,
    pub(crate) health: PoolHealth,
}

impl IoPool {
    pub(crate) fn new(
        handle: &Handle,
        places: usize,
        deadline: Duration,
        health: PoolHealth,
    ) -> Self {
        Self {
            handle: handle.clone(),
            places: Arc::new(Semaphore::new(places)),
            all: places,
            is_off: AtomicBool::new(false),
            deadline,
            health,
        }
    }

    /// Runs a job. After a timeout it continues and keeps its slot, but the caller gets an error.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, DiskFailure> + Send + 'static,
    ) -> Result<T, TierError> {
        let done = self.run_minor(job).await;
        done.inspect(|_| self.health.worked())
    }

    /// Runs a job whose success does not reset the health state: removals succeed on a full disk, writes do
    /// not.
    pub(crate) async fn run_minor<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, DiskFailure> + Send + 'static,
    ) -> Result<T, TierError> {
        if self.is_off() || !self.health.admits() {
            return Err(TierError::Down);
        }
        let work = async {
            let place = Arc::clone(&self.places).acquire_owned().await;
            if self.is_off() {
                return Ok(Err(DiskFailure::GivenUp));
            }
            let job = self.handle.spawn_blocking(move || {
                let done = job();
                drop(place);
                done
            });
            job.await
        };
        match tokio::time::timeout(self.deadline, work).await {
            Ok(Ok(Ok(done))) => Ok(done),
            Ok(Ok(Err(failure))) => {
                if let DiskFailure::Disk(error) = &failure {
                    self.health.failed(error);
                }
                Err(failure.into())
            }
            Ok(Err(ended)) => Err(TierError::Failed(ended.to_string())),
            Err(_) => {
                self.health.failed(&"timeout");
                Err(TierError::Timeout)
            }
        }
    }

    /// Rejects new jobs and waits for those in progress.
    pub(crate) async fn stop(&self) {
        self.is_off.store(true, Ordering::SeqCst);
        let all = u32::try_from(self.all).unwrap_or(u32::MAX);
        // A hanging job is not waited for beyond its deadline.
        let _ = tokio::time::timeout(self.deadline, self.places.acquire_many(all)).await;
    }

    /// Accepts jobs again.
    pub(crate) fn resume(&self) {
        self.is_off.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }

    /// Drops a value on a blocking thread, since that may close or free a file.
    pub(crate) fn dispose(&self, what: impl Send + 'static) {
        self.handle.spawn_blocking(move || drop(what));
    }
}

impl fmt::Debug for IoPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoPool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_full_disk_stays_reported_after_a_small_write() {
        let health = PoolHealth::new("writing", Duration::ZERO);
        let pool = IoPool::new(&Handle::current(), 2, Duration::from_mins(1), health);
        let full = || Err::<(), _>(DiskFailure::Disk(io::ErrorKind::StorageFull.into()));
        assert!(pool.run(full).await.is_err());
        assert_eq!(pool.run_minor(|| Ok(())).await, Ok(()));
        assert!(pool.health.report().is_some());
        assert_eq!(pool.run(|| Ok(())).await, Ok(()));
        assert_eq!(pool.health.report(), None);
    }

    #[tokio::test]
    async fn a_disk_that_hangs_keeps_its_threads_and_nothing_else() {
        let health = PoolHealth::new("reading", Duration::from_hours(1));
        let pool = IoPool::new(&Handle::current(), 2, Duration::from_millis(20), health);
        let (release, hang) = channel::<()>();
        let hang = Arc::new(parking_lot::Mutex::new(hang));
        for _ in 0..3 {
            let hang = Arc::clone(&hang);
            let job = move || {
                let _ = hang.lock().recv();
                Ok(())
            };
            assert_eq!(pool.run(job).await, Err(TierError::Timeout));
        }
        assert_eq!(
            pool.places.available_permits(),
            0,
            "two hang, the third waits"
        );
        assert_eq!(pool.run(|| Ok(())).await, Err(TierError::Down));
        let report = pool.health.report().expect("there is trouble");
        assert!(report.starts_with("reading: timeout"), "{report}");
        drop(release);
        assert!(pool.places.acquire_many(2).await.is_ok(), "both came back");
    }
}

//! Work on the disk, away from the threads that serve: so much of it at once, so long, and only
//! while it makes sense.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::DiskFailure;
use super::health::Health;
use crate::tier::TierError;

/// Those who do one kind of work.
pub(crate) struct Crew {
    handle: Handle,
    places: Arc<Semaphore>,
    all: usize,
    /// Nothing is to be done any more.
    is_off: AtomicBool,
    deadline: Duration,
    pub(crate) health: Health,
}

impl Crew {
    pub(crate) fn new(handle: &Handle, places: usize, deadline: Duration, health: Health) -> Self {
        Self {
            handle: handle.clone(),
            places: Arc::new(Semaphore::new(places)),
            all: places,
            is_off: AtomicBool::new(false),
            deadline,
            health,
        }
    }

    /// Has a job done. If that takes too long it goes on, and keeps its place, but nobody waits.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, DiskFailure> + Send + 'static,
    ) -> Result<T, TierError> {
        let done = self.run_minor(job).await;
        done.inspect(|_| self.health.worked())
    }

    /// The same with a job whose success does not end a trouble: a full disk takes a removal, and nothing else.
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
                self.health.failed(&"no answer in time");
                Err(TierError::Timeout)
            }
        }
    }

    /// Takes no more jobs, and waits for those that are under way.
    pub(crate) async fn stop(&self) {
        self.is_off.store(true, Ordering::SeqCst);
        let all = u32::try_from(self.all).unwrap_or(u32::MAX);
        // One that hangs is not waited for longer than anybody else would.
        let _ = tokio::time::timeout(self.deadline, self.places.acquire_many(all)).await;
    }

    /// Takes jobs again.
    pub(crate) fn resume(&self) {
        self.is_off.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }

    /// Lets go of something for which the system may have work to do.
    pub(crate) fn dispose(&self, what: impl Send + 'static) {
        self.handle.spawn_blocking(move || drop(what));
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn what_a_full_disk_takes_does_not_end_its_trouble() {
        let health = Health::new("writing", Duration::ZERO);
        let crew = Crew::new(&Handle::current(), 2, Duration::from_mins(1), health);
        let full = || Err::<(), _>(DiskFailure::Disk(io::ErrorKind::StorageFull.into()));
        assert!(crew.run(full).await.is_err());
        assert_eq!(crew.run_minor(|| Ok(())).await, Ok(()));
        assert!(crew.health.report().is_some());
        assert_eq!(crew.run(|| Ok(())).await, Ok(()));
        assert_eq!(crew.health.report(), None);
    }

    #[tokio::test]
    async fn a_disk_that_hangs_keeps_its_threads_and_nothing_else() {
        let health = Health::new("reading", Duration::from_hours(1));
        let crew = Crew::new(&Handle::current(), 2, Duration::from_millis(20), health);
        let (release, hang) = channel::<()>();
        let hang = Arc::new(parking_lot::Mutex::new(hang));
        for _ in 0..3 {
            let hang = Arc::clone(&hang);
            let job = move || {
                let _ = hang.lock().recv();
                Ok(())
            };
            assert_eq!(crew.run(job).await, Err(TierError::Timeout));
        }
        assert_eq!(
            crew.places.available_permits(),
            0,
            "two hang, the third waits"
        );
        assert_eq!(crew.run(|| Ok(())).await, Err(TierError::Down));
        let report = crew.health.report().expect("there is trouble");
        assert!(report.starts_with("reading: no answer in time"), "{report}");
        drop(release);
        assert!(crew.places.acquire_many(2).await.is_ok(), "both came back");
    }
}

//! Work on the disk, away from the threads that serve: so much of it at once, so long, and only
//! while it makes sense.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::Failure;
use super::health::Health;
use crate::tier::TierError;

/// Those who do one kind of work.
pub(super) struct Crew {
    handle: Handle,
    places: Arc<Semaphore>,
    deadline: Duration,
    pub(super) health: Health,
}

impl Crew {
    pub(super) fn new(handle: &Handle, places: usize, deadline: Duration, health: Health) -> Self {
        Self {
            handle: handle.clone(),
            places: Arc::new(Semaphore::new(places)),
            deadline,
            health,
        }
    }

    /// Has a job done. If that takes too long it goes on, and keeps its place, but nobody waits.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, TierError> {
        if !self.health.admits() {
            return Err(TierError::Down);
        }
        let work = async {
            let place = Arc::clone(&self.places).acquire_owned().await;
            let job = self.handle.spawn_blocking(move || {
                let done = job();
                drop(place);
                done
            });
            job.await
        };
        match tokio::time::timeout(self.deadline, work).await {
            Ok(Ok(Ok(done))) => {
                self.health.worked();
                Ok(done)
            }
            Ok(Ok(Err(failure))) => {
                if let Failure::Disk(error) = &failure {
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

    /// Lets go of something for which the system may have work to do.
    pub(super) fn dispose(&self, what: impl Send + 'static) {
        self.handle.spawn_blocking(move || drop(what));
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").finish_non_exhaustive()
    }
}

//! Job queue of a tier: jobs of one key in order, since a record stored before a purge must not arrive after
//! it; jobs of different keys concurrently, up to a limit.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;
use microcache_policy::VaryNames;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::memory::Hit;
use crate::tier::{EntryId, Token};

/// Maximum of concurrently processed keys.
pub(super) const AT_ONCE: usize = 16;
/// Additional concurrency for removals, so that hanging stores do not delay them.
const REMOVALS_AT_ONCE: usize = 16;
/// Maximum of queued removals. Further ones fail, and the caller must remember what not to use.
pub const MAX_QUEUED_REMOVALS: usize = 64 * 1024;

/// Response in the write queue.
#[derive(Debug)]
pub(super) struct StoreJob {
    pub(super) key: Box<[u8]>,
    pub(super) response: Hit,
    pub(super) expires: Duration,
    pub(super) claim: Option<(EntryId, Token)>,
    pub(super) charged: u64,
}

/// Background job.
#[derive(Debug)]
pub(super) enum TierJob {
    Store(Box<StoreJob>),
    /// Reports whether the record is gone.
    Remove(EntryId, Vec<oneshot::Sender<bool>>),
    RemoveVariant {
        key: Box<[u8]>,
        names: VaryNames,
        selection: Box<[u8]>,
    },
    Release(EntryId, Token),
    /// Marks the responses of a key as not storable for a while, which also releases the claim.
    MarkUnstorable {
        key: Box<[u8]>,
        claim: (EntryId, Token),
        lasts: Duration,
    },
}

/// Job queue with one lane per key.
#[derive(Debug, Default)]
pub(super) struct TierJobQueue {
    state: Mutex<JobQueueState>,
    idle: Notify,
}

#[derive(Debug, Default)]
struct JobQueueState {
    lanes: HashMap<EntryId, KeyLane, RandomState>,
    /// Lanes whose next job may start; entries of busy lanes are skipped.
    ready: VecDeque<EntryId>,
    /// Lanes whose next job is a removal.
    urgent: VecDeque<EntryId>,
    /// Number of workers.
    workers: usize,
    removals: usize,
}

/// Lane of a key, which exists while it has jobs queued or in progress.
#[derive(Debug, Default)]
struct KeyLane {
    jobs: VecDeque<TierJob>,
    is_busy: bool,
}

impl KeyLane {
    /// Takes the waiters of a queued removal of the whole key, which is always the first job.
    fn take_removal_of(&mut self, id: EntryId) -> Vec<oneshot::Sender<bool>> {
        match self.jobs.pop_front() {
            Some(TierJob::Remove(base, waiters)) if base == id => waiters,
            Some(other) => {
                self.jobs.push_front(other);
                Vec::new()
            }
            None => Vec::new(),
        }
    }
}

impl TierJob {
    /// Number of queued removals that the job represents.
    const fn removals(&self) -> usize {
        match self {
            Self::Remove(_, waiters) => waiters.len(),
            Self::RemoveVariant { .. } => 1,
            Self::Store(_) | Self::Release(..) | Self::MarkUnstorable { .. } => 0,
        }
    }

    const fn is_removal(&self) -> bool {
        matches!(self, Self::Remove(..) | Self::RemoveVariant { .. })
    }
}

impl TierJobQueue {
    /// Appends a job to the lane of a key. Returns whether another worker is to be started; see
    /// [`TierJobQueue::next`].
    pub(super) fn add(&self, lane: EntryId, job: TierJob) -> Result<bool, TooManyRemovals> {
        let mut state = self.state.lock();
        if job.is_removal() {
            state.count_removal()?;
        }
        state.lanes.entry(lane).or_default().jobs.push_back(job);
        Ok(state.make_ready(lane))
    }

    /// Queues the removal of all records of a key, cancelling other jobs in its lane, and returns the
    /// cancelled stores. A queued removal of the key is reused.
    pub(super) fn remove(
        &self,
        id: EntryId,
        done: oneshot::Sender<bool>,
    ) -> Result<(bool, Vec<StoreJob>), TooManyRemovals> {
        let mut state = self.state.lock();
        state.count_removal()?;
        let lane = state.lanes.entry(id).or_default();
        let mut removal = lane.take_removal_of(id);
        removal.push(done);
        let (mut stores, mut releases, mut variants) = (Vec::new(), VecDeque::new(), 0);
        for job in lane.jobs.drain(..) {
            match job {
                TierJob::Store(storing) => stores.push(*storing),
                // Removal of a damaged record, without waiters.
                TierJob::Remove(..) | TierJob::RemoveVariant { .. } => variants += job.removals(),
                TierJob::Release(..) => releases.push_back(job),
                TierJob::MarkUnstorable {
                    claim: (id, token), ..
                } => releases.push_back(TierJob::Release(id, token)),
            }
        }
        lane.jobs = releases;
        lane.jobs.push_front(TierJob::Remove(id, removal));
        state.removals -= variants;
        Ok((state.make_ready(id), stores))
    }

    /// Returns the next job, and locks its lane until [`TierJobQueue::done`]. `None` if the worker is to end.
    pub(super) fn next(&self) -> Option<(EntryId, TierJob)> {
        let mut state = self.state.lock();
        let next = state.take();
        if next.is_none() {
            state.workers -= 1;
        }
        next
    }

    /// Unlocks the lane of a completed job.
    pub(super) fn done(&self, lane: EntryId) {
        let mut state = self.state.lock();
        state.end(lane);
        if state.lanes.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// Records that a worker has ended unexpectedly.
    pub(super) fn lost_worker(&self) {
        self.state.lock().workers -= 1;
    }

    /// Waits until there are no jobs.
    pub(super) async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.state.lock().lanes.is_empty() {
                return;
            }
            idle.await;
        }
    }
}

/// Error: [`MAX_QUEUED_REMOVALS`] reached.
#[derive(Debug)]
pub(super) struct TooManyRemovals;

impl JobQueueState {
    fn count_removal(&mut self) -> Result<(), TooManyRemovals> {
        if self.removals >= MAX_QUEUED_REMOVALS {
            return Err(TooManyRemovals);
        }
        self.removals += 1;
        Ok(())
    }

    /// Lists a lane whose next job may start. Returns whether another worker is to be started.
    fn make_ready(&mut self, id: EntryId) -> bool {
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.is_busy) else {
            return false;
        };
        let Some(job) = lane.jobs.front() else {
            return false;
        };
        let at_once = if job.is_removal() {
            self.urgent.push_back(id);
            AT_ONCE + REMOVALS_AT_ONCE
        } else {
            self.ready.push_back(id);
            AT_ONCE
        };
        let wanted = self.workers < at_once;
        self.workers += usize::from(wanted);
        wanted
    }

    fn take(&mut self) -> Option<(EntryId, TierJob)> {
        loop {
            let may_store = self.workers <= AT_ONCE;
            let urgent = self.urgent.pop_front();
            let id = urgent.or_else(|| may_store.then(|| self.ready.pop_front())?)?;
            let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.is_busy) else {
                continue;
            };
            let Some(job) = lane.jobs.pop_front() else {
                continue;
            };
            lane.is_busy = true;
            self.removals -= job.removals();
            return Some((id, job));
        }
    }

    fn end(&mut self, id: EntryId) {
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        lane.is_busy = false;
        let Some(job) = lane.jobs.front() else {
            self.lanes.remove(&id);
            return;
        };
        let listed = if job.is_removal() {
            &mut self.urgent
        } else {
            &mut self.ready
        };
        listed.push_back(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(number: usize) -> EntryId {
        EntryId::of(&number.to_le_bytes())
    }

    /// Identified by its token.
    fn job(lanes: &TierJobQueue, of: usize, number: u64) -> bool {
        let job = TierJob::Release(lane(of), Token(number));
        lanes.add(lane(of), job).expect("it is no removal")
    }

    fn removal(lanes: &TierJobQueue, of: usize) -> (bool, oneshot::Receiver<bool>) {
        let (done, wait) = oneshot::channel();
        let added = lanes.remove(lane(of), done).expect("there is room");
        (added.0, wait)
    }

    fn next(lanes: &TierJobQueue) -> Option<(EntryId, Option<u64>)> {
        lanes.next().map(|(lane, job)| match job {
            TierJob::Release(_, Token(number)) => (lane, Some(number)),
            _ => (lane, None),
        })
    }

    #[test]
    fn one_key_waits_for_itself_and_for_no_other() {
        let lanes = TierJobQueue::default();
        assert!(job(&lanes, 1, 10));
        job(&lanes, 1, 11);
        assert!(job(&lanes, 2, 20));
        assert_eq!(next(&lanes), Some((lane(1), Some(10))));
        assert_eq!(next(&lanes), Some((lane(2), Some(20))));
        assert_eq!(next(&lanes), None, "the first of the key is not done yet");
        lanes.done(lane(1));
        assert_eq!(next(&lanes), Some((lane(1), Some(11))));
    }

    #[test]
    fn a_removal_finds_a_free_worker_among_busy_ones() {
        let lanes = TierJobQueue::default();
        let wanted = (0..100).filter(|number| job(&lanes, *number, 0)).count();
        assert_eq!(wanted, AT_ONCE);
        for _ in 0..AT_ONCE {
            assert!(next(&lanes).is_some());
        }
        let (wanted, _wait) = removal(&lanes, 99);
        assert!(wanted);
        assert_eq!(next(&lanes), Some((lane(99), None)), "before the others");
        assert_eq!(next(&lanes), None, "the stores have their share");
    }

    #[test]
    fn removals_are_bounded_and_merged_by_key() {
        let lanes = TierJobQueue::default();
        let waiting: Vec<_> = (0..MAX_QUEUED_REMOVALS)
            .map(|_| removal(&lanes, 1).1)
            .collect();
        let (done, mut wait) = oneshot::channel();
        assert!(lanes.remove(lane(2), done).is_err());
        assert!(wait.try_recv().is_err());
        let Some((_, TierJob::Remove(_, done))) = lanes.next() else {
            panic!("a removal");
        };
        assert_eq!(done.len(), waiting.len());
        lanes.done(lane(1));
        assert!(lanes.next().is_none());
        let (wanted, _wait) = removal(&lanes, 2);
        assert!(wanted, "there is room again");
    }
}

//! What a tier is to do in the background: what concerns one key in the order it was asked for, a
//! record that was stored before a purge must not arrive after it; and of other keys so much at once.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;
use microcache_policy::VaryNames;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::jobs::Storing;
use crate::tier::{EntryId, Token};

/// So many keys have something done at once.
pub(super) const AT_ONCE: usize = 16;
/// So many more, if it is a removal: stores that hang do not keep removals waiting.
const REMOVALS_AT_ONCE: usize = 16;
/// So many removals may wait. What comes on top of that is not removed, and says so: whoever asked
/// remembers what must not be used.
pub const REMOVALS_WAITING: usize = 64 * 1024;

/// Something to do.
#[derive(Debug)]
pub(super) enum Job {
    Store(Box<Storing>),
    /// Says whether it is gone for sure.
    Remove(EntryId, Vec<oneshot::Sender<bool>>),
    RemoveVariant {
        key: Box<[u8]>,
        names: VaryNames,
        selection: Box<[u8]>,
    },
    Release(EntryId, Token),
    /// Ends a claim as well, and says for a while that what it was for cannot be stored.
    NoteUnstorable {
        key: Box<[u8]>,
        claim: (EntryId, Token),
        lasts: Duration,
    },
}

/// The jobs of all keys, each in its key's lane.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    state: Mutex<LanesState>,
    idle: Notify,
}

#[derive(Debug, Default)]
struct LanesState {
    lanes: HashMap<EntryId, Lane, RandomState>,
    /// The lanes whose next job may begin. One that was taken care of meanwhile is passed over.
    ready: VecDeque<EntryId>,
    /// The same, if the next job is a removal.
    urgent: VecDeque<EntryId>,
    /// Those who do jobs.
    workers: usize,
    removals: usize,
}

/// It is there as long as it has a job, or one is being done.
#[derive(Debug, Default)]
struct Lane {
    jobs: VecDeque<Job>,
    is_busy: bool,
}

impl Lane {
    /// Those who wait for the removal of all that the key has, which is the first job if it is there.
    fn take_removal_of(&mut self, id: EntryId) -> Vec<oneshot::Sender<bool>> {
        match self.jobs.pop_front() {
            Some(Job::Remove(base, told)) if base == id => told,
            Some(other) => {
                self.jobs.push_front(other);
                Vec::new()
            }
            None => Vec::new(),
        }
    }
}

impl Job {
    /// How many of the removals that may wait it is.
    const fn removals(&self) -> usize {
        match self {
            Self::Remove(_, told) => told.len(),
            Self::RemoveVariant { .. } => 1,
            Self::Store(_) | Self::Release(..) | Self::NoteUnstorable { .. } => 0,
        }
    }

    const fn is_removal(&self) -> bool {
        matches!(self, Self::Remove(..) | Self::RemoveVariant { .. })
    }
}

impl Lanes {
    /// Adds a job at the end of a key's lane; a removal only if there is room for it. Says whether
    /// another worker has to come: see [`Lanes::next`].
    pub(super) fn add(&self, lane: EntryId, job: Job) -> Result<bool, TooManyRemovals> {
        let mut state = self.state.lock();
        if job.is_removal() {
            state.count_removal()?;
        }
        state.lanes.entry(lane).or_default().jobs.push_back(job);
        Ok(state.make_ready(lane))
    }

    /// The same for the removal of all that a key has. What waits in its lane is not done any more;
    /// gives the stores among that. Another removal that waits does for this one too.
    pub(super) fn remove(
        &self,
        id: EntryId,
        told: oneshot::Sender<bool>,
    ) -> Result<(bool, Vec<Storing>), TooManyRemovals> {
        let mut state = self.state.lock();
        state.count_removal()?;
        let lane = state.lanes.entry(id).or_default();
        let mut removal = lane.take_removal_of(id);
        removal.push(told);
        let (mut stores, mut releases, mut variants) = (Vec::new(), VecDeque::new(), 0);
        for job in lane.jobs.drain(..) {
            match job {
                Job::Store(storing) => stores.push(*storing),
                // Of one that is not what it should be. Nobody waits for that.
                Job::Remove(..) | Job::RemoveVariant { .. } => variants += job.removals(),
                Job::Release(..) => releases.push_back(job),
                Job::NoteUnstorable {
                    claim: (id, token), ..
                } => releases.push_back(Job::Release(id, token)),
            }
        }
        lane.jobs = releases;
        lane.jobs.push_front(Job::Remove(id, removal));
        state.removals -= variants;
        Ok((state.make_ready(id), stores))
    }

    /// The next job for a worker, and its lane, which is his until he is [`Lanes::done`]. `None` if
    /// he is to go.
    pub(super) fn next(&self) -> Option<(EntryId, Job)> {
        let mut state = self.state.lock();
        let next = state.take();
        if next.is_none() {
            state.workers -= 1;
        }
        next
    }

    /// The job of a lane is done, and the next one may begin.
    pub(super) fn done(&self, lane: EntryId) {
        let mut state = self.state.lock();
        state.end(lane);
        if state.lanes.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// A worker has gone without being told to.
    pub(super) fn lost_worker(&self) {
        self.state.lock().workers -= 1;
    }

    /// Waits until there is nothing to do.
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

/// There are [`REMOVALS_WAITING`] already.
#[derive(Debug)]
pub(super) struct TooManyRemovals;

impl LanesState {
    fn count_removal(&mut self) -> Result<(), TooManyRemovals> {
        if self.removals >= REMOVALS_WAITING {
            return Err(TooManyRemovals);
        }
        self.removals += 1;
        Ok(())
    }

    /// Lists a lane whose next job may begin. Says whether there are too few workers.
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

    fn take(&mut self) -> Option<(EntryId, Job)> {
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

    /// Which of them it is, is told by the token.
    fn job(lanes: &Lanes, of: usize, number: u64) -> bool {
        let job = Job::Release(lane(of), Token(number));
        lanes.add(lane(of), job).expect("it is no removal")
    }

    fn removal(lanes: &Lanes, of: usize) -> (bool, oneshot::Receiver<bool>) {
        let (told, wait) = oneshot::channel();
        let added = lanes.remove(lane(of), told).expect("there is room");
        (added.0, wait)
    }

    fn next(lanes: &Lanes) -> Option<(EntryId, Option<u64>)> {
        lanes.next().map(|(lane, job)| match job {
            Job::Release(_, Token(number)) => (lane, Some(number)),
            _ => (lane, None),
        })
    }

    #[test]
    fn one_key_waits_for_itself_and_for_no_other() {
        let lanes = Lanes::default();
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
    fn when_all_are_busy_a_removal_finds_somebody() {
        let lanes = Lanes::default();
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
    fn removals_are_bounded_and_those_of_one_key_are_one() {
        let lanes = Lanes::default();
        let waiting: Vec<_> = (0..REMOVALS_WAITING)
            .map(|_| removal(&lanes, 1).1)
            .collect();
        let (told, mut wait) = oneshot::channel();
        assert!(lanes.remove(lane(2), told).is_err());
        assert!(wait.try_recv().is_err());
        let Some((_, Job::Remove(_, told))) = lanes.next() else {
            panic!("a removal");
        };
        assert_eq!(told.len(), waiting.len());
        lanes.done(lane(1));
        assert!(lanes.next().is_none());
        let (wanted, _wait) = removal(&lanes, 2);
        assert!(wanted, "there is room again");
    }
}

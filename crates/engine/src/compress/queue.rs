//! The bounded queue of compression jobs; takes the most demanded and the oldest job in turns.

use std::sync::Weak;

use microcache_store::{BodyEncodings, EncodingTask, Key};

/// A task on a stored body. It keeps neither the body nor its versions alive: evicted bodies are
/// not encoded.
#[derive(Debug)]
pub(crate) struct CompressionJob {
    pub(crate) key: Key,
    pub(crate) encodings: Weak<BodyEncodings>,
    pub(crate) task: EncodingTask,
    /// Number of hits of the response; 0 for idle-time work.
    pub(crate) demand: u32,
}

/// The waiting jobs.
#[derive(Debug, Default)]
pub(super) struct JobQueue {
    /// In order of arrival.
    jobs: Vec<CompressionJob>,
    /// The oldest job is next.
    by_age: bool,
}

impl JobQueue {
    pub(super) const fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Queues a job. At the bound it returns the job with the least demand, which may be this one:
    /// a flood of rarely requested urls does not delay popular ones.
    pub(super) fn push(&mut self, job: CompressionJob, bound: usize) -> Option<CompressionJob> {
        let mut left_out = None;
        if self.jobs.len() >= bound {
            let all = self.jobs.iter().enumerate();
            match all.min_by_key(|(_, other)| other.demand) {
                Some((at, least)) if least.demand < job.demand => {
                    left_out = Some(self.jobs.remove(at));
                }
                _ => return Some(job),
            }
        }
        self.jobs.push(job);
        left_out
    }

    /// The demand that a job needs to be queued.
    pub(super) fn needed(&self, bound: usize) -> u32 {
        if self.jobs.len() < bound {
            return 0;
        }
        let least = self.jobs.iter().map(|job| job.demand).min();
        least.map_or(0, |least| least.saturating_add(1))
    }

    /// Takes the job with the most demand, the oldest among equals. Every other time it takes the
    /// oldest job with any demand, so that none waits for ever.
    pub(super) fn pop(&mut self) -> Option<CompressionJob> {
        let most = self.jobs.iter().map(|job| job.demand).max()?;
        let least = if self.by_age { most.min(1) } else { most };
        self.by_age = !self.by_age;
        let at = self.jobs.iter().position(|job| job.demand >= least)?;
        Some(self.jobs.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::Coding;
    use microcache_store::EncodingMethod;

    use super::*;

    fn job(name: &str, demand: u32) -> CompressionJob {
        CompressionJob {
            key: name.as_bytes().into(),
            encodings: Weak::new(),
            task: EncodingTask::Encode(EncodingMethod::Fast(Coding::Gzip)),
            demand,
        }
    }

    fn name(job: Option<CompressionJob>) -> String {
        job.map_or_else(String::new, |job| {
            String::from_utf8_lossy(&job.key).into_owned()
        })
    }

    #[test]
    fn the_most_requested_and_the_oldest_job_alternate() {
        let mut queue = JobQueue::default();
        for (one, demand) in [
            ("idle", 0),
            ("a", 1),
            ("b", 4),
            ("c", 5),
            ("d", 5),
            ("e", 1),
        ] {
            assert!(queue.push(job(one, demand), 10).is_none());
        }
        let order: Vec<String> = (0..7).map(|_| name(queue.pop())).collect();
        assert_eq!(order, ["c", "a", "d", "b", "e", "idle", ""]);
    }

    #[test]
    fn a_stream_of_popular_jobs_starves_no_other() {
        let mut queue = JobQueue::default();
        assert!(queue.push(job("honest", 1), 10).is_none());
        let mut order = Vec::new();
        for n in 0..5 {
            for half in 0..2 {
                let hostile = job(&format!("hostile {n} {half}"), 11);
                assert!(queue.push(hostile, 10).is_none());
            }
            order.push(name(queue.pop()));
        }
        assert_eq!(order[..2], ["hostile 0 0", "honest"]);
    }

    #[test]
    fn a_replacement_is_younger_than_the_remaining_jobs() {
        let mut queue = JobQueue::default();
        for (one, demand) in [("least", 1), ("other", 5), ("most", 9)] {
            assert!(queue.push(job(one, demand), 3).is_none());
        }
        assert_eq!(name(queue.push(job("late", 7), 3)), "least");
        let order: Vec<String> = (0..3).map(|_| name(queue.pop())).collect();
        assert_eq!(order, ["most", "other", "late"]);
    }

    #[test]
    fn at_the_bound_the_one_that_fewest_ask_for_has_no_place() {
        let mut queue = JobQueue::default();
        for n in 0..3 {
            assert!(queue.push(job(&format!("flood {n}"), 2), 3).is_none());
        }
        assert_eq!(name(queue.push(job("flood 3", 2), 3)), "flood 3");
        assert_eq!(name(queue.push(job("popular", 3), 3)), "flood 0");
        assert_eq!(queue.len(), 3);
        assert_eq!(name(queue.pop()), "popular");
        assert_eq!(name(queue.push(job("any", 1), 0)), "any");
    }

    #[test]
    fn a_job_more_requested_than_the_least_replaces_it() {
        let mut queue = JobQueue::default();
        assert_eq!((queue.needed(2), queue.needed(0)), (0, 0));
        for demand in [7, u32::MAX] {
            queue.push(job("one", demand), 2);
        }
        assert_eq!((queue.needed(3), queue.needed(2)), (0, 8));
        queue.push(job("two", u32::MAX), 2);
        assert_eq!(queue.needed(2), u32::MAX);
    }
}

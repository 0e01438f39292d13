//! What waits to be compressed: bounded, and what is asked for most goes first.

use std::sync::Weak;

use microcache_store::{Encodings, Key, Task};

/// Something to be made of a stored body. It holds nothing of that, nor of its versions: of what leaves memory nothing
/// is made.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: Key,
    pub(crate) encodings: Weak<Encodings>,
    pub(crate) task: Task,
    /// How often the response was the answer.
    pub(crate) demand: u32,
}

/// The jobs that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    jobs: Vec<Job>,
}

impl Queue {
    pub(super) const fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Takes a job in. At the bound the one that fewest ask for has no place, be it this one: a flood of urls
    /// that are asked for once or twice does not keep those waiting that everybody asks for.
    pub(super) fn push(&mut self, job: Job, bound: usize) -> Option<Job> {
        if self.jobs.len() < bound {
            self.jobs.push(job);
            return None;
        }
        let least = self.jobs.iter_mut().min_by_key(|other| other.demand);
        match least {
            Some(least) if least.demand < job.demand => Some(std::mem::replace(least, job)),
            _ => Some(job),
        }
    }

    /// The one that most ask for; of several, that which came first.
    pub(super) fn pop(&mut self) -> Option<Job> {
        let most = self.jobs.iter().map(|job| job.demand).max()?;
        let at = self.jobs.iter().position(|job| job.demand == most)?;
        Some(self.jobs.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::Coding;
    use microcache_store::Making;

    use super::*;

    fn job(name: &str, demand: u32) -> Job {
        Job {
            key: name.as_bytes().into(),
            encodings: Weak::new(),
            task: Task::Encode(Making::Quickly(Coding::Gzip)),
            demand,
        }
    }

    fn name(job: Option<Job>) -> String {
        job.map_or_else(String::new, |job| {
            String::from_utf8_lossy(&job.key).into_owned()
        })
    }

    #[test]
    fn what_is_asked_for_most_goes_first() {
        let mut queue = Queue::default();
        for (one, demand) in [("a", 1), ("b", 5), ("c", 1), ("d", 5)] {
            assert!(queue.push(job(one, demand), 10).is_none());
        }
        let order: Vec<String> = (0..5).map(|_| name(queue.pop())).collect();
        assert_eq!(order, ["b", "d", "a", "c", ""]);
    }

    #[test]
    fn at_the_bound_the_one_that_fewest_ask_for_has_no_place() {
        let mut queue = Queue::default();
        for n in 0..3 {
            assert!(queue.push(job(&format!("flood {n}"), 2), 3).is_none());
        }
        assert_eq!(name(queue.push(job("flood 3", 2), 3)), "flood 3");
        assert_eq!(name(queue.push(job("popular", 3), 3)), "flood 0");
        assert_eq!(queue.len(), 3);
        assert_eq!(name(queue.pop()), "popular");
        assert_eq!(name(queue.push(job("any", 1), 0)), "any");
    }
}

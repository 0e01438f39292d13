//! Jobs: lists of pages to be warmed, what came of them, and their places at the origin.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use microcache_store::random;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Limit of jobs that are known. The oldest that has ended is forgotten first.
const MAX_JOBS: usize = 64;

/// Result for a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmResult {
    /// Fetched and stored.
    Stored,
    /// A fresh response was stored, or was being fetched.
    Fresh,
    /// The URL, or its response, is not for the cache.
    NotStored,
    /// There was no response, or one with an error status.
    Failed,
}

impl WarmResult {
    /// The names of all results, in metrics and JSON.
    pub const NAMES: [&str; 4] = ["stored", "fresh", "not_stored", "failed"];
}

/// Numbers of URLs, in the order of [`WarmResult::NAMES`].
pub type WarmCounts = [u64; WarmResult::NAMES.len()];

/// Progress of a job.
#[derive(Clone, Debug, Default)]
pub struct WarmProgress {
    /// `None` while it runs. The error says why it ended before its last URL.
    pub end: Option<Result<(), String>>,
    /// URLs found so far.
    pub urls: u64,
    /// URLs by result.
    pub counts: WarmCounts,
    /// Reasons of those that were not stored or failed, with their number and the first URL.
    pub reasons: BTreeMap<String, (u64, String)>,
    /// Time from the start to the end, or to now.
    pub took: Duration,
}

/// The error if all jobs that can be known are running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_JOBS} lists of URLs are being warmed")]
pub struct TooManyJobs;

/// All jobs of the process, which survive reloads.
#[derive(Default)]
pub(crate) struct WarmJobs {
    jobs: Mutex<VecDeque<Arc<WarmJob>>>,
    totals: [AtomicU64; WarmResult::NAMES.len()],
    /// Number of requests in progress, by upstream group.
    taken: Mutex<HashMap<String, usize>>,
    freed: Notify,
    /// Held while a sitemap is in memory.
    pub(super) reading: tokio::sync::Mutex<()>,
}

/// A job.
pub(super) struct WarmJob {
    pub(super) id: u64,
    began: Instant,
    pub(super) progress: Mutex<WarmProgress>,
    pub(super) stop: watch::Sender<bool>,
}

/// The place of a request at an upstream group, freed on drop.
pub(super) struct WarmPlace {
    jobs: Arc<WarmJobs>,
    group: String,
}

impl WarmJobs {
    pub(super) fn begin(&self) -> Result<Arc<WarmJob>, TooManyJobs> {
        let mut jobs = self.jobs.lock();
        if jobs.len() >= MAX_JOBS {
            let ended = jobs.iter().position(|job| !job.is_running());
            jobs.remove(ended.ok_or(TooManyJobs)?);
        }
        let job = Arc::new(WarmJob {
            id: random::number(),
            began: Instant::now(),
            progress: Mutex::default(),
            stop: watch::Sender::new(false),
        });
        jobs.push_back(Arc::clone(&job));
        Ok(job)
    }

    /// Progress of the job with this id.
    pub(crate) fn progress(&self, id: u64) -> Option<WarmProgress> {
        let job = self.job(id)?;
        let mut progress = job.progress.lock().clone();
        if progress.end.is_none() {
            progress.took = job.began.elapsed();
        }
        Some(progress)
    }

    /// Stops the job with this id. Requests in progress are completed.
    pub(crate) fn stop(&self, id: u64) {
        if let Some(job) = self.job(id) {
            job.stop.send_replace(true);
        }
    }

    /// Number of running jobs, and of URLs since the start.
    pub(crate) fn totals(&self) -> (usize, WarmCounts) {
        let jobs = self.jobs.lock();
        let running = jobs.iter().filter(|job| job.is_running()).count();
        (
            running,
            self.totals
                .each_ref()
                .map(|total| total.load(Ordering::Relaxed)),
        )
    }

    fn job(&self, id: u64) -> Option<Arc<WarmJob>> {
        self.jobs.lock().iter().find(|job| job.id == id).cloned()
    }

    /// Counts the result for a URL, with its reason if there is one.
    pub(super) fn count(&self, job: &WarmJob, result: WarmResult, why: &str, url: &str) {
        self.totals[result as usize].fetch_add(1, Ordering::Relaxed);
        let mut progress = job.progress.lock();
        progress.counts[result as usize] += 1;
        if !why.is_empty() {
            let first = || (0, url.to_owned());
            progress
                .reasons
                .entry(why.to_owned())
                .or_insert_with(first)
                .0 += 1;
        }
    }

    /// Waits for one of `most` places at this group.
    pub(super) async fn place(self: &Arc<Self>, group: &str, most: usize) -> WarmPlace {
        loop {
            let freed = self.freed.notified();
            {
                let mut taken = self.taken.lock();
                let number = taken.entry(group.to_owned()).or_default();
                if *number < most {
                    *number += 1;
                    let (jobs, group) = (Arc::clone(self), group.to_owned());
                    return WarmPlace { jobs, group };
                }
            }
            freed.await;
        }
    }
}

impl WarmJob {
    fn is_running(&self) -> bool {
        self.progress.lock().end.is_none()
    }

    /// Ends it. Returns what came of it, for the log.
    pub(super) fn end(&self, end: Result<(), String>) -> String {
        let mut progress = self.progress.lock();
        progress.took = self.began.elapsed();
        progress.end = Some(end.clone());
        let [stored, fresh, not_stored, failed] = progress.counts;
        let reasons = progress.reasons.iter();
        let reasons: Vec<_> = reasons
            .map(|(why, (count, _))| format!(", {count} {why}"))
            .collect();
        format!(
            "{} after {:.1} s: {} URLs, {stored} stored, {fresh} fresh, {not_stored} not stored, {failed} failed{}",
            end.map_or_else(|why| format!("ended early ({why})"), |()| "done".to_owned()),
            progress.took.as_secs_f64(),
            progress.urls,
            reasons.concat(),
        )
    }
}

impl Drop for WarmPlace {
    fn drop(&mut self) {
        if let Some(number) = self.jobs.taken.lock().get_mut(&self.group) {
            *number -= 1;
        }
        self.jobs.freed.notify_waiters();
    }
}

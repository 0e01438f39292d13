//! The visits of a job: its URLs one after the other, as the origin has places for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use microcache_engine::{AheadResult, Failure};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until};

use super::jobs::{TooManyJobs, WarmJob, WarmJobs, WarmResult};
use super::sitemap::{self, MAX_BYTES, MAX_URLS, Sitemap};
use crate::observe::Kind;
use crate::session::plain_visit::{PlainVisit, host_of};
use crate::shared::{Active, Shared};

/// Limit of sitemaps in an index.
const MAX_SITEMAPS: usize = 1000;
/// Requests in a row that fail before a job gives up: an application in trouble is left alone.
const MAX_FAILURES: u32 = 20;
/// Places for pages of no upstream group, such as files.
const OTHER_PLACES: usize = 8;
/// Interval of looks at maintenance mode.
const PAUSE: Duration = Duration::from_secs(1);

/// The pages to be warmed.
#[derive(Clone, Debug)]
pub enum WarmSource {
    /// These pages.
    Pages(Vec<WarmPage>),
    /// The pages that the sitemap at this URL lists, or the sitemaps in its index.
    Sitemap(String),
}

/// A page to be warmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmPage {
    /// Its URL.
    pub url: String,
    /// Request fields that select the variant, with names in lower case.
    pub fields: Vec<(String, String)>,
}

impl From<String> for WarmPage {
    fn from(url: String) -> Self {
        let fields = Vec::new();
        Self { url, fields }
    }
}

/// Starts a job on the current runtime, with at most `rate` requests per second. Returns its id. The log calls it `about`.
pub(crate) fn start(
    shared: &Shared,
    about: String,
    source: WarmSource,
    rate: Option<f64>,
) -> Result<u64, TooManyJobs> {
    let job = shared.warming.begin()?;
    let id = job.id;
    let visits = Visits {
        job,
        jobs: Arc::clone(&shared.warming),
        active: Arc::clone(&shared.active),
        interval: rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate)),
        next: Instant::now(),
        failures: Arc::default(),
        fetches: JoinSet::new(),
    };
    tokio::spawn(visits.run(about, source));
    Ok(id)
}

/// The visits of a running job. Errors say why it ends early.
struct Visits {
    job: Arc<WarmJob>,
    jobs: Arc<WarmJobs>,
    active: Arc<Active<Shared>>,
    /// Interval between two requests, and the earliest time of the next one.
    interval: Duration,
    next: Instant,
    /// Requests in a row that got no response, or a server error.
    failures: Arc<AtomicU32>,
    fetches: JoinSet<()>,
}

impl Visits {
    async fn run(mut self, about: String, source: WarmSource) {
        let mut stop = self.job.stop.subscribe();
        let end = tokio::select! {
            end = self.all(source) => end,
            _ = stop.wait_for(|&stop| stop) => Err("stopped".to_owned()),
        };
        // Requests in progress are completed, and keep their places until then.
        self.fetches.detach_all();
        let line = self.job.end(end);
        if let Some(shared) = self.active.get() {
            shared
                .notices
                .say(Kind::Warming, &about, format!("warming {about}: {line}"));
        }
    }

    async fn all(&mut self, source: WarmSource) -> Result<(), String> {
        match source {
            WarmSource::Pages(pages) => self.visit(pages).await?,
            WarmSource::Sitemap(url) => self.visit_sitemap(&url).await?,
        }
        while self.fetches.join_next().await.is_some() {}
        Ok(())
    }

    /// Visits the pages of a sitemap, or of the sitemaps of an index, as far as they are of the same host.
    async fn visit_sitemap(&mut self, url: &str) -> Result<(), String> {
        let mut left = MAX_URLS;
        let read = self.read(url).await;
        let first = read.map_err(|why| format!("{url}: {why}"))?;
        let first = self.of_host(url, first);
        if !first.is_index {
            return self.visit_some(first.urls, &mut left).await;
        }
        for listed in first.urls.into_iter().take(MAX_SITEMAPS) {
            match self.read(&listed).await {
                Ok(sitemap) if !sitemap.is_index => {
                    let sitemap = self.of_host(url, sitemap);
                    self.visit_some(sitemap.urls, &mut left).await?;
                }
                _ => self.count_other(WarmResult::Failed, "sitemap", &listed),
            }
        }
        Ok(())
    }

    /// Leaves out the URLs of other hosts.
    fn of_host(&self, url: &str, mut sitemap: Sitemap) -> Sitemap {
        let host = host_of(url);
        sitemap.urls.retain(|listed| {
            let is_own = host_of(listed) == host;
            if !is_own {
                self.count_other(WarmResult::NotStored, "other-host", listed);
            }
            is_own
        });
        sitemap
    }

    /// Reads a sitemap as a visitor gets it.
    async fn read(&self, url: &str) -> Result<Sitemap, String> {
        let shared = self.ready().await?;
        let identity = [("accept-encoding".to_owned(), "identity".to_owned())];
        let visit = PlainVisit::of(&shared, url, &identity).ok_or("it is not a URL")?;
        let _one_at_a_time = self.jobs.reading.lock().await;
        let body = visit.read(MAX_BYTES).await?;
        sitemap::read(&body).map_err(str::to_owned)
    }

    /// Visits as many as are left.
    async fn visit_some(&mut self, urls: Vec<String>, left: &mut usize) -> Result<(), String> {
        let some: Vec<_> = urls.into_iter().take(*left).map(WarmPage::from).collect();
        *left -= some.len();
        self.visit(some).await
    }

    async fn visit(&mut self, pages: Vec<WarmPage>) -> Result<(), String> {
        self.job.progress.lock().urls += pages.len() as u64;
        for page in pages {
            let shared = self.ready().await?;
            let Some(visit) = PlainVisit::of(&shared, &page.url, &page.fields) else {
                self.jobs
                    .count(&self.job, WarmResult::NotStored, "invalid-url", &page.url);
                continue;
            };
            if visit.is_fresh() {
                self.jobs.count(&self.job, WarmResult::Fresh, "", &page.url);
                continue;
            }
            sleep_until(self.next).await;
            self.next = self.next.max(Instant::now()) + self.interval;
            let (group, most) = match visit.group() {
                Some(group) => (&*group.name, group.warming_places()),
                None => ("", OTHER_PLACES),
            };
            let place = self.jobs.place(group, most).await;
            let (job, jobs) = (Arc::clone(&self.job), Arc::clone(&self.jobs));
            let failures = Arc::clone(&self.failures);
            self.fetches.spawn(async move {
                let (result, why, is_trouble) = judged(visit.fetch().await);
                drop(place);
                if is_trouble {
                    failures.fetch_add(1, Ordering::Relaxed);
                } else {
                    failures.store(0, Ordering::Relaxed);
                }
                jobs.count(&job, result, &why, &page.url);
            });
            while self.fetches.try_join_next().is_some() {}
            if self.failures.load(Ordering::Relaxed) >= MAX_FAILURES {
                return Err(format!("{MAX_FAILURES} requests in a row failed"));
            }
        }
        Ok(())
    }

    /// Waits for the end of maintenance mode, in which no request goes to an origin.
    async fn ready(&self) -> Result<Arc<Shared>, String> {
        // A long list of fresh pages does not keep the thread.
        yield_now().await;
        loop {
            let shared = self.active.get().filter(|shared| !shared.is_leaving());
            let shared = shared.ok_or("the process is ending")?;
            if !shared.lifecycle.maintenance.is_on() {
                return Ok(shared);
            }
            sleep(PAUSE).await;
        }
    }

    /// Counts a URL that is not visited.
    fn count_other(&self, result: WarmResult, why: &str, url: &str) {
        self.job.progress.lock().urls += 1;
        self.jobs.count(&self.job, result, why, url);
    }
}

/// The result of a fetch, its reason, and whether the application is in trouble.
fn judged(ahead: AheadResult) -> (WarmResult, String, bool) {
    match ahead {
        AheadResult::Fresh => (WarmResult::Fresh, String::new(), false),
        AheadResult::Stored(status) | AheadResult::Failed(Failure::Status(status))
            if status >= 400 =>
        {
            (
                WarmResult::Failed,
                format!("status-{status}"),
                status >= 500,
            )
        }
        AheadResult::Stored(_) => (WarmResult::Stored, String::new(), false),
        AheadResult::NotStored(why) => {
            let why = why.map_or("pass", |why| why.as_str());
            (WarmResult::NotStored, why.to_owned(), false)
        }
        AheadResult::Failed(failure) => (
            WarmResult::Failed,
            failure.detail().as_str().to_owned(),
            true,
        ),
    }
}

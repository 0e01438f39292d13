//! Jobs before a site of a few pages.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use microcache_engine::cache::{Scope, Strength};
use microcache_engine::{Body, BoxFuture, Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::FieldsBuf;
use microcache_store::Tiers;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::*;
use crate::config::{Config, Input};
use crate::observe::Notices;
use crate::shared::Shared;
use crate::watched::page_finder;

/// A site that answers by path, as far as it has permits.
struct Site {
    asked: Mutex<Vec<String>>,
    concurrent: AtomicUsize,
    most: AtomicUsize,
    permits: Semaphore,
}

impl Origin for Site {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            let target = String::from_utf8_lossy(&request.target).into_owned();
            let client = request.fields.fields().get("x-forwarded-for");
            assert_eq!(client, Some(&b"192.0.2.1"[..]));
            assert!(!request.fields.fields().contains("cookie"));
            self.asked.lock().push(target.clone());
            let now = self.concurrent.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            if !target.contains("xml") {
                assert!(!request.urgency.has_clients());
                self.permits.acquire().await.expect("open").forget();
            }
            self.concurrent.fetch_sub(1, Ordering::Relaxed);
            let mut fields = FieldsBuf::new();
            let is_private = target.starts_with("/private");
            fields.push(
                "Cache-Control",
                if is_private { "private" } else { "max-age=600" },
            );
            let (status, body) = match &*target {
                "/index.xml" => (200, INDEX.to_owned()),
                "/a.xml" => (
                    200,
                    sitemap(&["/1", "/2", "/private", "/gone", "/denied/1"]),
                ),
                "/b.xml" => (200, sitemap(&["/2", "/3"])),
                "/moved.xml" => {
                    fields.push("Location", "http://169.254.169.254/");
                    (301, String::new())
                }
                "/gone" => (404, String::new()),
                _ if target.starts_with("/broken") => (500, String::new()),
                _ => (200, target),
            };
            Ok(OriginResponse {
                status,
                fields,
                length: Some(body.len() as u64),
                body: Body::Full(body.into()),
                tunnel: None,
                waited: 0,
            })
        })
    }
}

const INDEX: &str = "<sitemapindex><loc>http://site/a.xml</loc><loc>http://site/b.xml</loc>\
                     <loc>http://site/index.xml</loc><loc>http://internal/a.xml</loc></sitemapindex>";

fn sitemap(targets: &[&str]) -> String {
    let locations = targets
        .iter()
        .map(|target| format!("<loc>http://site{target}</loc>"));
    let others = "<urlset><loc>http://internal/</loc><loc>http://site:81/</loc>";
    others.to_owned() + &locations.collect::<Vec<_>>().concat()
}

const LINES: &str =
    "max_concurrent = 8\n[[routes]]\nmatch = { path = \"/denied/*\" }\ndeny = \"all\"\n";

/// A server before the site, which has so many permits.
fn world(permits: usize) -> (Arc<Shared>, Arc<Site>) {
    let config = Config::read(Input {
        file: Some(("microcache.toml", LINES)),
        urls: &["http://localhost:3000".to_owned()],
        ..Input::default()
    });
    let site = Arc::new(Site {
        asked: Mutex::default(),
        concurrent: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        permits: Semaphore::new(permits),
    });
    let shared = Arc::new(Shared::before(
        (&[Arc::clone(&site) as Arc<dyn Origin>], None),
        Arc::new(config.expect("a configuration")),
        Tiers::default(),
        Notices::default(),
        Arc::default(),
        page_finder,
    ));
    Arc::clone(&shared).activate();
    (shared, site)
}

fn begin(shared: &Shared, source: WarmSource) -> u64 {
    start(shared, "a test".to_owned(), source, None).expect("a place")
}

fn pages(numbers: Range<usize>) -> WarmSource {
    let url = |number| WarmPage::from(format!("http://site/{number}"));
    WarmSource::Pages(numbers.map(url).collect())
}

async fn end(shared: &Shared, id: u64) -> WarmProgress {
    loop {
        let progress = shared.warming.progress(id).expect("a job");
        if progress.end.is_some() {
            return progress;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_a_sitemap_are_fetched_once_and_no_other_host_is_asked() {
    let (shared, site) = world(99);
    let sitemap = || WarmSource::Sitemap("http://site/index.xml".to_owned());
    let progress = end(&shared, begin(&shared, sitemap())).await;
    assert_eq!(progress.end, Some(Ok(())));
    assert_eq!(progress.counts, [3, 1, 7, 2], "{progress:?}");
    let reasons: Vec<_> = progress
        .reasons
        .iter()
        .map(|(why, it)| (&**why, it.0))
        .collect();
    let expected = [
        ("access-denied", 1),
        ("other-host", 5),
        ("private", 1),
        ("sitemap", 1),
        ("status-404", 1),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(progress.urls, 13);
    let mut asked = site.asked.lock().clone();
    asked.sort_unstable();
    asked.dedup();
    let expected = [
        "/1",
        "/2",
        "/3",
        "/a.xml",
        "/b.xml",
        "/gone",
        "/index.xml",
        "/private",
    ];
    assert_eq!(asked, expected);
    let before = site.asked.lock().len();
    let again = end(&shared, begin(&shared, sitemap())).await;
    assert_eq!(again.counts[WarmResult::Stored as usize], 0, "{again:?}");
    assert_eq!(site.asked.lock().len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_not_followed_and_trouble_ends_a_job() {
    let (shared, site) = world(99);
    let url = "http://site/moved.xml".to_owned();
    let progress = end(&shared, begin(&shared, WarmSource::Sitemap(url))).await;
    let why = "http://site/moved.xml: the response has status 301 http://169.254.169.254/";
    assert_eq!(progress.end, Some(Err(why.to_owned())));
    assert_eq!(*site.asked.lock(), ["/moved.xml"]);
    let broken = (0..99).map(|number| WarmPage::from(format!("http://site/broken?{number}")));
    let others = [
        "",
        "/1",
        "ftp://site/1",
        "http://u@site/",
        "http://site/a b",
        "http://site/\r\nX: y",
    ];
    let others = others.into_iter().map(|url| WarmPage::from(url.to_owned()));
    let pages = others.chain(broken).collect();
    let progress = end(&shared, begin(&shared, WarmSource::Pages(pages))).await;
    assert_eq!(
        progress.end,
        Some(Err("20 requests in a row failed".to_owned()))
    );
    assert_eq!(progress.counts[WarmResult::NotStored as usize], 6);
    assert!((20..24).contains(&site.asked.lock().len()));
}

#[tokio::test(start_paused = true)]
async fn a_quarter_of_the_permits_is_taken_until_all_is_done_or_stopped() {
    let (shared, site) = world(0);
    let ids = [begin(&shared, pages(0..20)), begin(&shared, pages(20..40))];
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        (site.asked.lock().len(), site.most.load(Ordering::Relaxed)),
        (2, 2)
    );
    shared.warming.stop(ids[0]);
    assert_eq!(
        end(&shared, ids[0]).await.end,
        Some(Err("stopped".to_owned()))
    );
    // A purge of what is being fetched holds: it is given up, and the other job's page as well.
    let everything = [(Scope::Everything, Strength::Hard)];
    shared.engine.cache.purge(everything).await;
    site.permits.add_permits(99);
    let progress = end(&shared, ids[1]).await;
    assert_eq!(progress.end, Some(Ok(())));
    assert_eq!(site.most.load(Ordering::Relaxed), 2);
    let kept = shared.engine.cache.memory_stats().keys;
    assert_eq!(kept, 19);
    let (running, totals) = shared.warming.totals();
    assert_eq!((running, totals.iter().sum::<u64>()), (0, 20 + 1));
}

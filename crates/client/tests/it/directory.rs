//! A directory that processes share: here, caches that know nothing of each other.

use std::fs;
use std::time::Duration;

use microcache_client::{BuildError, Cache, CacheMode, Outcome, Tier};
use microcache_testkit::Folder;

use crate::support::{Client, Site, page};

/// Timeout of a tier. Some tests advance the clock, by a year at most, while the disk may be busy.
const TIMEOUT: Duration = Duration::from_hours(2 * 365 * 24);

/// A cache of one user's, who needs no partition there.
async fn cache_in(folder: &Folder) -> Cache {
    let tier = Tier::directory(folder.path(), 16 << 20).timeout(TIMEOUT);
    let built = Cache::private().tier(tier).build().await;
    built.expect("a cache")
}

#[tokio::test]
async fn caches_share_the_entries_of_a_directory() {
    let folder = Folder::absent();
    let site = Site::says(&[("cache-control", "private, max-age=600"), ("etag", "\"a\"")]);
    let first = cache_in(&folder).await;
    let one = Client::of(&first, &site);
    assert_eq!(one.get("/", &[]).await.outcome(), Outcome::Miss);
    first.settled().await;
    let second = cache_in(&folder).await;
    let other = Client::of(&second, &site);
    let hit = other.get("/", &[]).await;
    assert_eq!((hit.outcome(), hit.body()), (Outcome::Hit, "1"));
    assert_eq!(hit.info.tier, Some("directory"));
    let validated = other.get_by(CacheMode::NoCache, "/").await;
    assert_eq!(
        (validated.outcome(), validated.body()),
        (Outcome::Validated, "1")
    );
    assert_eq!(site.request_count(), 2);
    assert_eq!(second.troubles(), Vec::<String>::new());

    let url = "http://site.example/".parse().expect("a url");
    second.purge(&url).await.expect("purged");
    second.settled().await;
    let third = cache_in(&folder).await;
    let anew = Client::of(&third, &site).get("/", &[]).await;
    assert_eq!((anew.outcome(), anew.body()), (Outcome::Miss, "3"));
}

#[tokio::test]
async fn of_concurrent_caches_one_sends_the_request() {
    let folder = Folder::absent();
    let site = Site::later(|number, _| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(page(
                number.to_string(),
                &[("cache-control", "max-age=600")],
            ))
        })
    });
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Client::of(&cache_in(&folder).await, &site));
    }
    let requested = clients.iter().map(|client| client.get("/", &[]));
    for got in futures_util::future::join_all(requested).await {
        assert_eq!(got.body(), "1");
    }
    assert_eq!(site.request_count(), 1);
}

#[tokio::test]
async fn an_entry_fetched_in_the_future_is_revalidated() {
    let folder = Folder::absent();
    let site = Site::says(&[("cache-control", "max-age=600"), ("etag", "\"a\"")]);
    let ahead = cache_in(&folder).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_hours(365 * 24)).await;
    tokio::time::resume();
    let got = Client::of(&ahead, &site).get("/", &[]).await;
    assert_eq!(got.outcome(), Outcome::Miss);
    ahead.settled().await;
    // Its clock has been set right since.
    for outcome in [Outcome::Validated, Outcome::Hit] {
        let cache = cache_in(&folder).await;
        let got = Client::of(&cache, &site).get("/", &[]).await;
        assert_eq!((got.outcome(), got.body()), (outcome, "1"));
        cache.settled().await;
    }
}

#[test]
fn one_that_does_not_answer_is_named() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let folder = Folder::absent();
    let (release, hang) = std::sync::mpsc::channel::<()>();
    // The only thread that could open it is busy.
    runtime.spawn_blocking(move || hang.recv());
    let tier = Tier::directory(folder.path(), 16 << 20).timeout(Duration::from_millis(10));
    let built = runtime.block_on(Cache::private().tier(tier).build());
    drop(release);
    let said = built.expect_err("it hangs").to_string();
    let place = folder.path().display().to_string();
    assert!(
        said.contains(&place) && said.contains("does not answer"),
        "{said}"
    );
}

#[tokio::test]
async fn an_unusable_directory_is_reported_with_path_and_reason() {
    let folder = Folder::absent();
    fs::write(folder.path(), "a file").expect("written");
    let tier = Tier::directory(folder.path(), 16 << 20);
    let refused = Cache::private().tier(tier).build().await;
    let refused = refused.expect_err("it is a file");
    assert!(matches!(
        refused,
        BuildError::Tier {
            tier: "directory",
            ..
        }
    ));
    assert!(
        refused
            .to_string()
            .contains(&folder.path().display().to_string()),
        "{refused}"
    );
    fs::remove_file(folder.path()).expect("removed");
}

/// A body that memory does not take goes into the directory while it arrives, is read from there by others, and stays
/// there when its server confirms it.
#[tokio::test]
async fn a_response_too_large_for_memory_is_stored_in_the_directory() {
    let folder = Folder::absent();
    let cache = async || {
        let tier = Tier::directory(folder.path(), 64 << 20).timeout(TIMEOUT);
        let built = Cache::private().memory(2 << 20).tier(tier).build().await;
        built.expect("a cache")
    };
    let body = "0123456789".repeat(1_000_000);
    let whole = body.clone();
    let site = Site::new(move |_, request| {
        let confirms = request.headers().contains_key("if-none-match");
        let lines = &[("cache-control", "max-age=600"), ("etag", "\"a\"")];
        let mut response = page(
            if confirms {
                String::new()
            } else {
                whole.clone()
            },
            lines,
        );
        if confirms {
            *response.status_mut() = http::StatusCode::NOT_MODIFIED;
        }
        response
    });
    let first = cache().await;
    let one = Client::of(&first, &site);
    let miss = one.get("/", &[]).await;
    assert_eq!((miss.outcome(), miss.body() == body), (Outcome::Miss, true));
    first.settled().await;
    assert_eq!(first.stats().tiers[0].written, 1);
    let second = cache().await;
    let other = Client::of(&second, &site);
    // The one who has stored it finds it there too.
    for client in [&one, &other, &other] {
        let hit = client.get("/", &[]).await;
        assert_eq!((hit.outcome(), hit.body() == body), (Outcome::Hit, true));
    }
    let part = other.get("/", &[("range", "bytes=5000000-5000003")]).await;
    assert_eq!((part.status, part.body()), (206, "0123"));
    assert_eq!(site.request_count(), 1);

    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(700)).await;
    tokio::time::resume();
    let validated = other.get("/", &[]).await;
    assert_eq!(
        (validated.outcome(), validated.body() == body),
        (Outcome::Validated, true)
    );
    second.settled().await;
    // Five minutes later by the clock of the cache that confirmed it.
    let third = cache().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(700 + 300)).await;
    tokio::time::resume();
    let hit = Client::of(&third, &site).get("/", &[]).await;
    assert_eq!((hit.outcome(), hit.body() == body), (Outcome::Hit, true));
    assert_eq!(site.request_count(), 2);
    for cache in [first, second, third] {
        assert_eq!(cache.troubles(), Vec::<String>::new());
        assert!(cache.stats().bytes < 2 << 20);
    }
}

/// A purge that comes while it arrives.
#[tokio::test]
async fn an_entry_purged_during_its_arrival_is_not_stored() {
    let folder = Folder::absent();
    let tier = Tier::directory(folder.path(), 64 << 20).timeout(TIMEOUT);
    let cache = Cache::private().memory(2 << 20).tier(tier).build().await;
    let cache = cache.expect("a cache");
    let (more, body) = crate::support::piecemeal();
    let body = std::sync::Mutex::new(Some(body));
    let site = Site::new(move |number, _| {
        let mut response = page(number.to_string(), &[("cache-control", "max-age=600")]);
        if let Some(body) = body.lock().unwrap().take() {
            *response.body_mut() = body;
        }
        response
    });
    let client = Client::of(&cache, &site);
    let piece: &'static str = "x".repeat(1_000_000).leak();
    let response = client
        .send(crate::support::request("/", &[]))
        .await
        .unwrap();
    let reading = tokio::spawn(crate::support::whole(response));
    for _ in 0..5 {
        more.send(Ok(piece)).await.unwrap();
    }
    let url = "http://site.example/".parse().expect("a url");
    cache.purge(&url).await.expect("purged");
    more.send(Ok(piece)).await.unwrap();
    drop(more);
    assert_eq!(reading.await.unwrap().body().len(), 6_000_000);
    cache.settled().await;
    let offline = client.get_by(CacheMode::OnlyIfCached, "/").await;
    assert_eq!(offline.outcome(), Outcome::Module);
    assert_eq!(client.get("/", &[]).await.body(), "2");
}

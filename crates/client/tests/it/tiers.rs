//! What lies behind memory: a directory, memcached, Redis; and what happens when they fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use microcache_client::{BuildError, Builder, Cache, CacheMode, Outcome, Tier};
use tokio::time::sleep;

use crate::support::{Client, Got, Site};

#[path = "../../../store/tests/memcached/node.rs"]
#[expect(dead_code, reason = "the tests of the tier itself do more with it")]
mod node;
#[path = "../../../store/tests/redis/server.rs"]
#[expect(dead_code, reason = "the tests of the tier itself do more with it")]
mod server;

use node::Node;
use server::Server;

const LASTING: &[(&str, &str)] = &[("cache-control", "max-age=600")];

/// A directory that is gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("client-{}-{number}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn tier(&self) -> Tier {
        Tier::disk(&self.0, 16 << 20).timeout(Duration::from_secs(5))
    }

    /// The files that hold responses.
    fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files.retain(|file| file.extension().is_none());
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A cache of one user's, with that tier.
fn private(tier: Tier) -> Builder {
    Cache::private().tier(tier).partition("somebody")
}

/// Waits until something has been written behind memory: nobody else does.
async fn written(client: &Client, responses: u64) {
    for _ in 0..2_000 {
        let tiers = client.cache.stats().tiers;
        if tiers[0].written >= responses {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("not written: {:?}", client.cache.stats());
}

fn found(got: &Got) -> (&str, Outcome, Option<&'static str>) {
    (got.body(), got.outcome(), got.info.tier)
}

#[tokio::test]
async fn processes_share_memcached_and_redis() {
    let (node, server) = (Node::start(), Server::start(&[]));
    let patient = Duration::from_secs(5);
    let memcached = Tier::memcached([node.address().to_string()]).timeout(patient);
    let redis = Tier::redis(server.url()).timeout(patient);
    for (tier, name) in [(memcached, "memcached"), (redis, "redis")] {
        let site = Site::says(LASTING);
        let one = Client::with(private(tier.clone()), &site).await;
        let other = Client::with(private(tier.clone()), &site).await;
        let stranger = Cache::private()
            .tier(tier.clone())
            .partition("somebody else");
        let stranger = Client::with(stranger, &site).await;
        assert_eq!(found(&one.get("/", &[]).await), ("1", Outcome::Miss, None));
        written(&one, 1).await;
        let hit = other.get("/", &[]).await;
        assert_eq!(found(&hit), ("1", Outcome::Hit, Some(name)));
        assert_eq!(found(&other.get("/", &[]).await), ("1", Outcome::Hit, None));
        assert_eq!(
            stranger.get("/", &[]).await.body(),
            "2",
            "{name}: another partition"
        );
        one.cache
            .purge(&"http://site.example/".parse().unwrap())
            .await
            .unwrap();
        assert_eq!(one.get("/", &[]).await.body(), "3");
    }
}

#[tokio::test]
async fn a_pool_that_is_gone_or_hangs_fails_no_request() {
    let mut node = Node::start();
    let tier = Tier::memcached([node.address().to_string()]);
    let site = Site::says(LASTING);
    let client = Client::with(private(tier.clone()), &site).await;
    client.get("/0", &[]).await;
    written(&client, 1).await;
    node.stop();
    for number in 1..20 {
        assert_eq!(
            client.get(&format!("/{number}"), &[]).await.outcome(),
            Outcome::Miss
        );
    }
    assert_eq!(client.get("/1", &[]).await.outcome(), Outcome::Hit);
    let fresh = Client::with(private(tier.clone()), &site).await;
    assert_eq!(
        fresh.get("/0", &[]).await.outcome(),
        Outcome::Miss,
        "nobody can say"
    );
    node.resume();
    node.kill();
    for number in 20..40 {
        assert_eq!(
            client.get(&format!("/{number}"), &[]).await.outcome(),
            Outcome::Miss
        );
    }
    assert!(client.cache.stats().tiers[0].failures > 0);
    assert_eq!(client.cache.stats().errors, 0);
    // Nobody is there when it is built, either.
    let late = Client::with(private(tier), &site).await;
    assert_eq!(late.get("/late", &[]).await.outcome(), Outcome::Miss);
}

#[tokio::test]
async fn a_directory_outlives_the_cache() {
    let folder = Folder::new();
    let site = Site::says(LASTING);
    let client = Client::with(Cache::private().tier(folder.tier()), &site).await;
    client.get("/", &[("authorization", "Bearer 1")]).await;
    written(&client, 1).await;
    drop(client);
    let client = Client::of(&opened_again(&folder).await, &site);
    let hit = client.get("/", &[("authorization", "Bearer 1")]).await;
    assert_eq!(found(&hit), ("1", Outcome::Hit, Some("disk")));
    assert_eq!(client.get("/", &[]).await.body(), "2", "another identity");
}

/// A cache in a directory that somebody has just let go of, which takes a moment.
async fn opened_again(folder: &Folder) -> Cache {
    for _ in 0..1_000 {
        match Cache::private().tier(folder.tier()).build().await {
            Ok(cache) => return cache,
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
    panic!("it is never let go of");
}

/// `OkHttp` #8957: two handles on one directory.
#[tokio::test]
async fn a_directory_has_one_owner() {
    let folder = Folder::new();
    let site = Site::says(LASTING);
    let client = Client::with(Cache::private().tier(folder.tier()), &site).await;
    let second = Cache::private().tier(folder.tier()).build().await;
    let Err(BuildError::Tier { tier, source }) = second else {
        panic!("it is in use");
    };
    let told = source.to_string();
    assert_eq!(tier, "disk");
    assert!(
        told.contains(&format!("process {}", std::process::id())),
        "{told}"
    );
    client.get("/", &[]).await;
    written(&client, 1).await;
    assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Hit);
}

/// http-cache #141: what an older version has written fails requests.
#[tokio::test]
async fn what_cannot_be_read_is_a_miss() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [Damage; 4] = [
        Vec::clear,
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes[0] ^= 0xff,
        |bytes| *bytes.last_mut().unwrap() ^= 1,
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let folder = Folder::new();
        let site = Site::says(LASTING);
        let client = Client::with(Cache::private().tier(folder.tier()), &site).await;
        client.get("/", &[]).await;
        written(&client, 1).await;
        let files = folder.files();
        assert!(!files.is_empty());
        for file in files {
            let mut bytes = fs::read(&file).unwrap();
            damage(&mut bytes);
            fs::write(&file, bytes).unwrap();
        }
        drop(client);
        let client = Client::of(&opened_again(&folder).await, &site);
        let got = client.get("/", &[]).await;
        assert_eq!((got.status, got.body()), (200, "2"), "damage {number}");
        assert_eq!(
            client.get_by(CacheMode::OnlyIfCached, "/").await.body(),
            "2"
        );
    }
}

#[tokio::test]
async fn what_is_shared_with_others_says_whose_it_is() {
    let tier = Tier::memcached(["127.0.0.1:1"]);
    let error = Cache::private()
        .tier(tier.clone())
        .build()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("`partition`"), "{error}");
    assert!(Cache::shared().tier(tier).build().await.is_ok());
    let wrong = Cache::shared()
        .tier(Tier::memcached(["not an address"]))
        .build()
        .await;
    let error = wrong.unwrap_err().to_string();
    assert!(
        error.contains("memcached: ") && error.contains("host:port"),
        "{error}"
    );
    let secret = Tier::redis("redis://user:secret@127.0.0.1:1");
    assert!(!format!("{secret:?}").contains("secret"));
    let folder = Folder::new();
    fs::write(&folder.0, "a file").unwrap();
    let error = Cache::private()
        .tier(folder.tier())
        .build()
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains(&folder.0.display().to_string()),
        "{error}"
    );
    fs::remove_file(&folder.0).unwrap();
}

/// What lies behind memory is there for who asks nobody, and no condition for who wants another response.
#[tokio::test]
async fn modes_know_what_lies_behind_memory() {
    let (folder, node) = (Folder::new(), Node::start());
    let patient = Duration::from_secs(5);
    let memcached = Tier::memcached([node.address().to_string()]).timeout(patient);
    for tier in [folder.tier(), memcached] {
        let site = Site::says(&[("cache-control", "max-age=600"), ("etag", "\"a\"")]);
        let client = Client::with(private(tier.clone()), &site).await;
        client.get("/", &[]).await;
        written(&client, 1).await;
        drop(client);
        let client = opened(&tier, &site).await;
        let stored = client.get_by(CacheMode::OnlyIfCached, "/").await;
        assert_eq!((stored.status, stored.body()), (200, "1"), "{tier:?}");
        assert_eq!(
            client
                .get_by(CacheMode::OnlyIfCached, "/other")
                .await
                .status,
            504
        );
        let part = client.get("/", &[("range", "bytes=0-0")]).await;
        assert_eq!((part.status, part.outcome()), (206, Outcome::Hit));
        assert_eq!(site.asked(), 1, "{tier:?}");
        let reloaded = client.get_by(CacheMode::Reload, "/").await;
        assert_eq!(reloaded.body(), "2");
        assert!(!site.seen()[1].headers.contains_key("if-none-match"));
        written(&client, 1).await;
        drop(client);
        let client = opened(&tier, &site).await;
        assert_eq!(
            client.get("/", &[]).await.body(),
            "2",
            "{tier:?}: it took the old one's place"
        );
    }
}

/// A client with that tier, which somebody else may be about to let go of.
async fn opened(tier: &Tier, site: &Site) -> Client {
    for _ in 0..1_000 {
        match private(tier.clone()).build().await {
            Ok(cache) => return Client::of(&cache, site),
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
    panic!("it is never let go of");
}

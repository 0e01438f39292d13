//! What lies behind memory: a directory, memcached, Redis; and what happens when they fail.

use std::fs;
use std::time::Duration;

use microcache_client::{BuildError, Builder, Cache, CacheMode, Outcome, Tier};
use microcache_testkit::{Folder, TierServer, eventually_async};

use crate::support::{Client, Got, Site};

const LASTING: &[(&str, &str)] = &[("cache-control", "max-age=600")];

/// A disk in a folder.
fn disk_in(folder: &Folder) -> Tier {
    Tier::disk(folder.path(), 16 << 20).timeout(Duration::from_secs(5))
}

/// A cache of one user's, with that tier.
fn private(tier: Tier) -> Builder {
    Cache::private().tier(tier).partition("somebody")
}

/// Waits until something has been written behind memory, which no other call does.
async fn written(client: &Client, responses: u64) {
    eventually_async("writes", async || {
        client.cache.stats().tiers[0].written >= responses
    })
    .await;
}

fn found(got: &Got) -> (&str, Outcome, Option<&'static str>) {
    (got.body(), got.outcome(), got.info.tier)
}

#[tokio::test]
async fn processes_share_memcached_and_redis() {
    let (node, server) = (TierServer::memcached(), TierServer::redis());
    let patient = Duration::from_secs(5);
    let memcached = Tier::memcached([node.address()]).timeout(patient);
    let redis = Tier::redis(server.address()).timeout(patient);
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
    let mut node = TierServer::memcached();
    let tier = Tier::memcached([node.address()]);
    let site = Site::says(LASTING);
    let client = Client::with(private(tier.clone()), &site).await;
    client.get("/0", &[]).await;
    written(&client, 1).await;
    node.freeze();
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
    node.thaw();
    node.kill();
    for number in 20..40 {
        assert_eq!(
            client.get(&format!("/{number}"), &[]).await.outcome(),
            Outcome::Miss
        );
    }
    assert!(client.cache.stats().tiers[0].failures > 0);
    assert_eq!(client.cache.stats().errors, 0);
    // The server is down when it is built, too.
    let late = Client::with(private(tier), &site).await;
    assert_eq!(late.get("/late", &[]).await.outcome(), Outcome::Miss);
}

#[tokio::test]
async fn a_directory_outlives_the_cache() {
    let folder = Folder::absent();
    let site = Site::says(LASTING);
    let client = Client::with(Cache::private().tier(disk_in(&folder)), &site).await;
    client.get("/", &[("authorization", "Bearer 1")]).await;
    written(&client, 1).await;
    drop(client);
    let client = Client::of(
        &open_again(|| Cache::private().tier(disk_in(&folder))).await,
        &site,
    );
    let hit = client.get("/", &[("authorization", "Bearer 1")]).await;
    assert_eq!(found(&hit), ("1", Outcome::Hit, Some("disk")));
    assert_eq!(client.get("/", &[]).await.body(), "2", "another identity");
}

/// `OkHttp` #8957: two handles on one directory.
#[tokio::test]
async fn a_directory_has_one_owner() {
    let folder = Folder::absent();
    let site = Site::says(LASTING);
    let client = Client::with(Cache::private().tier(disk_in(&folder)), &site).await;
    let second = Cache::private().tier(disk_in(&folder)).build().await;
    let Err(BuildError::Tier { tier, source }) = second else {
        panic!("it is in use");
    };
    let reported = source.to_string();
    assert_eq!(tier, "disk");
    assert!(
        reported.contains(&format!("process {}", std::process::id())),
        "{reported}"
    );
    client.get("/", &[]).await;
    written(&client, 1).await;
    assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Hit);
}

/// http-cache #141: what an older version has written fails requests.
#[tokio::test]
async fn an_unreadable_record_is_a_miss() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [Damage; 4] = [
        Vec::clear,
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes[0] ^= 0xff,
        |bytes| *bytes.last_mut().unwrap() ^= 1,
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let folder = Folder::absent();
        let site = Site::says(LASTING);
        let client = Client::with(Cache::private().tier(disk_in(&folder)), &site).await;
        client.get("/", &[]).await;
        written(&client, 1).await;
        let mut files = folder.files();
        files.retain(|file| file.extension().is_none());
        assert!(!files.is_empty());
        for file in files {
            let mut bytes = fs::read(&file).unwrap();
            damage(&mut bytes);
            fs::write(&file, bytes).unwrap();
        }
        drop(client);
        let client = Client::of(
            &open_again(|| Cache::private().tier(disk_in(&folder))).await,
            &site,
        );
        let got = client.get("/", &[]).await;
        assert_eq!((got.status, got.body()), (200, "2"), "damage {number}");
        assert_eq!(
            client.get_by(CacheMode::OnlyIfCached, "/").await.body(),
            "2"
        );
    }
}

#[tokio::test]
async fn a_shared_tier_names_its_owner_in_errors() {
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
    let folder = Folder::absent();
    fs::write(folder.path(), "a file").unwrap();
    let error = Cache::private()
        .tier(disk_in(&folder))
        .build()
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&folder.path().display().to_string()),
        "{error}"
    );
    fs::remove_file(folder.path()).unwrap();
}

/// Responses behind memory answer `only-if-cached` requests, but are no condition of a request for another
/// response.
#[tokio::test]
async fn modes_apply_to_tiers_behind_memory() {
    let (folder, node) = (Folder::absent(), TierServer::memcached());
    let patient = Duration::from_secs(5);
    let memcached = Tier::memcached([node.address()]).timeout(patient);
    for tier in [disk_in(&folder), memcached] {
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
        assert_eq!(site.request_count(), 1, "{tier:?}");
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

/// A client with that tier.
async fn opened(tier: &Tier, site: &Site) -> Client {
    Client::of(&open_again(|| private(tier.clone())).await, site)
}

/// A cache with a tier that another one has just let go of, which takes a moment.
async fn open_again(builder: impl Fn() -> Builder) -> Cache {
    let mut cache = None;
    eventually_async("the tier to be free", async || {
        cache = builder().build().await.ok();
        cache.is_some()
    })
    .await;
    cache.expect("it was free")
}

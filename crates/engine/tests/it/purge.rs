//! Purges by rule, as requests see them: with a disk, across a restart, and in other processes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_engine::cache::entries::{EntryFilter, ListingOrder};
use microcache_engine::cache::{ChangeKind, Notice, Rule, Scope, Strength, Subject, WatchTarget};
use microcache_engine::{
    Body, BoxFuture, Engine, Origin, OriginError, OriginRequest, OriginResponse, Response, Served,
};
use microcache_policy::{Detail, Fields, FieldsBuf, Rules};
use microcache_store::disk::{Disk, DiskSettings};
use microcache_store::tiers::scripted::ScriptedTier;
use microcache_store::{AnyTier, TierLimits, Tiers};
use microcache_testkit::{Folder, eventually_async};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::asking::{HOST, ask, incoming, read};
use crate::support;

/// Answers every GET with the fields of its path and the number of the request.
#[derive(Default)]
struct Site {
    requests: AtomicU32,
    pages: Mutex<Vec<(&'static str, &'static str)>>,
    /// While it is locked, no request is answered.
    held: tokio::sync::Mutex<()>,
}

impl Origin for Site {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let pages = self.pages.lock().expect("no panic").clone();
        let path = String::from_utf8_lossy(&request.target).into_owned();
        let known = pages.iter().find(|(page, _)| *page == path);
        let lines = known.map_or("", |(_, lines)| lines);
        let asks = request.fields.fields().contains("if-none-match");
        let confirms = asks && lines.contains("ETag");
        let body = number.to_string();
        let response = OriginResponse {
            status: if confirms { 304 } else { 200 },
            fields: FieldsBuf::from(Fields::new(lines.as_bytes())),
            length: (!confirms).then_some(body.len() as u64),
            body: if confirms {
                Body::Empty
            } else {
                Body::Full(body.into())
            },
            tunnel: None,
            waited: 0,
        };
        Box::pin(async {
            let _free = self.held.lock().await;
            Ok(response)
        })
    }
}

struct World {
    engine: Arc<Engine>,
    site: Arc<Site>,
}

impl World {
    fn new(pages: &[(&'static str, &'static str)], tiers: Tiers) -> Self {
        let site = Arc::new(Site::default());
        *site.pages.lock().expect("no panic") = pages.to_vec();
        let route = support::route(Arc::clone(&site) as Arc<_>, Rules::default());
        let engine = support::engine(support::settings(), route, tiers);
        Self { engine, site }
    }

    async fn request(&self, method: Method, path: &str) -> Response {
        ask(&self.engine, &method, path, "").await
    }

    /// The body of a page, which is the number of the request that brought it, and whether it was a
    /// hit.
    async fn get(&self, path: &str) -> (String, bool) {
        let response = self.request(Method::GET, path).await;
        let hit = response.cache_status.hit;
        let body = read(response).await;
        (String::from_utf8(body).expect("a number"), hit)
    }

    async fn purge(&self, scope: Scope, strength: Strength) -> Rule {
        let mut purged = self.engine.cache.purge([(scope, strength)]).await;
        purged.written.expect("it is written down");
        purged.rules.remove(0)
    }
}

fn tag(name: &'static str) -> Scope {
    Scope::Tag(Bytes::from_static(name.as_bytes()))
}

const RED: (&str, &str) = (
    "/red",
    "Cache-Control: max-age=1000\r\nCache-Tag: red, colour\r\n",
);
const BLUE: (&str, &str) = (
    "/blue",
    "Cache-Control: max-age=1000\r\nSurrogate-Key: blue colour\r\nCache-Groups: \"sea\"\r\n",
);
const GREEN: (&str, &str) = (
    "/green",
    "Cache-Control: max-age=1000, stale-while-revalidate=1000\r\nxkey: green\r\nETag: \"g\"\r\n",
);

#[tokio::test]
async fn a_purge_by_tag_removes_the_tagged_entries_only() {
    let world = World::new(&[RED, BLUE, GREEN], Tiers::default());
    for path in ["/red", "/blue", "/green"] {
        assert!(!world.get(path).await.1);
        assert!(world.get(path).await.1);
    }
    world.purge(tag("red"), Strength::Hard).await;
    assert_eq!(world.get("/red").await, ("4".into(), false));
    assert_eq!(world.get("/blue").await, ("2".into(), true));
    world.purge(tag("colour"), Strength::Hard).await;
    assert_eq!(world.get("/red").await, ("5".into(), false));
    assert_eq!(world.get("/blue").await, ("6".into(), false));
    assert_eq!(world.get("/green").await, ("3".into(), true));
    world.engine.cache.sweep().await;
    assert_eq!(world.get("/red").await, ("5".into(), true), "it is new");
}

/// A page with as many tags, as TYPO3, Magento and larger sites send them; each response names another last one.
fn tagged(path: &'static str, count: usize, validator: &str) -> (&'static str, &'static str) {
    let names: Vec<_> = (0..count)
        .map(|number| format!("{path}-product_{number:025}"))
        .collect();
    let names = names.join(" ");
    let lines = format!("Cache-Control: max-age=1000\r\nSurrogate-Key: {names}\r\n{validator}");
    (path, lines.leak())
}

#[tokio::test]
async fn many_tags_are_kept_without_their_names() {
    let pages = [
        tagged("/some", 128, ""),
        tagged("/typo3", 500, ""),
        tagged("/magento", 4_000, "ETag: \"m\"\r\n"),
        tagged("/shop", 4_097, ""),
    ];
    let world = World::new(&pages, Tiers::default());
    let paths = pages.map(|(path, _)| path);
    for (path, lines) in pages {
        let first = world.request(Method::GET, path).await;
        let (fields, detail) = (first.fields(), first.cache_status.detail);
        assert_eq!(
            fields.contains("surrogate-key"),
            lines.len() < 8_000,
            "{path}"
        );
        let expected = (path == "/shop").then_some(Detail::TooManyTags);
        assert!(
            first.cache_status.stored && detail == expected,
            "{path} {detail:?}"
        );
        read(first).await;
        let second = world.request(Method::GET, path).await;
        assert!(second.cache_status.hit, "{path}");
        assert_eq!(
            second.fields().contains("surrogate-key"),
            lines.len() < 8_000
        );
    }
    assert_eq!(world.engine.cache.too_many_tags(), 1);
    let hits = async || {
        let mut hits = Vec::new();
        for path in paths {
            hits.push(world.get(path).await.1);
        }
        hits
    };
    for (path, number, expected) in [
        ("/other", 7, [true, true, true, false]),
        ("/some", 127, [false, true, true, false]),
        ("/typo3", 499, [true, false, true, false]),
        ("/typo3", 500, [true, true, true, false]),
        ("/magento", 0, [true, true, false, false]),
    ] {
        let name = format!("{path}-product_{number:025}");
        world.purge(tag(name.leak()), Strength::Hard).await;
        assert_eq!(hits().await, expected, "{path} {number}");
    }
    world
        .purge(
            Scope::Host(Bytes::from_static(b"other.example")),
            Strength::Hard,
        )
        .await;
    assert_eq!(hits().await, [true; 4]);
    // A confirmation does not repeat the tags, or names a few.
    let of_magento = |number| tag(format!("/magento-product_{number:025}").leak());
    for lines in ["ETag: \"m\"\r\n", "ETag: \"m\"\r\nxkey: news\r\n"] {
        *world.site.pages.lock().expect("no panic") = vec![("/magento", lines)];
        world.purge(of_magento(17), Strength::Soft).await;
        eventually_async("the confirmation", async || {
            world
                .request(Method::GET, "/magento")
                .await
                .cache_status
                .ttl
                > Some(0)
        })
        .await;
    }
    world.purge(of_magento(3_999), Strength::Hard).await;
    assert!(!world.get("/magento").await.1);
}

#[tokio::test]
async fn a_head_is_large_for_its_tags_alone() {
    let lines = |name: &str, length: usize| -> &'static str {
        format!(
            "Cache-Control: max-age=9\r\n{name}: {}\r\n",
            "x".repeat(length)
        )
        .leak()
    };
    let pages = [
        ("/tag", lines("xkey", 200_000)),
        ("/other", lines("X-Other", 140_000)),
        ("/fits", lines("X-Other", 120_000)),
    ];
    let world = World::new(&pages, Tiers::default());
    for (path, _) in pages {
        for method in [Method::GET, Method::POST] {
            let requested = incoming(&method, path, "");
            let now = world.engine.clock.now();
            let Served::Fetch(plan) = world.engine.serve(&requested.as_request(), now) else {
                panic!("{path} is not stored")
            };
            let answered = Arc::clone(&world.engine).ask(plan, requested).await;
            assert_eq!(answered.is_ok(), path != "/other", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_soft_purge_makes_stale_and_is_refreshed_at_once() {
    let world = World::new(&[GREEN], Tiers::default());
    world.get("/green").await;
    world.purge(tag("green"), Strength::Soft).await;
    let response = world.request(Method::GET, "/green").await;
    assert!(response.cache_status.hit);
    assert!(response.cache_status.ttl.is_some_and(|ttl| ttl <= 0));
    eventually_async("the origin to be asked", async || {
        world.site.requests.load(Ordering::Relaxed) >= 2
    })
    .await;
    // The origin has confirmed it: it is fresh again.
    eventually_async("freshness", async || {
        world.request(Method::GET, "/green").await.cache_status.ttl > Some(0)
    })
    .await;
    assert_eq!(world.get("/green").await, ("1".into(), true));
}

#[tokio::test]
async fn an_unsafe_method_invalidates_the_groups_that_its_response_names() {
    let pages = [
        RED,
        BLUE,
        ("/order", "Cache-Group-Invalidation: \"sea\", \"none\"\r\n"),
    ];
    let world = World::new(&pages, Tiers::default());
    world.get("/red").await;
    world.get("/blue").await;
    world.get("/order").await;
    assert!(
        world.get("/blue").await.1,
        "a safe method invalidates nothing"
    );
    world.request(Method::POST, "/order").await;
    assert!(!world.get("/blue").await.1);
    assert!(world.get("/red").await.1);
}

const MANY: (&str, &str) = (
    "/many",
    "Cache-Control: max-age=1000, stale-while-revalidate=1000\r\nVary: Accept-Language\r\n",
);

impl World {
    /// The same in this language.
    async fn get_in(&self, language: &str) -> (String, bool) {
        let fields = format!("Accept-Language: {language}");
        let response = ask(&self.engine, &Method::GET, "/many", &fields).await;
        let hit = response.cache_status.hit;
        let body = read(response).await;
        (String::from_utf8(body).expect("a number"), hit)
    }

    /// Purges the variants that such a request selects.
    async fn purge_in(&self, language: &str, strength: Strength) {
        let fields = format!("Accept-Language: {language}");
        let request = incoming(&Method::GET, "/many", &fields);
        let variants = self.engine.variants_for(&request.as_request()).await;
        for variant in variants {
            let scope = Scope::Variant {
                host: Bytes::from_static(HOST.as_bytes()),
                target: Bytes::from_static(b"/many"),
                variant,
            };
            self.purge(scope, strength).await;
        }
    }
}

#[test]
fn a_purge_of_one_variant_leaves_the_others_in_memory_and_on_the_disk() {
    let directory = Folder::absent();
    process(async {
        let world = world_in(&directory, &[MANY]).await;
        for (language, body) in [("de", "1"), ("en", "2"), ("fr", "3")] {
            assert_eq!(world.get_in(language).await, (body.into(), false));
        }
        world.engine.cache.settle().await;
        world.purge_in("de", Strength::Hard).await;
        // After a restart, fetches in the millisecond of a purge count as purged.
        sleep(Duration::from_millis(2)).await;
        assert_eq!(world.get_in("de").await, ("4".into(), false));
        assert_eq!(world.get_in("en").await, ("2".into(), true));
        world.engine.cache.settle().await;
        world.purge_in("en", Strength::Hard).await;
    });
    process(async {
        let world = world_in(&directory, &[MANY]).await;
        assert_eq!(world.get_in("de").await, ("4".into(), true), "it is newer");
        assert_eq!(world.get_in("fr").await, ("3".into(), true));
        // The variant is also known for an entry that is only on disk.
        world.purge_in("fr", Strength::Hard).await;
        assert_eq!(world.get_in("fr").await, ("1".into(), false));
        assert_eq!(world.get_in("en").await, ("2".into(), false));
        assert_eq!(world.get_in("de").await, ("4".into(), true));
    });
}

#[tokio::test]
async fn a_soft_purge_of_one_variant_makes_that_one_stale() {
    let world = World::new(&[MANY], Tiers::default());
    world.get_in("de").await;
    world.get_in("en").await;
    world.purge_in("de", Strength::Soft).await;
    assert_eq!(world.get_in("en").await, ("2".into(), true));
    assert_eq!(world.get_in("de").await, ("1".into(), true), "stale");
    eventually_async("the new one", async || {
        world.get_in("de").await == ("3".into(), true)
    })
    .await;
    assert_eq!(world.get_in("en").await, ("2".into(), true));
}

#[tokio::test]
async fn a_fetch_during_a_purge_of_a_variant_is_not_stored() {
    let world = World::new(&[MANY], Tiers::default());
    let held = world.site.held.lock().await;
    let request = incoming(&Method::GET, "/many", "Accept-Language: de");
    let served = world
        .engine
        .serve(&request.as_request(), world.engine.clock.now());
    let Served::Fetch(plan) = served else {
        panic!("nothing is stored yet")
    };
    let fetch = Arc::clone(&world.engine).ask(plan, request);
    let fetch = tokio::spawn(fetch);
    while world.engine.cache.fetches() == 0 {
        tokio::task::yield_now().await;
    }
    world.purge_in("de", Strength::Hard).await;
    drop(held);
    let response = fetch.await.expect("no panic").expect("an answer");
    assert_eq!(read(response).await, b"1");
    assert_eq!(world.get_in("de").await, ("2".into(), false));
}

/// A world that stores its pages in a folder, as after a start.
async fn world_in(folder: &Folder, pages: &[(&'static str, &'static str)]) -> World {
    let background = Handle::current();
    // The previous process may take a moment to release it.
    let mut disk = None;
    eventually_async("the disk to be free", async || {
        let settings = DiskSettings::new(folder.path(), 1 << 26);
        disk = Disk::open(settings, &background).ok();
        disk.is_some()
    })
    .await;
    let tiers = vec![AnyTier::Local(disk.expect("it was free"))];
    let world = World::new(pages, Tiers::new(tiers, TierLimits::default(), &background));
    let loaded = world.engine.cache.load_rules().await;
    assert!(!loaded.expect("the journal is read").is_damaged);
    world
}

/// Runs one process, in a runtime of its own that ends with it.
fn process<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work)
}

#[test]
fn a_purge_outlives_the_process_and_so_does_the_rest() {
    let directory = Folder::absent();
    process(async {
        let world = world_in(&directory, &[RED, BLUE]).await;
        world.get("/red").await;
        world.get("/blue").await;
        world.engine.cache.settle().await;
        world.purge(tag("red"), Strength::Hard).await;
    });
    process(async {
        let world = world_in(&directory, &[RED, BLUE]).await;
        assert_eq!(world.engine.cache.live_rules(), 1);
        assert_eq!(world.get("/red").await, ("1".into(), false));
        assert_eq!(world.get("/blue").await, ("2".into(), true));
        let filter = EntryFilter::default();
        let listed = world.engine.cache.entries_on_disk(&filter, None, 10).await;
        assert!(!listed.expect("the disk answers").entries.is_empty());
    });
}

#[test]
fn a_soft_purge_applies_to_entries_on_disk() {
    let directory = Folder::absent();
    process(async {
        let world = world_in(&directory, &[GREEN]).await;
        world.get("/green").await;
        world.engine.cache.settle().await;
        world.purge(tag("green"), Strength::Soft).await;
    });
    process(async {
        let world = world_in(&directory, &[GREEN]).await;
        let response = world.request(Method::GET, "/green").await;
        assert!(response.cache_status.hit);
        assert!(response.cache_status.ttl.is_some_and(|ttl| ttl <= 0));
    });
}

#[tokio::test]
async fn a_rule_reaches_other_processes_and_counts_once() {
    let pool = ScriptedTier::new(0, 0);
    let tiers = || {
        let pool = AnyTier::Shared(Arc::new(pool.clone()));
        Tiers::new(vec![pool], TierLimits::default(), &Handle::current())
    };
    let here = World::new(&[RED, BLUE], tiers());
    let there = World::new(&[RED, BLUE], tiers());
    let in_step = Arc::clone(&there.engine);
    let in_step = tokio::spawn(async move { in_step.cache.keep_in_step().await });
    for world in [&here, &there] {
        let loaded = world.engine.cache.load_rules().await;
        loaded.expect("there is no disk");
        world.get("/red").await;
        world.get("/blue").await;
        world.engine.cache.settle().await;
    }
    let mut watcher = there.engine.cache.watch(WatchTarget::Scope(tag("red")));
    let watcher = watcher.as_mut().expect("room");
    here.purge(tag("red"), Strength::Hard).await;
    watcher.next().await;
    assert_eq!(there.get("/red").await, ("1".into(), false));
    assert_eq!(there.get("/blue").await, ("2".into(), true));
    // It counts once, and does not affect entries stored since.
    sleep(Duration::from_millis(600)).await;
    assert_eq!(there.get("/red").await, ("1".into(), true));
    in_step.abort();
}

#[tokio::test]
async fn watchers_get_stored_and_purged_entries() {
    let world = World::new(&[GREEN, RED], Tiers::default());
    let cache = &world.engine.cache;
    let mut watcher = cache.watch(WatchTarget::Scope(tag("green"))).expect("room");
    world.get("/red").await;
    world.get("/green").await;
    let mut reported = async || match watcher.next().await {
        Notice::Changed(change) => change,
        Notice::Missed(_) => panic!("it was not slow"),
    };
    let stored = reported().await;
    assert_eq!(stored.kind, ChangeKind::Stored);
    let Subject::Key { validator, .. } = &stored.subject else {
        panic!("it is about a key")
    };
    assert_eq!(validator.as_deref(), Some(&b"\"g\""[..]));
    world.purge(tag("green"), Strength::Hard).await;
    let purged = reported().await;
    assert_eq!(purged.subject, Subject::Scope(tag("green")));
    cache.sweep().await;
    let gone = reported().await;
    assert_eq!(gone.kind, ChangeKind::Purged);
    assert!(stored.number < purged.number && purged.number < gone.number);
}

#[tokio::test]
async fn entries_in_memory_are_listed_page_by_page() {
    let world = World::new(&[RED, BLUE, GREEN], Tiers::default());
    for path in ["/red", "/blue", "/green", "/green", "/green"] {
        world.get(path).await;
    }
    let cache = &world.engine.cache;
    let everything = EntryFilter::default();
    let (mut after, mut keys) = (None, Vec::new());
    loop {
        let page = cache
            .entries(&everything, ListingOrder::Key, after.as_ref(), 1)
            .await;
        keys.extend(page.entries.into_iter().map(|entry| entry.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys.len(), 3);
    assert!(keys.is_sorted());
    let most_used = cache
        .entries(&everything, ListingOrder::Uses, None, 10)
        .await
        .entries;
    assert_eq!(most_used[0].uses, 2);
    assert!(String::from_utf8_lossy(&most_used[0].key).contains("/green"));
    let coloured = EntryFilter {
        scopes: vec![tag("colour")],
        ..EntryFilter::default()
    };
    assert_eq!(
        cache
            .entries(&coloured, ListingOrder::Size, None, 10)
            .await
            .entries
            .len(),
        2
    );
    let none = EntryFilter {
        age: 3_600_000,
        ..EntryFilter::default()
    };
    assert!(
        cache
            .entries(&none, ListingOrder::Age, None, 10)
            .await
            .entries
            .is_empty()
    );
    world.purge(tag("red"), Strength::Hard).await;
    assert_eq!(
        cache
            .entries(&coloured, ListingOrder::Key, None, 10)
            .await
            .entries
            .len(),
        1
    );
}

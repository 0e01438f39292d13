//! Runtimes without timers, and none at all: what needs them is left out, and no request fails.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http_body_util::BodyExt;
use microcache_client::{BuildError, Cache, CacheMode, CacheOptions, Outcome, Tier};
use microcache_testkit::Folder;
use tokio::runtime::{Builder, Runtime};

use crate::support::{Client, Site, page, request, whole};

const MINUTE: (&str, &str) = ("cache-control", "max-age=60");

fn with_timers() -> Runtime {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime")
}

fn without_timers() -> Vec<Runtime> {
    let alone = Builder::new_current_thread().enable_io().build();
    let several = Builder::new_multi_thread().enable_io().build();
    vec![alone.expect("a runtime"), several.expect("a runtime")]
}

/// Waits for what never needs a second turn, outside of every runtime.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it is not ready at once"),
    }
}

#[test]
fn a_cache_is_built_where_there_are_timers() {
    for runtime in without_timers() {
        let refused = runtime.block_on(Cache::private().build());
        let error = refused.expect_err("it cannot work there");
        assert!(matches!(error, BuildError::NoTimers), "{error:?}");
        assert!(error.to_string().contains("enable_time"), "{error}");
        assert!(error.to_string().contains("enable_all"), "{error}");
    }
    let refused = at_once(Cache::private().build());
    assert!(matches!(refused, Err(BuildError::NoRuntime)));
    let timers_alone = Builder::new_current_thread().enable_time().build();
    let built = timers_alone.unwrap().block_on(Cache::private().build());
    assert!(built.is_ok());
}

#[test]
fn requests_from_elsewhere_pass_by() {
    let home = with_timers();
    let site = Site::says(&[MINUTE]);
    let client = home.block_on(Client::private(&site));
    for (number, runtime) in without_timers().into_iter().enumerate() {
        for requested in [1, 2] {
            let got = runtime.block_on(client.get("/missing", &[("accept", "text/plain")]));
            assert_eq!(got.body(), (2 * number + requested).to_string());
            assert_eq!(got.outcome(), Outcome::Bypass);
            assert_eq!(got.info.why, Some("no-timers"));
        }
    }
    let got = at_once(async { whole(client.send(request("/missing", &[])).await.unwrap()).await });
    assert_eq!(
        (got.body(), got.outcome(), got.info.why),
        ("5", Outcome::Bypass, Some("no-runtime"))
    );
    let seen = site.seen();
    assert_eq!(seen[0].headers.get("accept").unwrap(), "text/plain");
    assert_eq!(client.cache.stats().requests(Outcome::Bypass), 5);

    // What is there is given to everyone.
    home.block_on(client.get("/", &[]));
    for runtime in without_timers() {
        let got = runtime.block_on(client.get("/", &[]));
        assert_eq!(got.outcome(), Outcome::Hit);
    }
    let got = at_once(async { whole(client.send(request("/", &[])).await.unwrap()).await });
    assert_eq!(got.outcome(), Outcome::Hit);
}

#[test]
fn request_directives_apply_there_too() {
    let home = with_timers();
    let site = Site::says(&[MINUTE]);
    let client = home.block_on(Client::private(&site));
    for runtime in without_timers() {
        let got = runtime.block_on(client.get_by(CacheMode::OnlyIfCached, "/"));
        assert_eq!((got.status, got.outcome()), (504, Outcome::Module));
    }
    assert_eq!(site.request_count(), 0);
    let runtime = &without_timers()[0];
    runtime.block_on(client.get_by(CacheMode::Reload, "/"));
    assert_eq!(
        site.seen()[0].headers.get("cache-control").unwrap(),
        "no-cache"
    );
}

/// A stale response that may be used while it is refreshed is given, and nothing is refreshed there.
#[test]
fn nothing_is_refreshed_there() {
    let home = with_timers();
    let site = Site::says(&[("cache-control", "max-age=0, stale-while-revalidate=60")]);
    let client = home.block_on(Client::private(&site));
    home.block_on(client.get("/", &[]));
    for runtime in without_timers() {
        let got = runtime.block_on(client.get("/", &[]));
        assert_eq!((got.body(), got.outcome()), ("1", Outcome::Stale));
    }
    assert_eq!(site.request_count(), 1);
}

/// What is changed from there is not used any more, in memory and behind it.
#[test]
fn changes_and_purges_from_elsewhere_count() {
    let home = with_timers();
    let folder = Folder::absent();
    let builder = Cache::private().tier(Tier::directory(folder.path(), 1 << 20));
    let site = Site::new(|number, _| {
        page(
            number.to_string(),
            &[MINUTE, ("cache-group-invalidation", "\"all\"")],
        )
    });
    let client = home.block_on(Client::with(builder, &site));
    let is_stored = || {
        home.block_on(client.cache.settled());
        let got = home.block_on(client.get_by(CacheMode::OnlyIfCached, "/"));
        got.outcome() == Outcome::Hit
    };
    for runtime in without_timers() {
        home.block_on(client.get("/", &[]));
        assert!(is_stored());
        let mut change = request("/", &[]);
        *change.method_mut() = http::Method::PUT;
        let got = runtime.block_on(client.ask(change));
        assert_eq!((got.status, got.outcome()), (200, Outcome::Bypass));
        assert!(!is_stored());

        home.block_on(client.get("/", &[]));
        assert!(is_stored());
        let url = "http://site.example/".parse().unwrap();
        let purged = runtime.block_on(client.cache.purge(&url));
        assert!(purged.unwrap_err().to_string().contains("no-timers"));
        assert!(!is_stored());

        // The waiter for the directory is woken when it is released.
        runtime.block_on(client.cache.settled());
    }
}

/// A large body in a file is read outside of a runtime too.
#[test]
fn entries_on_disk_are_readable_by_every_clock() {
    let home = with_timers();
    let folder = Folder::absent();
    let builder = Cache::private()
        .memory(1 << 20)
        .tier(Tier::disk(folder.path(), 64 << 20));
    let site = Site::new(|_, _| page(vec![b'x'; 2 << 20], &[MINUTE]));
    let client = home.block_on(Client::with(builder, &site));
    home.block_on(async {
        client.get("/", &[]).await;
        client.cache.settled().await;
        assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Hit);
    });
    let length = at_once(async {
        let mut requested = request("/", &[]);
        let options = CacheOptions::default().with_mode(CacheMode::ForceCache);
        requested.extensions_mut().insert(options);
        let response = client.send(requested).await.unwrap();
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .len()
    });
    assert_eq!(length, 2 << 20);
}

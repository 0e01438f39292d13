//! Faults of other client caches: one test each, named after the report.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use http_body_util::BodyExt;
use microcache_client::{Cache, Outcome};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::advance;

use crate::support::{Client, Site, page, piecemeal, request, settle, status, whole};

const MINUTE: (&str, &str) = ("cache-control", "max-age=60");

/// http-cache, `OkHttp` #6214: one variant per url.
#[tokio::test(start_paused = true)]
async fn variants_lie_side_by_side() {
    let site = Site::says(&[MINUTE, ("vary", "accept-language")]);
    let client = Client::private(&site).await;
    for _ in 0..3 {
        for (language, body) in [("de", "1"), ("en", "2"), ("fr", "3")] {
            let got = client.get("/", &[("accept-language", language)]).await;
            assert_eq!(got.body(), body);
        }
    }
    assert_eq!(site.request_count(), 3);
}

/// http-cache, undici #5511: 5xx although the response must be revalidated.
#[tokio::test(start_paused = true)]
async fn must_revalidate_forbids_stale_responses() {
    for (words, outcome) in [
        (
            "max-age=1, must-revalidate, stale-if-error=60",
            Outcome::Failure,
        ),
        ("max-age=1, no-cache, stale-if-error=60", Outcome::Failure),
        ("max-age=1, stale-if-error=60", Outcome::Stale),
    ] {
        let site = Site::new(move |number, _| match number {
            1 => page("1", &[("cache-control", words), ("etag", "\"a\"")]),
            _ => status(503, &[]),
        });
        let client = Client::private(&site).await;
        client.get("/", &[]).await;
        advance(Duration::from_secs(2)).await;
        let got = client.get("/", &[]).await;
        assert_eq!(got.outcome(), outcome, "{words}");
        assert_eq!(got.status == 503, outcome == Outcome::Failure, "{words}");
    }
}

/// rusty-http-cache-semantics #29: only the first line of Vary was compared.
#[tokio::test(start_paused = true)]
async fn all_lines_of_vary_count() {
    let site = Site::says(&[MINUTE, ("vary", "accept-language"), ("vary", "x-tenant")]);
    let client = Client::private(&site).await;
    for (tenant, body) in [("a", "1"), ("b", "2"), ("a", "1"), ("b", "2")] {
        let lines = [("accept-language", "de"), ("x-tenant", tenant)];
        assert_eq!(client.get("/", &lines).await.body(), body);
    }
}

/// axios-cache-interceptor #1171: the second request failed with the first one, which was aborted.
#[tokio::test(start_paused = true)]
async fn a_waiter_outlives_its_leader() {
    let go = Arc::new(Notify::new());
    let site = Site::later({
        let go = Arc::clone(&go);
        move |number, _| {
            let go = Arc::clone(&go);
            Box::pin(async move {
                go.notified().await;
                Ok(page(number.to_string(), &[MINUTE]))
            })
        }
    });
    let client = Client::private(&site).await;
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.get("/", &[]).await }
    });
    settle().await;
    let second = tokio::spawn(async move { client.get("/", &[]).await });
    settle().await;
    first.abort();
    settle().await;
    go.notify_one();
    let second = second.await.unwrap();
    assert_eq!((second.body(), second.outcome()), ("1", Outcome::Collapsed));
    assert_eq!(site.request_count(), 1);
}

/// axios-cache-interceptor #1149: when the first one failed, all who waited asked at once.
#[tokio::test(start_paused = true)]
async fn one_failure_is_no_storm() {
    let go = Arc::new(Notify::new());
    let site = Site::later({
        let go = Arc::clone(&go);
        move |_, _| {
            let go = Arc::clone(&go);
            Box::pin(async move {
                go.notified().await;
                Err(io::Error::other("the cable is out"))
            })
        }
    });
    let client = Client::private(&site).await;
    let mut all = JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        all.spawn(async move { client.send(request("/", &[])).await });
        settle().await;
    }
    for _ in 0..5 {
        go.notify_one();
        settle().await;
    }
    let mut reported = 0;
    while let Some(answer) = all.join_next().await {
        let error = answer.unwrap().unwrap_err();
        let inner = error
            .inner::<io::Error>()
            .expect("it is what the server's side says");
        assert_eq!(inner.to_string(), "the cable is out");
        let source = std::error::Error::source(&error).expect("it has a source");
        assert!(source.is::<io::Error>());
        reported += 1;
    }
    assert_eq!(reported, 50);
    assert!(
        site.request_count() <= 2,
        "asked {} times",
        site.request_count()
    );
}

/// undici #5737: bounds were never enforced.
#[tokio::test(start_paused = true)]
async fn bounds_are_held() {
    let site = Site::new(|_, _| page(vec![b'x'; 5_000], &[MINUTE]));
    let client = Client::with(Cache::private().memory(1 << 20), &site).await;
    for number in 0..1_000 {
        client.get(&format!("/{number}"), &[]).await;
        let stats = client.cache.stats();
        assert!(stats.bytes <= stats.capacity, "{stats:?}");
    }
    let stats = client.cache.stats();
    assert!(stats.entries > 100 && stats.evicted > 500, "{stats:?}");
    let small = Client::with(Cache::private().max_object(4_999), &site).await;
    small.get("/", &[]).await;
    let again = small.get("/", &[]).await;
    assert_eq!(
        (again.outcome(), again.body().len()),
        (Outcome::Miss, 5_000)
    );
    assert!(small.cache.stats().bytes < 1_000);
}

/// undici #4334: a part was kept as the whole.
#[tokio::test(start_paused = true)]
async fn a_part_is_never_the_whole() {
    let site = Site::new(|_, request| match request.headers().get("range") {
        Some(_) => status(206, &[MINUTE, ("content-range", "bytes 0-2/9")]),
        None => page("the whole", &[MINUTE]),
    });
    let client = Client::private(&site).await;
    let part = client.get("/", &[("range", "bytes=0-2")]).await;
    assert_eq!((part.status, part.body()), (206, "206"));
    let whole = client.get("/", &[]).await;
    assert_eq!((whole.status, whole.body()), (200, "the whole"));
    // A server that sends a part unasked.
    let odd = Site::new(|_, _| status(206, &[MINUTE, ("content-range", "bytes 0-2/9")]));
    let client = Client::private(&odd).await;
    for _ in 0..2 {
        assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Miss);
    }
}

/// got #666: a body that timed out was kept as it was by then.
#[tokio::test(start_paused = true)]
async fn half_a_body_is_not_kept() {
    for announced in [false, true] {
        let broken = AtomicBool::new(false);
        let site = Site::new(move |number, _| {
            let mut response = page(number.to_string(), &[MINUTE]);
            if !broken.swap(true, Ordering::Relaxed) {
                let (pieces, body) = piecemeal();
                *response.body_mut() = body;
                pieces.try_send(Ok("half of ")).unwrap();
                if announced {
                    response.headers_mut().insert("content-length", 100.into());
                } else {
                    let late = io::Error::new(io::ErrorKind::TimedOut, "too late");
                    pieces.try_send(Err(late)).unwrap();
                }
            }
            response
        });
        let client = Client::private(&site).await;
        let first = client.get("/", &[]).await;
        let error = first.body.expect_err("it breaks off");
        let inner = error.inner::<io::Error>().map(io::Error::kind);
        assert_eq!(inner, (!announced).then_some(io::ErrorKind::TimedOut));
        assert_eq!(client.get("/", &[]).await.body(), "2");
    }
}

/// http-cache #164: "streaming" that read all of it first, and what is too large with it.
#[tokio::test(start_paused = true)]
async fn a_response_too_large_to_store_is_streamed() {
    let sent = Arc::new(AtomicUsize::new(0));
    let site = Site::new({
        let sent = Arc::clone(&sent);
        move |_, _| {
            let sent = Arc::clone(&sent);
            let pieces = futures_util::stream::iter(0..1_000).map(move |_| {
                sent.fetch_add(1, Ordering::Relaxed);
                Ok(http_body::Frame::data(vec![b'x'; 10_000].into()))
            });
            let mut response = page("", &[MINUTE]);
            *response.body_mut() = http_body_util::StreamBody::new(pieces).boxed_unsync();
            response
        }
    });

    let client = Client::with(Cache::private().memory(1 << 20), &site).await;
    let mut response = client.send(request("/", &[])).await.unwrap();
    let mut read = 0;
    while let Some(frame) = response.body_mut().frame().await {
        read += frame.unwrap().into_data().unwrap().len();
        let ahead = sent.load(Ordering::Relaxed) * 10_000 - read;
        assert!(ahead <= 2 << 20, "{ahead} bytes are held for a reader");
    }
    assert_eq!(read, 10_000_000);
}

/// `HttpClient` #853: only-if-cached asked the network.
#[tokio::test(start_paused = true)]
async fn only_if_cached_sends_no_request() {
    let site = Site::says(&[("cache-control", "max-age=1"), ("etag", "\"a\"")]);
    let client = Client::private(&site).await;
    let lines = [("cache-control", "only-if-cached")];
    // What may be used while it is refreshed is not refreshed for such a request.
    let window = [("cache-control", "max-age=1, stale-while-revalidate=60")];
    let window = Site::new(move |number, _| page(number.to_string(), &window));
    let in_window = Client::private(&window).await;
    in_window.get("/", &[]).await;
    advance(Duration::from_secs(2)).await;
    assert_eq!(in_window.get("/", &lines).await.outcome(), Outcome::Stale);
    assert_eq!(window.request_count(), 1);
    for requested in [0, 1] {
        let got = client.get("/", &lines).await;
        assert_eq!((got.status, got.outcome()), (504, Outcome::Module));
        assert_eq!(site.request_count(), requested);
        client.get("/", &[]).await;
        advance(Duration::from_secs(2)).await;
    }
}

/// faraday-http-cache #112: `Vary: Authorization` with rotating tokens grew past the limit of an item.
#[tokio::test(start_paused = true)]
async fn rotating_tokens_fill_nothing() {
    for vary in ["authorization", "x-token"] {
        let site = Site::new(move |number, _| page(number.to_string(), &[MINUTE, ("vary", vary)]));
        let client = Client::with(Cache::private().memory(1 << 20), &site).await;
        for number in 1..=2_000 {
            let token = format!("Bearer {number}");
            let lines = [("authorization", &token[..]), ("x-token", &token)];
            assert_eq!(client.get("/", &lines).await.body(), number.to_string());
            let hit = client.get("/", &lines).await;
            assert_eq!(hit.outcome(), Outcome::Hit, "{vary}: the newest is kept");
        }
        let stats = client.cache.stats();
        assert!(stats.bytes <= stats.capacity, "{stats:?}");
    }
}

/// Ktor #3683: `s-maxage` counted in a private cache.
#[tokio::test(start_paused = true)]
async fn words_for_shared_caches_do_not_count_in_a_private_one() {
    let site = Site::says(&[("cache-control", "s-maxage=60")]);
    let private = Client::private(&site).await;
    for _ in 0..2 {
        assert_eq!(private.get("/", &[]).await.outcome(), Outcome::Miss);
    }
    let shared = Client::shared(&site).await;
    assert_eq!(shared.get("/", &[]).await.outcome(), Outcome::Miss);
    assert_eq!(shared.get("/", &[]).await.outcome(), Outcome::Hit);
}

/// uv #504: reading what is stored took most of a hit.
#[tokio::test(start_paused = true)]
async fn a_hit_copies_no_body() {
    let site = Site::new(|_, _| page(vec![b'x'; 100_000], &[MINUTE]));
    let client = Client::private(&site).await;
    client.get("/", &[]).await;
    let mut places = Vec::new();
    for _ in 0..2 {
        let response = client.send(request("/", &[])).await.unwrap();
        places.push(response.into_body().collect().await.unwrap().to_bytes());
    }
    assert_eq!(places[0].as_ptr(), places[1].as_ptr());
}

/// A response for one identity is for no other, in any order of requests.
#[tokio::test(start_paused = true)]
async fn identities_do_not_mix() {
    let site = Site::says(&[("cache-control", "private, max-age=60")]);
    let client = Client::private(&site).await;
    for _ in 0..2 {
        for (token, body) in [("Bearer a", "1"), ("Bearer b", "2")] {
            let got = client.get("/", &[("authorization", token)]).await;
            assert_eq!(got.body(), body);
        }
        assert_eq!(client.get("/", &[]).await.body(), "3");
    }
    let response = client
        .send(request("/", &[("authorization", "Bearer a")]))
        .await;
    assert_eq!(whole(response.unwrap()).await.outcome(), Outcome::Hit);
}

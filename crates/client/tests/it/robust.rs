//! What may not happen to a request, whatever happens around it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use microcache_client::{Builder, Cache, CacheBody, CacheInfo, Error, Outcome};
use tokio::time::advance;

use crate::support::{Client, Site, SiteBody, page, piecemeal, request, settle};

const MINUTE: (&str, &str) = ("cache-control", "max-age=60");

/// A server that takes a few turns for its head and each piece of its body.
fn slow(alive: &Arc<()>) -> Site {
    let alive = Arc::clone(alive);
    Site::later(move |number, _| {
        let alive = Arc::clone(&alive);
        Box::pin(async move {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let (pieces, body) = piecemeal();
            tokio::spawn(async move {
                for piece in ["a", "b", "c"] {
                    tokio::task::yield_now().await;
                    // Who does not want it any more has it end.
                    let _ = pieces.send(Ok(piece)).await;
                }
                drop(alive);
            });
            let mut response = page(number.to_string(), &[MINUTE, ("etag", "\"a\"")]);
            *response.body_mut() = body;
            Ok(response)
        })
    })
}

/// `HttpClient` #871 and others: at each point where it waits, a request may be given up.
#[tokio::test(start_paused = true)]
async fn a_request_may_be_given_up_at_each_point() {
    for turns in 0..40 {
        let alive = Arc::new(());
        let site = slow(&alive);
        let client = Client::private(&site).await;
        let mut done = false;
        {
            let mut asking = pin!(async {
                let response = client.send(request("/", &[])).await?;
                response.into_body().collect().await
            });
            for _ in 0..turns {
                let polled = asking
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(answer) = polled {
                    assert_eq!(answer.unwrap().to_bytes(), "abc");
                    done = true;
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let got = client.get("/", &[]).await;
        assert_eq!(
            (got.status, got.body()),
            (200, "abc"),
            "given up after {turns} turns"
        );
        settle().await;
        assert_eq!(client.cache.stats().fetches, 0, "after {turns} turns");
        assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Hit);
        let requested = site.request_count();
        assert!(
            requested == 1,
            "after {turns} turns: asked {requested} times"
        );
        drop((client, site));
        settle().await;
        assert_eq!(
            Arc::strong_count(&alive),
            1,
            "something holds on, after {turns} turns"
        );
        if done {
            assert!(turns > 5, "the test gives up at several points");
            return;
        }
    }
    panic!("it never came to its end");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_server_s_side_is_one_request_s() {
    let site = Site::later(|number, _| {
        Box::pin(async move {
            assert!(number != 1, "a fault of the inner service");
            Ok(page(number.to_string(), &[MINUTE]))
        })
    });
    let client = Client::private(&site).await;
    let error = client.send(request("/", &[])).await.unwrap_err();
    assert!(matches!(error, Error::Abandoned), "{error:?}");
    assert_eq!(client.get("/", &[]).await.body(), "2");
    assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Hit);
    assert_eq!(
        (client.cache.stats().fetches, client.cache.stats().errors),
        (0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_is_no_failure_of_the_request() {
    let site = Site::later(|number, _| {
        Box::pin(async move {
            match number {
                1 => Ok(page(
                    "1",
                    &[("cache-control", "max-age=1, stale-while-revalidate=60")],
                )),
                2 => panic!("a fault of the inner service"),
                _ => Err(io::Error::other("gone")),
            }
        })
    });
    let client = Client::private(&site).await;
    client.get("/", &[]).await;
    for _ in 0..10 {
        advance(Duration::from_secs(3)).await;
        let got = client.get("/", &[]).await;
        assert_eq!((got.body(), got.outcome()), ("1", Outcome::Stale));
    }
    assert!(site.request_count() > 3);
}

#[tokio::test(start_paused = true)]
async fn a_hit_does_not_wait_for_the_server_s_side_to_be_ready() {
    use tower::{Layer, Service, ServiceExt};

    /// Ready once.
    #[derive(Clone)]
    struct Once(Site, Arc<std::sync::atomic::AtomicBool>);

    impl Service<http::Request<http_body_util::Empty<bytes::Bytes>>> for Once {
        type Response = crate::support::SiteResponse;
        type Error = io::Error;
        type Future = crate::support::SiteFuture;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
            if self.1.swap(true, std::sync::atomic::Ordering::Relaxed) {
                Poll::Pending
            } else {
                Poll::Ready(Ok(()))
            }
        }

        fn call(
            &mut self,
            request: http::Request<http_body_util::Empty<bytes::Bytes>>,
        ) -> Self::Future {
            self.0.call(request)
        }
    }

    let once = Once(Site::says(&[MINUTE]), Arc::default());
    let cache = Cache::private().build().await.unwrap();
    let service = cache.layer().layer(once);
    for _ in 0..2 {
        let response = service.clone().oneshot(request("/", &[])).await.unwrap();
        response.into_body().collect().await.unwrap();
        settle().await;
    }
}

/// Several threads, many URLs, and responses without a lifetime: no request hangs, and none gets the response of
/// another URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once() {
    let site = Site::new(|_, request| {
        let body = request.uri().path().to_owned();
        page(
            body,
            &[
                ("cache-control", "max-age=0, stale-while-revalidate=1"),
                ("etag", "\"a\""),
            ],
        )
    });
    let client = Client::with(Cache::private().memory(256 << 10), &site).await;
    let mut all = tokio::task::JoinSet::new();
    for task in 0..16_u32 {
        let client = client.clone();
        all.spawn(async move {
            for number in 0..500_u32 {
                let path = format!("/{}", number.wrapping_mul(task + 7) % 50);
                let response = client.send(request(&path, &[])).await.unwrap();
                let body = response.into_body().collect().await.unwrap();
                assert_eq!(body.to_bytes(), path);
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    let stats = client.cache.stats();
    assert!(stats.bytes <= stats.capacity);
}

/// The first request hangs for ever; those after it wait for it a while, and then ask for themselves.
#[tokio::test(start_paused = true)]
async fn a_hanging_fetch_delays_other_requests_only_briefly() {
    let site = Site::later(|number, _| {
        Box::pin(async move {
            if number == 1 {
                std::future::pending::<()>().await;
            }
            Ok(page(number.to_string(), &[MINUTE]))
        })
    });
    let patient = Cache::private().wait_timeout(Duration::from_secs(3));
    let client = Client::with(patient, &site).await;
    let hangs = tokio::time::timeout(Duration::from_secs(1), client.send(request("/", &[]))).await;
    assert!(hangs.is_err());
    let began = tokio::time::Instant::now();
    assert_eq!(client.get("/", &[]).await.body(), "2");
    assert_eq!(began.elapsed().as_secs(), 3);
    assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Hit);
}

/// A stalled body does not delay later requests.
#[tokio::test(start_paused = true)]
async fn a_stalled_body_delays_other_requests_only_briefly() {
    let held = std::sync::Mutex::new(Vec::new());
    let site = Site::new(move |number, _| {
        let mut response = page(number.to_string(), &[MINUTE]);
        if number == 1 {
            let (pieces, body) = piecemeal();
            pieces.try_send(Ok("half")).unwrap();
            held.lock().unwrap().push(pieces);
            *response.body_mut() = body;
        }
        response
    });
    let client = Client::with(Cache::private().fill_timeout(Duration::from_secs(5)), &site).await;
    let _stalled = client.send(request("/", &[])).await.unwrap();
    settle().await;
    advance(Duration::from_secs(6)).await;
    settle().await;
    assert_eq!(client.get("/", &[]).await.body(), "2");
}

/// How long the body of [`large`] is.
const LARGE: usize = 50_000_000;

/// Has a body that [`little`] does not keep.
fn large() -> Site {
    Site::new(|_, _| {
        use futures_util::StreamExt;
        let pieces = futures_util::stream::iter(0..LARGE / 10_000).then(async |_| {
            tokio::task::yield_now().await;
            Ok(http_body::Frame::data(bytes::Bytes::from_static(
                &[b'x'; 10_000],
            )))
        });
        let mut response = page("", &[MINUTE]);
        *response.body_mut() = http_body_util::StreamBody::new(pieces).boxed_unsync();
        response
    })
}

fn little() -> Builder {
    Cache::private().memory(64 << 20).max_object(40 << 20)
}

/// Two who share a body, of which the second one reads.
async fn two_readers_of_which_one_reads(builder: Builder) -> [Result<usize, Error>; 2] {
    let client = Client::with(builder, &large()).await;
    let (unread, read) = tokio::join!(
        client.send(request("/", &[])),
        client.send(request("/", &[]))
    );
    let (unread, read) = (unread.unwrap(), read.unwrap());
    let outcome =
        |response: &Response<_>| response.extensions().get::<CacheInfo>().unwrap().outcome;
    assert_eq!(
        (outcome(&unread), outcome(&read)),
        (Outcome::Miss, Outcome::Collapsed)
    );
    let length = async |body: CacheBody<SiteBody>| {
        let whole = body.collect().await;
        whole.map(|whole| whole.to_bytes().len())
    };
    let mut reading = pin!(length(read.into_body()));
    let day = Duration::from_hours(24);
    match tokio::time::timeout(day, &mut reading).await {
        Ok(read) => [length(unread.into_body()).await, read],
        Err(_) => tokio::join!(length(unread.into_body()), reading).into(),
    }
}

/// One who does not read holds up others for a while, and then no longer.
#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_let_go_when_others_have_waited() {
    let began = tokio::time::Instant::now();
    let [unread, read] = two_readers_of_which_one_reads(little()).await;
    assert_eq!(read.unwrap(), LARGE);
    let error = unread.unwrap_err();
    assert!(matches!(error, Error::Body(_)), "{error:?}");
    assert!(error.to_string().contains("too slowly"), "{error}");
    assert_eq!(began.elapsed().as_secs(), 30);

    let builder = little().slow_reader_timeout(Duration::from_mins(5));
    let began = tokio::time::Instant::now();
    let [unread, read] = two_readers_of_which_one_reads(builder).await;
    assert!(unread.is_err() && read.is_ok());
    assert_eq!(began.elapsed().as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_not_held_up_by_a_slow_reader() {
    let builder = little().slow_reader_timeout(Duration::MAX);
    let began = tokio::time::Instant::now();
    let both = two_readers_of_which_one_reads(builder).await;
    assert!(began.elapsed() >= Duration::from_hours(24));
    assert_eq!(both.map(Result::unwrap), [LARGE; 2]);
}

/// Who reads slowly what is too large to be kept gets all of it, however long he takes.
#[tokio::test(start_paused = true)]
async fn a_single_slow_reader_is_waited_for() {
    let client = Client::with(little(), &large()).await;
    let mut waiting = Vec::new();
    for number in 0..3 {
        let path = format!("/{number}");
        waiting.push(client.send(request(&path, &[])).await.unwrap());
        settle().await;
    }
    for _ in 0..10 {
        advance(Duration::from_mins(1)).await;
        settle().await;
    }
    for response in waiting {
        let body = response
            .into_body()
            .collect()
            .await
            .expect("it has its end");
        assert_eq!(body.to_bytes().len(), LARGE);
    }
}

/// A body of a type that has its lifetime erased, in a task of its own.
#[tokio::test]
async fn tasks_may_send_any_body() {
    use bytes::Bytes;
    use http_body_util::combinators::UnsyncBoxBody;
    use microcache_client::BoxError;
    use tower::{Layer, Service};

    let site = tower::service_fn(|_: http::Request<UnsyncBoxBody<Bytes, BoxError>>| async {
        Ok::<_, BoxError>(page("1", &[MINUTE]))
    });
    let cache = Cache::private().build().await.unwrap();
    let mut client = cache.layer().layer(site);
    let task = tokio::spawn(async move {
        let request = request("/", &[]).map(|_| UnsyncBoxBody::<Bytes, BoxError>::default());
        client.call(request).await
    });
    assert_eq!(task.await.unwrap().unwrap().status(), 200);
}

/// RFC 5861 §4: for one request, and no longer than it says.
#[tokio::test(start_paused = true)]
async fn a_request_may_accept_stale_on_errors() {
    let site = Site::later(|number, _| {
        Box::pin(async move {
            match number {
                1 => Ok(page(
                    "1",
                    &[("cache-control", "max-age=1"), ("etag", "\"a\"")],
                )),
                _ => Err(io::Error::other("gone")),
            }
        })
    });
    let client = Client::private(&site).await;
    client.get("/", &[]).await;
    advance(Duration::from_secs(5)).await;
    let error = client.send(request("/", &[])).await.unwrap_err();
    assert_eq!(error.to_string(), "the request failed: gone");
    for (window, is_answered) in [("stale-if-error=60", true), ("stale-if-error=2", false)] {
        let requested = request("/", &[("cache-control", window)]);
        let answer = client.send(requested).await;
        assert_eq!(answer.is_ok(), is_answered, "{window}");
    }
}

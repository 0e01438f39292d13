//! What may not happen to a request, whatever happens around it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body_util::BodyExt;
use microcache_client::{Cache, Error, Outcome};
use tokio::time::advance;

use crate::support::{Client, Site, page, piecemeal, request, settle};

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
        let asked = site.asked();
        assert!(asked == 1, "after {turns} turns: asked {asked} times");
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
async fn a_refresh_that_fails_is_nobody_s_failure() {
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
    assert!(site.asked() > 3);
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

/// Several threads, many urls, and responses that are good for no time at all: nobody hangs, and nobody is given
/// what belongs to another url.
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

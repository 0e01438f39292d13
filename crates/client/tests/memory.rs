//! What a cache may take is what the process takes. Alone in its process: others would be measured with it.

use std::convert::Infallible;
use std::fs;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use microcache_client::Cache;
use tower::{Layer, ServiceExt, service_fn};

const BOUND: u64 = 48 << 20;

/// What of the process is in memory, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux says so");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes
        .expect("a number")
        .parse::<u64>()
        .expect("a number")
        << 10
}

#[tokio::test]
async fn the_bound_is_held_by_the_process() {
    let site = service_fn(|request: Request<Empty<Bytes>>| async move {
        let number: usize = request.uri().path()[1..].parse().expect("a number");
        let body = Bytes::from(vec![b'x'; 100 + number % 10_000]);
        let response = Response::builder().header("cache-control", "max-age=600");
        Ok::<_, Infallible>(response.body(Full::new(body)).expect("a response"))
    });
    let cache = Cache::private()
        .memory(BOUND)
        .build()
        .await
        .expect("it is built");
    let client = cache.layer().layer(site);
    let before = resident();
    let mut most = 0;
    for number in 0..60_000_u32 {
        let request = Request::get(format!("http://site.example/{number}"));
        let request = request.body(Empty::new()).expect("a request");
        let response = client.clone().oneshot(request).await.expect("a response");
        response.into_body().collect().await.expect("a body");
        if number % 1_000 == 0 {
            most = most.max(resident().saturating_sub(before));
        }
    }
    let stats = cache.stats();
    assert!(stats.bytes <= BOUND, "{stats:?}");
    assert!(stats.bytes > BOUND / 10 * 9, "it is full: {stats:?}");
    assert!(stats.evicted > 30_000, "{stats:?}");
    // The allocator's own, and its gaps.
    assert!(
        most < BOUND / 4 * 5 + (8 << 20),
        "{most} bytes for {}",
        stats.bytes
    );
}

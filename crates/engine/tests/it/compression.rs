//! Background compression, while the stored response is replaced, purged or evicted.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::Method;
use microcache_engine::cache::{Scope, Strength};
use microcache_engine::{
    Body, BoxFuture, CompressionStats, Engine, Origin, OriginError, OriginRequest, OriginResponse,
    Settings,
};
use microcache_policy::{Coding, Compress, Rules};
use microcache_store::Tiers;
use tokio::task::yield_now;

use crate::asking::{ask, fields_of, read};
use crate::support;

/// A different page each time, fresh for a minute.
#[derive(Default)]
struct Pages(AtomicUsize);

fn page(number: usize) -> Bytes {
    format!("this is page {number}. ").repeat(500).into()
}

impl Origin for Pages {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        assert_eq!(
            request.fields.fields().get("accept-encoding"),
            Some(&b"identity"[..])
        );
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let fields =
            format!("Cache-Control: max-age=60\r\nContent-Type: text/plain\r\nX-Page: {number}");
        let response = OriginResponse {
            status: 200,
            fields: fields_of(&fields),
            length: None,
            body: Body::Full(page(number)),
            tunnel: None,
            waited: 0,
        };
        Box::pin(async { Ok(response) })
    }
}

fn engine(compress_queue: usize) -> Arc<Engine> {
    let rules = Rules {
        compress: Compress {
            codings: vec![Coding::Zstd, Coding::Gzip],
            ..Compress::default()
        },
        ..Rules::default()
    };
    let settings = Settings {
        compress_queue,
        ..support::settings()
    };
    let route = support::route(Arc::<Pages>::default(), rules);
    support::engine(settings, route, Tiers::default())
}

/// The number of the page, and whether it was compressed. Checks that the page has that number.
async fn get(engine: &Arc<Engine>) -> (usize, bool) {
    let response = ask(
        engine,
        &Method::GET,
        "/",
        "Accept-Encoding: gzip, zstd;q=0.5",
    )
    .await;
    let fields = response.fields();
    let is_encoded = fields.get("content-encoding") == Some(b"gzip");
    let number = fields.get("x-page").map(String::from_utf8_lossy);
    let number = number.expect("it has a number").parse().expect("a number");
    let mut body = read(response).await;
    if is_encoded {
        let mut text = Vec::new();
        let mut reader = GzDecoder::new(&body[..]);
        reader.read_to_end(&mut text).expect("it is gzip");
        body = text;
    }
    assert!(body == page(number), "page {number}");
    (number, is_encoded)
}

/// Waits until the queued jobs are done.
async fn settled(engine: &Engine) -> CompressionStats {
    loop {
        let stats = engine.cache.compression_stats();
        let done =
            stats.made.iter().map(|made| made.bodies).sum::<u64>() + stats.dropped + stats.useless;
        if stats.waiting == 0 && done > 0 {
            return stats;
        }
        yield_now().await;
    }
}

#[tokio::test]
async fn compression_runs_once_and_without_waiting_requests() {
    let engine = engine(64);
    assert_eq!(get(&engine).await, (0, false));
    // The first request, which may stay the only one, does not cause it.
    assert_eq!(
        engine.cache.compression_stats(),
        CompressionStats::default()
    );
    while !get(&engine).await.1 {
        yield_now().await;
    }
    for _ in 0..10 {
        assert_eq!(get(&engine).await, (0, true));
    }
    let stats = settled(&engine).await;
    let made = stats.made[Coding::Gzip as usize];
    assert_eq!((made.bodies, made.bytes_in), (1, page(0).len() as u64));
    assert_eq!(stats.made[Coding::Zstd as usize].bodies, 0);
    assert_eq!(stats.answers, 11);
    assert_eq!(stats.saved, 11 * (made.bytes_in - made.bytes_out));
}

#[tokio::test]
async fn a_form_purged_during_compression_is_never_served() {
    let engine = engine(64);
    for round in 0..200 {
        assert_eq!(get(&engine).await, (round, false));
        // The job may be running now.
        let (number, _) = get(&engine).await;
        assert_eq!(number, round);
        if round % 10 == 0 {
            while !get(&engine).await.1 {
                yield_now().await;
            }
        }
        let everything = [(Scope::Everything, Strength::Hard)];
        let purged = engine.cache.purge(everything).await;
        purged.written.expect("it is written down");
    }
}

#[tokio::test]
async fn at_the_bound_all_are_answered_and_it_is_counted() {
    let engine = engine(0);
    for _ in 0..5 {
        assert_eq!(get(&engine).await, (0, false));
    }
    // Each further request tries again.
    assert_eq!(engine.cache.compression_stats().refused, 4);
}

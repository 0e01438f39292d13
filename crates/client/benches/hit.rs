//! What a hit costs its caller: from the request to the last byte, the making of both with it.

#[path = "../../engine/benches/support/mod.rs"]
#[expect(dead_code, reason = "requests here are not those of a browser")]
mod support;

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full};
use microcache_client::{Builder, Cache, CacheInfo, Outcome};
use support::Case;
use tokio::runtime;
use tower::{Layer, Service, service_fn};

fn request() -> Request<Empty<Bytes>> {
    let request = Request::get("http://www.example.com/articles/2026/a-page-worth-caching?page=2");
    let request = request
        .header("user-agent", "client/1.0")
        .header("accept", "*/*");
    request.body(Empty::new()).expect("a request")
}

/// Polls what is there at once.
fn at_once<T>(mut future: impl Future<Output = T> + Unpin) -> T {
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(&mut future).poll(&mut cx) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a hit does not wait"),
    }
}

fn hits(builder: Builder) -> Box<dyn FnMut()> {
    let site = service_fn(|_: Request<Empty<Bytes>>| async {
        let response = Response::builder()
            .header("date", "Fri, 15 Jan 2027 08:00:00 GMT")
            .header("content-type", "text/html; charset=utf-8")
            .header("cache-control", "max-age=86400")
            .header("etag", "\"5f1e-63a0c7\"")
            .header("last-modified", "Thu, 14 Jan 2027 17:31:05 GMT");
        let body = Full::new(Bytes::from(vec![b'x'; 1024]));
        Ok::<_, Infallible>(response.body(body).expect("a response"))
    });
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut client = runtime.block_on(async {
        let cache = builder.build().await.expect("it is built");
        let mut client = cache.layer().layer(site);
        let response = client.call(request()).await.expect("a response");
        response.into_body().collect().await.expect("a body");
        client
    });
    Box::new(move || {
        let _in_the_runtime = runtime.enter();
        let response = at_once(client.call(black_box(request()))).expect("a response");
        let info = response
            .extensions()
            .get::<CacheInfo>()
            .expect("it is told");
        assert_eq!(info.outcome, Outcome::Hit);
        let mut body = pin!(response.into_body());
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
            black_box(frame.expect("a frame"));
        }
    })
}

const CASES: &[Case] = &[
    Case {
        name: "hit, private",
        prepare: || hits(Cache::private()),
    },
    Case {
        name: "hit, shared",
        prepare: || hits(Cache::shared()),
    },
    Case {
        name: "the request alone",
        prepare: || Box::new(|| drop(black_box(request()))),
    },
];

fn main() {
    support::main("A hit in the caching layer for clients", CASES);
}

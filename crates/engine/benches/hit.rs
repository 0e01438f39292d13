//! Cost of a hit in [`Engine::serve`]: route, facts, key, lookup, reuse decision, response; and of
//! a miss, from the lookup until the response is stored and read.

#[path = "../tests/support/mod.rs"]
mod engine;
mod support;

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::Method;
use microcache_engine::cache::{Scope, Strength};
use microcache_engine::{
    Body, BoxFuture, Engine, Origin, OriginError, OriginRequest, OriginResponse, Request, Served,
    Settings,
};
use microcache_policy::{Fields, FieldsBuf, Rules, Scheme};
use microcache_store::Tiers;
use support::{BROWSER_FIELDS, Case};
use tokio::runtime::Builder;

const HOST: &str = "www.example.com";
const TARGET: &[u8] = b"/articles/2026/a-page-worth-caching?page=2";
/// The fields of a request by curl or a load generator.
const PLAIN_FIELDS: &str = "User-Agent: curl/8.14.1\r\nAccept: */*\r\n";
const RESPONSE_FIELDS: &str = "\
    Date: Fri, 15 Jan 2027 08:00:00 GMT\r\n\
    Content-Type: text/html; charset=utf-8\r\n\
    Cache-Control: max-age=60, stale-while-revalidate=600\r\n\
    ETag: \"5f1e-63a0c7\"\r\n\
    Last-Modified: Thu, 14 Jan 2027 17:31:05 GMT\r\n";

/// Serves a page of 1 KB, with these additional fields, in the best accepted coding.
struct Page(&'static str);

impl Origin for Page {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let asks_for = |coding: &[u8]| {
            let mut codings = request.fields.fields().members("accept-encoding");
            codings.any(|member| member == coding)
        };
        let coding = if asks_for(b"br") {
            "Content-Encoding: br\r\n"
        } else if asks_for(b"gzip") {
            "Content-Encoding: gzip\r\n"
        } else {
            ""
        };
        let block = [RESPONSE_FIELDS, self.0, coding].concat();
        let response = OriginResponse {
            status: 200,
            fields: FieldsBuf::from(Fields::new(block.as_bytes())),
            length: Some(1024),
            body: Body::Full(vec![b'x'; 1024].into()),
            tunnel: None,
            waited: 0,
        };
        Box::pin(async { Ok(response) })
    }
}

/// An engine with the page stored under [`TARGET`], in one variant per coding.
fn engine(codings: &[&str]) -> Arc<Engine> {
    let settings = Settings {
        refresh_pause: 3_600_000,
        ..engine::settings()
    };
    let more_fields = if codings.is_empty() {
        ""
    } else {
        "Vary: Accept-Encoding\r\n"
    };
    let route = engine::route(Arc::new(Page(more_fields)), Rules::default());
    let engine = engine::engine(settings, route, Tiers::default());
    if codings.is_empty() {
        store(&engine, "");
    }
    for coding in codings {
        store(&engine, &format!("Accept-Encoding: {coding}\r\n"));
    }
    engine
}

/// Fetches and stores the page for a request with these fields.
fn store(engine: &Arc<Engine>, fields: &str) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let target = Bytes::from_static(TARGET);
    runtime
        .expect("a runtime")
        .block_on(fetch(engine, target, fields));
}

/// Fetches and stores a page, and reads it to its end.
async fn fetch(engine: &Arc<Engine>, target: Bytes, fields: &str) {
    let fields = ["Host: www.example.com\r\n", fields].concat();
    let fields = FieldsBuf::from(Fields::new(fields.as_bytes()));
    let incoming = engine::incoming(Method::GET, HOST, target, fields);
    let now = engine.clock.now();
    let Served::Fetch(plan) = engine.serve(&incoming.as_request(), now) else {
        panic!("it is not stored yet")
    };
    let answer = Arc::clone(engine).ask(plan, incoming).await;
    let mut response = answer.expect("the origin answers");
    while let Some(frame) = response.body.frame().await {
        frame.expect("the body arrives");
    }
}

/// Requests for a different page each, which is fetched and stored.
fn misses() -> Box<dyn FnMut()> {
    let engine = engine(&[]);
    let runtime = Builder::new_current_thread().enable_all().build();
    let (runtime, mut number) = (runtime.expect("a runtime"), 0_u32);
    Box::new(move || {
        number += 1;
        let target = format!("/articles/{number:08}").into();
        runtime.block_on(fetch(&engine, target, PLAIN_FIELDS));
    })
}

/// An engine with live purge rules that do not cover the stored page.
fn with_rules() -> Arc<Engine> {
    let engine = engine(&[]);
    for number in 0..100 {
        let tag = Scope::Tag(format!("tag-{number}").into());
        let host = Scope::prefixed("www.example.com".into(), format!("/{number}/").into());
        for scope in [tag, host] {
            let purged = pin!(engine.cache.purge([(scope, Strength::Hard)]));
            let done = purged.poll(&mut Context::from_waker(Waker::noop()));
            assert!(done.is_ready(), "there is no disk to wait for");
        }
    }
    engine
}

/// Sends one request after the other, this many seconds after the response was received.
fn round(engine: Arc<Engine>, fields: &str, after: u64, status: u16) -> Box<dyn FnMut()> {
    let fields = ["Host: www.example.com\r\n", fields].concat();
    // As the parser of the head makes it.
    let index = Fields::new(fields.as_bytes()).to_index();
    let now = engine.clock.now().plus(after * 1_000);
    let mut checked = false;
    Box::new(move || {
        let request = Request {
            method: &Method::GET,
            scheme: Scheme::Http,
            host: HOST.as_bytes(),
            target: TARGET,
            fields: Fields::indexed(fields.as_bytes(), &index),
            address: engine::CLIENT,
            has_body: false,
            content: None,
            upgrade: false,
            is_trusted: false,
            signed_in: false,
            ttl: None,
            id: None,
        };
        let served = black_box(engine.serve(black_box(&request), now));
        if !checked {
            // Only the first request for a stale page is asked to refresh it.
            let (Served::Now(response) | Served::NowAndRefresh(response, _)) = served else {
                panic!("not a hit")
            };
            assert_eq!(response.status, status);
            checked = true;
        }
    })
}

const CASES: &[Case] = &[
    Case {
        name: "fresh hit",
        prepare: || round(engine(&[]), PLAIN_FIELDS, 1, 200),
    },
    Case {
        name: "fresh hit, 200 purges by rule",
        prepare: || round(with_rules(), PLAIN_FIELDS, 1, 200),
    },
    Case {
        name: "fresh hit, fields of a browser",
        prepare: || round(engine(&[]), BROWSER_FIELDS, 1, 200),
    },
    Case {
        name: "fresh hit, one of two codings",
        prepare: || {
            let page = engine(&["gzip, deflate, br, zstd", "gzip"]);
            round(page, BROWSER_FIELDS, 1, 200)
        },
    },
    Case {
        name: "304 to If-None-Match",
        prepare: || {
            let fields = format!("{PLAIN_FIELDS}If-None-Match: \"5f1e-63a0c7\"\r\n");
            round(engine(&[]), &fields, 1, 304)
        },
    },
    Case {
        name: "range",
        prepare: || {
            let fields = format!("{PLAIN_FIELDS}Range: bytes=100-199\r\n");
            round(engine(&[]), &fields, 1, 206)
        },
    },
    Case {
        name: "stale hit, refreshed by another",
        prepare: || round(engine(&[]), PLAIN_FIELDS, 61, 200),
    },
    Case {
        name: "1 KB miss, stored",
        prepare: misses,
    },
];

fn main() {
    support::main("A hit, and a miss, in the engine", CASES);
}

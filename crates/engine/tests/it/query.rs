//! QUERY: the content is part of the key, and is received before anything is looked up.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Method;
use microcache_engine::cache::Strength;
use microcache_engine::{
    Body, BodyError, BoxFuture, Engine, Failure, ForwardedRequest, Frame, NoResponse, Origin,
    OriginError, OriginRequest, OriginResponse, Response, Served, Source,
};
use microcache_policy::{Rules, Scheme};
use microcache_store::Tiers;
use tokio::time::{Duration, advance};

use crate::asking::{HOST, ask, fields_of, incoming, read};
use crate::support;

/// Answers with the method, the meaning and the content of the request, and fails while there are no fields.
#[derive(Default)]
struct Application {
    asked: Mutex<Vec<String>>,
    fields: Mutex<&'static str>,
}

impl Origin for Application {
    fn fetch(
        &self,
        mut request: OriginRequest,
    ) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let fields = fields_of(*self.fields.lock().expect("no panic"));
        Box::pin(async move {
            let mut content = Vec::new();
            while let Some(frame) = request.body.frame().await {
                if let Frame::Data(data) = frame.map_err(OriginError::RequestBody)? {
                    content.extend_from_slice(&data);
                }
            }
            assert!(
                request
                    .length
                    .is_none_or(|length| length == content.len() as u64)
            );
            let kind = request
                .fields
                .fields()
                .get("content-type")
                .unwrap_or_default();
            let said = [
                request.method.as_str().as_bytes(),
                b" ",
                kind,
                b" ",
                &content,
            ]
            .concat();
            let said = String::from_utf8(said).expect("text");
            self.asked.lock().expect("no panic").push(said.clone());
            Ok(OriginResponse {
                status: 200,
                fields,
                length: None,
                body: Body::Full(said.into()),
                tunnel: None,
                waited: 0,
            })
        })
    }
}

impl Application {
    fn count(&self) -> usize {
        std::mem::take(&mut *self.asked.lock().expect("no panic")).len()
    }
}

fn world(fields: &'static str) -> (Arc<Engine>, Arc<Application>) {
    let origin = Arc::new(Application::default());
    *origin.fields.lock().expect("no panic") = fields;
    let route = support::route(Arc::clone(&origin) as Arc<_>, Rules::default());
    let engine = support::engine(support::settings(), route, Tiers::default());
    (engine, origin)
}

fn query(content: &str, kind: &str) -> ForwardedRequest {
    let method = Method::from_bytes(b"QUERY").expect("a method");
    let mut query = incoming(&method, "/q", &format!("Content-Type: {kind}"));
    query.length = Some(content.len() as u64);
    query.body = Body::Full(Bytes::copy_from_slice(content.as_bytes()));
    query
}

async fn send(engine: &Arc<Engine>, query: ForwardedRequest) -> Result<Response, NoResponse> {
    match engine.serve(&query.as_request(), engine.clock.now()) {
        Served::Fetch(plan) => Arc::clone(engine).ask(plan, query).await,
        _ => panic!("its content is not known yet"),
    }
}

async fn answer(engine: &Arc<Engine>, content: &str, kind: &str) -> String {
    let response = send(engine, query(content, kind)).await;
    let body = read(response.expect("there is a response")).await;
    String::from_utf8(body).expect("text")
}

const FRESH: &str = "Cache-Control: max-age=10, stale-while-revalidate=100";

#[tokio::test]
async fn equal_content_of_one_type_shares_an_entry() {
    let (engine, origin) = world(FRESH);
    for (content, kind) in [("a", "text/x"), ("b", "text/x"), ("a", "text/y")] {
        for _ in 0..2 {
            let expected = format!("QUERY {kind} {content}");
            assert_eq!(answer(&engine, content, kind).await, expected);
        }
    }
    assert_eq!(origin.count(), 3);
    // Nor is it the response to a GET.
    let page = read(ask(&engine, &Method::GET, "/q", "").await).await;
    assert_eq!(page, b"GET  ");
    assert_eq!(origin.count(), 1);
    for _ in 0..2 {
        // It coalesces.
        let (one, other) = (answer(&engine, "c", "t"), answer(&engine, "c", "t"));
        let answers = tokio::join!(one, other);
        assert_eq!(answers, ("QUERY t c".to_owned(), "QUERY t c".to_owned()));
    }
    assert_eq!(origin.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_refreshed_with_the_same_content() {
    let (engine, origin) = world("Cache-Control: max-age=0, stale-while-revalidate=100");
    answer(&engine, "a", "t").await;
    assert_eq!(answer(&engine, "a", "t").await, "QUERY t a");
    advance(Duration::from_millis(1)).await;
    tokio::task::yield_now().await;
    let asked = origin.asked.lock().expect("no panic").clone();
    assert_eq!(asked, ["QUERY t a"; 2]);
}

#[tokio::test]
async fn a_purge_and_an_unsafe_request_remove_the_answers_of_the_url() {
    let (engine, origin) = world(FRESH);
    answer(&engine, "a", "t").await;
    let scopes = engine.scopes_of_url(Scheme::Http, HOST.as_bytes(), b"/q");
    let scopes = scopes.into_iter();
    let purged = engine
        .cache
        .purge(scopes.map(|scope| (scope, Strength::Hard)))
        .await;
    purged.written.expect("nothing to write");
    answer(&engine, "a", "t").await;
    assert_eq!(origin.count(), 2);
    read(ask(&engine, &Method::POST, "/q", "").await).await;
    answer(&engine, "a", "t").await;
    assert_eq!(origin.count(), 2);
}

/// Content that breaks off.
struct BrokenOff;

impl Source for BrokenOff {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(Some(Err(BodyError::Timeout)))
    }
}

#[tokio::test]
async fn other_content_passes_or_fails_alone() {
    let (engine, origin) = world(FRESH);
    let long = "x".repeat((64 << 10) + 1);
    for change in [
        |query: &mut ForwardedRequest| query.length = None,
        |query: &mut ForwardedRequest| query.head.method = Method::PUT,
    ] {
        for _ in 0..2 {
            let mut query = query("a", "t");
            change(&mut query);
            read(send(&engine, query).await.expect("a response")).await;
        }
    }
    for _ in 0..2 {
        answer(&engine, &long, "t").await;
    }
    assert_eq!(origin.count(), 6);
    for (length, body) in [
        (2, Body::Stream(Box::new(BrokenOff))),
        (2, Body::Full(Bytes::from_static(b"a"))),
        (2, Body::Full(Bytes::from_static(b"abc"))),
    ] {
        let mut query = query("a", "t");
        (query.length, query.body) = (Some(length), body);
        let failed = send(&engine, query).await.expect_err("it is incomplete");
        let cause = failed.cause;
        assert!(
            matches!(cause, Failure::Origin(OriginError::RequestBody(_))),
            "{cause:?}"
        );
    }
    assert_eq!(origin.count(), 0, "the origin hears of none of them");
}

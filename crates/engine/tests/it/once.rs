//! Coalescing: a response that another request has just fetched, or is fetching, is not requested
//! again. Both the origin and the requests advance only when the test says so.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_engine::{
    Body, BodyError, BoxFuture, Engine, FetchPlan, ForwardedRequest, Frame, Origin, OriginError,
    OriginRequest, OriginResponse, Response, Served, Source,
};
use microcache_policy::{Fields, KeyBuf, Rules, Scheme, key};
use microcache_store::Tiers;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::advance;

use crate::asking::{HOST, fields_of, incoming};
use crate::support;

type PendingFetch = oneshot::Sender<OriginResponse>;

/// Holds every request until the test answers it.
#[derive(Default)]
struct Scripted(Mutex<Vec<PendingFetch>>);

impl Origin for Scripted {
    fn fetch(&self, _: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let (answer, answered) = oneshot::channel();
        self.0.lock().unwrap().push(answer);
        Box::pin(async { answered.await.map_err(|_| OriginError::Disconnected) })
    }
}

impl Scripted {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Answers the only pending request.
    async fn answer(&self, fields: &str, body: Body) {
        self.answer_late(0, 200, fields, body).await;
    }

    /// The same, after the request has waited for so many milliseconds.
    async fn answer_late(&self, waited: u32, status: u16, fields: &str, body: Body) {
        let requested = std::mem::take(&mut *self.0.lock().unwrap());
        let [requested] = <[PendingFetch; 1]>::try_from(requested).expect("it was asked once");
        send(requested, waited, status, fields, body).await;
    }
}

async fn send(requested: PendingFetch, waited: u32, status: u16, fields: &str, body: Body) {
    let response = OriginResponse {
        status,
        fields: fields_of(fields),
        length: match &body {
            Body::Full(whole) => Some(whole.len() as u64),
            _ => None,
        },
        body,
        tunnel: None,
        waited,
    };
    requested.send(response).expect("somebody waits");
    settle().await;
}

fn engine() -> (Arc<Engine>, Arc<Scripted>) {
    let origin = Arc::new(Scripted::default());
    let route = support::route(Arc::clone(&origin) as Arc<_>, Rules::default());
    let engine = support::engine(support::settings(), route, Tiers::default());
    (engine, origin)
}

/// A request that the cache cannot answer, as its lookup returns it.
fn look(engine: &Engine, fields: &str) -> (FetchPlan, ForwardedRequest) {
    let incoming = incoming(&Method::GET, "/", fields);
    match engine.serve(&incoming.as_request(), engine.clock.now()) {
        Served::Fetch(plan) => (plan, incoming),
        _ => panic!("it is in the cache"),
    }
}

type Asking = Pin<Box<dyn Future<Output = Response>>>;

fn ask(engine: &Arc<Engine>, (plan, incoming): (FetchPlan, ForwardedRequest)) -> Asking {
    let answer = Arc::clone(engine).ask(plan, incoming);
    Box::pin(async { answer.await.expect("there is a response") })
}

/// Polls a request once. The test decides the order, so no wakeup is needed.
fn step(asking: &mut Asking) -> Option<Response> {
    match asking
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(response) => Some(response),
        Poll::Pending => None,
    }
}

/// Lets fetches run until they wait.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

/// Each miss has one.
#[tokio::test(start_paused = true)]
async fn the_futures_of_a_miss_are_small() {
    let (engine, _origin) = engine();
    for is_direct in [false, true] {
        let (plan, incoming) = look(&engine, "");
        let plan = if is_direct { plan.direct() } else { plan };
        let size = size_of_val(&*Arc::clone(&engine).ask(plan, incoming));
        assert!(size <= 1024, "{size}");
    }
}

/// A copy stands in for the response of a slow origin, also if it was stored while the request waited.
#[tokio::test(start_paused = true)]
async fn a_copy_stored_meanwhile_stands_in_for_a_slow_origin() {
    check_stand_in(|_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_stored_after_a_purge_stands_in_for_a_slow_origin() {
    check_stand_in(|engine| {
        engine.cache.purge_key(&key_of_page());
    })
    .await;
}

fn key_of_page() -> KeyBuf {
    let (none, rules) = (Fields::default(), Rules::default());
    key::build(Scheme::Http, HOST.as_bytes(), b"/", none, false, &rules)
}

/// A client that alternates a request for a slow page and one that purges it has many fetches of one key under way.
#[tokio::test(start_paused = true)]
async fn purged_fetches_that_end_wake_nobody_else() {
    const PURGED: usize = 100;
    let (engine, origin) = engine();
    let count = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&count));
    let step = |asking: &mut Asking| asking.as_mut().poll(&mut Context::from_waker(&waker));
    let mut purged = Vec::new();
    for _ in 0..PURGED {
        let mut asking = ask(&engine, look(&engine, ""));
        assert!(step(&mut asking).is_pending());
        settle().await;
        engine.cache.purge_key(&key_of_page());
        purged.push(asking);
    }
    let mut last = [(); 3].map(|()| ask(&engine, look(&engine, "")));
    assert!(last.iter_mut().all(|asking| step(asking).is_pending()));
    settle().await;
    assert_eq!(origin.count(), PURGED + 1, "the last ones share a fetch");
    let mut requested = std::mem::take(&mut *origin.0.lock().unwrap());
    let requested_last = requested.pop().expect("it was asked");
    let mut purged = purged.iter_mut().zip(requested);

    // Those that end before a response is stored, and those that end after it.
    let fields = "Cache-Control: max-age=600";
    for (asking, requested) in purged.by_ref().take(PURGED / 2) {
        send(requested, 0, 200, fields, Body::Empty).await;
        assert!(step(asking).is_ready());
        assert_eq!(count.take(), 1, "itself");
    }
    send(requested_last, 0, 200, fields, Body::Empty).await;
    for asking in &mut last {
        assert!(step(asking).is_ready());
    }
    assert_eq!(count.take(), last.len() + PURGED / 2, "each once");
    check_hit(&engine, Some(600), "the last one");
    for (asking, requested) in purged {
        assert!(step(asking).is_pending(), "the origin is not slow yet");
        send(requested, 0, 200, fields, Body::Empty).await;
        assert!(step(asking).is_ready());
        assert_eq!(count.take(), 1, "itself");
    }
    assert_eq!(origin.count(), 0);
}

/// Counts how often requests are woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    /// The wakes since the last call.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One request waits for its slow origin, `happens`, and another one stores a copy.
async fn check_stand_in(happens: impl FnOnce(&Engine)) {
    let (engine, origin) = engine();
    let mut slow = ask(&engine, look(&engine, ""));
    assert!(step(&mut slow).is_none());
    settle().await;
    happens(&engine);
    let [_under_way] =
        <[PendingFetch; 1]>::try_from(std::mem::take(&mut *origin.0.lock().unwrap()))
            .expect("it was asked once");
    let (plan, incoming) = look(&engine, "");
    let mut direct = ask(&engine, (plan.direct(), incoming));
    assert!(step(&mut direct).is_none());
    settle().await;
    origin
        .answer("Cache-Control: max-age=600", Body::Empty)
        .await;
    assert!(step(&mut direct).is_some());
    settle().await;
    assert!(step(&mut slow).is_none());
    advance(Duration::from_mins(1)).await;
    let response = step(&mut slow).expect("the copy");
    assert!(response.cache_status.hit);
}

#[tokio::test(start_paused = true)]
async fn a_response_stored_since_the_lookup_is_used() {
    let (engine, origin) = engine();
    let late = look(&engine, "");
    let mut first = ask(&engine, look(&engine, ""));
    assert!(step(&mut first).is_none());
    settle().await;
    origin
        .answer("Cache-Control: max-age=10", Body::Empty)
        .await;
    assert!(step(&mut first).is_some());
    let response = step(&mut ask(&engine, late)).expect("it is there");
    assert!(response.cache_status.hit);
    settle().await;
    assert_eq!(origin.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_knows_the_vary_names_waits_too() {
    let (engine, origin) = engine();
    let mut first = ask(&engine, look(&engine, "X-Lang: a"));
    assert!(step(&mut first).is_none());
    settle().await;
    let fields = "Cache-Control: max-age=10\r\nVary: X-Lang";
    // It was not known before that the response varies on the field.
    origin.answer(fields, Body::Empty).await;
    settle().await;
    // The body never ends, so that the fetch is under way when the next one comes.
    let (body, _end) = endless();
    origin.answer(fields, body).await;
    assert!(step(&mut first).is_some());
    let mut same = ask(&engine, look(&engine, "X-Lang: a"));
    assert!(step(&mut same).is_some_and(|response| response.cache_status.collapsed));
    let mut other = ask(&engine, look(&engine, "X-Lang: b"));
    assert!(step(&mut other).is_none());
    settle().await;
    assert_eq!(origin.count(), 1, "only the other variant");
}

/// A small response that arrived whole is stored before its client has it. Waiters share it as any other.
#[tokio::test(start_paused = true)]
async fn a_whole_response_is_stored_at_once() {
    let fields = "Cache-Control: max-age=10";
    let whole = || Body::Full(Bytes::from_static(b"whole"));
    let (engine, origin) = engine();
    let mut alone = ask(&engine, look(&engine, ""));
    assert!(step(&mut alone).is_none());
    settle().await;
    origin.answer(fields, whole()).await;
    settle().await;
    check_hit(&engine, Some(10), "its client does not have it yet");
    let response = step(&mut alone).expect("it is there");
    assert!(response.cache_status.stored && matches!(response.body, Body::Full(_)));

    advance(Duration::from_mins(1)).await;
    let mut first = ask(&engine, look(&engine, ""));
    let mut second = ask(&engine, look(&engine, ""));
    assert!(step(&mut first).is_none() && step(&mut second).is_none());
    settle().await;
    origin.answer(fields, whole()).await;
    settle().await;
    assert!(step(&mut second).is_some_and(|response| response.cache_status.collapsed));
    assert!(step(&mut first).is_some_and(|response| response.cache_status.stored));
    check_hit(&engine, Some(10), "with a waiter");
}

#[tokio::test(start_paused = true)]
async fn a_late_waiter_gets_the_response_that_was_fresh_at_its_arrival() {
    let (engine, origin) = engine();
    let mut first = ask(&engine, look(&engine, ""));
    let mut second = ask(&engine, look(&engine, ""));
    assert!(step(&mut first).is_none());
    assert!(step(&mut second).is_none());
    settle().await;
    let fields = "Cache-Control: max-age=1, must-revalidate";
    origin.answer(fields, Body::Empty).await;
    assert!(step(&mut first).is_some());
    advance(Duration::from_millis(1_500)).await;
    assert!(step(&mut second).is_some_and(|response| response.cache_status.collapsed));
    assert_eq!(origin.count(), 0);
}

/// A body without data and without an end.
fn endless() -> (Body, oneshot::Sender<()>) {
    struct Endless(oneshot::Receiver<()>);
    impl Source for Endless {
        fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            Pin::new(&mut self.0).poll(cx).map(|_| None)
        }
    }
    let (end, ended) = oneshot::channel();
    (Body::Stream(Box::new(Endless(ended))), end)
}

/// A response ages from the sending of its request, not from the beginning of the wait in the
/// origin's queue (RFC 9111 §4.2.3).
#[tokio::test(start_paused = true)]
async fn waiting_for_a_permit_does_not_age_a_response() {
    let (engine, origin) = engine();
    let mut first = ask(&engine, look(&engine, ""));
    let mut second = ask(&engine, look(&engine, ""));
    assert!(step(&mut first).is_none());
    assert!(step(&mut second).is_none());
    settle().await;
    advance(Duration::from_millis(10_500)).await;
    let fields = "Cache-Control: s-maxage=2\r\nETag: \"a\"";
    origin.answer_late(10_000, 200, fields, Body::Empty).await;
    assert!(step(&mut first).is_some());
    assert!(step(&mut second).is_some_and(|response| response.cache_status.collapsed));
    advance(Duration::from_secs(1)).await;
    check_hit(&engine, Some(0), "half a second before its end");
    advance(Duration::from_secs(1)).await;
    let mut renewed = ask(&engine, look(&engine, ""));
    assert!(step(&mut renewed).is_none());
    settle().await;
    advance(Duration::from_secs(10)).await;
    origin
        .answer_late(10_000, 304, "ETag: \"a\"", Body::Empty)
        .await;
    assert!(step(&mut renewed).is_some());
    check_hit(&engine, Some(2), "confirmed");
}

/// Checks that memory answers a request, with this many seconds of freshness left.
fn check_hit(engine: &Engine, ttl: Option<i64>, what: &str) {
    let incoming = incoming(&Method::GET, "/", "");
    match engine.serve(&incoming.as_request(), engine.clock.now()) {
        Served::Now(response) => assert_eq!(response.cache_status.ttl, ttl, "{what}"),
        _ => panic!("not in the cache: {what}"),
    }
}

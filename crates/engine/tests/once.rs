//! Nobody asks the origin for what somebody else has just brought, or is bringing. An origin that
//! answers when it is told to, and requests that take their steps when they are told to.
#![cfg(not(shuttle))]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_engine::flight::FlightLimits;
use microcache_engine::{
    Body, BoxFuture, Engine, Found, Incoming, Origin, OriginError, OriginRequest, OriginResponse,
    Question, Response, Route, Served, Settings,
};
use microcache_policy::{FieldsBuf, Rules, Scheme};
use microcache_store::{MemoryLimits, Tiers};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::advance;

type Asked = oneshot::Sender<OriginResponse>;

/// Keeps every request until the test answers it.
#[derive(Default)]
struct Scripted(Mutex<Vec<Asked>>);

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

    /// Answers the only request that there was.
    async fn answer(&self, fields: &str, body: Body) {
        let asked = std::mem::take(&mut *self.0.lock().unwrap());
        let [asked] = <[Asked; 1]>::try_from(asked).expect("it was asked once");
        let response = OriginResponse {
            status: 200,
            fields: fields_of(fields),
            length: None,
            body,
            tunnel: None,
        };
        asked.send(response).expect("somebody waits");
        settle().await;
    }
}

fn fields_of(lines: &str) -> FieldsBuf {
    let mut fields = FieldsBuf::new();
    for line in lines.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        fields.push(name, value);
    }
    fields
}

fn engine() -> (Arc<Engine>, Arc<Scripted>) {
    let origin = Arc::new(Scripted::default());
    let settings = Settings {
        memory: MemoryLimits {
            capacity: 1 << 24,
            object: 1 << 20,
            variants: 8,
        },
        largest: 0,
        fill_memory: 1 << 22,
        slow_reader_timeout: 2_000,
        fill_timeout: 60_000,
        flights: FlightLimits {
            fetches: 1000,
            waiters: 1000,
        },
        hit_for_miss: 2_000,
        remember_too_large: 60_000,
        refresh_pause: 1_000,
        stale_wait: 2_000,
        wait_timeout: 60_000,
    };
    let route = Route {
        name: "all".into(),
        rules: Rules::default(),
        pass: false,
        collapse: true,
        max_object: 1 << 20,
        origin: Arc::clone(&origin) as Arc<dyn Origin>,
    };
    let found = Found {
        route: 0,
        bypass: false,
    };
    let engine = Engine::new(
        settings,
        vec![route],
        Box::new(move |_| found),
        Tiers::default(),
    );
    (Arc::new(engine), origin)
}

/// A GET with these fields.
fn incoming(fields: &str) -> Incoming {
    let fields = fields_of(fields);
    Incoming {
        method: Method::GET,
        scheme: Scheme::Http,
        host: Bytes::from_static(b"example.com"),
        target: Bytes::from_static(b"/"),
        address: "192.0.2.1".into(),
        fields: fields.fields().as_block().to_vec().into(),
        outgoing: fields,
        body: Body::Empty,
        length: None,
        upgrade: false,
        vouched: false,
        client: None,
        interim: None,
    }
}

/// A request that the cache cannot answer, from the look-up on.
fn look(engine: &Engine, fields: &str) -> (Question, Incoming) {
    let incoming = incoming(fields);
    match engine.serve(&incoming.as_request(), engine.clock.now()) {
        Served::Ask(question) => (question, incoming),
        _ => panic!("it is in the cache"),
    }
}

type Asking = Pin<Box<dyn Future<Output = Response>>>;

fn ask(engine: &Arc<Engine>, (question, incoming): (Question, Incoming)) -> Asking {
    let answer = Arc::clone(engine).ask(question, incoming);
    Box::pin(async { answer.await.expect("there is a response") })
}

/// One step. The test says who takes it when; nobody has to be woken.
fn step(asking: &mut Asking) -> Option<Response> {
    match asking
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(response) => Some(response),
        Poll::Pending => None,
    }
}

/// Lets fetches go on as far as they can.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_stored_since_the_look_up_is_the_answer() {
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
async fn who_knows_what_the_answer_varies_on_waits_for_it_too() {
    let (engine, origin) = engine();
    let mut first = ask(&engine, look(&engine, "X-Lang: a"));
    assert!(step(&mut first).is_none());
    settle().await;
    // The body never ends, so that the fetch is under way when the next one comes.
    let (body, _end) = endless();
    let fields = "Cache-Control: max-age=10\nVary: X-Lang";
    origin.answer(fields, body).await;
    assert!(step(&mut first).is_some());
    let mut same = ask(&engine, look(&engine, "X-Lang: a"));
    assert!(step(&mut same).is_some_and(|response| response.cache_status.collapsed));
    let mut other = ask(&engine, look(&engine, "X-Lang: b"));
    assert!(step(&mut other).is_none());
    settle().await;
    assert_eq!(origin.count(), 1, "only the other variant");
}

#[tokio::test(start_paused = true)]
async fn who_is_told_late_gets_what_was_good_when_it_came() {
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

/// A body that says nothing, and does not end.
fn endless() -> (Body, oneshot::Sender<()>) {
    struct Endless(oneshot::Receiver<()>);
    impl microcache_engine::Source for Endless {
        fn poll_frame(
            &mut self,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<microcache_engine::Frame, microcache_engine::BodyError>>> {
            Pin::new(&mut self.0).poll(cx).map(|_| None)
        }
    }
    let (end, ended) = oneshot::channel();
    (Body::Stream(Box::new(Endless(ended))), end)
}

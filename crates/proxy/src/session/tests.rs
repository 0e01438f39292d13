//! The session without a connection: guarantees to HTTP/1 and HTTP/2.

mod access;
mod forward_auth;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use microcache_engine::{
    BoxFuture, Engine, Frame, Interim, Origin, OriginError, OriginRequest, OriginResponse,
};
use microcache_policy::FieldsBuf;
use microcache_store::Tiers;
use parking_lot::Mutex;

use super::*;
use crate::config::{Config, Input};
use crate::observe::Notices;
use crate::shared::{settings, start_push};
use crate::watched::page_finder;

/// Origin that records requests, sends an interim response first, and reads request bodies.
#[derive(Default)]
struct Echo {
    requests: Mutex<Vec<String>>,
}

impl Origin for Echo {
    fn fetch(
        &self,
        mut request: OriginRequest,
    ) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            let authority = String::from_utf8_lossy(&request.authority).into_owned();
            let target = String::from_utf8_lossy(&request.target).into_owned();
            let url = format!("{}://{authority}{target}", request.scheme.as_str());
            self.requests
                .lock()
                .push(format!("{} {url}", request.method));
            assert_ne!(target, "/panic", "this panic is part of a test");
            if let Some(interims) = &request.interim {
                interims.push(Interim {
                    status: 103,
                    fields: FieldsBuf::new(),
                });
            }
            let mut body = Vec::new();
            while let Some(frame) = request.body.frame().await {
                match frame.map_err(OriginError::RequestBody)? {
                    Frame::Data(data) => body.extend_from_slice(&data),
                    Frame::Trailers(_) => {}
                }
            }
            let mut fields = FieldsBuf::new();
            fields.push("Cache-Control", "max-age=100");
            Ok(OriginResponse {
                status: 200,
                fields,
                length: Some(body.len() as u64),
                body: Body::Full(body.into()),
                tunnel: None,
                waited: 0,
            })
        })
    }
}

/// A cache before an [`Echo`], with one line for each finished request.
struct World {
    shared: Shared,
    origin: Arc<Echo>,
    over: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new() -> Self {
        Self::with("")
    }

    /// Returns a world with these lines in its configuration.
    fn with(lines: &str) -> Self {
        let config = Config::read(Input {
            file: Some(("microcache.toml", lines)),
            urls: &["http://localhost:3000".to_owned()],
            ..Input::default()
        });
        Self::of(config.expect("the configuration is right"))
    }

    fn of(config: Config) -> Self {
        let origin = Arc::new(Echo::default());
        let origins = [Arc::clone(&origin) as Arc<dyn Origin>];
        Self::behind(config, origin, &origins)
    }

    fn behind(config: Config, origin: Arc<Echo>, origins: &[Arc<dyn Origin>]) -> Self {
        let push = start_push(&config).expect("documents are kept in memory");
        let mut shared = Shared::before(
            (origins, push),
            Arc::new(config),
            Tiers::default(),
            Notices::default(),
            Arc::default(),
            page_finder,
        );
        let over: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = Arc::clone(&over);
        shared.on_finished = Some(Arc::new(move |finished| lines.lock().push(line(finished))));
        Self {
            shared,
            origin,
            over,
        }
    }

    /// Returns one session for each scheme.
    fn sessions(self) -> (Session, Session, Arc<Echo>, Arc<Mutex<Vec<String>>>) {
        let caller = Caller::at("192.0.2.1".parse().expect("an address"));
        let shared = Arc::new(self.shared);
        (
            Session::new(Arc::clone(&shared), caller, Scheme::Http),
            Session::new(shared, caller, Scheme::Https),
            self.origin,
            self.over,
        )
    }
}

fn line(finished: &FinishedRequest<'_>) -> String {
    let method = finished.request.map(|request| request.method.as_str());
    let target = finished.request.map(|request| request.target);
    let target = String::from_utf8_lossy(target.unwrap_or_default());
    let answer = finished
        .answer
        .map(|answer| format!("{} {}", answer.status, answer.outcome.as_str()));
    let answer = answer.unwrap_or_else(|| "no answer".to_owned());
    let method = method.unwrap_or_default();
    let bytes = finished.bytes;
    format!("{} {method} {target} {answer} {bytes}", finished.address)
}

fn request<'a>(session: &'a Session, method: &'a Method, target: &'a str) -> Request<'a> {
    session.request(method, b"a", target.as_bytes(), Fields::default())
}

fn reply(session: &Session, request: &Request<'_>, now: Time) -> (RouteId, Reply) {
    let mut reply = None;
    let route = session.serve(request, now, &mut reply);
    (route, reply.expect("every request gets one"))
}

/// Returns the statuses that a client receives, interim ones first.
async fn received(session: &mut Session, method: &Method, target: &str, fields: &str) -> Vec<u16> {
    let now = session.shared.engine.clock.now();
    let request = Request {
        fields: Fields::new(fields.as_bytes()),
        ..request(session, method, target)
    };
    let unanswered = match reply(session, &request, now) {
        (route, Reply::Now(response)) => {
            session.finished(route, &request, Version::HTTP_11, &response, now);
            return vec![response.status];
        }
        (_, Reply::Deferred(unanswered)) => unanswered,
    };
    let (mut answering, _) = session.ask(unanswered, Version::HTTP_11, None);
    let mut received = Vec::new();
    loop {
        match answering.next().await {
            RequestEvent::Interim(interim) => received.push(interim.status),
            RequestEvent::Continue(_) => received.push(100),
            RequestEvent::Answer(mut answered) => {
                received.push(answered.response.status);
                while let Some(Ok(Frame::Data(data))) = answered.response.body.frame().await {
                    answered.account.sent(data.len() as u64);
                }
                return received;
            }
        }
    }
}

#[tokio::test]
async fn every_request_is_over_once() {
    let (mut session, _, _, over) = World::new().sessions();
    let get = Method::GET;
    assert_eq!(received(&mut session, &get, "/", "").await, [103, 200]);
    assert_eq!(received(&mut session, &get, "/", "").await, [200]);
    assert_eq!(received(&mut session, &get, "/panic", "").await, [500]);
    let last = "Max-Forwards: 0\r\n";
    assert_eq!(
        received(&mut session, &Method::TRACE, "/", last).await,
        [200]
    );
    assert_eq!(
        session.refuse(431, "too much", Version::HTTP_11).status,
        431
    );
    // A client that leaves before the response.
    let now = session.shared.engine.clock.now();
    let left = request(&session, &get, "/left");
    if let (_, Reply::Deferred(unanswered)) = reply(&session, &left, now) {
        drop(session.ask(unanswered, Version::HTTP_11, None));
    }
    let over = over.lock();
    let lines: Vec<_> = over.iter().map(String::as_str).collect();
    let expected = [
        "192.0.2.1 GET / 200 miss 0",
        "192.0.2.1 GET / 200 hit 0",
        "192.0.2.1 GET /panic 500 error 39",
        "192.0.2.1 TRACE / 200 pass 37",
        "192.0.2.1   431 error 9",
        "192.0.2.1 GET /left no answer 0",
    ];
    assert_eq!(lines, expected);
    let metrics = session.shared.metrics.snapshot();
    let outcomes = Outcome::ALL.map(|outcome| metrics.of(outcome));
    assert_eq!(outcomes, [1, 0, 0, 1, 0, 1, 2, 0, 1], "each once");
    let (all, routed) = (metrics.requests(), metrics.routes[0].requests());
    assert_eq!((all, routed), (6, 5), "one could not be read");
    assert_eq!(metrics.bytes(), 39 + 37 + 9);
}

#[tokio::test]
async fn the_origin_gets_the_scheme_of_the_connection() {
    let (mut plain, mut tls, origin, _) = World::new().sessions();
    let get = Method::GET;
    assert_eq!(received(&mut plain, &get, "/", "").await, [103, 200]);
    // With the other scheme it is another resource.
    assert_eq!(received(&mut tls, &get, "/", "").await, [103, 200]);
    assert_eq!(received(&mut tls, &get, "/", "").await, [200]);
    let requests = origin.requests.lock();
    assert_eq!(*requests, ["GET http://a/", "GET https://a/"]);
}

#[tokio::test]
async fn a_100_is_sent_when_content_is_wanted_and_truncated_content_is_a_client_error() {
    let (mut session, _, _, over) = World::new().sessions();
    for breaks_off in [false, true] {
        let post = Request {
            fields: Fields::new(b"Expect: 100-continue\r\n"),
            has_body: true,
            ..request(&session, &Method::POST, "/")
        };
        let now = session.shared.engine.clock.now();
        let (_, Reply::Deferred(unanswered)) = reply(&session, &post, now) else {
            panic!("only the application can answer it");
        };
        let announced = AnnouncedContent {
            length: None,
            expects_continue: true,
        };
        let (mut answering, content) = session.ask(unanswered, Version::HTTP_11, Some(announced));
        let mut content = content.expect("it was announced");
        let sending = async {
            assert!(content.ready().await);
            content.send(Frame::Data(Bytes::from_static(b"abc")), false);
            if !breaks_off {
                assert!(content.ready().await);
                content.end();
            }
        };
        let continued = AtomicUsize::new(0);
        let answer = async {
            loop {
                match answering.next().await {
                    RequestEvent::Interim(_) => {}
                    RequestEvent::Continue(go) => {
                        continued.fetch_add(1, Ordering::Relaxed);
                        go.send(()).expect("the content waits for it");
                    }
                    RequestEvent::Answer(answered) => return answered.response,
                }
            }
        };
        let ((), response) = tokio::join!(sending, answer);
        assert_eq!(continued.into_inner(), 1);
        let expected = if breaks_off { 400 } else { 200 };
        assert_eq!(response.status, expected);
    }
    assert_eq!(over.lock().len(), 2);
}

#[test]
fn a_fault_in_the_cache_is_one_requests_500() {
    let mut world = World::new();
    let (routes, find) = (
        Vec::new(),
        Arc::new(|_: &Request<'_>| -> RouteMatch { panic!("a test's panic") }),
    );
    let settings = settings(&world.shared.config);
    world.shared.engine = Arc::new(Engine::new(settings, routes, find, Tiers::default()));
    let (session, ..) = world.sessions();
    let now = session.shared.engine.clock.now();
    let request = request(&session, &Method::GET, "/");
    let (_, Reply::Now(response)) = reply(&session, &request, now) else {
        panic!("there is no origin");
    };
    assert_eq!(response.status, 500);
}

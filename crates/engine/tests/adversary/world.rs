//! A conversation, run with the engine in between.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use microcache_engine::{
    Body, Engine, Failure, ForwardedRequest, Frame, NoResponse, Outcome, Response, Route, Served,
    Settings,
};
use microcache_policy::{
    FieldName, Fields, FieldsBuf, Rules, Time, date, hop, only_from_trusted_peers,
};
use microcache_store::{MemoryLimits, Tiers};
use tokio::time::{sleep, timeout};

use super::model::{Chance, HOST, Lines, Page, TestRequest, honest, hostile};
use super::origin::{Seen, World};
use super::support;

/// The largest stored body in bytes. The largest pages are larger.
pub(crate) const LARGEST: usize = 64 * 1024;
/// Variants stored per key.
pub(crate) const VARIANTS: usize = 8;

/// The script of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) pages: Vec<Page>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: u64,
    pub(crate) act: Act,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// This many honest clients send the same request at once.
    Honest(TestRequest, usize),
    Hostile(TestRequest, Manner),
    /// The origin is unreachable for this long, in milliseconds.
    Outage(u64),
}

/// The way a client reads its response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    Reads,
    /// Leaves after this long, in milliseconds.
    Leaves(u64),
    /// Reads nothing of the body for this long, in milliseconds.
    Stalls(u64),
}

/// A client's response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) step: usize,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// `None` if the client left first.
    pub(crate) got: Option<Got>,
}

#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) fields: Lines,
    pub(crate) body: Vec<u8>,
    pub(crate) is_whole: bool,
    pub(crate) hit: bool,
    pub(crate) collapsed: bool,
    pub(crate) stored: bool,
    pub(crate) ttl: Option<i64>,
    pub(crate) status_field: String,
}

/// The record of a conversation.
pub(crate) struct Log {
    pub(crate) answers: Vec<Answer>,
    pub(crate) seen: Vec<Seen>,
}

impl Plan {
    pub(crate) fn from_chance(chance: &mut Chance) -> Self {
        let mut pages = vec![Page::front(chance)];
        pages.extend((1..3).map(|number| Page::any(chance, number)));
        let (mut at, favourite) = (0, chance.below(1_000));
        let steps = (0..chance.below(60) + 10).map(|number| {
            at += [0, 0, 5, 30, 200, 900, 1_500, 12_000][chance.below(8)];
            let page = if chance.one_in(2) {
                &pages[0]
            } else {
                &pages[chance.below(pages.len())]
            };
            let act = match chance.below(40) {
                0 => Act::Outage([10, 3_000][chance.below(2)]),
                1..12 => {
                    let requested = honest(chance, page, number);
                    Act::Honest(requested, if chance.one_in(3) { 5 } else { 1 })
                }
                _ => Act::Hostile(
                    hostile(chance, page, favourite),
                    Manner::from_chance(chance),
                ),
            };
            Step { at, act }
        });
        let steps = steps.collect();
        Self { pages, steps }
    }

    pub(crate) fn without(&self, at: usize, count: usize) -> Self {
        let mut plan = self.clone();
        let end = (at + count).min(plan.steps.len());
        plan.steps.drain(at..end);
        plan
    }

    /// Drops the fields of hostile requests that are not needed for the fault that `shows` detects.
    pub(crate) fn with_fewer_fields(mut self, shows: impl Fn(&Self) -> bool) -> Self {
        for step in 0..self.steps.len() {
            // Every request has a host.
            let mut field = 1;
            loop {
                let mut next = self.clone();
                let Act::Hostile(requested, _) = &mut next.steps[step].act else {
                    break;
                };
                if field >= requested.fields.len() {
                    break;
                }
                requested.fields.remove(field);
                if shows(&next) {
                    self = next;
                } else {
                    field += 1;
                }
            }
        }
        self
    }
}

impl Manner {
    fn from_chance(chance: &mut Chance) -> Self {
        match chance.below(8) {
            0 => Self::Leaves([0, 10, 25, 500][chance.below(4)]),
            1 => Self::Stalls([50, 5_000][chance.below(2)]),
            _ => Self::Reads,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for page in &self.pages {
            writeln!(f, "{page:?}")?;
        }
        for step in &self.steps {
            match &step.act {
                Act::Honest(requested, count) => {
                    writeln!(f, "{} ms: {count} honest: {}", step.at, requested.text())?;
                }
                Act::Hostile(requested, manner) => {
                    writeln!(
                        f,
                        "{} ms: hostile, {manner:?}: {}",
                        step.at,
                        requested.text()
                    )?;
                }
                Act::Outage(length) => writeln!(f, "{} ms: an outage of {length} ms", step.at)?,
            }
        }
        Ok(())
    }
}

/// Runs the conversation.
pub(crate) fn run(plan: &Plan) -> Log {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(talk(plan))
}

async fn talk(plan: &Plan) -> Log {
    let outages = plan.steps.iter().filter_map(|step| match step.act {
        Act::Outage(length) => Some((step.at, step.at + length)),
        _ => None,
    });
    let world = World::new(&plan.pages, outages.collect());
    let engine = engine(&world);
    let mut clients = Vec::new();
    for (number, step) in plan.steps.iter().enumerate() {
        sleep(Duration::from_millis(step.at.saturating_sub(world.now()))).await;
        let (requested, count, manner) = match &step.act {
            Act::Honest(requested, count) => (requested, *count, Manner::Reads),
            Act::Hostile(requested, manner) => (requested, 1, *manner),
            Act::Outage(_) => continue,
        };
        for _ in 0..count {
            let (engine, world, requested) =
                (Arc::clone(&engine), Arc::clone(&world), requested.clone());
            clients.push(tokio::spawn(async move {
                let began = world.now();
                let got = ask(engine, requested, manner).await;
                Answer {
                    step: number,
                    began,
                    ended: world.now(),
                    got,
                }
            }));
        }
    }
    let mut answers = Vec::new();
    for client in clients {
        answers.push(client.await.expect("no client panics"));
    }
    Log {
        answers,
        seen: world.seen(),
    }
}

fn engine(world: &Arc<World>) -> Arc<Engine> {
    let settings = Settings {
        memory: MemoryLimits {
            object: LARGEST as u64,
            variants: VARIANTS,
            ..support::settings().memory
        },
        slow_reader_timeout: 10_000,
        ..support::settings()
    };
    let route = Route {
        answers_at_once: false,
        max_object: LARGEST as u64,
        ..support::route(Arc::clone(world) as Arc<_>, Rules::default())
    };
    support::engine(settings, route, Tiers::default())
}

async fn ask(engine: Arc<Engine>, requested: TestRequest, manner: Manner) -> Option<Got> {
    let answer = answer(engine, requested, manner);
    match manner {
        Manner::Leaves(after) => timeout(Duration::from_millis(after), answer).await.ok(),
        _ => Some(answer.await),
    }
}

/// Takes one request through the engine, as a connection does.
async fn answer(engine: Arc<Engine>, requested: TestRequest, manner: Manner) -> Got {
    let incoming = incoming(&requested);
    let response = match engine.serve(&incoming.as_request(), engine.clock.now()) {
        Served::Now(response) => response,
        Served::NowAndRefresh(response, refresh) => {
            engine.refresh(refresh, incoming);
            response
        }
        Served::Fetch(plan) => {
            let answer = Arc::clone(&engine).ask(plan, incoming).await;
            answer.unwrap_or_else(|failed| page(&failed, engine.clock.now()))
        }
        Served::Failed(failed) => page(&failed, engine.clock.now()),
    };
    if let Manner::Stalls(time) = manner {
        sleep(Duration::from_millis(time)).await;
    }
    got(response).await
}

/// The page for a client without a response.
fn page(failed: &NoResponse, now: Time) -> Response {
    let mut fields = FieldsBuf::new();
    fields.push("Date", date::format(now));
    fields.push("Cache-Control", "no-store");
    let status = match failed.cause {
        Failure::OnlyIfCached => 504,
        _ => 502,
    };
    Response {
        status,
        fields: Some(fields.into()),
        age: None,
        cache_status: failed.cache_status,
        length: Some(0),
        body: Body::Empty,
        tunnel: None,
        outcome: Outcome::Error,
    }
}

async fn got(mut response: Response) -> Got {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = response.fields();
    let fields = fields.iter().map(|(name, value)| (text(name), text(value)));
    let fields = fields.collect();
    let (mut body, mut is_whole) = (Vec::new(), true);
    while let Some(frame) = response.body.frame().await {
        match frame {
            Ok(Frame::Data(piece)) => body.extend_from_slice(&piece),
            Ok(Frame::Trailers(_)) => {}
            Err(_) => {
                is_whole = false;
                break;
            }
        }
    }
    let status = response.cache_status;
    Got {
        status: response.status,
        fields,
        body,
        is_whole,
        hit: status.hit,
        collapsed: status.collapsed,
        stored: status.stored,
        ttl: status.ttl,
        status_field: format!("{status:?}"),
    }
}

fn incoming(requested: &TestRequest) -> ForwardedRequest {
    let mut fields = FieldsBuf::new();
    for (name, value) in &requested.fields {
        fields.push(name, value.trim());
    }
    let body = if requested.has_body {
        Body::Full("body".into())
    } else {
        Body::Empty
    };
    let method = Method::from_bytes(requested.method.as_bytes()).expect("a method");
    let outgoing = outgoing(fields.fields());
    ForwardedRequest {
        outgoing,
        length: requested.has_body.then_some(4),
        body,
        ..support::incoming(method, HOST, requested.target.clone().into(), fields)
    }
}

/// The fields that the proxy forwards.
fn outgoing(request: Fields<'_>) -> FieldsBuf {
    let nominated = hop::NominatedFields::by(request);
    let mut fields = FieldsBuf::new();
    fields.extend_if(request, |name, _| {
        let name = FieldName::of(name);
        !nominated.stays_behind(name) && !only_from_trusted_peers(name)
    });
    fields.push("X-Forwarded-For", support::CLIENT);
    fields
}

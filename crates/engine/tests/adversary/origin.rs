//! The origin behind the engine: the model's pages, with latency, failures and bodies in pieces.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::{
    Body, BodyError, BoxFuture, Frame, Origin, OriginError, OriginRequest, OriginResponse, Source,
};
use microcache_policy::FieldsBuf;
use tokio::time::{Instant, Sleep, sleep};

use super::model::{Page, Reply, TestRequest, Version, joined};

/// A request that reached the origin.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    pub(crate) requested: TestRequest,
}

pub(crate) struct World {
    pages: Vec<Page>,
    started: Instant,
    /// The intervals in which every request fails.
    outages: Vec<(u64, u64)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    edits: HashMap<String, u64>,
    seen: Vec<Seen>,
}

impl World {
    pub(crate) fn new(pages: &[Page], outages: Vec<(u64, u64)>) -> Arc<Self> {
        Arc::new(Self {
            pages: pages.to_vec(),
            started: Instant::now(),
            outages,
            state: Mutex::default(),
        })
    }

    /// Milliseconds since the beginning.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state
            .lock()
            .expect("no test panics with it")
            .seen
            .clone()
    }

    async fn answer(&self, requested: TestRequest) -> Result<Reply, OriginError> {
        let now = self.now();
        let reply = self.reply(&requested, now);
        let delay = joined(&requested.fields, "x-delay").and_then(|text| text.parse().ok());
        sleep(Duration::from_millis(delay.unwrap_or(20))).await;
        if self
            .outages
            .iter()
            .any(|(from, to)| (*from..*to).contains(&now))
        {
            return Err(OriginError::Connect("refused".into()));
        }
        match joined(&requested.fields, "x-crash").as_deref() {
            Some("drop") => Err(OriginError::Disconnected),
            Some("garbage") => Err(OriginError::Malformed("garbage")),
            Some(status) => Ok(error(status.parse().unwrap_or(500))),
            None => Ok(reply),
        }
    }

    fn reply(&self, requested: &TestRequest, now: u64) -> Reply {
        let mut state = self.state.lock().expect("no test panics with it");
        state.seen.push(Seen {
            at: now,
            requested: requested.clone(),
        });
        let serial = state.seen.len();
        let page = self.pages.iter().find(|page| page.path == requested.target);
        let Some(page) = page else {
            return error(404);
        };
        let edits = state.edits.entry(page.path.clone()).or_default();
        match requested.method.as_str() {
            "GET" | "HEAD" => {
                let version = Version {
                    edits: *edits,
                    edition: now / page.period,
                };
                page.answer(requested, version, serial)
            }
            "POST" | "DELETE" if joined(&requested.fields, "x-crash").is_none() => {
                *edits += 1;
                let mut reply = error(200);
                reply.push("X-Edit", &edits.to_string());
                reply
            }
            _ => error(405),
        }
    }
}

fn error(status: u16) -> Reply {
    Reply {
        status,
        fields: Vec::new(),
        body: b"plain".to_vec(),
        chunked: false,
        shareable: false,
    }
}

impl Origin for World {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            let is_head = request.method == http::Method::HEAD;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let lines = request.fields.fields();
            let requested = TestRequest {
                method: request.method.to_string(),
                target: text(&request.target),
                fields: lines
                    .iter()
                    .map(|(name, value)| (text(name), text(value)))
                    .collect(),
                has_body: !matches!(request.body, Body::Empty),
            };
            let reply = self.answer(requested).await?;
            let mut fields = FieldsBuf::new();
            for (name, value) in &reply.fields {
                fields.push(name, value);
            }
            let has_body = !(is_head || reply.status == 304);
            let known = !(reply.chunked || reply.status == 304);
            Ok(OriginResponse {
                status: reply.status,
                fields,
                length: known.then_some(reply.body.len() as u64),
                body: if has_body {
                    Pieces::body(&reply.body)
                } else {
                    Body::Empty
                },
                tunnel: None,
                waited: 0,
            })
        })
    }
}

/// A body that arrives in pieces, with pauses in between.
struct Pieces {
    left: VecDeque<Bytes>,
    pause: Pin<Box<Sleep>>,
}

impl Pieces {
    const SIZE: usize = 16 * 1024;
    const PAUSE: Duration = Duration::from_millis(10);

    fn body(bytes: &[u8]) -> Body {
        let left = bytes.chunks(Self::SIZE).map(Bytes::copy_from_slice);
        Body::Stream(Box::new(Self {
            left: left.collect(),
            pause: Box::pin(sleep(Duration::ZERO)),
        }))
    }
}

impl Source for Pieces {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        ready!(self.pause.as_mut().poll(cx));
        self.pause.as_mut().reset(Instant::now() + Self::PAUSE);
        Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::Data(piece))))
    }
}

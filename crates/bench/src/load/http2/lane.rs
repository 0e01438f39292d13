//! Sequence of requests on one of the concurrent streams of a connection.

use std::rc::Rc;
use std::time::Instant;

use http::HeaderMap;

use super::context::ThreadContext;
use super::slot::{self, ConnectionSlot};
use crate::load::backoff::Backoff;
use crate::load::cache_status;
use crate::load::outcome::{CacheOutcome, RequestFault};
use crate::load::recorder::ResponseTimes;
use crate::load::settings::RequestPace;
use crate::load::url_selector::UrlChoice;

/// Sends one request after the other until the source is exhausted.
pub(super) async fn run(thread: Rc<ThreadContext>, slot: Rc<ConnectionSlot>) {
    let mut backoff = Backoff::default();
    let first = thread.source.borrow_mut().first_think_time();
    tokio::time::sleep(first).await;
    while let Some((start, choice)) = thread.next().await {
        thread.busy.set(thread.busy.get() + 1);
        let exchange = thread.exchange(&slot, choice, start);
        let answer = tokio::time::timeout(thread.plan.settings.timeout, exchange).await;
        thread.busy.set(thread.busy.get() - 1);
        let think_time = thread.source.borrow_mut().think_time();
        let pause = match answer.unwrap_or(Err(RequestFault::TimedOut)) {
            Ok(answer) => {
                thread.answered(&answer);
                backoff.succeeded();
                think_time
            }
            Err(fault) => {
                thread.failed(fault, start);
                think_time.max(backoff.failed())
            }
        };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// Complete response.
struct LaneResponse {
    status: u16,
    outcome: CacheOutcome,
    moments: ResponseTimes,
}

impl ThreadContext {
    /// Returns the scheduled start and the URL of the next request.
    async fn next(&self) -> Option<(Instant, UrlChoice)> {
        let start = match self.plan.settings.pace {
            RequestPace::Closed | RequestPace::Think(..) => Instant::now(),
            RequestPace::Rate(_) => self.next_due().await?,
        };
        let choice = self.source.borrow_mut().take(start)?;
        Some((start, choice))
    }

    /// Open loop: waits for the next due request. The lock lets one lane at a time wait on the timer.
    async fn next_due(&self) -> Option<Instant> {
        let mut timer = self.turn.lock().await;
        loop {
            let due = {
                let mut source = self.source.borrow_mut();
                if let Some(start) = source.take_due(Instant::now()) {
                    return Some(start);
                }
                source.next_due()?
            };
            timer.get_mut().set(due).ok()?;
            timer.readable().await.ok()?.clear_ready();
        }
    }

    async fn exchange(
        &self,
        slot: &ConnectionSlot,
        choice: UrlChoice,
        start: Instant,
    ) -> Result<LaneResponse, RequestFault> {
        let endpoint = self.plan.endpoint_of[choice.target];
        let mut connection = slot.connection(self, endpoint, start).await?;
        let request = &self.requests[choice.target];
        let head = request.head(choice.index).ok_or(RequestFault::Malformed)?;
        let to_fault = |why: h2::Error| slot::fault(&why);
        let bodiless = request.body.is_empty();
        let (response, mut sending) = connection.send_request(head, bodiless).map_err(to_fault)?;
        if !bodiless {
            sending
                .send_data(request.body.clone(), true)
                .map_err(to_fault)?;
        }
        let response = response.await.map_err(to_fault)?;
        let first_byte = Instant::now();
        let (status, outcome) = (response.status().as_u16(), outcome(response.headers()));
        let mut body = response.into_body();
        while let Some(piece) = body.data().await {
            let length = piece.map_err(to_fault)?.len();
            body.flow_control()
                .release_capacity(length)
                .map_err(to_fault)?;
        }
        body.trailers().await.map_err(to_fault)?;
        Ok(LaneResponse {
            status,
            outcome,
            moments: ResponseTimes {
                start,
                first_byte,
                end: Instant::now(),
            },
        })
    }

    fn answered(&self, answer: &LaneResponse) {
        self.source.borrow_mut().succeeded();
        let mut recorder = self.recorder.borrow_mut();
        recorder.answered(answer.status, answer.outcome, answer.moments);
    }

    fn failed(&self, fault: RequestFault, start: Instant) {
        let now = Instant::now();
        self.source.borrow_mut().failed(now);
        self.recorder.borrow_mut().failed(fault, start, now);
    }
}

fn outcome(fields: &HeaderMap) -> CacheOutcome {
    let last = fields.get_all("cache-status").iter().next_back();
    last.map_or(CacheOutcome::None, |value| {
        cache_status::outcome(value.as_bytes())
    })
}

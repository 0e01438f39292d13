//! One lane: one request after the other, on a connection that it shares with the other lanes of its slot.

use std::rc::Rc;
use std::time::Instant;

use http::HeaderMap;

use super::Thread;
use super::slot::{self, Slot};
use crate::load::cache_status;
use crate::load::choice::Chosen;
use crate::load::outcome::{Fault, Outcome};
use crate::load::recorder::Moments;
use crate::load::rest::Rest;
use crate::load::settings::Pace;

/// Asks until there is nothing more to ask.
pub(super) async fn run(thread: Rc<Thread>, slot: Rc<Slot>) {
    let mut rest = Rest::default();
    let first = thread.source.borrow_mut().first_thought();
    tokio::time::sleep(first).await;
    while let Some((start, chosen)) = thread.next().await {
        thread.busy.set(thread.busy.get() + 1);
        let exchange = thread.exchange(&slot, chosen, start);
        let answer = tokio::time::timeout(thread.plan.settings.timeout, exchange).await;
        thread.busy.set(thread.busy.get() - 1);
        let thought = thread.source.borrow_mut().thought();
        let pause = match answer.unwrap_or(Err(Fault::TimedOut)) {
            Ok(answer) => {
                thread.answered(&answer);
                rest.succeeded();
                thought
            }
            Err(fault) => {
                thread.failed(fault, start);
                thought.max(rest.failed())
            }
        };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// A whole answer.
struct Receiving {
    status: u16,
    outcome: Outcome,
    moments: Moments,
}

impl Thread {
    /// When the next request is to start, and what it asks for.
    async fn next(&self) -> Option<(Instant, Chosen)> {
        let start = match self.plan.settings.pace {
            Pace::Closed | Pace::Think(..) => Instant::now(),
            Pace::Rate(_) => self.next_due().await?,
        };
        let chosen = self.source.borrow_mut().take(start)?;
        Some((start, chosen))
    }

    /// Waits for the next request of an open loop. Who waits keeps the others from waiting for the same one.
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
        slot: &Slot,
        chosen: Chosen,
        start: Instant,
    ) -> Result<Receiving, Fault> {
        let endpoint = self.plan.endpoint_of[chosen.target];
        let mut connection = slot.connection(self, endpoint, start).await?;
        let request = &self.requests[chosen.target];
        let head = request.head(chosen.index).ok_or(Fault::Malformed)?;
        let told = |why: h2::Error| slot::fault(&why);
        let bodiless = request.body.is_empty();
        let (response, mut sending) = connection.send_request(head, bodiless).map_err(told)?;
        if !bodiless {
            sending
                .send_data(request.body.clone(), true)
                .map_err(told)?;
        }
        let response = response.await.map_err(told)?;
        let first_byte = Instant::now();
        let (status, outcome) = (response.status().as_u16(), outcome(response.headers()));
        let mut body = response.into_body();
        while let Some(piece) = body.data().await {
            let length = piece.map_err(told)?.len();
            body.flow_control().release_capacity(length).map_err(told)?;
        }
        body.trailers().await.map_err(told)?;
        Ok(Receiving {
            status,
            outcome,
            moments: Moments {
                start,
                first_byte,
                end: Instant::now(),
            },
        })
    }

    fn answered(&self, answer: &Receiving) {
        self.source.borrow_mut().succeeded();
        let mut recorder = self.recorder.borrow_mut();
        recorder.answered(answer.status, answer.outcome, answer.moments);
    }

    fn failed(&self, fault: Fault, start: Instant) {
        let now = Instant::now();
        self.source.borrow_mut().failed(now);
        self.recorder.borrow_mut().failed(fault, start, now);
    }
}

fn outcome(fields: &HeaderMap) -> Outcome {
    let last = fields.get_all("cache-status").iter().next_back();
    last.map_or(Outcome::None, |value| {
        cache_status::outcome(value.as_bytes())
    })
}

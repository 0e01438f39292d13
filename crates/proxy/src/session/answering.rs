//! A request that the origin is asked about, until its answer begins.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::{BoxFuture, Failure, Interim, Interims, NoResponse, OriginError, Response};
use microcache_policy::Network;
use tokio::sync::oneshot;

use super::content::Expectation;
use super::finished::Account;
use super::monitor::add_monitor;
use super::pages;
use crate::metrics::Refusal;
use crate::notices::Kind;
use crate::room::{Held, Need, TooMany};
use crate::shared::Shared;

/// A request under way. Dropping it gives the request up.
pub(crate) struct Answering {
    answer: BoxFuture<'static, Result<Response, NoResponse>>,
    interims: Interims,
    expectation: Option<Expectation>,
    /// The answer, while an interim one goes first.
    response: Option<Response>,
    shared: Arc<Shared>,
    account: Account,
    /// What is asked for, where pages say how they can be watched.
    watched: Option<Bytes>,
    /// The address for which its answer counts if it has no end.
    network: Option<Network>,
}

/// What a client is to be told while it waits.
pub(crate) enum Event {
    /// This 1xx response.
    Interim(Interim),
    /// That its content is wanted: it waits for a 100. Then this is to be sent.
    Continue(oneshot::Sender<()>),
    /// The final response. Nothing comes behind it.
    Answer(Box<Answered>),
}

/// The final response to a request.
pub(crate) struct Answered {
    pub(crate) response: Response,
    /// It goes on until somebody has enough: a tunnel or an event stream.
    pub(crate) is_endless: bool,
    /// To be told of what is sent.
    pub(crate) account: Account,
    /// What it needs of the room that all share; to be kept until it is sent.
    pub(crate) held: Held,
}

impl Answering {
    pub(super) fn new(
        answer: BoxFuture<'static, Result<Response, NoResponse>>,
        interims: Interims,
        expectation: Option<Expectation>,
        shared: Arc<Shared>,
        account: Account,
    ) -> Self {
        Self {
            answer,
            interims,
            expectation,
            response: None,
            shared,
            account,
            watched: None,
            network: None,
        }
    }

    /// For this path and query, which may be watched.
    pub(super) fn of_watched(self, watched: Option<Bytes>) -> Self {
        Self { watched, ..self }
    }

    /// For a client at this address.
    pub(super) fn of_client(self, network: Network) -> Self {
        Self {
            network: Some(network),
            ..self
        }
    }

    /// What comes next. The answer is the last.
    pub(crate) async fn next(&mut self) -> Event {
        let response = match self.response.take() {
            Some(response) => response,
            None => match poll_fn(|cx| self.poll(cx)).await {
                Ok(response) => response,
                Err(event) => return event,
            },
        };
        // One that arrived together with the answer still comes first.
        if let Some(interim) = self.interims.take() {
            self.response = Some(response);
            return Event::Interim(interim);
        }
        Event::Answer(Box::new(self.settle(response).await))
    }

    /// The final response, or what comes before it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, Event>> {
        if let Poll::Ready(interim) = self.interims.poll_next(cx) {
            return Poll::Ready(Err(Event::Interim(interim)));
        }
        if let Some(Expectation { wanted, .. }) = &mut self.expectation
            && let Poll::Ready(wanted) = Pin::new(wanted).poll(cx)
            && let Some(Expectation { go, .. }) = self.expectation.take()
            && wanted.is_ok()
        {
            return Poll::Ready(Err(Event::Continue(go)));
        }
        // A panic in one request is that request's alone.
        let answer = catch_unwind(AssertUnwindSafe(|| self.answer.as_mut().poll(cx)));
        let engine = &self.shared.engine;
        let Ok(answer) = answer else {
            return Poll::Ready(Ok(pages::panicked(engine.clock.now())));
        };
        let page = |failed: NoResponse| {
            if let Failure::Origin(OriginError::RequestBody(why)) = &failed.cause {
                let address = self.account.address().unwrap_or_default();
                self.shared.refused_body(why, address);
            }
            if matches!(failed.cause, Failure::TooManyWait) {
                self.say_too_many_wait();
            }
            pages::failed(&failed, engine.clock.now())
        };
        answer.map(|answer| Ok(answer.unwrap_or_else(page)))
    }

    fn say_too_many_wait(&self) {
        let address = self.account.address().unwrap_or_default();
        let line = format!(
            "a request of {address} was answered 503: as many of that address wait for one page as may (a tenth of `max_waiters`), \
             or as many fetches are under way as may (`max_fetches`); if it is a proxy or CDN of yours, its clients are told \
             apart once it is in `trusted_proxies`"
        );
        self.shared.notices.say(Kind::Busy, "waiters", line);
    }

    /// Finds room for the answer.
    async fn settle(&mut self, mut response: Response) -> Answered {
        if let Some(target) = &self.watched {
            add_monitor(target, &mut response);
        }
        let engine = &self.shared.engine;
        let now = engine.clock.now();
        let need = Need::of(&response);
        let held = self.shared.room.hold(need, self.network, now).await;
        let is_endless = matches!(need, Need::Tunnel { .. }) && held.is_ok();
        let held = held.unwrap_or_else(|TooMany| {
            self.shared.metrics.refused.count(Refusal::Tunnel);
            response = pages::too_many_streams(now);
            Held::default()
        });
        let mut account = std::mem::take(&mut self.account);
        account.answered(&response, now);
        if is_endless {
            account.goes_on();
        }
        Answered {
            response,
            is_endless,
            account,
            held,
        }
    }
}

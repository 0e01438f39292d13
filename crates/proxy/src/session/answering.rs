//! Requests under way to the origin, until the response begins.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_engine::{BoxFuture, Failure, Interim, Interims, NoResponse, OriginError, Response};
use microcache_policy::{Network, Time};
use tokio::sync::oneshot;

use super::account::RequestAccount;
use super::content::ContinueExpectation;
use super::header_rules::DeferredHeaders;
use super::monitor::add_monitor;
use super::pages;
use crate::admission::{PermitKind, ResponsePermits, TunnelLimitReached};
use crate::metrics::Refusal;
use crate::observe::Kind;
use crate::shared::Shared;

/// A request under way. Dropping it cancels the request.
pub(crate) struct OngoingRequest {
    answer: BoxFuture<'static, Result<Response, NoResponse>>,
    interims: Interims,
    expectation: Option<ContinueExpectation>,
    /// Response held back while an interim one goes first.
    response: Option<Box<Response>>,
    shared: Arc<Shared>,
    account: RequestAccount,
    /// Path and query, on routes whose pages announce where they can be watched.
    watched: Option<Bytes>,
    /// Changes of the response's fields, if its route makes any.
    headers: Option<Box<DeferredHeaders>>,
    /// Client network that an endless response counts for.
    network: Option<Network>,
}

/// Event of a request under way.
pub(crate) enum RequestEvent {
    /// Interim response (1xx).
    Interim(Interim),
    /// The request's content is needed, and its client expects a 100. Fired once the 100 has been sent.
    Continue(oneshot::Sender<()>),
    /// Final response; the last event.
    Answer(Box<AdmittedResponse>),
}

/// Final response to a request.
pub(crate) struct AdmittedResponse {
    pub(crate) response: Response,
    /// Tunnel or event stream, which does not end by itself.
    pub(crate) is_endless: bool,
    /// Time at which it was admitted.
    pub(crate) at: Time,
    /// Account of the request, for the bytes sent.
    pub(crate) account: RequestAccount,
    /// Permits of the response, to be kept until it is sent.
    pub(crate) held: ResponsePermits,
}

impl OngoingRequest {
    pub(super) fn new(
        answer: BoxFuture<'static, Result<Response, NoResponse>>,
        interims: Interims,
        expectation: Option<ContinueExpectation>,
        shared: Arc<Shared>,
        account: RequestAccount,
    ) -> Self {
        Self {
            answer,
            interims,
            expectation,
            response: None,
            shared,
            account,
            watched: None,
            headers: None,
            network: None,
        }
    }

    /// Sets path and query of a page that can be watched.
    pub(super) fn of_watched(self, watched: Option<Bytes>) -> Self {
        Self { watched, ..self }
    }

    /// Sets the changes of the response's fields.
    pub(super) fn with_headers_of(self, headers: Option<Box<DeferredHeaders>>) -> Self {
        Self { headers, ..self }
    }

    /// Sets the client's address.
    pub(super) fn of_client(self, network: Network) -> Self {
        Self {
            network: Some(network),
            ..self
        }
    }

    /// Returns the next event. [`RequestEvent::Answer`] is the last.
    pub(crate) async fn next(&mut self) -> RequestEvent {
        // Polled into a box: the response is not moved through the futures above.
        match poll_fn(|cx| self.poll_final(cx)).await {
            Ok(mut admitted) => {
                self.admit(&mut admitted).await;
                RequestEvent::Answer(admitted)
            }
            Err(event) => event,
        }
    }

    /// Polls for the final response, behind all events before it.
    fn poll_final(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<AdmittedResponse>, RequestEvent>> {
        let response = match self.response.take() {
            Some(response) => *response,
            None => ready!(self.poll(cx))?,
        };
        // An interim response that arrived together with the final one still goes first.
        if let Some(interim) = self.interims.take() {
            self.response = Some(Box::new(response));
            return Poll::Ready(Err(RequestEvent::Interim(interim)));
        }
        Poll::Ready(Ok(Box::new(AdmittedResponse {
            response,
            is_endless: false,
            at: self.shared.engine.clock.now(),
            account: RequestAccount::default(),
            held: ResponsePermits::default(),
        })))
    }

    /// Polls for the final response, or an event before it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, RequestEvent>> {
        if let Poll::Ready(interim) = self.interims.poll_next(cx) {
            return Poll::Ready(Err(RequestEvent::Interim(interim)));
        }
        if let Some(ContinueExpectation { wanted, .. }) = &mut self.expectation
            && let Poll::Ready(wanted) = Pin::new(wanted).poll(cx)
            && let Some(ContinueExpectation { go, .. }) = self.expectation.take()
            && wanted.is_ok()
        {
            return Poll::Ready(Err(RequestEvent::Continue(go)));
        }
        // A panic affects its own request only.
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
                self.report_too_many_waiters();
            }
            pages::failed(&failed, engine.clock.now())
        };
        answer.map(|answer| Ok(answer.unwrap_or_else(page)))
    }

    fn report_too_many_waiters(&self) {
        let address = self.account.address().unwrap_or_default();
        let line = format!(
            "a request from {address} was answered 503: too many requests from that address wait for one page (a \
             tenth of `max_waiters`), or too many fetches are in progress (`max_fetches`); if it is your proxy or \
             CDN, add it to `trusted_proxies`, so that its clients are distinguished"
        );
        self.shared.notices.say(Kind::Busy, "waiters", line);
    }

    /// Acquires the permits of the response, or replaces it if the limit is reached.
    async fn admit(&mut self, admitted: &mut AdmittedResponse) {
        let (response, now) = (&mut admitted.response, admitted.at);
        if let Some(target) = &self.watched {
            add_monitor(target, response);
        }
        if let Some(headers) = &self.headers {
            headers.change(response);
        }
        let need = PermitKind::of(response);
        let limits = &self.shared.connection_limits;
        let held = limits.acquire(need, self.network, now).await;
        admitted.is_endless = matches!(need, PermitKind::Tunnel { .. }) && held.is_ok();
        admitted.held = held.unwrap_or_else(|TunnelLimitReached| {
            self.shared.metrics.refused.count(Refusal::Tunnel);
            *response = pages::too_many_streams(now);
            ResponsePermits::default()
        });
        admitted.account = std::mem::take(&mut self.account);
        admitted.account.answered(response, now);
        if admitted.is_endless {
            admitted.account.release_request();
        }
    }
}

//! Requests that memory cannot answer: each leads a coalesced fetch, joins one, or is sent
//! directly.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use microcache_policy::key::kept_target;
use microcache_policy::vary::{self, Selection};
use microcache_policy::{
    CacheStatus, Detail, Network, RequestFacts, Reuse, Time, in_use_until, reuse,
};
use microcache_store::{Hit, poll_clock};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::cache::fetch_outcome::{Failure, FetchOutcome, SharedAnswer};
use crate::cache::flight::{Leader, Role};
use crate::message::{ForwardedRequest, Response};
use crate::origin::{BoxFuture, OriginError, Urgency};
use crate::outcome::Outcome;
use crate::request::engine::Engine;
use crate::request::failure::NoResponse;
use crate::request::fetch::Fetch;
use crate::request::hit_response::answer_from;
use crate::request::lookup_context::LookupContext;
use crate::request::plan::{
    CoalescedFetch, DirectFetch, FetchPlan, FetchReason, FetchSpec, Refresh,
};
use crate::request::respond::{CacheStatusInputs, Reusable, passed_on, usable_for};
use crate::request::route::Clients;
use crate::request::serve::Served;
use crate::request::stale::{StaleQuery, WaitOutcome};
use crate::request::verdict::{Confirmation, ErrorPage, FetchFailure, Verdict};

/// Maximum number of fetches that a request leads or joins before it is sent directly.
const MAX_ROUNDS: usize = 4;

impl Engine {
    /// Answers a request that [`Engine::serve`] could not.
    pub fn ask(
        self: Arc<Self>,
        plan: FetchPlan,
        mut incoming: ForwardedRequest,
    ) -> BoxFuture<'static, Result<Response, NoResponse>> {
        match plan {
            FetchPlan::Direct(plan) => {
                if let Some(held) = self.room_for_content(&plan, &incoming) {
                    return Box::pin(self.ask_with_content(plan, incoming, held));
                }
                if plan.key.is_some() {
                    self.reduce_to_key(plan.why.route, &mut incoming);
                }
                self.ask_directly(plan, incoming)
            }
            FetchPlan::Coalesced(plan) => {
                self.reduce_to_key(plan.why.route, &mut incoming);
                self.fetch_coalesced(plan, Arc::new(incoming))
            }
        }
    }

    /// Leads or joins a coalesced fetch. If its result does not fit this request, the request is
    /// sent directly.
    ///
    /// Not an `async fn`, which would store its arguments twice.
    fn fetch_coalesced(
        self: Arc<Self>,
        mut plan: Box<CoalescedFetch>,
        incoming: Arc<ForwardedRequest>,
    ) -> BoxFuture<'static, Result<Response, NoResponse>> {
        Box::pin(async move {
            let forward = plan.why.forward;
            let mut key = Some(Arc::clone(&plan.spec.key));
            let began = self.clock.now();
            let mut history = WaitHistory::default();
            let mut whole = false;
            let mut entered = began;
            for _ in 0..MAX_ROUNDS {
                let step = match self.enter(&plan.spec, Some(incoming.network)) {
                    Role::Full if self.settings.clients == Clients::Program => {
                        CoalescedStep::FetchDirectly(None)
                    }
                    Role::Full => self.without_waiting(&plan, &incoming),
                    Role::Lead(leader) => self.lead_fetch(leader, &plan, &incoming, entered).await,
                    Role::Join(ticket) => {
                        let left = self
                            .settings
                            .wait_timeout
                            .saturating_sub(entered.since(began));
                        let deadline = Instant::now() + Duration::from_millis(left);
                        let times = (ticket.began(), Some(deadline));
                        let copy = || self.copy_for(&plan, &incoming, None, Detail::OriginSlow);
                        let waited = Box::pin(self.or_stale(ticket, times, copy)).await;
                        self.after_wait(waited, entered, &plan, &incoming, &mut history)
                    }
                };
                let only_for_another = matches!(step, CoalescedStep::LookForAnother);
                match step {
                    CoalescedStep::Answer(answer) => return *answer,
                    CoalescedStep::FetchDirectly(why) => {
                        whole = why == Some(Detail::Withheld);
                        plan.why.detail = why.or(plan.why.detail);
                        break;
                    }
                    CoalescedStep::LookAgain | CoalescedStep::LookForAnother => {}
                }
                match self.look_up_again(&incoming) {
                    // The first request after the refresh pause refreshes it.
                    Served::Now(response) | Served::NowAndRefresh(response, _) => {
                        return Ok(response);
                    }
                    Served::Failed(failed) => return Err(failed),
                    Served::Fetch(FetchPlan::Direct(direct)) => {
                        plan.why = direct.why;
                        (key, whole) = (direct.key, direct.whole);
                        break;
                    }
                    Served::Fetch(FetchPlan::Coalesced(next)) => {
                        let is_another = plan.spec.selection != next.spec.selection;
                        plan = next;
                        if only_for_another && !is_another {
                            break;
                        }
                    }
                }
                entered = self.clock.now();
            }
            let why = FetchReason {
                forward,
                detail: plan.why.detail.or(Some(Detail::Uncollapsed)),
                ..plan.why
            };
            // Only a leader shares it, and releases it before its verdict.
            let Some(incoming) = Arc::into_inner(incoming) else {
                return Err(NoResponse::new(Failure::Abandoned, forward));
            };
            let plan = Box::new(DirectFetch {
                why,
                key,
                whole,
                may_have_copy: true,
            });
            self.ask_directly(plan, incoming).await
        })
    }

    /// Repeats the lookup of [`Engine::serve`] for a request that has waited.
    pub(crate) fn look_up_again(&self, incoming: &ForwardedRequest) -> Served {
        self.serve(&incoming.as_request(), self.clock.now())
    }

    /// Leads a coalesced fetch.
    async fn lead_fetch(
        self: &Arc<Self>,
        leader: Leader,
        plan: &CoalescedFetch,
        incoming: &Arc<ForwardedRequest>,
        now: Time,
    ) -> CoalescedStep {
        let seat = leader.audience().join(incoming.network);
        // Before the lookup, so that no copy stored after it is missed.
        poll_fn(|cx| Poll::Ready(seat.poll_gives_way(cx).is_ready())).await;
        let mut has_copy = plan.spec.stored.is_some() || !self.cache.has_no_tiers();
        let view = incoming.origin_view(self.rules(plan.why.route));
        if let Some(stored) = self.cache.response(&plan.spec.key, &view, now) {
            // Another fetch may have ended since the lookup.
            if is_newer(&stored, &plan.spec)
                && let Served::Now(response) | Served::NowAndRefresh(response, _) =
                    self.look_up_again(incoming)
            {
                leader.publish(FetchOutcome::LookAgain);
                return CoalescedStep::answer(response);
            }
            has_copy = true;
        }
        let mut verdict = self.start_fetch(leader, plan, incoming);
        let mut verdict = poll_fn(|cx| match Pin::new(&mut verdict).poll(cx) {
            Poll::Ready(verdict) => Poll::Ready(Some(verdict)),
            Poll::Pending => seat.poll_gives_way(cx).map(|()| None),
        });
        // Without a copy there is nothing to wait for but the verdict, and no timer is set: that costs a write to wake
        // the runtime. A copy that is stored meanwhile wakes this request.
        let mut is_first = true;
        let early = poll_fn(|cx| match Pin::new(&mut verdict).poll(cx) {
            Poll::Ready(verdict) => Poll::Ready(Some(verdict)),
            Poll::Pending if has_copy || !is_first && self.has_copy_for(plan, incoming) => {
                Poll::Ready(None)
            }
            Poll::Pending => {
                is_first = false;
                Poll::Pending
            }
        });
        let waited = if let Some(verdict) = early.await {
            WaitOutcome::Done(verdict)
        } else {
            let copy = || self.copy_for(plan, incoming, None, Detail::OriginSlow);
            Box::pin(self.or_stale(verdict, (Instant::now(), None), copy)).await
        };
        match waited {
            WaitOutcome::Stale(response) => {
                // The fetch continues as if the client still waited: it refreshes the copy.
                seat.keep();
                CoalescedStep::answer(response)
            }
            WaitOutcome::Done(Some(Ok(verdict))) => self.answer_leader(plan, incoming, verdict),
            WaitOutcome::Done(None) => self.without_waiting(plan, incoming),
            WaitOutcome::Done(Some(Err(_))) | WaitOutcome::TooLong => {
                CoalescedStep::failed(Failure::Abandoned, plan)
            }
        }
    }

    /// Answers a request that may neither wait nor be sent, because its address has too many
    /// waiters: with a stale copy or an error.
    fn without_waiting(&self, plan: &CoalescedFetch, incoming: &ForwardedRequest) -> CoalescedStep {
        let failure = Failure::TooManyWait;
        match self.copy_for(plan, incoming, None, failure.detail()) {
            Some(copy) => CoalescedStep::answer(copy),
            None => CoalescedStep::failed(failure, plan),
        }
    }

    /// The next step of a request that has waited for a fetch.
    fn after_wait(
        &self,
        waited: WaitOutcome<Option<FetchOutcome>>,
        entered: Time,
        plan: &CoalescedFetch,
        incoming: &ForwardedRequest,
        history: &mut WaitHistory,
    ) -> CoalescedStep {
        let outcome = match waited {
            WaitOutcome::Done(Some(outcome)) => outcome,
            WaitOutcome::Done(None) => return self.without_waiting(plan, incoming),
            WaitOutcome::Stale(response) => return CoalescedStep::answer(response),
            WaitOutcome::TooLong if self.settings.clients == Clients::Program => {
                return CoalescedStep::FetchDirectly(None);
            }
            WaitOutcome::TooLong => {
                return CoalescedStep::failed(Failure::Origin(OriginError::Timeout), plan);
            }
        };
        match outcome {
            // Its freshness is judged at its arrival, or when this request began to wait: being
            // woken a moment later does not make it older.
            FetchOutcome::Answer(answer, since) => {
                self.share(&answer, since.max(entered), plan, incoming)
            }
            FetchOutcome::LookAgain => CoalescedStep::LookAgain,
            FetchOutcome::Released => CoalescedStep::LookForAnother,
            // A refusal of one client's request must not end coalescing: one waiter fetches for
            // all, once.
            FetchOutcome::Refused if !mem::replace(&mut history.refused, true) => {
                CoalescedStep::LookAgain
            }
            FetchOutcome::Refused => {
                let copy = self.copy_for(plan, incoming, None, Detail::Refused);
                copy.map_or(CoalescedStep::FetchDirectly(None), CoalescedStep::answer)
            }
            FetchOutcome::Failed(failure, stale) => {
                let why = failure.detail();
                if let Some(copy) = self.copy_for(plan, incoming, stale.as_ref(), why) {
                    CoalescedStep::answer(copy)
                } else if !mem::replace(&mut history.failed, true) {
                    CoalescedStep::LookAgain
                } else if failure.may_be_due_to_request() {
                    // The cause may be the leader's request rather than this one's.
                    CoalescedStep::FetchDirectly(None)
                } else {
                    CoalescedStep::failed(failure, plan)
                }
            }
        }
    }

    /// Revalidates a stored response in the background, unless a fetch of it is already under way.
    pub fn refresh(self: &Arc<Self>, refresh: Box<Refresh>, mut incoming: ForwardedRequest) {
        let Refresh { route, facts, spec } = *refresh;
        self.reduce_to_key(route, &mut incoming);
        let refreshing = self.urgency_of_refresh(&spec);
        let by = refreshing.is_none().then_some(incoming.network);
        let urgency = refreshing.unwrap_or(Urgency::Client);
        if let Role::Lead(leader) = self.enter(&spec, by) {
            if let Some(network) = by {
                leader.audience().join(network).keep();
            }
            let fetch = Fetch {
                route,
                facts: facts.as_fill(),
                stored: spec.stored,
                urgency,
                incoming: Arc::new(incoming),
                reply: None,
                withheld: false,
            };
            tokio::spawn(poll_clock::task(Box::pin(
                Arc::clone(self).lead(leader, fetch),
            )));
        }
    }

    /// Counts a use of the stale response, and returns whether the caller is to refresh it.
    pub(crate) fn claim_refresh(&self, hit: &Hit, now: Time) -> bool {
        let pause = self.settings.refresh_pause;
        self.cache.memory.claim_refresh(hit, now, pause)
    }

    /// The urgency of a refresh, if a stale response is stored.
    pub(crate) fn urgency_of_refresh(&self, spec: &FetchSpec) -> Option<Urgency> {
        let now = self.clock.now();
        spec.stored.as_ref().map(|hit| Urgency::Refresh {
            demand: Arc::clone(self.cache.memory.demand(hit)),
            left: Duration::from_millis(in_use_until(&hit.lifetime()).since(now)),
        })
    }

    /// Reduces the target to the part that the cache key contains: a response stored under a key
    /// must not depend on anything else.
    pub(crate) fn reduce_to_key(&self, route: usize, incoming: &mut ForwardedRequest) {
        if let Some(target) = kept_target(&incoming.head.target, &self.rules(route).key) {
            incoming.head.target = target.into();
        }
    }

    pub(crate) fn enter(&self, spec: &FetchSpec, by: Option<Network>) -> Role {
        self.cache.enter(&spec.key, &spec.selection, by)
    }

    /// Fetches in a task of its own, so that the fetch survives its client.
    fn start_fetch(
        self: &Arc<Self>,
        leader: Leader,
        plan: &CoalescedFetch,
        incoming: &Arc<ForwardedRequest>,
    ) -> oneshot::Receiver<Verdict> {
        let (reply, verdict) = oneshot::channel();
        let fetch = Fetch {
            route: plan.why.route,
            facts: plan.why.facts.as_fill(),
            stored: plan.spec.stored.clone(),
            urgency: Urgency::Client,
            incoming: Arc::clone(incoming),
            reply: Some(reply),
            withheld: false,
        };
        tokio::spawn(poll_clock::task(Box::pin(
            Arc::clone(self).lead(leader, fetch),
        )));
        verdict
    }

    /// The next step of the request that has led a fetch.
    fn answer_leader(
        &self,
        plan: &CoalescedFetch,
        incoming: &ForwardedRequest,
        verdict: Verdict,
    ) -> CoalescedStep {
        let facts = plan.why.facts;
        let of_key = (plan.why.route, &plan.spec.key[..]);
        let is_for_it = |fields| {
            // It was fetched for this request.
            let fetched = (fields, Time::from_millis(u64::MAX));
            self.is_for_url(&incoming.as_request(), of_key, fetched)
        };
        if !verdict.fields().is_none_or(is_for_it) {
            return CoalescedStep::FetchDirectly(None);
        }
        let mut cache_status = CacheStatus {
            fwd: Some(plan.why.forward),
            detail: plan.why.detail,
            ..CacheStatus::default()
        };
        CoalescedStep::answer(match verdict {
            Verdict::Storable(copy) => {
                let now = self.clock.now();
                copy.respond(incoming.head.fields.fields(), &facts, now, cache_status)
            }
            Verdict::Stored(whole) => {
                let now = self.clock.now();
                whole.respond(incoming.head.fields.fields(), &facts, now, cache_status)
            }
            Verdict::Confirmed(Confirmation {
                for_one, is_kept, ..
            }) => {
                cache_status.fwd_status = Some(304);
                cache_status.stored = is_kept;
                self.confirmed(&for_one, plan, incoming, cache_status)
            }
            Verdict::ConfirmedForOne(hit, why) => {
                cache_status.fwd_status = Some(304);
                cache_status.detail = Some(why);
                self.confirmed(&hit, plan, incoming, cache_status)
            }
            Verdict::Found(hit, tier) => self.found(hit, tier, incoming, &facts),
            Verdict::Private(origin, why) | Verdict::Refused(origin, why) => {
                cache_status.detail = Some(why);
                passed_on(origin, &facts, cache_status, Outcome::Miss)
            }
            Verdict::Failed(FetchFailure {
                failure,
                stale,
                page,
            }) => {
                let why = failure.detail();
                if let Some(copy) = self.copy_for(plan, incoming, stale.as_ref(), why) {
                    return CoalescedStep::answer(copy);
                }
                match page {
                    ErrorPage::Private(page, why) => {
                        cache_status.detail = Some(why);
                        passed_on(page, &facts, cache_status, Outcome::Miss)
                    }
                    ErrorPage::Doubtful => {
                        return CoalescedStep::FetchDirectly(Some(Detail::Withheld));
                    }
                    ErrorPage::Absent => return CoalescedStep::failed(failure, plan),
                }
            }
            Verdict::FetchDirectly(why) => return CoalescedStep::FetchDirectly(Some(why)),
            Verdict::Left => return CoalescedStep::failed(Failure::Abandoned, plan),
        })
    }

    fn confirmed(
        &self,
        hit: &Hit,
        plan: &CoalescedFetch,
        incoming: &ForwardedRequest,
        mut cache_status: CacheStatus,
    ) -> Response {
        let FetchReason { route, facts, .. } = plan.why;
        let (request, now) = (incoming.as_request(), self.clock.now());
        cache_status.ttl = Some(usable_for(&hit.lifetime(), now));
        let outcome = Outcome::Revalidated;
        let hit = hit.clone();
        // Other encodings exist only if a request has asked for them.
        if hit.known_encoded().is_some() {
            let look = LookupContext {
                route,
                key: &plan.spec.key,
                request: &request,
                view: &request.origin_view(self.rules(route)),
                facts: &facts,
            };
            let inputs = CacheStatusInputs {
                cache_status,
                outcome,
            };
            return self.answer_encoded(&look, hit, now, inputs);
        }
        Reusable::stored(hit).respond(request.fields, &facts, now, cache_status, outcome)
    }

    /// The response from a tier's entry.
    fn found(
        &self,
        hit: Hit,
        tier: Detail,
        incoming: &ForwardedRequest,
        facts: &RequestFacts,
    ) -> Response {
        answer_from(tier, hit, &incoming.as_request(), facts, self.clock.now())
    }

    /// Fits the shared answer to a waiter's request. If it is for other values of a field it varies
    /// on, or was stored meanwhile, the request looks up again; if it must not, or can no longer, be
    /// served to this request, that is sent directly.
    fn share(
        &self,
        answer: &SharedAnswer,
        at: Time,
        plan: &CoalescedFetch,
        incoming: &ForwardedRequest,
    ) -> CoalescedStep {
        let facts = plan.why.facts;
        let (lifetime, vary, selected) = match answer {
            SharedAnswer::Filling(filling) => {
                (filling.lifetime, &filling.vary, &filling.selection[..])
            }
            SharedAnswer::Confirmed(hit) | SharedAnswer::Found(hit, _) => {
                (hit.lifetime(), hit.vary(), hit.selection())
            }
        };
        let fields = incoming.head.fields.fields();
        let view = incoming.origin_view(&self.routes[plan.why.route].rules);
        let mut selection = Selection::new();
        vary::select(vary, &view, &mut selection);
        if !vary::answers(vary, selected, &selection, answer.fields()) {
            return CoalescedStep::LookAgain;
        }
        let of_key = (plan.why.route, &plan.spec.key[..]);
        let is_for_it = self.is_for_url(
            &incoming.as_request(),
            of_key,
            (answer.fields(), answer.began()),
        );
        // A response that no request may reuse without revalidation is not for the waiters either.
        if !is_for_it || !matches!(reuse(&lifetime, &facts, at), Reuse::Fresh | Reuse::Stale) {
            return CoalescedStep::FetchDirectly(None);
        }
        let now = self.clock.now();
        let mut cache_status = CacheStatus {
            fwd: Some(plan.why.forward),
            collapsed: true,
            ..CacheStatus::default()
        };
        let response = match answer {
            SharedAnswer::Confirmed(hit) => {
                cache_status.fwd_status = Some(304);
                self.confirmed(hit, plan, incoming, cache_status)
            }
            SharedAnswer::Found(hit, tier) => self.found(hit.clone(), *tier, incoming, &facts),
            SharedAnswer::Filling(filling) => {
                let Some(reader) = filling.fill.reader() else {
                    return if filling.fill.is_whole() {
                        CoalescedStep::LookAgain
                    } else {
                        CoalescedStep::FetchDirectly(None)
                    };
                };
                cache_status.fwd_status = Some(filling.status);
                let reusable = Reusable::filling(filling, reader);
                reusable.respond(fields, &facts, now, cache_status, Outcome::Collapsed)
            }
        };
        CoalescedStep::answer(response)
    }

    /// The response from a copy that is usable because the origin failed: `found`, the one to be
    /// revalidated, or the one in memory by now.
    fn copy_for(
        &self,
        plan: &CoalescedFetch,
        incoming: &ForwardedRequest,
        found: Option<&Hit>,
        why: Detail,
    ) -> Option<Response> {
        let query = query_for(plan, incoming, found);
        self.stale_copy(&query, why, self.clock.now())
    }

    fn has_copy_for(&self, plan: &CoalescedFetch, incoming: &ForwardedRequest) -> bool {
        let query = query_for(plan, incoming, None);
        self.newest_copy(&query, self.clock.now()).is_some()
    }
}

fn query_for<'a>(
    plan: &'a CoalescedFetch,
    incoming: &'a ForwardedRequest,
    found: Option<&'a Hit>,
) -> StaleQuery<'a> {
    StaleQuery {
        route: plan.why.route,
        facts: &plan.why.facts,
        key: &plan.spec.key,
        incoming,
        known: [found, plan.spec.stored.as_ref()],
    }
}

/// Checks whether a response in memory is newer than the one known when the fetch was planned.
fn is_newer(stored: &Hit, spec: &FetchSpec) -> bool {
    let known = spec.stored.as_ref();
    known.is_none_or(|known| known.began() < stored.began())
}

/// The next step of a coalesced request.
enum CoalescedStep {
    Answer(Box<Result<Response, NoResponse>>),
    /// Looks up again, and coalesces with the others.
    LookAgain,
    /// Looks up again, but only to join another fetch: the response was not shareable, possibly
    /// only for the leader's values of the fields it varies on.
    LookForAnother,
    /// Sends the request directly; with the reason where a fetch that it led has given one.
    FetchDirectly(Option<Detail>),
}

impl CoalescedStep {
    fn answer(response: Response) -> Self {
        Self::Answer(Box::new(Ok(response)))
    }

    fn failed(cause: Failure, plan: &CoalescedFetch) -> Self {
        let failed = NoResponse::new(cause, plan.why.forward);
        Self::Answer(Box::new(Err(failed)))
    }
}

/// The failures that a waiter has already met.
#[derive(Default)]
struct WaitHistory {
    refused: bool,
    failed: bool,
}

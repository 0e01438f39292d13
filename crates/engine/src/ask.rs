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
    CacheStatus, Detail, Network, OriginView, RequestFacts, Reuse, Time, in_use_until, reuse,
};
use microcache_store::Hit;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::cache::flight::{Failure, Leader, Progress, Role, Shareable};
use crate::encoded::Said;
use crate::failure::NoResponse;
use crate::lead::Fetch;
use crate::message::{Incoming, Response};
use crate::origin::{OriginError, Urgency};
use crate::outcome::Outcome;
use crate::respond::{Reusable, passed_on, usable_for};
use crate::serve::{
    Alone, Clients, Engine, Look, Question, Refresh, Served, Together, Wanted, WhyAsked,
    answer_from,
};
use crate::stale::{Waited, Wish};
use crate::verdict::{Confirmed, Failed, Verdict};

/// Most lookups a waiter repeats because the fetch it joined brought another variant.
const MAX_ROUNDS: usize = 4;

impl Engine {
    /// Answers a request that [`Engine::serve`] could not.
    pub async fn ask(
        self: Arc<Self>,
        question: Question,
        mut incoming: Incoming,
    ) -> Result<Response, NoResponse> {
        match question {
            Question::Alone(question) => {
                if question.key.is_some() {
                    self.tell_what_is_keyed(question.why.route, &mut incoming);
                }
                self.alone_or_stale(question, incoming).await
            }
            Question::Together(question) => {
                self.tell_what_is_keyed(question.why.route, &mut incoming);
                self.ask_together(question, incoming).await
            }
        }
    }

    /// Leads or joins a coalesced fetch. If its result does not fit this request, the request is
    /// sent directly.
    async fn ask_together(
        self: Arc<Self>,
        mut question: Together,
        incoming: Incoming,
    ) -> Result<Response, NoResponse> {
        let forward = question.why.forward;
        let mut key = Some(Arc::clone(&question.wanted.key));
        let incoming = Arc::new(incoming);
        let deadline = Instant::now() + Duration::from_millis(self.settings.wait_timeout);
        let mut before = Before::default();
        let mut whole = false;
        for _ in 0..MAX_ROUNDS {
            let entered = self.clock.now();
            let told = match self.enter(&question.wanted, Some(incoming.network)) {
                Role::Full if self.settings.clients == Clients::Program => break,
                Role::Full => return self.give_way(&question, &incoming),
                Role::Lead(leader) => {
                    let why = match self.ask_for_all(leader, &question, &incoming).await {
                        Led::Answer(answer) => return *answer,
                        Led::Alone(why) => why,
                    };
                    whole = why == Detail::Withheld;
                    question.why.detail = Some(why);
                    break;
                }
                Role::Join(ticket) => {
                    let times = (ticket.began(), Some(deadline));
                    let copy = || self.copy_for(&question, &incoming, None, Detail::OriginSlow);
                    self.or_stale(ticket, times, copy).await
                }
            };
            let next = self.next(told, entered, &question, &incoming, &mut before);
            let only_for_another = matches!(next, Next::LookForAnother);
            match next {
                Next::Answer(answer) => return *answer,
                Next::Alone => break,
                Next::LookAgain | Next::LookForAnother => {}
            }
            match self.look_once_more(&incoming) {
                // The first request after the refresh pause refreshes it.
                Served::Now(response) | Served::NowAndRefresh(response, _) => return Ok(response),
                Served::Failed(failed) => return Err(failed),
                Served::Ask(Question::Alone(alone)) => {
                    question.why = alone.why;
                    (key, whole) = (alone.key, alone.whole);
                    break;
                }
                Served::Ask(Question::Together(next)) => {
                    let is_another = question.wanted.selection != next.wanted.selection;
                    question = next;
                    if only_for_another && !is_another {
                        break;
                    }
                }
            }
        }
        let why = WhyAsked {
            forward,
            detail: question.why.detail.or(Some(Detail::Uncollapsed)),
            ..question.why
        };
        let incoming =
            Arc::into_inner(incoming).expect("only a leader shares it, and leads to the end");
        // Boxed: a rare branch must not enlarge the future of every miss.
        Box::pin(self.alone_or_stale(Alone { why, key, whole }, incoming)).await
    }

    /// Repeats the lookup of [`Engine::serve`] for a request that has waited.
    pub(crate) fn look_once_more(&self, incoming: &Incoming) -> Served {
        self.serve(&incoming.as_request(), self.clock.now())
    }

    /// Leads a coalesced fetch.
    async fn ask_for_all(
        self: &Arc<Self>,
        leader: Leader,
        question: &Together,
        incoming: &Arc<Incoming>,
    ) -> Led {
        let view = incoming.origin_view(self.rules(question.why.route));
        // Another fetch may have ended since the lookup.
        if self.has_newer(&question.wanted, &view)
            && let Served::Now(response) | Served::NowAndRefresh(response, _) =
                self.look_once_more(incoming)
        {
            leader.tell(Progress::LookAgain);
            return Led::answer(Ok(response));
        }
        let seat = leader.audience().join(incoming.network);
        let mut verdict = self.start_fetch(leader, question, incoming);
        let verdict = poll_fn(|cx| match Pin::new(&mut verdict).poll(cx) {
            Poll::Ready(verdict) => Poll::Ready(Some(verdict)),
            Poll::Pending => seat.poll_gives_way(cx).map(|()| None),
        });
        let copy = || self.copy_for(question, incoming, None, Detail::OriginSlow);
        match self.or_stale(verdict, (Instant::now(), None), copy).await {
            Waited::Stale(response) => {
                // The copy is to be refreshed nevertheless.
                seat.keep();
                Led::answer(Ok(response))
            }
            Waited::Done(Some(Ok(verdict))) => self.answer_leader(question, incoming, verdict),
            Waited::Done(None) => Led::answer(self.give_way(question, incoming)),
            Waited::Done(Some(Err(_))) | Waited::TooLong => {
                let forward = question.why.forward;
                Led::answer(Err(NoResponse::new(Failure::Abandoned, forward)))
            }
        }
    }

    /// Answers a request that may neither wait nor be sent, because its address has too many
    /// waiters: with a stale copy or an error.
    fn give_way(&self, question: &Together, incoming: &Incoming) -> Result<Response, NoResponse> {
        let failure = Failure::TooManyWait;
        let copy = self.copy_for(question, incoming, None, failure.detail());
        copy.ok_or_else(|| NoResponse::new(failure, question.why.forward))
    }

    /// The next step of a waiter, by the progress of the fetch.
    fn next(
        &self,
        told: Waited<Progress>,
        entered: Time,
        question: &Together,
        incoming: &Incoming,
        before: &mut Before,
    ) -> Next {
        let (response, otherwise) = match told {
            Waited::Stale(response) => (Some(response), Next::Alone),
            Waited::Done(Progress::Answer(answer, since)) => {
                // Its freshness is judged at its arrival, or when this request began to wait: being
                // woken a moment later does not make it older.
                match self.share(&answer, since.max(entered), question, incoming) {
                    Joined::Response(response) => return Next::answer(*response),
                    Joined::NotForThisRequest => return Next::Alone,
                    Joined::LookAgain => return Next::LookAgain,
                }
            }
            Waited::Done(Progress::LookAgain) => return Next::LookAgain,
            Waited::Done(Progress::GivesWay) => {
                return Next::Answer(Box::new(self.give_way(question, incoming)));
            }
            Waited::Done(Progress::Released) => return Next::LookForAnother,
            // A refusal of one client's request must not end coalescing: one waiter fetches for
            // all, once.
            Waited::Done(Progress::Refused) if !mem::replace(&mut before.refused, true) => {
                return Next::LookAgain;
            }
            Waited::Done(Progress::Refused) => {
                let copy = self.copy_for(question, incoming, None, Detail::Refused);
                (copy, Next::Alone)
            }
            Waited::Done(Progress::Failed(failure, stale)) => {
                let copy = self.copy_for(question, incoming, stale.as_ref(), failure.detail());
                let otherwise = if !mem::replace(&mut before.failed, true) {
                    Next::LookAgain
                } else if failure.may_be_the_askers() {
                    // The cause may be the leader's request rather than this one's.
                    Next::Alone
                } else {
                    Next::failed(failure, question)
                };
                (copy, otherwise)
            }
            Waited::Done(Progress::Waiting) | Waited::TooLong
                if self.settings.clients == Clients::Program =>
            {
                return Next::Alone;
            }
            Waited::Done(Progress::Waiting) | Waited::TooLong => {
                let timeout = Failure::Origin(OriginError::Timeout);
                return Next::failed(timeout, question);
            }
        };
        response.map_or(otherwise, Next::answer)
    }

    /// Revalidates a stored response in the background, unless a fetch of it is already under way.
    pub fn refresh(self: &Arc<Self>, refresh: Refresh, mut incoming: Incoming) {
        let Refresh {
            route,
            facts,
            wanted,
        } = refresh;
        self.tell_what_is_keyed(route, &mut incoming);
        let now = self.clock.now();
        let refreshing = wanted.stored.as_ref().map(|hit| Urgency::Refresh {
            demand: Arc::clone(hit.demand()),
            left: Duration::from_millis(in_use_until(&hit.lifetime).since(now)),
        });
        let by = refreshing.is_none().then_some(incoming.network);
        let urgency = refreshing.unwrap_or(Urgency::Client);
        if let Role::Lead(leader) = self.enter(&wanted, by) {
            if let Some(network) = by {
                leader.audience().join(network).keep();
            }
            let fetch = Fetch {
                route,
                facts: facts.as_fill(),
                stored: wanted.stored,
                urgency,
                incoming: Arc::new(incoming),
                asker: None,
                withheld: false,
            };
            self.spawn_lead(leader, fetch);
        }
    }

    /// Reduces the target to the part that the cache key contains: a response stored under a key
    /// must not depend on anything else.
    pub(crate) fn tell_what_is_keyed(&self, route: usize, incoming: &mut Incoming) {
        if let Some(target) = kept_target(&incoming.target, &self.rules(route).key) {
            incoming.target = target.into();
        }
    }

    fn enter(&self, wanted: &Wanted, by: Option<Network>) -> Role {
        self.cache.enter(&wanted.key, &wanted.selection, by)
    }

    /// Checks whether memory holds a newer response than the one known when the fetch was planned.
    fn has_newer(&self, wanted: &Wanted, view: &OriginView<'_>) -> bool {
        let stored = self.cache.response(&wanted.key, view);
        let known = wanted.stored.as_ref().map(|hit| hit.began);
        stored.is_some_and(|hit| known.is_none_or(|began| began < hit.began))
    }

    /// Fetches in a task of its own, so that the fetch survives its client.
    fn start_fetch(
        self: &Arc<Self>,
        leader: Leader,
        question: &Together,
        incoming: &Arc<Incoming>,
    ) -> oneshot::Receiver<Verdict> {
        let (asker, verdict) = oneshot::channel();
        let fetch = Fetch {
            route: question.why.route,
            facts: question.why.facts.as_fill(),
            stored: question.wanted.stored.clone(),
            urgency: Urgency::Client,
            incoming: Arc::clone(incoming),
            asker: Some(asker),
            withheld: false,
        };
        self.spawn_lead(leader, fetch);
        verdict
    }

    /// Spawns a fetch. It is large, as it contains every future it may wait for; boxed, it is not
    /// moved into the runtime and out of it.
    fn spawn_lead(self: &Arc<Self>, leader: Leader, fetch: Fetch) {
        tokio::spawn(Box::pin(Arc::clone(self).lead(leader, fetch)));
    }

    /// The leader's response.
    fn answer_leader(&self, question: &Together, incoming: &Incoming, verdict: Verdict) -> Led {
        let facts = question.why.facts;
        let mut cache_status = CacheStatus {
            fwd: Some(question.why.forward),
            detail: question.why.detail,
            ..CacheStatus::default()
        };
        Led::answer(Ok(match verdict {
            Verdict::Storable(copy) => {
                let now = self.clock.now();
                copy.respond(incoming.fields.fields(), &facts, now, cache_status)
            }
            Verdict::Confirmed(Confirmed {
                for_one, is_kept, ..
            }) => {
                cache_status.fwd_status = Some(304);
                cache_status.stored = is_kept;
                self.confirmed(&for_one, question, incoming, cache_status)
            }
            Verdict::ConfirmedForOne(hit, why) => {
                cache_status.fwd_status = Some(304);
                cache_status.detail = Some(why);
                self.confirmed(&hit, question, incoming, cache_status)
            }
            Verdict::Found(hit, tier) => self.found(hit, tier, incoming, &facts),
            Verdict::Private(origin, why) | Verdict::Refused(origin, why) => {
                cache_status.detail = Some(why);
                passed_on(origin, &facts, cache_status, Outcome::Miss)
            }
            Verdict::Failed(Failed {
                failure,
                stale,
                page,
                ask_whole,
            }) => {
                let why = failure.detail();
                if let Some(copy) = self.copy_for(question, incoming, stale.as_ref(), why) {
                    return Led::answer(Ok(copy));
                }
                if ask_whole {
                    return Led::Alone(Detail::Withheld);
                }
                let Some((page, why)) = page else {
                    let forward = question.why.forward;
                    return Led::answer(Err(NoResponse::new(failure, forward)));
                };
                cache_status.detail = Some(why);
                passed_on(page, &facts, cache_status, Outcome::Miss)
            }
            Verdict::AskWhole => return Led::Alone(Detail::Withheld),
            Verdict::Left => {
                let forward = question.why.forward;
                return Led::answer(Err(NoResponse::new(Failure::Abandoned, forward)));
            }
            Verdict::TooLarge => return Led::Alone(Detail::TooLarge),
        }))
    }

    fn confirmed(
        &self,
        hit: &Hit,
        question: &Together,
        incoming: &Incoming,
        mut cache_status: CacheStatus,
    ) -> Response {
        let WhyAsked { route, facts, .. } = question.why;
        let (request, now) = (incoming.as_request(), self.clock.now());
        cache_status.ttl = Some(usable_for(&hit.lifetime, now));
        let outcome = Outcome::Revalidated;
        let hit = hit.clone();
        // Other encodings exist only if a request has asked for them.
        if hit.known_encoded().is_some() {
            let look = Look {
                route,
                key: &question.wanted.key,
                request: &request,
                view: &request.origin_view(self.rules(route)),
                facts: &facts,
            };
            let said = Said {
                cache_status,
                outcome,
            };
            return self.answer_encoded(&look, hit, now, said);
        }
        Reusable::stored(hit).respond(request.fields, &facts, now, cache_status, outcome)
    }

    /// The response from a tier's entry.
    fn found(&self, hit: Hit, tier: Detail, incoming: &Incoming, facts: &RequestFacts) -> Response {
        answer_from(tier, hit, &incoming.as_request(), facts, self.clock.now())
    }

    /// Fits the shared answer to a waiter's request.
    fn share(
        &self,
        answer: &Shareable,
        at: Time,
        question: &Together,
        incoming: &Incoming,
    ) -> Joined {
        let facts = question.why.facts;
        let (lifetime, vary, selected) = match answer {
            Shareable::Filling(filling) => {
                (&filling.lifetime, &filling.vary, &filling.selection[..])
            }
            Shareable::Confirmed(hit) | Shareable::Found(hit, _) => {
                (&hit.lifetime, hit.vary(), hit.selection())
            }
        };
        let fields = incoming.fields.fields();
        let view = incoming.origin_view(&self.routes[question.why.route].rules);
        let mut selection = Selection::new();
        vary::select(vary, &view, &mut selection);
        if !vary::answers(vary, selected, &selection, answer.fields()) {
            return Joined::LookAgain;
        }
        // A response that no request may reuse without revalidation is not for the waiters either.
        if !matches!(reuse(lifetime, &facts, at), Reuse::Fresh | Reuse::Stale) {
            return Joined::NotForThisRequest;
        }
        let now = self.clock.now();
        let mut cache_status = CacheStatus {
            fwd: Some(question.why.forward),
            collapsed: true,
            ..CacheStatus::default()
        };
        let response = match answer {
            Shareable::Confirmed(hit) => {
                cache_status.fwd_status = Some(304);
                self.confirmed(hit, question, incoming, cache_status)
            }
            Shareable::Found(hit, tier) => self.found(hit.clone(), *tier, incoming, &facts),
            Shareable::Filling(filling) => {
                let Some(reader) = filling.fill.reader() else {
                    return if filling.fill.is_whole() {
                        Joined::LookAgain
                    } else {
                        Joined::NotForThisRequest
                    };
                };
                cache_status.fwd_status = Some(filling.status);
                let reusable = Reusable::filling(filling, reader);
                reusable.respond(fields, &facts, now, cache_status, Outcome::Collapsed)
            }
        };
        Joined::Response(Box::new(response))
    }

    /// The response from a copy that is usable because the origin failed: `found`, the one to be
    /// revalidated, or the one in memory by now.
    fn copy_for(
        &self,
        question: &Together,
        incoming: &Incoming,
        found: Option<&Hit>,
        why: Detail,
    ) -> Option<Response> {
        let wish = Wish {
            route: question.why.route,
            facts: &question.why.facts,
            key: &question.wanted.key,
            incoming,
            known: [found, question.wanted.stored.as_ref()],
        };
        self.stale_copy(&wish, why)
    }
}

/// The outcome of leading a fetch.
enum Led {
    Answer(Box<Result<Response, NoResponse>>),
    /// The request is to be sent directly: it wants a range of an oversized response, or the origin
    /// has not seen all of its fields.
    Alone(Detail),
}

impl Led {
    fn answer(answer: Result<Response, NoResponse>) -> Self {
        Self::Answer(Box::new(answer))
    }
}

/// The failures that a waiter has already met.
#[derive(Default)]
struct Before {
    refused: bool,
    failed: bool,
}

/// The next step of a waiter.
enum Next {
    Answer(Box<Result<Response, NoResponse>>),
    /// Looks up again, and coalesces with the others.
    LookAgain,
    /// Looks up again, but only to join another fetch: the response was not shareable, possibly
    /// only for the leader's values of the fields it varies on.
    LookForAnother,
    Alone,
}

impl Next {
    fn answer(response: Response) -> Self {
        Self::Answer(Box::new(Ok(response)))
    }

    fn failed(cause: Failure, question: &Together) -> Self {
        let failed = NoResponse::new(cause, question.why.forward);
        Self::Answer(Box::new(Err(failed)))
    }
}

enum Joined {
    Response(Box<Response>),
    /// The response is for other values of a field it varies on, or it was stored meanwhile and is
    /// found by a lookup.
    LookAgain,
    /// The response must not, or can no longer, be served to this request.
    NotForThisRequest,
}

//! One fetch for everyone who wants the same: asks, judges the answer, and tells.

use std::sync::Arc;

use http::Method;
use microcache_policy::{
    Fields, FieldsBuf, Handling, Lifetime, NotStorable, OriginView, RequestFacts, Rules, Storable,
    Time, add_validators, is_conditional_field, is_origin_failure, is_refusal, on_error, refreshed,
    same_representation, vary,
};
use microcache_store::{Claimed, Hit, Memory};
use tokio::sync::oneshot;

use crate::behind::Behind;
use crate::body::Body;
use crate::flight::{Answer, Failure, Leader};
use crate::keep::{First, complete, judge};
use crate::message::Incoming;
use crate::origin::{OriginError, OriginRequest, OriginResponse, Urgency};
use crate::serve::{Engine, Route, TOO_LARGE};

/// What `Cache-Status` says where the origin refused the request of one client.
pub(crate) const REFUSED: &str = "refused";

/// What the one who leads a fetch gets out of it.
pub(crate) enum Own {
    /// A storable response.
    First(First),
    /// The stored response, confirmed.
    Confirmed(Hit),
    /// The same, and in the same breath that it is not to be kept: why not.
    LastTime(Hit, &'static str),
    /// A stored response that was found behind memory, in the tier of this name.
    Found(Hit, &'static str),
    /// A response that is nobody else's.
    Private(OriginResponse, &'static str),
    /// The whole is too large to be kept, and the client wants a part: it asks for that.
    TooLarge,
    /// No answer; a copy that may be used nevertheless; the origin's error page, if it sent one, and
    /// why that is not kept.
    Failed(Failure, Option<Hit>, Option<(OriginResponse, &'static str)>),
}

/// One collapsed fetch.
pub(crate) struct Fetch {
    pub(crate) route: usize,
    pub(crate) stored: Option<Hit>,
    pub(crate) urgency: Urgency,
    pub(crate) incoming: Arc<Incoming>,
}

/// What the origin has answered to a fetch, and when.
struct Brought {
    response: OriginResponse,
    claimed: Option<Claimed>,
    request_time: Time,
    now: Time,
}

/// The request that a fetch for everyone is, whatever the client's was.
fn facts_of_fill<'a>(route: &Route, fetch: &'a Fetch) -> RequestFacts<'a> {
    let fields = Fields::new(&fetch.incoming.fields);
    RequestFacts::read(&Method::GET, fields, false, &route.rules)
}

impl Engine {
    /// Fetches for everyone: looks behind memory, asks, judges the answer, and tells.
    pub(crate) async fn lead(
        self: Arc<Self>,
        leader: Leader,
        mut fetch: Fetch,
        own: oneshot::Sender<Own>,
    ) {
        let claimed = match self.look_behind(&leader, &mut fetch).await {
            Behind::Ask(claimed) => claimed,
            Behind::Found(hit, tier) => {
                leader.answer(Answer::Found(hit.clone(), tier), self.clock.now());
                let _ = own.send(Own::Found(hit, tier));
                return;
            }
        };
        let route = &self.routes[fetch.route];
        let request_time = self.clock.now();
        let mut response = match self.fetch_once(route, &fetch).await {
            Ok(response) => response,
            Err(error) => {
                let failure = Failure::Origin(error);
                return self.fail(leader, own, fetch, failure, None).await;
            }
        };
        let now = self.clock.now();
        complete(&mut response.fields, now);
        let brought = Brought {
            response,
            claimed,
            request_time,
            now,
        };
        let facts = facts_of_fill(route, &fetch);
        let response = &brought.response;
        if response.status == 304 {
            return self.tell_confirmed(leader, fetch, own, brought);
        }
        let keeps_stale = |hit: &Hit| on_error(&hit.lifetime, &facts, now);
        let judged = judge(&self, route, &facts, response, request_time, now);
        if is_origin_failure(response.status)
            && (judged.is_err() || fetch.stored.as_ref().is_some_and(keeps_stale))
        {
            let failure = Failure::Status(response.status);
            let page = (brought.response, judged.err().unwrap_or("origin-error"));
            return self.fail(leader, own, fetch, failure, Some(page)).await;
        }
        if is_refusal(response.status) && (fetch.stored.is_some() || judged.is_err()) {
            // What this client sent may be the reason: what is stored stays, and the others ask.
            leader.refuse();
            let why = judged.err().unwrap_or(REFUSED);
            let _ = own.send(Own::Private(brought.response, why));
            return;
        }
        match judged {
            Ok(lifetime) => {
                self.tell_storable(leader, &fetch, own, brought, lifetime)
                    .await;
            }
            Err(why) => self.tell_private(&leader, fetch, own, brought, why),
        }
    }

    /// Everyone may read the answer while it arrives.
    async fn tell_storable(
        &self,
        leader: Leader,
        fetch: &Fetch,
        own: oneshot::Sender<Own>,
        brought: Brought,
        lifetime: Lifetime,
    ) {
        let route = &self.routes[fetch.route];
        let (first, body) = self.begin_fill(
            leader.key(),
            route,
            brought.response,
            lifetime,
            &fetch.incoming,
            brought.request_time,
        );
        let filling = Arc::clone(&first.filling);
        if !filling.vary.is_empty() && !leader.is_purged() {
            let view = fetch.incoming.origin_view(&route.rules);
            let (learnt, now) = (filling.learnt(&route.rules), brought.now);
            self.memory
                .learn(leader.key(), learnt, &view, now, |selection| {
                    // Before anybody can know it.
                    leader.select(selection);
                });
        }
        leader.answer(Answer::Filling(Arc::clone(&filling)), brought.now);
        let _ = own.send(Own::First(first));
        self.fill(leader, &filling, body, fetch.route, brought.claimed)
            .await;
    }

    /// The answer is the asker's alone, or he asks for a part of what is too large to be kept.
    fn tell_private(
        &self,
        leader: &Leader,
        fetch: Fetch,
        own: oneshot::Sender<Own>,
        brought: Brought,
        why: &'static str,
    ) {
        let (response, now) = (brought.response, brought.now);
        self.not_for_sharing(leader, &fetch, response.fields.fields(), why, now);
        if why == TOO_LARGE {
            self.note_too_large(leader, &fetch, now);
        }
        let facts = facts_of_fill(&self.routes[fetch.route], &fetch);
        let wants_part = facts.range().is_some() && fetch.incoming.method == Method::GET;
        if why == TOO_LARGE && wants_part && response.status == 200 {
            // Nothing here may hold the request when it is told to go.
            drop((response, fetch));
            let _ = own.send(Own::TooLarge);
        } else {
            let _ = own.send(Own::Private(response, why));
        }
    }

    /// Tells that the origin failed, and what copy there is.
    async fn fail(
        &self,
        leader: Leader,
        own: oneshot::Sender<Own>,
        mut fetch: Fetch,
        failure: Failure,
        page: Option<(OriginResponse, &'static str)>,
    ) {
        self.look_again(&leader, &mut fetch).await;
        let stale = fetch.stored.filter(|_| !leader.is_purged());
        leader.fail(failure.clone(), stale.clone());
        let _ = own.send(Own::Failed(failure, stale, page));
    }

    async fn fetch_once(
        &self,
        route: &Route,
        fetch: &Fetch,
    ) -> Result<OriginResponse, OriginError> {
        let mut stored = fetch.stored.as_ref();
        loop {
            let (fields, conditional) = fill_fields(&fetch.incoming.outgoing, stored, &route.rules);
            let request = OriginRequest {
                method: Method::GET,
                target: fetch.incoming.target.clone(),
                fields,
                body: Body::Empty,
                length: None,
                upgrade: false,
                interim: fetch.incoming.interim.clone(),
                urgency: fetch.urgency.clone(),
                client: None,
            };
            self.counters.count_origin_request();
            let response = route.origin.fetch(request).await?;
            if response.status != 304 {
                return Ok(response);
            }
            // A 304 that nobody asked for answers nothing. One that confirms some other
            // representation (RFC 9111 §4.3.4) means that the whole response has to be fetched.
            match stored.take().filter(|_| conditional) {
                None => return Err(OriginError::Malformed("304 without a condition")),
                Some(hit) if same_representation(hit.fields(), response.fields.fields()) => {
                    return Ok(response);
                }
                Some(_) => {}
            }
        }
    }

    /// For some time nobody is made to wait for what is too large to be kept.
    fn note_too_large(&self, leader: &Leader, fetch: &Fetch, now: Time) {
        let route = &self.routes[fetch.route];
        let request = fetch.incoming.origin_view(&route.rules);
        let until = now.plus(self.settings.remember_too_large);
        let selection = self.selection(leader.key(), &request);
        self.oversized.note(leader.key(), &selection, until);
    }

    /// The origin has confirmed what is stored. It may forbid to keep it at the same time: then it
    /// answers the one who asked, and the others ask for themselves.
    fn tell_confirmed(
        &self,
        leader: Leader,
        mut fetch: Fetch,
        own: oneshot::Sender<Own>,
        brought: Brought,
    ) {
        let Some(stored) = fetch.stored.take() else {
            return;
        };
        let route = &self.routes[fetch.route];
        let key: Box<[u8]> = leader.key().into();
        let view = fetch.incoming.origin_view(&route.rules);
        let merged = refreshed(
            &facts_of_fill(route, &fetch),
            stored.status,
            stored.fields(),
            brought.response.fields.fields(),
            brought.request_time,
            brought.now,
            &route.rules,
        );
        let renewed = |lifetime| {
            let (fields, began) = (&merged.fields, brought.request_time);
            self.renewed(&key, &stored, fields, lifetime, &view, began)
        };
        let lifetime = match merged.storable {
            Storable::Yes(lifetime) => lifetime,
            Storable::No(why) => {
                self.forget_selected(&key, &stored, &view);
                let fields = merged.fields.fields();
                self.not_for_sharing(&leader, &fetch, fields, why.as_str(), brought.now);
                let last = Memory::hold(renewed(stored.lifetime));
                let _ = own.send(Own::LastTime(last, why.as_str()));
                return;
            }
        };
        let confirmed = Memory::hold(renewed(lifetime));
        if confirmed.vary != stored.vary && confirmed.file().is_some() {
            // What lies in a file is not written again, and would still be selected as before.
            self.tiers.remove(&key);
        }
        leader.answer(Answer::Confirmed(confirmed.clone()), brought.now);
        let copy = confirmed.with_lifetime(lifetime);
        leader.finish(|| self.keep(&key, copy, &view, brought.claimed));
        let _ = own.send(Own::Confirmed(confirmed));
    }

    /// The answer to this request is not to be shared, and neither will the next ones to such
    /// requests be: for a while nobody waits for somebody else's. What is stored for them ends where
    /// the origin says in so many words that it is not to be shared any more; else it stays, since a
    /// client who gets an answer of his own takes nothing away from the others.
    fn not_for_sharing(
        &self,
        leader: &Leader,
        fetch: &Fetch,
        response: Fields<'_>,
        why: &'static str,
        now: Time,
    ) {
        const ENDS: [NotStorable; 2] = [NotStorable::Private, NotStorable::NoStore];
        let route = &self.routes[fetch.route];
        let view = fetch.incoming.origin_view(&route.rules);
        let facts = RequestFacts::read(&Method::GET, view.fields, false, &route.rules);
        // Somebody's credentials may be the reason. They say nothing about what others get.
        if !matches!(facts.handling(), Handling::Credentialed) {
            if let Some(stored) = &fetch.stored
                && ENDS.iter().any(|one| one.as_str() == why)
            {
                self.forget_selected(leader.key(), stored, &view);
            }
            let named = vary::of_response(response, &route.rules.vary_ignored).names();
            let until = now.plus(self.settings.hit_for_miss);
            self.memory
                .mark_uncacheable(leader.key(), named, &view, until, now);
        }
        leader.release();
    }

    /// What was stored for a request must not be used any more, wherever it lies.
    fn forget_selected(&self, key: &[u8], stored: &Hit, request: &OriginView<'_>) {
        if stored.vary.is_empty() {
            return self.forget(key);
        }
        self.memory.remove_selected(key, request);
        self.tiers
            .remove_variant(key, &stored.vary, &stored.selection);
    }
}

/// What a fetch for everyone sends: nothing that asks for a part, for another client's condition,
/// or past the caches of the origin; and the validators of what is stored. Says whether there are
/// any.
pub(crate) fn fill_fields(
    outgoing: &FieldsBuf,
    stored: Option<&Hit>,
    rules: &Rules,
) -> (FieldsBuf, bool) {
    let mut fields = outgoing.clone();
    fields.retain(|name, _| {
        !is_conditional_field(name)
            && !name.eq_ignore_ascii_case(b"cache-control")
            && !name.eq_ignore_ascii_case(b"pragma")
            && !name.eq_ignore_ascii_case(b"expect")
    });
    vary::normalise(&mut fields, rules);
    let conditional = stored.is_some_and(|hit| add_validators(hit.fields(), &mut fields));
    (fields, conditional)
}

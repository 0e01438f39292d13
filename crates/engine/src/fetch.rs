//! The second half of a request's way: asking the origin, alone or for everyone.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_policy::vary::{self, Selection, Vary, VaryNames};
use microcache_policy::{
    CacheStatus, FieldsBuf, Forward, Handling, HeadUpdate, KeyBuf, Lifetime, RequestFacts, Reuse,
    Storable, Time, add_validators, fields_to_store, head_update, is_conditional_field, key,
    merge_not_modified, on_error, reuse, same_representation, storable,
};
use microcache_store::{Hit, Memory, Stored};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::body::{Body, BodyError, Frame};
use crate::fill::{Fill, FillReader};
use crate::flight::{Answer, Entry, Failure, Filling, Leader, Progress};
use crate::message::{Incoming, Response};
use crate::origin::{OriginError, OriginRequest, OriginResponse, Urgency};
use crate::outcome::Outcome;
use crate::respond::{Reusable, plain};
use crate::serve::{Engine, Question, Refresh, Route, Served, Wanted, Way, answer};

/// How often a request looks again because what it waited for turned out to be another variant.
const MAX_ROUNDS: usize = 4;

/// What the one who leads a fetch gets out of it.
enum Own {
    /// A storable response.
    Filling(Arc<Filling>, FillReader),
    /// The stored response, confirmed.
    Confirmed(Hit),
    /// A response that is nobody else's.
    Private(OriginResponse, &'static str),
    /// No answer; the origin's error page, if it sent one.
    Failed(Failure, Option<OriginResponse>),
}

impl Engine {
    /// Answers a request that [`Engine::serve`] could not.
    pub async fn ask(self: Arc<Self>, mut question: Question, incoming: Incoming) -> Response {
        let first_forward = question.forward;
        if let Way::Alone(_) = question.way {
            return self.alone(question, incoming).await;
        }
        let incoming = Arc::new(incoming);
        let deadline = Instant::now() + Duration::from_millis(self.settings.wait_timeout);
        let mut failed_before = false;
        for _ in 0..MAX_ROUNDS {
            let Way::Together(wanted) = &question.way else {
                break;
            };
            let told = match self.flights.enter(&wanted.key, &wanted.selection) {
                Entry::Full => break,
                Entry::Lead(leader) => {
                    let own = self.start_fetch(leader, &question, &incoming);
                    return self.answer_leader(question, &incoming, own).await;
                }
                Entry::Join(ticket) => timeout_at(deadline, ticket).await,
            };
            match told {
                Ok(Progress::Answer(answer)) => match self.share(&answer, &question, &incoming) {
                    Shared::Response(response) => return *response,
                    Shared::NotForThisRequest => break,
                    Shared::OtherVariant => {}
                },
                Ok(Progress::Released) => break,
                Ok(Progress::Failed(failure)) => {
                    if let Some(response) = self.stale_on_error(&question, &incoming, &failure) {
                        return response;
                    }
                    if failed_before {
                        return failed(&failure, question.forward);
                    }
                    failed_before = true;
                }
                Ok(Progress::Waiting) | Err(_) => {
                    let timeout = Failure::Origin(OriginError::Timeout);
                    return failed(&timeout, question.forward);
                }
            }
            match self.serve(&incoming.as_request(), self.clock.now()) {
                Served::Now(response) | Served::NowAndRefresh(response, _) => return response,
                Served::Ask(next) => question = next,
            }
        }
        let key = match question.way {
            Way::Together(wanted) => Some(wanted.key),
            Way::Alone(key) => key,
        };
        let alone = Question {
            route: question.route,
            forward: first_forward,
            detail: question.detail.or(Some("uncollapsed")),
            way: Way::Alone(key),
        };
        let incoming =
            Arc::into_inner(incoming).expect("only a leader shares it, and leads to the end");
        self.alone(alone, incoming).await
    }

    /// Renews a stored response in the background, unless somebody is at it already.
    pub fn refresh(self: &Arc<Self>, refresh: Refresh, incoming: Incoming) {
        let Refresh { route, wanted } = refresh;
        if let Entry::Lead(leader) = self.flights.enter(&wanted.key, &wanted.selection) {
            let demand = wanted.stored.as_ref().map(|hit| Arc::clone(hit.demand()));
            let fetch = Fetch {
                route,
                stored: wanted.stored,
                urgency: demand.map_or(Urgency::Client, Urgency::Refresh),
                incoming: Arc::new(incoming),
            };
            let (own, _) = oneshot::channel();
            tokio::spawn(Arc::clone(self).lead(leader, fetch, own));
        }
    }

    /// The fetch runs as a task of its own: a client that leaves does not take it along.
    fn start_fetch(
        self: &Arc<Self>,
        leader: Leader,
        question: &Question,
        incoming: &Arc<Incoming>,
    ) -> oneshot::Receiver<Own> {
        let stored = match &question.way {
            Way::Together(wanted) => wanted.stored.clone(),
            Way::Alone(_) => None,
        };
        let fetch = Fetch {
            route: question.route,
            stored,
            urgency: Urgency::Client,
            incoming: Arc::clone(incoming),
        };
        let (own, receiver) = oneshot::channel();
        tokio::spawn(Arc::clone(self).lead(leader, fetch, own));
        receiver
    }

    async fn answer_leader(
        &self,
        question: Question,
        incoming: &Incoming,
        own: oneshot::Receiver<Own>,
    ) -> Response {
        let facts = self.facts(question.route, incoming);
        let mut cache_status = CacheStatus {
            fwd: Some(question.forward),
            detail: question.detail,
            ..CacheStatus::default()
        };
        match own.await {
            Ok(Own::Filling(filling, reader)) => {
                cache_status.fwd_status = Some(filling.status);
                cache_status.stored = true;
                let fields = incoming.fields.fields();
                let now = self.clock.now();
                let mut response = Reusable::filling(&filling, reader).respond(
                    fields,
                    &facts,
                    now,
                    cache_status,
                    Outcome::Miss,
                );
                response.age = response.age.filter(|&age| age > 0);
                response
            }
            Ok(Own::Confirmed(hit)) => {
                cache_status.fwd_status = Some(304);
                cache_status.stored = true;
                self.confirmed(&hit, incoming, &facts, cache_status)
            }
            Ok(Own::Private(origin, why)) => {
                cache_status.detail = Some(why);
                passed_on(origin, &facts, cache_status, Outcome::Miss)
            }
            Ok(Own::Failed(failure, page)) => {
                if let Some(response) = self.stale_on_error(&question, incoming, &failure) {
                    return response;
                }
                match page {
                    Some(page) => passed_on(page, &facts, cache_status, Outcome::Miss),
                    None => failed(&failure, question.forward),
                }
            }
            Err(_) => failed(&Failure::Abandoned, question.forward),
        }
    }

    fn confirmed(
        &self,
        hit: &Hit,
        incoming: &Incoming,
        facts: &RequestFacts<'_>,
        cache_status: CacheStatus,
    ) -> Response {
        let now = self.clock.now();
        let fields = incoming.fields.fields();
        Reusable::stored(hit).respond(fields, facts, now, cache_status, Outcome::Revalidated)
    }

    /// What somebody who waited makes of the answer.
    fn share(&self, answer: &Answer, question: &Question, incoming: &Incoming) -> Shared {
        let facts = self.facts(question.route, incoming);
        let (lifetime, vary, selected) = match answer {
            Answer::Filling(filling) => (&filling.lifetime, &filling.vary, &filling.selection),
            Answer::Confirmed(hit) => (&hit.lifetime, &hit.vary, &hit.selection),
        };
        let fields = incoming.fields.fields();
        let mut selection = Selection::new();
        vary::select(vary, fields, &mut selection);
        if selection[..] != selected[..] {
            return Shared::OtherVariant;
        }
        let now = self.clock.now();
        // An answer that no request may reuse without asking is not for those who waited either.
        if !matches!(reuse(lifetime, &facts, now), Reuse::Fresh | Reuse::Stale) {
            return Shared::NotForThisRequest;
        }
        let mut cache_status = CacheStatus {
            fwd: Some(question.forward),
            collapsed: true,
            ..CacheStatus::default()
        };
        let response = match answer {
            Answer::Confirmed(hit) => {
                cache_status.fwd_status = Some(304);
                self.confirmed(hit, incoming, &facts, cache_status)
            }
            Answer::Filling(filling) => {
                let Some(reader) = filling.fill.reader() else {
                    return Shared::NotForThisRequest;
                };
                cache_status.fwd_status = Some(filling.status);
                let reusable = Reusable::filling(filling, reader);
                reusable.respond(fields, &facts, now, cache_status, Outcome::Collapsed)
            }
        };
        Shared::Response(Box::new(response))
    }

    /// The stale copy, if there is one that may be used when the origin fails.
    fn stale_on_error(
        &self,
        question: &Question,
        incoming: &Incoming,
        failure: &Failure,
    ) -> Option<Response> {
        let Way::Together(Wanted {
            stored: Some(hit), ..
        }) = &question.way
        else {
            return None;
        };
        let facts = self.facts(question.route, incoming);
        let now = self.clock.now();
        on_error(&hit.lifetime, &facts, now).then(|| {
            let mut response = answer(hit, &incoming.as_request(), &facts, now, Outcome::Stale);
            response.cache_status.detail = Some(failure.as_str());
            response
        })
    }

    fn facts<'a>(&self, route: usize, incoming: &'a Incoming) -> RequestFacts<'a> {
        let request = incoming.as_request();
        let rules = &self.routes[route].rules;
        RequestFacts::read(request.method, request.fields, request.has_body, rules)
    }

    /// To the origin without waiting for anybody. With a key, what comes back may be stored.
    async fn alone(self: Arc<Self>, question: Question, mut incoming: Incoming) -> Response {
        let route = &self.routes[question.route];
        let request_time = self.clock.now();
        let request = OriginRequest {
            method: incoming.method.clone(),
            target: incoming.target.clone(),
            fields: std::mem::take(&mut incoming.outgoing),
            body: std::mem::replace(&mut incoming.body, Body::Empty),
            length: incoming.length,
            upgrade: incoming.upgrade,
            interim: incoming.interim.take(),
            urgency: Urgency::Client,
        };
        let key = match question.way {
            Way::Alone(key) => key,
            Way::Together(wanted) => Some(wanted.key),
        };
        let leader = key.map(|key| self.flights.lead_alone(&key));
        self.counters.count_origin_request();
        let mut response = match route.origin.fetch(request).await {
            Ok(response) => response,
            Err(error) => return failed(&Failure::Origin(error), question.forward),
        };
        let now = self.clock.now();
        complete(&mut response.fields, now);
        self.invalidate_after(&incoming, response.status, response.fields.fields());
        self.update_from_head(route, &incoming, &response, request_time, now);

        let facts = self.facts(question.route, &incoming);
        let mut cache_status = CacheStatus {
            fwd: Some(question.forward),
            fwd_status: Some(response.status),
            detail: question.detail,
            ..CacheStatus::default()
        };
        if let Some(leader) = leader
            && !facts.is_head()
            && let Ok(lifetime) = judge(&self, route, &facts, &response, request_time, now)
        {
            cache_status.stored = true;
            let fields = incoming.fields.fields();
            let (filling, reader, body) = self.begin_fill(route, response, lifetime, fields);
            let filling_too = Arc::clone(&filling);
            let limit = self.object_limit(route);
            let engine = Arc::clone(&self);
            tokio::spawn(async move { engine.fill(leader, &filling_too, body, limit).await });
            let reusable = Reusable::filling(&filling, reader);
            let mut response = reusable.respond(fields, &facts, now, cache_status, Outcome::Miss);
            response.age = response.age.filter(|&age| age > 0);
            return response;
        }
        passed_on(response, &facts, cache_status, Outcome::Pass)
    }

    /// RFC 9111 §4.3.5: what an answer to HEAD says about the stored answer to GET.
    fn update_from_head(
        &self,
        route: &Route,
        incoming: &Incoming,
        response: &OriginResponse,
        request_time: Time,
        now: Time,
    ) {
        if incoming.method != Method::HEAD || response.status != 200 {
            return;
        }
        let request = incoming.as_request();
        let mut key = KeyBuf::new();
        let rules = &route.rules;
        key::build(
            &mut key,
            request.scheme,
            request.host,
            request.target,
            request.fields,
            &rules.key,
        );
        let Some(hit) = self
            .memory
            .get(&key)
            .and_then(|object| object.select(request.fields))
        else {
            return;
        };
        let mut fields = response.fields.clone();
        if let Some(length) = response.length {
            fields.push("Content-Length", length.to_string());
        }
        let length = hit.body.len() as u64;
        match head_update(hit.fields(), length, fields.fields(), rules) {
            HeadUpdate::Invalidate => self.purge_key(&key),
            HeadUpdate::Freshen(fields) => {
                let facts = RequestFacts::read(&Method::GET, request.fields, false, rules);
                let verdict = storable(
                    &facts,
                    200,
                    response.fields.fields(),
                    request_time,
                    now,
                    rules,
                );
                if let Storable::Yes(lifetime) = verdict {
                    let renewed = renewed(&hit, &fields, lifetime);
                    self.flights
                        .lead_alone(&key)
                        .finish(|| self.memory.put(&key, renewed, now));
                }
            }
        }
    }

    fn object_limit(&self, route: &Route) -> u64 {
        route.max_object.min(self.memory.limits().object)
    }
}

enum Shared {
    Response(Box<Response>),
    /// The answer is for requests that differ in a field it varies on.
    OtherVariant,
    /// The answer must not, or can no longer, be given to this request.
    NotForThisRequest,
}

/// One collapsed fetch.
struct Fetch {
    route: usize,
    stored: Option<Hit>,
    urgency: Urgency,
    incoming: Arc<Incoming>,
}

impl Engine {
    /// Fetches for everyone: asks, judges the answer, and tells.
    async fn lead(self: Arc<Self>, leader: Leader, mut fetch: Fetch, own: oneshot::Sender<Own>) {
        let route = &self.routes[fetch.route];
        let request_time = self.clock.now();
        let mut response = match self.fetch_once(route, &fetch).await {
            Ok(response) => response,
            Err(error) => {
                let failure = Failure::Origin(error);
                leader.fail(failure.clone());
                let _ = own.send(Own::Failed(failure, None));
                return;
            }
        };
        let now = self.clock.now();
        complete(&mut response.fields, now);

        let request = fetch.incoming.fields.fields();
        let facts = RequestFacts::read(&Method::GET, request, false, &route.rules);
        if response.status == 304 {
            let confirmed = fetch.stored.take().and_then(|stored| {
                Self::confirm(route, &stored, &facts, &response, request_time, now)
            });
            return self.tell_confirmed(leader, confirmed, own, now);
        }
        let keeps_stale = |hit: &Hit| on_error(&hit.lifetime, &facts, now);
        let server_error = matches!(response.status, 500 | 502 | 503 | 504);
        if server_error && fetch.stored.as_ref().is_some_and(keeps_stale) {
            return fail_with_page(&leader, own, response);
        }
        match judge(&self, route, &facts, &response, request_time, now) {
            Ok(lifetime) => {
                let (filling, reader, body) = self.begin_fill(route, response, lifetime, request);
                if !filling.vary.is_empty() && !leader.is_purged() {
                    self.memory.learn_vary(leader.key(), &filling.vary);
                }
                leader.answer(Answer::Filling(Arc::clone(&filling)));
                let _ = own.send(Own::Filling(Arc::clone(&filling), reader));
                self.fill(leader, &filling, body, self.object_limit(route))
                    .await;
            }
            Err(_) if server_error => fail_with_page(&leader, own, response),
            Err(why) => {
                let background = matches!(fetch.urgency, Urgency::Refresh(_));
                self.not_for_sharing(&leader, &facts, background, now);
                let _ = own.send(Own::Private(response, why));
            }
        }
    }

    async fn fetch_once(
        &self,
        route: &Route,
        fetch: &Fetch,
    ) -> Result<OriginResponse, OriginError> {
        let mut stored = fetch.stored.as_ref();
        loop {
            let (fields, conditional) = fill_fields(&fetch.incoming.outgoing, stored);
            let request = OriginRequest {
                method: Method::GET,
                target: fetch.incoming.target.clone(),
                fields,
                body: Body::Empty,
                length: None,
                upgrade: false,
                interim: fetch.incoming.interim.clone(),
                urgency: fetch.urgency.clone(),
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

    /// RFC 9111 §4.3.4: the stored response with what the 304 says, and a new lifetime.
    fn confirm(
        route: &Route,
        stored: &Hit,
        facts: &RequestFacts<'_>,
        response: &OriginResponse,
        request_time: Time,
        now: Time,
    ) -> Option<Stored> {
        let fields = merge_not_modified(stored.fields(), response.fields.fields(), &route.rules);
        let status = stored.status;
        match storable(
            facts,
            status,
            fields.fields(),
            request_time,
            now,
            &route.rules,
        ) {
            Storable::Yes(lifetime) => Some(renewed(stored, &fields, lifetime)),
            Storable::No(_) => None,
        }
    }

    fn tell_confirmed(
        &self,
        leader: Leader,
        confirmed: Option<Stored>,
        own: oneshot::Sender<Own>,
        now: Time,
    ) {
        let Some(stored) = confirmed else {
            // The 304 forbids storing. Nobody has a body then: everyone fetches for themselves.
            self.purge_marked(leader.key(), now);
            leader.fail(Failure::Abandoned);
            let _ = own.send(Own::Failed(Failure::Abandoned, None));
            return;
        };
        let key: Box<[u8]> = leader.key().into();
        let answered = Memory::hold(stored);
        leader.answer(Answer::Confirmed(answered.clone()));
        leader.finish(|| {
            self.memory
                .put(&key, answered.with_lifetime(answered.lifetime), now)
        });
        let _ = own.send(Own::Confirmed(answered));
    }

    /// The origin's latest word is that this is not to be shared: what was stored goes, and for a
    /// while nobody waits for somebody else's answer.
    fn not_for_sharing(
        &self,
        leader: &Leader,
        facts: &RequestFacts<'_>,
        background: bool,
        now: Time,
    ) {
        // Somebody's credentials may be the reason. They say nothing about what others get.
        let credentialed = matches!(facts.handling(), Handling::Credentialed);
        if !(background && credentialed) {
            self.purge_marked(leader.key(), now);
        }
        leader.release();
    }

    fn purge_marked(&self, key: &[u8], now: Time) {
        self.memory.remove(key);
        self.memory
            .mark_uncacheable(key, now.plus(self.settings.hit_for_miss));
    }

    fn begin_fill(
        &self,
        route: &Route,
        response: OriginResponse,
        lifetime: Lifetime,
        request: microcache_policy::Fields<'_>,
    ) -> (Arc<Filling>, FillReader, Body) {
        let vary = match vary::of_response(response.fields.fields()) {
            Vary::Names(names) => names,
            Vary::None | Vary::Any => VaryNames::default(),
        };
        let mut selection = Selection::new();
        vary::select(&vary, request, &mut selection);
        let fields = fields_to_store(response.fields.fields(), &route.rules);
        let fill = Fill::new(&self.fill_budget);
        let reader = fill.reader().expect("nothing has been let go of yet");
        let filling = Filling {
            status: response.status,
            fields: fields.into_block().into(),
            length: response.length,
            lifetime,
            vary,
            selection: Bytes::copy_from_slice(&selection),
            fill,
        };
        (Arc::new(filling), reader, response.body)
    }

    /// Pumps the body into the fill, and the whole into the store.
    async fn fill(&self, leader: Leader, filling: &Filling, mut body: Body, limit: u64) {
        let fill = &filling.fill;
        let mut keep = true;
        let end = loop {
            if poll_fn(|cx| fill.poll_ready(cx)).await.is_err() {
                break Err(BodyError::Disconnected);
            }
            match body.frame().await {
                None => break Ok(None),
                Some(Ok(Frame::Data(chunk))) => {
                    let still = fill.push(chunk, limit);
                    if keep && !still {
                        leader.close();
                    }
                    keep = still;
                }
                Some(Ok(Frame::Trailers(trailers))) => break Ok(Some(trailers)),
                Some(Err(error)) => break Err(error),
            }
        };
        // The length was verified by whoever read the body; this is the last place to notice.
        let whole = filling
            .length
            .is_none_or(|length| length == fill.received());
        let end = if whole {
            end
        } else {
            end.and(Err(BodyError::Incomplete))
        };
        if keep && end.is_ok() {
            let stored = Stored::new(
                filling.status,
                &filling.fields,
                fill.collect(),
                filling.lifetime,
                filling.vary.clone(),
                &filling.selection,
            );
            let key: Box<[u8]> = leader.key().into();
            leader.finish(|| self.memory.put(&key, stored, self.clock.now()));
        }
        fill.finish(end);
    }
}

fn judge(
    engine: &Engine,
    route: &Route,
    facts: &RequestFacts<'_>,
    response: &OriginResponse,
    request_time: Time,
    now: Time,
) -> Result<Lifetime, &'static str> {
    if response
        .length
        .is_some_and(|length| length > engine.object_limit(route))
    {
        return Err("too-large");
    }
    let fields = response.fields.fields();
    match storable(
        facts,
        response.status,
        fields,
        request_time,
        now,
        &route.rules,
    ) {
        Storable::Yes(lifetime) => Ok(lifetime),
        Storable::No(why) => Err(why.as_str()),
    }
}

fn fail_with_page(leader: &Leader, own: oneshot::Sender<Own>, page: OriginResponse) {
    let failure = Failure::Status(page.status);
    leader.fail(failure.clone());
    let _ = own.send(Own::Failed(failure, Some(page)));
}

fn renewed(stored: &Stored, fields: &FieldsBuf, lifetime: Lifetime) -> Stored {
    Stored::new(
        stored.status,
        fields.fields().as_block(),
        stored.body.clone(),
        lifetime,
        stored.vary.clone(),
        &stored.selection,
    )
}

/// What a fetch for everyone sends: nothing that asks for a part, for another client's condition,
/// or past the caches of the origin; and the validators of what is stored. Says whether there are
/// any.
fn fill_fields(outgoing: &FieldsBuf, stored: Option<&Hit>) -> (FieldsBuf, bool) {
    let mut fields = outgoing.clone();
    fields.retain(|name, _| {
        !is_conditional_field(name)
            && !name.eq_ignore_ascii_case(b"cache-control")
            && !name.eq_ignore_ascii_case(b"pragma")
            && !name.eq_ignore_ascii_case(b"expect")
    });
    let conditional = stored.is_some_and(|hit| add_validators(hit.fields(), &mut fields));
    (fields, conditional)
}

/// What a recipient adds to a response (RFC 9110 §6.6.1, §7.6.3).
fn complete(fields: &mut FieldsBuf, now: Time) {
    if !fields.fields().contains("date") {
        fields.push("Date", microcache_policy::date::format(now));
    }
    fields.push("Via", "1.1 microcache");
}

fn passed_on(
    origin: OriginResponse,
    facts: &RequestFacts<'_>,
    mut cache_status: CacheStatus,
    outcome: Outcome,
) -> Response {
    cache_status.fwd_status = Some(origin.status);
    Response {
        status: origin.status,
        fields: origin.fields.into_block().into(),
        age: None,
        cache_status,
        length: origin.length,
        body: if facts.is_head() {
            Body::Empty
        } else {
            origin.body
        },
        tunnel: origin.tunnel,
        outcome,
    }
}

impl Failure {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Origin(OriginError::Timeout) => "origin-timeout",
            Self::Origin(OriginError::Busy) => "origin-busy",
            Self::Origin(OriginError::Connect(_) | OriginError::Down) => "origin-unreachable",
            Self::Origin(OriginError::Disconnected) => "origin-disconnected",
            Self::Origin(OriginError::Malformed(_)) => "origin-malformed",
            Self::Origin(OriginError::RequestBody) => "request-body",
            Self::Status(_) => "origin-error",
            Self::Abandoned => "fetch-abandoned",
        }
    }
}

/// An error of our own, where nothing better is to be had.
fn failed(failure: &Failure, forward: Forward) -> Response {
    let (status, text) = match failure {
        Failure::Origin(OriginError::Busy) => (
            503,
            "The application is at its limit. Please try again in a moment.",
        ),
        Failure::Origin(OriginError::Down) => (
            503,
            "The application is not available. Please try again in a moment.",
        ),
        Failure::Origin(OriginError::Timeout) => (504, "The application did not answer in time."),
        Failure::Origin(OriginError::RequestBody) => (400, "The request body was malformed."),
        Failure::Status(_) | Failure::Origin(_) => {
            (502, "The application did not give a proper answer.")
        }
        Failure::Abandoned => (500, "This request failed. The others go on."),
    };
    let cache_status = CacheStatus {
        fwd: Some(forward),
        detail: Some(failure.as_str()),
        ..CacheStatus::default()
    };
    plain(status, text, cache_status)
}

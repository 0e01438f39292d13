//! To the origin without waiting for anybody.

use std::sync::Arc;

use http::Method;
use microcache_policy::{
    CacheStatus, Fields, HeadUpdate, RequestFacts, Storable, Time, head_update, storable,
};

use crate::body::Body;
use crate::failure::failed;
use crate::flight::Failure;
use crate::keep::{complete, judge, renewed};
use crate::message::{Incoming, Response};
use crate::origin::{OriginRequest, OriginResponse, Urgency};
use crate::outcome::Outcome;
use crate::respond::passed_on;
use crate::serve::{Engine, Question, Route, Way, key_of};

impl Engine {
    /// To the origin without waiting for anybody. With a key, what comes back may be stored.
    pub(crate) async fn alone(
        self: Arc<Self>,
        question: Question,
        mut incoming: Incoming,
    ) -> Response {
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
        let purges = self.flights.purges();
        self.counters.count_origin_request();
        let mut response = match route.origin.fetch(request).await {
            Ok(response) => response,
            Err(error) => {
                return failed(&Failure::Origin(error), question.forward, self.clock.now());
            }
        };
        let now = self.clock.now();
        complete(&mut response.fields, now);
        self.invalidate_after(&incoming, response.status, response.fields.fields())
            .await;
        self.update_from_head(route, &incoming, &response, (request_time, now), purges);

        let facts = self.facts(question.route, &incoming);
        let cache_status = CacheStatus {
            fwd: Some(question.forward),
            fwd_status: Some(response.status),
            detail: question.detail,
            ..CacheStatus::default()
        };
        if let Some(key) = key
            && !facts.is_head()
            && let Ok(lifetime) = judge(&self, route, &facts, &response, request_time, now)
            && let Some(leader) = self.flights.lead_alone(&key, purges)
        {
            let fields = Fields::new(&incoming.fields);
            let (first, body) = self.begin_fill(route, response, lifetime, fields, request_time);
            let filling = Arc::clone(&first.filling);
            let (engine, number) = (Arc::clone(&self), question.route);
            tokio::spawn(async move { engine.fill(leader, &filling, body, number, None).await });
            return first.respond(fields, &facts, now, cache_status);
        }
        passed_on(response, &facts, cache_status, Outcome::Pass)
    }

    /// RFC 9111 §4.3.5: what an answer to HEAD says about the stored answer to GET.
    fn update_from_head(
        &self,
        route: &Route,
        incoming: &Incoming,
        response: &OriginResponse,
        (request_time, now): (Time, Time),
        purges: u64,
    ) {
        if incoming.method != Method::HEAD || response.status != 200 {
            return;
        }
        let request = incoming.as_request();
        let rules = &route.rules;
        let key = key_of(&request, &rules.key);
        let Some(hit) = self
            .memory
            .get(&key)
            .and_then(|object| object.select(request.fields).ok())
        else {
            return;
        };
        let mut fields = response.fields.clone();
        if let Some(length) = response.length {
            fields.push("Content-Length", length.to_string());
        }
        let length = hit.body.len();
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
                    let renewed = renewed(&hit, &fields, lifetime, request_time);
                    if let Some(leader) = self.flights.lead_alone(&key, purges) {
                        leader.finish(|| self.keep(&key, renewed, None));
                    }
                }
            }
        }
    }
}

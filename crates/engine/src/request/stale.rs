//! Stale copies, for an origin that fails or is slow.

use std::future::Future;
use std::time::Duration;

use microcache_policy::vary::{self, Selection};
use microcache_policy::{Detail, RequestFacts, Time, on_error};
use microcache_store::Hit;
use tokio::time::{Instant, timeout_at};

use crate::message::{ForwardedRequest, Response};
use crate::outcome::Outcome;
use crate::request::engine::Engine;
use crate::request::lookup_context::LookupContext;
use crate::request::route::Clients;

/// A search for a stale copy: its key, and the request it has to fit.
#[derive(Clone, Copy)]
pub(crate) struct StaleQuery<'a> {
    pub(crate) route: usize,
    pub(crate) facts: &'a RequestFacts,
    pub(crate) key: &'a [u8],
    pub(crate) incoming: &'a ForwardedRequest,
    /// Known copies besides the one in memory.
    pub(crate) known: [Option<&'a Hit>; 2],
}

/// The outcome of a wait.
pub(crate) enum WaitOutcome<T> {
    Done(T),
    /// The origin took longer than `stale_wait`, and this copy is usable.
    Stale(Response),
    TooLong,
}

impl Engine {
    /// The response from the newest copy that is usable on errors, with the reason as its detail.
    pub(crate) fn stale_copy(
        &self,
        query: &StaleQuery<'_>,
        why: Detail,
        now: Time,
    ) -> Option<Response> {
        let newest = self.newest_copy(query, now)?;
        Some(self.respond_with(newest, query, why, now))
    }

    /// The newest copy that is usable on errors.
    pub(crate) fn newest_copy(&self, query: &StaleQuery<'_>, now: Time) -> Option<Hit> {
        let request = query.incoming.origin_view(self.rules(query.route));
        let in_memory = self.cache.response(query.key, &request, now);
        let known = query.known.iter().flatten().copied();
        let copies = known.chain(in_memory.as_ref());
        let usable = copies.filter(|hit| self.is_usable_for(hit, query, now));
        usable.max_by_key(|hit| hit.began()).cloned()
    }

    /// The response from a tier's copy that is usable on errors, with the reason as its detail.
    pub(crate) async fn stale_copy_in_tiers(
        &self,
        query: &StaleQuery<'_>,
        why: Detail,
    ) -> Option<Response> {
        if self.cache.has_no_tiers() {
            return None;
        }
        let request = query.incoming.origin_view(self.rules(query.route));
        let hit = self
            .cache
            .copy_in_tiers(query.key, &request)
            .await?
            .into_hit();
        let now = self.clock.now();
        let usable = self.is_usable_for(&hit, query, now);
        usable.then(|| self.respond_with(hit, query, why, now))
    }

    /// Waits; if a copy is usable on errors, only for `stale_wait`, except for a program, which has
    /// timeouts of its own. A copy may also appear during the wait.
    pub(crate) async fn or_stale<T>(
        &self,
        mut answer: impl Future<Output = T> + Unpin,
        (began, deadline): (Instant, Option<Instant>),
        copy: impl Fn() -> Option<Response>,
    ) -> WaitOutcome<T> {
        if self.settings.clients == Clients::Program {
            return match deadline {
                None => WaitOutcome::Done(answer.await),
                Some(deadline) => timeout_at(deadline, answer)
                    .await
                    .map_or(WaitOutcome::TooLong, WaitOutcome::Done),
            };
        }
        let mut pause = Duration::from_millis(self.settings.stale_wait);
        let mut next = began + pause;
        loop {
            let until = deadline.map_or(next, |deadline| deadline.min(next));
            if let Ok(answer) = timeout_at(until, &mut answer).await {
                return WaitOutcome::Done(answer);
            }
            if let Some(response) = copy() {
                return WaitOutcome::Stale(response);
            }
            if deadline.is_some_and(|deadline| deadline <= until) {
                return WaitOutcome::TooLong;
            }
            pause *= 2;
            next = Instant::now() + pause;
        }
    }

    fn is_usable_for(&self, hit: &Hit, query: &StaleQuery<'_>, now: Time) -> bool {
        let is_whole = hit.file().is_none_or(|file| !file.is_damaged());
        let request = query.incoming.origin_view(self.rules(query.route));
        let mut selection = Selection::new();
        vary::select(hit.vary(), &request, &mut selection);
        let of_key = (query.route, query.key);
        is_whole
            && self.is_for_url(
                &query.incoming.as_request(),
                of_key,
                (hit.fields(), hit.began()),
            )
            && !self.cache.is_purged(query.key, hit)
            && vary::answers(hit.vary(), hit.selection(), &selection, hit.fields())
            && on_error(&hit.lifetime(), query.facts, now)
    }

    fn respond_with(&self, hit: Hit, query: &StaleQuery<'_>, why: Detail, now: Time) -> Response {
        let request = query.incoming.as_request();
        let look = LookupContext {
            route: query.route,
            key: query.key,
            request: &request,
            view: &request.origin_view(self.rules(query.route)),
            facts: query.facts,
        };
        let mut response = self.answer_on(&look, hit, now, Outcome::Stale);
        response.cache_status.detail = Some(why);
        response
    }
}

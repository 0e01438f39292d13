//! What lies behind memory: a look into the tiers before the origin is asked.

use std::time::Duration;

use http::Method;
use microcache_policy::{Fields, Millis, OriginView, RequestFacts, Reuse, Time, on_error, reuse};
use microcache_store::{Claimed, Found, Hit, Lookup, Memory, Turn, Varies};
use tokio::time::{Instant, sleep};

use crate::flight::Leader;
use crate::lead::Fetch;
use crate::message::{Request, Response};
use crate::origin::Urgency;
use crate::page;
use crate::serve::{Engine, answer_from};

/// The first look after another process was found to be asking; each pause is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long what a key varies on in a tier is believed, after it was written.
const OTHERS_COUNT: Millis = 86_400_000;

/// What a look behind memory came to.
pub(crate) enum Behind {
    /// This response, out of the tier of this name.
    Found(Hit, &'static str),
    /// The origin has to be asked; perhaps with the right that other processes respect.
    Ask(Option<Claimed>),
}

/// What is to be done about a response that was found.
enum Worth {
    Use,
    /// It is too old to be used, or to be of use for a renewal.
    Renew,
}

impl Engine {
    /// Looks into the tiers. While another process is asking the origin, looks again until what
    /// it brings is there, or until it had its time. A stored response that may be validated is
    /// put into `fetch`. Where there is no record of ours, there may be the application's page.
    pub(crate) async fn look_behind(&self, leader: &Leader, fetch: &mut Fetch) -> Behind {
        if self.tiers.is_empty() {
            return Behind::Ask(None);
        }
        let claimed = match self.look_for_record(leader, fetch).await {
            Behind::Ask(claimed) => claimed,
            found @ Behind::Found(..) => return found,
        };
        match self.application_page(fetch).await {
            Some(hit) => {
                // It is not written behind memory, where the next process finds it as this one
                // has: the claim is given back.
                self.put_into_memory(leader, fetch, &hit);
                Behind::Found(hit, page::DETAIL)
            }
            None => Behind::Ask(claimed),
        }
    }

    async fn look_for_record(&self, leader: &Leader, fetch: &mut Fetch) -> Behind {
        let deadline = Instant::now() + self.tiers.limits().claim;
        let mut pause = FIRST_PAUSE;
        let mut own_is_old = false;
        loop {
            let request = self.origin_view(fetch);
            let lookup = if own_is_old {
                self.tiers.find_shared(leader.key(), &request).await
            } else {
                self.tiers.find(leader.key(), &request).await
            };
            let turn = match lookup {
                Lookup::Missing(turn, others) => {
                    self.learn_from_others(leader, others);
                    turn
                }
                Lookup::Found(found) => match self.worth(leader, fetch, &found) {
                    Worth::Use => return self.lift(leader, fetch, found),
                    // Another process may have put a newer one where it is shared.
                    Worth::Renew if !found.is_shared() => {
                        self.keep_for_validation(leader, fetch, found);
                        own_is_old = true;
                        continue;
                    }
                    Worth::Renew => match self.tiers.turn_to_renew(&found).await {
                        Turn::Ours(claimed) => {
                            return self.unless_renewed(leader, fetch, found, claimed).await;
                        }
                        turn => {
                            self.keep_for_validation(leader, fetch, found);
                            turn
                        }
                    },
                },
            };
            match turn {
                Turn::Free => return Behind::Ask(None),
                Turn::Ours(claimed) => return Behind::Ask(Some(claimed)),
                // Whoever is at it may put something there yet.
                Turn::Theirs if Instant::now() >= deadline => {
                    return Behind::Ask(None);
                }
                Turn::Theirs => {
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Between the look and the claim, the one whose turn it was may have stored what it brought.
    async fn unless_renewed(
        &self,
        leader: &Leader,
        fetch: &mut Fetch,
        found: Found,
        claimed: Claimed,
    ) -> Behind {
        self.keep_for_validation(leader, fetch, found);
        let request = self.origin_view(fetch);
        if let Lookup::Found(found) = self.tiers.find_shared(leader.key(), &request).await {
            if let Worth::Use = self.worth(leader, fetch, &found) {
                return self.lift(leader, fetch, found);
            }
            self.keep_for_validation(leader, fetch, found);
        }
        Behind::Ask(Some(claimed))
    }

    /// Looks once more, where nothing is known of that may be used: the origin has failed, and a tier
    /// that could not be asked before may have come back.
    pub(crate) async fn look_again(&self, leader: &Leader, fetch: &mut Fetch) {
        let request = self.origin_view(fetch);
        let facts = RequestFacts::read(&Method::GET, request.fields, false, request.rules);
        let now = self.clock.now();
        let is_usable = |hit: &Hit| on_error(&hit.lifetime, &facts, now);
        if self.tiers.is_empty() || fetch.stored.as_ref().is_some_and(is_usable) {
            return;
        }
        if let Some(found) = self.tiers.look(leader.key(), &request).await {
            self.keep_for_validation(leader, fetch, found);
        }
    }

    /// The answer to a request from what the nearest tier can give without waiting, if it is
    /// fresh. What is not is for [`Engine::look_behind`].
    pub(crate) fn at_hand(
        &self,
        key: &[u8],
        request: &Request<'_>,
        view: &OriginView<'_>,
        facts: &RequestFacts<'_>,
        now: Time,
    ) -> Option<Response> {
        let purges = self.flights.purges(key);
        let found = self.tiers.at_hand(key, view)?;
        let (tier, stored) = (found.tier(), found.stored);
        let is_fresh = matches!(reuse(&stored.lifetime, facts, now), Reuse::Fresh);
        if !is_fresh || self.purges.covers(key, stored.began) {
            return None;
        }
        let hit = Memory::hold(stored);
        // What lies in an open file is as near as memory.
        if hit.body.bytes().is_some() {
            self.flights.unless_purged(key, purges, || {
                let copy = hit.with_lifetime(hit.lifetime);
                let _ = self.memory.put(key, copy, view, now);
            });
        }
        Some(answer_from(tier, hit, request, facts, now))
    }

    fn worth(&self, leader: &Leader, fetch: &Fetch, found: &Found) -> Worth {
        let stored = &found.stored;
        if self.purges.covers(leader.key(), stored.began) {
            return Worth::Renew;
        }
        let route = &self.routes[fetch.route];
        let request = Fields::new(&fetch.incoming.fields);
        let facts = RequestFacts::read(&Method::GET, request, false, &route.rules);
        match reuse(&stored.lifetime, &facts, self.clock.now()) {
            Reuse::Fresh => Worth::Use,
            // A client gets it at once, and the next one starts the renewal; a renewal goes on.
            Reuse::Stale if matches!(fetch.urgency, Urgency::Client) => Worth::Use,
            _ => Worth::Renew,
        }
    }

    fn keep_for_validation(&self, leader: &Leader, fetch: &mut Fetch, found: Found) {
        let stored = found.stored;
        let newer = |have: &Hit| have.began < stored.began;
        if fetch.stored.as_ref().is_none_or(newer)
            && !self.purges.covers(leader.key(), stored.began)
        {
            let hit = Memory::hold(stored);
            if !hit.vary.is_empty() && !leader.is_purged() {
                let view = self.origin_view(fetch);
                let (learnt, now) = (hit.learnt(view.rules), self.clock.now());
                self.memory
                    .learn(leader.key(), learnt, &view, now, |selection| {
                        leader.select(selection);
                    });
            }
            // If the origin fails, it may be the answer after all.
            self.put_into_memory(leader, fetch, &hit);
            fetch.stored = Some(hit);
        }
    }

    /// Puts what was found into memory, whence the next hit comes. What memory does not take is
    /// still an answer.
    fn lift(&self, leader: &Leader, fetch: &Fetch, found: Found) -> Behind {
        let tier = found.tier();
        let hit = Memory::hold(found.stored);
        self.put_into_memory(leader, fetch, &hit);
        Behind::Found(hit, tier)
    }

    fn put_into_memory(&self, leader: &Leader, fetch: &Fetch, hit: &Hit) {
        let request = self.origin_view(fetch);
        leader.store(|key| {
            let copy = hit.with_lifetime(hit.lifetime);
            let _ = self.memory.put(key, copy, &request, self.clock.now());
        });
    }

    /// There are other variants of this key: an answer that does not say so is not for all of them.
    fn learn_from_others(&self, leader: &Leader, others: Option<Varies>) {
        let Some(others) = others else { return };
        if !leader.is_purged() && !self.purges.covers(leader.key(), others.began) {
            let until = others.began.plus(OTHERS_COUNT);
            self.memory
                .learn_vary(leader.key(), &others.names, until, self.clock.now());
        }
    }

    fn origin_view<'a>(&'a self, fetch: &'a Fetch) -> OriginView<'a> {
        fetch.incoming.origin_view(&self.routes[fetch.route].rules)
    }
}

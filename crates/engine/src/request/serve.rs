//! The synchronous part of a request.
//!
//! [`Engine::serve`] is the whole hit: route, facts, key, lookup, reuse decision, response; no
//! await, no lock held. A request that it cannot answer becomes a [`FetchPlan`], which
//! [`Engine::ask`] carries out.

use microcache_policy::key;
use microcache_policy::prefetch::is_for_hits_only;
use microcache_policy::request_fields::withheld_names;
use microcache_policy::status::Forward;
use microcache_policy::{Detail, Time};
use microcache_store::{Hit, Key};

use crate::cache::MemoryLookup;
use crate::cache::fetch_outcome::Failure;
use crate::message::{Request, Response};
use crate::outcome::Outcome;
use crate::request::engine::Engine;
use crate::request::failure::NoResponse;
use crate::request::hit_response::{answer, is_plain_hit, plain_hit};
use crate::request::lookup_context::LookupContext;
use crate::request::plan::{
    CoalescedFetch, DirectFetch, FetchPlan, FetchReason, FetchSpec, Refresh,
};
use crate::request::request_facts::{RequestMode, mode_of};
use crate::request::request_key::{key_as, plain_key};
use crate::request::route::RouteMatch;
use crate::request::usability::Usability;

/// The result of serving a request from the cache.
pub enum Served {
    /// The response.
    Now(Response),
    /// This response; the caller should start the refresh.
    NowAndRefresh(Response, Box<Refresh>),
    /// A request that needs the origin.
    Fetch(FetchPlan),
    /// A failure without a response.
    Failed(NoResponse),
}

impl Engine {
    /// Answers a request from memory, or returns the fetch that is needed.
    pub fn serve(&self, request: &Request<'_>, now: Time) -> Served {
        self.serve_on(self.find(request), request, now)
    }

    /// Answers a request on a known route from memory, or returns the fetch that is needed.
    // If inlined, its result is moved three more times.
    #[inline(never)]
    pub fn serve_on(&self, found: RouteMatch, request: &Request<'_>, now: Time) -> Served {
        let route = &self.routes[found.route];
        let facts = self.facts_on(route, request);
        let pass = |forward, detail| {
            let route = found.route;
            let why = FetchReason {
                route,
                facts,
                forward,
                detail,
                at: now,
            };
            Served::Fetch(FetchPlan::Direct(Box::new(DirectFetch {
                why,
                key: None,
                whole: true,
                may_have_copy: false,
            })))
        };

        // 1. May the cache handle the request?
        let may_coalesce = match mode_of(route, found.bypass, &facts) {
            RequestMode::Pass(forward, detail) => return pass(forward, detail),
            RequestMode::Direct => false,
            RequestMode::Coalesced => true,
        };

        if route.answers_at_once {
            return match route
                .origin
                .ready_response_for(request.target, request.fields)
            {
                Some(hit) => Served::Now(answer(hit, request, &facts, now, Outcome::Hit)),
                None => pass(Forward::UriMiss, None),
            };
        }

        // 2. The key, and the entry in memory.
        let mut space = key::KEY_SPACE;
        let (unusual, simplified);
        let plain = plain_key(&mut space, facts.accept(), request, &route.rules);
        let mut key = if let Some(plain) = plain {
            plain
        } else {
            unusual = key_as(facts.accept(), request, &route.rules);
            &unusual[..]
        };
        let view = request.origin_view(&route.rules);
        let mut since = Time::default();
        if self.cache.queries.has_any()
            && let Some(simpler) = self.simplified(route, key, &view, may_coalesce, now)
        {
            simplified = simpler.key;
            (key, since) = (&simplified[..], simpler.since);
        }
        let known = self.cache.look_up(key, &view, now);

        // 3. Is the stored response reusable?
        let (known, forward) = match known {
            MemoryLookup::Response(hit) if hit.began() < since => {
                (MemoryLookup::Response(hit), Forward::Stale)
            }
            MemoryLookup::Response(hit)
                if !route.rules.compress.is_on() && is_plain_hit(&hit, &facts, now) =>
            {
                return Served::Now(plain_hit(hit, now));
            }
            MemoryLookup::Response(hit) => match self.usability(&hit, key, &view, &facts, now) {
                usable @ (Usability::Fresh | Usability::Stale) => {
                    let look = LookupContext {
                        route: found.route,
                        key,
                        request,
                        view: &view,
                        facts: &facts,
                    };
                    return match usable {
                        Usability::Stale => self.serve_stale(hit, &look, now),
                        _ => Served::Now(self.answer_on(&look, hit, now, Outcome::Hit)),
                    };
                }
                Usability::None(forward) => (MemoryLookup::Response(hit), forward),
            },
            known => {
                let forward = nothing_selected(&known);
                (known, forward)
            }
        };

        let look = LookupContext {
            route: found.route,
            key,
            request,
            view: &view,
            facts: &facts,
        };
        self.beyond_memory(&look, known, forward, may_coalesce, now)
    }

    /// Continues a lookup that memory cannot answer: with a tier that can without waiting, or with a plan to ask the
    /// origin.
    fn beyond_memory(
        &self,
        look: &LookupContext<'_>,
        known: MemoryLookup,
        forward: Forward,
        may_coalesce: bool,
        now: Time,
    ) -> Served {
        // 4. Would it wait for another request's response? If not, a tier may answer synchronously.
        let LookupContext {
            key, view, facts, ..
        } = *look;
        let selection = known.selection(view);
        let why_direct = self.why_direct(look, &known, &selection, may_coalesce, now);
        if why_direct.is_none()
            && !matches!(known, MemoryLookup::Response(_))
            && let Some(response) = self.answer_without_waiting(look, now)
        {
            return Served::Now(response);
        }

        // 5. The origin has to be asked, coalesced or directly.
        if facts.only_if_cached() {
            return Served::Failed(NoResponse::new(Failure::OnlyIfCached, forward));
        }
        let why = FetchReason {
            route: look.route,
            facts: self.facts_of_fetch(look),
            forward: if may_coalesce {
                forward
            } else {
                Forward::Request
            },
            detail: why_direct,
            at: now,
        };
        let key = Key::from(key);
        Served::Fetch(if why_direct.is_some() {
            FetchPlan::Direct(Box::new(DirectFetch {
                why,
                key: Some(key),
                whole: why_direct == Some(Detail::Withheld),
                may_have_copy: matches!(known, MemoryLookup::Response(_)),
            }))
        } else {
            let spec = FetchSpec {
                key,
                selection,
                stored: known.response(),
            };
            FetchPlan::Coalesced(Box::new(CoalescedFetch { why, spec }))
        })
    }

    /// Serves the stale copy, with a refresh unless one was started recently.
    fn serve_stale(&self, hit: Hit, look: &LookupContext<'_>, now: Time) -> Served {
        // No refresh for a request with `only-if-cached` or a prefetch, which must not use up the pause either.
        let request = look.request;
        if look.facts.only_if_cached()
            || is_for_hits_only(request.method, request.fields, self.rules(look.route))
            || !self.claim_refresh(&hit, now)
        {
            return Served::Now(self.answer_on(look, hit, now, Outcome::Stale));
        }
        let spec = FetchSpec {
            key: look.key.into(),
            selection: hit.object().selection(look.view),
            stored: Some(hit.clone()),
        };
        let response = self.answer_on(look, hit, now, Outcome::Stale);
        let refresh = Box::new(Refresh {
            route: look.route,
            facts: self.facts_of_fetch(look),
            spec,
        });
        Served::NowAndRefresh(response, refresh)
    }

    /// The reason a request should not be coalesced, if there is one.
    pub(crate) fn why_direct(
        &self,
        look: &LookupContext<'_>,
        known: &MemoryLookup,
        selection: &[u8],
        may_coalesce: bool,
        now: Time,
    ) -> Option<Detail> {
        let nothing_fits = !matches!(known, MemoryLookup::Response(_));
        if !may_coalesce {
            Some(Detail::Credentials)
        } else if !self.routes[look.route].collapse {
            Some(Detail::CollapseOff)
        } else if nothing_fits && self.cache.is_too_large(look.key, selection, now) {
            Some(Detail::TooLarge)
        } else if self.is_sent_whole(look, now) {
            Some(Detail::Withheld)
        } else {
            let why = known.uncacheable(selection, now)?;
            Some(match why {
                Detail::FormToken => why,
                _ => Detail::HitForMiss,
            })
        }
    }

    /// Returns true if the last request with the same fields withheld got a response that was not
    /// shareable.
    fn is_sent_whole(&self, look: &LookupContext<'_>, now: Time) -> bool {
        if !self.cache.sends_any_whole() {
            return false;
        }
        let withheld = withheld_names(look.view, &self.cache.known_vary(look.key, now));
        !withheld.is_empty() && self.cache.is_sent_whole(look.key, &withheld, now)
    }
}

/// The reason to ask the origin where the request selects no response.
pub(crate) fn nothing_selected(known: &MemoryLookup) -> Forward {
    match known {
        MemoryLookup::Key(object) if object.variants().next().is_some() => Forward::VaryMiss,
        _ => Forward::UriMiss,
    }
}

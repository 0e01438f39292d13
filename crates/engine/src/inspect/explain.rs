//! Explanation of a decision: the steps of [`Engine::serve`] without side effects. Nothing is
//! counted, revalidated or stored, and the origin is not asked; [`Engine::ask_for_operator`] asks
//! it.

use std::sync::Arc;

use http::Method;
use microcache_policy::edge::PagePieces;
use microcache_policy::key::{self, KeyBuf};
use microcache_policy::reuse::{Reuse, reuse};
use microcache_policy::status::{CacheStatus, Forward};
use microcache_policy::{
    Detail, Explanation, FieldBlock, Lifetime, NotCompressed, OmittedFields, RequestFacts, Rules,
    SentCoding, SharedRequest, Time, VaryNames,
};
use microcache_store::{Hit, Object, ResponseEncodings, Stored, TagNumbers};

use bytes::Bytes;

use crate::cache::MemoryLookup;
use crate::cache::flight::ActiveFetch;
use crate::message::{ForwardedRequest, Request, Response};
use crate::request::encoded::unsuited;
use crate::request::engine::Engine;
use crate::request::failure::NoResponse;
use crate::request::lookup_context::LookupContext;
use crate::request::plan::{DirectFetch, FetchPlan, FetchReason};
use crate::request::request_facts::{RequestMode, mode_of};
use crate::request::request_key::key_of;
use crate::request::route::Bypass;
use crate::request::serve::{Served, nothing_selected};
use crate::request::usability::Usability;

/// The explained decision on a request.
#[derive(Debug)]
pub struct Explained {
    pub(crate) route: usize,
    /// The name of its route in logs.
    pub route_name: String,
    /// The rules of the route.
    pub rules: Rules,
    /// Nothing on the route is looked up or stored.
    pub passes: bool,
    /// The reason it bypasses the cache nevertheless, if it does.
    pub bypass: Option<Bypass>,
    /// The facts read from the request.
    pub facts: RequestFacts,
    /// The cache key, unless it bypasses the cache.
    pub key: KeyBuf,
    /// The key is that of a url with fewer parameters, which is equivalent by `No-Vary-Search`.
    pub is_simplified: bool,
    /// The time of the decision.
    pub now: Time,
    /// The decision.
    pub decision: Decision,
    /// The fetch that it would join, if one is under way.
    pub joins: Option<ActiveFetch>,
    /// The reason the last response to such a request was not stored, if that keeps this one from
    /// being coalesced.
    pub remembered: Option<Detail>,
    /// The entries under its key: all variants in memory, and those of the nearest tier.
    pub variants: Vec<ExplainedVariant>,
    /// The request fields that a coalesced fetch would withhold from the origin.
    pub left_out: OmittedFields,
    /// The encoding that it would be sent in, if memory answers it and its route compresses.
    pub compression: Option<Result<Compressed, NotCompressed>>,
}

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// The coding.
    pub coding: SentCoding,
    /// Bytes as stored.
    pub before: u64,
    /// Bytes as sent.
    pub after: u64,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Passed to the origin. Without a detail the route is the reason.
    Pass(Forward, Option<Detail>),
    /// Answered with a stored response.
    Stored {
        /// Fresh, or stale while it is refreshed. Beyond its stale window it is served only while a
        /// refresh is under way.
        reuse: Reuse,
        /// The tier it was found in; `None` for memory.
        tier: Option<Detail>,
        /// Whole seconds of freshness left.
        ttl: i64,
    },
    /// The request goes to the origin.
    Ask {
        /// The reason for the request to the origin.
        forward: Forward,
        /// The reason it is not coalesced.
        detail: Option<Detail>,
        /// The reason the selected stored response is not reused, if one is selected.
        reuse: Option<Reuse>,
        /// It joins a fetch under way.
        joins: bool,
    },
    /// The origin would have to be contacted, but the request is `only-if-cached`.
    OnlyIfCached(Forward),
}

/// A stored response.
#[derive(Debug)]
pub struct ExplainedVariant {
    /// The tier; `None` for memory.
    pub tier: Option<&'static str>,
    /// The request selects it.
    pub is_selected: bool,
    /// The status code.
    pub status: u16,
    /// Its field lines.
    pub fields: FieldBlock,
    /// The freshness lifetime and stale windows.
    pub lifetime: Lifetime,
    /// The request fields that it varies on.
    pub vary: VaryNames,
    /// The values of those fields.
    pub selection: Bytes,
    /// The hashes of its tags and groups.
    pub tags: TagNumbers,
    /// Bytes, head and body together.
    pub size: u64,
    /// The pieces of a page whose tags are replaced.
    pub pieces: Option<Arc<PagePieces>>,
    /// The approximate number of hits since it entered memory.
    pub uses: u32,
}

impl Decision {
    /// Returns true for a hit: a fresh response from memory or a tier as near.
    pub const fn is_hit(&self) -> bool {
        matches!(
            self,
            Self::Stored {
                reuse: Reuse::Fresh,
                ..
            }
        )
    }

    /// The explanation of this decision.
    pub fn explanation(&self) -> Explanation {
        match *self {
            Self::Stored { reuse, .. }
            | Self::Ask {
                reuse: Some(reuse), ..
            } => reuse.explanation(),
            Self::Pass(_, Some(detail))
            | Self::Ask {
                detail: Some(detail),
                ..
            } => detail.explanation(),
            Self::Pass(forward, None) | Self::Ask { forward, .. } => forward.explanation(),
            Self::OnlyIfCached(_) => Detail::OnlyIfCached.explanation(),
        }
    }

    /// The `Cache-Status` parameters, as far as they are known before the origin is asked.
    pub fn cache_status(&self) -> CacheStatus {
        let none = CacheStatus::default();
        match *self {
            Self::Stored { tier, ttl, .. } => CacheStatus {
                hit: true,
                ttl: Some(ttl),
                detail: tier,
                ..none
            },
            Self::Pass(forward, detail) => CacheStatus {
                fwd: Some(forward),
                detail,
                ..none
            },
            Self::Ask {
                forward,
                detail,
                joins,
                ..
            } => CacheStatus {
                fwd: Some(forward),
                detail,
                collapsed: joins,
                ..none
            },
            Self::OnlyIfCached(forward) => CacheStatus {
                fwd: Some(forward),
                detail: Some(Detail::OnlyIfCached),
                ..none
            },
        }
    }
}

impl Explained {
    /// The number of its route.
    pub const fn route(&self) -> usize {
        self.route
    }
}

impl Engine {
    /// Explains the decision on a request.
    pub async fn explain(&self, request: &Request<'_>) -> Explained {
        let now = self.clock.now();
        let found = self.find(request);
        let route = &self.routes[found.route];
        let facts = self.facts_on(route, request);
        let facts = facts.of_target(request.target, &route.rules);
        let key = key_of(request, &route.rules);
        let mut explained = Explained {
            route: found.route,
            route_name: route.name.clone(),
            rules: route.rules.clone(),
            passes: route.pass,
            bypass: found.bypass,
            facts,
            key,
            is_simplified: false,
            now,
            decision: Decision::Pass(Forward::Bypass, None),
            joins: None,
            remembered: None,
            variants: Vec::new(),
            left_out: OmittedFields::default(),
            compression: None,
        };
        let together = match mode_of(route, found.bypass, &facts) {
            RequestMode::Pass(forward, detail) => {
                explained.decision = Decision::Pass(forward, detail);
                return explained;
            }
            RequestMode::Direct => false,
            RequestMode::Coalesced => true,
        };
        if route.answers_at_once {
            explained.decision = match route
                .origin
                .ready_response_for(request.target, request.fields)
            {
                Some(hit) => Decision::Stored {
                    reuse: Reuse::Fresh,
                    tier: None,
                    ttl: whole_seconds(&hit, now),
                },
                None => Decision::Pass(Forward::UriMiss, None),
            };
            return explained;
        }
        let view = request.origin_view(&route.rules);
        let (key, since) = self.key_and_since(route, request, &view, together, now);
        explained.is_simplified = key != explained.key;
        explained.key = key;
        let known = self.cache.look_up(&explained.key, &view, now);
        explained.variants = self.variants(&explained.key, &known);
        explained.left_out = OmittedFields::of(&view, &self.known_vary(&explained.key, None, now));
        let look = LookupContext {
            route: found.route,
            key: &explained.key,
            request,
            view: &view,
            facts: &facts,
        };
        let mut behind = TierExplanation::default();
        let decision = match self.of_memory(&look, &known, since, now) {
            Ok(decision) => decision,
            Err(forward) => {
                self.of_tiers(&look, &known, (forward, together), now, &mut behind)
                    .await
            }
        };
        if let (MemoryLookup::Response(hit), Decision::Stored { tier: None, .. }) =
            (&known, decision)
        {
            explained.compression = self.compression(&look, hit);
        }
        explained.decision = decision;
        explained.joins = behind.joins;
        explained.remembered = behind.remembered;
        explained.variants.extend(behind.variants);
        explained
    }

    /// The response from memory, or the reason to ask the origin.
    fn of_memory(
        &self,
        look: &LookupContext<'_>,
        known: &MemoryLookup,
        since: Time,
        now: Time,
    ) -> Result<Decision, Forward> {
        let MemoryLookup::Response(hit) = known else {
            return Err(nothing_selected(known));
        };
        let stored = |reuse| Decision::Stored {
            reuse,
            tier: None,
            ttl: whole_seconds(hit, now),
        };
        match self.usability(hit, look.key, look.view, look.facts, now) {
            _ if hit.began() < since => Err(Forward::Stale),
            Usability::Fresh => Ok(stored(Reuse::Fresh)),
            Usability::Stale => Ok(stored(Reuse::Stale)),
            Usability::None(forward) => Err(forward),
        }
    }

    /// The encoding that a stored response would be sent in. Nothing is encoded.
    fn compression(
        &self,
        look: &LookupContext<'_>,
        hit: &Hit,
    ) -> Option<Result<Compressed, NotCompressed>> {
        let rules = self.rules(look.route);
        if !rules.compress.is_on() {
            return None;
        }
        if let Some(why) = unsuited(rules, hit) {
            return Some(Err(why));
        }
        let none = ResponseEncodings::of(Arc::default());
        let encoded = hit.known_encoded().unwrap_or(&none);
        let sent = self.choice(look, hit, encoded).sent;
        Some(sent.map(|(coding, body)| Compressed {
            coding,
            before: hit.body_len(),
            after: body.len() as u64,
        }))
    }

    /// The decision on a request that memory does not answer.
    async fn of_tiers(
        &self,
        look: &LookupContext<'_>,
        known: &MemoryLookup,
        (forward, together): (Forward, bool),
        now: Time,
        all: &mut TierExplanation,
    ) -> Decision {
        let selection = known.selection(look.view);
        let detail = self.why_direct(look, known, &selection, together, now);
        if matches!(detail, Some(Detail::HitForMiss | Detail::FormToken)) {
            all.remembered = known.uncacheable(&selection, now);
        }
        let behind = self.tier_candidates(look, now).await;
        all.variants = behind.iter().map(TierCandidate::variant).collect();
        let usable = behind.iter().find(|one| one.reuse.is_some());
        let found = usable.filter(|_| detail.is_none()).filter(|one| {
            // A request with `only-if-cached` does not wait for a tier either.
            !look.facts.only_if_cached() || self.is_in_memory(look, one, known)
        });
        if let Some(one) = found {
            return Decision::Stored {
                reuse: one.reuse.unwrap_or(Reuse::Fresh),
                tier: Some(one.tier),
                ttl: whole_seconds(&one.hit, now),
            };
        }
        if look.facts.only_if_cached() {
            return Decision::OnlyIfCached(forward);
        }
        let reuse = match known {
            MemoryLookup::Response(hit) => Some(reuse(&hit.lifetime(), look.facts, now)),
            _ => None,
        };
        if detail.is_none() {
            all.joins = self.cache.to_join(&look.key.into(), &selection);
        }
        Decision::Ask {
            forward: if together { forward } else { Forward::Request },
            detail,
            reuse,
            joins: all.joins.is_some(),
        }
    }

    /// The tiers' responses to a request, the nearest tier first.
    async fn tier_candidates(&self, look: &LookupContext<'_>, now: Time) -> Vec<TierCandidate> {
        if self.cache.has_no_tiers() {
            return Vec::new();
        }
        let mut all = Vec::new();
        let mut next = self.cache.copy_in_tiers(look.key, look.view).await;
        while let Some(found) = next.take() {
            let (tier, is_shared) = (found.tier(), found.is_shared());
            let one = TierCandidate::new(found.into_hit(), tier, is_shared, look.facts, now);
            // A shared tier may have a newer one from another process.
            if one.reuse.is_none() && !is_shared {
                next = self.cache.copy_in_shared_tiers(look.key, look.view).await;
            }
            all.push(one);
        }
        let is_found = all.iter().any(|one| one.reuse.is_some());
        let (request, rules) = (look.request, look.view.rules);
        let host = key::normal_host(request.scheme, request.host);
        let kept = key::kept_target(request.target, &rules.key);
        let kept = Bytes::from(kept.unwrap_or_else(|| request.target.to_vec()));
        let target = self.target_of(look.route, look.key, &kept);
        let url = (&host[..], &target[..]);
        if !is_found
            && let Some(page) = self
                .application_page(look.key, look.route, look.facts, url)
                .await
        {
            let tier = Detail::MemcachedPage;
            all.push(TierCandidate::new(page, tier, true, look.facts, now));
        }
        all
    }

    /// Returns true if a tier's response is available without waiting.
    fn is_in_memory(
        &self,
        look: &LookupContext<'_>,
        one: &TierCandidate,
        known: &MemoryLookup,
    ) -> bool {
        let mut is_fresh = false;
        // The entry is only inspected, and not promoted.
        let look_only = |stored: &Stored| {
            is_fresh = reuse(&stored.lifetime(), look.facts, self.clock.now()) == Reuse::Fresh;
            false
        };
        let is_near = !one.is_shared && !matches!(known, MemoryLookup::Response(_));
        let _ = is_near.then(|| self.cache.try_promote(look.key, look.view, look_only));
        is_fresh
    }

    /// The variants in memory under a key.
    fn variants(&self, key: &[u8], known: &MemoryLookup) -> Vec<ExplainedVariant> {
        let selected: Option<&Stored> = match known {
            MemoryLookup::Response(hit) => Some(hit),
            _ => None,
        };
        let all = known.object().into_iter().flat_map(Object::variants);
        let is_selected = |one: &Stored| selected.is_some_and(|hit| std::ptr::eq(hit, one));
        all.filter(|one| !self.cache.is_purged(key, one))
            .map(|one| ExplainedVariant::of(one, None, is_selected(one)))
            .collect()
    }

    /// Fetches a request from the origin as its client would. A response that would have been
    /// served from the cache is discarded and changes nothing; others are stored as usual.
    pub async fn ask_for_operator(
        self: Arc<Self>,
        mut incoming: ForwardedRequest,
        explained: &Explained,
    ) -> Result<Response, NoResponse> {
        let plan = match explained.decision {
            Decision::Stored { .. } | Decision::OnlyIfCached(_) => {
                let rules = self.rules(explained.route);
                let now = self.clock.now();
                let known = self.cache.known_vary(&explained.key, now);
                let shared = SharedRequest::of(incoming.outgoing.fields(), rules, &known);
                incoming.outgoing = shared.fields;
                incoming.head.method = Method::GET;
                self.reduce_to_key(explained.route, &mut incoming);
                fetch_without_storing(explained, now)
            }
            _ => match self.look_up_again(&incoming) {
                Served::Fetch(plan) => plan,
                // It has been stored since.
                Served::Now(response) | Served::NowAndRefresh(response, _) => return Ok(response),
                Served::Failed(failed) => return Err(failed),
            },
        };
        self.ask(plan, incoming).await
    }
}

/// A fetch whose response changes nothing.
fn fetch_without_storing(explained: &Explained, at: Time) -> FetchPlan {
    let why = FetchReason {
        route: explained.route,
        facts: explained.facts,
        forward: Forward::Bypass,
        detail: None,
        at,
    };
    FetchPlan::Direct(Box::new(DirectFetch {
        why,
        key: None,
        whole: true,
        may_have_copy: false,
    }))
}

/// Further facts about a request that memory does not answer.
#[derive(Default)]
struct TierExplanation {
    variants: Vec<ExplainedVariant>,
    joins: Option<ActiveFetch>,
    remembered: Option<Detail>,
}

/// An entry of a tier.
struct TierCandidate {
    hit: Hit,
    tier: Detail,
    is_shared: bool,
    /// The reuse that it allows, if any.
    reuse: Option<Reuse>,
}

impl TierCandidate {
    fn new(hit: Hit, tier: Detail, is_shared: bool, facts: &RequestFacts, now: Time) -> Self {
        let reuse = reuse(&hit.lifetime(), facts, now);
        let usable = matches!(reuse, Reuse::Fresh | Reuse::Stale);
        Self {
            hit,
            tier,
            is_shared,
            reuse: usable.then_some(reuse),
        }
    }

    fn variant(&self) -> ExplainedVariant {
        ExplainedVariant::of(&self.hit, Some(self.tier.as_str()), true)
    }
}

impl ExplainedVariant {
    fn of(stored: &Stored, tier: Option<&'static str>, is_selected: bool) -> Self {
        Self {
            tier,
            is_selected,
            status: stored.status(),
            fields: stored.fields().into(),
            lifetime: stored.lifetime(),
            vary: stored.vary().clone(),
            selection: Bytes::copy_from_slice(stored.selection()),
            tags: stored.tags().clone(),
            size: stored.body_len() + stored.fields().as_block().len() as u64,
            pieces: stored.pieces().map(Arc::clone),
            uses: stored.uses(),
        }
    }
}

fn whole_seconds(stored: &Stored, now: Time) -> i64 {
    stored.lifetime().ttl(now).div_euclid(1000)
}

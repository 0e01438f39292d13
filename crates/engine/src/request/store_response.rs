//! Storing a response: decides whether it is storable, and makes its head. Its body follows while
//! it arrives: see [`FillPump`](crate::fill::FillPump).

use std::sync::Arc;

use bytes::Bytes;
use microcache_policy::compression;
use microcache_policy::vary::{self, Selection, VaryNames};
use microcache_policy::{
    CacheKind, CacheStatus, Detail, FieldBlock, Fields, FieldsBuf, Lifetime, LineStart, OriginView,
    RequestFacts, ResponseFacts, Rules, Storable, Time, date, fields_to_store, names, storable,
};
use microcache_store::{FetchCost, Stored, TagNumbers, clock};

use crate::body::Body;
use crate::cache::fetch_outcome::Filling;
use crate::cache::flight::Leader;
use crate::fill::{Fill, FillReader};
use crate::message::{ForwardedRequest, Response};
use crate::origin::{ExchangeTimes, OriginResponse};
use crate::request::divide::divided_as;
use crate::request::encoded::{confirmed, named_by_origin, note_compression};
use crate::request::engine::Engine;
use crate::request::respond::Reusable;
use crate::request::route::Route;
use crate::request::tags::{renewed_tags, tags_of};

/// A storable response as the leader gets it, with the fields that must not be replayed to other
/// clients.
pub(crate) struct LeaderResponse {
    pub(crate) filling: Arc<Filling>,
    reader: FillReader,
    fields: FieldBlock,
    /// The response is to be stored; false if a purge came first.
    is_kept: bool,
}

impl LeaderResponse {
    /// The response to the leader.
    pub(crate) fn respond(
        self,
        request: Fields<'_>,
        facts: &RequestFacts,
        now: Time,
        mut cache_status: CacheStatus,
    ) -> Response {
        cache_status.stored = self.is_kept;
        if self.filling.tags.are_every() {
            cache_status.detail = Some(Detail::TooManyTags);
        }
        let reusable = Reusable::first(&self.filling, &self.fields, self.reader);
        reusable.respond_first(request, facts, now, cache_status)
    }
}

impl Engine {
    /// The largest body stored at all, in bytes: on disk, if there is one.
    pub(crate) fn largest(&self, route: &Route) -> u64 {
        route.max_object.min(self.cache.largest())
    }

    /// The largest body stored in memory, in bytes.
    pub(crate) fn largest_in_memory(&self, route: &Route) -> u64 {
        route.max_object.min(self.cache.largest_in_memory())
    }

    /// Creates the shared response and its first reader.
    pub(crate) fn begin_fill(
        &self,
        leader: &Leader,
        route: &Route,
        mut response: OriginResponse,
        keepable: StorableHead,
        incoming: &ForwardedRequest,
        times: &ExchangeTimes,
    ) -> (LeaderResponse, Body) {
        let is_kept = self.cache.may_keep(leader, &keepable.tags);
        let (vary, selection) =
            self.note_storable(leader, route, &keepable, is_kept, incoming, times);
        let fill = Fill::new(&self.fill_budget);
        let reader = fill.reader().expect("no chunk has been released yet");
        let derived = keepable.derived;
        let filling = Filling {
            has_tags: route.rules.edge.covers(keepable.fields.fields()),
            status: response.status,
            fields: keepable.fields.into(),
            length: response.length,
            lifetime: keepable.lifetime,
            vary,
            selection: Bytes::copy_from_slice(&selection),
            leader_request: incoming.leader_request(),
            began: times.began,
            tags: keepable.tags,
            cost: keepable.cost,
            fill,
        };
        add_derived_fields(
            &mut response.fields,
            filling.fields.fields(),
            derived,
            route,
        );
        let copy = LeaderResponse {
            filling: Arc::new(filling),
            reader,
            fields: response.fields.into(),
            // Whether one is stored that is scanned for tokens is known at its end.
            is_kept: is_kept && !keepable.lifetime.is_anonymous(),
        };
        (copy, response.body)
    }

    /// Records what a storable response says besides its body. Returns the request fields that select it, and their
    /// values.
    pub(crate) fn note_storable(
        &self,
        leader: &Leader,
        route: &Route,
        keepable: &StorableHead,
        is_kept: bool,
        incoming: &ForwardedRequest,
        times: &ExchangeTimes,
    ) -> (VaryNames, Selection) {
        let (key, now) = (leader.key(), times.response);
        if incoming.content.is_some() {
            self.cache.note_queried(key, now);
        }
        if is_kept && keepable.tags.are_every() {
            self.cache.count_too_many_tags();
        }
        let vary = self.cache.vary_of(key, &keepable.named, now);
        let mut selection = Selection::new();
        vary::select(&vary, &incoming.origin_view(&route.rules), &mut selection);
        (vary, selection)
    }
}

/// Changes the origin's fields to those that the leader gets: without `Age`, and with the `Vary` of what is stored.
pub(crate) fn add_derived_fields(
    response: &mut FieldsBuf,
    stored: Fields<'_>,
    derived: DerivedFields,
    route: &Route,
) {
    if derived.has_age {
        response.remove("age");
    }
    if derived.has_vary {
        if let Some(dictionary) = stored.get("use-as-dictionary") {
            response.set("Use-As-Dictionary", dictionary);
        }
        if compression::varies_on_codings(stored) {
            compression::note_vary(response, route.rules.compress.dictionaries);
        }
    }
}

/// The storable part of a response besides its body.
pub(crate) struct StorableHead {
    pub(crate) fields: FieldsBuf,
    pub(crate) lifetime: Lifetime,
    /// The fields in its `Vary`.
    named: VaryNames,
    pub(crate) tags: TagNumbers,
    pub(crate) cost: FetchCost,
    pub(crate) derived: DerivedFields,
}

/// The fields that differ between the origin's response and what is stored.
#[derive(Clone, Copy)]
pub(crate) struct DerivedFields {
    /// The origin's fields have an `Age`, which is not stored.
    has_age: bool,
    /// The stored fields have a `Vary`: the origin's, or that of a compressible response.
    has_vary: bool,
}

/// Decides whether a response to a fetch of `key` is storable; if not, returns the reason.
pub(crate) fn judge(
    engine: &Engine,
    route: &Route,
    key: &[u8],
    facts: &RequestFacts,
    response: &OriginResponse,
    times: &ExchangeTimes,
) -> Result<StorableHead, Detail> {
    if response
        .length
        .is_some_and(|length| length > engine.largest(route))
    {
        return Err(Detail::TooLarge);
    }
    let read = ResponseFacts::read(response.fields.fields(), &route.rules);
    match storable(facts, response.status, &read, times.judged()) {
        // One that is scanned for tokens is kept in memory meanwhile.
        Storable::Yes(lifetime)
            if lifetime.is_anonymous()
                && response.length > Some(engine.largest_in_memory(route)) =>
        {
            Err(Detail::TooLarge)
        }
        Storable::Yes(lifetime) => {
            let mut fields = fields_to_store(&read);
            let is_compressible = note_compression(
                &route.rules,
                key,
                response.status,
                &mut fields,
                response.length,
            );
            Ok(StorableHead {
                fields,
                lifetime,
                derived: DerivedFields {
                    has_age: read.has_age(),
                    has_vary: is_compressible || read.has_vary(),
                },
                tags: tags_of(key, &read, times),
                cost: times.cost(),
                named: read.into_vary().names(),
            })
        }
        Storable::No(why) => Err(why.detail()),
    }
}

impl Engine {
    /// The stored response, updated by the origin's confirmation. From now on it is selected by the
    /// confirmation's `Vary`, with the values of the request that it answered.
    pub(crate) fn renewed(
        &self,
        key: &[u8],
        stored: &Stored,
        fields: &FieldsBuf,
        lifetime: Lifetime,
        request: &OriginView<'_>,
        times: &ExchangeTimes,
    ) -> Stored {
        let rules = request.rules;
        let read = ResponseFacts::read(fields.fields(), rules);
        let tags = renewed_tags(key, stored, &read, times, rules);
        let named = named_by_origin(rules, read.into_vary().names(), stored.vary());
        let vary = self.cache.vary_of(key, &named, times.response);
        let mut selection = Selection::new();
        vary::select(&vary, request, &mut selection);
        let mut fields = fields.clone();
        note_compression(
            rules,
            key,
            stored.status(),
            &mut fields,
            Some(stored.body_len()),
        );
        let renewed = Stored::new(
            key,
            stored.status(),
            fields.fields(),
            stored.content(),
            lifetime,
            times.began,
        );
        let renewed = renewed
            .with_vary(vary, &selection)
            .with_tags(tags)
            .with_cost(stored.cost());
        divided_as(stored, confirmed(rules, renewed, stored), rules)
    }
}

/// Adds the fields that a recipient adds (RFC 9110 §6.6.1, §7.6.3).
pub(crate) fn complete(fields: &mut FieldsBuf, rules: &Rules, now: Time) {
    if fields.fields().value(names::DATE).is_none() {
        fields.push("Date", date::format(clock::date(now)));
    }
    // A private cache is not an intermediary.
    if rules.kind == CacheKind::Shared {
        const VIA: LineStart = LineStart::of("Via: ");
        fields.push_line(VIA, [b"1.1 microcache"]);
    }
}

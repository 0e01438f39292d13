//! Storing a response that arrived whole, as small ones do: without a fill, from which others read while it arrives.

use bytes::Bytes;
use microcache_policy::NoVarySearch;
use microcache_store::{ClaimGuard, Stored};

use crate::body::Body;
use crate::cache::ChangeKind;
use crate::cache::flight::Leader;
use crate::fill::pace::FREE;
use crate::origin::{ExchangeTimes, OriginResponse};
use crate::request::encoded::with_encodings_of;
use crate::request::engine::Engine;
use crate::request::fetch::Fetch;
use crate::request::route::Route;
use crate::request::store_response::{StorableHead, add_derived_fields};
use crate::request::whole_response::WholeResponse;

impl Engine {
    /// Returns the body of a response that can be stored at once: it is there, and no other request waits for it. Waiters
    /// share a response whatever its lifetime, and read it from a fill.
    pub(crate) fn body_at_once(
        &self,
        leader: &Leader,
        route: &Route,
        response: &OriginResponse,
        keepable: &StorableHead,
    ) -> Option<Bytes> {
        let Body::Full(body) = &response.body else {
            return None;
        };
        let length = body.len() as u64;
        let is_at_once = response.length == Some(length)
            && length <= self.largest_in_memory(route).min(FREE)
            && self.settings.fill_timeout > 0
            && !keepable.lifetime.is_anonymous()
            && !route.rules.edge.covers(keepable.fields.fields())
            && !leader.has_waiters();
        is_at_once.then(|| body.clone())
    }

    /// Stores a response with its whole body.
    pub(crate) fn store_at_once(
        &self,
        leader: &Leader,
        fetch: &Fetch,
        mut response: OriginResponse,
        (keepable, body): (StorableHead, Bytes),
        times: &ExchangeTimes,
        claimed: Option<ClaimGuard>,
    ) -> WholeResponse {
        let (route, incoming) = (&self.routes[fetch.route], &fetch.incoming);
        let (cache, rules, key) = (&self.cache, &route.rules, leader.key());
        let is_kept = cache.may_keep(leader, &keepable.tags);
        let (vary, selection) =
            self.note_storable(leader, route, &keepable, is_kept, incoming, times);
        let may_state_query = NoVarySearch::may_be_in(response.fields.fields());
        let fields = keepable.fields.fields();
        add_derived_fields(&mut response.fields, fields, keepable.derived, route);
        let has_too_many_tags = keepable.tags.are_every();
        let (status, lifetime, began) = (response.status, keepable.lifetime, times.began);
        let stored = Stored::new(key, status, fields, body.clone().into(), lifetime, began)
            .with_vary(vary, &selection)
            .with_tags(keepable.tags)
            .with_cost(keepable.cost);
        let request = incoming.origin_view(rules);
        cache.forget_too_large(key, &request);
        let before = cache.to_be_replaced(rules, key, &request);
        let stored = with_encodings_of(rules, stored, before.as_ref(), cache.largest_in_memory());
        let kind = ChangeKind::Stored;
        let is_stored =
            cache.commit_known(leader, stored, &request, claimed, kind, may_state_query);
        self.make_again(rules, key, before.as_ref(), &request);
        WholeResponse {
            status,
            lifetime,
            fields: response.fields.into(),
            body,
            is_stored,
            has_too_many_tags,
        }
    }
}

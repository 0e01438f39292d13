//! What a request would be given of what memory has, for somebody who watches for another answer. Nothing is
//! counted, renewed or stored, and nobody is asked.

use microcache_policy::{Millis, Time};
use microcache_store::{Hit, Key};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::Watched;
use crate::message::Request;
use crate::serve::{Engine, Use, Way, facts_of, key_of, way_of};

/// A stored response that is the answer to a request.
pub struct Glance {
    hit: Hit,
    /// How long it is fresh; zero if it is stale.
    pub fresh_for: Millis,
}

impl Glance {
    /// When it was asked for: another response has another time, mostly.
    pub fn began(&self) -> Time {
        self.hit.began
    }

    /// Its status code.
    pub fn status(&self) -> u16 {
        self.hit.status
    }

    /// A number that is another one where the content is. It is read for that.
    pub fn version(&self) -> u64 {
        match (self.hit.body.bytes(), self.tag()) {
            (Some(bytes), _) => xxh3_64(bytes),
            (None, Some(tag)) => xxh3_64(tag),
            (None, None) => self.hit.began.as_millis(),
        }
    }

    /// Its entity tag.
    pub fn tag(&self) -> Option<&[u8]> {
        self.hit.fields().get("etag")
    }
}

impl Engine {
    /// What a request would be given of what memory has.
    pub fn glance(&self, request: &Request<'_>, now: Time) -> Option<Glance> {
        let found = self.find(request);
        let route = &self.routes[found.route];
        let facts = facts_of(request, &route.rules);
        if !matches!(way_of(route, found.bypass, &facts), Way::Together) || route.answers_at_once {
            return None;
        }
        let key = key_of(request, &route.rules);
        let view = request.origin_view(&route.rules);
        let hit = self.cache.look_up(&key, &view, now).response()?;
        match self.use_of(&hit, &key, &view, &facts, now) {
            Use::Fresh => {
                let fresh_for = hit.lifetime.ttl(now).max(0).cast_unsigned();
                Some(Glance { hit, fresh_for })
            }
            Use::Stale => Some(Glance { hit, fresh_for: 0 }),
            Use::None(_) => None,
        }
    }

    /// What is stored under the key of a request, to be watched.
    pub fn watched(&self, request: &Request<'_>) -> Watched {
        Watched::Key(Key::from(&*key_of(request, &self.route(request).rules)))
    }
}

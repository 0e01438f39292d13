//! Side-effect-free memory lookup for page watchers: nothing is counted, revalidated or stored, and
//! neither tier nor origin is asked.

use microcache_policy::{FieldsBuf, Millis, Time, is_identity};
use microcache_store::{Hit, Key};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::WatchTarget;
#[cfg(feature = "compress")]
use crate::compress::decoded::decoded;
use crate::message::Request;
use crate::request::engine::Engine;
use crate::request::request_facts::{RequestMode, mode_of};
use crate::request::usability::Usability;

/// The response in memory that would answer a request.
#[derive(Clone)]
pub struct Peek {
    hit: Hit,
    /// The freshness left in milliseconds; zero if it is stale.
    pub fresh_for: Millis,
}

impl Peek {
    /// The time at which it was requested; mostly different for another response.
    pub fn began(&self) -> Time {
        self.hit.began()
    }

    /// Its status code.
    pub fn status(&self) -> u16 {
        self.hit.status()
    }

    /// A number that differs if the content does, computed from the content or its validator.
    pub fn version(&self) -> u64 {
        match (self.hit.body(), self.tag()) {
            (Some(bytes), _) => xxh3_64(bytes),
            (None, Some(tag)) => xxh3_64(tag),
            (None, None) => self.hit.began().as_millis(),
        }
    }

    /// Its media type.
    pub fn media_type(&self) -> &[u8] {
        self.hit.fields().get("content-type").unwrap_or_default()
    }

    /// Returns true if [`Self::content`] can return the body, which is then also small enough to
    /// keep.
    pub fn may_have_content(&self, most: usize) -> bool {
        self.hit.status() == 200 && self.hit.body().is_some_and(|it| it.len() <= most)
    }

    /// The decoded content, if it has at most `most` bytes.
    #[cfg(feature = "compress")]
    pub fn content(&self, most: usize) -> Option<Vec<u8>> {
        let coding = self.hit.fields().get("content-encoding");
        let body = self.hit.body().filter(|_| self.may_have_content(most))?;
        decoded(coding, body, most)
    }

    /// Its entity tag.
    pub fn tag(&self) -> Option<&[u8]> {
        self.hit.fields().get("etag")
    }
}

impl Engine {
    /// Looks up the response in memory that would answer a request.
    pub fn peek(&self, request: &Request<'_>, now: Time) -> Option<Peek> {
        let found = self.find(request);
        let route = &self.routes[found.route];
        let facts = self.facts_on(route, request);
        if !matches!(mode_of(route, found.bypass, &facts), RequestMode::Coalesced)
            || route.answers_at_once
        {
            return None;
        }
        let view = request.origin_view(&route.rules);
        let (key, since) = self.key_and_since(route, request, &view, true, now);
        let hit = self.cache.look_up(&key, &view, now).response()?;
        match self.usability(&hit, &key, &view, &facts, now) {
            _ if hit.began() < since => None,
            Usability::Fresh => {
                let fresh_for = hit.lifetime().ttl(now).max(0).cast_unsigned();
                Some(Peek { hit, fresh_for })
            }
            Usability::Stale => Some(Peek { hit, fresh_for: 0 }),
            Usability::None(_) => None,
        }
    }

    /// Looks up the page in memory that a request would select without credentials, whatever its age.
    pub fn page_of_strangers(&self, route: usize, request: &Request<'_>) -> Option<Hit> {
        let (now, route) = (self.clock.now(), &self.routes[route]);
        let mut fields = FieldsBuf::new();
        fields.extend_if(request.fields, |name, _| {
            !name.eq_ignore_ascii_case(b"cookie") && !is_identity(name)
        });
        let stranger = Request {
            fields: fields.fields(),
            ..*request
        };
        let view = stranger.origin_view(&route.rules);
        let (key, since) = self.key_and_since(route, request, &view, true, now);
        let hit = self.cache.look_up(&key, &view, now).response()?;
        (hit.status() == 200 && hit.began() >= since).then_some(hit)
    }

    /// The watch target for the entries under a request's key.
    pub fn watched(&self, request: &Request<'_>) -> WatchTarget {
        let route = self.route(request);
        let view = request.origin_view(&route.rules);
        let (key, _) = self.key_and_since(route, request, &view, true, self.clock.now());
        WatchTarget::Key(Key::from(&key[..]))
    }
}

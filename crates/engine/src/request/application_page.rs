//! Pages that an application itself stores in memcached for nginx to serve.

use microcache_policy::{FieldsBuf, RequestFacts, Reuse, reuse};
use microcache_store::{Hit, Memory, Stored, TagNumbers};

use crate::body::Body;
use crate::origin::{ExchangeTimes, OriginResponse};
use crate::request::divide::divided;
use crate::request::engine::Engine;
use crate::request::store_response::{StorableHead, complete, judge};

impl Engine {
    /// The page that the application has stored for this request, as if the origin had sent it
    /// without caching directives: shareable, with the route's default lifetime.
    pub(crate) async fn application_page(
        &self,
        key: &[u8],
        route: usize,
        facts: &RequestFacts,
        (host, target): (&[u8], &[u8]),
    ) -> Option<Hit> {
        let page = self.cache.application_page(host, target).await?;
        let now = self.clock.now();
        let mut fields = FieldsBuf::new();
        fields.push("Content-Type", page.content_type);
        let route = &self.routes[route];
        complete(&mut fields, &route.rules, now);
        let response = OriginResponse {
            status: 200,
            fields,
            length: Some(page.body.len() as u64),
            body: Body::Empty,
            tunnel: None,
            waited: 0,
        };
        let times = ExchangeTimes {
            began: now,
            request: now,
            response: now,
            hashed_tags: TagNumbers::NONE,
        };
        let StorableHead {
            fields, lifetime, ..
        } = judge(self, route, key, facts, &response, &times).ok()?;
        // A reload, or a route without a default lifetime, needs the origin's response.
        if reuse(&lifetime, facts, now) != Reuse::Fresh {
            return None;
        }
        let stored = Stored::new(
            key,
            response.status,
            fields.fields(),
            page.body.into(),
            lifetime,
            now,
        );
        Some(Memory::detached_hit(divided(stored, &route.rules)))
    }
}

//! Origin of a route that changes paths: requests get the origin's form, URLs in responses the client's.
//!
//! It stands between the cache and the route's origin, so the cache knows the URLs of clients only: keys, purges, and
//! invalidation by `Location`.

mod location;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Body, Origin, OriginError, OriginRequest, OriginResponse, Request};
use microcache_policy::FieldsBuf;

use crate::config::{GoesTo, Route};
use crate::upstream::settings::{GroupSettings, ServerSettings};
use location::LocationRules;

/// Origin before which paths are changed.
pub(crate) struct RewritingOrigin {
    origin: Arc<dyn Origin>,
    route: Route,
    /// The hosts and ports of the origin's servers.
    servers: Arc<[String]>,
}

impl RewritingOrigin {
    /// Puts the changes of a route before its origin, if it makes any.
    pub(crate) fn before(
        origin: Arc<dyn Origin>,
        route: &Route,
        groups: &[GroupSettings],
    ) -> Arc<dyn Origin> {
        if route.rewrite.is_off() {
            return origin;
        }
        let servers = match route.goes_to {
            GoesTo::Upstream(group) => groups[group].servers.iter(),
            _ => [].iter(),
        };
        Arc::new(Self {
            origin,
            route: route.clone(),
            servers: servers.map(ServerSettings::authority).collect(),
        })
    }

    fn target(&self, request: &OriginRequest) -> Option<Bytes> {
        let (method, fields) = (&request.method, request.fields.fields());
        let url = Request::of_url(request.scheme, &request.authority, &request.target);
        let as_sent = Request {
            method,
            fields,
            ..url
        };
        let target = self.route.rewrite.target(&as_sent, &self.route.matcher)?;
        Some(target.into())
    }
}

impl Origin for RewritingOrigin {
    fn fetch(
        &self,
        mut request: OriginRequest,
    ) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let Some(target) = self.target(&request) else {
            let refused = leads_out(&request.method);
            return Box::pin(std::future::ready(Ok(refused)));
        };
        request.target = target;
        let authority = request.authority.clone();
        let fetched = self.origin.fetch(request);
        if !self.route.rewrite.changes_location() {
            return fetched;
        }
        Box::pin(async move {
            let mut response = fetched.await?;
            let rules = LocationRules {
                rewrite: &self.route.rewrite,
                authority: &authority,
                servers: &self.servers,
            };
            for name in location::FIELDS {
                let value = response.fields.fields().get(name);
                if let Some(value) = value.and_then(|value| rules.changed(name, value)) {
                    response.fields.set(name, value);
                }
            }
            Ok(response)
        })
    }
}

/// Response to a path that some program could read as one outside the directory that the route adds.
fn leads_out(method: &Method) -> OriginResponse {
    let text = "The path leads out of its directory.\n";
    let mut fields = FieldsBuf::new();
    fields.push("Content-Type", "text/plain; charset=utf-8");
    fields.push("Cache-Control", "no-store");
    OriginResponse {
        status: 400,
        fields,
        length: Some(text.len() as u64),
        body: match *method {
            Method::HEAD => Body::Empty,
            _ => Body::Full(text.into()),
        },
        tunnel: None,
        waited: 0,
    }
}

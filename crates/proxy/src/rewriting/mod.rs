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

use crate::config::{Matcher, Rewrite, Route};
use crate::upstream::settings::ServerSettings;
use location::LocationRules;

/// Origin before which paths are changed.
pub(crate) struct RewritingOrigin {
    origin: Arc<dyn Origin>,
    rewrite: Rewrite,
    /// The conditions of the route, whose stars the rewrite may name.
    matcher: Matcher,
    /// The hosts and ports of the origin's servers.
    servers: Arc<[String]>,
}

impl RewritingOrigin {
    /// Puts the changes of a route before its origin, if it makes any.
    pub(crate) fn before(origin: Arc<dyn Origin>, route: &Route) -> Arc<dyn Origin> {
        if route.rewrite.is_off() {
            return origin;
        }
        Arc::new(Self {
            origin,
            rewrite: route.rewrite.clone(),
            matcher: route.matcher.clone(),
            servers: Arc::default(),
        })
    }

    /// Puts the path in the URLs of an upstream group before it, if there is one, behind the changes of a route.
    pub(crate) fn before_servers(
        group: Arc<dyn Origin>,
        servers: &[ServerSettings],
        route: &Route,
    ) -> Arc<dyn Origin> {
        let path = servers.first().map_or("", |server| &server.path);
        let rewrite = route.rewrite.of_origin(path);
        if rewrite.is_off() {
            return group;
        }
        Arc::new(Self {
            origin: group,
            rewrite,
            matcher: Matcher::default(),
            servers: servers.iter().map(ServerSettings::authority).collect(),
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
        let target = self.rewrite.target(&as_sent, &self.matcher)?;
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
        if !self.rewrite.changes_location() {
            return fetched;
        }
        Box::pin(async move {
            let mut response = fetched.await?;
            let rules = LocationRules {
                rewrite: &self.rewrite,
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

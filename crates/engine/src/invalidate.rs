//! What a successful unsafe request makes invalid.

use bytes::Bytes;
use http::Method;
use microcache_policy::key::normal_host;
use microcache_policy::{Fields, KeyBuf, invalidate, tags};

use crate::cache::Scope;
use crate::message::Request;
use crate::serve::{Engine, key_of};

impl Engine {
    /// RFC 9111 §4.4: a successful unsafe request makes what is stored for its target, and for
    /// the `Location` and `Content-Location` of the same origin, invalid; and what is in the groups that
    /// its response names (RFC 9875 §3).
    pub async fn invalidate_after(&self, request: &Request<'_>, status: u16, response: Fields<'_>) {
        if !invalidate::invalidates(request.method, status) {
            return;
        }
        let mut keys = Vec::from_iter(self.key_of_get(request, request.target));
        for target in invalidate::locations(response, request.scheme, request.host, request.target)
        {
            keys.extend(self.key_of_get(request, &target));
        }
        let groups = tags::invalidated_groups(request.method, status, response);
        let host = Bytes::from(normal_host(request.scheme, request.host));
        let groups = groups.into_iter().map(|name| Scope::Group {
            scheme: request.scheme,
            host: host.clone(),
            name: name.into(),
        });
        let scopes: Vec<_> = groups.collect();
        // Both count from here on, even if nobody waits for the rest.
        let (keys, groups) = (
            self.cache.invalidate(keys),
            self.cache.invalidate_all(scopes),
        );
        tokio::join!(keys, groups);
    }

    /// A GET of the target may take another route than the request that invalidates it, and
    /// routes decide what makes up a key. There is none where nothing is ever stored.
    fn key_of_get(&self, request: &Request<'_>, target: &[u8]) -> Option<KeyBuf> {
        let get = Request {
            method: &Method::GET,
            target,
            ..*request
        };
        let route = self.route(&get);
        (!route.answers_at_once).then(|| key_of(&get, &route.rules))
    }
}

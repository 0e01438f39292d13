//! What a successful unsafe request makes invalid.

use http::Method;
use microcache_policy::{Fields, KeyBuf, invalidate, tags};

use crate::cache::Scope;
use crate::message::{Incoming, Request};
use crate::serve::{Engine, key_of};

impl Engine {
    /// RFC 9111 §4.4: a successful unsafe request makes what is stored for its target, and for
    /// the `Location` and `Content-Location` of the same origin, invalid; and what is in the groups that
    /// its response names (RFC 9875 §3).
    pub(crate) async fn invalidate_after(
        &self,
        incoming: &Incoming,
        status: u16,
        response: Fields<'_>,
    ) {
        if !invalidate::invalidates(&incoming.method, status) {
            return;
        }
        let mut keys = Vec::from_iter(self.key_of_get(incoming, &incoming.target));
        for target in
            invalidate::locations(response, incoming.scheme, &incoming.host, &incoming.target)
        {
            keys.extend(self.key_of_get(incoming, &target));
        }
        self.cache.invalidate(keys).await;
        let groups = tags::invalidated_groups(&incoming.method, status, response);
        let host = &incoming.host;
        let scopes = groups.into_iter().map(|name| Scope::Group {
            scheme: incoming.scheme,
            host: host.clone(),
            name: name.into(),
        });
        self.cache.invalidate_all(scopes).await;
    }

    /// A GET of the target may take another route than the request that invalidates it, and
    /// routes decide what makes up a key. There is none where nothing is ever stored.
    fn key_of_get(&self, incoming: &Incoming, target: &[u8]) -> Option<KeyBuf> {
        let get = Request {
            method: &Method::GET,
            target,
            ..incoming.as_request()
        };
        let route = self.route(&get);
        (!route.answers_at_once).then(|| key_of(&get, &route.rules))
    }
}

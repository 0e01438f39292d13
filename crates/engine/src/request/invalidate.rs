//! Invalidation after a successful unsafe request (RFC 9111 §4.4).

use bytes::Bytes;
use http::Method;
use microcache_policy::key::normal_host;
use microcache_policy::{AcceptClass, Fields, KeyBuf, Scheme, invalidate, tags, visitor_used_tls};

use crate::cache::Scope;
use crate::message::Request;
use crate::request::engine::Engine;
use crate::request::request_key::{key_as, scope_of};
use crate::request::route::{Clients, Route};

impl Engine {
    /// Invalidates the target of a successful unsafe request, its same-origin `Location` and
    /// `Content-Location` (RFC 9111 §4.4), and the groups that its response names (RFC 9875 §3).
    ///
    /// The purge is in effect on return. The future only waits, for a bounded time, until the tiers
    /// have followed.
    pub fn invalidate_after(
        &self,
        request: &Request<'_>,
        status: u16,
        response: Fields<'_>,
    ) -> impl Future<Output = ()> + Send + use<'_> {
        let (mut keys, mut scopes) = (Vec::new(), Vec::new());
        if invalidate::invalidates(request.method, status) {
            scopes = groups_changed(request, status, response);
            match self.settings.clients {
                // A program chooses its keys: the request that changes a url need not have the same
                // fields.
                Clients::Program => scopes.extend(urls_changed(request, response)),
                Clients::Visitors => {
                    keys = self.keys_changed(request, response);
                    scopes.extend(self.queries_changed(&keys, request));
                }
            }
        }
        let (keys, groups) = (
            self.cache.invalidate(keys),
            self.cache.invalidate_all(scopes),
        );
        async {
            tokio::join!(keys, groups);
        }
    }

    /// The urls of these keys that have responses to QUERY, whose keys are not known.
    fn queries_changed(&self, keys: &[KeyBuf], request: &Request<'_>) -> Vec<Scope> {
        let mut changed = Vec::new();
        for scope in keys.iter().map(|key| scope_of(key, request)) {
            if let Scope::Url { host, target } = &scope
                && self.cache.is_queried(host, target, self.clock.now())
                && !changed.contains(&scope)
            {
                changed.push(scope);
            }
        }
        changed
    }

    fn keys_changed(&self, request: &Request<'_>, response: Fields<'_>) -> Vec<KeyBuf> {
        let mut keys = self.keys_of_get(request, request.target);
        let schemes = [request.scheme, Scheme::Https];
        // A TLS terminator's requests came by https, and applications build urls with it.
        let says_tls =
            |route: &Route| visitor_used_tls(request.fields, &route.rules.request.trusted_fields);
        let came_by = if request.is_trusted && self.routes_of_url(request).any(says_tls) {
            &schemes[..]
        } else {
            &schemes[..1]
        };
        for target in invalidate::locations(response, came_by, request.host, request.target) {
            keys.extend(self.keys_of_get(request, &target));
        }
        keys
    }

    /// The keys of a GET for this target, on all routes that it may take: routes decide the parts of
    /// a key. Each kind of representation has its own key. Empty if the routes store nothing.
    fn keys_of_get(&self, request: &Request<'_>, target: &[u8]) -> Vec<KeyBuf> {
        let get = Request {
            method: &Method::GET,
            target,
            ..*request
        };
        let mut keys = Vec::new();
        for route in self
            .routes_of_url(&get)
            .filter(|route| !route.answers_at_once)
        {
            let classes: &[_] = if route.rules.obeys_client {
                &[AcceptClass::Page]
            } else {
                &AcceptClass::ALL
            };
            for &accept in classes {
                let key = key_as(accept, &get, &route.rules);
                keys.extend(self.cache.queries.purged(&key, self.clock.now()));
                keys.push(key);
            }
        }
        keys
    }
}

/// The target and the same-origin urls that the response names, with all keys of all identities.
fn urls_changed(request: &Request<'_>, response: Fields<'_>) -> Vec<Scope> {
    let host = Bytes::from(normal_host(request.scheme, request.host));
    let named = invalidate::locations(response, &[request.scheme], request.host, request.target);
    let targets = [request.target.to_vec()].into_iter();
    let targets = targets.chain(named);
    let url = |target: Vec<u8>| Scope::Url {
        host: host.clone(),
        target: target.into(),
    };
    targets.map(url).collect()
}

fn groups_changed(request: &Request<'_>, status: u16, response: Fields<'_>) -> Vec<Scope> {
    let groups = tags::invalidated_groups(request.method, status, response);
    let host = Bytes::from(normal_host(request.scheme, request.host));
    let groups = groups.into_iter().map(|name| Scope::Group {
        scheme: request.scheme,
        host: host.clone(),
        name: name.into(),
    });
    groups.collect()
}

//! Invalidation after a successful unsafe request (RFC 9111 §4.4).

use bytes::Bytes;
use http::Method;
use microcache_policy::key::normal_host;
use microcache_policy::{AcceptClass, Fields, KeyBuf, Scheme, invalidate, says_https, tags};

use crate::cache::Scope;
use crate::message::Request;
use crate::serve::{Clients, Engine, key_as};

impl Engine {
    /// RFC 9111 §4.4: a successful unsafe request makes what is stored for its target, and for
    /// the `Location` and `Content-Location` of the same origin, invalid; and what is in the groups that
    /// its response names (RFC 9875 §3).
    ///
    /// It counts when this returns. What is to be waited for is the tiers, for a moment.
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
                // What is part of a key is the program's own affair: the request that changes a url need not have it.
                Clients::Program => scopes.extend(urls_changed(request, response)),
                Clients::Visitors => keys = self.keys_changed(request, response),
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

    fn keys_changed(&self, request: &Request<'_>, response: Fields<'_>) -> Vec<KeyBuf> {
        let mut keys = self.keys_of_get(request, request.target);
        let schemes = [request.scheme, Scheme::Https];
        // What a TLS terminator sends on came by https, and applications name that in urls.
        let came_by = if request.vouched && says_https(request.fields) {
            &schemes[..]
        } else {
            &schemes[..1]
        };
        for target in invalidate::locations(response, came_by, request.host, request.target) {
            keys.extend(self.keys_of_get(request, &target));
        }
        keys
    }

    /// A GET of the target may take another route than the request that invalidates it, and
    /// routes decide what makes up a key. Each kind of representation has one of its own; of the unusual ones that counts
    /// which the request itself accepts. There is none where nothing is ever stored.
    fn keys_of_get(&self, request: &Request<'_>, target: &[u8]) -> Vec<KeyBuf> {
        let get = Request {
            method: &Method::GET,
            target,
            ..*request
        };
        let route = self.route(&get);
        if route.answers_at_once {
            return Vec::new();
        }
        let key = |accept| key_as(accept, &get, &route.rules);
        if route.rules.obeys_client {
            return vec![key(AcceptClass::Page)];
        }
        AcceptClass::ALL.into_iter().map(key).collect()
    }
}

/// The target, and what the response names of the same origin, with all keys and for all identities.
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

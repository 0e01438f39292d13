//! The key of a request: of its url, or of the simplest equivalent one.

use bytes::Bytes;
use microcache_policy::key::{self, KeyBuf, KeySpace};
use microcache_policy::{AcceptClass, Fields, OriginView, Rules, Scheme, Time};
use microcache_store::Key;

use crate::cache::{MemoryLookup, Scope, SimplifiedKey};
use crate::message::Request;
use crate::request::engine::Engine;
use crate::request::route::Route;

impl Engine {
    /// The key of the simplest equivalent url, as the responses of the path state it. `None` if the request is not
    /// coalesced with those for other urls, or the response in memory states something else.
    #[cold]
    pub(crate) fn simplified(
        &self,
        route: &Route,
        key: &[u8],
        view: &OriginView<'_>,
        may_coalesce: bool,
        now: Time,
    ) -> Option<SimplifiedKey> {
        let simplified = self.cache.queries.simplified(key, now)?;
        let may_share = may_coalesce && route.collapse && !route.rules.key.whole_query;
        let is_shared = may_share
            && match self.cache.look_up(&simplified.key, view, now) {
                MemoryLookup::Response(hit) => {
                    key::is_equivalent(key, &simplified.key, hit.fields())
                }
                known => {
                    let selection = known.selection(view);
                    known.uncacheable(&selection, now).is_none()
                        && !self.cache.is_too_large(&simplified.key, &selection, now)
                }
            };
        is_shared.then_some(simplified)
    }

    /// The key that a request is looked up by, and the time since when entries under it count.
    pub(crate) fn key_and_since(
        &self,
        route: &Route,
        request: &Request<'_>,
        view: &OriginView<'_>,
        may_coalesce: bool,
        now: Time,
    ) -> (KeyBuf, Time) {
        let key = key_of(request, &route.rules);
        match self.simplified(route, &key, view, may_coalesce, now) {
            Some(SimplifiedKey { key, since }) => (key, since),
            None => (key, Time::default()),
        }
    }

    /// Returns true if a response under this key, fetched then, may answer a request: it has the request's url, or
    /// states that they are equivalent.
    pub(crate) fn is_for_url(
        &self,
        request: &Request<'_>,
        (route, key): (usize, &[u8]),
        (response, began): (Fields<'_>, Time),
    ) -> bool {
        if !self.cache.queries.has_any() {
            return true;
        }
        let own = key_of(request, self.rules(route));
        own[..] == *key || {
            let simplified = self.cache.queries.simplified(&own, self.clock.now());
            simplified.is_some_and(|simplified| simplified.since <= began)
                && key::is_equivalent(&own, key, response)
        }
    }

    /// The key of a request that is sent on its own: that of its whole url, even if `key` is that of an equivalent one.
    pub(crate) fn key_of_its_own(&self, route: usize, request: &Request<'_>, key: Key) -> Key {
        if self.cache.queries.has_any() {
            Key::from(&*key_of(request, self.rules(route)))
        } else {
            key
        }
    }

    /// The target that a coalesced fetch asks for: the url of its key.
    pub(crate) fn target_of(&self, route: usize, key: &[u8], target: &Bytes) -> Bytes {
        if !self.cache.queries.has_any() || self.rules(route).key.whole_query {
            return target.clone();
        }
        key::target_of(key).map_or_else(|| target.clone(), Bytes::from)
    }

    /// The purge scopes of all responses of a url: its query may be normalised in another way on each of the routes that
    /// its requests may take. The host may be in any case and have the scheme's default port.
    pub fn scopes_of_url(&self, scheme: Scheme, host: &[u8], target: &[u8]) -> Vec<Scope> {
        let request = Request::of_url(scheme, host, target);
        let mut scopes = Vec::new();
        for route in self.routes_of_url(&request) {
            let key = key_of(&request, &route.rules);
            let simplified = self.cache.queries.simplified(&key, self.clock.now());
            let keys = [Some(key), simplified.map(|simplified| simplified.key)];
            for scope in keys.iter().flatten().map(|key| scope_of(key, &request)) {
                if !scopes.contains(&scope) {
                    scopes.push(scope);
                }
            }
        }
        scopes
    }
}

/// The key of an ordinary request for this kind of representation; `None` for another, which has the key by [`key_as`].
#[inline]
pub(crate) fn plain_key<'s>(
    space: &'s mut KeySpace,
    accept: AcceptClass,
    request: &Request<'_>,
    rules: &Rules,
) -> Option<&'s [u8]> {
    if request.content.is_some() {
        return None;
    }
    let (scheme, is_trusted) = (request.scheme, request.is_trusted);
    let (host, target) = (request.host, request.target);
    key::plain(space, accept, scheme, host, target, is_trusted, &rules.key)
}

/// The key of a request for this kind of representation, under these rules.
pub(crate) fn key_as(accept: AcceptClass, request: &Request<'_>, rules: &Rules) -> KeyBuf {
    let mut key = key::build_for(
        accept,
        request.scheme,
        request.host,
        request.target,
        request.fields,
        request.is_trusted,
        rules,
    );
    if let Some(content) = request.content {
        add_content(&mut key, content);
    }
    key
}

/// The key of a request under these rules.
pub(crate) fn key_of(request: &Request<'_>, rules: &Rules) -> KeyBuf {
    key_as(key::accept_class(request.fields, rules), request, rules)
}

/// Adds the content of a QUERY to the key of its url. No other part of a key is as short and begins so.
#[cold]
fn add_content(key: &mut KeyBuf, content: &[u8]) {
    key.push(b'Q');
    key.extend_from_slice(content);
}

pub(crate) fn scope_of(key: &[u8], request: &Request<'_>) -> Scope {
    let (host, target) = match key::url_of(key) {
        Some((_, host, path, query)) => (host, key::join_query(path, query)),
        // Every key has them.
        None => (request.host, request.target.to_vec()),
    };
    Scope::Url {
        host: Bytes::copy_from_slice(host),
        target: target.into(),
    }
}

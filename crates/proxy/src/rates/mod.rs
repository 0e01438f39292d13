//! Rate limits of routes: requests per interval and client, or per another key.
//!
//! A route counts either all requests or only those that reach the origin. No table is allocated if no route has a
//! limit.

pub(crate) mod gcra;
mod table;

use std::hash::Hash;
use std::sync::Arc;

use microcache_engine::{Request, RouteId};
use microcache_policy::key::{normal_host, split_query};
use microcache_policy::{Time, cookies, query};

use crate::config::{Config, Quota, RateBy, RateOf};
use gcra::{Gcra, Micros, TooEarly};
use microcache_policy::Network;
use table::RateTable;

/// Rate limits of all routes.
pub(crate) struct RateLimits {
    table: Arc<RateTable>,
    limits: Box<[Option<RateLimit>]>,
}

/// Rate limit of one route.
#[derive(Clone, Debug)]
pub(crate) struct RateLimit {
    pub(crate) quota: Quota,
    pub(crate) by: RateBy,
    of: RateOf,
    gcra: Gcra,
    /// Routes are counted separately, across reloads.
    route: RouteId,
}

/// Key that a request is counted under.
#[derive(Hash)]
enum RateKey<'a> {
    Client(Network),
    Named(Vec<u8>),
    Url(Vec<u8>, &'a [u8]),
}

impl RateLimits {
    /// Builds the limits of a configuration, keeping the counters of the previous one.
    pub(crate) fn of(
        config: &Config,
        id_of: impl Fn(&str) -> RouteId,
        before: Option<&Self>,
    ) -> Option<Box<Self>> {
        let limit = |route: &crate::config::Route| {
            let quota = route.rate.quota?;
            let burst = route.rate.burst.unwrap_or(quota.count);
            Some(RateLimit {
                gcra: Gcra::new(quota.count, quota.seconds * 1_000_000, burst),
                quota,
                by: route.rate.by.clone(),
                of: route.rate.of,
                route: id_of(&route.name),
            })
        };
        let limits: Box<[_]> = config.routes.iter().map(limit).collect();
        if limits.iter().all(Option::is_none) {
            return None;
        }
        let fresh = || Arc::new(RateTable::new(config.limits.max_rate_keys));
        let table = match before {
            Some(before) if before.table.is_of(config.limits.max_rate_keys) => {
                Arc::clone(&before.table)
            }
            _ => fresh(),
        };
        Some(Box::new(Self { table, limits }))
    }

    /// Returns the limit of this route for requests of this kind, if it has one.
    pub(crate) fn limit(&self, route: usize, of: RateOf) -> Option<&RateLimit> {
        self.any_limit(route).filter(|limit| limit.of == of)
    }

    /// Returns the limit of this route, whichever requests it counts.
    pub(crate) fn any_limit(&self, route: usize) -> Option<&RateLimit> {
        self.limits.get(route)?.as_ref()
    }

    /// Counts a request of this client, or refuses it.
    pub(crate) fn take(
        &self,
        limit: &RateLimit,
        request: &Request<'_>,
        client: Network,
        now: Time,
    ) -> Result<(), TooEarly> {
        let who = (limit.route.0, limit.by.key(request, client));
        self.table.take(who, limit.gcra, micros(now))
    }

    /// Requests that the client may still send at once.
    pub(crate) fn left(
        &self,
        limit: &RateLimit,
        request: &Request<'_>,
        client: Network,
        now: Time,
    ) -> u64 {
        let who = (limit.route.0, limit.by.key(request, client));
        self.table.left(who, limit.gcra, micros(now))
    }

    /// Number of keys evicted before their quota had recovered.
    pub(crate) fn forgotten(&self) -> u64 {
        self.table.forgotten()
    }
}

impl RateLimit {
    /// Requests that count: all, or those that reach the origin.
    pub(crate) const fn of(&self) -> RateOf {
        self.of
    }
}

fn micros(now: Time) -> Micros {
    now.as_millis().saturating_mul(1000)
}

impl RateBy {
    /// Returns the key that a request counts under. If the value is missing or ambiguous (repeated, or in a form that
    /// only some applications accept), that is the client's network.
    fn key<'a>(&self, request: &Request<'a>, client: Network) -> RateKey<'a> {
        let named = match self {
            Self::Address => None,
            Self::Url => {
                let host = normal_host(request.scheme, request.host);
                return RateKey::Url(host, request.target);
            }
            Self::Header(name) => {
                let mut all = request.fields.all(name);
                let only = all.next().filter(|_| all.next().is_none());
                only.map(<[u8]>::to_vec)
            }
            Self::Cookie(name) => {
                let cookies = request.fields.all("cookie");
                let pairs = cookies
                    .flat_map(cookies::in_any_reading)
                    .map(cookies::split);
                named(pairs, name, |known| known == name.as_bytes())
            }
            Self::Query(name) => {
                let query = split_query(request.target).1.into_iter();
                let parameters = query.flat_map(query::parameters);
                let pairs = parameters.flat_map(query::in_any_reading);
                named(pairs, name, |known| {
                    query::takes_decoded(name.as_bytes(), known)
                })
            }
        };
        named.map_or(RateKey::Client(client), RateKey::Named)
    }
}

/// Value of the parameter with this name, if every parser would find the same.
fn named<'a>(
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    name: &str,
    is_it: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let could_be = pairs.filter(|(known, _)| cookies::could_be_taken_by(name.as_bytes(), known));
    // Encodings of the same value are the same key.
    let value = |(known, value)| is_it(known).then(|| query::decoded(value).collect());
    let mut values = could_be.map(value);
    let first: Vec<u8> = values.next()??;
    let agree = values.all(|other| other.as_ref() == Some(&first));
    agree.then_some(first)
}

#[cfg(test)]
mod tests {
    use microcache_policy::{Fields, Scheme};

    use super::*;

    const CLIENT: Network = Network::from_bits(7);

    fn who(by: &RateBy, fields: &'static str, target: &'static str) -> String {
        let request = Request {
            fields: Fields::new(fields.as_bytes()),
            ..Request::of_url(Scheme::Http, b"Example.com", target.as_bytes())
        };
        match by.key(&request, CLIENT) {
            RateKey::Client(client) => {
                assert_eq!(client, CLIENT);
                "the client".to_owned()
            }
            RateKey::Named(value) => String::from_utf8_lossy(&value).into_owned(),
            RateKey::Url(host, target) => {
                String::from_utf8_lossy(&[&host, target].concat()).into_owned()
            }
        }
    }

    #[test]
    fn requests_count_by_field_or_by_client() {
        assert_eq!(who(&RateBy::Address, "X-Key: a\r\n", "/"), "the client");
        assert_eq!(who(&RateBy::Url, "", "/a?b=1"), "example.com/a?b=1");
        let header = RateBy::Header("x-key".to_owned());
        for (fields, expected) in [
            ("X-Key: a\r\n", "a"),
            ("X-Other: a\r\n", "the client"),
            ("", "the client"),
            // A second field that the application ignores does not evade the limit.
            ("X-Key: a\r\nX-Key: b\r\n", "the client"),
        ] {
            assert_eq!(who(&header, fields, "/"), expected, "{fields}");
        }
        let cookie = RateBy::Cookie("session".to_owned());
        for (fields, expected) in [
            ("Cookie: a=1; session=b; c=2\r\n", "b"),
            ("Cookie: sessions=b; xsession=c; session\r\n", "the client"),
            ("Cookie: session=b; session=c\r\n", "the client"),
            ("Cookie: session=b\r\nCookie: session=c\r\n", "the client"),
            ("Cookie: session=%62\r\n", "b"),
            // Cookies that the application ignores do not change the key; those that it may accept make it
            // ambiguous.
            ("Cookie: session=b; xsession=c; session.id=d\r\n", "b"),
            ("Cookie: session=b; Session=c\r\n", "the client"),
            ("Cookie: session=b; s%65ssion=c\r\n", "the client"),
            ("Cookie: session =b\r\n", "the client"),
            ("Cookie: session[a]=b\r\n", "the client"),
            ("Cookie: session=b, session=c\r\n", "the client"),
            ("Cookie: session=\"b\"\r\n", "the client"),
        ] {
            assert_eq!(who(&cookie, fields, "/"), expected, "{fields}");
        }
        let query = RateBy::Query("key".to_owned());
        for (target, expected) in [
            ("/?a=1&key=b%63", "bc"),
            ("/?a=1&k%65y=bc", "bc"),
            ("/?key=", ""),
            ("/?keys=b", "the client"),
            ("/key=b", "the client"),
            ("/?key=b&key=c", "the client"),
            ("/?a=1;key=c&key=b", "the client"),
            ("/?key[]=b", "the client"),
            ("/?%20key=c&key=b", "the client"),
            ("/?KEY=c&key=b", "the client"),
        ] {
            assert_eq!(who(&query, "", target), expected, "{target}");
        }
    }
}

//! Builders for the tests of the cache: keys, responses, and their selections.

use bytes::Bytes;
use http::Method;
use microcache_policy::{
    Fields, OriginView, RequestFacts, ResponseFacts, Rules, Scheme, Storable, Time, Times, key,
    storable,
};
use microcache_store::{Key, MemoryLimits, Stored, Tiers};

use super::flight::FlightLimits;
use super::{Cache, tag_numbers};
use microcache_store::Clock;

/// Limits that no test reaches.
pub(super) const FLIGHTS: FlightLimits = FlightLimits::of_one(1_000, 1_000);

/// A cache large enough for any test.
pub(super) fn cache(tiers: Tiers, clock: Clock) -> Cache {
    let memory = MemoryLimits {
        capacity: 16 << 20,
        object: 1 << 16,
        variants: 8,
    };
    Cache::new(memory, FLIGHTS, tiers, clock)
}

/// The key of a url.
pub(super) fn key_of(scheme: Scheme, host: &str, target: &str) -> Key {
    let (host, target, rules) = (host.as_bytes(), target.as_bytes(), Rules::default());
    key::build(scheme, host, target, Fields::default(), false, &rules)[..].into()
}

/// A storable response with these field lines, requested and received at that time.
pub(super) fn stored(key: &Key, lines: &str, at: Time) -> Stored {
    let (fields, rules) = (Fields::new(lines.as_bytes()), Rules::default());
    let facts = RequestFacts::read(&Method::GET, Fields::default(), false, &rules);
    let read = ResponseFacts::read(fields, &rules);
    let Storable::Yes(lifetime) = storable(&facts, 200, &read, Times::at(at)) else {
        panic!("it can be stored")
    };
    let tags = tag_numbers(key, read.tags().iter());
    let body = Bytes::from_static(b"body").into();
    Stored::new(key, 200, fields, body, lifetime, at).with_tags(tags)
}

/// A request without fields.
pub(super) fn view(rules: &Rules) -> OriginView<'_> {
    OriginView {
        fields: Fields::default(),
        rules,
        address: "192.0.2.1",
        is_trusted: false,
    }
}

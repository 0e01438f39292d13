//! Conversion between the field lines of the engine and those of `http`.

use http::header::COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue};
use microcache_policy::{FieldBlock, FieldsBuf, is_identity};

/// The field lines of a map, in its order.
pub(crate) fn from_map(map: &HeaderMap) -> FieldsBuf {
    let mut fields = if map.is_empty() {
        FieldsBuf::new()
    } else {
        FieldsBuf::with_capacity(32 * map.len())
    };
    for (name, value) in map {
        fields.push(name.as_str(), value);
    }
    fields
}

/// A map of these lines. The values share the allocation of the block.
pub(crate) fn to_map(block: &FieldBlock) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(16);
    for (name, value) in block.fields() {
        // Both sources, a map and a stricter parser, guarantee validity.
        if let Ok(name) = HeaderName::from_bytes(name)
            && let Ok(value) = HeaderValue::from_maybe_shared(block.part(value))
        {
            map.append(name, value);
        }
    }
    map
}

/// A map of request fields, with credentials marked as sensitive: they are neither logged nor added to compression
/// tables.
pub(crate) fn to_request_map(block: &FieldBlock) -> HeaderMap {
    let mut map = to_map(block);
    for (name, value) in &mut map {
        if name == COOKIE || is_identity(name.as_str().as_bytes()) {
            value.set_sensitive(true);
        }
    }
    map
}

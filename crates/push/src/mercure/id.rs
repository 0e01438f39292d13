//! Ids of updates and subscribers.

use microcache_store::random;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Returns a random UUID (RFC 9562 §5.4).
pub(crate) fn new_id() -> String {
    uuid(random::number(), random::number())
}

/// Returns UUIDs of the events of a record, which are the same on all nodes (RFC 9562 §5.8).
pub(crate) fn event_ids(subscriber: &str, number: u64) -> impl FnMut() -> String {
    let mut low = xxh3_64_with_seed(subscriber.as_bytes(), number);
    move || {
        low = low.wrapping_add(1);
        uuid(number.rotate_left(32) ^ low, low)
    }
}

fn uuid(high: u64, low: u64) -> String {
    let version = high & !0xF000 | 0x4000;
    let variant = low & !(0b11 << 62) | 0b10 << 62;
    format!(
        "urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        version >> 32,
        version >> 16 & 0xFFFF,
        version & 0xFFFF,
        variant >> 48,
        variant & 0xFFFF_FFFF_FFFF,
    )
}

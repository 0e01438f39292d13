//! Ids of updates and subscribers.

use microcache_store::random;

/// Returns a random UUID (RFC 9562 §5.4).
pub(crate) fn new_id() -> String {
    let (high, low) = (random::number(), random::number());
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

//! Checksums of stored bodies.

use xxhash_rust::xxh3::xxh3_64;

/// Returns the checksum of a body.
pub fn checksum(body: &[u8]) -> u64 {
    xxh3_64(body)
}

//! Memory that allocations take.

/// Largest size class that is not in pages of its own, in bytes.
const MAX_SMALL: usize = 14 * 1024;
/// One page, which jemalloc adds to each allocation in pages: it begins at a random offset (`cache_oblivious`).
const PAGE: usize = 4096;

/// Returns the memory that the allocator takes for an allocation, in bytes: its size class, of which there are four between
/// one power of two and the next, and a page where it is large.
pub const fn allocated(bytes: usize) -> usize {
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    let class = bytes.next_multiple_of(bytes.next_power_of_two() / 8);
    if class <= MAX_SMALL {
        class
    } else {
        class + PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_match_the_allocator() {
        for (bytes, expected) in [
            (0, 0),
            (1, 16),
            (128, 128),
            (129, 160),
            (160, 160),
            (161, 192),
            (250, 256),
            (256, 256),
            (257, 320),
            (14 * 1024, 14 * 1024),
            (14 * 1024 + 1, 20 * 1024),
            (20 * 1024, 24 * 1024),
            (20 * 1024 + 1, 28 * 1024),
            (1 << 20, (1 << 20) + 4096),
        ] {
            assert_eq!(allocated(bytes), expected, "{bytes}");
        }
    }
}

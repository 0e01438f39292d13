//! Sizes and offsets in entry files.

/// Accounting unit, in bytes: the block size of most file systems.
pub(super) const DISK_BLOCK: u64 = 4096;

/// Space reserved for prefix and head when the body is written first. It becomes a hole, which occupies no
/// blocks.
pub(super) const HEAD_ROOM: usize = 64 * 1024;

/// Offset of the second position.
pub(super) const SECOND: usize = HEAD_ROOM / 2;

/// Number of blocks of a file of this length.
pub(super) const fn blocks(len: u64) -> u64 {
    len.div_ceil(DISK_BLOCK)
}

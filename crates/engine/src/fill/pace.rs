//! Limits for slow readers: the lag they may have and the slowest pace, wherever bytes are pinned
//! for them.

/// The bytes that may be buffered for each reader outside every budget; a body of at most this size
/// can always be stored.
pub const FREE: u64 = 32 * 1024;
/// The bytes that a reader has to take per slow-reader timeout while others wait for it, or while
/// it exceeds its share of buffers; below that it is too slow.
pub const PROGRESS: u64 = 128 * 1024;

//! Limits for slow readers: the lag they may have and the slowest pace, wherever bytes are pinned
//! for them.

/// So much may be held for each reader in any case: it is outside every bound, and a body that is this small
/// can always be stored.
pub const FREE: u64 = 32 * 1024;
/// A reader for whom others wait, or for whom more is held than there should be, is too slow if it takes
/// less than this in the time that slow readers are given.
pub const PROGRESS: u64 = 128 * 1024;

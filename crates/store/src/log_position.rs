//! Positions in the purge log of a shared tier: number of the log, and count within it.

use crate::random;

/// Number of low bits of a position that count records within a log, sufficient for milliseconds since 1970.
/// The high bits are the number of the log, chosen at random when it was started.
const COUNT_BITS: u32 = 42;

/// Returns the position before the first record of a new log.
pub fn new_log() -> u64 {
    // 0 means no log.
    log_number(random::number()).max(1) << COUNT_BITS
}

/// Returns the position before the first record of the same log.
pub const fn log_of(position: u64) -> u64 {
    position >> COUNT_BITS << COUNT_BITS
}

/// Returns the number of the log of a position.
pub const fn log_number(position: u64) -> u64 {
    position >> COUNT_BITS
}

/// Returns the count of a position within its log, starting at 1.
pub const fn count_in_log(position: u64) -> u64 {
    position - log_of(position)
}

/// Returns the position with this count in the log of this number.
pub const fn in_log(number: u64, count: u64) -> u64 {
    number << COUNT_BITS | count
}

/// Returns the position for unverified numbers; `None` if they are invalid.
pub const fn position(number: u64, count: u64) -> Option<u64> {
    let is_log = number > 0 && number <= log_number(u64::MAX);
    if is_log && count > 0 && log_number(count) == 0 {
        Some(in_log(number, count))
    } else {
        None
    }
}

/// Returns whether a reader at `known` has read the record at `place`. Positions of different logs are
/// unordered.
pub const fn has_read(known: u64, place: u64) -> bool {
    log_of(known) == log_of(place) && known >= place
}

/// Maximum number of copies of the log.
pub const LOG_COPIES: usize = 2;

/// Position in each copy of the log; 0 precedes all, or means a missing copy. A restarted copy is a
/// different log; see [`has_read`].
pub type LogPositions = [u64; LOG_COPIES];

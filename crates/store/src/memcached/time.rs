//! Expiration times of memcached, in whole seconds.

use std::time::{Duration, SystemTime};

/// Value up to which the server takes a number as a time span; larger ones are dates.
const MAX_SPAN: u64 = 30 * 24 * 60 * 60;
/// Maximum lifetime: one year. Dates must fit into 31 bits.
const MAX: u64 = 365 * 24 * 60 * 60;

/// Returns the expiration value for a lifetime. The server counts the current second as a full one, so one
/// is added: items expire up to two seconds late, but never early.
pub(super) fn expiry(after: Duration) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    expiry_at(after, now.map_or(0, |now| now.as_secs()))
}

fn expiry_at(after: Duration, now: u64) -> u64 {
    let begun = u64::from(after.subsec_nanos() > 0);
    let seconds = after.as_secs().saturating_add(begun + 1).min(MAX);
    if seconds <= MAX_SPAN {
        seconds
    } else {
        now + seconds
    }
}

/// Returns the longest remaining lifetime, in seconds, of an item with this expiration value.
pub(super) const fn longest_left(expiry: u64) -> u64 {
    if expiry <= MAX_SPAN { expiry } else { MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_dates() {
        for (after, expiry) in [
            (Duration::ZERO, 1),
            (Duration::from_millis(1), 2),
            (Duration::from_secs(1), 2),
            (Duration::from_millis(1500), 3),
            (Duration::from_secs(MAX_SPAN - 1), MAX_SPAN),
            (Duration::from_secs(MAX_SPAN), 1_000_000 + MAX_SPAN + 1),
            (Duration::MAX, 1_000_000 + MAX),
        ] {
            assert_eq!(expiry_at(after, 1_000_000), expiry, "{after:?}");
            assert!(after > Duration::from_secs(MAX) || longest_left(expiry) >= after.as_secs());
        }
    }
}

//! memcached's clock: whole seconds, and two ways to say when.

use std::time::{Duration, SystemTime};

/// Up to here a server takes a number for a time span, beyond it for a date.
const MAX_SPAN: u64 = 30 * 24 * 60 * 60;
/// Dates have to fit in 31 bits. Nothing that is cached needs to outlast a year.
const MAX: u64 = 365 * 24 * 60 * 60;

/// How to tell a server that something ends after this time. The second that has begun counts
/// as one there, so one more is given: it ends up to two seconds later, but never too early.
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

/// The most seconds that an item with this expiry can have left.
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

//! When something is over, in whole seconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// This second.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Whether it has come to that.
pub(crate) fn is_over(expires: u64) -> bool {
    expires <= now()
}

/// The second from which on something is over that is kept for so long.
pub(crate) fn after(keep: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let end = now.unwrap_or_default().saturating_add(keep);
    let rounded_up = end.saturating_add(Duration::from_nanos(999_999_999));
    // The index has room for so much, and no file system has trouble with it.
    rounded_up.as_secs().min(u64::from(u32::MAX))
}

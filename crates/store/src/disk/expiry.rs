//! Expiry times, in whole seconds since the Unix epoch.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Returns whether an expiry time has been reached.
pub(crate) fn is_over(expires: u64) -> bool {
    expires <= now()
}

/// Returns the expiry time of an entry with a lifetime of `keep`, rounded up.
pub(crate) fn after(keep: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let end = now.unwrap_or_default().saturating_add(keep);
    let rounded_up = end.saturating_add(Duration::from_nanos(999_999_999));
    // Limit of the index; every file system can represent it as an mtime.
    rounded_up.as_secs().min(u64::from(u32::MAX))
}

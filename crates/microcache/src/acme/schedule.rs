//! The times of renewals and retries.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use microcache_policy::{Time, date};

use super::failed::{Failed, Fault};

/// The wait after the first failure, which doubles; and after the first failed validation of a name, which
/// authorities limit to about five per hour.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const CHALLENGE_PAUSE: Duration = Duration::from_mins(10);
const LONGEST_PAUSE: Duration = Duration::from_hours(6);

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs().cast_signed()
}

/// Lifetimes in seconds up to which a certificate is renewed after half of it: a third of a few days is short for
/// retries.
const SHORT_LIFE: i64 = 10 * 86_400;

/// Formats a time.
pub(super) fn shown(unix: i64) -> String {
    let time = Time::from_secs(unix.max(0).cast_unsigned());
    String::from_utf8_lossy(&date::format(time)).into_owned()
}

/// Returns the time of the renewal: after two thirds of the lifetime (half of a short one), or as the authority
/// suggests, but early enough for retries.
pub(super) fn renewal(not_before: i64, not_after: i64, chosen: Option<i64>) -> i64 {
    let life = (not_after - not_before).max(0);
    let latest = not_after - life / 10;
    let usual = if life < SHORT_LIFE {
        life / 2
    } else {
        life / 3 * 2
    };
    chosen.unwrap_or(not_before + usual).min(latest)
}

/// A time in the window that an authority has named (RFC 9773 §4.2), by chance.
pub(super) fn within(start: i64, end: i64) -> i64 {
    let width = end.saturating_sub(start).max(0);
    start.saturating_add((width as f64 * chance()) as i64)
}

/// Returns the pause after a number of failures, at least one.
pub(super) fn pause(failures: u32, failed: &Failed) -> Duration {
    let first = match failed.kind {
        Fault::Challenge | Fault::Certificate => CHALLENGE_PAUSE,
        _ => FIRST_PAUSE,
    };
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16));
    // Not all names, and not all machines, at the same moment.
    let spread = doubled.min(LONGEST_PAUSE).mul_f64(0.75 + chance() / 2.0);
    // A Retry-After of the authority is a minimum.
    failed.retry_after.map_or(spread, |wait| wait.max(spread))
}

/// From 0 to 1.
fn chance() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn renewal_is_at_two_thirds_or_when_the_authority_suggests_but_never_at_the_last_moment() {
        assert_eq!(renewal(0, 90 * DAY, None), 60 * DAY);
        assert_eq!(renewal(0, 6 * DAY, None), 3 * DAY);
        assert_eq!(renewal(0, 90 * DAY, Some(50 * DAY)), 50 * DAY);
        assert_eq!(renewal(0, 90 * DAY, Some(-5)), -5);
        assert_eq!(renewal(0, 90 * DAY, Some(500 * DAY)), 81 * DAY);
        assert_eq!(renewal(0, 0, None), 0);
        for _ in 0..100 {
            assert!((10..=20).contains(&within(10, 20)));
            assert_eq!(within(10, 5), 10);
        }
        assert_eq!(within(i64::MAX, i64::MAX), i64::MAX);
    }

    #[test]
    fn retries_back_off_and_respect_retry_after() {
        let failed = |kind| Failed::new("x", kind, "y");
        let authority = failed(Fault::Authority);
        for (failures, seconds) in [(1, 30), (2, 60), (5, 480), (40, 21_600), (u32::MAX, 21_600)] {
            let pause = pause(failures, &authority).as_secs_f64();
            let seconds = f64::from(seconds);
            assert!(
                (seconds * 0.75..=seconds * 1.25).contains(&pause),
                "{pause}"
            );
        }
        assert!(pause(1, &failed(Fault::Challenge)) >= CHALLENGE_PAUSE.mul_f64(0.75));
        let later = Failed {
            retry_after: Some(Duration::from_hours(3)),
            ..authority
        };
        assert_eq!(pause(1, &later), Duration::from_hours(3));
        assert!(pause(40, &later) > Duration::from_hours(3));
    }

    #[test]
    fn an_authority_sees_no_more_than_five_failures_in_an_hour() {
        let failed = Failed::new("x", Fault::Challenge, "y");
        // Two the first time, one way after the other; the sixth comes after four pauses.
        let least: f64 = (1..=4).map(|n| pause(n, &failed).as_secs_f64()).sum();
        assert!(least > 3600.0, "{least}");
    }
}

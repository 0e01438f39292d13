//! Retry policy: repeats failed requests with exponential back-off.

use std::time::{Duration, Instant, SystemTime};

use http::header::{HeaderMap, RETRY_AFTER};
use http::{Method, StatusCode};
use microcache_client::Error;

use super::message::deepest;
use crate::cli::Fetch;

/// First pause; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, unless `--timeout` leaves time for a longer Retry-After.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Remaining attempts.
pub(super) struct Retries {
    left: u32,
    pause: Duration,
    deadline: Option<Instant>,
    is_repeatable: bool,
}

/// Reaction to a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Retries after this pause; `left` attempts remain.
    Again { pause: Duration, left: u32 },
    /// Retry-After is too long.
    TooLong(Duration),
    /// Not a transient failure, or no attempt left.
    End,
}

impl Retries {
    pub(super) fn of(fetch: &Fetch) -> Self {
        let now = Instant::now();
        Self {
            left: fetch.retries,
            pause: FIRST_PAUSE,
            deadline: fetch.timeout.and_then(|timeout| now.checked_add(timeout)),
            is_repeatable: matches!(fetch.method, Method::GET | Method::HEAD),
        }
    }

    /// Decides after a response.
    pub(super) fn after_answer(&mut self, status: StatusCode, headers: &HeaderMap) -> Next {
        if !is_transient(status) {
            return Next::End;
        }
        self.next(retry_after(headers, SystemTime::now()))
    }

    /// Decides after an error. A non-idempotent request is retried only if it cannot have been received.
    pub(super) fn after_error(&mut self, error: &Error) -> Next {
        let inner = error.inner::<reqwest::Error>();
        let is_unsent = inner.is_some_and(reqwest::Error::is_connect);
        let stays =
            deepest(error).contains("certificate") || inner.is_some_and(reqwest::Error::is_builder);
        if stays || !(self.is_repeatable || is_unsent) {
            return Next::End;
        }
        self.next(None)
    }

    /// Decides after a truncated body of which nothing was output.
    pub(super) fn after_break(&mut self) -> Next {
        if self.is_repeatable {
            return self.next(None);
        }
        Next::End
    }

    fn next(&mut self, retry_after: Option<Duration>) -> Next {
        if self.left == 0 {
            return Next::End;
        }
        let pause = retry_after.unwrap_or(Duration::ZERO).max(self.pause);
        let is_in_time = match self.deadline {
            Some(deadline) => pause < deadline.saturating_duration_since(Instant::now()),
            None => pause <= LONGEST_PAUSE,
        };
        if !is_in_time {
            return match retry_after {
                Some(retry_after) if retry_after == pause => Next::TooLong(pause),
                _ => Next::End,
            };
        }
        self.left -= 1;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Next::Again {
            pause,
            left: self.left,
        }
    }
}

/// Transient statuses, as in `curl --retry`.
fn is_transient(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        408 | 429 | 500 | 502 | 503 | 504 | 522 | 524
    )
}

/// Delay of a `Retry-After` field: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // An overflow is treated as infinite.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    until.duration_since(now).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(left: u32, timeout: Option<Duration>) -> Retries {
        Retries {
            left,
            pause: FIRST_PAUSE,
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            is_repeatable: true,
        }
    }

    fn asking(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, http::HeaderValue::from_static(value))])
    }

    #[test]
    fn pauses_double_up_to_ten_minutes() {
        let mut retries = retries(12, None);
        let mut pauses = Vec::new();
        while let Next::Again { pause, .. } = retries.next(None) {
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    }

    #[test]
    fn only_transient_failures_are_retried() {
        for (status, again) in [
            (408, true),
            (429, true),
            (500, true),
            (502, true),
            (503, true),
            (504, true),
            (522, true),
            (524, true),
            (200, false),
            (304, false),
            (400, false),
            (404, false),
            (501, false),
            (505, false),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let next = retries(1, None).after_answer(status, &HeaderMap::new());
            assert_eq!(matches!(next, Next::Again { .. }), again, "{status}");
        }
        let next = retries(0, None).after_answer(StatusCode::BAD_GATEWAY, &HeaderMap::new());
        assert_eq!(next, Next::End);
    }

    #[test]
    fn the_server_s_pause_counts_within_bounds() {
        let busy = StatusCode::SERVICE_UNAVAILABLE;
        let next = |timeout: Option<u64>, value| {
            let timeout = timeout.map(Duration::from_secs);
            retries(1, timeout).after_answer(busy, &asking(value))
        };
        let again = |seconds| Next::Again {
            pause: Duration::from_secs(seconds),
            left: 0,
        };
        assert_eq!(next(None, "7"), again(7));
        assert_eq!(next(None, "0"), again(1), "no server is hammered");
        assert_eq!(next(None, "600"), again(600));
        let long = |seconds| Next::TooLong(Duration::from_secs(seconds));
        assert_eq!(next(None, "601"), long(601));
        assert_eq!(next(None, "1000000000"), long(1_000_000_000));
        let for_ever = "99999999999999999999999999";
        assert_eq!(next(None, for_ever), long(u64::MAX));
        assert_eq!(next(Some(3_600), "1200"), again(1_200));
        assert_eq!(next(Some(5), "10"), long(10));
        assert_eq!(next(Some(1), "0"), Next::End, "the time is up before");
        // Invalid values are ignored.
        for value in ["", "-5", "soon", "1.5"] {
            assert_eq!(next(None, value), again(1), "{value}");
        }
    }

    #[test]
    fn a_date_is_a_pause_too() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:07 GMT").expect("a date");
        let after = |value| retry_after(&asking(value), now);
        let half_a_minute = Some(Duration::from_secs(30));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), half_a_minute);
        assert_eq!(after("Sun, 06 Nov 1994 08:48:37 GMT"), None);
    }
}

//! Limits of frames that cost their sender nothing. A client above one is disconnected with
//! `ENHANCE_YOUR_CALM`.

use microcache_policy::Time;

use super::reason::{ErrorCode, ProtocolError};

/// Token bucket: burst, and refill per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenRate {
    pub(crate) at_once: u32,
    pub(crate) per_second: u32,
}

/// Streams reset here for a protocol error (CVE-2025-8671).
pub(crate) const STREAM_ERRORS: TokenRate = rate(100, 5);
/// PING frames.
pub(crate) const PINGS: TokenRate = rate(100, 10);
/// SETTINGS frames.
pub(crate) const SETTINGS: TokenRate = rate(50, 5);
/// DATA frames of fewer than [`TINY`] bytes that do not end their stream.
pub(crate) const TINY_DATA: TokenRate = rate(1000, 200);
/// Empty DATA frames that do not end their stream.
pub(crate) const EMPTY_DATA: TokenRate = rate(100, 5);
/// `WINDOW_UPDATE` frames in addition to [`UPDATES_FOR_DATA`].
pub(crate) const WINDOW_UPDATES: TokenRate = rate(1000, 200);
/// Frames without effect: PRIORITY, unknown types, and frames on closed streams.
pub(crate) const NOISE: TokenRate = rate(1000, 100);

/// Payload in bytes below which a DATA frame is mostly overhead.
pub(crate) const TINY: usize = 64;
/// HEADERS and CONTINUATION frames of one field block.
pub(crate) const BLOCK_FRAMES: u32 = 32;
/// `WINDOW_UPDATE` frames allowed for each DATA frame sent.
pub(crate) const UPDATES_FOR_DATA: u32 = 4;
/// Least bytes per second that a client has to take of each response once its write timeout has passed, so that
/// a byte now and then does not keep a stream open for ever.
pub(crate) const LEAST_TAKEN: u64 = 500;

const fn rate(at_once: u32, per_second: u32) -> TokenRate {
    TokenRate {
        at_once,
        per_second,
    }
}

/// Remaining tokens of a [`TokenRate`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    rate: TokenRate,
    /// In thousandths, so that a millisecond counts.
    left: u64,
    at: Time,
}

impl TokenBucket {
    pub(crate) fn new(rate: TokenRate) -> Self {
        Self {
            rate,
            left: u64::from(rate.at_once) * 1000,
            at: Time::default(),
        }
    }

    /// Takes one token. Fails with `ENHANCE_YOUR_CALM` and the reason `what` if there is none.
    pub(crate) fn spend(&mut self, now: Time, what: &'static str) -> Result<(), ProtocolError> {
        if self.at != now {
            let earned = now
                .since(self.at)
                .saturating_mul(u64::from(self.rate.per_second));
            self.left = self.left.saturating_add(earned).min(self.most());
            self.at = now;
        }
        match self.left.checked_sub(1000) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ProtocolError::Connection(ErrorCode::EnhanceYourCalm, what)),
        }
    }

    /// Adds tokens.
    pub(crate) fn earn(&mut self, count: u32) {
        self.left = (self.left + u64::from(count) * 1000).min(self.most());
    }

    fn most(&self) -> u64 {
        u64::from(self.rate.at_once) * 1000
    }
}

/// All flood limits of one connection.
#[derive(Debug)]
pub(crate) struct FloodLimits {
    pub(crate) resets: TokenBucket,
    pub(crate) stream_errors: TokenBucket,
    pub(crate) pings: TokenBucket,
    pub(crate) settings: TokenBucket,
    pub(crate) tiny_data: TokenBucket,
    pub(crate) empty_data: TokenBucket,
    window_updates: TokenBucket,
    pub(crate) noise: TokenBucket,
}

impl FloodLimits {
    /// Limits with this number of requests that may be reset before their response (CVE-2023-44487).
    pub(crate) fn new(resets: usize) -> Self {
        let at_once = u32::try_from(resets).unwrap_or(u32::MAX);
        let resets = rate(at_once, at_once / 10);
        Self {
            resets: TokenBucket::new(resets),
            stream_errors: TokenBucket::new(STREAM_ERRORS),
            pings: TokenBucket::new(PINGS),
            settings: TokenBucket::new(SETTINGS),
            tiny_data: TokenBucket::new(TINY_DATA),
            empty_data: TokenBucket::new(EMPTY_DATA),
            window_updates: TokenBucket::new(WINDOW_UPDATES),
            noise: TokenBucket::new(NOISE),
        }
    }

    /// Charges a `WINDOW_UPDATE` frame. `sent`: DATA frames since the previous one, which the client may
    /// acknowledge.
    pub(crate) fn window_update(&mut self, now: Time, sent: u32) -> Result<(), ProtocolError> {
        let budget = &mut self.window_updates;
        budget.earn(sent.saturating_mul(UPDATES_FOR_DATA));
        budget.spend(now, "too many WINDOW_UPDATE frames")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_refilled_with_time_up_to_the_burst() {
        let mut budget = TokenBucket::new(rate(3, 2));
        let mut spent = |millis| {
            let now = Time::from_millis(millis);
            (0..10)
                .take_while(|_| budget.spend(now, "").is_ok())
                .count()
        };
        assert_eq!(spent(1_000_000), 3);
        assert_eq!(spent(1_000_000), 0);
        assert_eq!(spent(1_000_499), 0);
        assert_eq!(spent(1_000_500), 1);
        assert_eq!(spent(1_001_500), 2);
        assert_eq!(spent(9_000_000), 3);
        // A clock that is set back adds no tokens.
        assert_eq!(spent(1_000), 0);
        let mut budget = TokenBucket::new(rate(3, 0));
        budget.earn(5);
        let now = Time::from_millis(5);
        assert_eq!(
            (0..10)
                .take_while(|_| budget.spend(now, "").is_ok())
                .count(),
            3
        );
        budget.earn(1);
        assert!(budget.spend(now, "").is_ok());
        let calm = ProtocolError::Connection(ErrorCode::EnhanceYourCalm, "it");
        assert_eq!(budget.spend(now, "it"), Err(calm));
    }
}

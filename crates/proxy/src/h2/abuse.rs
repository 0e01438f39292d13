//! Bounds on what costs the sender nothing. Whoever exceeds one is sent away with
//! `ENHANCE_YOUR_CALM`: a connection is what it takes away from, and it is his own.

use microcache_policy::Time;

use super::reason::{Fault, Reason};

/// So much at once, and so much again in each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) at_once: u32,
    pub(crate) per_second: u32,
}

/// Streams that have to be ended here because a rule was broken (CVE-2025-8671).
pub(crate) const STREAM_ERRORS: Rate = rate(100, 5);
/// PING frames.
pub(crate) const PINGS: Rate = rate(100, 10);
/// SETTINGS frames.
pub(crate) const SETTINGS: Rate = rate(50, 5);
/// DATA frames of fewer bytes than [`TINY`] that do not end their stream.
pub(crate) const TINY_DATA: Rate = rate(1000, 200);
/// DATA frames without any content that do not end their stream.
pub(crate) const EMPTY_DATA: Rate = rate(100, 5);
/// `WINDOW_UPDATE` frames, beside those that the content we send is worth.
pub(crate) const WINDOW_UPDATES: Rate = rate(1000, 200);
/// Frames that change nothing: priorities, unknown ones, those of streams that have ended.
pub(crate) const NOISE: Rate = rate(1000, 100);

/// Below it, a DATA frame is mostly frame.
pub(crate) const TINY: usize = 64;
/// Frames in which a field block may come.
pub(crate) const BLOCK_FRAMES: u32 = 32;
/// `WINDOW_UPDATE` frames that a DATA frame of ours is worth.
pub(crate) const UPDATES_FOR_DATA: u32 = 4;
/// Bytes per second that a client has to take of each response, once its time to write is used up:
/// with one byte now and then nobody is held for ever.
pub(crate) const LEAST_TAKEN: u64 = 500;

const fn rate(at_once: u32, per_second: u32) -> Rate {
    Rate {
        at_once,
        per_second,
    }
}

/// What is left of a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    rate: Rate,
    /// In thousandths, so that a millisecond counts.
    left: u64,
    at: Time,
}

impl Budget {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            left: u64::from(rate.at_once) * 1000,
            at: Time::default(),
        }
    }

    /// Uses one up. `what` is there too much of otherwise.
    pub(crate) fn spend(&mut self, now: Time, what: &'static str) -> Result<(), Fault> {
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
            None => Err(Fault::Connection(Reason::EnhanceYourCalm, what)),
        }
    }

    /// So many more were earned.
    pub(crate) fn earn(&mut self, count: u32) {
        self.left = (self.left + u64::from(count) * 1000).min(self.most());
    }

    fn most(&self) -> u64 {
        u64::from(self.rate.at_once) * 1000
    }
}

/// What is left to one connection.
#[derive(Debug)]
pub(crate) struct Budgets {
    pub(crate) resets: Budget,
    pub(crate) stream_errors: Budget,
    pub(crate) pings: Budget,
    pub(crate) settings: Budget,
    pub(crate) tiny_data: Budget,
    pub(crate) empty_data: Budget,
    pub(crate) window_updates: Budget,
    pub(crate) noise: Budget,
}

impl Budgets {
    /// With so many requests that may be given up before they are answered (CVE-2023-44487).
    pub(crate) fn new(resets: usize) -> Self {
        let at_once = u32::try_from(resets).unwrap_or(u32::MAX);
        let resets = rate(at_once, at_once / 10);
        Self {
            resets: Budget::new(resets),
            stream_errors: Budget::new(STREAM_ERRORS),
            pings: Budget::new(PINGS),
            settings: Budget::new(SETTINGS),
            tiny_data: Budget::new(TINY_DATA),
            empty_data: Budget::new(EMPTY_DATA),
            window_updates: Budget::new(WINDOW_UPDATES),
            noise: Budget::new(NOISE),
        }
    }

    /// Content was sent, which the client has to make room for again.
    pub(crate) fn sent_data(&mut self) {
        self.window_updates.earn(UPDATES_FOR_DATA);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_comes_back_with_time_and_never_beyond_its_bound() {
        let mut budget = Budget::new(rate(3, 2));
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
        // A clock that is set back gives nothing.
        assert_eq!(spent(1_000), 0);
        let mut budget = Budget::new(rate(3, 0));
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
        let calm = Fault::Connection(Reason::EnhanceYourCalm, "it");
        assert_eq!(budget.spend(now, "it"), Err(calm));
    }
}

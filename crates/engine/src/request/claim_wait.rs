//! Waits for a response that another process fetches.

use std::time::Duration;

use microcache_store::{HeldClaim, WaitEnd};
use tokio::time::Instant;

/// The pause before the first retry while another process fetches; it doubles with each retry.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The wait of a request for the claim of another process.
pub(crate) struct ClaimWait {
    began: Instant,
    /// The time for which a claim is held at most.
    limit: Duration,
    pause: Duration,
    /// The claim that was waited for last, and how that wait ended.
    last: Option<(HeldClaim, WaitEnd)>,
}

impl ClaimWait {
    /// A wait for claims that are held for at most this time.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            began: Instant::now(),
            limit,
            pause: FIRST_PAUSE,
            last: None,
        }
    }

    /// Waits for a moment, or for the end of the claim if the tier announces it. Returns false if the request has waited
    /// long enough.
    pub(crate) async fn wait(&mut self, held: HeldClaim) -> bool {
        if self.began.elapsed() >= self.limit {
            held.note_expired();
            return false;
        }
        let end = held.wait(self.pause).await;
        self.last = Some((held, end));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// Counts the claim that was waited for as expired unless it was released. To be called when this process gets it.
    pub(crate) fn note_granted(&self) {
        if let Some((held, end)) = &self.last
            && has_expired(*end, self.began.elapsed(), self.limit)
        {
            held.note_expired();
        }
    }
}

/// Returns whether a claim that is free now has expired. Where ends are not announced, one that ended after
/// most of its time is taken for expired: a request that came later than the claim waits for less than the whole of it.
fn has_expired(end: WaitEnd, waited: Duration, limit: Duration) -> bool {
    match end {
        WaitEnd::Announced => false,
        WaitEnd::Silent => true,
        WaitEnd::Polled => waited >= limit * 3 / 4,
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_expired_if_its_end_was_not_announced() {
        let limit = Duration::from_secs(4);
        for (end, seconds, expected) in [
            (WaitEnd::Announced, 1, false),
            (WaitEnd::Announced, 4, false),
            (WaitEnd::Silent, 1, true),
            (WaitEnd::Polled, 2, false),
            (WaitEnd::Polled, 3, true),
        ] {
            let waited = Duration::from_secs(seconds);
            assert_eq!(
                has_expired(end, waited, limit),
                expected,
                "{end:?} after {seconds} s"
            );
        }
    }
}

//! Waits for a response that another process fetches.

use std::time::Duration;

use microcache_store::HeldClaim;
use tokio::time::Instant;

/// The pause before the first retry while another process fetches; it doubles with each retry.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The wait of a request for the claim of another process.
pub(crate) struct ClaimWait {
    began: Instant,
    /// The moment from which the present claim is waited for, as far as is known: the last end of one that was announced.
    since: Instant,
    /// The time for which a claim is held at most.
    limit: Duration,
    pause: Duration,
    /// The claim that was waited for last.
    last: Option<HeldClaim>,
}

impl ClaimWait {
    /// A wait for claims that are held for at most this time.
    pub(crate) fn new(limit: Duration) -> Self {
        let began = Instant::now();
        Self {
            began,
            since: began,
            limit,
            pause: FIRST_PAUSE,
            last: None,
        }
    }

    /// Waits for a moment, or for the end of the claim if the tier announces it. Returns false if the request has waited
    /// long enough.
    pub(crate) async fn wait(&mut self, held: HeldClaim) -> bool {
        if self.began.elapsed() >= self.limit {
            if self.has_expired(true) {
                held.note_expired();
            }
            return false;
        }
        let is_announced = held.wait(self.pause).await;
        self.note_end(is_announced);
        self.last = Some(held);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// Counts the claim that was waited for as expired unless it was released. To be called when this process gets it.
    pub(crate) fn note_granted(&self) {
        if let Some(held) = &self.last
            && self.has_expired(false)
        {
            held.note_expired();
        }
    }

    fn note_end(&mut self, is_announced: bool) {
        if is_announced {
            self.since = Instant::now();
        }
    }

    /// Returns whether the claim that is waited for, or that is free now, has expired. One that is free may have been
    /// released or removed by a purge without an announcement, so it is taken for expired only after most of its time:
    /// a request that came later than the claim waits for less than the whole of it.
    fn has_expired(&self, is_held: bool) -> bool {
        let least = if is_held {
            self.limit
        } else {
            self.limit * 3 / 4
        };
        self.since.elapsed() >= least
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_claim_has_expired_if_its_time_went_by_without_an_announced_end() {
        // Seconds between the ends of waits, which are announced or not; whether a claim has expired that is free then,
        // and one that is still held.
        for (ends, expected) in [
            (&[(2, false)][..], [false; 2]),
            (&[(3, false)], [true, false]),
            (&[(3, false), (1, false)], [true; 2]),
            (&[(4, true)], [false; 2]),
            (&[(1, true), (2, false)], [false; 2]),
            (&[(1, true), (3, false)], [true, false]),
            (&[(2, true), (2, false)], [false; 2]),
        ] {
            let mut wait = ClaimWait::new(Duration::from_secs(4));
            for &(seconds, is_announced) in ends {
                advance(Duration::from_secs(seconds)).await;
                wait.note_end(is_announced);
            }
            assert_eq!(
                [false, true].map(|is_held| wait.has_expired(is_held)),
                expected,
                "{ends:?}"
            );
        }
    }
}

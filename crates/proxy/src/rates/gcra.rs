//! Generic cell rate algorithm (GCRA; ITU-T I.371, appendix): a token bucket with a single number as its
//! state.
//!
//! The number is the theoretical arrival time, up to which the quota is used. Each request moves it forward
//! by its cost, and one that would move it beyond the burst is refused.

/// Time in microseconds.
pub(crate) type Micros = u64;

/// Rate and burst of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gcra {
    /// Cost of a request: the interval between two at the steady rate.
    each: Micros,
    /// Capacity: cost times burst.
    depth: Micros,
}

/// Refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooEarly {
    /// Time until the next request is allowed.
    pub(crate) by: Micros,
}

impl Gcra {
    /// Allows `count` requests per `per`, with a burst of `burst`. None of them is zero.
    pub(crate) fn new(count: u64, per: Micros, burst: u64) -> Self {
        let each = (per / count.max(1)).max(1);
        Self {
            each,
            depth: each.saturating_mul(burst.max(1)),
        }
    }

    /// Counts a request, or refuses it; `used_until` is the state.
    pub(crate) fn take(self, used_until: &mut Micros, now: Micros) -> Result<(), TooEarly> {
        *used_until = self.since(*used_until, now);
        let then = *used_until + self.each;
        match then.checked_sub(now + self.depth) {
            None | Some(0) => {
                *used_until = then;
                Ok(())
            }
            Some(by) => Err(TooEarly { by }),
        }
    }

    /// Requests allowed at once.
    pub(crate) fn left(self, used_until: Micros, now: Micros) -> u64 {
        (now + self.depth - self.since(used_until, now)) / self.each
    }

    /// Clamps the state to this limit's capacity, so that a state of a slower limit delays nothing further.
    fn since(self, used_until: Micros, now: Micros) -> Micros {
        used_until.clamp(now, now + self.depth)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Micros = 1_000_000;

    #[test]
    fn so_many_at_once_and_then_one_after_the_other() {
        let gcra = Gcra::new(10, SECOND, 3);
        let now = 5000 * SECOND;
        let mut used = 0;
        for left in [3, 2, 1] {
            assert_eq!(gcra.left(used, now), left);
            assert_eq!(gcra.take(&mut used, now), Ok(()));
        }
        assert_eq!(gcra.left(used, now), 0);
        let early = TooEarly { by: SECOND / 10 };
        assert_eq!(gcra.take(&mut used, now), Err(early));
        let later = now + SECOND / 10;
        assert_eq!(gcra.take(&mut used, later - 1), Err(TooEarly { by: 1 }));
        assert_eq!(gcra.take(&mut used, later), Ok(()));
        assert!(gcra.take(&mut used, later).is_err());
        assert_eq!(gcra.left(used, later + SECOND), 3, "no more than at first");
    }

    #[test]
    fn another_rate_forgives_requests_under_the_last() {
        let (slow, fast) = (Gcra::new(1, 86_400 * SECOND, 1), Gcra::new(10, SECOND, 1));
        let now = 5000 * SECOND;
        let mut used = 0;
        assert_eq!(slow.take(&mut used, now), Ok(()));
        let early = TooEarly { by: SECOND / 10 };
        assert_eq!(fast.take(&mut used, now), Err(early), "nothing is left");
        // From then on the faster rate applies: no wait of a day.
        assert_eq!(fast.take(&mut used, now + SECOND / 10), Ok(()));
    }

    proptest! {
        /// At any arrival times, no more than burst plus earned requests pass.
        #[test]
        fn no_client_exceeds_its_rate(
            count in 1..1000_u64, seconds in 1..1000_u64, burst in 1..50_u64,
            waits in prop::collection::vec(0..SECOND, 1..300),
        ) {
            let gcra = Gcra::new(count, seconds * SECOND, burst);
            let start = 1_700_000_000 * SECOND;
            let (mut now, mut used, mut taken) = (start, 0, 0);
            for wait in waits {
                now += wait;
                let left = gcra.left(used, now);
                prop_assert!(left <= burst);
                match gcra.take(&mut used, now) {
                    Ok(()) => {
                        prop_assert!(left > 0);
                        taken += 1;
                    }
                    Err(TooEarly { by }) => {
                        prop_assert!(left == 0 && by > 0);
                        // It is right to the microsecond.
                        let takes = |at| gcra.take(&mut used.clone(), at).is_ok();
                        prop_assert!(takes(now + by) && !takes(now + by - 1));
                    }
                }
            }
            let earned = (now - start) / gcra.each;
            prop_assert!(taken <= burst + earned);
        }
    }
}

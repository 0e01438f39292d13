//! How fast somebody may go on: the generic cell rate algorithm (ITU-T I.371, appendix), which needs one number of each.
//!
//! That number is the time until which what somebody had is used up. Each request puts it off by what it takes at the pace, and
//! one that would put it off too far is refused.

/// A time, in microseconds.
pub(crate) type Micros = u64;

/// So much at once, and so much again in each while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// What one request takes.
    each: Micros,
    /// What there is of it at most.
    depth: Micros,
}

/// It is too early for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooEarly {
    /// By so much.
    pub(crate) by: Micros,
}

impl Pace {
    /// For `count` requests in each `per`, of which `burst` may come at once. None of them is zero.
    pub(crate) fn new(count: u64, per: Micros, burst: u64) -> Self {
        let each = (per / count.max(1)).max(1);
        Self {
            each,
            depth: each.saturating_mul(burst.max(1)),
        }
    }

    /// Uses one up, where what there was is used up until then, and says so from now on.
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

    /// How many there are.
    pub(crate) fn left(self, used_until: Micros, now: Micros) -> u64 {
        (now + self.depth - self.since(used_until, now)) / self.each
    }

    /// Never further than the depth of now: where another pace was before, nobody waits for longer than this one says.
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
        let pace = Pace::new(10, SECOND, 3);
        let now = 5000 * SECOND;
        let mut used = 0;
        for left in [3, 2, 1] {
            assert_eq!(pace.left(used, now), left);
            assert_eq!(pace.take(&mut used, now), Ok(()));
        }
        assert_eq!(pace.left(used, now), 0);
        let early = TooEarly { by: SECOND / 10 };
        assert_eq!(pace.take(&mut used, now), Err(early));
        let later = now + SECOND / 10;
        assert_eq!(pace.take(&mut used, later - 1), Err(TooEarly { by: 1 }));
        assert_eq!(pace.take(&mut used, later), Ok(()));
        assert!(pace.take(&mut used, later).is_err());
        assert_eq!(pace.left(used, later + SECOND), 3, "no more than at first");
    }

    #[test]
    fn another_pace_forgives_what_was_asked_under_the_last() {
        let (slow, fast) = (Pace::new(1, 86_400 * SECOND, 1), Pace::new(10, SECOND, 1));
        let now = 5000 * SECOND;
        let mut used = 0;
        assert_eq!(slow.take(&mut used, now), Ok(()));
        let early = TooEarly { by: SECOND / 10 };
        assert_eq!(fast.take(&mut used, now), Err(early), "nothing is left");
        // And it is so from then on: he does not wait for a day.
        assert_eq!(fast.take(&mut used, now + SECOND / 10), Ok(()));
    }

    proptest! {
        /// Whenever they come, no more get through than were there at first and have come since.
        #[test]
        fn nobody_is_faster(
            count in 1..1000_u64, seconds in 1..1000_u64, burst in 1..50_u64,
            waits in prop::collection::vec(0..SECOND, 1..300),
        ) {
            let pace = Pace::new(count, seconds * SECOND, burst);
            let start = 1_700_000_000 * SECOND;
            let (mut now, mut used, mut taken) = (start, 0, 0);
            for wait in waits {
                now += wait;
                let left = pace.left(used, now);
                prop_assert!(left <= burst);
                match pace.take(&mut used, now) {
                    Ok(()) => {
                        prop_assert!(left > 0);
                        taken += 1;
                    }
                    Err(TooEarly { by }) => {
                        prop_assert!(left == 0 && by > 0);
                        // It is right to the microsecond.
                        let takes = |at| pace.take(&mut used.clone(), at).is_ok();
                        prop_assert!(takes(now + by) && !takes(now + by - 1));
                    }
                }
            }
            let earned = (now - start) / pace.each;
            prop_assert!(taken <= burst + earned);
        }
    }
}

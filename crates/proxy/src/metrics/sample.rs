//! Sampling: of hits one in sixteen, because reading the clock costs as much as parsing a request; of other requests
//! all up to a rate, and one in sixteen above it.

use std::cell::Cell;

use microcache_policy::Time;

/// Average sampling interval.
pub(super) const ONE_IN: u64 = 16;
/// Samples of a thread in a second beyond which requests other than hits are sampled.
const ALL_UP_TO: u64 = 200;

thread_local! {
    /// Hits up to and including the next sampled one.
    static LEFT: Cell<u64> = const { Cell::new(1) };
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
    static RATED: Cell<RatedSampler> = const { Cell::new(RatedSampler::new()) };
}

/// Sampler of requests other than hits. The interval to the next sample is chosen at each one, by the rate up to then:
/// so it does not depend on the requests that it is for, and scaled samples are right on average.
#[derive(Clone, Copy)]
struct RatedSampler {
    /// Requests up to and including the next sampled one.
    left: u64,
    /// Average interval in which the next sample is taken.
    one_in: u64,
    /// Beginning of the second in which samples are counted, and their number.
    second: Time,
    samples: u64,
}

impl RatedSampler {
    const fn new() -> Self {
        Self {
            left: 1,
            one_in: 1,
            second: Time::from_millis(0),
            samples: 0,
        }
    }

    fn take(&mut self, now: impl FnOnce() -> Time) -> Option<(u64, Time)> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let (now, one_in) = (now(), self.one_in);
        if now.since(self.second) >= 1000 {
            (self.second, self.samples) = (now, 0);
        }
        self.samples += 1;
        (self.one_in, self.left) = if self.samples < ALL_UP_TO {
            (1, 1)
        } else {
            (ONE_IN, gap())
        };
        Some((one_in, now))
    }
}

/// Counts a request other than a hit. If it is sampled, returns the number of requests that it stands for, and the time.
pub(super) fn take_rated(now: impl FnOnce() -> Time) -> Option<(u64, Time)> {
    let mut sampler = RATED.get();
    let taken = sampler.take(now);
    RATED.set(sampler);
    taken
}

/// Returns true if this thread's next hit is sampled.
pub(crate) fn is_next() -> bool {
    LEFT.get() == 1
}

/// Counts a hit and returns true if it is sampled. Must be called once per hit.
pub(super) fn take() -> bool {
    let left = LEFT.get() - 1;
    if left > 0 {
        LEFT.set(left);
        return false;
    }
    LEFT.set(gap());
    true
}

/// Distance to the next sample. It is random, so that no periodic request pattern is missed.
fn gap() -> u64 {
    let mut random = RANDOM.get();
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    RANDOM.set(random);
    // The mean of 1 to 31 is 16.
    1 + (random >> 33) % (2 * ONE_IN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_sampled_above_a_rate_only_and_right_on_average() {
        let mut sampler = RatedSampler::new();
        let (mut slow, mut fast) = (0, 0);
        // 90 in each second, then 20,000.
        for number in 0..900 {
            let taken = sampler.take(|| Time::from_millis(1_000_000 + number * 1000 / 90));
            assert_eq!(taken.map(|(one_in, _)| one_in), Some(1));
            slow += 1;
        }
        for number in 0..1_000_000 {
            let taken = sampler.take(|| Time::from_millis(2_000_000 + number / 20));
            fast += taken.map_or(0, |(one_in, _)| one_in);
            slow += u64::from(taken.is_some());
        }
        assert!((980_000..1_020_000).contains(&fast), "{fast}");
        assert!(slow < 75_000, "{slow} samples");
        // A burst does not change later seconds, apart from the interval that has begun.
        let later = |_| sampler.take(|| Time::from_millis(9_000_000));
        let taken: Vec<_> = (0..64).filter_map(later).collect();
        assert!(taken.len() > 64 - 2 * ONE_IN as usize);
        assert!(taken[1..].iter().all(|(one_in, _)| *one_in == 1));
    }

    #[test]
    fn one_in_sixteen_is_sampled_and_each_client_in_turn() {
        let rounds = 16_000;
        let mut taken = [0_u64; 16];
        for number in 0..rounds * 16 {
            let is_next = is_next();
            assert_eq!(take(), is_next);
            taken[number % 16] += u64::from(is_next);
        }
        // Each has its turn 1000 times, give or take.
        assert!(
            taken.iter().all(|times| (850..1150).contains(times)),
            "{taken:?}"
        );
    }
}

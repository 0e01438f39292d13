//! Cost of entries: the time that the origin needs for them.

use std::time::Duration;

use super::magnitude::Magnitude;

/// Time from sending a request to the head of its response, without queueing, on a logarithmic scale from 2 µs to
/// an hour. It may be unknown; then it is taken for the median.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchCost(u8);

impl FetchCost {
    /// Returns the cost of a fetch that took this long.
    pub const fn of(took: Duration) -> Self {
        let micros = took.as_micros();
        Self(Magnitude::of(if micros < 2 { 2 } else { micros as u64 }).step())
    }

    /// Encodes the cost; 0 if unknown.
    pub const fn to_byte(self) -> u8 {
        self.0
    }

    /// Decodes the cost.
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// Returns this cost, or the other one if it is unknown.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        if self.0 == 0 { other } else { self }
    }
}

/// Running estimate of the median of costs.
#[derive(Debug)]
pub(super) struct MedianCost {
    /// In fractions of a step of [`FetchCost`]; 0 before the first cost is known.
    estimate: i32,
}

impl MedianCost {
    /// Observations that move the estimate by a step.
    const INERTIA: i32 = 16;
    /// Most that a cost counts above the median: 16 times.
    const CAP: i32 = 4 * Magnitude::OCTAVE;

    pub(super) const fn new() -> Self {
        Self { estimate: 0 }
    }

    pub(super) fn observe(&mut self, cost: FetchCost) {
        let observed = i32::from(cost.0) * Self::INERTIA;
        if observed == 0 {
            return;
        }
        self.estimate = match self.estimate {
            0 => observed,
            estimate => estimate + (observed - estimate).signum(),
        };
    }

    /// Returns the ratio of a cost to the median, in steps of its logarithm: 0 if one of them is unknown.
    pub(super) fn ratio(&self, cost: FetchCost) -> i32 {
        match (cost.0, self.estimate) {
            (0, _) | (_, 0) => 0,
            (step, estimate) => Self::CAP.min(i32::from(step) - estimate / Self::INERTIA),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(millis: u64) -> FetchCost {
        FetchCost::of(Duration::from_millis(millis))
    }

    #[test]
    fn a_cost_is_a_byte_and_known() {
        for took in [Duration::ZERO, Duration::from_micros(3), Duration::MAX] {
            let cost = FetchCost::of(took);
            assert_ne!(cost, FetchCost::default());
            assert_eq!(FetchCost::from_byte(cost.to_byte()), cost);
            assert_eq!(FetchCost::default().or(cost), cost);
        }
        assert_eq!(cost(1000).to_byte() - cost(500).to_byte(), 8);
    }

    #[test]
    fn costs_count_up_to_sixteen_times_the_median() {
        let mut median = MedianCost::new();
        for round in 0..10_000 {
            median.observe(cost([2, 100, 100, 100, 2000][round % 5]));
            median.observe(FetchCost::default());
        }
        assert_eq!(median.ratio(FetchCost::default()), 0);
        assert_eq!(median.ratio(cost(100)), 0);
        assert_eq!(median.ratio(cost(200)), 8);
        assert_eq!(median.ratio(cost(1600)), 32);
        assert_eq!(median.ratio(cost(1_000_000)), 32);
        assert!(median.ratio(cost(1)) < -50);
    }

    #[test]
    fn a_cost_is_that_of_the_median_until_one_is_known() {
        assert_eq!(MedianCost::new().ratio(cost(1000)), 0);
    }

    #[test]
    fn the_median_follows_a_change() {
        let mut median = MedianCost::new();
        (0..10).for_each(|_| median.observe(cost(1)));
        (0..1500).for_each(|_| median.observe(cost(1000)));
        assert_eq!(median.ratio(cost(1000)), 0);
    }
}

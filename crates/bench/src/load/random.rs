//! Seeded pseudo-random numbers.

use std::time::Duration;

/// `SplitMix64`: one addition and three multiplications per number, any seed valid.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns an independent stream of the seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed);
        let offset = mixed.next();
        Self(offset ^ Self(stream).next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in [0, 1).
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number in [0, end). Its bias of one in 2^64 per value is negligible here.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a duration between the two.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn numbers_stay_below_and_reach_everything() {
        let mut random = Random::new(7, 0);
        let mut seen = [0u32; 5];
        for _ in 0..5000 {
            seen[random.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (900..1100).contains(&n)), "{seen:?}");
    }

    #[test]
    fn times_are_between() {
        let mut random = Random::new(7, 0);
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(3));
        let times: Vec<_> = (0..1000).map(|_| random.between(least, most)).collect();
        assert!(times.iter().all(|t| (least..=most).contains(t)));
        let mean = times.iter().sum::<Duration>() / 1000;
        assert!(mean.abs_diff(Duration::from_secs(2)) < Duration::from_millis(100));
        assert_eq!(random.between(most, most), most);
    }
}

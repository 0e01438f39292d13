//! Seeded chance: the same numbers in every run.

/// Pseudo-random generator (splitmix64).
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// A number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The time until the next of events that come independently of each other.
    pub(crate) fn pause(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }
}

/// Popularity by rank (Zipf's law), as cumulative shares.
#[derive(Debug)]
pub(crate) struct Popularity(Vec<f64>);

impl Popularity {
    pub(crate) fn zipf(count: usize, exponent: f64) -> Self {
        let weights = (1..=count).map(|rank| (rank as f64).powf(-exponent));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self(sums.collect())
    }

    pub(crate) fn pick(&self, chance: &mut Chance) -> usize {
        let at = chance.share() * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum <= at)
    }
}

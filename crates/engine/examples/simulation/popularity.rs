//! Popularity of pages.

use microcache_testkit::Chance;

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

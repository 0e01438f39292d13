//! Selection of the URL of the next request.

use super::random::Random;
use super::settings::UrlOrder;
use super::target::LoadTarget;

/// URL selector of one thread.
#[derive(Debug)]
pub(crate) struct UrlSelector {
    /// Running total of URLs, up to and including each target.
    ends: Vec<u64>,
    way: SelectionState,
    random: Random,
}

#[derive(Debug)]
enum SelectionState {
    /// Round robin; `step` is the number of threads.
    Sequential {
        next: u64,
        step: u64,
    },
    Uniform,
    Zipf(Zipf),
}

/// Selected URL: index of its target, and its index within the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UrlChoice {
    pub(crate) target: usize,
    pub(crate) index: u64,
}

impl UrlSelector {
    /// Creates the selector of thread `thread` of `threads`.
    pub(crate) fn new(
        targets: &[LoadTarget],
        choice: UrlOrder,
        seed: u64,
        thread: usize,
        threads: usize,
    ) -> Self {
        let ends: Vec<u64> = targets
            .iter()
            .scan(0u64, |sum, target| {
                *sum = sum.saturating_add(target.url.count());
                Some(*sum)
            })
            .collect();
        let count = ends.last().copied().unwrap_or(0);
        let way = match choice {
            UrlOrder::Sequential => SelectionState::Sequential {
                next: thread as u64,
                step: threads as u64,
            },
            UrlOrder::Uniform => SelectionState::Uniform,
            UrlOrder::Zipf(exponent) => SelectionState::Zipf(Zipf::new(count, exponent)),
        };
        let random = Random::new(seed, thread as u64);
        Self { ends, way, random }
    }

    pub(crate) fn next(&mut self) -> UrlChoice {
        let count = self.ends.last().copied().unwrap_or(1).max(1);
        let at = match &mut self.way {
            SelectionState::Sequential { next, step } => {
                let at = *next % count;
                *next = at.wrapping_add(*step);
                at
            }
            SelectionState::Uniform => self.random.below(count),
            SelectionState::Zipf(zipf) => zipf.sample(&mut self.random) - 1,
        };
        if self.ends.len() == 1 {
            return UrlChoice {
                target: 0,
                index: at,
            };
        }
        let target = self.ends.partition_point(|&end| end <= at);
        let before = match target {
            0 => 0,
            later => self.ends[later - 1],
        };
        UrlChoice {
            target,
            index: at - before,
        }
    }
}

/// Zipf distribution by rejection-inversion (W. Hörmann and G. Derflinger, 1996): no table, and barely more
/// than one iteration per sample at any count.
#[derive(Debug)]
struct Zipf {
    count: u64,
    exponent: f64,
    /// Integral of the hat function at both ends.
    left: f64,
    right: f64,
    /// Distance below an integer within which a sample is accepted without the rejection test.
    sure: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let count = count.max(1);
        Self {
            count,
            exponent,
            left: integral(1.5, exponent) - 1.0,
            right: integral(count as f64 + 0.5, exponent),
            sure: 2.0 - inverse(integral(2.5, exponent) - 2f64.powf(-exponent), exponent),
        }
    }

    /// Returns a rank between 1 and the count.
    #[expect(clippy::cast_sign_loss, reason = "a rank is at least 1")]
    fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.right + random.fraction() * (self.left - self.right);
            let x = inverse(u, self.exponent);
            let near = (x + 0.5).floor().clamp(1.0, self.count as f64);
            if near - x <= self.sure
                || u >= integral(near + 0.5, self.exponent) - near.powf(-self.exponent)
            {
                return near as u64;
            }
        }
    }
}

/// Integral of x^-exponent, written so that an exponent of 1 needs no special case.
fn integral(x: f64, exponent: f64) -> f64 {
    let log = x.ln();
    let scaled = (1.0 - exponent) * log;
    if scaled.abs() < 1e-8 {
        return log * (1.0 + scaled / 2.0);
    }
    log * scaled.exp_m1() / scaled
}

/// Inverse of [`integral`].
fn inverse(area: f64, exponent: f64) -> f64 {
    let scaled = (area * (1.0 - exponent)).max(-1.0);
    if scaled.abs() < 1e-8 {
        return (area * (1.0 - scaled / 2.0)).exp();
    }
    (area * scaled.ln_1p() / scaled).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::target::TargetUrl;

    fn targets(urls: &[&str]) -> Vec<LoadTarget> {
        let url = |url: &&str| LoadTarget::get(TargetUrl::parse(url).expect("a url"));
        urls.iter().map(url).collect()
    }

    #[test]
    fn urls_are_sequential_with_any_number_of_threads() {
        let targets = targets(&["http://a/[1-3]", "http://b/"]);
        let mut choosers: Vec<_> = (0..2)
            .map(|thread| UrlSelector::new(&targets, UrlOrder::Sequential, 1, thread, 2))
            .collect();
        let mut seen: Vec<_> = (0..8)
            .map(|turn| choosers[turn % 2].next())
            .map(|choice| (choice.target, choice.index))
            .collect();
        assert_eq!(seen[..4], [(0, 0), (0, 1), (0, 2), (1, 0)]);
        seen.sort_unstable();
        assert_eq!(seen[..4], [(0, 0), (0, 0), (0, 1), (0, 1)]);
    }

    #[test]
    fn every_url_is_as_likely_as_any_other() {
        let targets = targets(&["http://a/[1-3]", "http://b/"]);
        let mut chooser = UrlSelector::new(&targets, UrlOrder::Uniform, 1, 0, 1);
        let mut seen = [0u32; 4];
        for _ in 0..8000 {
            let choice = chooser.next();
            seen[choice.target * 3 + choice.index as usize] += 1;
        }
        assert!(seen.iter().all(|n| (1850..2150).contains(n)), "{seen:?}");
    }

    /// Compares the sampled frequencies with those of the definition.
    fn check_zipf(count: u64, exponent: f64) {
        const DRAWS: u32 = 200_000;
        let zipf = Zipf::new(count, exponent);
        let mut random = Random::new(3, 0);
        let mut seen = vec![0u32; count as usize + 1];
        for _ in 0..DRAWS {
            seen[zipf.sample(&mut random) as usize] += 1;
        }
        let weight = |rank: u64| (rank as f64).powf(-exponent);
        let sum: f64 = (1..=count).map(weight).sum();
        for rank in [1, 2, 3, count / 2, count] {
            let rank = rank.clamp(1, count);
            let wanted = f64::from(DRAWS) * weight(rank) / sum;
            let drawn = f64::from(seen[rank as usize]);
            let allowed = 5.0 * wanted.sqrt() + 1.0;
            assert!(
                (drawn - wanted).abs() < allowed,
                "rank {rank} of {count}, exponent {exponent}: {drawn} for {wanted}"
            );
        }
    }

    #[test]
    fn zipf_is_zipf() {
        for count in [1, 2, 10, 5000] {
            for exponent in [0.0, 0.5, 0.99, 1.0, 1.3, 3.0] {
                check_zipf(count, exponent);
            }
        }
    }
}

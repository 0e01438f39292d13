//! Which url comes next.

use super::random::Random;
use super::settings::Choice;
use super::target::Target;

/// Chooses for one thread.
#[derive(Debug)]
pub(crate) struct Chooser {
    /// Urls up to and including those of each target.
    ends: Vec<u64>,
    way: Way,
    random: Random,
}

#[derive(Debug)]
enum Way {
    /// The next one, and how far the one after it is: threads take turns.
    Sequential {
        next: u64,
        step: u64,
    },
    Uniform,
    Zipf(Zipf),
}

/// One url: which target, and which of the target's urls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) target: usize,
    pub(crate) index: u64,
}

impl Chooser {
    /// For one thread of so many.
    pub(crate) fn new(
        targets: &[Target],
        choice: Choice,
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
            Choice::Sequential => Way::Sequential {
                next: thread as u64,
                step: threads as u64,
            },
            Choice::Uniform => Way::Uniform,
            Choice::Zipf(exponent) => Way::Zipf(Zipf::new(count, exponent)),
        };
        let random = Random::new(seed, thread as u64);
        Self { ends, way, random }
    }

    pub(crate) fn next(&mut self) -> Chosen {
        let count = self.ends.last().copied().unwrap_or(1).max(1);
        let at = match &mut self.way {
            Way::Sequential { next, step } => {
                let at = *next % count;
                *next = at.wrapping_add(*step);
                at
            }
            Way::Uniform => self.random.below(count),
            Way::Zipf(zipf) => zipf.sample(&mut self.random) - 1,
        };
        if self.ends.len() == 1 {
            return Chosen {
                target: 0,
                index: at,
            };
        }
        let target = self.ends.partition_point(|&end| end <= at);
        let before = match target {
            0 => 0,
            later => self.ends[later - 1],
        };
        Chosen {
            target,
            index: at - before,
        }
    }
}

/// Zipf's distribution by rejection-inversion (W. Hörmann and G. Derflinger, 1996): no table, and hardly
/// more than one try a number whatever the count.
#[derive(Debug)]
struct Zipf {
    count: u64,
    exponent: f64,
    /// The integral of the hat at its left and right ends.
    left: f64,
    right: f64,
    /// So near below a whole number, no test is needed.
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

    /// From 1 to the count.
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

/// Of x to the power of minus the exponent; written so that an exponent of 1 is no special case.
fn integral(x: f64, exponent: f64) -> f64 {
    let log = x.ln();
    let scaled = (1.0 - exponent) * log;
    if scaled.abs() < 1e-8 {
        return log * (1.0 + scaled / 2.0);
    }
    log * scaled.exp_m1() / scaled
}

/// The inverse of [`integral`].
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
    use crate::load::target::Url;

    fn targets(urls: &[&str]) -> Vec<Target> {
        let url = |url: &&str| Target::get(Url::parse(url).expect("a url"));
        urls.iter().map(url).collect()
    }

    #[test]
    fn one_after_the_other_whatever_the_threads() {
        let targets = targets(&["http://a/[1-3]", "http://b/"]);
        let mut choosers: Vec<_> = (0..2)
            .map(|thread| Chooser::new(&targets, Choice::Sequential, 1, thread, 2))
            .collect();
        let mut seen: Vec<_> = (0..8)
            .map(|turn| choosers[turn % 2].next())
            .map(|chosen| (chosen.target, chosen.index))
            .collect();
        assert_eq!(seen[..4], [(0, 0), (0, 1), (0, 2), (1, 0)]);
        seen.sort_unstable();
        assert_eq!(seen[..4], [(0, 0), (0, 0), (0, 1), (0, 1)]);
    }

    #[test]
    fn every_url_is_as_likely_as_any_other() {
        let targets = targets(&["http://a/[1-3]", "http://b/"]);
        let mut chooser = Chooser::new(&targets, Choice::Uniform, 1, 0, 1);
        let mut seen = [0u32; 4];
        for _ in 0..8000 {
            let chosen = chooser.next();
            seen[chosen.target * 3 + chosen.index as usize] += 1;
        }
        assert!(seen.iter().all(|n| (1850..2150).contains(n)), "{seen:?}");
    }

    /// Holds the shares that were drawn against those of the definition.
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

//! Latency histogram; a bucket is an eighth of its octave wide.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::threads::WriteMode;

/// Width of the first buckets in nanoseconds. An octave begins at each power of two of eight times that, a
/// microsecond.
const UNIT: u64 = 125;
/// Buckets of an octave.
const CLASSES: usize = 8;
/// Octaves. The last one ends above one hour; its last bucket takes longer times too.
const OCTAVES: usize = 32;
const SIZE: usize = CLASSES * (OCTAVES + 1);

/// Bucket counters.
pub(super) struct Histogram {
    classes: [AtomicU64; SIZE],
    nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            classes: array::from_fn(|_| AtomicU64::new(0)),
            nanos: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub(super) fn record(&self, took: Duration, writer: WriteMode) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        writer.add(&self.classes[class_of(nanos)], 1);
        writer.add(&self.nanos, nanos);
    }

    /// Adds the recorded times to `times`.
    pub(super) fn read_into(&self, times: &mut Latencies) {
        for (sum, class) in times.classes.iter_mut().zip(&self.classes) {
            *sum += class.load(Ordering::Relaxed);
        }
        times.nanos = times.nanos.wrapping_add(self.nanos.load(Ordering::Relaxed));
    }
}

fn class_of(nanos: u64) -> usize {
    let units = nanos / UNIT;
    if units < CLASSES as u64 {
        return units as usize;
    }
    // The three bits after the leading one are the number of the eighth of the octave.
    let octave = units.ilog2() - CLASSES.ilog2();
    let eighth = (units >> octave) as usize - CLASSES;
    ((octave as usize + 1) * CLASSES + eighth).min(SIZE - 1)
}

/// Upper bound of a bucket, in nanoseconds.
fn end_of(class: usize) -> u64 {
    let (octave, eighth) = (class / CLASSES, class % CLASSES);
    match octave.checked_sub(1) {
        None => (eighth as u64 + 1) * UNIT,
        Some(octave) => ((CLASSES + eighth + 1) as u64 * UNIT) << octave,
    }
}

/// A snapshot of a latency histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    classes: Box<[u64; SIZE]>,
    nanos: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            classes: Box::new([0; SIZE]),
            nanos: 0,
        }
    }
}

impl Latencies {
    /// Number of recorded times.
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Sum of the recorded times.
    pub const fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Mean; `None` if nothing was recorded.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.nanos.checked_div(self.count())?;
        Some(Duration::from_nanos(mean))
    }

    /// Percentile in thousandths, accurate to an eighth; `None` if nothing was recorded.
    pub fn longest_of(&self, per_mille: u64) -> Option<Duration> {
        let all = self.count();
        let wanted = all.saturating_mul(per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let enough = self.classes.iter().position(|&times| {
            seen += times;
            seen >= wanted
        });
        enough.map(|class| Duration::from_nanos(end_of(class)))
    }

    /// Number of times below two to this power microseconds.
    pub fn below(&self, power: usize) -> u64 {
        let end = CLASSES * (power + 1);
        self.classes.iter().take(end).sum()
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.classes.iter_mut().zip(other.classes.iter()) {
            *sum += more;
        }
        self.nanos = self.nanos.wrapping_add(other.nanos);
    }

    /// Times recorded since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (now, before) in since.classes.iter_mut().zip(earlier.classes.iter()) {
            *now = now.saturating_sub(*before);
        }
        since.nanos = since.nanos.wrapping_sub(earlier.nanos);
        since
    }

    /// Compact form for storage.
    pub fn kept(&self) -> CompactLatencies {
        let classes = self.classes.iter().enumerate();
        let classes = classes.filter(|(_, times)| **times > 0);
        CompactLatencies {
            classes: classes
                .map(|(class, &times)| (class as u16, times))
                .collect(),
            nanos: self.nanos,
        }
    }

    /// Adds a compact histogram.
    pub fn add_kept(&mut self, kept: &CompactLatencies) {
        for &(class, times) in &kept.classes {
            self.classes[usize::from(class)] += times;
        }
        self.nanos = self.nanos.wrapping_add(kept.nanos);
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<T: IntoIterator<Item = Duration>>(times: T) -> Self {
        let mut all = Self::default();
        for took in times {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            all.classes[class_of(nanos)] += 1;
            all.nanos = all.nanos.wrapping_add(nanos);
        }
        all
    }
}

/// [`Latencies`] of a short interval, without the empty buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactLatencies {
    classes: Box<[(u16, u64)]>,
    nanos: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanos: impl IntoIterator<Item = u64>) -> Latencies {
        let histogram = Histogram::default();
        for nanos in nanos {
            histogram.record(Duration::from_nanos(nanos), WriteMode::Alone);
        }
        let mut times = Latencies::default();
        histogram.read_into(&mut times);
        times
    }

    #[test]
    fn every_time_has_a_class_that_is_no_more_than_an_eighth_off() {
        let mut last = 0;
        for class in 0..SIZE {
            let end = end_of(class);
            assert!(end > last, "{class}");
            assert_eq!((class_of(last), class_of(end - 1)), (class, class));
            if class >= CLASSES {
                assert!((end - last) * 8 <= last, "{class}: {last} to {end}");
            }
            last = end;
        }
        assert!(last > 3_600_000_000_000, "more than an hour");
        for beyond in [last, u64::MAX] {
            assert_eq!(class_of(beyond), SIZE - 1);
        }
    }

    #[test]
    fn percentiles_mean_and_classes_match_the_samples() {
        let times = of((1..=1000).map(|micros| micros * 1000));
        assert_eq!(times.count(), 1000);
        assert_eq!(times.mean(), Some(Duration::from_nanos(500_500)));
        for (per_mille, micros) in [(0, 1), (500, 500), (990, 990), (999, 999), (1000, 1000)] {
            let estimate = times.longest_of(per_mille).expect("there are some");
            let exact = Duration::from_micros(micros);
            assert!(
                estimate >= exact && estimate <= exact * 9 / 8,
                "{per_mille}: {estimate:?}"
            );
        }
        // Less than 1, 2, 4 and 1024 microseconds.
        assert_eq!(
            [0, 1, 2, 10].map(|power| times.below(power)),
            [0, 1, 3, 1000]
        );
        let none = Latencies::default();
        assert_eq!((none.mean(), none.longest_of(500)), (None, None));
    }

    #[test]
    fn the_difference_has_the_samples_since() {
        let (first, second) = ([5_000, 70_000], [5_000, 9_000_000]);
        let earlier = of(first);
        let mut all = earlier.clone();
        all.add(&of(second));
        assert_eq!(all.since(&earlier), of(second));
        assert_eq!(all.since(&all), Latencies::default());
        let mut again = Latencies::default();
        for kept in [earlier.kept(), all.since(&earlier).kept()] {
            assert_eq!(kept.classes.len(), 2);
            again.add_kept(&kept);
        }
        assert_eq!(again, all);
    }
}

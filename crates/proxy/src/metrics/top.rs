//! Top URLs by several measures, in bounded memory.
//!
//! Each measure has a [`TopTable`] for the current interval and one for the last, so that old popularity fades.

use microcache_policy::Time;

use super::sample;
pub use super::table::Amount;
use super::table::{Spread, TopTable};
use super::url::{DisplayUrl, RequestUrl};

/// Interval of a table, in milliseconds.
const WHILE: u64 = 300_000;

/// Measure by which URLs are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Client requests.
    Requests,
    /// Bytes of content sent to clients.
    Bytes,
    /// Client requests that led to an origin request, or waited for a coalesced one.
    Misses,
    /// Origin response time in microseconds, to the last byte.
    OriginTime,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Requests, Self::Bytes, Self::Misses, Self::OriginTime];

    /// Returns true if the measure includes hits, which are always sampled.
    const fn includes_hits(self) -> bool {
        matches!(self, Self::Requests | Self::Bytes)
    }
}

/// A URL with its amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopUrl {
    /// The URL, cut if it is long.
    pub url: String,
    /// The URL was cut.
    pub is_cut: bool,
    /// By measure, in the order of [`Measure::ALL`]; `None` if it is not in the table of that measure.
    pub amounts: [Option<Amount>; Measure::ALL.len()],
}

/// Ranking of URLs, and the interval it covers.
#[derive(Clone, Debug, Default)]
pub struct TopUrls {
    /// In descending order.
    pub urls: Vec<TopUrl>,
    /// Length of the interval, in milliseconds.
    pub millis: u64,
}

/// Tables of one thread.
#[derive(Default)]
pub(super) struct ThreadTop {
    began: Time,
    before: Option<Time>,
    tables: [[TopTable; 2]; Measure::ALL.len()],
}

impl ThreadTop {
    /// Adds amounts to a URL, for a request sampled as one in `one_in`.
    pub(super) fn add(
        &mut self,
        named: RequestUrl<'_>,
        amounts: &[(Measure, u64)],
        one_in: u64,
        now: Time,
    ) {
        self.turn(now);
        let hash = DisplayUrl::hash(named);
        for &(measure, amount) in amounts {
            self.tables[measure as usize][0].add(
                hash,
                named,
                amount.saturating_mul(one_in),
                one_in,
            );
        }
    }

    /// Starts new tables at the end of the interval.
    fn turn(&mut self, now: Time) {
        let age = now.since(self.began);
        if age < WHILE {
            return;
        }
        for [this, last] in &mut self.tables {
            std::mem::swap(this, last);
            this.clear();
            if age >= 2 * WHILE {
                last.clear();
            }
        }
        self.before = (age < 2 * WHILE).then_some(self.began);
        self.began = now;
    }

    /// Merges the tables of this thread into `all`.
    pub(super) fn read_into(&mut self, all: &mut MergedTop, now: Time) {
        self.turn(now);
        all.since = all.since.min(self.before.unwrap_or(self.began));
        for (measure, tables) in Measure::ALL.into_iter().zip(&self.tables) {
            for table in tables {
                all.merge(measure, table);
            }
        }
    }
}

/// Tables of all threads, merged.
pub(super) struct MergedTop {
    since: Time,
    urls: std::collections::HashMap<u64, (TopUrl, [Spread; Measure::ALL.len()])>,
}

impl MergedTop {
    pub(super) fn new(now: Time) -> Self {
        Self {
            since: now,
            urls: std::collections::HashMap::new(),
        }
    }

    fn merge(&mut self, measure: Measure, table: &TopTable) {
        for (hash, url, amount, spread) in table.all() {
            let (known, spreads) = self.urls.entry(hash).or_insert_with(|| {
                let url = TopUrl {
                    url: url.to_string(),
                    is_cut: url.is_cut(),
                    amounts: Default::default(),
                };
                (url, Default::default())
            });
            spreads[measure as usize].join(spread);
            let sum = known.amounts[measure as usize].get_or_insert_default();
            sum.seen = sum.seen.saturating_add(amount.seen);
            sum.error = sum.error.saturating_add(amount.error);
        }
    }

    /// Ranking by this measure.
    pub(super) fn most(self, measure: Measure, limit: usize, now: Time) -> TopUrls {
        // Ranked by the lower bound, so that a URL that inherited its count comes last. Sampling errors are
        // left out of it: they apply to all alike.
        let surely = |url: &TopUrl| {
            let amount = url.amounts[measure as usize].unwrap_or_default();
            (amount.seen - amount.error, amount.seen)
        };
        let mut urls: Vec<_> = self.urls.into_values().collect();
        let is_sampled = Measure::ALL.map(|measure| {
            let mut spreads = urls.iter().map(|(_, spreads)| spreads[measure as usize]);
            measure.includes_hits() || spreads.any(Spread::has_samples)
        });
        urls.retain(|(url, _)| url.amounts[measure as usize].is_some());
        urls.sort_by(|(a, _), (b, _)| surely(b).cmp(&surely(a)).then_with(|| a.url.cmp(&b.url)));
        urls.truncate(limit);
        let with_samples = |counted| with_samples(counted, is_sampled);
        let urls = urls.into_iter().map(with_samples).collect();
        TopUrls {
            urls,
            millis: now.since(self.since),
        }
    }
}

/// Adds the sampling error to a URL's amounts, for the measures that are sampled.
fn with_samples(
    (mut url, spreads): (TopUrl, [Spread; Measure::ALL.len()]),
    is_sampled: [bool; Measure::ALL.len()],
) -> TopUrl {
    let amounts = url.amounts.iter_mut().zip(spreads).zip(is_sampled);
    for ((amount, spread), is_sampled) in amounts {
        if let Some(amount) = amount.as_mut().filter(|_| is_sampled) {
            let error = spread.error(sample::ONE_IN);
            amount.error = amount.error.saturating_add(error);
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use microcache_policy::Scheme;

    use super::*;

    use Measure::{Bytes, Misses, OriginTime, Requests};

    const START: Time = Time::from_millis(1_000_000);

    fn named(target: &str) -> RequestUrl<'_> {
        RequestUrl {
            scheme: Scheme::Http,
            host: b"a.example",
            target: target.as_bytes(),
        }
    }

    fn most(top: &mut ThreadTop, measure: Measure, limit: usize, now: Time) -> TopUrls {
        let mut all = MergedTop::new(now);
        top.read_into(&mut all, now);
        all.most(measure, limit, now)
    }

    #[test]
    fn a_frequent_url_is_found_among_a_million_others() {
        let mut top = ThreadTop::default();
        for number in 0..1_000_000_u64 {
            let target = format!("/once/{number}?{}", "x".repeat((number % 7) as usize));
            top.add(named(&target), &[(Measure::Requests, 1)], 1, START);
            if number % 20 == 0 {
                top.add(named("/often"), &[(Measure::Requests, 2)], 1, START);
            }
        }
        let found = most(&mut top, Measure::Requests, 10, START.plus(9_000));
        assert_eq!((found.urls.len(), found.millis), (10, 9_000));
        let first = &found.urls[0];
        assert_eq!(first.url, "http://a.example/often");
        let amount = first.amounts[0].expect("it is among the most");
        assert!(amount.seen >= 100_000 && amount.seen - amount.error <= 100_000);
        let bound = 1_100_000 / super::super::table::PLACES as u64;
        assert!(amount.error <= bound, "{amount:?}");
    }

    #[test]
    fn a_host_is_the_same_in_every_spelling() {
        let mut top = ThreadTop::default();
        for host in ["a.example", "A.Example", "a.example:80", "a.example:8080"] {
            let host = host.as_bytes();
            let named = RequestUrl { host, ..named("/") };
            top.add(named, &[(Requests, 1)], 1, START);
        }
        let urls = most(&mut top, Requests, 9, START).urls;
        let listed: Vec<_> = urls.iter().map(|url| &*url.url).collect();
        assert_eq!(listed, ["http://a.example/", "http://a.example:8080/"]);
        assert_eq!(urls[0].amounts[0].map(|amount| amount.seen), Some(3));
    }

    #[test]
    fn every_measure_has_an_order_of_its_own() {
        let mut top = ThreadTop::default();
        top.add(named("/a"), &[(Requests, 3), (Bytes, 10)], 1, START);
        top.add(
            named("/b"),
            &[(Requests, 1), (Bytes, 99), (Misses, 1)],
            1,
            START,
        );
        let first = |top: &mut ThreadTop, measure| most(top, measure, 1, START).urls.pop();
        assert_eq!(first(&mut top, Requests).unwrap().url, "http://a.example/a");
        let by_bytes = first(&mut top, Bytes).unwrap();
        assert_eq!(by_bytes.url, "http://a.example/b");
        assert_eq!(by_bytes.amounts[0].map(|amount| amount.seen), Some(1));
        assert_eq!(by_bytes.amounts[3], None);
        assert_eq!(first(&mut top, OriginTime), None);
    }

    #[test]
    fn a_url_no_longer_frequent_is_forgotten() {
        let mut top = ThreadTop::default();
        let add = |top: &mut ThreadTop, target, now| {
            top.add(named(target), &[(Measure::Requests, 1)], 1, now);
        };
        let urls = |top: &mut ThreadTop, now| most(top, Measure::Requests, 9, now).urls.len();
        add(&mut top, "/old", START);
        let next = START.plus(WHILE);
        add(&mut top, "/new", next);
        assert_eq!(urls(&mut top, next), 2);
        assert_eq!(urls(&mut top, next.plus(WHILE)), 1);
        assert_eq!(urls(&mut top, next.plus(2 * WHILE)), 0);
        add(&mut top, "/new", next.plus(2 * WHILE));
        assert_eq!(urls(&mut top, next.plus(9 * WHILE)), 0);
    }

    #[test]
    fn a_long_url_is_cut_and_still_itself() {
        let mut top = ThreadTop::default();
        let long = format!("/{}", "é".repeat(32 * 1024));
        for last in ["1", "2", "2"] {
            top.add(
                named(&format!("{long}{last}")),
                &[(Measure::Requests, 1)],
                1,
                START,
            );
        }
        let found = most(&mut top, Measure::Requests, 9, START).urls;
        assert_eq!(found.len(), 2, "those that begin alike are two");
        for url in found {
            assert!(
                url.is_cut
                    && url.url.len() <= super::super::url::MOST
                    && !url.url.contains('\u{fffd}')
            );
        }
    }

    /// The bound holds of what samples have missed as well.
    #[test]
    fn samples_leave_no_number_surer_than_it_is() {
        let urls = 3_000_usize;
        let mut outside = 0;
        for hits in [1_u64, 3, 40, 1_000] {
            for number in 0..urls {
                let mut top = ThreadTop::default();
                top.add(named("/"), &[(Requests, 1), (Bytes, 100)], 1, START);
                // Other requests come between.
                for _ in 0..number % 37 {
                    sample::take();
                }
                for _ in 0..hits {
                    if sample::take() {
                        top.add(
                            named("/"),
                            &[(Requests, 1), (Bytes, 100)],
                            sample::ONE_IN,
                            START,
                        );
                    }
                }
                let found = most(&mut top, Requests, 1, START).urls.remove(0);
                for (amount, unit) in [(found.amounts[0], 1), (found.amounts[1], 100)] {
                    let amount = amount.expect("it is there");
                    let real = (1 + hits) * unit;
                    outside += usize::from(amount.seen.abs_diff(real) > amount.error);
                }
            }
        }
        assert!(outside <= urls * 8 / 100, "{outside} of {}", urls * 8);
        // An amount that is not sampled is as sure as ever.
        let mut top = ThreadTop::default();
        top.add(named("/"), &[(Misses, 1), (OriginTime, 70)], 1, START);
        let found = most(&mut top, Misses, 1, START).urls.remove(0);
        let errors = found.amounts.map(|amount| amount.map(|it| it.error));
        assert_eq!(errors, [None, None, Some(0), Some(0)]);
        // Above the rate of samples, every URL of the measure may have been missed.
        top.add(named("/b"), &[(Misses, 1)], sample::ONE_IN, START);
        let found = most(&mut top, Misses, 2, START).urls;
        let errors = [&found[0], &found[1]].map(|url| url.amounts[2].map(|it| it.error));
        assert!(
            errors
                .iter()
                .all(|error| error.is_some_and(|it| it > sample::ONE_IN))
        );
        assert_eq!(found[1].amounts[3].map(|it| it.error), Some(0));
    }
}

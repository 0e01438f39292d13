//! Seeded traces: a catalogue of files and pages with Zipf popularity, objects requested once, daily scans and
//! daily drift.

use super::random::Random;

/// Objects of a trace: their sizes, and the times that the application needs for them.
#[derive(Default)]
pub(crate) struct Catalogue {
    /// In bytes.
    pub(crate) sizes: Vec<u32>,
    /// In microseconds.
    pub(crate) costs: Vec<u32>,
}

/// Requests in their order, as indices into the catalogue.
pub(crate) struct Trace {
    pub(crate) catalogue: Catalogue,
    pub(crate) requests: Vec<u32>,
}

/// Number of requests of a trace.
const REQUESTS: usize = 3_000_000;
/// Objects that are requested by their popularity.
const POPULAR: usize = 60_000;
const DAYS: usize = 7;
/// Popular objects replaced by new ones each night.
const DRIFT: usize = POPULAR / 10;
/// Objects that a crawler requests in the course of a day, one after the other: every second request while it runs.
const SCAN: usize = POPULAR / 10;
/// Size of an object on disk: its blocks, and its name.
pub(crate) const SPACE_ON_DISK: fn(u32) -> u32 = |size| size.div_ceil(4096) * 4096 + 80;
/// Most objects are requested once.
const ONE_HIT_WONDERS: f64 = 0.6;

impl Catalogue {
    /// Adds an object and returns its index.
    pub(crate) fn add(&mut self, size: u32, micros: u32) -> u32 {
        self.sizes.push(size);
        self.costs.push(micros);
        (self.sizes.len() - 1) as u32
    }

    /// Half are files that take 1 to 5 ms, most others pages of 20 to 400 ms, one in ten a page of 0.5 to 2 s.
    fn add_popular(&mut self, random: &mut Random) -> u32 {
        match random.below(10) {
            0..5 => self.add(random.size(8e3, 1.6), random.micros(1.0, 5.0)),
            5..9 => self.add(random.size(15e3, 1.0), random.micros(20.0, 400.0)),
            _ => self.add(random.size(30e3, 1.0), random.micros(500.0, 2000.0)),
        }
    }

    /// Half are results of searches, which are slow; the others as [`Self::add_popular`].
    fn add_rare(&mut self, random: &mut Random) -> u32 {
        if random.below(2) == 0 {
            self.add(random.size(15e3, 1.0), random.micros(300.0, 2000.0))
        } else {
            self.add_popular(random)
        }
    }
}

impl Trace {
    /// Makes the trace with this exponent of popularity.
    pub(crate) fn zipf(exponent: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut catalogue = Catalogue::default();
        let mut ranks: Vec<u32> = (0..POPULAR)
            .map(|_| catalogue.add_popular(&mut random))
            .collect();
        random.shuffle(&mut ranks);
        let popularity = Popularity::zipf(POPULAR, exponent);
        let several = (POPULAR + DRIFT * (DAYS - 1)) as f64;
        let wonders = several * ONE_HIT_WONDERS / (1.0 - ONE_HIT_WONDERS) / REQUESTS as f64;
        let mut requests = Vec::with_capacity(REQUESTS);
        for day in 0..DAYS {
            if day > 0 {
                for _ in 0..DRIFT {
                    ranks[random.below(POPULAR)] = catalogue.add_popular(&mut random);
                }
            }
            let first = random.below(POPULAR - SCAN);
            let mut scan = ranks[first..first + SCAN].to_vec();
            random.shuffle(&mut scan);
            let (begin, end) = (REQUESTS / DAYS * day, REQUESTS / DAYS * (day + 1));
            for number in begin..end {
                let is_crawler = number > usize::midpoint(begin, end) && number % 2 == 0;
                let object = match scan.pop_if(|_| is_crawler) {
                    Some(object) => object,
                    None if random.unit() < wonders => catalogue.add_rare(&mut random),
                    None => ranks[popularity.draw(&mut random)],
                };
                requests.push(object);
            }
        }
        Self {
            catalogue,
            requests,
        }
    }

    /// Returns the trace with the space that each object takes on disk.
    pub(crate) fn on_disk(&self, space: impl Fn(u32) -> u32) -> Self {
        Self {
            catalogue: Catalogue {
                sizes: self.catalogue.sizes.iter().copied().map(space).collect(),
                costs: self.catalogue.costs.clone(),
            },
            requests: self.requests.clone(),
        }
    }

    /// For each request, the number of the next one of the same object; [`usize::MAX`] if there is none.
    pub(crate) fn next_requests(&self) -> Vec<usize> {
        let mut last = vec![usize::MAX; self.catalogue.sizes.len()];
        let mut next = vec![usize::MAX; self.requests.len()];
        for (number, &object) in self.requests.iter().enumerate().rev() {
            next[number] = std::mem::replace(&mut last[object as usize], number);
        }
        next
    }

    /// Properties of the objects that are requested.
    pub(crate) fn summary(&self) -> TraceSummary {
        let mut counts = vec![0u32; self.catalogue.sizes.len()];
        for &object in &self.requests {
            counts[object as usize] += 1;
        }
        let mut summary = TraceSummary::default();
        for (object, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            summary.objects += 1;
            summary.requested_once += usize::from(count == 1);
            summary.bytes += u64::from(self.catalogue.sizes[object]);
            summary.seconds += f64::from(self.catalogue.costs[object]) / 1e6;
        }
        summary
    }
}

/// Properties of the objects that are requested.
#[derive(Default)]
pub(crate) struct TraceSummary {
    pub(crate) objects: usize,
    pub(crate) requested_once: usize,
    /// Size of all objects together.
    pub(crate) bytes: u64,
    /// Time that the application needs for each object once.
    pub(crate) seconds: f64,
}

/// Popularity of ranks, as cumulated probabilities.
struct Popularity(Vec<f64>);

impl Popularity {
    fn zipf(ranks: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(weights.collect())
    }

    fn draw(&self, random: &mut Random) -> usize {
        let total = self.0.last().copied().unwrap_or_default();
        let at = random.unit() * total;
        self.0
            .partition_point(|&sum| sum <= at)
            .min(self.0.len() - 1)
    }
}

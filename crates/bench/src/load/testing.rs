//! Sample report for unit tests.

use std::time::{Duration, SystemTime};

use super::outcome::{CacheOutcome, RequestFault};
use super::report::{BenchReport, OriginCount, Slice};
use super::tally::{RecordedResponse, Tally};
use super::target::TargetUrl;

/// Returns a report over 10 s: 90 hits of 1 ms, 10 misses of 100 ms with status 503, and 5 faults.
pub(crate) fn report() -> BenchReport {
    let mut tally = Tally::default();
    for number in 0..100 {
        let (status, outcome, millis) = match number % 10 {
            0 => (503, CacheOutcome::Miss, 100),
            _ => (200, CacheOutcome::Hit, 1),
        };
        tally.answered(&RecordedResponse {
            status,
            outcome,
            first_byte: Duration::from_millis(millis) / 2,
            total: Duration::from_millis(millis),
        });
    }
    tally.failed(RequestFault::Refused);
    for _ in 0..4 {
        tally.failed(RequestFault::TimedOut);
    }
    tally.connected(Duration::from_micros(50));
    tally.received(1_000_000);
    let second = Duration::from_secs(1);
    BenchReport {
        began: SystemTime::UNIX_EPOCH,
        elapsed: second * 10,
        url: TargetUrl::parse("http://localhost:8080/page/[1-50]?a=1&b=<2>").expect("a url"),
        urls: 50,
        connections: 4,
        threads: 2,
        rate_wanted: Some(11.2),
        time_line: vec![
            Slice::new(Duration::ZERO, second * 5, &tally, 3),
            Slice::new(second * 5, second * 5, &Tally::default(), 7),
        ],
        tally,
        unfinished: 2,
        unsent: 7,
        backlog: 7,
        origin: Some(OriginCount {
            requests: 10,
            renders: Some(9),
        }),
        interrupted: false,
        gave_up: false,
    }
}

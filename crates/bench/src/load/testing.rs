//! A report for the tests of everything that reads one.

use std::time::{Duration, SystemTime};

use super::outcome::{Fault, Outcome};
use super::report::{OriginCount, Report, Slice};
use super::tally::{Answer, Tally};
use super::target::Url;

/// Of 10 s: 90 hits of 1 ms, 10 misses of 100 ms with a 503, and 5 faults.
pub(crate) fn report() -> Report {
    let mut tally = Tally::default();
    for number in 0..100 {
        let (status, outcome, millis) = match number % 10 {
            0 => (503, Outcome::Miss, 100),
            _ => (200, Outcome::Hit, 1),
        };
        tally.answered(&Answer {
            status,
            outcome,
            first_byte: Duration::from_millis(millis) / 2,
            total: Duration::from_millis(millis),
        });
    }
    tally.failed(Fault::Refused);
    for _ in 0..4 {
        tally.failed(Fault::TimedOut);
    }
    tally.connected(Duration::from_micros(50));
    tally.received(1_000_000);
    let second = Duration::from_secs(1);
    Report {
        began: SystemTime::UNIX_EPOCH,
        elapsed: second * 10,
        url: Url::parse("http://localhost:8080/page/[1-50]?a=1&b=<2>").expect("a url"),
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

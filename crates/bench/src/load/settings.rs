//! What a run is made of: what is asked for, by how many, how fast, and for how long.

use std::path::PathBuf;
use std::time::Duration;

use super::stop::Stop;
use super::target::{Target, Url};

/// A load. [`Settings::new`] is a closed loop of ten connections for ten seconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is asked for. Not empty.
    pub targets: Vec<Target>,
    /// Which of the urls comes next.
    pub choice: Choice,
    /// When a connection asks again.
    pub pace: Pace,
    /// Connections, each with one request at a time (or as many as [`Protocol::Http2`] says).
    pub connections: usize,
    /// Threads; more than connections are not used.
    pub threads: usize,
    /// Ends the run after this time, warming not counted.
    pub duration: Option<Duration>,
    /// Ends the run after this many requests, warming not counted.
    pub requests: Option<u64>,
    /// What begins within this time is not in the report.
    pub warmup: Duration,
    /// A request that takes longer has failed.
    pub timeout: Duration,
    /// How long requests under way at the end are waited for.
    pub patience: Duration,
    /// Whether a connection carries more than one request.
    pub keep_alive: bool,
    /// What is spoken.
    pub protocol: Protocol,
    /// Which certificates are believed.
    pub trust: Trust,
    /// Fields of every request, in addition to those that HTTP needs.
    pub headers: Vec<(String, String)>,
    /// The same seed chooses the same urls and think times.
    pub seed: u64,
    /// Where the origin tells how many requests it has seen.
    pub origin_counter: Option<Url>,
    /// The length of one point on the time line, and of the time between two calls of the watcher.
    pub slice: Duration,
    /// Ends the run from outside.
    pub stop: Stop,
}

impl Settings {
    /// The defaults, for these targets.
    pub fn new(targets: Vec<Target>) -> Self {
        Self {
            targets,
            choice: Choice::Sequential,
            pace: Pace::Closed,
            connections: 10,
            threads: 1,
            duration: Some(Duration::from_secs(10)),
            requests: None,
            warmup: Duration::ZERO,
            timeout: Duration::from_secs(10),
            patience: Duration::from_secs(2),
            keep_alive: true,
            protocol: Protocol::Http1,
            trust: Trust::System,
            headers: Vec::new(),
            seed: 1,
            origin_counter: None,
            slice: Duration::from_millis(250),
            stop: Stop::default(),
        }
    }
}

/// When a connection asks again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At once: a slow server is asked less often.
    Closed,
    /// So many requests a second in total, whether or not the server keeps up. Latency counts from when a request was to
    /// start: a server that stalls is not spared the requests it has kept from being sent (no coordinated omission).
    Rate(f64),
    /// After a random time between these two: every connection is a user who reads what came.
    Think(Duration, Duration),
}

/// Which of the urls comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// One after the other, all over again.
    Sequential,
    /// Each as likely as any other.
    Uniform,
    /// The k-th url with a likelihood of 1/k to the power of this exponent.
    Zipf(f64),
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: with ALPN over TLS, with prior knowledge otherwise.
    Http2 {
        /// Requests at a time on each connection.
        streams: usize,
    },
}

/// Which certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those that the system's authorities have signed.
    System,
    /// Those that an authority in this PEM file has signed.
    File(PathBuf),
    /// All of them.
    Anyone,
}

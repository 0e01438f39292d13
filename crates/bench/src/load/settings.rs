//! What a run is made of: what is asked for, by how many, how fast, and for how long.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::stop::Stop;
use super::target::{Target, Url};
use super::unit;

/// A load. [`Settings::new`] is a closed loop of ten connections for ten seconds.
#[derive(Clone, Debug, PartialEq)]
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

impl FromStr for Choice {
    type Err = String;

    /// Reads `sequential`, `uniform`, `zipf` or `zipf:EXPONENT`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "sequential" => Ok(Self::Sequential),
            None if text == "uniform" => Ok(Self::Uniform),
            None if text == "zipf" => Ok(Self::Zipf(1.0)),
            Some(("zipf", exponent)) => exponent
                .parse()
                .ok()
                .filter(|exponent| (0.0..=10.0).contains(exponent))
                .map(Self::Zipf)
                .ok_or_else(|| format!("`{exponent}` is no exponent; write zipf:1.0, up to 10")),
            _ => Err(format!(
                "`{text}` is no choice; write sequential, uniform or zipf:1.0"
            )),
        }
    }
}

impl Pace {
    /// Reads the times that users think, such as `0s..10s`; one time alone is what each of them takes.
    pub fn think(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let (least, most) = (unit::duration(least)?, unit::duration(most)?);
        if least > most {
            return Err(format!("`{text}` ends before it begins; write 0s..10s"));
        }
        Ok(Self::Think(least, most))
    }
}

/// Reads a field, such as `Accept: text/html`.
pub fn header(text: &str) -> Result<(String, String), String> {
    let wrong = || format!("`{text}` is no field; write 'Name: value'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty()
        || !name.bytes().all(is_token)
        || value.bytes().any(|b| b < 0x20 && b != b'\t')
    {
        return Err(wrong());
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// Reads a method.
pub fn method(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') {
        return Err(format!("`{text}` is no method; write GET or POST"));
    }
    Ok(text.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        assert_eq!("zipf".parse(), Ok(Choice::Zipf(1.0)));
        assert_eq!("zipf:0.8".parse(), Ok(Choice::Zipf(0.8)));
        assert_eq!("uniform".parse(), Ok(Choice::Uniform));
        assert_eq!("sequential".parse(), Ok(Choice::Sequential));
        let seconds = Duration::from_secs;
        assert_eq!(
            Pace::think("0s..10s"),
            Ok(Pace::Think(seconds(0), seconds(10)))
        );
        assert_eq!(Pace::think("2s"), Ok(Pace::Think(seconds(2), seconds(2))));
        assert_eq!(
            header("X-A:  b c "),
            Ok(("X-A".to_owned(), "b c".to_owned()))
        );
        assert_eq!(method("PURGE"), Ok("PURGE".to_owned()));
    }

    #[test]
    fn what_is_no_word_gets_a_remedy() {
        let choice = |text: &str| text.parse::<Choice>().expect_err(text);
        assert!(choice("random").contains("write sequential, uniform or zipf"));
        assert!(choice("zipf:-1").contains("write zipf:1.0"));
        assert!(choice("uniform:2").contains("is no choice"));
        assert!(
            Pace::think("10s..0s")
                .expect_err("it")
                .contains("write 0s..10s")
        );
        assert!(Pace::think("10").expect_err("it").contains("unit"));
        for text in ["X", ": b", "X Y: b", "X: a\r\nY: b"] {
            assert!(header(text).expect_err(text).contains("'Name: value'"));
        }
        assert!(method("G T").expect_err("it").contains("write GET"));
    }
}

//! Settings of a run: targets, connections, pace and duration.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::stop::Stop;
use super::target::{LoadTarget, TargetUrl};
use super::unit;

/// Settings of a run. [`Settings::new`] describes a closed loop of ten connections for ten seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Requests to send; not empty.
    pub targets: Vec<LoadTarget>,
    /// Order of URLs.
    pub choice: UrlOrder,
    /// Pace of requests.
    pub pace: RequestPace,
    /// Number of connections, each with one request at a time (HTTP/2: [`LoadProtocol::Http2::streams`]).
    pub connections: usize,
    /// Number of threads, limited to that of connections.
    pub threads: usize,
    /// Length of the run, excluding the warm-up.
    pub duration: Option<Duration>,
    /// Number of requests, excluding the warm-up.
    pub requests: Option<u64>,
    /// Initial period excluded from the report.
    pub warmup: Duration,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Grace period for requests in flight at the end.
    pub grace_period: Duration,
    /// `true` if connections are reused (keep-alive).
    pub keep_alive: bool,
    /// Protocol.
    pub protocol: LoadProtocol,
    /// Accepted server certificates.
    pub trust: CertificateTrust,
    /// Additional header fields of every request.
    pub headers: Vec<(String, String)>,
    /// Seed of URL choice and think times.
    pub seed: u64,
    /// URL of the origin's request counter.
    pub origin_counter: Option<TargetUrl>,
    /// Length of a slice, and interval of progress reports.
    pub slice: Duration,
    /// Handle that ends the run early.
    pub stop: Stop,
}

impl Settings {
    /// Returns the defaults for these targets.
    pub fn new(targets: Vec<LoadTarget>) -> Self {
        Self {
            targets,
            choice: UrlOrder::Sequential,
            pace: RequestPace::Closed,
            connections: 10,
            threads: 1,
            duration: Some(Duration::from_secs(10)),
            requests: None,
            warmup: Duration::ZERO,
            timeout: Duration::from_secs(10),
            grace_period: Duration::from_secs(2),
            keep_alive: true,
            protocol: LoadProtocol::Http1,
            trust: CertificateTrust::System,
            headers: Vec::new(),
            seed: 1,
            origin_counter: None,
            slice: Duration::from_millis(250),
            stop: Stop::default(),
        }
    }
}

/// Pace of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestPace {
    /// Closed loop: the next request follows the response, so a slow server receives fewer requests.
    Closed,
    /// Open loop: requests per second in total, independent of the server's speed. Latency is measured from
    /// the scheduled start, so a stalled server is charged for the requests it delays (no coordinated
    /// omission).
    Rate(f64),
    /// Closed loop with a random think time between the two durations.
    Think(Duration, Duration),
}

/// Order of URLs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UrlOrder {
    /// Round robin.
    Sequential,
    /// Uniform distribution.
    Uniform,
    /// Zipf distribution: the k-th URL is chosen with a probability proportional to k^-exponent.
    Zipf(f64),
}

impl FromStr for UrlOrder {
    type Err = String;

    /// Parses `sequential`, `uniform`, `zipf` or `zipf:EXPONENT`.
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
                .ok_or_else(|| format!("`{exponent}` is not a valid exponent: expected a number from 0 to 10, such as zipf:1.0")),
            _ => Err(format!(
                "`{text}` is not valid: expected sequential, uniform or zipf:1.0"
            )),
        }
    }
}

impl RequestPace {
    /// Parses a think time such as `0s..10s`, or a single duration.
    ///
    /// # Errors
    ///
    /// A message for the user.
    pub fn think(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let (least, most) = (unit::duration(least)?, unit::duration(most)?);
        if least > most {
            return Err(format!(
                "`{text}` is not a valid range: expected MIN..MAX, such as 0s..10s"
            ));
        }
        Ok(Self::Think(least, most))
    }
}

/// Parses a header field such as `Accept: text/html`.
///
/// # Errors
///
/// A message for the user.
pub fn header(text: &str) -> Result<(String, String), String> {
    let wrong = || format!("`{text}` is not a valid header field: expected 'Name: value'");
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

/// Parses a request method.
///
/// # Errors
///
/// A message for the user.
pub fn method(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') {
        return Err(format!(
            "`{text}` is not a valid method: expected a name such as GET or POST"
        ));
    }
    Ok(text.to_owned())
}

/// Application protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: by ALPN over TLS, by prior knowledge otherwise.
    Http2 {
        /// Concurrent requests per connection.
        streams: usize,
    },
}

/// Accepted server certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateTrust {
    /// Certificates signed by the system's CAs.
    System,
    /// Certificates signed by a CA in this PEM file.
    File(PathBuf),
    /// Any certificate; verification is disabled.
    Any,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        assert_eq!("zipf".parse(), Ok(UrlOrder::Zipf(1.0)));
        assert_eq!("zipf:0.8".parse(), Ok(UrlOrder::Zipf(0.8)));
        assert_eq!("uniform".parse(), Ok(UrlOrder::Uniform));
        assert_eq!("sequential".parse(), Ok(UrlOrder::Sequential));
        let seconds = Duration::from_secs;
        assert_eq!(
            RequestPace::think("0s..10s"),
            Ok(RequestPace::Think(seconds(0), seconds(10)))
        );
        assert_eq!(
            RequestPace::think("2s"),
            Ok(RequestPace::Think(seconds(2), seconds(2)))
        );
        assert_eq!(
            header("X-A:  b c "),
            Ok(("X-A".to_owned(), "b c".to_owned()))
        );
        assert_eq!(method("PURGE"), Ok("PURGE".to_owned()));
    }

    #[test]
    fn unknown_words_get_a_remedy() {
        let choice = |text: &str| text.parse::<UrlOrder>().expect_err(text);
        assert!(choice("random").contains("expected sequential, uniform or zipf"));
        assert!(choice("zipf:-1").contains("such as zipf:1.0"));
        assert!(choice("uniform:2").contains("is not valid"));
        assert!(
            RequestPace::think("10s..0s")
                .expect_err("it")
                .contains("such as 0s..10s")
        );
        assert!(RequestPace::think("10").expect_err("it").contains("unit"));
        for text in ["X", ": b", "X Y: b", "X: a\r\nY: b"] {
            assert!(header(text).expect_err(text).contains("'Name: value'"));
        }
        assert!(method("G T").expect_err("it").contains("such as GET"));
    }
}

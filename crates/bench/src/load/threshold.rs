//! Failure conditions of a run, such as `p99>50ms`, `errors>0` or `rate<1000`.

use std::fmt;
use std::time::Duration;

use super::outcome::CacheOutcome;
use super::report::BenchReport;
use super::unit;

/// Condition under which a run has failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    text: String,
    metric: Metric,
    comparison: Comparison,
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Percentile(f64),
    Mean,
    Stdev,
    Max,
    Requests,
    Rate,
    Errors,
    ErrorRate,
    HitRatio,
    OriginRequests,
    Unsent,
    Backlog,
    Status(u16),
    StatusClass(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    More,
    AtLeast,
    Less,
    AtMost,
}

/// Unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricUnit {
    Time,
    Share,
    Number,
}

/// Names of the metrics, for error messages.
const METRICS: &str = "p50 to p99.999, mean, stdev, max, requests, rate, errors, error-rate, hit-ratio, origin-requests, \
                       unsent, backlog, status-404 or status-5xx";

impl Threshold {
    /// Parses a condition.
    ///
    /// # Errors
    ///
    /// A message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>']).ok_or_else(|| {
            format!(
                "`{text}` has no comparison; expected a condition such as p99>50ms or rate<1000"
            )
        })?;
        let (name, rest) = text.split_at(at);
        let (comparison, limit) = match (rest.strip_prefix(">="), rest.strip_prefix("<=")) {
            (Some(limit), _) => (Comparison::AtLeast, limit),
            (_, Some(limit)) => (Comparison::AtMost, limit),
            _ if rest.starts_with('>') => (Comparison::More, &rest[1..]),
            _ => (Comparison::Less, &rest[1..]),
        };
        let metric = Metric::parse(name.trim()).ok_or_else(|| {
            format!(
                "`{}` is not a metric; expected one of {METRICS}",
                name.trim()
            )
        })?;
        let limit = metric
            .measure()
            .parse(limit.trim())
            .map_err(|why| format!("`{text}`: {why}"))?;
        Ok(Self {
            text: text.to_owned(),
            metric,
            comparison,
            limit,
        })
    }

    /// Returns whether the condition needs the origin's counter.
    pub fn needs_origin(&self) -> bool {
        self.metric == Metric::OriginRequests
    }

    /// Returns a message if the run has failed by this condition.
    pub fn failure(&self, report: &BenchReport) -> Option<String> {
        let Some(value) = self.metric.value(report) else {
            return Some(format!("{self}: no data"));
        };
        let holds = match self.comparison {
            Comparison::More => value > self.limit,
            Comparison::AtLeast => value >= self.limit,
            Comparison::Less => value < self.limit,
            Comparison::AtMost => value <= self.limit,
        };
        holds.then(|| format!("{self}: it is {}", self.metric.measure().show(value)))
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Metric {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "mean" => Self::Mean,
            "stdev" => Self::Stdev,
            "max" => Self::Max,
            "requests" => Self::Requests,
            "rate" => Self::Rate,
            "errors" => Self::Errors,
            "error-rate" => Self::ErrorRate,
            "hit-ratio" => Self::HitRatio,
            "origin-requests" => Self::OriginRequests,
            "unsent" => Self::Unsent,
            "backlog" => Self::Backlog,
            _ => Self::status(name).or_else(|| Self::percentile(name))?,
        })
    }

    fn status(name: &str) -> Option<Self> {
        let word = name.strip_prefix("status-")?;
        if let Some(hundreds) = word.strip_suffix("xx") {
            let hundreds = hundreds.parse().ok()?;
            let known = (1..=9).contains(&hundreds);
            return known.then_some(Self::StatusClass(hundreds));
        }
        let status = word.parse().ok()?;
        let known = (100..=999).contains(&status);
        known.then_some(Self::Status(status))
    }

    fn percentile(name: &str) -> Option<Self> {
        let percent = name.strip_prefix('p')?.parse().ok()?;
        let known = (0.0..=100.0).contains(&percent);
        known.then_some(Self::Percentile(percent))
    }

    fn measure(self) -> MetricUnit {
        match self {
            Self::Percentile(_) | Self::Mean | Self::Stdev | Self::Max => MetricUnit::Time,
            Self::ErrorRate | Self::HitRatio => MetricUnit::Share,
            _ => MetricUnit::Number,
        }
    }

    /// Value of the metric; `None` without data, which counts as a failure.
    fn value(self, report: &BenchReport) -> Option<f64> {
        let tally = &report.tally;
        let latency = || {
            let total = tally.overall().total;
            (total.count() > 0).then_some(total)
        };
        Some(match self {
            Self::Percentile(percent) => latency()?.percentile(percent).as_secs_f64(),
            Self::Mean => latency()?.mean().as_secs_f64(),
            Self::Stdev => latency()?.stdev().as_secs_f64(),
            Self::Max => latency()?.max().as_secs_f64(),
            Self::Requests => tally.answers() as f64,
            Self::Rate => report.rate(),
            Self::Errors => tally.faults() as f64,
            Self::ErrorRate => report.error_share(),
            Self::HitRatio => {
                let silent = tally.count_of(CacheOutcome::None);
                (tally.answers() > silent).then(|| report.hit_share())?
            }
            Self::OriginRequests => report.origin?.requests as f64,
            Self::Unsent => report.unsent as f64,
            Self::Backlog => report.backlog as f64,
            Self::Status(status) => tally.statuses().get(&status).copied().unwrap_or(0) as f64,
            Self::StatusClass(hundreds) => tally.statuses_of_class(hundreds) as f64,
        })
    }
}

impl MetricUnit {
    fn parse(self, word: &str) -> Result<f64, String> {
        match self {
            Self::Time => unit::duration(word).map(|time| time.as_secs_f64()),
            Self::Number => number(word).ok_or_else(|| format!("`{word}` is not a number")),
            Self::Share => {
                let share = match word.strip_suffix('%') {
                    Some(percent) => number(percent.trim_end()).map(|percent| percent / 100.0),
                    None => number(word),
                };
                share.filter(|share| *share <= 1.0).ok_or_else(|| {
                    format!("`{word}` is not a fraction; expected 0.01 or 1%, for example")
                })
            }
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Time => unit::show_duration(Duration::from_secs_f64(value)),
            Self::Share => format!("{:.3}%", value * 100.0),
            Self::Number if value.fract() == 0.0 => format!("{value}"),
            Self::Number => format!("{value:.1}"),
        }
    }
}

fn number(word: &str) -> Option<f64> {
    let number = word.parse::<f64>().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::report;

    /// The sample report: 90 hits of 1 ms, 10 misses of 100 ms, and 5 faults in 10 s.
    #[test]
    fn conditions_hold_or_do_not() {
        for (text, failure) in [
            ("p50>2ms", None),
            ("p99>50ms", Some("p99>50ms: it is 100 ms")),
            ("p99.9 >= 100ms", Some("p99.9 >= 100ms: it is 100 ms")),
            ("max>1s", None),
            ("mean<5ms", None),
            ("mean>5ms", Some("mean>5ms: it is 10.9 ms")),
            ("rate<1000", Some("rate<1000: it is 10")),
            ("rate<=9", None),
            ("requests<101", Some("requests<101: it is 100")),
            ("errors>0", Some("errors>0: it is 5")),
            ("error-rate>1%", Some("error-rate>1%: it is 4.762%")),
            ("error-rate>0.05", None),
            ("hit-ratio<95%", Some("hit-ratio<95%: it is 90.000%")),
            ("origin-requests>9", Some("origin-requests>9: it is 10")),
            ("status-5xx>9", Some("status-5xx>9: it is 10")),
            ("status-404>0", None),
            ("status-200<90", None),
            ("unsent>0", Some("unsent>0: it is 7")),
        ] {
            let threshold = Threshold::parse(text).expect(text);
            assert_eq!(threshold.failure(&report()).as_deref(), failure, "{text}");
        }
    }

    #[test]
    fn silence_is_no_success() {
        let mut empty = report();
        empty.tally = crate::load::Tally::default();
        empty.origin = None;
        for text in ["p99>50ms", "hit-ratio<1%", "origin-requests>9"] {
            let threshold = Threshold::parse(text).expect(text);
            let message = threshold.failure(&empty).expect(text);
            assert!(message.contains("no data"), "{message}");
        }
    }

    #[test]
    fn invalid_conditions_get_a_remedy() {
        for (text, says) in [
            ("p99", "expected a condition such as p99>50ms"),
            ("p99=5ms", "expected a condition such as"),
            ("p101>5ms", "is not a metric; expected one of p50"),
            ("latency>5ms", "is not a metric"),
            ("status-60x>1", "is not a metric"),
            ("p99>50", "unit"),
            ("rate<fast", "is not a number"),
            ("errors>-1", "is not a number"),
            ("error-rate>5", "expected 0.01 or 1%"),
        ] {
            let message = Threshold::parse(text).expect_err(text);
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}

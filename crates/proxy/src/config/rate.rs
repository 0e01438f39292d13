//! The rate limit of a route.

use std::fmt;

use super::units::{parse_duration, show_duration};
use std::time::Duration;

/// The rate limit of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The quota; `None` for no limit.
    pub quota: Option<Quota>,
    /// The burst; the whole quota by default.
    pub burst: Option<u64>,
    /// The unit that requests are counted by.
    pub by: RateBy,
    /// The requests that count.
    pub of: RateOf,
}

/// A number of requests per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The number of requests.
    pub count: u64,
    /// The period in seconds.
    pub seconds: u64,
}

/// The unit that requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateBy {
    /// The address of the client.
    Address,
    /// The value of this header field.
    Header(String),
    /// The value of this cookie.
    Cookie(String),
    /// The value of this query parameter.
    Query(String),
    /// The URL, for all clients together.
    Url,
}

/// The requests that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateOf {
    /// Requests that the cache does not answer.
    Misses,
    /// All requests.
    Requests,
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            quota: None,
            burst: None,
            by: RateBy::Address,
            of: RateOf::Misses,
        }
    }
}

const MOST: u64 = 1_000_000;
const LONGEST: Duration = Duration::from_hours(24);

impl Quota {
    /// Parses `10/s`, `600/m`, `100/10s`; `off` is none.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        const FORM: &str =
            "write a number and a period, such as \"10/s\", \"600/m\" or \"100/10s\", or \"off\"";
        if text == "off" {
            return Ok(None);
        }
        let (count, per) = text.split_once('/').ok_or(FORM)?;
        let count = count.trim().parse().map_err(|_| FORM)?;
        let per = per.trim();
        let per = if per.starts_with(|first: char| first.is_ascii_digit()) {
            parse_duration(per)
        } else {
            parse_duration(&format!("1{per}"))
        };
        let per = per.ok_or(FORM)?;
        if !(1..=MOST).contains(&count) {
            return Err(format!("the number must be from 1 to {MOST}"));
        }
        if per.subsec_nanos() != 0 || per.is_zero() || per > LONGEST {
            return Err("the period must be from 1s to 1d, in whole seconds".to_owned());
        }
        Ok(Some(Self {
            count,
            seconds: per.as_secs(),
        }))
    }
}

impl RateBy {
    /// The unit, as shown to clients.
    pub(crate) const fn policy(&self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Header(_) | Self::Cookie(_) | Self::Query(_) => "key",
            Self::Url => "url",
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = show_duration(Duration::from_secs(self.seconds));
        let unit = per
            .strip_prefix('1')
            .filter(|unit| !unit.starts_with(|it: char| it.is_ascii_digit()));
        write!(f, "{}/{}", self.count, unit.unwrap_or(&per))
    }
}

impl fmt::Display for RateBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Url => f.write_str("url"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        for (text, count, seconds, shown) in [
            ("10/s", 10, 1, "10/s"),
            ("600/m", 600, 60, "600/m"),
            ("100 / 10s", 100, 10, "100/10s"),
            ("1/d", 1, 86_400, "1/d"),
            ("5/1h", 5, 3600, "5/h"),
            ("7/90s", 7, 90, "7/90s"),
        ] {
            let quota = Quota::parse(text).expect(text).expect("a quota");
            assert_eq!(quota, Quota { count, seconds }, "{text}");
            assert_eq!(quota.to_string(), shown);
            assert_eq!(Quota::parse(shown), Ok(Some(quota)));
        }
        assert_eq!(Quota::parse("off"), Ok(None));
        for wrong in [
            "",
            "10",
            "10/",
            "/s",
            "0/s",
            "-1/s",
            "1000001/s",
            "10/500ms",
            "10/0s",
            "10/2d",
            "10/x",
            "ten/s",
            "1.5/s",
        ] {
            assert!(Quota::parse(wrong).is_err(), "{wrong}");
        }
    }
}

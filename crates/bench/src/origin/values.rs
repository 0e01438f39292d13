//! Option values: durations, shares, ranges.

use std::time::Duration;

use crate::load;

/// Parses `180ms`, `0.6s` or `2m`; `0` needs no unit.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "expected a duration, such as 180ms or 2s";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let duration = load::duration(text).map_err(|_| EXPECTED)?;
    if duration > MAX_DURATION {
        return Err("expected at most 3600s");
    }
    Ok(duration)
}

/// Maximum duration.
const MAX_DURATION: Duration = Duration::from_hours(1);

/// Fraction in units of 1/10,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fraction(u64);

impl Fraction {
    const WHOLE: u64 = 10_000;
    pub(super) const ALL: Self = Self(Self::WHOLE);

    /// Parses `25%` or `0.25`.
    pub(super) fn read(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected a share, such as 25% or 0.25";
        let (number, whole) = match text.strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, 1.0),
        };
        let part = decimal(number).ok_or(EXPECTED)? / whole;
        if part > 1.0 {
            return Err("expected a share of at most 100%");
        }
        #[expect(clippy::cast_sign_loss, reason = "a decimal here has no sign")]
        Ok(Self((part * Self::WHOLE as f64).round() as u64))
    }

    pub(super) const fn percent(percent: u64) -> Self {
        Self(percent * Self::WHOLE / 100)
    }

    /// Returns whether a uniformly distributed hash falls into the share.
    pub(super) fn has(self, drawn: u64) -> bool {
        drawn % Self::WHOLE < self.0
    }

    /// Returns whether the nth element belongs to the share, spread evenly over the sequence.
    pub(super) fn has_nth(self, n: u64) -> bool {
        let until = |n: u64| u128::from(n) * u128::from(self.0) / u128::from(Self::WHOLE);
        until(n.saturating_add(1)) > until(n)
    }
}

/// Inclusive range of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SecondsRange {
    first: u32,
    last: u32,
}

impl SecondsRange {
    /// Parses `60` or `5..60`.
    pub(super) fn read(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected seconds, such as 60 or 5..60";
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.parse().map_err(|_| EXPECTED);
        Self::between(number(first)?, number(last)?).ok_or(EXPECTED)
    }

    pub(super) const fn between(first: u32, last: u32) -> Option<Self> {
        if first > last {
            return None;
        }
        Some(Self { first, last })
    }

    /// Picks a value by a uniformly distributed hash.
    pub(super) fn pick(self, drawn: u64) -> u64 {
        let width = u64::from(self.last - self.first) + 1;
        u64::from(self.first) + drawn % width
    }
}

/// Parses digits with an optional point: no sign, exponent or infinity.
fn decimal(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text, millis| {
            assert_eq!(duration(text).ok(), millis, "{text}");
        };
        check("180ms", Some(Duration::from_millis(180)));
        check("0.6s", Some(Duration::from_millis(600)));
        check("2s", Some(Duration::from_secs(2)));
        check("1m", Some(Duration::from_mins(1)));
        check("0", Some(Duration::ZERO));
        for bad in ["", "5", "s", "-1s", "1e9s", "infs", "NaNs", "9999999s"] {
            check(bad, None);
        }
    }

    #[test]
    fn shares() {
        assert_eq!(Fraction::read("25%"), Fraction::read("0.25"));
        assert_eq!(Fraction::read("100%"), Ok(Fraction::ALL));
        assert_eq!(Fraction::read("25%"), Ok(Fraction::percent(25)));
        for bad in ["", "%", "101%", "1.5", "-1", "a"] {
            assert!(Fraction::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_is_exact_over_all_numbers_and_spread_evenly_over_the_nth() {
        let share = Fraction::percent(25);
        assert_eq!((0..20_000).filter(|&n| share.has(n)).count(), 5000);
        let nth: Vec<u64> = (0..12).filter(|&n| share.has_nth(n)).collect();
        assert_eq!(nth, [3, 7, 11]);
        assert!((0..100).all(|n| Fraction::ALL.has_nth(n) && !Fraction::default().has_nth(n)));
    }

    #[test]
    fn seconds() {
        let range = SecondsRange::read("5..7").expect("a range");
        assert_eq!([0, 1, 2, 3].map(|drawn| range.pick(drawn)), [5, 6, 7, 5]);
        assert_eq!(SecondsRange::read("60").map(|one| one.pick(99)), Ok(60));
        for bad in ["", "7..5", "a", "1..", "-1", "1...2"] {
            assert!(SecondsRange::read(bad).is_err(), "{bad}");
        }
    }
}

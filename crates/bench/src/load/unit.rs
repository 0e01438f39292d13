//! Parsing and formatting of durations and sizes.

use std::time::Duration;

/// Parses a duration such as `500ms`, `1.5s` or `2m`.
///
/// # Errors
///
/// A message for the user.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "`{text}` is not a duration; expected a number with a unit, such as 500ms, 10s or 2m"
        )
    };
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let scale = match unit.trim_start() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| wrong())
}

/// Formats a duration with three significant digits: `12.3 ms`.
pub(crate) fn show_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 1e-3 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    format!("{} {unit}", three_digits(value))
}

/// Formats a size in binary units: `1.50 MiB`.
pub(crate) fn show_bytes(bytes: f64) -> String {
    if bytes < 1024.0 {
        return format!("{bytes:.0} B");
    }
    let mut value = bytes / 1024.0;
    for unit in ["KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return format!("{} {unit}", three_digits(value));
        }
        value /= 1024.0;
    }
    format!("{} TiB", three_digits(value))
}

/// Formats an integer with thousands separators: `1,234,567`.
pub(crate) fn show_count(count: u64) -> String {
    with_separators(&count.to_string())
}

/// Formats a rounded number with thousands separators.
pub(crate) fn show_rounded(value: f64) -> String {
    with_separators(&format!("{value:.0}"))
}

fn with_separators(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns a duration in milliseconds, for machine-readable formats.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn three_digits(value: f64) -> String {
    if value >= 99.95 || value == 0.0 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("500ms", 500),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("1 s", 1000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(duration("1h"), Ok(Duration::from_hours(1)));
        for text in [
            "",
            "5",
            "s",
            "1.2.3s",
            "5 years",
            "-1s",
            "999999999999999999999h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn figures_have_three_digits() {
        let time = |micros| show_duration(Duration::from_micros(micros));
        assert_eq!(time(0), "0 µs");
        assert_eq!(time(7), "7.00 µs");
        assert_eq!(time(123), "123 µs");
        assert_eq!(time(12_340), "12.3 ms");
        assert_eq!(time(9_999), "10.0 ms");
        assert_eq!(time(1_234_000), "1.23 s");
        assert_eq!(show_bytes(100.0), "100 B");
        assert_eq!(show_bytes(1536.0), "1.50 KiB");
        assert_eq!(show_bytes(5e15), "4547 TiB");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(12), "12");
        assert_eq!(show_rounded(1234.5), "1,234");
    }
}

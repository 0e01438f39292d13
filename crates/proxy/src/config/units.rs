//! Parsers and formatters of durations and sizes, such as `5m` and `32KiB`.

use std::time::Duration;

const DURATIONS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("B", 1),
];

/// Parses `500ms`, `1s`, `10m`, `2h`, `1d`; `0` needs no unit.
pub fn parse_duration(text: &str) -> Option<Duration> {
    parse(text, &DURATIONS).map(Duration::from_millis)
}

/// Parses `512B`, `64KiB`, `64MiB`, `1GB`; `0` needs no unit.
pub fn parse_size(text: &str) -> Option<u64> {
    parse(text, &SIZES)
}

/// Returns the forms of a size to suggest for a text that is none. `256M` may mean either of two.
pub fn size_forms(text: &str) -> String {
    for letter in ['G', 'M', 'K'] {
        let number = text.strip_suffix([letter, letter.to_ascii_lowercase()]);
        let number = number.map(str::trim_end);
        if let Some(number) = number.filter(|number| number.parse::<u64>().is_ok()) {
            return format!("\"{number}{letter}iB\" or \"{number}{letter}B\"");
        }
    }
    "a number and a unit, such as \"512KiB\", \"64MiB\", \"1GB\"".to_owned()
}

/// Writes a duration so that [`parse_duration`] reads it back, to the millisecond.
pub fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    show(millis, &DURATIONS)
}

/// Writes a size so that [`parse_size`] reads it back.
pub fn show_size(bytes: u64) -> String {
    if bytes == 0 {
        return "0B".to_owned();
    }
    show(bytes, &SIZES)
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim_start();
    if number == 0 && unit.is_empty() {
        return Some(0);
    }
    let (_, factor) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.checked_mul(*factor)
}

/// Formats the value in the largest unit that divides it.
fn show(value: u64, units: &[(&str, u64)]) -> String {
    units
        .iter()
        .find(|(_, factor)| value.is_multiple_of(*factor))
        .map_or_else(
            || value.to_string(),
            |(unit, factor)| format!("{}{unit}", value / factor),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let millis = |text| parse_duration(text).map(|d| d.as_millis());
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("1s"), Some(1000));
        assert_eq!(millis("10m"), Some(600_000));
        assert_eq!(millis("2h"), Some(7_200_000));
        assert_eq!(millis("1 d"), Some(86_400_000));
        assert_eq!(millis("0"), Some(0));
        for wrong in [
            "",
            "1",
            "s",
            "-1s",
            "1.5s",
            "1 sec",
            "99999999999999999999s",
            "9999999999999999d",
        ] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("1GB"), Some(1_000_000_000));
        assert_eq!(parse_size("512b"), Some(512));
        assert_eq!(parse_size("64mib"), Some(64 << 20));
        for wrong in ["", "64", "64M", "64 mega", "99999999999GiB"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_size_without_its_b_is_answered_with_both_that_may_be_meant() {
        assert_eq!(size_forms("256M"), "\"256MiB\" or \"256MB\"");
        assert_eq!(size_forms("1 g"), "\"1GiB\" or \"1GB\"");
        for text in ["", "M", "x5k", "64", "5T"] {
            assert!(
                size_forms(text).starts_with("a number and a unit"),
                "{text}"
            );
        }
        for form in size_forms("64k")
            .split('"')
            .filter(|part| part.starts_with('6'))
        {
            assert!(parse_size(form).is_some(), "{form}");
        }
    }

    #[test]
    fn formatted_values_parse_again() {
        for text in ["500ms", "1s", "90s", "10m", "36h", "1d"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
        for text in ["0B", "1000B", "1KiB", "256MiB", "1GiB"] {
            let bytes = parse_size(text).unwrap();
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }
        assert_eq!(show_size(256 << 20), "256MiB");
        assert_eq!(show_size(1_000_000_000), "1GB");
    }
}

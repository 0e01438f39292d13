//! Durations as text.

use crate::time::Millis;

/// Formats a time span in its largest unit, with one decimal.
pub fn span(millis: Millis) -> String {
    const UNITS: [(Millis, &str); 3] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min")];
    let of = |unit: Millis, name: &str| {
        let tenths = u128::from(millis) * 10 / u128::from(unit);
        match tenths % 10 {
            0 => format!("{} {name}", tenths / 10),
            rest => format!("{}.{rest} {name}", tenths / 10),
        }
    };
    // A larger unit is used from two of it on: 90 s rather than 1.5 min.
    let unit = UNITS.iter().find(|(unit, _)| millis >= 2 * unit);
    unit.map_or_else(|| of(1000, "s"), |(unit, name)| of(*unit, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_largest_unit() {
        let spans = [
            0,
            50,
            900,
            1_000,
            58_530,
            90_000,
            120_000,
            7_200_000,
            86_400_000,
            172_800_000,
        ];
        let expected = [
            "0 s", "0 s", "0.9 s", "1 s", "58.5 s", "90 s", "2 min", "2 h", "24 h", "2 d",
        ];
        assert_eq!(spans.map(span), expected);
        assert_eq!(span(Millis::MAX / 5), "42700796466.9 d");
    }
}

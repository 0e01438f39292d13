//! Equality of JSON values, independent of their spelling (RFC 6902 §4.6).

use super::tree::JsonTree;

/// Compares two JSON texts. Their depth is limited by the caller, since this recurses.
pub(super) fn is_equal(one: &str, other: &str) -> serde_json::Result<bool> {
    if one == other {
        return Ok(true);
    }
    let (mut one, mut other) = (JsonTree::Text(one), JsonTree::Text(other));
    one.open()?;
    other.open()?;
    Ok(match (one, other) {
        (JsonTree::Array(ours), JsonTree::Array(others)) => {
            ours.len() == others.len() && are_equal(ours.iter().zip(&others))?
        }
        (JsonTree::Object(ours), JsonTree::Object(others)) => {
            let pairs = ours
                .names()
                .map(|name| ours.get(name).zip(others.get(name)));
            let pairs: Option<Vec<_>> = pairs.collect();
            let has_same_names = ours.names().len() == others.names().len();
            has_same_names && pairs.map_or(Ok(false), |pairs| are_equal(pairs.into_iter()))?
        }
        (JsonTree::Text(one), JsonTree::Text(other))
            if one.starts_with('"') && other.starts_with('"') =>
        {
            let [one, other]: [String; 2] =
                [serde_json::from_str(one)?, serde_json::from_str(other)?];
            one == other
        }
        (JsonTree::Text(one), JsonTree::Text(other)) => {
            Decimal::read(one).is_some_and(|one| Some(one) == Decimal::read(other))
        }
        _ => false,
    })
}

fn are_equal<'t, 'a: 't>(
    mut pairs: impl Iterator<Item = (&'t JsonTree<'a>, &'t JsonTree<'a>)>,
) -> serde_json::Result<bool> {
    pairs.try_fold(true, |are_equal, pair| match pair {
        // A freshly opened value contains its items as text.
        (JsonTree::Text(one), JsonTree::Text(other)) => Ok(are_equal && is_equal(one, other)?),
        _ => Ok(false),
    })
}

/// A decimal number: its digits without leading and trailing zeros, and the exponent of the last digit.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Parses a number; `None` if it is none or its exponent exceeds `i32`.
    fn read(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if !whole.starts_with(|it: char| it.is_ascii_digit()) {
            return None;
        }
        let all = format!("{whole}{fraction}");
        let digits = all.trim_end_matches('0');
        let count = |text: &str| i64::try_from(text.len()).ok();
        let moved = count(&all)? - count(digits)? - count(fraction)?;
        let digits = digits.trim_start_matches('0');
        let is_zero = digits.is_empty();
        Some(Self {
            is_negative: text.len() > unsigned.len() && !is_zero,
            digits: digits.to_owned(),
            exponent: if is_zero {
                0
            } else {
                i64::from(exponent) + moved
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_in_every_spelling() {
        for (one, other) in [
            ("1.10", "1.1"),
            ("1", "1.0"),
            ("100", "1e2"),
            ("-0", "0.00"),
            ("0.015", "1.5E-2"),
            (
                "79228162514264337593543950335.0001",
                "79228162514264337593543950335.00010",
            ),
            (r#""\u00e9""#, "\"é\""),
            (r#"{"a":1,"b":[true]}"#, r#"{ "b": [ true ], "a": 1.0 }"#),
        ] {
            assert_eq!(is_equal(one, other).ok(), Some(true), "{one} {other}");
        }
        for (one, other) in [
            (
                "79228162514264337593543950335.0001",
                "79228162514264337593543950335.0002",
            ),
            ("1", "-1"),
            ("1", "10"),
            ("1", "\"1\""),
            ("0", "false"),
            ("null", "true"),
            ("[]", "{}"),
            ("[1]", "[1,1]"),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
            (r#"{"a":[1]}"#, r#"{"a":[2]}"#),
        ] {
            assert_eq!(is_equal(one, other).ok(), Some(false), "{one} {other}");
        }
    }
}

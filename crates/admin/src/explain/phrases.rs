//! Formatting of steps, durations and names.

use microcache_policy::{Explanation, Millis};
use serde::Serialize;

/// Step of an explanation: a decision and its reason.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ExplanationStep {
    pub(super) message: String,
    pub(super) reason: String,
    /// RFC section of the rule.
    pub(super) rfc: Option<&'static str>,
    /// Suggested change.
    pub(super) hint: Option<String>,
}

impl ExplanationStep {
    /// Creates a step without RFC section and hint.
    pub(super) fn new(what: impl Into<String>, because: impl Into<String>) -> Self {
        Self {
            message: what.into(),
            reason: because.into(),
            rfc: None,
            hint: None,
        }
    }

    /// Creates a step from the explanation of a decision.
    pub(super) fn of(what: impl Into<String>, told: Explanation) -> Self {
        Self {
            message: what.into(),
            reason: told.because.to_owned(),
            rfc: told.rfc,
            hint: told.remedy.map(str::to_owned),
        }
    }

    pub(super) fn by(self, rfc: &'static str) -> Self {
        Self {
            rfc: Some(rfc),
            ..self
        }
    }

    pub(super) fn unless(self, remedy: impl Into<String>) -> Self {
        Self {
            hint: Some(remedy.into()),
            ..self
        }
    }
}

/// Formats a time span in its largest unit, with one decimal.
pub(super) fn span(millis: Millis) -> String {
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

/// Lists names in backticks: `a`, `b` and `c`.
pub(super) fn listed(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match &quoted[..] {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// Renders untrusted bytes.
pub(super) fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_lists_are_short() {
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
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(listed(&names[..1]), "`a`");
        assert_eq!(listed(&names), "`a`, `b` and `c`");
    }
}

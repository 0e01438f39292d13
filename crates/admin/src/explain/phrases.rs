//! Formatting of steps, durations and names.

use microcache_policy::{Explanation, Millis};
use serde::Serialize;

/// One thing that is so, and why.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ExplanationStep {
    pub(super) message: String,
    pub(super) reason: String,
    /// The section that it comes from.
    pub(super) rfc: Option<&'static str>,
    /// Suggested change.
    pub(super) hint: Option<String>,
}

impl ExplanationStep {
    /// A rule of this cache's own, with which all is well.
    pub(super) fn new(what: impl Into<String>, because: impl Into<String>) -> Self {
        Self {
            message: what.into(),
            reason: because.into(),
            rfc: None,
            hint: None,
        }
    }

    /// Builds a step from a decision's own explanation.
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

/// A span in its largest unit, to a tenth.
pub(super) fn span(millis: Millis) -> String {
    const UNITS: [(Millis, &str); 3] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min")];
    let of = |unit: Millis, name: &str| {
        let tenths = u128::from(millis) * 10 / u128::from(unit);
        match tenths % 10 {
            0 => format!("{} {name}", tenths / 10),
            rest => format!("{}.{rest} {name}", tenths / 10),
        }
    };
    // Two minutes are clearer than 120 seconds, and 90 seconds than one and a half minutes.
    let unit = UNITS.iter().find(|(unit, _)| millis >= 2 * unit);
    unit.map_or_else(|| of(1000, "s"), |(unit, name)| of(*unit, name))
}

/// `a`, `b` and `c`, each in backticks.
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

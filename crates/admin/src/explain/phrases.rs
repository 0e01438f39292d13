//! Formatting of steps and names.

use microcache_policy::Explanation;
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
    pub(super) fn of(what: impl Into<String>, explanation: Explanation) -> Self {
        Self {
            message: what.into(),
            reason: explanation.because.to_owned(),
            rfc: explanation.rfc,
            hint: explanation.remedy.map(str::to_owned),
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
    fn names_are_listed_in_backticks() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(listed(&names[..1]), "`a`");
        assert_eq!(listed(&names), "`a`, `b` and `c`");
    }
}

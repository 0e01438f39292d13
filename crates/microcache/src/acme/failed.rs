//! The failure of an order.

use std::time::Duration;

use instant_acme::{Error, Problem};

/// The first step.
pub(super) const ORDER: &str = "the order";
/// The maximum length of an authority's text, in characters.
const LONGEST: usize = 400;
/// The pause after a rate limit without a time.
const TOO_OFTEN: Duration = Duration::from_hours(1);
/// The maximum pause that an authority can demand.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// A failed order.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// The step that failed, in words.
    pub(super) step: &'static str,
    pub(super) why: String,
    pub(super) kind: Fault,
    /// The pause that the authority demands.
    pub(super) retry_after: Option<Duration>,
    /// The reason is the authority's own text.
    pub(super) is_from_authority: bool,
}

/// The part at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The validation of the name.
    Challenge,
    /// The authority, or the connection to it.
    Authority,
    /// The account, which the authority does not know.
    Account,
    /// The certificate issued, which is unusable.
    Certificate,
    /// The local storage.
    Storage,
}

impl Failed {
    pub(super) fn new(step: &'static str, kind: Fault, why: impl AsRef<str>) -> Self {
        Self {
            step,
            why: shortened(why.as_ref()),
            kind,
            retry_after: None,
            is_from_authority: false,
        }
    }

    /// Returns whether the order was refused, and not the validation.
    pub(super) fn is_of_order(&self) -> bool {
        self.step == ORDER && self.kind == Fault::Authority && self.retry_after.is_none()
    }

    /// Attributes a refusal during the validation to the challenge.
    pub(super) fn of_challenge(mut self) -> Self {
        if self.is_from_authority && self.kind == Fault::Authority && self.retry_after.is_none() {
            self.kind = Fault::Challenge;
        }
        self
    }

    /// Converts an error. `heard` is the authority's Retry-After.
    pub(super) fn of(step: &'static str, error: &Error, heard: Option<Duration>) -> Self {
        let (mut kind, mut why, mut retry_after) = (Fault::Authority, error.to_string(), heard);
        match error {
            Error::Api(problem) => {
                why = problem_text(problem);
                match problem
                    .r#type
                    .as_deref()
                    .and_then(|kind| kind.rsplit(':').next())
                {
                    Some("accountDoesNotExist") => kind = Fault::Account,
                    Some("rateLimited") => retry_after = heard.or(Some(TOO_OFTEN)),
                    _ => {}
                }
            }
            Error::Json(error) => why = format!("its answer cannot be parsed: {error}"),
            Error::Timeout(_) => "timeout".clone_into(&mut why),
            _ => {}
        }
        Self {
            retry_after: retry_after.map(|wait| wait.min(LONGEST_WAIT)),
            is_from_authority: matches!(error, Error::Api(_)),
            ..Self::new(step, kind, why)
        }
    }
}

/// Formats the problem that an authority reports.
pub(super) fn problem_text(problem: &Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_default();
    for part in &problem.subproblems {
        if let Some(detail) = &part.detail {
            text = format!("{text}; {detail}");
        }
    }
    let kind = problem.r#type.as_deref().unwrap_or("no type");
    let kind = kind.rsplit(':').next().unwrap_or(kind);
    format!("{text} ({kind})")
}

/// Shortens a text to one line.
pub(super) fn shortened(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = plain.take(LONGEST + 1).collect();
    if short.chars().count() > LONGEST {
        short = short.chars().take(LONGEST).collect();
        short.push('…');
    }
    short
}

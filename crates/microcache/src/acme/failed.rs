//! Why there is no certificate.

use std::time::Duration;

use instant_acme::{Error, Problem};

/// What is done first.
pub(super) const ORDER: &str = "the order";
/// As much is told of what an authority says.
const LONGEST: usize = 400;
/// How long it is waited where an authority says that it was asked too often, and not until when.
const TOO_OFTEN: Duration = Duration::from_hours(1);
/// The longest that an authority has itself waited for.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// An order that came to nothing.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// What was about to be done, in words.
    pub(super) step: &'static str,
    pub(super) why: String,
    pub(super) kind: Fault,
    /// How long the authority wants to be left alone.
    pub(super) retry_after: Option<Duration>,
    /// It was said by the authority, in its own words.
    pub(super) is_said: bool,
}

/// Where the fault lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The authority could not see that the name is ours.
    Challenge,
    /// The authority, or the way to it.
    Authority,
    /// The account is not known to the authority.
    Account,
    /// What was issued is no good.
    Certificate,
    /// Our own storage.
    Storage,
}

impl Failed {
    pub(super) fn new(step: &'static str, kind: Fault, why: impl AsRef<str>) -> Self {
        Self {
            step,
            why: told(why.as_ref()),
            kind,
            retry_after: None,
            is_said: false,
        }
    }

    /// Whether it is for what was ordered, and not for how the name is seen to be ours.
    pub(super) fn is_of_order(&self) -> bool {
        self.step == ORDER && self.kind == Fault::Authority && self.retry_after.is_none()
    }

    /// For what was said when the authority was about to see that a name is ours: what it refuses then, it has looked at.
    pub(super) fn of_challenge(mut self) -> Self {
        if self.is_said && self.kind == Fault::Authority && self.retry_after.is_none() {
            self.kind = Fault::Challenge;
        }
        self
    }

    /// What an authority said, or why it could not be asked. `heard` is what it said of when to come again.
    pub(super) fn of(step: &'static str, error: &Error, heard: Option<Duration>) -> Self {
        let (mut kind, mut why, mut retry_after) = (Fault::Authority, error.to_string(), heard);
        match error {
            Error::Api(problem) => {
                why = said(problem);
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
            Error::Json(error) => why = format!("what it answers cannot be understood: {error}"),
            Error::Timeout(_) => "it takes too long".clone_into(&mut why),
            _ => {}
        }
        Self {
            retry_after: retry_after.map(|wait| wait.min(LONGEST_WAIT)),
            is_said: matches!(error, Error::Api(_)),
            ..Self::new(step, kind, why)
        }
    }
}

/// What an authority says is wrong.
pub(super) fn said(problem: &Problem) -> String {
    let mut said = problem.detail.clone().unwrap_or_default();
    for part in &problem.subproblems {
        if let Some(detail) = &part.detail {
            said = format!("{said}; {detail}");
        }
    }
    let kind = problem.r#type.as_deref().unwrap_or("no type");
    let kind = kind.rsplit(':').next().unwrap_or(kind);
    format!("{said} ({kind})")
}

/// In one line, and not too long.
pub(super) fn told(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut told: String = plain.take(LONGEST + 1).collect();
    if told.chars().count() > LONGEST {
        told = told.chars().take(LONGEST).collect();
        told.push('…');
    }
    told
}

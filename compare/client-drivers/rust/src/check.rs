//! Whether a body is the one that was asked for.

use std::time::{Duration, SystemTime};

use crate::client::{Answer, LANGUAGES};
use crate::plan::{Choice, Plan};

/// A second is lost where a date has no fractions, and another where a lifetime has none.
const ROUNDING: Duration = Duration::from_secs(2);

/// What is wrong with it, if anything.
pub fn wrong(plan: &Plan, choice: &Choice, answer: &Answer) -> Option<&'static str> {
    let body = answer.body.as_ref();
    if body.len() != plan.size || !body.ends_with(b"</p>\n") {
        return Some("length");
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(512)]);
    let mut lines = text.lines().skip(1);
    let mut line = || lines.next().unwrap_or_default();
    let url = line()
        .strip_prefix("<title>")
        .and_then(|rest| rest.strip_suffix("</title>"));
    if url != Some(&plan.path_of(choice.url)) {
        return Some("url");
    }
    let (_, version, request) = (line(), line(), line());
    let told = request
        .strip_prefix("<p>accept-language: ")
        .and_then(|rest| rest.strip_suffix("</p>"))
        .and_then(|rest| rest.split_once("; authorization: "));
    let Some((variant, user)) = told else {
        return Some("text");
    };
    if variant != LANGUAGES[choice.variant] {
        return Some("variant");
    }
    let is_user = match choice.identity {
        Some(identity) => user.strip_prefix("Bearer ") == Some(&identity.to_string()),
        None => user == "-",
    };
    if !is_user {
        return Some("user");
    }
    is_too_old(plan, version, answer).then_some("generation")
}

/// A page that changes says when it was made.
fn is_too_old(plan: &Plan, version: &str, answer: &Answer) -> bool {
    let Some((_, date)) = version.split_once(", ") else {
        return false;
    };
    let made = httpdate::parse_http_date(date.trim_end_matches(".</p>"));
    let age = made
        .ok()
        .and_then(|made| SystemTime::now().duration_since(made).ok());
    age.unwrap_or_default() > answer.lifetime + plan.stale + ROUNDING
}

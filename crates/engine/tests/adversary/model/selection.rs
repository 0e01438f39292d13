//! Content negotiation of the origin: the request fields that a page varies on.

use std::fmt::Write as _;

use super::{Lines, all, joined};

/// The codings and languages of the pages, the origin's preferred one first.
const CODINGS: [&str; 2] = ["br", "gzip"];
const LANGUAGES: [&str; 3] = ["en", "de", "fr"];

/// The normalised value of one field: two requests that an origin answers alike have the same one.
pub(crate) fn choice(name: &str, request: &Lines) -> String {
    match name {
        "accept-encoding" => coding(request).to_owned(),
        "accept-language" => language(request).to_owned(),
        "cookie" => cookie(request, "theme").unwrap_or("-").to_owned(),
        "user-agent" => {
            let agent = joined(request, name).unwrap_or_default();
            if agent.contains("Mobile") {
                "mobile"
            } else {
                "desktop"
            }
            .to_owned()
        }
        _ => joined(request, name).map_or_else(
            || "-".to_owned(),
            |value| {
                value.bytes().fold(String::new(), |mut text, byte| {
                    // Escapes the bytes that would end a line or a word of the body.
                    write!(text, "{byte:02x}").expect("a string takes it");
                    text
                })
            },
        ),
    }
}

/// The value of a cookie, wherever it is.
pub(crate) fn cookie<'a>(request: &'a Lines, name: &str) -> Option<&'a str> {
    all(request, "cookie")
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
}

/// The acceptable coding that the origin prefers (RFC 9110 §12.5.3).
fn coding(request: &Lines) -> &'static str {
    let Some(members) = weighted(request, "accept-encoding") else {
        return "identity";
    };
    let weight = |coding: &str| {
        let of = |name: &str| members.iter().find(|(token, _)| token == name);
        of(coding)
            .or_else(|| of("*"))
            .map_or(0, |(_, weight)| *weight)
    };
    CODINGS
        .into_iter()
        .find(|coding| weight(coding) > 0)
        .unwrap_or("identity")
}

/// The language with the greatest weight, the first among equals (RFC 9110 §12.5.4); a range
/// matches the tags that it is a prefix of (RFC 4647 §3.4).
fn language(request: &Lines) -> &'static str {
    let mut members = weighted(request, "accept-language").unwrap_or_default();
    members.retain(|(_, weight)| *weight > 0);
    members.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    let known = |token: &str| {
        let first = token.split('-').next().unwrap_or(token);
        LANGUAGES.into_iter().find(|language| *language == first)
    };
    members
        .iter()
        .find_map(|(token, _)| known(token))
        .unwrap_or(LANGUAGES[0])
}

/// The members with their weights in thousandths; none of them if one is malformed.
fn weighted(request: &Lines, name: &str) -> Option<Vec<(String, u32)>> {
    let value = joined(request, name)?;
    let members = value
        .split(',')
        .map(str::trim)
        .filter(|one| !one.is_empty());
    members
        .map(|member| {
            let (token, weight) = match member.split_once(';') {
                None => (member, 1000),
                Some((token, weight)) => (token.trim(), thousandths(weight.trim())?),
            };
            Some((token.to_ascii_lowercase(), weight))
        })
        .collect()
}

fn thousandths(parameter: &str) -> Option<u32> {
    let value = parameter
        .strip_prefix("q=")
        .or(parameter.strip_prefix("Q="))?;
    let weight: f32 = value.parse().ok()?;
    #[expect(clippy::cast_sign_loss, reason = "the range is checked")]
    (0.0..=1.0)
        .contains(&weight)
        .then_some((weight * 1000.0).round() as u32)
}

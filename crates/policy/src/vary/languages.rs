//! Normalization of `Accept-Language`: to an order of preference, or to the best match among the site's languages.

use smallvec::{Array, SmallVec};

use crate::encoding::{push_component, push_with_len};
use crate::fields::{Fields, FieldsBuf};
use crate::known_name::names;
use crate::rules::Rules;

use super::weighted::{WeightedToken, read};

pub(super) const NAME: &str = "accept-language";

/// Appends the normalized preference. A malformed field counts as absent.
pub(super) fn push<A: Array<Item = u8>>(out: &mut SmallVec<A>, request: Fields<'_>, rules: &Rules) {
    let Some(mut members) = read(request, names::ACCEPT_LANGUAGE) else {
        out.push(0);
        return;
    };
    sort(&mut members);
    if rules.languages.is_empty() {
        out.push(1);
        push_with_len(out, |out| push_members(out, &members));
    } else if let Some(language) = best(&members, &rules.languages) {
        out.push(1);
        push_component(out, language.as_bytes());
    } else {
        out.push(0);
    }
}

/// Rewrites the field of a shared fetch to the meaning that [`push`] has read: a lenient origin would otherwise select
/// by a malformed field a response that then serves requests without preference.
pub(super) fn normalise(request: &mut FieldsBuf, rules: &Rules) {
    let fields = request.fields();
    if fields.value(names::ACCEPT_LANGUAGE).is_none() {
        return;
    }
    let found = read(fields, names::ACCEPT_LANGUAGE).map(|mut members| {
        sort(&mut members);
        best(&members, &rules.languages).map(str::to_owned)
    });
    match found {
        Some(_) if rules.languages.is_empty() => {}
        Some(Some(language)) => request.set("Accept-Language", language),
        Some(None) | None => request.remove(NAME),
    }
}

/// A stable sort by weight: many origins take the first among equals.
fn sort(members: &mut [WeightedToken<'_>]) {
    members.sort_by_key(|member| std::cmp::Reverse(member.weight));
}

/// The best match among the site's languages, by the lookup of RFC 4647 §3.4: `de-CH` finds `de`.
fn best<'a>(members: &[WeightedToken<'_>], languages: &'a [String]) -> Option<&'a str> {
    let accepted = members.iter().filter(|member| member.weight > 0);
    for member in accepted {
        let mut range = member.token;
        while !range.is_empty() {
            let named = |one: &&String| one.as_bytes().eq_ignore_ascii_case(range);
            if let Some(language) = languages.iter().find(named) {
                return Some(language);
            }
            range = &range[..range.iter().rposition(|&b| b == b'-').unwrap_or(0)];
        }
    }
    None
}

/// Appends the accepted members. Refused ones only matter for `*`. A comma after each makes the list unambiguous, since
/// tokens contain none.
fn push_members<A: Array<Item = u8>>(out: &mut SmallVec<A>, members: &[WeightedToken<'_>]) {
    let any = members
        .iter()
        .any(|member| member.token == b"*" && member.weight > 0);
    for member in members {
        if member.weight == 0 && (!any || member.token == b"*") {
            continue;
        }
        out.extend(member.token.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(if member.weight > 0 { b"," } else { b";q=0," });
    }
}

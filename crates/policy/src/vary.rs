//! `Vary`: which request fields chose a response, and what they said (RFC 9111 §4.1).

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::directives::is_token;
use crate::encoding::{push_component, push_field, push_with_len};
use crate::fields::{Fields, FieldsBuf, split_list};

/// What a response's `Vary` says, over all its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// It answers every request for its key.
    None,
    /// It answers requests whose fields of these names say the same.
    Names(VaryNames),
    /// Nobody knows whom else it answers: `*`, or something that is no field name.
    Any,
}

/// Names of request fields: lower-case, sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VaryNames(Box<[u8]>);

/// What a request says in the fields of some [`VaryNames`]: equal for requests that the same stored response answers, and for no others.
pub type Selection = SmallVec<[u8; 128]>;

impl VaryNames {
    /// Whether there is no name.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The form in which a store keeps them.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads that form. `None` if it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let names = Self(bytes.into());
        let sorted = names.iter().zip(names.iter().skip(1)).all(|(a, b)| a < b);
        let valid = names
            .iter()
            .all(|name| is_token(name.as_bytes()) && !name.bytes().any(|b| b.is_ascii_uppercase()));
        (bytes.is_ascii() && sorted && valid).then_some(names)
    }

    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let text = std::str::from_utf8(&self.0).unwrap_or_default();
        text.split(',').filter(|_| !text.is_empty())
    }
}

/// Reads every `Vary` line of a response.
pub fn of_response(response: Fields<'_>) -> Vary {
    let mut names: Vec<Vec<u8>> = response
        .members("vary")
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    if names.iter().any(|name| name == b"*" || !is_token(name)) {
        return Vary::Any;
    }
    if names.is_empty() {
        return Vary::None;
    }
    names.sort_unstable();
    names.dedup();
    Vary::Names(VaryNames(names.join(&b',').into()))
}

/// Writes what `request` says in the fields `names`, in the place of what is in `out`. `Accept-Encoding` and `Accept-Language` are
/// normalised first; a malformed one counts as absent, so [`drop_malformed`] belongs before the request that fills.
pub fn select(names: &VaryNames, request: Fields<'_>, out: &mut Selection) {
    out.clear();
    if names.is_empty() {
        return;
    }
    push_component(out, names.as_bytes());
    for name in names.iter() {
        match Negotiated::of(name) {
            Some(negotiated) => push_negotiated(out, negotiated, request),
            None => push_field(out, request, name),
        }
    }
}

/// Removes from a request to the origin what [`select`] counts as absent. Otherwise an origin that reads it more kindly would
/// choose a response for it that then answers those who did not ask for anything.
pub fn drop_malformed(request: &mut FieldsBuf) {
    for negotiated in [Negotiated::Encoding, Negotiated::Language] {
        if request.fields().contains(negotiated.name())
            && negotiated.read(request.fields()).is_none()
        {
            request.remove(negotiated.name());
        }
    }
}

/// The fields whose meaning is known well enough to normalise them.
#[derive(Clone, Copy)]
enum Negotiated {
    Encoding,
    Language,
}

/// One member of a negotiation field, with its weight in thousandths.
#[derive(Clone, Copy)]
struct Weighted<'a> {
    token: &'a [u8],
    weight: u16,
}

type Members<'a> = SmallVec<[Weighted<'a>; 16]>;

/// A field with more members is no honest one; it counts as malformed.
const MAX_MEMBERS: usize = 64;

impl Negotiated {
    fn of(name: &str) -> Option<Self> {
        [Self::Encoding, Self::Language]
            .into_iter()
            .find(|known| known.name() == name)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Encoding => "accept-encoding",
            Self::Language => "accept-language",
        }
    }

    /// The members of the field in canonical order; `None` if one is malformed.
    fn read(self, request: Fields<'_>) -> Option<Members<'_>> {
        let mut members = Members::new();
        for line in request.all(self.name()) {
            for member in split_list(line) {
                members.push(weighted(member)?);
                if members.len() > MAX_MEMBERS {
                    return None;
                }
            }
        }
        match self {
            Self::Encoding => sort_codings(&mut members),
            // The order among equals stays: many origins take the first.
            Self::Language => members.sort_by_key(|member| std::cmp::Reverse(member.weight)),
        }
        Some(members)
    }
}

fn push_negotiated(out: &mut Selection, negotiated: Negotiated, request: Fields<'_>) {
    let read = negotiated
        .read(request)
        .filter(|_| request.contains(negotiated.name()));
    let Some(members) = read else {
        out.push(0);
        return;
    };
    out.push(1);
    push_with_len(out, |out| match negotiated {
        Negotiated::Encoding => push_codings(out, &members),
        Negotiated::Language => push_members(out, &members, |_| true),
    });
}

/// Codings are a set: their order says nothing, and a refusal counts against any acceptance of the same coding.
fn sort_codings(members: &mut Members<'_>) {
    for member in members.iter_mut() {
        // RFC 9110 §8.4.1: these are to be taken for the same.
        if member.token.eq_ignore_ascii_case(b"x-gzip") {
            member.token = b"gzip";
        } else if member.token.eq_ignore_ascii_case(b"x-compress") {
            member.token = b"compress";
        }
    }
    members.sort_by(|a, b| compare(a.token, b.token).then(a.weight.cmp(&b.weight)));
    members.dedup_by(|later, first| later.token.eq_ignore_ascii_case(first.token));
}

/// `identity` is acceptable unless it is refused, by name or by `*` (RFC 9110 §12.5.3), so only its refusal is written.
fn push_codings(out: &mut Selection, members: &Members<'_>) {
    let weight_of = |token: &[u8]| {
        members
            .iter()
            .find(|m| m.token.eq_ignore_ascii_case(token))
            .map(|m| m.weight)
    };
    push_members(out, members, |member| {
        !member.token.eq_ignore_ascii_case(b"identity")
    });
    if weight_of(b"identity").or(weight_of(b"*")) == Some(0) {
        push_member(out, b"identity;q=0");
    }
}

/// Writes what is accepted. What is refused matters only to `*`, which would accept it.
fn push_members(
    out: &mut Selection,
    members: &Members<'_>,
    counts: impl Fn(&Weighted<'_>) -> bool,
) {
    let any = members
        .iter()
        .any(|member| member.token == b"*" && member.weight > 0);
    for member in members.iter().filter(|member| counts(member)) {
        if member.weight > 0 {
            push_member(out, member.token);
        } else if any && member.token != b"*" {
            push_member(out, member.token);
            out.extend_from_slice(b";q=0");
        }
    }
}

/// A comma behind each one makes the list unambiguous: tokens hold none.
fn push_member(out: &mut Selection, member: &[u8]) {
    out.push(b',');
    out.extend(member.iter().map(u8::to_ascii_lowercase));
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let lower = |text: &'_ [u8]| {
        text.iter()
            .map(u8::to_ascii_lowercase)
            .collect::<SmallVec<[u8; 16]>>()
    };
    lower(a).cmp(&lower(b))
}

/// `token`, or `token;q=0.5` with optional white space around the semicolon.
fn weighted(member: &[u8]) -> Option<Weighted<'_>> {
    let (token, weight) = match memchr::memchr(b';', member) {
        None => (member, 1000),
        Some(semicolon) => {
            let parameter = member[semicolon + 1..].trim_ascii_start();
            let [b'q' | b'Q', b'=', value @ ..] = parameter else {
                return None;
            };
            (member[..semicolon].trim_ascii_end(), thousandths(value)?)
        }
    };
    is_token(token).then_some(Weighted { token, weight })
}

/// A quality value of RFC 9110 §12.4.2: 0 to 1 with at most three decimals.
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (decimal, unit) in decimals.iter().zip([100, 10, 1]) {
        weight += match decimal {
            b'0'..=b'9' => u16::from(decimal - b'0') * unit,
            _ => return None,
        };
    }
    (weight <= 1000).then_some(weight)
}

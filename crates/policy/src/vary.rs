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

/// What a request says in the fields of some [`VaryNames`]: equal for requests that the same stored
/// response answers, and for no others.
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

/// Writes what `request` says in the fields `names`, in the place of what is in `out`.
/// `Accept-Encoding` and `Accept-Language` are normalised first; a malformed one counts as absent,
/// so [`drop_malformed`] belongs before the request that fills.
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

/// Removes from a request to the origin what [`select`] counts as absent. Otherwise an origin that
/// reads it more kindly would choose a response for it that then answers those who did not ask for
/// anything.
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

    /// The members of the field in canonical order; `None` if it is absent, or if one is malformed.
    fn read(self, request: Fields<'_>) -> Option<Members<'_>> {
        let mut members = Members::new();
        let mut present = false;
        for line in request.all(self.name()) {
            present = true;
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
        present.then_some(members)
    }
}

fn push_negotiated(out: &mut Selection, negotiated: Negotiated, request: Fields<'_>) {
    let Some(members) = negotiated.read(request) else {
        out.push(0);
        return;
    };
    out.push(1);
    push_with_len(out, |out| match negotiated {
        Negotiated::Encoding => push_codings(out, &members),
        Negotiated::Language => push_members(out, &members, |_| true),
    });
}

/// Codings are a set: their order says nothing, and a refusal counts against any acceptance of the
/// same coding.
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

/// `identity` is acceptable unless it is refused, by name or by `*` (RFC 9110 §12.5.3), so only its
/// refusal is written.
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
    let a = a.iter().map(u8::to_ascii_lowercase);
    a.cmp(b.iter().map(u8::to_ascii_lowercase))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    fn names(of: &str) -> VaryNames {
        match of_response(fields(of).fields()) {
            Vary::Names(names) => names,
            other => panic!("{of}: {other:?}"),
        }
    }

    fn selection(vary: &str, request: &str) -> Selection {
        let mut out = Selection::from_slice(b"left over");
        select(&names(vary), fields(request).fields(), &mut out);
        out
    }

    fn check_same(vary: &str, requests: &[&str]) {
        for other in requests {
            assert_eq!(
                selection(vary, requests[0]),
                selection(vary, other),
                "{} | {other}",
                requests[0]
            );
        }
    }

    fn check_all_differ(vary: &str, requests: &[&str]) {
        for (i, one) in requests.iter().enumerate() {
            for other in &requests[..i] {
                assert_ne!(
                    selection(vary, one),
                    selection(vary, other),
                    "{one} | {other}"
                );
            }
        }
    }

    #[test]
    fn all_lines_are_read_sorted_and_each_name_once() {
        assert_eq!(names("Vary: B, a\nVary: A,,c").as_bytes(), b"a,b,c");
        for none in ["", "Vary:", "Vary: ,", "Vary:\nVary:"] {
            assert_eq!(of_response(fields(none).fields()), Vary::None, "{none}");
        }
        for any in [
            "Vary: *",
            "Vary: a, *",
            "Vary: *, *",
            "Vary: a\nVary:\nVary: *",
            "Vary: \"a\"",
            "Vary: a b",
            "Vary: a;b",
        ] {
            assert_eq!(of_response(fields(any).fields()), Vary::Any, "{any}");
        }
    }

    #[test]
    fn only_the_stored_form_is_read() {
        for valid in ["", "a", "a,b", "accept-encoding"] {
            let read = VaryNames::from_bytes(valid.as_bytes()).expect(valid);
            assert_eq!(read.as_bytes(), valid.as_bytes());
            assert_eq!(read.is_empty(), valid.is_empty());
        }
        for invalid in ["A", "b,a", "a,a", ",", "a,", "a b", "\u{e9}"] {
            assert_eq!(VaryNames::from_bytes(invalid.as_bytes()), None, "{invalid}");
        }
        assert_eq!(VaryNames::from_bytes(b"\xff"), None);
    }

    #[test]
    fn other_fields_count_as_they_stand_with_their_lines_combined() {
        check_same("Vary: x", &["X: a, b", "x: a\nX: b", "x:  a, b  \ny: 1"]);
        check_all_differ("Vary: x", &["", "x:", "x: a", "x: A", "x: a,b", "x: a, b"]);
        check_all_differ(
            "Vary: x, y",
            &["", "x: 1", "y: 1", "x: 1\ny: 1", "x: 1y", "x:\ny: 1"],
        );
    }

    #[test]
    fn selections_by_other_names_differ() {
        assert_ne!(
            selection("Vary: x", "x: 1\ny: 1"),
            selection("Vary: y", "x: 1\ny: 1")
        );
        assert_ne!(selection("Vary: x", ""), selection("Vary: x, y", ""));
        let mut out = Selection::from_slice(b"left over");
        select(&VaryNames::default(), fields("x: 1").fields(), &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn accept_encoding_is_a_set() {
        let vary = "Vary: Accept-Encoding";
        check_same(
            vary,
            &[
                "Accept-Encoding: gzip, br",
                "accept-encoding: BR,GZip",
                "Accept-Encoding: br;q=1.0 ,gzip ; q=0.5",
                "Accept-Encoding: gzip\nAccept-Encoding: br",
                "Accept-Encoding: x-gzip,, br, br, zstd;q=0.000, identity",
                "Accept-Encoding: gzip;q=0.1, br;Q=0.001, *;q=0, identity;q=1",
            ],
        );
        check_same(
            vary,
            &[
                "Accept-Encoding:",
                "Accept-Encoding: identity",
                "Accept-Encoding: gzip;q=0",
                "Accept-Encoding: ,",
            ],
        );
        check_same(
            vary,
            &[
                "Accept-Encoding: gzip, *;q=0",
                "Accept-Encoding: identity;q=0, gzip",
            ],
        );
        check_all_differ(
            vary,
            &[
                "",
                "Accept-Encoding:",
                "Accept-Encoding: gzip",
                "Accept-Encoding: br",
                "Accept-Encoding: gzip, br",
                "Accept-Encoding: *",
                "Accept-Encoding: *, gzip;q=0",
                "Accept-Encoding: gzip, identity;q=0",
            ],
        );
    }

    #[test]
    fn accept_language_is_an_order_of_preference() {
        let vary = "Vary: Accept-Language";
        check_same(
            vary,
            &[
                "Accept-Language: en-US, en;q=0.9, de;q=0.5",
                "accept-language: EN-us,en;q=0.8,de;q=0.1, fr;q=0",
                "Accept-Language: de;q=0.5, en;q=0.9\nAccept-Language: en-US",
            ],
        );
        check_all_differ(
            vary,
            &[
                "",
                "Accept-Language:",
                "Accept-Language: en",
                "Accept-Language: en, de",
                "Accept-Language: de, en",
                "Accept-Language: en, *",
                "Accept-Language: en, *, de;q=0",
            ],
        );
    }

    #[test]
    fn a_malformed_one_counts_as_absent_and_does_not_travel() {
        for (name, value) in [
            ("Accept-Encoding", "gzip;q=2"),
            ("Accept-Encoding", "gzip;q=0.1234"),
            ("Accept-Encoding", "gzip;q=1.001"),
            ("Accept-Encoding", "gzip;q="),
            ("Accept-Encoding", "gzip;q"),
            ("Accept-Encoding", "gzip;level=1"),
            ("Accept-Encoding", "gzip;q=1;q=1"),
            ("Accept-Encoding", "gzip br"),
            ("Accept-Encoding", "br, gzip;;"),
            ("Accept-Encoding", "\"gzip\""),
            ("Accept-Language", "en;q=0.a"),
            ("Accept-Language", "en us"),
        ] {
            let line = format!("{name}: {value}\nX-A: 1");
            let vary = format!("Vary: {name}");
            assert_eq!(selection(&vary, &line), selection(&vary, ""), "{line}");
            let mut request = fields(&line);
            drop_malformed(&mut request);
            assert_eq!(request, fields("X-A: 1"), "{line}");
        }
        let many = format!(
            "Accept-Encoding: {}",
            vec!["gzip"; MAX_MEMBERS + 1].join(",")
        );
        assert_eq!(
            selection("Vary: accept-encoding", &many),
            selection("Vary: accept-encoding", "")
        );

        let mut good = fields("accept-encoding: gzip;q=0.5\nAccept-Language:\nX-A: 1");
        drop_malformed(&mut good);
        assert_eq!(
            good,
            fields("accept-encoding: gzip;q=0.5\nAccept-Language:\nX-A: 1")
        );
    }
}

//! `Vary`: the request fields that select a response, and their values (RFC 9111 §4.1).

mod codings;
mod languages;
pub(crate) mod weighted;

use smallvec::SmallVec;

use crate::encoding::{push_component, take_component};
use crate::field_name::FieldName;
use crate::fields::{Fields, FieldsBuf, split_list};
use crate::identity::is_identity;
use crate::known_name::names;
use crate::origin_view::OriginView;
use crate::rules::Rules;
use crate::syntax::is_token;
use crate::trust::{FieldForwarding, is_rewritten};

pub use codings::{Codings, ObservedCodings};

/// The `Vary` of a response, over all its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// The response serves every request for its key.
    None,
    /// It serves requests with the same values in these fields.
    Names(VaryNames),
    /// `Vary: *` or an invalid field name: it serves no other request.
    Any,
}

/// Names of request fields: in lower case, sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VaryNames(Option<Box<str>>);

/// The values of a request in the fields of some [`VaryNames`], as the origin sees them. The accepted codings are at
/// the end: they are compared as in [`is_selected`], all else must be equal.
pub type Selection = SmallVec<[u8; 128]>;

impl Vary {
    /// The field names; empty unless it is [`Vary::Names`].
    pub fn names(self) -> VaryNames {
        match self {
            Self::Names(names) => names,
            Self::None | Self::Any => VaryNames::default(),
        }
    }
}

impl VaryNames {
    /// No names.
    pub const NONE: Self = Self(None);

    /// Returns true if there is no name.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The encoded form, for storage.
    pub const fn as_bytes(&self) -> &[u8] {
        self.as_str().as_bytes()
    }

    const fn as_str(&self) -> &str {
        match &self.0 {
            Some(names) => names,
            None => "",
        }
    }

    fn written(text: &str) -> Self {
        Self((!text.is_empty()).then(|| text.into()))
    }

    /// Parses the encoded form. `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let names = Self::written(std::str::from_utf8(bytes).ok()?);
        let sorted = names.iter().zip(names.iter().skip(1)).all(|(a, b)| a < b);
        let valid = names
            .iter()
            .all(|name| is_token(name.as_bytes()) && !name.bytes().any(|b| b.is_ascii_uppercase()));
        (sorted && valid).then_some(names)
    }

    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|names| names.split(','))
    }

    /// The union with other names.
    #[must_use]
    pub fn union(&self, others: &Self) -> Self {
        if others.is_empty() || self == others {
            return self.clone();
        }
        Self::sorted(
            self.iter()
                .chain(others.iter())
                .map(str::as_bytes)
                .collect(),
        )
    }

    /// Returns true if it contains all of `others`.
    pub fn contains(&self, others: &Self) -> bool {
        others
            .iter()
            .all(|other| self.iter().any(|one| one == other))
    }

    fn sorted(mut names: Vec<&[u8]>) -> Self {
        names.sort_unstable();
        names.dedup();
        // Tokens are ASCII.
        let text = String::from_utf8(names.join(&b',')).unwrap_or_default();
        Self::written(&text)
    }

    fn has_codings(&self) -> bool {
        // The usual case: it is the only name.
        self.as_str() == codings::NAME || self.iter().any(|name| name == codings::NAME)
    }
}

/// Parses every `Vary` line of a response, without the names that the route ignores ([`Rules::vary_ignored`]).
pub fn of_response(response: Fields<'_>, ignored: &[String]) -> Vary {
    let mut lines = VaryLines::default();
    for value in response.values(names::VARY) {
        lines.note(value);
    }
    lines.finish(ignored)
}

/// The lines of `Vary`, collected in the pass over the fields.
#[derive(Default)]
pub(crate) struct VaryLines {
    names: Vec<Vec<u8>>,
}

impl VaryLines {
    /// Adds the value of one line.
    pub(crate) fn note(&mut self, value: &[u8]) {
        let names = split_list(value);
        self.names.extend(names.map(<[u8]>::to_ascii_lowercase));
    }

    /// The `Vary` of all lines, without the ignored names.
    pub(crate) fn finish(self, ignored: &[String]) -> Vary {
        if self.names.is_empty() {
            return Vary::None;
        }
        if self
            .names
            .iter()
            .any(|name| name == b"*" || !is_token(name))
        {
            return Vary::Any;
        }
        let is_ignored = |name: &&[u8]| {
            ignored
                .iter()
                .any(|one| one.as_bytes().eq_ignore_ascii_case(name))
        };
        let names: Vec<&[u8]> = self
            .names
            .iter()
            .map(Vec::as_slice)
            .filter(|name| !is_ignored(name))
            .collect();
        if names.is_empty() {
            return Vary::None;
        }
        Vary::Names(VaryNames::sorted(names))
    }
}

/// Replaces `out` by the values of `request` in the fields `names`, as the origin sees them. Ambiguous values of
/// `Accept-Encoding` and `Accept-Language` count as absent, so a shared fetch must be sent through [`normalise`].
pub fn select(names: &VaryNames, request: &OriginView<'_>, out: &mut Selection) {
    out.clear();
    if names.is_empty() {
        return;
    }
    push_component(out, names.as_bytes());
    let mut accepted = None;
    for name in names.iter() {
        let travels = request.forwarding(name) == FieldForwarding::Forwarded;
        match name {
            codings::NAME if travels => accepted = Some(Codings::accepted(request.fields)),
            codings::NAME => accepted = Some(Codings::default()),
            languages::NAME if travels => languages::push(out, request.fields, request.rules),
            _ => request.push(out, name),
        }
    }
    if let Some(accepted) = accepted {
        out.extend_from_slice(&accepted.to_bytes());
    }
}

/// The value of each name in a selection, for diagnostics: empty if the field was absent. `None` if it is confidential,
/// such as cookies, or cannot be decoded from the selection alone.
pub fn selected_values<'a>(
    names: &'a VaryNames,
    selection: &'a [u8],
) -> Vec<(&'a str, Option<String>)> {
    let (mut rest, accepted) = match selection.split_last_chunk::<2>() {
        Some((rest, codings)) if names.has_codings() => (rest, Codings::from_bytes(*codings)),
        _ => (selection, Codings::default()),
    };
    let mut is_plain = take_component(&mut rest) == Some(names.as_bytes());
    let each = names.iter().map(|name| {
        if name == codings::NAME {
            return (name, Some(accepted.to_text()));
        }
        // Their encoding differs, so the values behind them cannot be located.
        is_plain &= name != "cookie" && !is_rewritten(FieldName::of(name.as_bytes()));
        if !is_plain {
            return (name, None);
        }
        let value = match rest.split_off_first() {
            Some(0) => Some(&b""[..]),
            Some(_) => take_component(&mut rest),
            None => None,
        };
        is_plain = value.is_some();
        let shown = value.filter(|_| !is_secret(name));
        (name, shown.map(|value| value.escape_ascii().to_string()))
    });
    each.collect()
}

/// Returns true if the values of a field are confidential.
fn is_secret(name: &str) -> bool {
    let words = ["auth", "token", "secret", "key", "session", "password"];
    is_identity(name.as_bytes()) || words.iter().any(|word| name.contains(word))
}

/// Returns true if the request with the selection `requested` is served by the response with the selection `stored`,
/// both for `names`. Only the codings in `telling` are compared.
pub fn is_selected(names: &VaryNames, stored: &[u8], requested: &[u8], telling: Codings) -> bool {
    if stored == requested {
        return true;
    }
    let (Some((stored, one)), Some((requested, other))) =
        (stored.split_last_chunk(), requested.split_last_chunk())
    else {
        return false;
    };
    let compared = |bytes: &[u8; 2]| Codings::from_bytes(*bytes).and(telling);
    stored == requested && names.has_codings() && compared(one) == compared(other)
}

/// Returns true if the response with the selection `stored` serves a request with the selection `requested`, as far as
/// this one response shows.
pub fn answers(names: &VaryNames, stored: &[u8], requested: &[u8], response: Fields<'_>) -> bool {
    let mut seen = ObservedCodings::default();
    note_codings(&mut seen, names, stored, response);
    is_selected(names, stored, requested, seen.telling())
}

/// Removes the codings from a selection that do not select, so that all requests served by one response have the same.
pub fn reduce(names: &VaryNames, selection: &mut Selection, telling: Codings) {
    if names.has_codings()
        && let Some(end) = selection.last_chunk_mut::<2>()
    {
        *end = Codings::from_bytes(*end).and(telling).to_bytes();
    }
}

/// Records the codings of a response with this selection.
pub fn note_codings(
    seen: &mut ObservedCodings,
    names: &VaryNames,
    selection: &[u8],
    response: Fields<'_>,
) {
    if names.has_codings()
        && let Some(accepted) = selection.last_chunk::<2>()
    {
        seen.note(response, Codings::from_bytes(*accepted));
    }
}

/// Copies the accepted codings of another request, normalized as in every forwarded request.
pub fn accept_as(request: &mut FieldsBuf, other: Fields<'_>) {
    Codings::accepted(other).write(request);
}

/// Normalizes a shared fetch to the meaning that [`select`] has read: the origin's response then depends on the
/// selection alone.
pub fn normalise(request: &mut FieldsBuf, rules: &Rules) {
    if rules.ask_for_identity() {
        // The identity response is encoded or composed here for each client.
        request.set("Accept-Encoding", "identity");
    } else if request.fields().value(names::ACCEPT_ENCODING).is_some() {
        Codings::accepted(request.fields()).write(request);
    }
    languages::normalise(request, rules);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fields, view};

    fn read(response: &str) -> Vary {
        of_response(fields(response).fields(), &[])
    }

    fn names(of: &str) -> VaryNames {
        match read(of) {
            Vary::Names(names) => names,
            other => panic!("{of}: {other:?}"),
        }
    }

    fn selection(vary: &str, request: &str) -> Selection {
        selection_with(&Rules::default(), vary, request)
    }

    fn selection_with(rules: &Rules, vary: &str, request: &str) -> Selection {
        selection_of(vary, &view(fields(request).fields(), rules))
    }

    fn selection_of(vary: &str, request: &OriginView<'_>) -> Selection {
        let mut out = Selection::from_slice(b"left over");
        select(&names(vary), request, &mut out);
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
            assert_eq!(read(none), Vary::None, "{none}");
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
            assert_eq!(read(any), Vary::Any, "{any}");
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
    fn values_of_a_selection_are_shown_except_secrets() {
        let check = |vary: &str, request: &str, expected: &[(&str, Option<&str>)]| {
            let (names, selection) = (names(vary), selection(vary, request));
            let values = selected_values(&names, &selection);
            let values: Vec<_> = values
                .iter()
                .map(|(name, value)| (*name, value.as_deref()))
                .collect();
            assert_eq!(values, expected, "{vary} {request}");
        };
        check(
            "Vary: x, Accept-Encoding",
            "X: a, b\nAccept-Encoding: br, gzip",
            &[("accept-encoding", Some("gzip, br")), ("x", Some("a, b"))],
        );
        check(
            "Vary: Accept-Encoding",
            "",
            &[("accept-encoding", Some(""))],
        );
        check(
            "Vary: Accept-Language, Origin",
            "Accept-Language: de;q=0.5, en\nX: y",
            &[("accept-language", Some("en,de,")), ("origin", Some(""))],
        );
        check(
            "Vary: Authorization, X-Api-Key, A",
            "A: 1\nAuthorization: s3cret\nX-API-Key: s3cret",
            &[
                ("a", Some("1")),
                ("authorization", None),
                ("x-api-key", None),
            ],
        );
        check(
            "Vary: DPoP, Remote-Groups, X-User-Id",
            "DPoP: s3cret\nRemote-Groups: staff\nX-User-Id: 7",
            &[("dpop", None), ("remote-groups", None), ("x-user-id", None)],
        );
        check(
            "Vary: A, Cookie, Origin",
            "A: 1\nCookie: s=s3cret\nOrigin: x",
            &[("a", Some("1")), ("cookie", None), ("origin", None)],
        );
        check(
            "Vary: X-Forwarded-For, Z",
            "Z: 1",
            &[("x-forwarded-for", None), ("z", None)],
        );
        assert_eq!(
            selected_values(&names("Vary: a, b"), b"something else"),
            [("a", None), ("b", None)]
        );
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
        let rules = Rules::default();
        select(
            &VaryNames::default(),
            &view(fields("x: 1").fields(), &rules),
            &mut out,
        );
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
                "Accept-Encoding: gzip, br, sdch, x-evil;q=0.7",
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
            normalise(&mut request, &Rules::default());
            assert_eq!(request, fields("X-A: 1"), "{line}");
        }
        let many = format!(
            "Accept-Encoding: {}",
            vec!["gzip"; weighted::MAX_MEMBERS + 1].join(",")
        );
        assert_eq!(
            selection("Vary: accept-encoding", &many),
            selection("Vary: accept-encoding", "")
        );

        let mut good = fields("accept-encoding: gzip;q=0.5\nAccept-Language:\nX-A: 1");
        normalise(&mut good, &Rules::default());
        assert_eq!(
            good,
            fields("Accept-Language:\nX-A: 1\nAccept-Encoding: gzip")
        );
    }

    #[test]
    fn codings_that_the_origin_was_offered_and_never_used_do_not_count() {
        let vary = names("Vary: Accept-Encoding, X-A");
        let of = |codings: &str| {
            let line = format!("Accept-Encoding: {codings}\nX-A: 1");
            selection("Vary: Accept-Encoding, X-A", &line)
        };
        let (chrome, safari, old) = (
            of("gzip, deflate, br, zstd"),
            of("gzip, deflate, br"),
            of("gzip"),
        );
        let mut seen = ObservedCodings::default();
        let same = |a: &Selection, b: &Selection, seen: ObservedCodings| {
            is_selected(&vary, a, b, seen.telling())
        };
        assert!(!same(&chrome, &safari, seen), "nothing is known yet");
        note_codings(
            &mut seen,
            &vary,
            &old,
            fields("Content-Encoding: gzip").fields(),
        );
        assert!(!same(&old, &chrome, seen), "br was not offered");
        note_codings(
            &mut seen,
            &vary,
            &chrome,
            fields("Content-Encoding: gzip").fields(),
        );
        assert!(same(&old, &chrome, seen) && same(&safari, &chrome, seen));
        assert!(!same(&old, &of("br"), seen), "gzip is in use");
        assert!(!same(
            &old,
            &selection("Vary: Accept-Encoding, X-A", "X-A: 1"),
            seen
        ));
        assert!(!same(&old, &of("gzip, identity;q=0"), seen));
        let other = selection(
            "Vary: Accept-Encoding, X-A",
            "Accept-Encoding: gzip\nX-A: 2",
        );
        assert!(
            !same(&old, &other, seen),
            "the other fields count as they stand"
        );
        let (mut one, mut two) = (chrome.clone(), old.clone());
        reduce(&vary, &mut one, seen.telling());
        reduce(&vary, &mut two, seen.telling());
        assert_eq!(one, two);
        note_codings(
            &mut seen,
            &vary,
            &safari,
            fields("Content-Encoding: br").fields(),
        );
        assert!(!same(&old, &chrome, seen), "br is in use now");
        assert!(same(&safari, &chrome, seen), "zstd is not");
    }

    #[test]
    fn other_names_end_as_they_stand() {
        let vary = names("Vary: X-A");
        let all = Codings::default();
        let (one, other) = (
            selection("Vary: X-A", "X-A: 12"),
            selection("Vary: X-A", "X-A: 34"),
        );
        assert!(!is_selected(&vary, &one, &other, all));
        let mut reduced = one.clone();
        reduce(&vary, &mut reduced, all);
        assert_eq!(reduced, one);
    }

    #[test]
    fn the_origin_gets_the_compared_codings() {
        for (client, origin) in [
            ("br;q=0.1, GZIP , sdch", "gzip, br"),
            ("*", "gzip, deflate, br, zstd"),
            ("*, br;q=0", "gzip, deflate, zstd"),
            ("x-evil", "identity"),
            ("", "identity"),
            ("gzip, *;q=0", "gzip, identity;q=0"),
        ] {
            let line = format!("Accept-Encoding: {client}");
            let mut request = fields(&line);
            normalise(&mut request, &Rules::default());
            assert_eq!(request, fields(&format!("Accept-Encoding: {origin}")));
            assert_eq!(
                selection("Vary: Accept-Encoding", &line),
                selection_of(
                    "Vary: Accept-Encoding",
                    &view(request.fields(), &Rules::default())
                ),
            );
        }
    }

    #[test]
    fn a_site_with_known_languages_has_at_most_as_many_variants() {
        let rules = Rules {
            languages: vec!["en".to_owned(), "de-AT".to_owned(), "de".to_owned()],
            ..Rules::default()
        };
        for (client, origin) in [
            ("de-CH, en;q=0.5", "de"),
            ("de-at", "de-AT"),
            ("fr, xx-1, EN-us;q=0.1", "en"),
            ("en;q=0, de;q=0.1", "de"),
        ] {
            let line = format!("Accept-Language: {client}");
            let mut request = fields(&line);
            normalise(&mut request, &rules);
            assert_eq!(request, fields(&format!("Accept-Language: {origin}")));
            let of = |line: &str| selection_with(&rules, "Vary: Accept-Language", line);
            assert_eq!(of(&line), of(&format!("Accept-Language: {origin}")));
        }
        let of = |line: &str| selection_with(&rules, "Vary: Accept-Language", line);
        for nothing in ["fr", "*", "", "en us"] {
            let line = format!("Accept-Language: {nothing}");
            let mut request = fields(&line);
            normalise(&mut request, &rules);
            assert_eq!(request, fields(""), "{nothing}");
            assert_eq!(of(&line)[..], of("")[..], "{nothing}");
        }
    }

    #[test]
    fn cookies_that_do_not_count_select_nothing() {
        check_same(
            "Vary: Cookie",
            &[
                "",
                "Cookie: _ga=1",
                "Cookie: _ga=2; _gid=3",
                "Cookie: _gid=1\nCookie: _ga=1",
            ],
        );
        check_same(
            "Vary: Cookie",
            &["Cookie: a=1", "Cookie: _ga=1; a=1", "Cookie: a=1;_ga=2"],
        );
        check_all_differ(
            "Vary: Cookie",
            &[
                "",
                "Cookie: a=1",
                "Cookie: a=2",
                "Cookie: b=1",
                "Cookie: a=1; b=1",
                "Cookie: a1",
            ],
        );
    }

    #[test]
    fn a_rewritten_field_counts_as_the_origin_sees_it() {
        let rules = Rules::default();
        for name in ["X-Forwarded-For", "Forwarded"] {
            let vary = format!("Vary: {name}");
            let lie = fields(&format!("{name}: 192.0.2.2"));
            let plain = fields("");
            let honest = view(plain.fields(), &rules);
            let liar = view(lie.fields(), &rules);
            assert_eq!(selection_of(&vary, &honest), selection_of(&vary, &liar));
            let other = OriginView {
                address: "192.0.2.2",
                ..honest
            };
            assert_ne!(selection_of(&vary, &honest), selection_of(&vary, &other));
            let (one, two) = (
                OriginView {
                    is_trusted: true,
                    ..honest
                },
                OriginView {
                    is_trusted: true,
                    ..liar
                },
            );
            assert_ne!(
                selection_of(&vary, &one),
                selection_of(&vary, &two),
                "a proxy is believed"
            );
        }
        for line in [
            "X-Forwarded-Host: evil",
            "X_Forwarded-Proto: https",
            "X-Original-Url: /admin",
            "Range: bytes=1-",
            "If-None-Match: \"a\"",
            "Cache-Control: no-cache",
            "Connection: close",
            "TE: trailers",
            "Host: evil",
        ] {
            let vary = format!("Vary: {}", line.split(':').next().unwrap());
            assert_eq!(selection(&vary, line), selection(&vary, ""), "{line}");
        }
    }

    #[test]
    fn a_route_can_ignore_fields_of_vary() {
        let ignored = ["User-Agent".to_owned()];
        let read = |vary: &str| of_response(fields(vary).fields(), &ignored);
        assert_eq!(read("Vary: user-agent"), Vary::None);
        assert_eq!(
            read("Vary: X-A, User-Agent"),
            Vary::Names(names("Vary: x-a"))
        );
        assert_eq!(read("Vary: User-Agent, *"), Vary::Any);
    }

    #[test]
    fn names_are_put_together() {
        let (a, b) = (names("Vary: b, a"), names("Vary: c, a"));
        assert_eq!(a.union(&b), names("Vary: a, b, c"));
        assert_eq!(a.union(&VaryNames::default()), a);
        assert_eq!(VaryNames::default().union(&a), a);
    }
}

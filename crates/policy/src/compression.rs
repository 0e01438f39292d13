//! Compression by this cache: the stored responses that qualify, the coding that is negotiated with a request, and the
//! head of a compressed response (RFC 9110 §8.4, §12.5.3).
//!
//! The origin is asked for the identity coding, so a url has one stored response. Its encoded forms are derived from it
//! and are evicted with it.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use smallvec::SmallVec;

use crate::coding::DictionaryCoding;
use crate::etag::EntityTag;
use crate::fields::{Fields, FieldsBuf, is_one_of};
use crate::glob;
use crate::known_name::names;
use crate::rules::{KeyRules, Rules};
use crate::vary::{Vary, VaryLines, VaryNames, weighted};

pub use crate::coding::{Coding, SentCoding};
pub use crate::rules::Compress;

/// The reason that a stored response is never sent compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCompressible {
    /// Compression is off on its route.
    Off,
    /// It has no content, or partial content.
    NotWhole,
    /// It is below the minimum size.
    TooSmall,
    /// It is above the maximum size.
    TooLarge,
    /// It has a content coding from the origin.
    Encoded,
    /// Its media type is not in the list.
    Type,
    /// It has the directive `no-transform`.
    NoTransform,
    /// It may be specific to one user.
    Personal,
}

/// The reason that a response is sent in its stored form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCompressed {
    /// It is never compressed, for any client.
    NotCompressible(NotCompressible),
    /// It is served from a file.
    InFile,
    /// It is composed for each client, and the request does not accept gzip: other codings cannot be put together.
    Composed,
    /// It was stored before compression was enabled on its route, and lacks `Vary: Accept-Encoding`.
    StoredBefore,
    /// The client accepts none of the codings, or prefers identity.
    NotAccepted,
    /// It may be specific to this client.
    ClientSpecific,
    /// The client requests a range.
    Part,
    /// The encoded form has not been produced yet.
    NotReady,
    /// Encoding hardly reduces its size.
    NoGain,
}

/// The weight of a coding in a request, in thousandths; `None` if the request does not mention it.
type Weight = Option<u16>;

impl Compress {
    /// Media types of text, and binary formats without compression of their own.
    pub const USUAL_TYPES: [&str; 14] = [
        "text/*",
        "application/javascript",
        "application/json",
        "application/xml",
        "application/*+json",
        "application/*+xml",
        "application/wasm",
        "application/x-javascript",
        "application/x-ndjson",
        "font/otf",
        "font/ttf",
        "image/bmp",
        "image/svg+xml",
        "image/x-icon",
    ];

    /// The same settings with a number derived from those that decide suitability: decisions made under other settings
    /// are made again.
    #[must_use]
    pub(crate) fn numbered(self) -> Self {
        let decide = (
            &self.codings,
            &self.types,
            self.smallest,
            self.largest,
            self.personal,
        );
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(decide);
        Self {
            number: hash as u32,
            ..self
        }
    }

    /// Returns true if a coding is enabled.
    #[inline]
    pub const fn is_on(&self) -> bool {
        !self.codings.is_empty()
    }

    /// Returns true if a response stored on a route with these rules may be sent compressed.
    pub fn suits(rules: &Rules, status: u16, fields: Fields<'_>, length: Option<u64>) -> bool {
        Self::unsuited(rules, status, fields, length).is_none()
    }

    /// The reason that a response stored on a route with these rules is not compressed for any client. Excluded are
    /// responses that are encoded already, that must not be transformed (RFC 9111 §5.2.2.6), and that are not
    /// complete representation. User-specific responses are excluded unless the operator includes them: the
    /// compressed length reveals a secret next to bytes that an attacker controls (BREACH). `length` is the length of
    /// the body in bytes, if known.
    pub fn unsuited(
        rules: &Rules,
        status: u16,
        fields: Fields<'_>,
        length: Option<u64>,
    ) -> Option<NotCompressible> {
        let compress = &rules.compress;
        if !compress.is_on() {
            Some(NotCompressible::Off)
        } else if matches!(status, ..200 | 204 | 206 | 304) || fields.contains("content-range") {
            Some(NotCompressible::NotWhole)
        } else if length.is_some_and(|length| length < compress.smallest.max(1)) {
            Some(NotCompressible::TooSmall)
        } else if length.is_some_and(|length| length > compress.largest) {
            Some(NotCompressible::TooLarge)
        } else if fields.contains("content-encoding") {
            Some(NotCompressible::Encoded)
        } else if !compress.has_type(fields) {
            Some(NotCompressible::Type)
        } else if forbids_transformation(rules, fields) {
            Some(NotCompressible::NoTransform)
        } else {
            let is_personal = || may_be_user_specific(&rules.key) || varies_by_secret(fields);
            (!compress.personal && is_personal()).then_some(NotCompressible::Personal)
        }
    }

    /// Returns true if a response has one of the media types to compress.
    fn has_type(&self, fields: Fields<'_>) -> bool {
        fields.get("content-type").is_some_and(|value| {
            let end = memchr::memchr(b';', value).unwrap_or(value.len());
            let essence = value[..end].trim_ascii().to_ascii_lowercase();
            let mut types = self.types.iter();
            types.any(|pattern| glob::matches(pattern.as_bytes(), &essence))
        })
    }

    /// The dictionary coding that corresponds to the preferred plain coding.
    pub fn dictionary_coding(&self) -> DictionaryCoding {
        let is_either = |coding: &&Coding| matches!(coding, Coding::Brotli | Coding::Zstd);
        match self.codings.iter().find(is_either) {
            Some(Coding::Brotli) => DictionaryCoding::Dcb,
            _ => DictionaryCoding::Dcz,
        }
    }

    /// The codings negotiated with a request, best first; none if it gets the stored form. A malformed field, or one
    /// with too many members, counts as absent.
    pub fn wanted(&self, request: Fields<'_>) -> AcceptedCodings {
        let mut wanted = AcceptedCodings::default();
        let Some((weights, identity)) = weights(request) else {
            return wanted;
        };
        wanted.refuses_identity = identity == Some(0);
        if request.members("cache-control").any(is_no_transform) {
            return wanted;
        }
        for &coding in &self.codings {
            let weight = weights[coding as usize].unwrap_or(0);
            // A higher weight is preferred; among equals, the smaller result.
            if weight > 0 && identity.is_none_or(|identity| weight >= identity) {
                let better = wanted.codings.iter().filter(|(_, other)| *other >= weight);
                wanted.codings.insert(better.count(), (coding, weight));
            }
        }
        wanted
    }
}

/// The codings negotiated with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedCodings {
    codings: SmallVec<[(Coding, u16); 3]>,
    refuses_identity: bool,
}

impl AcceptedCodings {
    /// The codings, best first.
    pub fn codings(&self) -> impl Iterator<Item = Coding> {
        self.codings.iter().map(|&(coding, _)| coding)
    }

    /// Returns true if the stored form is to be sent.
    pub fn is_identity(&self) -> bool {
        self.codings.is_empty()
    }

    /// Returns true if the request does not accept the identity coding (`identity;q=0`).
    pub const fn refuses_identity(&self) -> bool {
        self.refuses_identity
    }
}

/// The weights of each coding and of identity in `Accept-Encoding`; `None` if the field is absent or malformed.
fn weights(request: Fields<'_>) -> Option<([Weight; 3], Weight)> {
    let mut lines = request.all("accept-encoding");
    let (first, second) = (lines.next()?, lines.next());
    // A shortcut for the values that nearly all browsers send.
    if second.is_none() {
        let known = |gzip, br, zstd| {
            let weight = |is: bool| is.then_some(1000);
            Some(([weight(gzip), weight(br), weight(zstd)], None))
        };
        match first {
            // The second one is sent together with a dictionary.
            b"gzip, deflate, br, zstd" | b"gzip, deflate, br, zstd, dcb, dcz" => {
                return known(true, true, true);
            }
            b"gzip, deflate, br" => return known(true, true, false),
            b"gzip" | b"gzip, deflate" => return known(true, false, false),
            b"identity" | b"" => return None,
            _ => {}
        }
    }
    let members = weighted::read(request, names::ACCEPT_ENCODING)?;
    let (mut named, mut identity, mut others) = ([None; 3], None, None);
    for member in &members {
        let weight: &mut Weight = match member.token {
            b"*" => &mut others,
            token if token.eq_ignore_ascii_case(b"identity") => &mut identity,
            token => match Coding::named(token) {
                Some(coding) => &mut named[coding as usize],
                None => continue,
            },
        };
        // The lowest weight of a coding that is listed twice counts.
        *weight = Some(weight.map_or(member.weight, |before| before.min(member.weight)));
    }
    Some((named.map(|weight| weight.or(others)), identity.or(others)))
}

pub(crate) fn is_no_transform(member: &[u8]) -> bool {
    member.eq_ignore_ascii_case(b"no-transform")
}

/// Returns true if a response forbids transformation to every intermediary or to this cache.
fn forbids_transformation(rules: &Rules, fields: Fields<'_>) -> bool {
    let targeted = rules.targeted.iter().map(String::as_str);
    targeted
        .chain(["cache-control"])
        .flat_map(|name| fields.members(name))
        // A misspelt `no-transform` counts too: here it only restricts.
        .flat_map(|member| member.split(|b| matches!(b, b';' | b' ' | b'\t' | b'=')))
        .any(is_no_transform)
}

/// Returns true if a key may be user-specific: it contains a cookie, or a field with a secret.
pub fn may_be_user_specific(key: &KeyRules) -> bool {
    !key.cookies.is_empty()
        || key.headers.iter().any(|name| {
            let name = name.to_ascii_lowercase();
            SECRETS.iter().any(|word| name.contains(word))
        })
}

/// Parts of the names of fields with secrets.
const SECRETS: [&str; 7] = [
    "auth", "cookie", "key", "password", "secret", "session", "token",
];

/// Returns true if a response varies on a field with a secret that is not a credential to this cache.
fn varies_by_secret(fields: Fields<'_>) -> bool {
    fields.members("vary").any(|name| {
        let name = name.to_ascii_lowercase();
        let has = |word: &str| memchr::memmem::find(&name, word.as_bytes()).is_some();
        SECRETS.iter().any(|word| has(word)) && !is_one_of(&name, &CREDENTIALS)
    })
}

/// Fields that make a request personal.
const CREDENTIALS: [&str; 2] = ["authorization", "cookie"];

/// Returns true if a response selected by a request with credentials may be specific to that user, because it varies on
/// them. Requests without credentials select the one that is shared.
pub fn varies_by_credentials(fields: Fields<'_>) -> bool {
    let mut names = fields.members("vary");
    names.any(|name| is_one_of(name, &CREDENTIALS))
}

/// Adds `Accept-Encoding` to the `Vary` of a response. Identity responses need it too, for downstream caches (RFC 9110
/// §12.5.5). It stays one line, since some caches read only the first.
pub fn note_vary(fields: &mut FieldsBuf, dictionaries: bool) {
    const NAMES: [&str; 2] = ["Accept-Encoding", "Available-Dictionary"];
    let names = NAMES.iter().take(if dictionaries { 2 } else { 1 });
    let is_missing = |name: &&&str| !varies_on(fields.fields(), name);
    let missing: Vec<&[u8]> = names
        .filter(is_missing)
        .map(|name| name.as_bytes())
        .collect();
    if missing.is_empty() {
        return;
    }
    let said: Vec<&[u8]> = fields.fields().members("vary").collect();
    let value = [said, missing].concat().join(&b", "[..]);
    fields.set("Vary", value);
}

/// Returns true if `Vary` lists `Accept-Encoding`. A response stored before compression was enabled does not, and is
/// not compressed.
pub fn varies_on_codings(fields: Fields<'_>) -> bool {
    varies_on(fields, "accept-encoding")
}

fn varies_on(fields: Fields<'_>, field: &str) -> bool {
    let is = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(field.as_bytes());
    fields.members("vary").any(is)
}

/// The names without those added by [`note_vary`], except where `others` has them.
pub fn without_noted(names: &VaryNames, others: &VaryNames) -> VaryNames {
    let noted = ["accept-encoding", "available-dictionary"];
    let is_new = |noted: &&str| !others.iter().any(|name| name == *noted);
    let ignored: Vec<String> = noted
        .iter()
        .filter(|name| is_new(name))
        .map(|name| (*name).to_owned())
        .collect();
    let mut lines = VaryLines::default();
    lines.note(names.as_bytes());
    match lines.finish(&ignored) {
        Vary::Names(names) => names,
        Vary::None | Vary::Any => VaryNames::default(),
    }
}

/// The head of a stored response whose body is sent in this coding. Its entity tag becomes weak, since the bytes differ
/// (RFC 9110 §8.8.1); digests are removed; and ranges are served from the stored form only.
pub fn encoded_fields(stored: Fields<'_>, coding: &str) -> FieldsBuf {
    const OF_OTHER_BYTES: [&str; 5] = [
        "accept-ranges",
        "content-digest",
        "content-md5",
        "digest",
        "repr-digest",
    ];
    let mut fields = FieldsBuf::with_capacity(stored.as_block().len() + 32);
    for (name, value) in stored {
        if is_one_of(name, &OF_OTHER_BYTES) {
            continue;
        }
        let is_strong = || EntityTag::parse(value).is_some_and(|tag| !tag.is_weak());
        if name.eq_ignore_ascii_case(b"etag") && is_strong() {
            fields.push(name, [b"W/", value].concat());
        } else {
            fields.push(name, value);
        }
    }
    fields.push("Content-Encoding", coding);
    fields
}

/// Returns true if a range request has a date in `If-Range`. The client may hold a prefix in another coding with the
/// same date.
pub fn ranges_by_date(request: Fields<'_>) -> bool {
    let is_tag = |value: &[u8]| EntityTag::parse(value).is_some();
    request.all("if-range").any(|value| !is_tag(value))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use Coding::{Brotli, Gzip, Zstd};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fields;

    const PAGE: &str = "Content-Type: text/html; charset=utf-8";

    fn on() -> Rules {
        Rules {
            compress: Compress {
                codings: vec![Zstd, Brotli, Gzip],
                ..Compress::default()
            },
            ..Rules::default()
        }
    }

    fn suits(rules: &Rules, status: u16, response: &str, length: Option<u64>) -> bool {
        Compress::suits(rules, status, fields(response).fields(), length)
    }

    fn wanted(request: &str) -> Vec<Coding> {
        let request = fields(request);
        on().compress.wanted(request.fields()).codings().collect()
    }

    #[test]
    fn the_highest_weight_wins_and_then_the_operators_order() {
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", &[Zstd, Brotli, Gzip][..]),
            ("gzip, deflate, br, zstd, dcb, dcz", &[Zstd, Brotli, Gzip]),
            ("zstd,br,gzip", &[Zstd, Brotli, Gzip]),
            ("gzip, deflate, br", &[Brotli, Gzip]),
            ("gzip, deflate", &[Gzip]),
            ("gzip", &[Gzip]),
            ("X-GZip", &[Gzip]),
            ("GZIP;q=1.0 , br;Q=0.9", &[Gzip, Brotli]),
            ("br;q=0.5, gzip;q=0.5, zstd;q=0.4", &[Brotli, Gzip, Zstd]),
            ("*", &[Zstd, Brotli, Gzip]),
            ("*;q=0.1, gzip", &[Gzip, Zstd, Brotli]),
            ("br, *;q=0", &[Brotli]),
            ("zstd;q=0, *", &[Brotli, Gzip]),
            ("gzip, gzip;q=0", &[]),
            ("gzip;q=0", &[]),
            ("gzip;q=0.000, br;q=0.001", &[Brotli]),
            ("identity", &[]),
            ("", &[]),
            ("deflate, compress, dcb", &[]),
            // Identity has the same weight, or a higher one.
            ("identity, gzip", &[Gzip]),
            ("identity;q=1, gzip;q=0.5", &[]),
            ("identity;q=0.5, gzip, br;q=0.1", &[Gzip]),
            ("identity;q=0, br", &[Brotli]),
            ("*;q=0", &[]),
        ] {
            let found = wanted(&format!("Accept-Encoding: {accepted}"));
            assert_eq!(found, expected, "{accepted:?}");
        }
        assert_eq!(wanted(""), []);
        let two_lines = "Accept-Encoding: gzip\nHost: a\naccept-encoding: br";
        assert_eq!(wanted(two_lines), [Brotli, Gzip]);
    }

    #[test]
    fn malformed_values_are_ignored() {
        for accepted in [
            "gzip;q=2",
            "gzip;q=",
            "gzip;q=-1",
            "gzip;q=0.1234",
            "gzip;q=1.001",
            "gzip;level=9",
            "gzip br",
            "gzip;;q=1",
            "gz\u{e9}p",
        ] {
            let found = wanted(&format!("Accept-Encoding: {accepted}"));
            assert_eq!(found, [], "{accepted:?}");
        }
        let thousand = "gzip, ".repeat(1000);
        assert_eq!(wanted(&format!("Accept-Encoding: {thousand}")), []);
    }

    #[test]
    fn a_client_can_forbid_any_change() {
        let request = "Accept-Encoding: gzip\nCache-Control: max-age=5, No-Transform";
        assert_eq!(wanted(request), []);
    }

    #[test]
    fn refusals_of_identity_are_recognized() {
        for (accepted, expected) in [
            ("identity;q=0, gzip", true),
            ("*;q=0, gzip", true),
            ("*;q=0, identity, gzip", false),
            ("gzip", false),
        ] {
            let request = fields(&format!("Accept-Encoding: {accepted}"));
            let wanted = on().compress.wanted(request.fields());
            assert_eq!(wanted.refuses_identity(), expected, "{accepted}");
        }
    }

    #[test]
    fn whole_texts_that_may_be_changed_are_compressed() {
        let json = "Content-Type: Application/Problem+JSON";
        for (status, response, length, expected) in [
            (200, PAGE, Some(5000), true),
            (404, PAGE, Some(5000), true),
            (200, PAGE, None, true),
            (200, PAGE, Some(1023), false),
            (200, PAGE, Some(1024), true),
            (200, PAGE, Some(8 * 1024 * 1024 + 1), false),
            (206, PAGE, Some(5000), false),
            (204, PAGE, None, false),
            (304, PAGE, None, false),
            (200, json, Some(5000), true),
            (200, "Content-Type: image/svg+xml", Some(5000), true),
            (200, "Content-Type: image/png", Some(5000), false),
            (200, "Content-Type: text", Some(5000), false),
            (200, "", Some(5000), false),
        ] {
            let found = suits(&on(), status, response, length);
            assert_eq!(found, expected, "{status} {response} {length:?}");
        }
        assert!(!suits(&Rules::default(), 200, PAGE, Some(5000)));
    }

    #[test]
    fn the_reason_for_no_compression_is_reported() {
        let why = |status, response, length| {
            Compress::unsuited(&on(), status, fields(response).fields(), Some(length))
        };
        let encoded = format!("{PAGE}\nContent-Encoding: gzip");
        let untouchable = format!("{PAGE}\nCache-Control: no-transform");
        let secret = format!("{PAGE}\nVary: X-Auth-Token");
        for (status, response, length, expected) in [
            (200, PAGE, 5000, None),
            (206, PAGE, 5000, Some(NotCompressible::NotWhole)),
            (200, PAGE, 5, Some(NotCompressible::TooSmall)),
            (200, PAGE, u64::MAX, Some(NotCompressible::TooLarge)),
            (200, &encoded, 5000, Some(NotCompressible::Encoded)),
            (
                200,
                "Content-Type: image/png",
                5000,
                Some(NotCompressible::Type),
            ),
            (200, &untouchable, 5000, Some(NotCompressible::NoTransform)),
            (200, &secret, 5000, Some(NotCompressible::Personal)),
        ] {
            assert_eq!(why(status, response, length), expected, "{response}");
        }
        let off = Compress::unsuited(&Rules::default(), 200, fields(PAGE).fields(), None);
        assert_eq!(off, Some(NotCompressible::Off));
    }

    #[test]
    fn the_operators_order_is_that_of_dictionaries_too() {
        for (codings, expected) in [
            (&[Zstd, Brotli, Gzip][..], DictionaryCoding::Dcz),
            (&[Gzip, Brotli, Zstd], DictionaryCoding::Dcb),
            (&[Gzip], DictionaryCoding::Dcz),
        ] {
            let compress = Compress {
                codings: codings.to_vec(),
                ..Compress::default()
            };
            assert_eq!(compress.dictionary_coding(), expected, "{codings:?}");
        }
    }

    #[test]
    fn settings_that_decide_otherwise_have_another_number() {
        let number = |change: fn(&mut Compress)| {
            let mut compress = on().compress;
            change(&mut compress);
            compress.numbered().number
        };
        let changes: [fn(&mut Compress); 6] = [
            |_| {},
            |compress| compress.codings.clear(),
            |compress| drop(compress.types.pop()),
            |compress| compress.smallest += 1,
            |compress| compress.largest += 1,
            |compress| compress.personal = true,
        ];
        let numbers: HashSet<u32> = changes.map(number).into();
        assert_eq!(numbers.len(), changes.len());
        assert_eq!(number(|_| {}), number(|compress| compress.number = 7));
        assert_eq!(on().sealed().compress.number, number(|_| {}));
    }

    #[test]
    fn each_coding_has_a_place_of_its_own() {
        let places = SentCoding::ALL.map(SentCoding::index);
        assert_eq!(places, [0, 1, 2, 3, 4]);
        let names = SentCoding::ALL.map(SentCoding::as_str);
        assert_eq!(names, ["gzip", "br", "zstd", "dcb", "dcz"]);
    }

    #[test]
    fn no_transform_is_respected() {
        for (line, expected) in [
            ("Cache-Control: public, no-transform", false),
            ("Cache-Control: max-age=5; NO-TRANSFORM", false),
            ("CDN-Cache-Control: max-age=5, no-transform", false),
            ("Content-Encoding: gzip", false),
            ("Content-Encoding: identity", false),
            ("Content-Range: bytes 0-9/10", false),
            ("Cache-Control: public", true),
            ("ETag: \"no-transform\"", true),
        ] {
            let response = format!("{PAGE}\n{line}");
            assert_eq!(suits(&on(), 200, &response, None), expected, "{line}");
        }
    }

    #[test]
    fn pages_that_may_be_personal_are_compressed_only_if_configured() {
        let keyed = |key: KeyRules, personal| {
            let mut rules = Rules { key, ..on() };
            rules.compress.personal = personal;
            suits(&rules, 200, PAGE, None)
        };
        let cookies = KeyRules {
            cookies: vec!["session".to_owned()],
            ..KeyRules::default()
        };
        let header = |name: &str| KeyRules {
            headers: vec![name.to_owned()],
            ..KeyRules::default()
        };
        for (key, expected) in [
            (cookies, false),
            (header("Authorization"), false),
            (header("X-Api-Key"), false),
            (header("X-Country"), true),
        ] {
            assert_eq!(keyed(key.clone(), false), expected, "{key:?}");
            assert!(keyed(key, true));
        }
        let secret = format!("{PAGE}\nVary: X-Auth-Token");
        assert!(!suits(&on(), 200, &secret, None));
        let everyones = format!("{PAGE}\nVary: Cookie, Accept-Encoding");
        assert!(suits(&on(), 200, &everyones, None));
        assert!(varies_by_credentials(fields(&everyones).fields()));
        assert!(!varies_by_credentials(fields(&secret).fields()));
    }

    #[test]
    fn vary_names_each_dependency_once() {
        for (dictionaries, before, after) in [
            (false, "", "Vary: Accept-Encoding"),
            (false, "Vary: accept-encoding", "Vary: accept-encoding"),
            (true, "Vary: *", "Vary: *"),
            (
                false,
                "Vary: X, Y\nA: 1\nvary: Z",
                "A: 1\nVary: X, Y, Z, Accept-Encoding",
            ),
            (true, "", "Vary: Accept-Encoding, Available-Dictionary"),
            (
                true,
                "Vary: accept-encoding",
                "Vary: accept-encoding, Available-Dictionary",
            ),
        ] {
            let mut noted = fields(before);
            note_vary(&mut noted, dictionaries);
            assert_eq!(noted, fields(after), "{before}");
        }
    }

    #[test]
    fn the_head_of_an_encoded_response_describes_other_bytes() {
        let stored = fields(
            "ETag: \"a\"\nAccept-Ranges: bytes\nRepr-Digest: sha-256=:YQ==:\nContent-Digest: x\n\
             Digest: x\nContent-MD5: x\nLast-Modified: y\nVary: Accept-Encoding",
        );
        let expected =
            "ETag: W/\"a\"\nLast-Modified: y\nVary: Accept-Encoding\nContent-Encoding: br";
        assert_eq!(encoded_fields(stored.fields(), "br"), fields(expected));
        for tag in ["W/\"a\"", "unquoted"] {
            let stored = fields(&format!("ETag: {tag}"));
            let expected = fields(&format!("ETag: {tag}\nContent-Encoding: gzip"));
            assert_eq!(encoded_fields(stored.fields(), "gzip"), expected);
        }
    }

    #[test]
    fn only_a_tag_can_go_on_with_a_part() {
        for (line, expected) in [
            ("If-Range: \"a\"", false),
            ("If-Range: W/\"a\"", false),
            ("If-Range: Sun, 06 Nov 1994 08:00:00 GMT", true),
            ("Range: bytes=0-1", false),
        ] {
            assert_eq!(ranges_by_date(fields(line).fields()), expected, "{line}");
        }
    }

    proptest! {
        /// A client never gets a coding that it has refused, and none is offered twice; an acceptable coding is also
        /// acceptable to the selection of variants.
        #[test]
        fn nothing_is_sent_that_is_not_accepted(
            accepted in "((gzip|br|zstd|identity|[*]|x-gzip|foo)(;q=(0|1|0[.][0-9]{1,3}))?(, ?|,)){0,6}",
        ) {
            let request = fields(&format!("Accept-Encoding: {accepted}"));
            let wanted: Vec<Coding> = on().compress.wanted(request.fields()).codings().collect();
            let known = crate::vary::Codings::accepted(request.fields());
            for (at, coding) in wanted.iter().enumerate() {
                prop_assert!(known.has(coding.as_str()), "{coding:?}");
                prop_assert!(!wanted[..at].contains(coding));
            }
        }

        /// Arbitrary bytes are parsed to their end.
        #[test]
        fn garbage_is_no_trouble(accepted in "[ -~]{0,200}") {
            let request = fields(&format!("Accept-Encoding: {accepted}"));
            let _ = on().compress.wanted(request.fields());
        }
    }
}

//! Names for purging responses together: the tags that applications send to caches, and cache groups (RFC 9875).

use std::borrow::Cow;

use sfv::{BareItem, List, ListEntry, Parser};
use smallvec::SmallVec;

use crate::fields::{FieldLine, Fields, FieldsBuf};
use crate::invalidate::invalidates;
use crate::rules::Rules;

pub use crate::rules::Separator;

/// Maximum number of tags and groups by which one response is purged. RFC 9875 §2 requires at least 32 groups. A response
/// with more is purged with every tag.
pub const MAX_TAGS: usize = 4096;
/// Maximum length of a tag or group, in bytes. RFC 9875 §2 requires at least 32. A response with a longer one is purged
/// with every tag.
pub const MAX_TAG_LENGTH: usize = 1024;
/// Maximum length of the lines of a response but those with tags, in bytes.
pub const MAX_OTHER_FIELDS: usize = 128 * 1024;
/// Maximum length of all lines with tags that are stored and sent on, in bytes: many servers and proxies refuse heads
/// that are longer.
pub const MAX_SENT_TAGS: usize = 8 * 1024;

/// The name space of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagKind {
    /// A tag, from one of the route's [`tag_fields`](Rules::tag_fields). It is valid across hosts.
    Tag,
    /// A group, from `Cache-Groups`. It is local to the origin (scheme, host and port) of the response (RFC 9875 §2.1).
    Group,
}

/// A name for purging a response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag<'a> {
    /// Tag or group.
    pub kind: TagKind,
    /// The bytes as sent by the origin, of a group without escapes; case-sensitive.
    pub name: Cow<'a, [u8]>,
}

/// The tags and groups of one response, located but not divided.
#[derive(Clone, Debug, Default)]
pub struct Tags<'a> {
    /// The values of fields with tags.
    values: SmallVec<[(Separator, &'a [u8]); 1]>,
    /// The values of `Cache-Groups`, which count only if all are well-formed.
    groups: SmallVec<[&'a [u8]; 1]>,
}

impl<'a> Tags<'a> {
    /// Reads the tags and groups of a response.
    pub fn read(response: Fields<'a>, rules: &Rules) -> Self {
        let mut tags = Self::default();
        response.lines().for_each(|line| tags.note(line, rules));
        tags
    }

    /// Adds any line of a response, if it is one of these.
    pub(crate) fn note(&mut self, line: FieldLine<'a>, rules: &Rules) {
        if let Some(value) = line.value_of("cache-groups") {
            self.groups.push(value);
        }
        for field in &rules.tag_fields {
            if let Some(value) = line.value_of(&field.name) {
                self.values.push((field.separator, value));
            }
        }
    }

    /// The tags, then the groups, in the order of the response and as often as they are there.
    pub fn iter(&self) -> impl Iterator<Item = Tag<'a>> {
        let tags = self.values.iter().flat_map(|(separator, value)| {
            let names = separator.split(value);
            names.map(|name| Tag::new(TagKind::Tag, name))
        });
        let groups = strings(self.groups.iter().copied()).into_iter();
        tags.chain(groups.map(|name| Tag::new(TagKind::Group, name)))
    }
}

impl<'a> Tag<'a> {
    /// The tag or group of this name.
    pub fn new(kind: TagKind, name: impl Into<Cow<'a, [u8]>>) -> Self {
        let name = name.into();
        Self { kind, name }
    }
}

/// Moves the lines with tags out of the head of a response if they are longer than [`MAX_SENT_TAGS`] together, and returns
/// them.
pub fn take_long_tags(response: &mut FieldsBuf, rules: &Rules) -> FieldsBuf {
    let is_tags = |line: FieldLine<'_>| {
        let mut names = rules.tag_fields.iter().map(|field| &field.name);
        names.any(|name| line.value_of(name).is_some())
    };
    let all = response.fields();
    // Excludes most heads.
    if all.as_block().len() <= MAX_SENT_TAGS {
        return FieldsBuf::new();
    }
    let length: usize = all
        .lines()
        .filter(|line| is_tags(*line))
        .map(FieldLine::len)
        .sum();
    if length <= MAX_SENT_TAGS {
        return FieldsBuf::new();
    }
    let mut tags = FieldsBuf::with_capacity(length);
    let mut others = FieldsBuf::indexed(all.as_block().len() - length);
    tags.extend_lines(all, is_tags);
    others.extend_lines(all, |line| !is_tags(line));
    *response = others;
    tags
}

/// The groups of the request's origin that a response invalidates (RFC 9875 §3): those in `Cache-Group-Invalidation`,
/// if the method is unsafe and the response is not an error. Groups that no stored response can have are left out.
pub fn invalidated_groups(
    method: &http::Method,
    status: u16,
    response: Fields<'_>,
) -> Vec<Vec<u8>> {
    if !invalidates(method, status) {
        return Vec::new();
    }
    let mut named = strings(response.all("cache-group-invalidation"));
    named.retain(|name| name.len() <= MAX_TAG_LENGTH);
    named
}

impl Separator {
    /// The tags in the value of a field.
    fn split(self, value: &[u8]) -> impl Iterator<Item = &[u8]> {
        value
            .split(move |byte| match byte {
                b',' => self != Self::Space,
                b' ' | b'\t' => self != Self::Comma,
                _ => false,
            })
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty())
    }
}

/// The members of a List of Strings (RFC 9651 §3.1) in these lines. A malformed field is ignored as a whole; parameters
/// of its members are ignored (RFC 9875 §2).
fn strings<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // Lines are parsed one by one: a String cannot span two lines.
    for line in lines {
        let Ok(members) = Parser::new(line).parse::<List>() else {
            return Vec::new();
        };
        for member in members {
            let ListEntry::Item(item) = member else {
                return Vec::new();
            };
            let BareItem::String(text) = item.bare_item else {
                return Vec::new();
            };
            all.push(text.as_str().as_bytes().to_vec());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::TagField;
    use crate::testing::fields;

    /// Checks the tags, given by name, with groups in angle brackets.
    fn check(rules: &Rules, response: &str, expected: &[&str]) {
        let response = fields(response);
        let tags = Tags::read(response.fields(), rules);
        let read = tags.iter().map(|tag| {
            let name = String::from_utf8_lossy(&tag.name);
            match tag.kind {
                TagKind::Tag => name.into_owned(),
                TagKind::Group => format!("<{name}>"),
            }
        });
        assert_eq!(read.collect::<Vec<_>>(), expected, "{response:?}");
    }

    #[test]
    fn each_field_has_its_separators() {
        for (response, expected) in [
            ("", &[][..]),
            ("Cache-Tag: a", &["a"]),
            ("cache-tag: a,b ,\t c d,, ", &["a", "b", "c d"]),
            ("Cache-Tag: a\nCACHE-TAG: b", &["a", "b"]),
            ("Cache-Tag: \"a, b\"", &["\"a", "b\""]),
            ("Surrogate-Key: a  b\tc,d", &["a", "b", "c,d"]),
            ("xkey: a b,c, d ,e", &["a", "b", "c", "d", "e"]),
            ("Cache-Tag: a, A, a\nxkey: a b", &["a", "A", "a", "a", "b"]),
            ("xkey: b\nCache-Tag: a\nSurrogate-Key: c", &["b", "a", "c"]),
            ("X-Tags: a", &[]),
        ] {
            check(&Rules::default(), response, expected);
        }
    }

    #[test]
    fn the_route_names_the_fields_with_tags() {
        let field = |name: &str, separator| TagField {
            name: name.to_owned(),
            separator,
        };
        let rules = Rules {
            tag_fields: vec![
                field("X-Magento-Tags", Separator::Comma),
                field("Edge-Tags", Separator::Space),
            ],
            ..Rules::default()
        };
        let response = "Cache-Tag: a\nedge-tags: b c,d\nx-magento-tags: e f,g\nCache-Groups: \"h\"";
        check(&rules, response, &["b", "c,d", "e f", "g", "<h>"]);
        let none = Rules {
            tag_fields: Vec::new(),
            ..Rules::default()
        };
        check(&none, response, &["<h>"]);
    }

    #[test]
    fn groups_are_strings_in_a_list_and_no_tags() {
        for (value, expected) in [
            ("\"a\"", &["<a>"][..]),
            ("\"a\", \"B\" ,\"b\"", &["<a>", "<B>", "<b>"]),
            ("\"a, b\"", &["<a, b>"]),
            (r#""say \"\\""#, &[r#"<say "\>"#]),
            ("\"a\";x=1;y, \"b\"", &["<a>", "<b>"]),
            ("\"a\"\nCache-Groups: \"b\"", &["<a>", "<b>"]),
            ("", &[]),
            ("\"a\", b", &[]),
            ("\"a\", 1", &[]),
            ("\"a\", ?1", &[]),
            ("\"a\", (\"b\")", &[]),
            ("\"a\",", &[]),
            ("\"a\" \"b\"", &[]),
            ("\"a\", \"b", &[]),
            ("\"a\"\nCache-Groups: b", &[]),
            ("\"a\"\nCache-Groups: \"", &[]),
            ("\"\u{e4}\"", &[]),
        ] {
            let response = format!("Cache-Groups: {value}");
            check(&Rules::default(), &response, expected);
        }
        let both = "Cache-Groups: \"a\"\nCache-Tag: a";
        check(&Rules::default(), both, &["a", "<a>"]);
    }

    #[test]
    fn long_lines_with_tags_are_taken_out_of_a_head() {
        let line = |name: &str, length: usize| format!("{name}: {}\n", "t ".repeat(length / 2));
        let long = |name| line(name, 5_000);
        for (head, expected) in [
            (String::new(), ""),
            (long("Surrogate-Key"), ""),
            (long("X-Other").repeat(3), ""),
            (long("xkey") + &long("X-Other"), ""),
            (long("Cache-Groups").repeat(2), ""),
            (line("xkey", 8_180), ""),
            (line("xkey", 8_186), "xkey"),
            (
                long("XKEY") + "A: b\n" + &long("surrogate-key"),
                "XKEY, surrogate-key",
            ),
            // Magento names each product of a list.
            (
                line("Cache-Tag", 160_000) + "A: b\nxkey: c\n",
                "Cache-Tag, xkey",
            ),
        ] {
            let before = fields(&head);
            let mut kept = before.clone();
            let taken = take_long_tags(&mut kept, &Rules::default());
            let names = |fields: &FieldsBuf| {
                let names = fields
                    .fields()
                    .iter()
                    .map(|(name, _)| name.escape_ascii().to_string());
                names.collect::<Vec<_>>().join(", ")
            };
            assert_eq!(names(&taken), expected);
            assert_eq!(kept == before, expected.is_empty());
            let both = kept.fields().as_block().len() + taken.fields().as_block().len();
            assert_eq!(both, before.fields().as_block().len(), "none is lost");
            assert_eq!(kept.fields().contains("a"), before.fields().contains("a"));
        }
    }

    #[test]
    fn groups_are_invalidated_by_unsafe_requests() {
        let response = format!(
            "Cache-Group-Invalidation: \"a\", \"b\";x, \"{}\"\nCache-Groups: \"c\"",
            "x".repeat(1025)
        );
        for (method, status, expected) in [
            ("POST", 200, &[&b"a"[..], b"b"][..]),
            ("DELETE", 303, &[b"a", b"b"]),
            ("FROBNICATE", 204, &[b"a", b"b"]),
            ("POST", 404, &[]),
            ("POST", 500, &[]),
            ("GET", 200, &[]),
            ("HEAD", 200, &[]),
            ("OPTIONS", 200, &[]),
        ] {
            let method = http::Method::from_bytes(method.as_bytes()).expect("a method");
            let named = invalidated_groups(&method, status, fields(&response).fields());
            assert_eq!(named, expected, "{method} {status}");
        }
        let malformed = fields("Cache-Group-Invalidation: \"a\", b");
        assert!(invalidated_groups(&http::Method::POST, 200, malformed.fields()).is_empty());
    }
}

//! Names for purging responses together: the tags that applications send to caches, and cache groups (RFC 9875).

use std::borrow::Cow;

use sfv::{BareItem, List, ListEntry, Parser};
use smallvec::SmallVec;

use crate::fields::{FieldLine, Fields};
use crate::invalidate::invalidates;
use crate::rules::Rules;

pub use crate::rules::Separator;

/// Maximum number of tags and groups of one response. RFC 9875 §2 requires at least 32 groups.
pub const MAX_TAGS: usize = 128;
/// Maximum length of a tag or group, in bytes. RFC 9875 §2 requires at least 32.
pub const MAX_TAG_LENGTH: usize = 1024;
/// Maximum length of all tags and groups of one response, in bytes.
pub const MAX_TAGS_LENGTH: usize = 16 * 1024;

/// The name space of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagKind {
    /// A tag, from one of the route's [`tag_fields`](Rules::tag_fields). It is valid across hosts.
    Tag,
    /// A group, from `Cache-Groups`. It is local to the origin (scheme, host and port) of the response (RFC 9875 §2.1).
    Group,
}

/// A name for purging a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag<'a> {
    /// Tag or group.
    pub kind: TagKind,
    /// The bytes as sent by the origin; case-sensitive.
    pub name: &'a [u8],
}

/// The error of a response with more tags than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTags;

/// The tags and groups of one response, without duplicates.
#[derive(Clone, Debug, Default)]
pub struct Tags<'a> {
    all: SmallVec<[(TagKind, TagName<'a>); 4]>,
    length: usize,
}

/// The bytes of a tag, which are part of the response, or of a group, which may be escaped there.
type TagName<'a> = Cow<'a, [u8]>;

impl Tags<'_> {
    /// The tags and groups, in the order of the response.
    pub fn iter(&self) -> impl Iterator<Item = Tag<'_>> {
        self.all
            .iter()
            .map(|(kind, name)| Tag { kind: *kind, name })
    }

    /// The number of tags and groups.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl<'a> Tags<'a> {
    fn add(&mut self, kind: TagKind, name: TagName<'a>) -> Result<(), TooManyTags> {
        if self
            .iter()
            .any(|tag| tag.kind == kind && tag.name == &*name)
        {
            return Ok(());
        }
        self.length += name.len();
        let fits = self.all.len() < MAX_TAGS
            && name.len() <= MAX_TAG_LENGTH
            && self.length <= MAX_TAGS_LENGTH;
        self.all.push((kind, name));
        fits.then_some(()).ok_or(TooManyTags)
    }
}

/// The lines with tags and groups, collected in the pass over the fields.
#[derive(Default)]
pub(crate) struct TagLines<'a> {
    tags: Tags<'a>,
    too_many: bool,
    /// The values of `Cache-Groups`, which count only if all are well-formed.
    groups: SmallVec<[&'a [u8]; 1]>,
}

impl<'a> TagLines<'a> {
    /// Adds any line of a response, if it is one of these.
    pub(crate) fn note(&mut self, line: FieldLine<'a>, rules: &Rules) {
        if let Some(value) = line.value_of("cache-groups") {
            self.groups.push(value);
        }
        for field in &rules.tag_fields {
            if let Some(value) = line.value_of(&field.name) {
                for tag in field.separator.split(value) {
                    self.add(TagKind::Tag, Cow::Borrowed(tag));
                }
            }
        }
    }

    /// The tags and groups in the lines, without duplicates. Fails if they exceed the limits.
    pub(crate) fn finish(mut self) -> Result<Tags<'a>, TooManyTags> {
        for name in strings(self.groups.iter().copied()) {
            self.add(TagKind::Group, Cow::Owned(name));
        }
        if self.too_many {
            return Err(TooManyTags);
        }
        Ok(self.tags)
    }

    fn add(&mut self, kind: TagKind, name: TagName<'a>) {
        self.too_many = self.too_many || self.tags.add(kind, name).is_err();
    }
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
    use crate::testing::{fields, judge, tags_of};
    use crate::{NotStorable, SetCookie};

    /// Checks the tags, given by name, with groups in angle brackets.
    fn check(rules: &Rules, response: &str, expected: &[&str]) {
        let response = fields(response);
        let tags = tags_of(&response, rules).expect("not too many");
        let read = tags.iter().map(|tag| {
            let name = String::from_utf8_lossy(tag.name);
            match tag.kind {
                TagKind::Tag => name.into_owned(),
                TagKind::Group => format!("<{name}>"),
            }
        });
        assert_eq!(read.collect::<Vec<_>>(), expected, "{response:?}");
        assert_eq!(tags.len(), expected.len());
        assert_eq!(tags.is_empty(), expected.is_empty());
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
            ("Cache-Tag: a, A, a\nxkey: a b", &["a", "A", "b"]),
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
            ("\"a\", \"B\" ,\"b\", \"a\"", &["<a>", "<B>", "<b>"]),
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
    fn a_response_with_too_many_tags_is_not_stored() {
        let list = |count: usize, length: usize| {
            let names = (0..count).map(|i| format!("{i:0length$}"));
            names.collect::<Vec<_>>()
        };
        let tags = |count, length| format!("Surrogate-Key: {}", list(count, length).join(" "));
        let groups = |count, length| {
            let quoted = list(count, length).join("\", \"");
            format!("Cache-Groups: \"{quoted}\"")
        };
        for (response, fits) in [
            (tags(128, 128), true),
            (tags(128, 129), false),
            (tags(129, 8), false),
            (tags(1, 1024), true),
            (tags(1, 1025), false),
            (tags(16, 1024), true),
            (tags(17, 1024), false),
            (groups(32, 32), true),
            (groups(128, 128), true),
            (groups(129, 8), false),
            (groups(1, 1025), false),
            (format!("{}\n{}", tags(64, 8), groups(64, 8)), true),
            (format!("{}\n{}", tags(65, 8), groups(64, 8)), false),
            (format!("{0}\n{0}\n{0}", tags(64, 128)), true),
            // Ignored members do not count towards the limit.
            (format!("{}, b", groups(129, 8)), true),
        ] {
            let read = tags_of(&fields(&response), &Rules::default()).is_ok();
            assert_eq!(read, fits, "{response}");
            let rules = Rules {
                set_cookie: SetCookie::Strip,
                ..Rules::default()
            };
            let stored = judge(&rules, "", 200, &response).err();
            let expected = (!fits).then_some(NotStorable::TooManyTags);
            assert_eq!(stored, expected, "{response}");
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

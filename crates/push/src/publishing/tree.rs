//! Lazily parsed JSON: only the values on the path of a patch are parsed. All others keep their text,
//! including the digits of numbers, the order of members, escapes and whitespace.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use foldhash::fast::RandomState;
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON value.
#[derive(Clone, Debug)]
pub(super) enum JsonTree<'a> {
    /// The text of a value, whose members or items may be parsed later.
    Text(&'a str),
    Array(Vec<Self>),
    Object(JsonObject<'a>),
}

/// A parsed object: its members by name and in order.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonObject<'a> {
    places: HashMap<Cow<'a, str>, u64, RandomState>,
    members: BTreeMap<u64, JsonMember<'a>>,
}

/// A member of an object.
#[derive(Clone, Debug)]
pub(super) struct JsonMember<'a> {
    /// The name with its quotes and escapes.
    written: Cow<'a, str>,
    pub(super) value: JsonTree<'a>,
}

impl<'a> JsonTree<'a> {
    /// Validates a document without parsing its structure.
    pub(super) fn read(body: &'a [u8]) -> serde_json::Result<Self> {
        let value: &RawValue = serde_json::from_slice(body)?;
        Ok(Self::Text(value.get()))
    }

    /// Parses one level of members or items.
    pub(super) fn open(&mut self) -> serde_json::Result<()> {
        let Self::Text(text) = *self else {
            return Ok(());
        };
        match text.as_bytes().first() {
            Some(b'[') => {
                let items: Vec<&'a RawValue> = serde_json::from_str(text)?;
                let items = items.into_iter().map(|it| Self::Text(it.get()));
                *self = Self::Array(items.collect());
            }
            Some(b'{') => {
                let object =
                    serde_json::Deserializer::from_str(text).deserialize_map(MembersVisitor)?;
                *self = Self::Object(object);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Text("null"))
    }

    /// Serializes the value. Parsed levels have no whitespace.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(object) => {
                out.push('{');
                for (index, member) in object.members.values().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&member.written);
                    out.push(':');
                    member.value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// Returns the serialized size in bytes, or a little less.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Array(items) => 2 + items.iter().map(|it| it.size() + 1).sum::<usize>(),
            Self::Object(object) => {
                let sizes = object.members.values();
                let sizes = sizes.map(|it| it.written.len() + 2 + it.value.size());
                2 + sizes.sum::<usize>()
            }
        }
    }

    /// Returns the depth of nesting.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Text(text) => depth(text),
            Self::Array(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(object) => {
                let depths = object.members.values().map(|it| it.value.depth());
                1 + depths.max().unwrap_or(0)
            }
        }
    }
}

impl<'a> JsonObject<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&JsonTree<'a>> {
        let place = self.places.get(name)?;
        self.members.get(place).map(|it| &it.value)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut JsonTree<'a>> {
        let place = self.places.get(name)?;
        self.members.get_mut(place).map(|it| &mut it.value)
    }

    /// Sets a member: in place if it exists, else as the last one.
    pub(super) fn set(&mut self, name: Cow<'a, str>, member: JsonMember<'a>) {
        if let Some(before) = self.get_mut(&name) {
            *before = member.value;
            return;
        }
        let place = self
            .members
            .last_key_value()
            .map_or(0, |(last, _)| last + 1);
        self.places.insert(name, place);
        self.members.insert(place, member);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<JsonTree<'a>> {
        let place = self.places.remove(name)?;
        self.members.remove(&place).map(|it| it.value)
    }

    /// Returns the members with their unescaped names, in order.
    pub(super) fn into_members(mut self) -> impl Iterator<Item = (Cow<'a, str>, JsonMember<'a>)> {
        let mut names: Vec<_> = self.places.into_iter().collect();
        names.sort_unstable_by_key(|(_, place)| *place);
        names
            .into_iter()
            .filter_map(move |(name, place)| Some((name, self.members.remove(&place)?)))
    }

    /// Returns the unescaped names.
    pub(super) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.places.keys().map(|name| &**name)
    }
}

impl<'a> JsonMember<'a> {
    /// Creates a new member.
    pub(super) fn new(name: &str, value: JsonTree<'a>) -> Self {
        // Serializing a string cannot fail.
        let written = serde_json::to_string(name).unwrap_or_default();
        Self {
            written: written.into(),
            value,
        }
    }

    /// Replaces the value.
    pub(super) fn with(self, value: JsonTree<'a>) -> Self {
        Self { value, ..self }
    }
}

/// The deserializer of members.
struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = JsonObject<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonObject<'de>, A::Error> {
        let mut object = JsonObject::default();
        while let Some((written, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            let written = written.get();
            let unquoted = &written[1..written.len() - 1];
            let name = if unquoted.contains('\\') {
                serde_json::from_str(written).map_err(serde::de::Error::custom)?
            } else {
                Cow::Borrowed(unquoted)
            };
            let member = JsonMember {
                written: written.into(),
                value: JsonTree::Text(value.get()),
            };
            object.set(name, member);
        }
        Ok(object)
    }
}

/// Returns the depth of nesting of a JSON text, by its brackets.
pub(super) fn depth(text: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    let (mut is_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => {
                now += 1;
                most = most.max(now);
            }
            b']' | b'}' if !is_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(text: &str) -> JsonTree<'_> {
        let mut tree = JsonTree::read(text.as_bytes()).expect("JSON");
        tree.open().expect("JSON");
        tree
    }

    #[test]
    fn a_parsed_and_written_tree_keeps_its_members() {
        for (text, expected) in [
            (
                r#" {"b" : 1.10 , "a":{ "z": 1E+2 } } "#,
                r#"{"b":1.10,"a":{ "z": 1E+2 }}"#,
            ),
            (r#"{"\u00e9\"":"\u00e9"}"#, r#"{"\u00e9\"":"\u00e9"}"#),
            ("[ 1.0 , [ ] ]", "[1.0,[ ]]"),
            ("{}", "{}"),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
            (" -0.0 ", "-0.0"),
        ] {
            let mut written = String::new();
            let tree = opened(text);
            tree.write(&mut written);
            assert_eq!(written, expected);
            assert!(tree.size() <= written.len() + 2, "{text}");
        }
        let JsonTree::Object(object) = opened(r#"{"\u00e9\"":1}"#) else {
            panic!("it is an object");
        };
        assert!(object.get("é\"").is_some());
    }

    #[test]
    fn levels_are_counted_outside_of_strings() {
        for (text, levels) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[{}],"b":[]}"#, 3),
            (r#"["[[[", "\"[[", "\\"]"#, 1),
        ] {
            assert_eq!(depth(text), levels, "{text}");
            assert_eq!(opened(text).depth(), levels, "{text}");
        }
    }
}

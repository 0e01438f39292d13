//! `No-Vary-Search`: the query parameters that a response does not depend on (draft-ietf-httpbis-no-vary-search-05).
//!
//! Two urls are equivalent if the same parameters are left once those have been removed. Values are compared as they are
//! written: a page is found less often than the draft permits where two urls differ in their percent-encoding, but the
//! origin never receives another spelling than a client has sent.

use sfv::{BareItem, Dictionary, ListEntry, Parser};
use smallvec::SmallVec;

use crate::fields::Fields;
use crate::known_name::names;
use crate::name_set::NameSet;
use crate::query::{decoded, name, parameters, sort_by_name};

/// The query parameters that count, as a response states them. One without effect is no value of this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoVarySearch {
    /// Decoded names, sorted.
    names: Vec<Vec<u8>>,
    /// Only these names count (`except`), rather than all others (`params`).
    only: bool,
    ignores_order: bool,
}

impl NoVarySearch {
    /// The longest field that counts, in bytes.
    pub const LONGEST: usize = 1024;

    /// Reads a response. `None` if the whole query counts: without the field, and also if it is malformed, too long, or
    /// states nothing else.
    pub fn of(response: Fields<'_>) -> Option<Self> {
        response.value(names::NO_VARY_SEARCH)?;
        let lines: Vec<_> = response.values(names::NO_VARY_SEARCH).collect();
        Self::parse(&lines.join(&b", "[..]))
    }

    /// Returns false if the index of these fields shows that none states it.
    pub fn may_be_in(response: Fields<'_>) -> bool {
        response.may_have(NameSet::of(&[names::NO_VARY_SEARCH]))
    }

    fn parse(value: &[u8]) -> Option<Self> {
        if value.len() > Self::LONGEST {
            return None;
        }
        let members: Dictionary = Parser::new(value).parse().ok()?;
        let ignores_order = match members.get("key-order") {
            None => false,
            Some(ListEntry::Item(item)) => match item.bare_item {
                BareItem::Boolean(ignored) => ignored,
                _ => return None,
            },
            Some(ListEntry::InnerList(_)) => return None,
        };
        let (only, listed) = match (members.get("params"), members.get("except")) {
            (Some(_), Some(_)) => return None,
            (Some(params), None) => (false, listed_names(params)?),
            (None, Some(except)) => (true, listed_names(except)?),
            // The order alone: the draft's introduction and its list of valid fields have this form.
            (None, None) => (false, Vec::new()),
        };
        let stated = Self {
            names: listed,
            only,
            ignores_order,
        };
        (stated.only || stated.ignores_order || !stated.names.is_empty()).then_some(stated)
    }

    /// The parameters of a query that count, undecoded, in the order that they are compared in.
    pub fn counting<'a>(&self, query: &'a [u8]) -> SmallVec<[&'a [u8]; 16]> {
        let counts = |parameter: &&[u8]| !parameter.is_empty() && self.has(parameter) == self.only;
        let mut counting: SmallVec<[_; 16]> = parameters(query).filter(counts).collect();
        if self.ignores_order {
            sort_by_name(&mut counting);
        }
        counting
    }

    fn has(&self, parameter: &[u8]) -> bool {
        let bytes: SmallVec<[u8; 64]> = decoded(name(parameter)).collect();
        let name = String::from_utf8_lossy(&bytes);
        let known = |one: &Vec<u8>| one[..].cmp(name.as_bytes());
        self.names.binary_search_by(known).is_ok()
    }
}

/// The names in an inner list of strings, decoded like those in a query.
fn listed_names(member: &ListEntry) -> Option<Vec<Vec<u8>>> {
    let ListEntry::InnerList(list) = member else {
        return None;
    };
    let name = |item: &sfv::Item| match &item.bare_item {
        BareItem::String(text) => {
            let name = decoded(text.as_str().as_bytes()).collect();
            String::from_utf8(name).ok().map(String::into_bytes)
        }
        _ => None,
    };
    let mut names: Vec<_> = list.items.iter().map(name).collect::<Option<_>>()?;
    names.sort_unstable();
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    fn read(value: &str) -> Option<NoVarySearch> {
        NoVarySearch::of(fields(&format!("No-Vary-Search: {value}")).fields())
    }

    /// The examples of the draft, and forms that differ from them in one thing.
    #[test]
    fn the_field_is_parsed_as_the_draft_says() {
        let stated = |only, ignores_order, names: &[&str]| {
            let names = names.iter().map(|name| name.as_bytes().to_vec());
            Some(NoVarySearch {
                names: names.collect(),
                only,
                ignores_order,
            })
        };
        for (value, expected) in [
            ("params=(\"a\")", stated(false, false, &["a"])),
            ("params=(\"b\" \"a\")", stated(false, false, &["a", "b"])),
            ("except=(\"x\")", stated(true, false, &["x"])),
            ("except=()", stated(true, false, &[])),
            ("key-order", stated(false, true, &[])),
            ("key-order=?1", stated(false, true, &[])),
            ("except=(\"x\"), key-order", stated(true, true, &["x"])),
            (
                "params=(\"a\");p=1, key-order;q, new=(1)",
                stated(false, true, &["a"]),
            ),
            (
                "params=(\"a\"), params=(\"b\")",
                stated(false, false, &["b"]),
            ),
            (
                "params=(\"%C3%A9+%E6%B0%97\")",
                stated(false, false, &["é 気"]),
            ),
            ("params=()", None),
            ("key-order=?0", None),
            ("key-order=\"not a boolean\"", None),
            ("key-order=(\"a\")", None),
            ("params=\"not an inner list\"", None),
            ("params=(not-a-string)", None),
            ("params=?0", None),
            ("params=?1", None),
            ("params", None),
            ("params=?1, except=(\"x\")", None),
            ("params=(\"a\"), except=(\"x\")", None),
            ("params=(), except=()", None),
            ("except=\"not an inner list\"", None),
            ("except=(not-a-string)", None),
            ("except=?1", None),
            ("params=(\"%f6\")", None),
            ("params=(\"a\"", None),
            ("unknown-key", None),
            ("", None),
        ] {
            assert_eq!(read(value), expected, "{value}");
        }
        let lines = fields("No-Vary-Search: key-order\nA: b\nNo-Vary-Search: params=(\"a\")");
        assert_eq!(
            NoVarySearch::of(lines.fields()),
            stated(false, true, &["a"])
        );
        assert_eq!(NoVarySearch::of(fields("A: b").fields()), None);
        let long = format!("params=(\"{}\")", "a".repeat(NoVarySearch::LONGEST));
        assert_eq!(read(&long), None);
    }

    #[test]
    fn the_parameters_that_count_are_left() {
        let params = "params=(\"utm_source\" \"a b\" \"%C3%A9\")";
        for (value, query, expected) in [
            (params, "utm_source=x&id=1", "id=1"),
            (params, "utm_sourc%65=x&id=1&utm_source", "id=1"),
            (params, "UTM_SOURCE=x", "UTM_SOURCE=x"),
            (params, "a+b=1&a%20b=2&a%2Bb=3", "a%2Bb=3"),
            (params, "%C3%A9=1&%c3%a9&%E9=2", "%E9=2"),
            (params, "b=2&a=1&&b=1&", "b=2&a=1&b=1"),
            (params, "", ""),
            (params, "utm_source=1;id=2", ""),
            ("except=(\"id\")", "utm=1&id=2&x&i%64=3", "id=2&i%64=3"),
            ("except=()", "a=1&b", ""),
            ("key-order", "b=2&a=1&b=1", "a=1&b=2&b=1"),
            ("key-order, except=(\"a\" \"b\")", "c&b=1&a=2", "a=2&b=1"),
            ("params=(\"\u{fffd}\")", "%f6=1", "%f6=1"),
            ("params=(\"%ef%bf%bd\")", "%f6=1&a", "a"),
        ] {
            let query = query.as_bytes();
            let Some(stated) = read(value) else {
                // A string of a structured field is ASCII.
                assert_eq!(expected.as_bytes(), query, "{value}");
                continue;
            };
            let left = stated.counting(query).join(&b'&');
            assert_eq!(String::from_utf8_lossy(&left), expected, "{value}");
            assert_eq!(stated.counting(&left).join(&b'&'), left, "{value}");
        }
    }
}

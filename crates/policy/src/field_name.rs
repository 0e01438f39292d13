//! Field names in rules: a name as written with its number, and lists of names that rules are about.

use crate::known_name::KnownName;
use crate::name_set::NameSet;

/// A field name as written, and its number if it is known.
#[derive(Clone, Copy, Debug)]
pub struct FieldName<'a> {
    text: &'a [u8],
    known: Option<KnownName>,
}

impl<'a> FieldName<'a> {
    /// Looks a name up.
    #[inline]
    pub fn of(text: &'a [u8]) -> Self {
        Self::indexed(text, KnownName::of(text))
    }

    /// A name that was looked up before.
    pub(crate) const fn indexed(text: &'a [u8], known: Option<KnownName>) -> Self {
        Self { text, known }
    }

    /// The name as written.
    pub const fn text(self) -> &'a [u8] {
        self.text
    }

    /// The known name that it is.
    pub(crate) const fn known(self) -> Option<KnownName> {
        self.known
    }

    /// Returns true if it is this known name.
    pub fn is(self, name: KnownName) -> bool {
        self.known == Some(name)
    }

    /// Returns true if it is a known name.
    pub(crate) const fn is_known(self) -> bool {
        self.known.is_some()
    }
}

/// A list of names in lower case; a `*` at the end matches any suffix. Known names are looked up in a set.
#[derive(Debug)]
pub(crate) struct NameList {
    names: &'static [&'static str],
    known: NameSet,
    /// All names are known, so that another one need not be compared with them.
    are_known: bool,
}

impl NameList {
    /// The list of these names. For constants.
    pub(crate) const fn new(names: &'static [&'static str]) -> Self {
        let mut known = NameSet::of(&[]);
        let all = KnownName::all();
        let mut at = 0;
        while at < all.len() {
            if is_listed(names, all[at].as_str().as_bytes()) {
                known.insert(all[at]);
            }
            at += 1;
        }
        let mut are_known = true;
        let mut at = 0;
        while at < names.len() {
            are_known = are_known && KnownName::of_constant(names[at]).is_some();
            at += 1;
        }
        Self {
            names,
            known,
            are_known,
        }
    }

    /// Returns true if it has the name, in any ASCII case.
    #[expect(
        clippy::inline_always,
        reason = "known names, which most are, are looked up in a constant"
    )]
    #[inline(always)]
    pub(crate) fn has(&self, name: FieldName<'_>) -> bool {
        match name.known {
            Some(known) => self.known.contains(known),
            None => !self.are_known && is_listed(self.names, name.text),
        }
    }

    /// The known names that it has.
    pub(crate) const fn known(&self) -> NameSet {
        self.known
    }

    /// The names of the list.
    pub(crate) const fn names(&self) -> &'static [&'static str] {
        self.names
    }
}

const fn is_listed(names: &[&str], name: &[u8]) -> bool {
    let mut at = 0;
    while at < names.len() {
        if takes(names[at].as_bytes(), name) {
            return true;
        }
        at += 1;
    }
    false
}

/// Returns true if this one pattern in lower case matches `name`, in any ASCII case.
const fn takes(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([beginning @ .., b'*'], _) if beginning.len() <= name.len() => name
            .split_at(beginning.len())
            .0
            .eq_ignore_ascii_case(beginning),
        _ => pattern.eq_ignore_ascii_case(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings_are_listed_in_any_case() {
        const LIST: NameList = NameList::new(&["te", "accept-*", "x-new"]);
        for (name, expected) in [
            ("TE", true),
            ("Accept-Encoding", true),
            ("accept-", true),
            ("Accept-Else", true),
            ("X-New", true),
            ("accept", false),
            ("x-new-", false),
            ("t", false),
            ("host", false),
            ("", false),
        ] {
            assert_eq!(LIST.has(FieldName::of(name.as_bytes())), expected, "{name}");
        }
    }
}

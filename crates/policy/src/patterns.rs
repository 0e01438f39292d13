//! Lists of names with an optional `*` at the end, for the configuration.

use smallvec::SmallVec;

/// Patterns of names: exact, or a prefix if they end in `*`. Case-sensitive, like cookies and query parameters. A
/// look-up takes two binary searches, whatever their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// Sorted.
    exact: Vec<Vec<u8>>,
    /// Sorted, and none is a prefix of another: only the greatest one not above a name can match it.
    prefixes: Vec<Vec<u8>>,
}

impl Patterns {
    /// The empty list, which matches nothing.
    pub const fn new() -> Self {
        Self {
            exact: Vec::new(),
            prefixes: Vec::new(),
        }
    }

    /// Adds one pattern.
    pub fn push(&mut self, pattern: impl AsRef<[u8]>) {
        let pattern = pattern.as_ref();
        match pattern.strip_suffix(b"*") {
            Some(prefix) if !self.begins_with_prefix(prefix) => {
                self.prefixes.retain(|longer| !longer.starts_with(prefix));
                insert_sorted(&mut self.prefixes, prefix);
            }
            Some(_) => {}
            None => insert_sorted(&mut self.exact, pattern),
        }
    }

    /// Returns true if there is no pattern.
    pub const fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty()
    }

    /// Returns true if some pattern matches `name`.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.begins_with_prefix(name)
            || self
                .exact
                .binary_search_by(|one| one.as_slice().cmp(name))
                .is_ok()
    }

    /// The patterns, sorted, without those that others include.
    pub(crate) fn written(&self) -> Vec<Vec<u8>> {
        let prefixes = self.prefixes.iter();
        let prefixes = prefixes.map(|prefix| [prefix, &b"*"[..]].concat());
        self.exact.iter().cloned().chain(prefixes).collect()
    }

    fn begins_with_prefix(&self, name: &[u8]) -> bool {
        let above = self
            .prefixes
            .partition_point(|prefix| prefix.as_slice() <= name);
        above
            .checked_sub(1)
            .is_some_and(|greatest| name.starts_with(&self.prefixes[greatest]))
    }
}

/// Returns true if this one pattern matches `name`.
pub fn takes(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.strip_suffix(b"*") {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// Patterns of field names, which are case-insensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPatterns(Patterns);

impl FieldPatterns {
    /// Adds one pattern.
    pub fn push(&mut self, pattern: impl AsRef<[u8]>) {
        self.0.push(pattern.as_ref().to_ascii_lowercase());
    }

    /// Returns true if some pattern matches `name`.
    pub fn matches(&self, name: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let lower: SmallVec<[u8; 64]> = name.iter().map(u8::to_ascii_lowercase).collect();
        self.0.matches(&lower)
    }

    /// Returns true if there is no pattern.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns in lower case, sorted.
    pub(crate) fn written(&self) -> Vec<Vec<u8>> {
        self.0.written()
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for FieldPatterns {
    fn from_iter<T: IntoIterator<Item = S>>(iter: T) -> Self {
        let mut all = Self::default();
        for pattern in iter {
            all.push(pattern);
        }
        all
    }
}

fn insert_sorted(list: &mut Vec<Vec<u8>>, item: &[u8]) {
    if let Err(at) = list.binary_search_by(|one| one.as_slice().cmp(item)) {
        list.insert(at, item.to_vec());
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Patterns {
    fn from_iter<T: IntoIterator<Item = S>>(iter: T) -> Self {
        let mut all = Self::new();
        all.extend(iter);
        all
    }
}

impl<S: AsRef<[u8]>> Extend<S> for Patterns {
    fn extend<T: IntoIterator<Item = S>>(&mut self, iter: T) {
        for pattern in iter {
            self.push(pattern);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_matches_the_rest_of_a_name() {
        let patterns = Patterns::from_iter(["_gid", "_ga*", "_ga_long*"]);
        for (name, expected) in [
            ("_ga", true),
            ("_ga_X1", true),
            ("_ga_long_x", true),
            ("_g", false),
            ("_gid", true),
            ("_gid2", false),
            ("_GA", false),
            ("", false),
        ] {
            assert_eq!(patterns.matches(name.as_bytes()), expected, "{name}");
        }
        assert!(Patterns::from_iter(["*"]).matches(b""));
        assert!(Patterns::from_iter(["a*", "*"]).matches(b"b"));
        assert!(!Patterns::new().matches(b"a"));
    }

    #[test]
    fn fields_mind_no_case() {
        let patterns = FieldPatterns::from_iter(["X-Country", "x-SPY-*"]);
        for (name, expected) in [
            ("x-country", true),
            ("X-COUNTRY", true),
            ("X-Spy-1", true),
            ("X-Spy", false),
            ("X-Country-2", false),
        ] {
            assert_eq!(patterns.matches(name.as_bytes()), expected, "{name}");
        }
        assert!(!FieldPatterns::default().matches(b""));
    }

    proptest! {
        #[test]
        fn the_search_finds_the_matches_of_a_linear_scan(
            all in prop::collection::vec("[ab]{0,3}[*]?", 0..6),
            name in "[ab]{0,4}",
        ) {
            let found = Patterns::from_iter(&all).matches(name.as_bytes());
            let one_matches = |pattern: &String| takes(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(found, all.iter().any(one_matches));
        }
    }
}

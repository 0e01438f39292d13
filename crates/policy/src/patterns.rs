//! Lists of names with an optional `*` at the end, as an operator writes them.

/// Names to match exactly, or by what they begin with where a pattern ends in `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns(Vec<String>);

impl Patterns {
    /// No pattern: matches nothing.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one pattern.
    pub fn push(&mut self, pattern: impl Into<String>) {
        self.0.push(pattern.into());
    }

    /// Whether some pattern matches `name`. Case counts, as it does for cookies and query parameters.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.0
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix.as_bytes()),
                None => name == pattern.as_bytes(),
            })
    }

    /// The patterns as written.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl<S: Into<String>> FromIterator<S> for Patterns {
    fn from_iter<T: IntoIterator<Item = S>>(iter: T) -> Self {
        Self(iter.into_iter().map(Into::into).collect())
    }
}

impl<S: Into<String>> Extend<S> for Patterns {
    fn extend<T: IntoIterator<Item = S>>(&mut self, iter: T) {
        self.0.extend(iter.into_iter().map(Into::into));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_the_rest_of_a_name() {
        let patterns = Patterns::from_iter(["_ga*", "_gid"]);
        for (name, expected) in [
            ("_ga", true),
            ("_ga_X1", true),
            ("_gid", true),
            ("_gid2", false),
            ("_GA", false),
            ("", false),
        ] {
            assert_eq!(patterns.matches(name.as_bytes()), expected, "{name}");
        }
        assert!(Patterns::from_iter(["*"]).matches(b""));
        assert!(!Patterns::new().matches(b"a"));
    }
}

//! Entity tags (RFC 9110 §8.8.3).

/// An entity tag. A value that is not one, for example without quotes, never compares equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    weak: bool,
    opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Parses a value that is exactly one entity tag.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        match Self::split_first(value)? {
            (tag, []) => Some(tag),
            _ => None,
        }
    }

    /// Returns true if it is marked `W/`.
    pub const fn is_weak(self) -> bool {
        self.weak
    }

    /// The opaque value between the quotes.
    pub const fn opaque(self) -> &'a [u8] {
        self.opaque
    }

    /// Strong comparison (RFC 9110 §8.8.3.2).
    pub fn strong_eq(self, other: Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison (RFC 9110 §8.8.3.2).
    pub fn weak_eq(self, other: Self) -> bool {
        self.opaque == other.opaque
    }

    fn split_first(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, quoted) = match value.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let after = quoted.strip_prefix(b"\"")?;
        let end = memchr::memchr(b'"', after)?;
        let opaque = &after[..end];
        let valid = opaque
            .iter()
            .all(|&b| b == 0x21 || (0x23..=0x7e).contains(&b) || b >= 0x80);
        valid.then_some((Self { weak, opaque }, &after[end + 1..]))
    }
}

/// The entity tags of a list. Malformed members are skipped up to the next comma. A backslash is an ordinary character
/// here, unlike in quoted strings.
pub fn list(value: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        loop {
            while let [b' ' | b'\t' | b',', after @ ..] = rest {
                rest = after;
            }
            if rest.is_empty() {
                return None;
            }
            let tag = EntityTag::split_first(rest)
                .map(|(tag, after)| (tag, after.trim_ascii_start()))
                .filter(|(_, after)| matches!(after, [] | [b',', ..]));
            if let Some((tag, after)) = tag {
                rest = after;
                return Some(tag);
            }
            let comma = memchr::memchr(b',', rest).unwrap_or(rest.len());
            rest = &rest[comma..];
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: &[(bool, &str)]) {
        let found: Vec<_> = list(value.as_bytes())
            .map(|tag| (tag.weak, tag.opaque))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|&(weak, opaque)| (weak, opaque.as_bytes()))
            .collect();
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn lists_of_tags_are_read() {
        check(r#""a""#, &[(false, "a")]);
        check(
            r#" "a" , W/"b",,"c,d" "#,
            &[(false, "a"), (true, "b"), (false, "c,d")],
        );
        check(r#""a\","b""#, &[(false, "a\\"), (false, "b")]);
        check(r#""""#, &[(false, "")]);
    }

    #[test]
    fn invalid_tags_are_skipped() {
        check(r#"a, "b""#, &[(false, "b")]);
        check(r#"w/"a", "b""#, &[(false, "b")]);
        check(r#""a" x, "b""#, &[(false, "b")]);
        check(r#""a"#, &[]);
        check(r#""a b""#, &[]);
        check("*", &[]);
    }

    #[test]
    fn comparison_is_strong_or_weak() {
        let tag = |value: &'static str| EntityTag::parse(value.as_bytes()).expect(value);
        for (a, b, strong, weak) in [
            (r#"W/"1""#, r#"W/"1""#, false, true),
            (r#"W/"1""#, r#"W/"2""#, false, false),
            (r#"W/"1""#, r#""1""#, false, true),
            (r#""1""#, r#""1""#, true, true),
        ] {
            assert_eq!(tag(a).strong_eq(tag(b)), strong, "{a} {b}");
            assert_eq!(tag(a).weak_eq(tag(b)), weak, "{a} {b}");
        }
        for none in ["1", "\"1", "\"1\" ", "W\"1\"", ""] {
            assert_eq!(EntityTag::parse(none.as_bytes()), None, "{none}");
        }
    }
}

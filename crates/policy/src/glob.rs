//! Glob patterns: `*` matches any run of bytes, also an empty one and across `/`.

use memchr::memmem;

/// Returns true if a pattern matches the whole text. Each literal part is searched for once, so this takes linear time.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let (Some(first), Some(last)) = (parts.next(), parts.next_back()) else {
        return pattern == text;
    };
    let Some(between) = text.strip_prefix(first) else {
        return false;
    };
    let Some(mut rest) = between.strip_suffix(last) else {
        return false;
    };
    for part in parts {
        let Some(at) = memmem::find(rest, part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A naive implementation of the same.
    fn plainly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|at| plainly(rest, &text[at..])),
            Some((byte, rest)) => text.first() == Some(byte) && plainly(rest, &text[1..]),
        }
    }

    #[test]
    fn parts_do_not_overlap() {
        assert!(!matches(b"ab*ba", b"aba"));
        assert!(matches(b"ab*ba", b"abba"));
        assert!(matches(b"*", b""));
        assert!(!matches(b"", b"a"));
        assert!(matches(b"/a*/c", b"/a/b/c"));
    }

    proptest! {
        #[test]
        fn patterns_match_as_documented(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text), plainly(pattern, text));
        }
    }
}

//! Patterns in which `*` stands for any run of bytes, also of none and also over `/`.

use memchr::memmem;

/// Whether a pattern takes the whole of a text. Each part of it is looked for once, so that this takes no
/// longer than reading both.
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

    /// The same, said in the plainest way.
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
        fn it_takes_what_its_meaning_says(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text), plainly(pattern, text));
        }
    }
}

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

/// Returns the runs of bytes that the stars of a pattern match, if it matches the whole text. Each is as short as
/// possible, and the last one takes the rest.
pub fn captures<'a>(pattern: &[u8], text: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next()?;
    let Some(last) = parts.next_back() else {
        return (pattern == text).then(Vec::new);
    };
    let mut rest = text.strip_prefix(first)?.strip_suffix(last)?;
    let mut runs = Vec::new();
    for part in parts {
        let at = memmem::find(rest, part)?;
        runs.push(&rest[..at]);
        rest = &rest[at + part.len()..];
    }
    runs.push(rest);
    Some(runs)
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

    #[test]
    fn the_last_star_takes_the_rest() {
        let runs = |pattern: &[u8], text| captures(pattern, text).unwrap();
        assert_eq!(runs(b"/*/*", b"/a/b/c"), [&b"a"[..], b"b/c"]);
        assert_eq!(runs(b"*.html", b"/a.html.html"), [b"/a.html"]);
        assert!(runs(b"/a", b"/a").is_empty());
    }

    proptest! {
        #[test]
        fn patterns_match_as_documented(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text), plainly(pattern, text));
        }

        #[test]
        fn captures_in_place_of_the_stars_are_the_text(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let found = captures(pattern, text);
            prop_assert_eq!(found.is_some(), matches(pattern, text));
            if let Some(found) = found {
                let mut found = found.into_iter();
                let mut filled = Vec::new();
                for byte in pattern {
                    match byte {
                        b'*' => filled.extend_from_slice(found.next().unwrap()),
                        _ => filled.push(*byte),
                    }
                }
                prop_assert_eq!(filled, text);
                prop_assert_eq!(found.next(), None);
            }
        }
    }
}

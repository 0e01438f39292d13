//! Markup in an origin's pages that has a meaning here, and must not have one.

use memchr::memchr;

/// Markup, in any case, and what takes its place. To browsers the two are the same, or nothing.
type Marker = (&'static [u8], &'static [u8]);

/// The element that the script in the browser fills.
const ELEMENT: Marker = (b"<microcache-include", b"<microcache-ignored");

/// Tags. They are found by their exact letters.
const TAGS: [Marker; 5] = [
    ELEMENT,
    (b"<esi:", b"<ESI:"),
    (b"</esi:", b"</ESI:"),
    (b"<!--esi", b"<!--ESI"),
    (b"<!--#", b"<!-- #"),
];

/// Takes the meaning of markup in a text that arrives in pieces. Nothing is removed: what stands around a removed part
/// could be markup together.
#[derive(Debug)]
pub(super) struct Guard {
    markers: &'static [Marker],
    /// The beginning of what may be a marker.
    held: Vec<u8>,
}

impl Guard {
    /// Takes the meaning of tags, and of the browser's element.
    pub(super) const fn of_tags() -> Self {
        Self::of(&TAGS)
    }

    /// Takes the meaning of the browser's element only.
    pub(super) const fn of_elements() -> Self {
        Self::of(&[ELEMENT])
    }

    const fn of(markers: &'static [Marker]) -> Self {
        let held = Vec::new();
        Self { markers, held }
    }

    /// Appends the next piece of the text to `out`, but for an end that may continue.
    pub(super) fn push(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let mut joined = std::mem::take(&mut self.held);
        let mut rest = text;
        if !joined.is_empty() {
            joined.extend_from_slice(text);
            rest = &joined;
        }
        while let Some(at) = memchr(b'<', rest) {
            out.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            let mut markers = self.markers.iter();
            if let Some((marker, replacement)) = markers.find(|(it, _)| begins(rest, it)) {
                out.extend_from_slice(replacement);
                rest = &rest[marker.len()..];
            } else if self.markers.iter().any(|(it, _)| begins(it, rest)) {
                self.held = rest.to_vec();
                return;
            } else {
                out.push(b'<');
                rest = &rest[1..];
            }
        }
        out.extend_from_slice(rest);
    }

    /// Appends what was held back, as it is.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }
}

fn begins(text: &[u8], beginning: &[u8]) -> bool {
    let start = text.get(..beginning.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(beginning))
}

#[cfg(test)]
mod tests {
    use microcache_policy::edge::PagePieces;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn guarded(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut guard, mut out) = (Guard::of_tags(), Vec::new());
        for piece in pieces {
            guard.push(piece, &mut out);
        }
        guard.flush(&mut out);
        out
    }

    #[test]
    fn text_around_markup_stays() {
        for (text, expected) in [
            ("<p>a < b <!-- c --></p>", "<p>a < b <!-- c --></p>"),
            ("<esi:include src=/a />", "<ESI:include src=/a />"),
            ("<es<esi:x/>i:include>", "<es<ESI:x/>i:include>"),
            ("<Microcache-Include src=/a>", "<microcache-ignored src=/a>"),
            (
                "<!--#include virtual=/a -->",
                "<!-- #include virtual=/a -->",
            ),
            ("a<esi", "a<esi"),
        ] {
            assert_eq!(guarded(&[text.as_bytes()]), expected.as_bytes(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_tag_is_left_wherever_the_text_is_divided(
            parts in vec("(<|esi:|/|include src=/a />|!--|esi|#|-|microcache-|include| virtual=\"/a\" -->|a|\")", 0..30),
            at in 0..200_usize,
        ) {
            let text = parts.concat().into_bytes();
            let whole = guarded(&[&text]);
            let (first, second) = text.split_at(at.min(text.len()));
            prop_assert_eq!(&guarded(&[first, second]), &whole);
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(&guarded(&bytes), &whole);
            prop_assert_eq!(PagePieces::of(&whole), None);
            let lower = whole.to_ascii_lowercase();
            prop_assert!(memchr::memmem::find(&lower, b"<microcache-include").is_none());
        }
    }
}

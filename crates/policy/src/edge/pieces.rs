//! A page that is divided once, when it is stored, and composed for each visitor.

use std::ops::Range;

use super::composed_tag::text_digest;
use super::cutter::{Cut, Cutter};
use super::include::Include;

/// The parts of a page with tags: offsets in its body, and what belongs between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagePieces {
    pieces: Vec<PagePiece>,
    malformed: usize,
    surplus: usize,
    text_digest: u64,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagePiece {
    /// Bytes of its body.
    Text(Range<usize>),
    /// The place of a fragment.
    Hole(Box<Include>),
}

/// The most fragments of a page. Tags beyond them are left out.
pub const MOST_FRAGMENTS: usize = 64;

impl PagePieces {
    /// Divides a complete page; `None` if it has no tags.
    pub fn of(body: &[u8]) -> Option<Self> {
        let mut pieces = Self::default();
        let (mut cutter, mut at, mut is_plain) = (Cutter::default(), 0, true);
        let mut holes = 0;
        while at < body.len() {
            let cut = cutter.next(&body[at..], true);
            is_plain &= matches!(cut, Cut::Text(_));
            at += match cut {
                Cut::Text(length) => {
                    pieces.add_text(at..at + length);
                    length
                }
                Cut::Omitted {
                    length,
                    is_malformed,
                } => {
                    pieces.malformed += usize::from(is_malformed);
                    length
                }
                Cut::Include { length, include } => {
                    if holes < MOST_FRAGMENTS {
                        holes += 1;
                        pieces.pieces.push(PagePiece::Hole(include));
                    } else {
                        pieces.surplus += 1;
                    }
                    length
                }
                // Only where more bytes may follow.
                Cut::Incomplete => break,
            };
        }
        if is_plain {
            return None;
        }
        pieces.pieces.shrink_to_fit();
        pieces.text_digest = text_digest(pieces.texts(body));
        Some(pieces)
    }

    /// Adds text to the text before it, if that ends where it begins.
    fn add_text(&mut self, text: Range<usize>) {
        match self.pieces.last_mut() {
            Some(PagePiece::Text(before)) if before.end == text.start => before.end = text.end,
            _ => self.pieces.push(PagePiece::Text(text)),
        }
    }

    /// Iterates over the parts in their order.
    pub fn parts(&self) -> impl Iterator<Item = &PagePiece> {
        self.pieces.iter()
    }

    /// Iterates over the texts of a body that was divided into these pieces.
    pub fn texts<'a>(&self, body: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.parts().filter_map(|piece| match piece {
            PagePiece::Text(range) => Some(&body[range.clone()]),
            PagePiece::Hole(_) => None,
        })
    }

    /// Iterates over the fragments in their order.
    pub fn holes(&self) -> impl Iterator<Item = &Include> {
        self.parts().filter_map(|piece| match piece {
            PagePiece::Hole(include) => Some(&**include),
            PagePiece::Text(_) => None,
        })
    }

    /// Number of pieces of markup that are unknown or misplaced. They are left out.
    pub const fn malformed(&self) -> usize {
        self.malformed
    }

    /// Number of tags beyond [`MOST_FRAGMENTS`].
    pub const fn surplus(&self) -> usize {
        self.surplus
    }

    /// Digest of all texts.
    pub const fn text_digest(&self) -> u64 {
        self.text_digest
    }

    /// Memory that is used in addition to the page, in bytes.
    pub fn heap_size(&self) -> usize {
        let holes: usize = self.holes().map(Include::heap_size).sum();
        size_of::<Self>() + self.pieces.capacity() * size_of::<PagePiece>() + holes
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// A page as it is stored, with `{URL}` for fragments.
    fn composed(body: &str) -> Option<String> {
        let pieces = PagePieces::of(body.as_bytes())?;
        let parts = pieces.parts().map(|piece| match piece {
            PagePiece::Text(range) => body[range.clone()].to_owned(),
            PagePiece::Hole(include) => format!("{{{}}}", include.source().escape_ascii()),
        });
        Some(parts.collect())
    }

    #[test]
    fn a_page_without_tags_has_no_pieces() {
        for body in [
            "",
            "text",
            "<p>text</p>",
            "<!-- comment -->",
            "<![CDATA[<esi:include src=\"/a\"/>]]>",
            "a < b <e",
            "a --> b",
        ] {
            assert_eq!(composed(body), None, "{body}");
        }
    }

    #[test]
    fn a_page_is_composed_of_text_and_fragments() {
        for (body, expected) in [
            ("<esi:include src=\"/a\"/>", "{/a}"),
            (
                "a<esi:include src=\"/b\"/>c<esi:include src=\"/d\"/>",
                "a{/b}c{/d}",
            ),
            ("a<esi:remove>b</esi:remove>c", "ac"),
            ("a<!--esi b--> c", "a b c"),
            ("<esi:comment text=\"a\"/>", ""),
            ("a<esi:unknown/>b", "ab"),
            ("a<esi:include src=\"/b\"", "a"),
        ] {
            assert_eq!(composed(body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let body = "<esi:a/><esi:include src=\"/b\"/>".repeat(MOST_FRAGMENTS + 2);
        let pieces = PagePieces::of(body.as_bytes()).expect("a page with tags");
        assert_eq!(pieces.holes().count(), MOST_FRAGMENTS);
        assert_eq!(pieces.surplus(), 2);
        assert_eq!(pieces.malformed(), MOST_FRAGMENTS + 2);
    }

    #[test]
    fn ten_thousand_tags_take_no_memory() {
        let body = "<esi:include src=\"/a\"/>".repeat(10_000);
        let pieces = PagePieces::of(body.as_bytes()).expect("a page with tags");
        assert!(pieces.heap_size() < 16 * 1024, "{}", pieces.heap_size());
    }

    fn page() -> impl Strategy<Value = String> {
        let part = select(vec![
            "text",
            "<esi:include src=\"/a\"/>",
            "<esi:include src='/b' alt='/c'>",
            "<esi:remove>",
            "</esi:remove>",
            "<!--esi ",
            "-->",
            "<![CDATA[",
            "]]>",
            "<!--#include virtual=\"/d\" -->",
            "<!--# block name=\"e\" -->",
            "<!--# endblock -->",
            "<esi:",
            "<",
            "\"",
        ]);
        vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn texts_are_in_order_and_none_is_divided(body in page()) {
            let Some(pieces) = PagePieces::of(body.as_bytes()) else {
                return Ok(());
            };
            let mut end = None;
            for piece in pieces.parts() {
                match piece {
                    PagePiece::Text(range) => {
                        prop_assert!(!range.is_empty() && range.end <= body.len());
                        prop_assert!(end.is_none_or(|end| end < range.start), "{body}");
                        end = Some(range.end);
                    }
                    PagePiece::Hole(_) => {}
                }
            }
        }
    }
}

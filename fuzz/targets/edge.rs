//! The tags of a page: whatever pieces it arrives in, against the page as a whole; and the fragments that they may name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_policy::FieldsBuf;
use microcache_policy::edge::{
    Cut, Cutter, FragmentPaths, LONGEST_TAG, MOST_FRAGMENTS, PagePiece, PagePieces, announces_tags,
    remove_announcement,
};
use microcache_policy::readings::readings;

fuzz_target!(|input: &[u8]| {
    let (whole, fragments) = composed(input, input.len().max(1));
    for step in [1, 2, 3, 7, 64] {
        assert!(composed(input, step).0 == whole, "in pieces of {step}");
    }
    pieces_agree(input, &whole, &fragments);
    let paths = FragmentPaths::default();
    for url in fragments.iter().map(Vec::as_slice).chain([input]) {
        let Ok(target) = paths.target(url, b"shop.example", b"/a/page?b") else {
            continue;
        };
        let path = target
            .split(|&byte| byte == b'?')
            .next()
            .unwrap_or_default();
        for reading in readings(path).expect("few readings") {
            let is_listed = [&b"/_fragment"[..], b"/page_cache/block/"];
            assert!(is_listed.iter().any(|it| reading.starts_with(it)) || is_added(&reading));
        }
        assert!(
            target.iter().all(u8::is_ascii_graphic),
            "a line of a request"
        );
    }
    announcements_end(input);
});

/// Paths of further frameworks.
fn is_added(reading: &[u8]) -> bool {
    reading.starts_with(b"/_esi/")
}

/// The text of a page with a NUL in the place of each fragment, and the fragments.
fn composed(input: &[u8], step: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut cutter, mut text, mut fragments) = (Cutter::default(), Vec::new(), Vec::new());
    let (mut at, mut end) = (0, 0);
    while at < input.len() {
        let is_last = end == input.len();
        if at == end {
            end = (end + step).min(input.len());
            continue;
        }
        let given = &input[at..end];
        match cutter.next(given, is_last) {
            Cut::Text(length) => {
                assert!((1..=given.len()).contains(&length), "text is there");
                text.extend_from_slice(&given[..length]);
                at += length;
            }
            Cut::Omitted { length, .. } => {
                assert!((1..=given.len()).contains(&length), "markup is there");
                at += length;
            }
            Cut::Include { length, include } => {
                assert!((1..=given.len()).contains(&length), "a tag is there");
                text.push(0);
                fragments.push(include.source().to_vec());
                at += length;
            }
            Cut::Incomplete => {
                assert!(!is_last && given.len() < LONGEST_TAG, "it ends");
                end = (end + step).min(input.len());
            }
        }
    }
    (text, fragments)
}

/// The pieces of a stored page say the same.
fn pieces_agree(input: &[u8], whole: &[u8], fragments: &[Vec<u8>]) {
    let Some(pieces) = PagePieces::of(input) else {
        assert!(whole == input, "a page without tags");
        return;
    };
    let named: Vec<_> = pieces.holes().map(|it| it.source().to_vec()).collect();
    assert!(named == fragments[..fragments.len().min(MOST_FRAGMENTS)]);
    assert_eq!(named.len() + pieces.surplus(), fragments.len());
    let mut text = Vec::new();
    for piece in pieces.parts() {
        match piece {
            PagePiece::Text(range) => text.extend_from_slice(&input[range.clone()]),
            PagePiece::Hole(_) => text.push(0),
        }
    }
    assert!(pieces.surplus() > 0 || text == whole);
}

/// Announcements of tags do not leave.
fn announcements_end(input: &[u8]) {
    let mut fields = FieldsBuf::new();
    fields.push(
        "Surrogate-Control",
        input
            .iter()
            .filter(|byte| !byte.is_ascii_control())
            .copied()
            .collect::<Vec<_>>(),
    );
    remove_announcement(&mut fields);
    assert!(!announces_tags(fields.fields()));
}

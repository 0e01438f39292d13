use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A page as a reader sees it, with `{SRC}` for includes (`{SRC|ALT!=FALLBACK}`; `!` if it is waited for), and the number
/// of malformed pieces of markup. It arrives in pieces that end at these places.
fn cut(page: &[u8], ends: &[usize]) -> (String, usize) {
    let mut cutter = Cutter::default();
    let (mut out, mut malformed, mut at) = (Vec::new(), 0, 0);
    for end in ends
        .iter()
        .copied()
        .filter(|end| *end < page.len())
        .chain([page.len()])
    {
        while at < end {
            let is_last = end == page.len();
            let input = &page[at..end];
            at += match cutter.next(input, is_last) {
                Cut::Text(length) => {
                    out.extend_from_slice(&input[..length]);
                    length
                }
                Cut::Omitted {
                    length,
                    is_malformed,
                } => {
                    malformed += usize::from(is_malformed);
                    length
                }
                Cut::Include { length, include } => {
                    out.extend_from_slice(&[b"{", include.source()].concat());
                    if let Some(alternative) = include.alternative() {
                        out.extend_from_slice(&[b"|", alternative].concat());
                    }
                    if include.is_waited_for() {
                        out.push(b'!');
                    }
                    if !include.fallback().is_empty() {
                        out.extend_from_slice(&[b"=", include.fallback()].concat());
                    }
                    out.push(b'}');
                    length
                }
                Cut::Incomplete => {
                    assert!(!is_last && input.len() < LONGEST_TAG);
                    break;
                }
            };
        }
    }
    (String::from_utf8_lossy(&out).into_owned(), malformed)
}

fn whole(page: &str) -> String {
    let (text, malformed) = cut(page.as_bytes(), &[]);
    format!("{text}{}", "?".repeat(malformed))
}

/// Pages and what is left of them; a `?` behind for each malformed piece of markup.
const PAGES: [(&str, &str); 47] = [
    (
        "plain <b>text</b> <!-- comment --> a --> b",
        "plain <b>text</b> <!-- comment --> a --> b",
    ),
    ("a<esi:include src=\"/x\"/>b", "a{/x}b"),
    ("a<esi:include src='/x' />b", "a{/x}b"),
    ("a<esi:include src=/x />b", "a{/x}b"),
    ("a<esi:include src=/x>b", "a{/x}b"),
    ("a<esi:include src=\"/x\"></esi:include>b", "a{/x}b"),
    (
        "<esi:include src=\"/_fragment?_path=a&amp;_hash=b%3D\" onerror=\"continue\" />",
        "{/_fragment?_path=a&_hash=b%3D}",
    ),
    ("<esi:include src=\"/x\" alt=\"/y\" />", "{/x|/y}"),
    (
        "<esi:include alt=\"/y\" src=\"/x\" wait=\"true\" />",
        "{/x|/y!}",
    ),
    (
        "<esi:include\n  src=\"http://h/page_cache/block/esi/\"\n/>",
        "{http://h/page_cache/block/esi/}",
    ),
    ("<esi:include src=\"/a>b\"/>", "{/a>b}"),
    // What names no usable URL is left out.
    ("a<esi:include />b", "ab?"),
    ("a<esi:include \n>b", "ab?"),
    ("a<esi:include aaa />b", "ab?"),
    ("a<esi:include k?=./>b", "ab?"),
    ("a<esi:include src/>b", "ab?"),
    ("a<esi:include src=/>b", "ab?"),
    ("a<esi:include src= />b", "ab?"),
    ("a<esi:include src=\"\"/>b", "ab?"),
    ("a<esi:include src=\"/x y\"/>b", "ab?"),
    ("a<esi:include src=\"/x\r\nb: c\"/>b", "ab?"),
    ("a<esi:include src=\"foofof />b", "ab?"),
    ("a<esi:include foo=bar src=/x />b", "a{/x}b"),
    ("a<esi:bogosity/>b", "ab?"),
    (
        "a<esi:vars>$(HTTP_COOKIE)</esi:vars>b",
        "a$(HTTP_COOKIE)b??",
    ),
    ("a</esi:include>b", "ab"),
    ("a</>b", "a</>b"),
    ("a<ESI:include src=/x />b", "a<ESI:include src=/x />b"),
    ("a<esi:comment text=\"c\"/>b", "ab"),
    ("a<esi:comment>c</esi:comment>b", "acb??"),
    ("a<esi:remove>c<esi:include src=/x />d</esi:remove>b", "ab"),
    (
        "a<esi:remove>c<esi:remove>d</esi:remove>e</esi:remove>b",
        "ab",
    ),
    ("a<esi:remove/>b", "ab?"),
    ("a<esi:remove>b", "a?"),
    ("a<!--esi <esi:include src=/x /> -->b", "a {/x} b"),
    ("a<!--esi <p>c - d</p>-->b-->", "a <p>c - d</p>b-->"),
    ("a<!--esi c <!--esi d-->b", "a c  db?"),
    (
        "a<![CDATA[<esi:include src=/x />]]>b<esi:include src=/y />",
        "a<![CDATA[<esi:include src=/x />]]>b{/y}",
    ),
    ("a<![CDATA[ b", "a<![CDATA[ b"),
    ("a<!--#include virtual=\"/x\" -->b", "a{/x}b"),
    (
        "a<!--# include virtual=\"/x?y=1\" wait=\"yes\" -->b",
        "a{/x?y=1!}b",
    ),
    (
        "a<!--# block name=\"one\" -->c<!--# endblock -->b<!--# include virtual=\"/x\" stub=\"one\" -->",
        "ab{/x=c}",
    ),
    ("a<!--# include virtual=\"/x\" stub=\"two\" -->b", "a{/x}b"),
    ("a<!--# echo var=\"HTTP_COOKIE\" -->b", "ab?"),
    ("a<!--# block name=\"one\" -->c", "ac?"),
    ("a<!--# include", "a?"),
    ("a<esi:", "a?"),
];

#[test]
fn tags_are_found_and_left_out() {
    for (page, expected) in PAGES {
        assert_eq!(whole(page), expected, "{page}");
    }
}

#[test]
fn a_page_may_arrive_in_any_pieces() {
    for (page, expected) in PAGES {
        for first in 1..page.len() {
            let (text, malformed) = cut(page.as_bytes(), &[first]);
            assert_eq!(text + &"?".repeat(malformed), expected, "{page} at {first}");
        }
        let (text, malformed) = cut(page.as_bytes(), &(1..page.len()).collect::<Vec<_>>());
        assert_eq!(
            text + &"?".repeat(malformed),
            expected,
            "{page} byte by byte"
        );
    }
}

#[test]
fn markup_without_an_end_is_bounded() {
    let long = "x".repeat(LONGEST_TAG);
    for (beginning, expected) in [
        ("<esi:include src=\"", "x".repeat(18)),
        ("<!--# ", "x".repeat(6)),
        ("</esi:", "x".repeat(6)),
    ] {
        assert_eq!(
            whole(&format!("{beginning}{long}")),
            format!("{expected}?"),
            "{beginning}"
        );
    }
    let closed = format!("<esi:include src=\"{long}\"/>b");
    assert!(!whole(&closed).contains('{'));
    let blocks = "<!--# block name=\"b\" -->c<!--# endblock -->".repeat(MOST_BLOCKS + 2);
    assert_eq!(whole(&blocks), "??");
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        parts in vec("(<|esi:|/esi:|include|remove|comment| src=/x|alt='/y'|/?>|!--|esi|--|#|block name=a|endblock|\\[CDATA\\[|\\]\\]|\"|'|-|a| )", 0..40),
        mut ends in vec(0..200_usize, 0..20),
    ) {
        let page = parts.concat();
        ends.sort_unstable();
        prop_assert_eq!(cut(page.as_bytes(), &ends), cut(page.as_bytes(), &[]));
    }

    #[test]
    fn a_page_without_markup_is_itself(page in "[ -;=-~]{0,200}") {
        prop_assert_eq!(cut(page.as_bytes(), &[]), (page, 0));
    }
}

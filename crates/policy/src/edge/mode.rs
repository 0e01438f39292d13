//! The responses whose tags are replaced.

use super::surrogate::announces_tags;
use crate::fields::Fields;
use crate::known_name::names;

/// The treatment of tags on a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EdgeMode {
    /// They are text like any other.
    #[default]
    Off,
    /// They are replaced where the response announces them.
    Announced,
    /// They are replaced in every page.
    Always,
}

/// The media types of pages. Tags in scripts and JSON are data.
const PAGES: [&[u8]; 4] = [
    b"text/html",
    b"application/xhtml+xml",
    b"text/xml",
    b"application/xml",
];

impl EdgeMode {
    /// Returns true if the tags in a response are to be replaced.
    pub fn covers(self, response: Fields<'_>) -> bool {
        let is_covered = match self {
            Self::Off => false,
            Self::Announced => announces_tags(response),
            Self::Always => true,
        };
        is_covered && is_page(response) && !response.contains("content-encoding")
    }
}

fn is_page(response: Fields<'_>) -> bool {
    let media_type = media_type(response);
    PAGES.iter().any(|one| media_type.eq_ignore_ascii_case(one))
}

/// Returns the media type of a response, without parameters; empty if it has none.
pub fn media_type(response: Fields<'_>) -> &[u8] {
    let value = response.value(names::CONTENT_TYPE).unwrap_or_default();
    let mut parts = value.split(|&byte| byte == b';');
    parts.next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn tags_in_pages_are_replaced() {
        let announced = "\nSurrogate-Control: content=\"ESI/1.0\"";
        for (lines, is_page) in [
            ("Content-Type: text/html", true),
            ("Content-Type: TEXT/HTML; charset=utf-8", true),
            ("Content-Type: application/xhtml+xml", true),
            ("Content-Type: application/xml ;a=b", true),
            ("Content-Type: text/html\nContent-Encoding: gzip", false),
            ("Content-Type: application/json", false),
            ("Content-Type: text/javascript", false),
            ("Content-Type: text/html+x", false),
            ("A: text/html", false),
        ] {
            let (plain, announcing) = (fields(lines), fields(&format!("{lines}{announced}")));
            for (mode, expected) in [
                (EdgeMode::Off, [false, false]),
                (EdgeMode::Announced, [false, is_page]),
                (EdgeMode::Always, [is_page, is_page]),
            ] {
                let covered = [&plain, &announcing].map(|it| mode.covers(it.fields()));
                assert_eq!(covered, expected, "{mode:?} {lines}");
            }
        }
    }
}

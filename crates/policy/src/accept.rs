//! Classes of representation that requests ask for in `Accept` (RFC 9110 §12.5.1). Applications choose between a page,
//! JSON and an image by this field, and many do not list it in `Vary`. So each class is an entry of its own, and a
//! shared fetch sends a canonical value for its class: additions by one client must not select the response for the
//! others.
//!
//! If the application lists `Accept` in `Vary`, the whole value selects and is sent.

use smallvec::SmallVec;

use crate::fields::{Fields, split_list};
use crate::known_name::names;

/// The class of representation that a request prefers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptClass {
    /// A page, or any representation.
    #[default]
    Page,
    /// JSON.
    Json,
    /// An image.
    Image,
    /// Any other media type: each value is a class of its own.
    Other,
}

impl AcceptClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Page, Self::Json, Self::Image, Self::Other];

    /// The class that one line of `Accept` prefers: the first of the members with the highest weight.
    #[inline]
    pub fn of_line(value: &[u8]) -> Self {
        // Sent by browsers for a page, and by nearly every other client for anything.
        if value == b"*/*" || value.starts_with(b"text/html,") {
            Self::Page
        } else {
            Self::of_members(split_list(value))
        }
    }

    /// The class that a request prefers.
    pub fn of(request: Fields<'_>) -> Self {
        let mut lines = request.values(names::ACCEPT);
        match (lines.next(), lines.next()) {
            (None, _) => Self::Page,
            (Some(line), None) => Self::of_line(line),
            _ => Self::of_members(members(request)),
        }
    }

    fn of_members<'a>(members: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut best: Option<(&[u8], u16)> = None;
        for member in members {
            let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let media_type = parts.next().unwrap_or_default();
            let weight = parts.find_map(weight).unwrap_or(1000);
            if best.is_none_or(|(_, most)| weight > most) {
                best = Some((media_type, weight));
            }
        }
        best.map_or(Self::Page, |(media_type, _)| Self::of_type(media_type))
    }

    fn of_type(media_type: &[u8]) -> Self {
        let is = |known: &str| media_type.eq_ignore_ascii_case(known.as_bytes());
        if is("*/*") || is("text/html") || is("application/xhtml+xml") || is("text/*") {
            Self::Page
        } else if is("application/json") {
            Self::Json
        } else if media_type.len() > 6 && media_type[..6].eq_ignore_ascii_case(b"image/") {
            Self::Image
        } else {
            Self::Other
        }
    }

    /// The canonical value of `Accept` that a shared fetch sends for this class.
    pub fn canonical_value(self, request: Fields<'_>) -> SmallVec<[u8; 64]> {
        match self {
            Self::Page => SmallVec::from_slice(b"text/html,*/*;q=0.8"),
            Self::Json => SmallVec::from_slice(b"application/json"),
            Self::Image => SmallVec::from_slice(b"image/*,*/*;q=0.8"),
            Self::Other => {
                let mut value = SmallVec::new();
                for member in members(request) {
                    if !value.is_empty() {
                        value.push(b',');
                    }
                    let bytes = member.iter().filter(|byte| !byte.is_ascii_whitespace());
                    value.extend(bytes.map(u8::to_ascii_lowercase));
                }
                value
            }
        }
    }
}

/// The members of all lines.
fn members(request: Fields<'_>) -> impl Iterator<Item = &[u8]> {
    request.values(names::ACCEPT).flat_map(split_list)
}

/// A quality value in thousandths (RFC 9110 §12.4.2), if a parameter is one.
fn weight(parameter: &[u8]) -> Option<u16> {
    let value = match parameter {
        [b'q' | b'Q', b'=', value @ ..] => std::str::from_utf8(value).ok()?,
        _ => return None,
    };
    let (whole, rest) = value.split_once('.').unwrap_or((value, ""));
    let thousandths = format!("{rest:0<3}");
    let thousandths: u16 = thousandths.get(..3)?.parse().ok()?;
    Some((whole.parse::<u16>().ok()?.min(1) * 1000 + thousandths).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn the_most_wanted_type_is_the_class() {
        use AcceptClass::{Image, Json, Other, Page};
        for (accept, class) in [
            ("", Page),
            ("*/*", Page),
            ("text/html", Page),
            ("Text/HTML;charset=utf-8", Page),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
                Page,
            ),
            ("text/html;q=0.1, application/json", Json),
            ("application/json", Json),
            ("application/json, text/plain, */*", Json),
            ("application/json;q=0.5, text/html;q=0.9", Page),
            ("image/avif,image/webp,image/*,*/*;q=0.8", Image),
            ("text/css,*/*;q=0.1", Other),
            ("application/ld+json", Other),
            ("text/x-component", Other),
            ("image/", Other),
            ("nonsense", Other),
        ] {
            assert_eq!(AcceptClass::of_line(accept.as_bytes()), class, "{accept}");
            let request = fields(&format!("Accept: {accept}"));
            assert_eq!(AcceptClass::of(request.fields()), class, "{accept}");
        }
        assert_eq!(AcceptClass::of(Fields::default()), Page);
    }

    #[test]
    fn the_canonical_value_belongs_to_its_class() {
        for class in [AcceptClass::Page, AcceptClass::Json, AcceptClass::Image] {
            let value = class.canonical_value(Fields::default());
            assert_eq!(AcceptClass::of_line(&value), class);
        }
        let class_of = |accept: &str| {
            let request = fields(accept);
            AcceptClass::Other
                .canonical_value(request.fields())
                .to_vec()
        };
        let css = b"text/css,*/*;q=0.1";
        assert_eq!(class_of("Accept: text/css, */*;q=0.1"), css);
        assert_eq!(class_of("Accept: Text/CSS\nAccept: */*; q=0.1"), css);
    }
}

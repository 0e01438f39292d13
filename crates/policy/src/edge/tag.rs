//! One ESI tag: `<esi:NAME …>`, `<esi:NAME … />` or `</esi:NAME>`.

use super::attributes::{Attribute, attributes};

/// A tag, without its brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EsiTag<'a> {
    pub(super) name: &'a [u8],
    attributes: &'a [u8],
    pub(super) is_closed: bool,
}

impl<'a> EsiTag<'a> {
    /// Reads the text between `<esi:` and `>`.
    pub(super) fn read(text: &'a [u8]) -> Self {
        let (text, is_closed) = match text.strip_suffix(b"/") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let end = text.iter().position(|byte| !byte.is_ascii_alphanumeric());
        let (name, attributes) = text.split_at(end.unwrap_or(text.len()));
        Self {
            name,
            attributes,
            is_closed,
        }
    }

    pub(super) fn attributes(&self) -> impl Iterator<Item = Option<Attribute<'a>>> {
        attributes(self.attributes)
    }
}

/// Returns the length of a tag up to its `>`, which does not stand in quotes; `None` if there is none.
pub(super) fn length(tag: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr3(b'>', b'"', b'\'', &tag[at..])?;
        at += match tag[at] {
            b'>' => return Some(at + 1),
            quote => memchr::memchr(quote, &tag[at + 1..])? + 2,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_ends_outside_of_quotes() {
        for (tag, expected) in [
            (
                "<esi:include src='/a>b'/>c>",
                Some("<esi:include src='/a>b'/>".len()),
            ),
            (
                "<esi:include src=\"/a'>b\">",
                Some("<esi:include src=\"/a'>b\">".len()),
            ),
            ("<esi:include src=\"/a>", None),
            ("<esi:remove", None),
        ] {
            assert_eq!(length(tag.as_bytes()), expected, "{tag}");
        }
    }

    #[test]
    fn names_are_letters() {
        let tag = |text: &'static str| {
            let tag = EsiTag::read(text.as_bytes());
            (tag.name.escape_ascii().to_string(), tag.is_closed)
        };
        assert_eq!(tag("include src=/a /"), ("include".to_owned(), true));
        assert_eq!(tag("remove"), ("remove".to_owned(), false));
        assert_eq!(tag("remove/"), ("remove".to_owned(), true));
        assert_eq!(tag(""), (String::new(), false));
    }
}

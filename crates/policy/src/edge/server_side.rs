//! SSI directives: `<!--# NAME PARAMETERS -->`.

use memchr::memmem;

use super::attributes::{Attribute, attributes};

/// A directive, without its brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SsiDirective<'a> {
    pub(super) name: &'a [u8],
    parameters: &'a [u8],
    /// Bytes with the brackets.
    pub(super) length: usize,
}

pub(super) const BEGINNING: &[u8] = b"<!--#";
const END: &[u8] = b"-->";

impl<'a> SsiDirective<'a> {
    /// Reads the directive at the front of `text`; `None` if it does not end.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        let inside = text.strip_prefix(BEGINNING)?;
        let end = memmem::find(inside, END)?;
        let inside_trimmed = inside[..end].trim_ascii();
        let name_end = inside_trimmed
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric());
        let (name, parameters) = inside_trimmed.split_at(name_end.unwrap_or(inside_trimmed.len()));
        Some(Self {
            name,
            parameters,
            length: BEGINNING.len() + end + END.len(),
        })
    }

    pub(super) fn parameters(&self) -> impl Iterator<Item = Option<Attribute<'a>>> {
        attributes(self.parameters)
    }

    /// Returns the value of a parameter.
    pub(super) fn parameter(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut each = self.parameters().map_while(|it| it);
        each.find(|it| it.name == name).map(|it| it.value)
    }
}

/// Returns the text up to the end of a block, and the bytes with that end; `None` if the block does not end.
pub(super) fn block(text: &[u8]) -> Option<(&[u8], usize)> {
    let mut at = 0;
    loop {
        at += memmem::find(&text[at..], BEGINNING)?;
        let directive = SsiDirective::read(&text[at..])?;
        if directive.name == b"endblock" {
            return Some((&text[..at], at + directive.length));
        }
        at += directive.length;
    }
}

//! The fragment that an include asks for.

use super::attributes::Attribute;
use super::entities::decoded;

/// A place in a page where a fragment belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    source: Vec<u8>,
    alternative: Option<Vec<u8>>,
    is_waited_for: bool,
    may_fail: bool,
    fallback: Vec<u8>,
}

impl Include {
    /// Reads the attributes of `<esi:include>`; `None` if they name no usable URL.
    pub(super) fn of_esi<'a>(
        attributes: impl Iterator<Item = Option<Attribute<'a>>>,
    ) -> Option<Self> {
        Self::read(attributes, b"src", b"true")
    }

    /// Reads the parameters of SSI's `include`; the text of a block is added by [`Include::with_fallback`].
    pub(super) fn of_ssi<'a>(
        attributes: impl Iterator<Item = Option<Attribute<'a>>>,
    ) -> Option<Self> {
        Self::read(attributes, b"virtual", b"yes")
    }

    fn read<'a>(
        attributes: impl Iterator<Item = Option<Attribute<'a>>>,
        source_name: &[u8],
        yes: &[u8],
    ) -> Option<Self> {
        let (mut source, mut alternative) = (None, None);
        let (mut is_waited_for, mut may_fail) = (false, false);
        for attribute in attributes {
            let Attribute { name, value } = attribute?;
            if name == source_name {
                source = Some(url(value)?);
            } else if name == b"alt" {
                alternative = Some(url(value)?);
            } else if name == b"wait" {
                is_waited_for = value == yes;
            } else if name == b"onerror" {
                may_fail = value == b"continue";
            }
        }
        Some(Self {
            source: source?,
            alternative,
            is_waited_for,
            may_fail,
            fallback: Vec::new(),
        })
    }

    pub(super) fn with_fallback(self, fallback: Vec<u8>) -> Self {
        Self { fallback, ..self }
    }

    /// URL of the fragment, absolute or relative.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// URL to fetch if the first one fails.
    pub fn alternative(&self) -> Option<&[u8]> {
        self.alternative.as_deref()
    }

    /// The fragment is fetched before the head of the page is sent.
    pub const fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// The page is complete without it (`onerror="continue"`).
    pub const fn may_fail(&self) -> bool {
        self.may_fail
    }

    /// Text to show if everything fails.
    pub fn fallback(&self) -> &[u8] {
        &self.fallback
    }

    /// Memory used, in bytes.
    pub(super) fn heap_size(&self) -> usize {
        let alternative = self.alternative.as_ref().map_or(0, Vec::capacity);
        size_of::<Self>() + self.source.capacity() + alternative + self.fallback.capacity()
    }
}

/// Decodes a URL in an attribute; `None` if it is empty, or contains spaces or control characters.
fn url(value: &[u8]) -> Option<Vec<u8>> {
    let value = decoded(value);
    let is_plain = value
        .iter()
        .all(|byte| byte.is_ascii_graphic() || *byte >= 0x80);
    (is_plain && !value.is_empty()).then_some(value)
}

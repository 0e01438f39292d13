//! The parts of a page.

use std::collections::VecDeque;

use bytes::Bytes;

use super::fragment::{Fragment, PendingFragment};

/// A part of a page.
pub(super) enum PagePart {
    /// Text of the page itself.
    Text(Bytes),
    /// The content in the place of a tag.
    Fragment(PendingFragment),
}

impl PagePart {
    /// Returns the bytes, if they are there.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Text(text) => Some(text),
            Self::Fragment(fragment) => fragment.fragment().map(Fragment::body),
        }
    }

    /// Returns the bytes of a part that is there.
    pub(super) fn into_bytes(self) -> Bytes {
        self.bytes().cloned().unwrap_or_default()
    }
}

/// Iterates over the fragments among these parts.
pub(super) fn fragments_of(
    parts: &VecDeque<PagePart>,
) -> impl Iterator<Item = &PendingFragment> + Clone {
    parts.iter().filter_map(|part| match part {
        PagePart::Fragment(fragment) => Some(fragment),
        PagePart::Text(_) => None,
    })
}

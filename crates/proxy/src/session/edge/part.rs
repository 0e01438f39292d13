//! The parts of a page.

use std::collections::VecDeque;

use bytes::Bytes;
use microcache_engine::GzipPage;

use super::fragment::{Fragment, PendingFragment};
use crate::admission::PinGuard;

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

    /// Returns true if its bytes have an account of their own.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self, Self::Fragment(fragment) if fragment.is_pinned())
    }

    /// Takes the account of its bytes.
    pub(super) fn take_pin(&mut self) -> Option<PinGuard> {
        match self {
            Self::Text(_) => None,
            Self::Fragment(fragment) => fragment.take_pin(),
        }
    }

    /// Returns the bytes of a part that is there, as the next ones of the page are sent.
    pub(super) fn sent(&self, gzip: Option<&mut GzipPage>) -> Bytes {
        let bytes = self.bytes().cloned().unwrap_or_default();
        match (self, gzip) {
            (_, None) => bytes,
            (Self::Text(_), Some(gzip)) => gzip.text(),
            (Self::Fragment(_), Some(gzip)) => gzip.hole(&bytes),
        }
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

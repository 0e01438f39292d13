//! The bytes of a request that are being written.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Bytes being written: a piece of the body and its framing.
#[derive(Default)]
pub(super) struct Pieces {
    pub(super) prefix: Bytes,
    pub(super) data: Bytes,
    pub(super) suffix: &'static [u8],
}

impl Pieces {
    /// Unframed bytes.
    pub(super) fn plain(data: Bytes) -> Self {
        Self {
            data,
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.prefix.is_empty() && self.data.is_empty() && self.suffix.is_empty()
    }

    pub(super) fn slices(&self) -> [IoSlice<'_>; 3] {
        [&self.prefix[..], &self.data[..], self.suffix].map(IoSlice::new)
    }

    pub(super) fn advance(&mut self, mut written: usize) {
        for piece in [&mut self.prefix, &mut self.data] {
            let part = written.min(piece.len());
            piece.advance(part);
            written -= part;
        }
        self.suffix = self.suffix.get(written..).unwrap_or_default();
    }
}

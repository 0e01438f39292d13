//! The bytes of a request that are being written.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Bytes being written: a piece of the body and its framing.
#[derive(Default)]
pub(super) struct Pieces {
    prefix: Vec<u8>,
    /// Bytes of the prefix that have been written.
    written: usize,
    pub(super) data: Bytes,
    suffix: &'static [u8],
}

impl Pieces {
    /// Unframed bytes.
    pub(super) fn plain(data: Bytes) -> Self {
        Self {
            data,
            ..Self::default()
        }
    }

    /// A piece of the body between its framing.
    pub(super) fn framed(prefix: Vec<u8>, data: Bytes, suffix: &'static [u8]) -> Self {
        Self {
            prefix,
            written: 0,
            data,
            suffix,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.framing().is_empty() && self.data.is_empty() && self.suffix.is_empty()
    }

    pub(super) fn slices(&self) -> [IoSlice<'_>; 3] {
        [self.framing(), &self.data, self.suffix].map(IoSlice::new)
    }

    pub(super) fn advance(&mut self, mut written: usize) {
        let part = written.min(self.framing().len());
        self.written += part;
        written -= part;
        let part = written.min(self.data.len());
        self.data.advance(part);
        written -= part;
        self.suffix = self.suffix.get(written..).unwrap_or_default();
    }

    /// The unwritten framing in front of the data.
    fn framing(&self) -> &[u8] {
        &self.prefix[self.written..]
    }
}

//! A change of one document.

use std::sync::Arc;

use bytes::Bytes;
use microcache_policy::Time;
use microcache_store::Stored;

use crate::name::DocumentName;

/// The content of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentContent {
    /// The `Content-Type`.
    pub(crate) media_type: Arc<str>,
    pub(crate) body: Bytes,
}

/// An immutable change of a document.
#[derive(Clone, Debug)]
pub(crate) struct DocumentChange {
    pub(crate) number: u64,
    pub(crate) name: DocumentName,
    /// The new content; `None` for a deletion.
    pub(crate) content: Option<DocumentContent>,
    /// Time at which the document expires.
    pub(crate) expires: Option<Time>,
    /// A patch of the previous version, if it is smaller than the content.
    pub(crate) delta: Option<Delta>,
}

/// A merge patch (RFC 7396).
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    /// The number of its base version.
    pub(crate) from: u64,
    pub(crate) patch: Bytes,
}

impl DocumentChange {
    /// Returns the memory counted against `push_memory`, in bytes: what the process uses for the document and its ready
    /// response. Zero for a deletion.
    pub(crate) fn size(&self) -> u64 {
        let Some(DocumentContent { media_type, body }) = &self.content else {
            return 0;
        };
        let delta = self.delta.as_ref();
        let delta = delta.map_or(0, |it| allocated(it.patch.len()) + SHARED);
        let fields = FIELDS + media_type.len() + self.name.len();
        // Small bodies are copied into the stored response, behind its fields.
        let response = if body.len() <= Stored::COMPACT {
            allocated(fields + body.len())
        } else {
            allocated(fields)
        };
        let content = allocated(COUNTS + media_type.len()) + allocated(body.len());
        (self.entry_size() + IN_RESPONSES + content + response + delta) as u64
    }

    /// Returns the memory counted against the limit for deletions, in bytes.
    pub(crate) fn deletion_size(&self) -> u64 {
        if self.is_deletion() {
            self.entry_size() as u64
        } else {
            0
        }
    }

    /// Returns the memory of a change without its content, in bytes.
    fn entry_size(&self) -> usize {
        IN_INDEX + allocated(COUNTS + self.name.len())
    }

    pub(crate) const fn is_deletion(&self) -> bool {
        self.content.is_none()
    }

    /// Returns whether the lifetime has ended, though the document may not have been removed yet.
    pub(crate) fn has_expired(&self, now: Time) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

impl DocumentContent {
    /// Copies the body into an allocation of its own, without spare capacity.
    pub(crate) fn into_compact(self) -> Self {
        Self {
            body: Bytes::copy_from_slice(&self.body),
            ..self
        }
    }
}

/// The largest size class that is not in pages of its own, in bytes.
const MAX_SMALL: usize = 14 * 1024;
/// One page, which jemalloc adds to each allocation in pages: it begins at a random offset (`cache_oblivious`).
const PAGE: usize = 4096;

/// Returns what the allocator takes for an allocation: its size class, of which there are four between one power of two
/// and the next, and a page where it is large.
const fn allocated(bytes: usize) -> usize {
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    let class = bytes.next_multiple_of(bytes.next_power_of_two() / 8);
    if class <= MAX_SMALL {
        class
    } else {
        class + PAGE
    }
}

/// The two reference counts of an `Arc`, in bytes.
const COUNTS: usize = 16;
/// The reference count of shared `Bytes`, in bytes.
const SHARED: usize = 32;
/// A change and its entries in the document index, in bytes.
const IN_INDEX: usize = 352;
/// A stored response, its entry in the table of responses, and the reference counts of both copies of the content, in bytes.
const IN_RESPONSES: usize = 352;
/// The fields of a stored response without media type and name, in bytes.
const FIELDS: usize = 240;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_match_the_allocator() {
        for (bytes, expected) in [
            (0, 0),
            (1, 16),
            (128, 128),
            (129, 160),
            (160, 160),
            (161, 192),
            (250, 256),
            (256, 256),
            (257, 320),
            (14 * 1024, 14 * 1024),
            (14 * 1024 + 1, 20 * 1024),
            (20 * 1024, 24 * 1024),
            (20 * 1024 + 1, 28 * 1024),
            (1 << 20, (1 << 20) + 4096),
        ] {
            assert_eq!(allocated(bytes), expected, "{bytes}");
        }
    }
}

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
    /// Returns the memory counted against `push_memory`, in bytes; zero for a deletion.
    pub(crate) fn size(&self) -> u64 {
        let Some(DocumentContent { media_type, body }) = &self.content else {
            return 0;
        };
        // Small bodies are copied into the stored response.
        let copied = if body.len() <= Stored::COMPACT {
            body.len()
        } else {
            0
        };
        let content = body.len() + copied + media_type.len();
        let delta = self.delta.as_ref().map_or(0, |it| it.patch.len());
        (FIXED + self.name.len() + content + delta) as u64
    }

    /// Returns the memory counted against the limit for deletions, in bytes.
    pub(crate) fn deletion_size(&self) -> u64 {
        if self.is_deletion() {
            (FIXED + self.name.len()) as u64
        } else {
            0
        }
    }

    pub(crate) const fn is_deletion(&self) -> bool {
        self.content.is_none()
    }

    /// Returns whether the lifetime has ended, though the document may not have been removed yet.
    pub(crate) fn has_expired(&self, now: Time) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

/// Fixed memory cost of a document, in bytes: its change and its entries in the index.
const FIXED: usize = 512;

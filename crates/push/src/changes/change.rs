//! A change of one document.

use std::sync::Arc;

use bytes::Bytes;
use microcache_policy::Time;
use microcache_store::Stored;
use microcache_store::allocation::allocated;

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
        let Some(content) = &self.content else {
            return 0;
        };
        let delta = self.delta.as_ref();
        let delta = delta.map_or(0, |it| allocated(it.patch.len()) + SHARED);
        let response = content.response_size(&self.name);
        let content =
            allocated(COUNTS + content.media_type.len()) + allocated(content.body.len()) + SHARED;
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

    /// Returns the memory counted for the ready response of a document, in bytes, beside a body that it shares.
    pub(crate) fn response_size(&self, name: &str) -> usize {
        let fields = FIELDS + self.media_type.len() + name.len();
        // Small bodies are copied into the stored response, behind its fields.
        if self.body.len() <= Stored::COMPACT {
            allocated(Stored::HEAD + fields + self.body.len())
        } else {
            allocated(Stored::HEAD + fields) + Stored::APART
        }
    }
}

/// The two reference counts of an `Arc`, in bytes.
const COUNTS: usize = 16;
/// The reference count of shared `Bytes`, in bytes.
const SHARED: usize = 32;
/// A change and its entries in the document index, in bytes.
const IN_INDEX: usize = 352;
/// An entry in the table of responses, which is half empty after it has grown, in bytes.
const IN_RESPONSES: usize = 96;
/// The fields of a stored response without media type and name, in bytes.
const FIELDS: usize = 240;

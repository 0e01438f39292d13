//! One change of one document.

use std::sync::Arc;

use bytes::Bytes;
use microcache_policy::Time;
use microcache_store::Stored;

use crate::name::Name;

/// What a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// Its `Content-Type`.
    pub(crate) media_type: Arc<str>,
    pub(crate) body: Bytes,
}

/// A document has changed. Nothing of this ever changes.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) name: Name,
    /// What it is now; `None` if it is gone.
    pub(crate) content: Option<Content>,
    /// When it goes by itself.
    pub(crate) expires: Option<Time>,
    /// What turns the version before into this one, where that is less.
    pub(crate) delta: Option<Delta>,
}

/// A merge patch (RFC 7396).
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    /// The number of the version that it applies to.
    pub(crate) from: u64,
    pub(crate) patch: Bytes,
}

impl Change {
    /// What it takes of the bytes that documents may take. What is gone takes none of them.
    pub(crate) fn size(&self) -> u64 {
        let Some(Content { media_type, body }) = &self.content else {
            return 0;
        };
        // Small bodies are copied into the answer that is at hand.
        let copied = if body.len() <= Stored::COMPACT {
            body.len()
        } else {
            0
        };
        let content = body.len() + copied + media_type.len();
        let delta = self.delta.as_ref().map_or(0, |it| it.patch.len());
        (FIXED + self.name.len() + content + delta) as u64
    }

    /// What it takes of those for what is gone.
    pub(crate) fn gone_size(&self) -> u64 {
        if self.is_gone() {
            (FIXED + self.name.len()) as u64
        } else {
            0
        }
    }

    pub(crate) const fn is_gone(&self) -> bool {
        self.content.is_none()
    }

    /// It has had its time, though that may not have been noticed yet.
    pub(crate) fn has_expired(&self, now: Time) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

/// What a document takes without its bytes: its change and its places in the books.
const FIXED: usize = 512;

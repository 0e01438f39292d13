//! Stored responses, as they are made and changed.

use std::sync::Arc;

use microcache_policy::edge::PagePieces;
use microcache_policy::vary::VaryNames;
use microcache_policy::{Fields, Lifetime, Time};
use once_cell::race::OnceBox;
use triomphe::ThinArc;

use super::block::{BlockHead, Stored, VarySelection};
use super::late::LateParts;
use crate::content::Content;
use crate::encodings::{LazyEncodings, ResponseEncodings};
use crate::eviction::FetchCost;
use crate::key_notes::KeyNotes;
use crate::log_position::LogPositions;
use crate::tags::TagNumbers;

impl Stored {
    /// Creates a stored response. In memory under another key, it is copied.
    pub fn new(
        key: &[u8],
        status: u16,
        fields: Fields<'_>,
        body: Content,
        lifetime: Lifetime,
        began: Time,
    ) -> Self {
        let mut head = BlockHead::new(status);
        head.set_times(lifetime, began);
        Self::assemble(head, key, fields, body)
    }

    /// Notes about a key without a response.
    pub(crate) fn no_response(key: &[u8]) -> Self {
        let head = BlockHead::new(Self::NO_STATUS);
        Self::assemble(head, key, Fields::default(), Content::default())
    }

    /// Sets the request fields that select the response, with their normalized values.
    #[must_use]
    pub fn with_vary(mut self, names: VaryNames, selection: &[u8]) -> Self {
        let varies = (!names.is_empty()).then(|| VarySelection {
            names,
            selection: selection.into(),
        });
        let has_any = varies.is_some();
        self.change(|head| head.change_rare(has_any, |rare| rare.varies = varies));
        self
    }

    /// Sets the tags.
    #[must_use]
    pub fn with_tags(mut self, tags: TagNumbers) -> Self {
        let has_any = !tags.is_empty();
        self.change(|head| head.change_rare(has_any, |rare| rare.tags = tags));
        self
    }

    /// Sets the parts of a page whose tags are replaced. They are offsets in its body.
    #[must_use]
    pub fn with_pieces(mut self, pieces: Option<Arc<PagePieces>>) -> Self {
        let has_any = pieces.is_some();
        self.change(|head| head.change_rare(has_any, |rare| rare.pieces = pieces));
        self
    }

    /// Sets the cost of fetching it again.
    #[must_use]
    pub fn with_cost(mut self, cost: FetchCost) -> Self {
        self.change(|head| head.cost = cost);
        self
    }

    /// Sets the log positions up to which purges were known when it was fetched.
    #[must_use]
    pub fn with_purges_known(mut self, purges_known: LogPositions) -> Self {
        let is_any = purges_known.iter().any(|position| *position > 0);
        let purges_known = is_any.then(|| Box::new(purges_known));
        self.change(|head| head.change_rare(is_any, |rare| rare.purges_known = purges_known));
        self
    }

    /// Sets encodings of the same body that were made for another response.
    #[must_use]
    pub fn with_encodings(mut self, encoded: ResponseEncodings) -> Self {
        let late = LateParts::of(LazyEncodings::of(encoded));
        self.change(|head| head.late = OnceBox::with_value(Box::new(late)));
        self
    }

    /// Makes it stale as of `at`; see [`Lifetime::expire`].
    pub fn expire(&mut self, at: Time) {
        let (lifetime, began) = (self.lifetime_expired(at), self.began());
        self.change(|head| head.set_times(lifetime, began));
    }

    /// Copies the response with other header fields, without what was derived from them.
    #[must_use]
    pub fn with_fields(&self, fields: Fields<'_>) -> Self {
        let mut head = self.head().copy();
        head.late = OnceBox::new();
        Self::assemble(head, self.key(), fields, self.content())
    }

    /// Copies the response with another representation of its body.
    #[must_use]
    pub fn with_body(&self, body: Content) -> Self {
        Self::assemble(self.head().copy(), self.key(), self.fields(), body)
    }

    /// Copies the response with another lifetime, after a revalidation or a purge. The log positions are
    /// dropped: in memory, each purge is checked as it arrives.
    #[must_use]
    pub fn with_lifetime(&self, lifetime: Lifetime) -> Self {
        let mut head = self.head().copy();
        head.set_times(lifetime, self.began());
        head.change_rare(false, |rare| {
            rare.purges_known = None;
            rare.notes = None;
            rare.others = None;
        });
        head.late = match head.late.get() {
            Some(late) => OnceBox::with_value(Box::new(LateParts::of(late.encodings.clone()))),
            None => OnceBox::new(),
        };
        Self(ThinArc::from_header_and_slice(head, &self.0.slice))
    }

    /// Returns the response with this key.
    pub(crate) fn with_key(self, key: &[u8]) -> Self {
        if self.key() == key {
            self
        } else {
            Self::assemble(self.head().copy(), key, self.fields(), self.content())
        }
    }

    /// Sets the notes about the key, and its other variants.
    pub(crate) fn leading(mut self, notes: Option<Box<KeyNotes>>, others: Box<[Self]>) -> Self {
        let others = (!others.is_empty()).then_some(others);
        let has_any = notes.is_some() || others.is_some();
        if has_any || self.notes().is_some() || !self.others().is_empty() {
            self.change(|head| {
                head.change_rare(has_any, |rare| {
                    rare.notes = notes;
                    rare.others = others;
                });
            });
        }
        self
    }

    fn assemble(mut head: BlockHead, key: &[u8], fields: Fields<'_>, body: Content) -> Self {
        let fields = fields.as_block();
        let content = match &body {
            Content::Bytes(bytes) if bytes.len() <= Self::COMPACT => &bytes[..],
            _ => &[],
        };
        head.key_len = key.len() as u32;
        head.fields_len = fields.len() as u32;
        let block = [key, fields, content].concat();
        let is_apart = content.len() as u64 != body.len();
        head.change_rare(is_apart, |rare| rare.content = is_apart.then_some(body));
        Self(ThinArc::from_header_and_slice(head, &block))
    }

    /// Changes the head of a block that nothing else refers to, or else that of a copy.
    fn change(&mut self, change: impl FnOnce(&mut BlockHead)) {
        let mut change = Some(change);
        self.0.with_arc_mut(|block| {
            if let Some(block) = triomphe::Arc::get_mut(block)
                && let Some(change) = change.take()
            {
                change(block.header_mut());
            }
        });
        if let Some(change) = change {
            let mut head = self.head().copy();
            change(&mut head);
            self.0 = ThinArc::from_header_and_slice(head, &self.0.slice);
        }
    }
}

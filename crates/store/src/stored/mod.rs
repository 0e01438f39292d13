//! Stored responses, as they are read.

mod block;
mod build;
mod late;
mod place;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use microcache_policy::edge::PagePieces;
use microcache_policy::vary::VaryNames;
use microcache_policy::{Fields, Lifetime, Rules, Time, stated_lifetime};

use crate::allocation::allocated;
use crate::content::{Content, FileBody};
use crate::encodings::{BodyEncodings, ResponseEncodings};
use crate::eviction::FetchCost;
use crate::key_notes::KeyNotes;
use crate::key_update::KeyUpdate;
use crate::log_position::{LOG_COPIES, LogPositions};
use crate::tags::TagNumbers;
pub use block::Stored;
use block::{RareParts, VarySelection};
pub(crate) use late::RevalidationState;
pub(crate) use place::{RecentUses, TablePlace};

impl Stored {
    /// Cost of fetching it again, which is that of the fetch of its body: a revalidation may be cheaper.
    pub fn cost(&self) -> FetchCost {
        self.head().cost
    }

    /// Its lifetime, stale as of `at`.
    pub fn lifetime_expired(&self, at: Time) -> Lifetime {
        let mut lifetime = self.lifetime();
        lifetime.expire(at, stated_lifetime(self.fields()));
        lifetime
    }

    /// Notes about the key, if there are any.
    #[inline]
    pub(crate) fn notes(&self) -> Option<&KeyNotes> {
        self.rare().notes.as_deref()
    }

    /// Other variants of the key.
    #[inline]
    pub(crate) fn others(&self) -> &[Self] {
        self.rare().others.as_deref().unwrap_or_default()
    }

    /// Returns whether it is a response that all requests for its key select, with its body: the case of most.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.is_response() && self.head().rare.is_none()
    }

    /// Returns whether it is a response, not only the place of notes about a key.
    pub(crate) fn is_response(&self) -> bool {
        self.status() != Self::NO_STATUS
    }

    pub(crate) fn place(&self) -> &TablePlace {
        &self.head().place
    }

    #[inline]
    pub(crate) fn recent_uses(&self) -> &RecentUses {
        &self.head().recent_uses
    }

    /// Cache key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.0.slice[..self.head().key_len as usize]
    }

    /// Status code.
    #[inline]
    pub fn status(&self) -> u16 {
        self.head().status
    }

    /// Freshness lifetime and age.
    #[inline]
    pub fn lifetime(&self) -> Lifetime {
        match self.exact_times() {
            None => self.head().lifetime.lifetime(),
            Some(exact) => exact.lifetime,
        }
    }

    /// Time of the request that fetched it; a later purge applies to this response.
    pub fn began(&self) -> Time {
        let head = self.head();
        match self.exact_times() {
            None => head.lifetime.response_time().before(head.took.into()),
            Some(exact) => exact.began,
        }
    }

    /// Surrogate keys, for purges by tag.
    pub fn tags(&self) -> &TagNumbers {
        &self.rare().tags
    }

    /// Parts of a page whose tags are replaced.
    #[inline]
    pub fn pieces(&self) -> Option<&Arc<PagePieces>> {
        self.head().rare.as_ref()?.pieces.as_ref()
    }

    /// Position in each copy of the shared purge log up to which purges were known before the response was
    /// requested. Later ones apply to it, regardless of clocks.
    pub fn purges_known(&self) -> LogPositions {
        let known = self.rare().purges_known.as_deref();
        known.copied().unwrap_or([0; LOG_COPIES])
    }

    /// Returns the number of the latest purge rule that has been checked.
    pub fn purges_checked(&self) -> u64 {
        self.head().purges_checked.load(Ordering::Relaxed)
    }

    /// Records that the purge rules up to this number have been checked.
    pub fn set_purges_checked(&self, number: u64) {
        let checked = &self.head().purges_checked;
        checked.fetch_max(number, Ordering::Relaxed);
    }

    /// Approximate number of uses.
    pub fn uses(&self) -> u32 {
        self.head().uses.load(Ordering::Relaxed)
    }

    /// Counts a use.
    #[inline]
    pub(crate) fn count_use(&self) {
        // A separate load and store, to avoid a locked instruction per hit.
        let uses = self.uses().saturating_add(1);
        self.head().uses.store(uses, Ordering::Relaxed);
    }

    /// Vary names.
    #[inline]
    pub fn vary(&self) -> &VaryNames {
        let varies = self.rare().varies.as_ref();
        varies.map_or(&VaryNames::NONE, |it| &it.names)
    }

    /// Normalized values of these request fields.
    #[inline]
    pub fn selection(&self) -> &[u8] {
        let varies = self.rare().varies.as_ref();
        varies.map_or(&[], |it| &it.selection)
    }

    /// Header fields as sent, without framing fields and `Age`.
    #[inline]
    pub fn fields(&self) -> Fields<'_> {
        let head = self.head();
        let start = head.key_len as usize;
        Fields::new(&self.0.slice[start..start + head.fields_len as usize])
    }

    /// Body, if it is in memory.
    #[inline]
    pub fn body(&self) -> Option<&[u8]> {
        match &self.rare().content {
            None => Some(self.rest()),
            Some(content) => content.bytes().map(|bytes| &bytes[..]),
        }
    }

    /// Body, if it is in memory, which keeps the response in memory too.
    pub fn shared_body(&self) -> Option<Bytes> {
        match self.content() {
            Content::Bytes(bytes) => Some(bytes),
            Content::File(_) | Content::Weak(_) => None,
        }
    }

    /// Body, if it is in memory, which does not keep the response.
    pub fn separate_body(&self) -> Option<Bytes> {
        match &self.rare().content {
            None => Some(Bytes::copy_from_slice(self.rest())),
            Some(content) => content.bytes().cloned(),
        }
    }

    /// Complete body.
    pub fn content(&self) -> Content {
        match &self.rare().content {
            None if self.rest().is_empty() => Content::default(),
            None => Bytes::from_owner(BlockBody(self.clone())).into(),
            Some(content) => content.clone(),
        }
    }

    /// Length of the body, in bytes.
    #[expect(
        clippy::inline_always,
        reason = "a hit has looked where its body is, and would look again"
    )]
    #[inline(always)]
    pub fn body_len(&self) -> u64 {
        match &self.rare().content {
            None => self.rest().len() as u64,
            Some(content) => content.len(),
        }
    }

    /// File of the body, if it has one that is not closed.
    pub fn file_of_body(&self) -> Option<Arc<FileBody>> {
        self.rare().content.as_ref().and_then(Content::file)
    }

    /// Returns whether the file of the body has been closed.
    pub fn has_lost_its_file(&self) -> bool {
        self.rare().content.as_ref().is_some_and(Content::is_gone)
    }

    /// Returns the properties that update the notes of its key.
    pub fn key_update<'a>(&'a self, rules: &'a Rules) -> KeyUpdate<'a> {
        KeyUpdate {
            fields: self.fields(),
            rules,
            vary: self.vary(),
            selection: self.selection(),
            usable_until: self.lifetime().usable_until(),
        }
    }

    /// Decides whether it may have encodings, once per number of the settings.
    pub(crate) fn may_be_encoded(&self, settings: u32, may_be: impl FnOnce(&Self) -> bool) -> bool {
        let decision = &self.head().may_be_encoded;
        decision.may_be(settings, || may_be(self))
    }

    /// Returns the encodings, created on the first call.
    pub(crate) fn encoded(&self) -> &ResponseEncodings {
        self.late().encodings.get()
    }

    /// Returns the encodings, if already created.
    pub fn known_encoded(&self) -> Option<&ResponseEncodings> {
        self.head().late.get()?.encodings.known()
    }

    /// Time of the last use, in ticks, for comparison only; 0 if never used.
    pub(crate) fn last_use(&self) -> u32 {
        self.head().used.load(Ordering::Relaxed)
    }

    pub(crate) fn record_use(&self, now: Time) {
        let tick = (now.as_millis() / Self::TICK) as u32;
        if self.last_use() != tick {
            self.head().used.store(tick, Ordering::Relaxed);
        }
    }

    /// Takes over the last use of the response that it replaces.
    pub(crate) fn inherit_use(&self, other: &Self) {
        let used = &self.head().used;
        used.fetch_max(other.last_use(), Ordering::Relaxed);
    }

    /// State of its revalidation, created on the first call.
    pub(crate) fn revalidation(&self) -> &RevalidationState {
        self.late().revalidation()
    }

    /// State of its revalidation, if already created.
    pub(crate) fn known_revalidation(&self) -> Option<&RevalidationState> {
        self.head().late.get()?.known_revalidation()
    }

    /// Memory used, in bytes, without notes and other variants of the key.
    pub fn weight(&self) -> usize {
        let head = self.head();
        let rare = head.rare.as_deref().map_or(0, RareParts::heap_size);
        let late = head.late.get().map_or(0, |late| {
            late.heap_size(head.fields_len as usize, self.body())
        });
        allocated(Self::HEAD + self.0.slice.len()) + rare + late
    }

    /// Length of the response, in bytes: of what is compared with the limit of a response.
    pub(crate) fn own_size(&self) -> usize {
        let rare = self.rare();
        let apart = match &rare.content {
            None => 0,
            Some(Content::Bytes(bytes)) => bytes.len(),
            Some(file) => file.heap_size(),
        };
        self.head().fields_len as usize
            + self.rest().len()
            + apart
            + rare.varies.as_ref().map_or(0, VarySelection::heap_size)
            + rare.tags.heap_size()
            + rare.pieces.as_ref().map_or(0, |pieces| pieces.heap_size())
    }
}

/// The body in a block.
struct BlockBody(Stored);

impl AsRef<[u8]> for BlockBody {
    fn as_ref(&self) -> &[u8] {
        self.0.rest()
    }
}

impl BodyEncodings {
    /// Returns the encodings of a body that replaces that of `before`, with at most `most` earlier versions
    /// that fit into `room` bytes.
    pub fn after(before: &Stored, most: usize, room: u64) -> Self {
        let known = before.known_encoded().map(|encoded| &**encoded.bodies());
        Self::succeeding(known, || before.separate_body(), most, room)
    }
}

#[cfg(test)]
mod tests;

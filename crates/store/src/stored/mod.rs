//! Stored responses.

mod late;
mod place;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use microcache_policy::edge::PagePieces;
use microcache_policy::vary::VaryNames;
use microcache_policy::{CompactLifetime, Fields, Lifetime, Millis, Rules, Time, stated_lifetime};
use once_cell::race::OnceBox;
use triomphe::ThinArc;

use crate::allocation::allocated;
use crate::content::{Content, FileBody};
use crate::encodings::{BodyEncodings, CachedDecision, LazyEncodings, ResponseEncodings};
use crate::eviction::FetchCost;
use crate::key_notes::KeyNotes;
use crate::key_update::KeyUpdate;
use crate::log_position::{LOG_COPIES, LogPositions};
use crate::tags::TagNumbers;
use late::LateParts;
pub(crate) use place::{RecentUses, TablePlace};

/// Complete response: one block of memory with a head of fixed size, the key, the header fields, and a body of up to
/// [`Stored::COMPACT`] bytes. Clones share the block.
#[derive(Clone, Debug)]
pub struct Stored(ThinArc<BlockHead, u8>);

/// Beginning of a block.
#[derive(Debug)]
struct BlockHead {
    place: TablePlace,
    key_len: u32,
    fields_len: u32,
    /// Time from the request to the receipt, in milliseconds. Unused with [`RareParts::times`].
    took: u32,
    /// Unused with [`RareParts::times`].
    lifetime: CompactLifetime,
    status: u16,
    recent_uses: RecentUses,
    cost: FetchCost,
    /// Approximate number of uses; concurrent ones may be counted once.
    uses: AtomicU32,
    /// Time of the last use, in units of [`Stored::TICK`]; 0 if never used.
    used: AtomicU32,
    may_be_encoded: CachedDecision,
    /// Number of the latest purge rule that has been checked against this response.
    purges_checked: AtomicU64,
    rare: Option<Box<RareParts>>,
    late: OnceBox<LateParts>,
}

const _: () = assert!(Stored::HEAD <= 104);

/// Parts that few responses have.
#[derive(Clone, Debug, Default)]
struct RareParts {
    /// Times that the head cannot represent.
    times: Option<Box<ExactTimes>>,
    /// Body that is not part of the block.
    content: Option<Content>,
    varies: Option<VarySelection>,
    /// Surrogate keys, for purges by tag.
    tags: TagNumbers,
    /// Parts of a page with tags.
    pieces: Option<Arc<PagePieces>>,
    /// See [`Stored::purges_known`].
    purges_known: Option<Box<LogPositions>>,
    /// Notes about the key, and its other variants, if the response leads the object of a key.
    notes: Option<Box<KeyNotes>>,
    others: Option<Box<[Stored]>>,
}

#[derive(Clone, Copy, Debug)]
struct ExactTimes {
    lifetime: Lifetime,
    began: Time,
}

/// Request fields that selected a response, with their normalized values.
#[derive(Clone, Debug)]
struct VarySelection {
    names: VaryNames,
    selection: Box<[u8]>,
}

/// Parts of a response that has none of them.
static NO_PARTS: RareParts = RareParts {
    times: None,
    content: None,
    varies: None,
    tags: TagNumbers::NONE,
    pieces: None,
    purges_known: None,
    notes: None,
    others: None,
};

impl Stored {
    /// Size up to which bodies are part of the block, in bytes, which saves a cache miss per hit.
    pub const COMPACT: usize = 16 * 1024;
    /// Memory in front of the bytes of a block, in bytes.
    pub const HEAD: usize = size_of::<BlockHead>() + 2 * size_of::<usize>();
    /// Memory of a body that is not part of the block, in addition to the body, in bytes.
    pub const APART: usize = allocated(size_of::<RareParts>());
    /// Resolution of the last use, in milliseconds. Further uses within a tick write nothing.
    const TICK: Millis = 16;
    /// Status of the object of a key without a response.
    const NO_STATUS: u16 = 0;

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

    /// Cost of fetching it again, which is that of the fetch of its body: a revalidation may be cheaper.
    pub fn cost(&self) -> FetchCost {
        self.head().cost
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

    /// Its lifetime, stale as of `at`.
    pub fn lifetime_expired(&self, at: Time) -> Lifetime {
        let mut lifetime = self.lifetime();
        lifetime.expire(at, stated_lifetime(self.fields()));
        lifetime
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
    pub fn count_use(&self) {
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
    #[inline]
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

    /// Returns the encodings. `may_be` decides whether there may be any, once per number of the settings.
    pub fn encoded(
        &self,
        settings: u32,
        may_be: impl FnOnce(&Self) -> bool,
    ) -> Option<&ResponseEncodings> {
        let decision = &self.head().may_be_encoded;
        let may_be = decision.may_be(settings, || may_be(self));
        may_be.then(|| self.late().encodings.get())
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

    /// Counts a use of the stale response, and returns whether the caller is to revalidate it. No other
    /// caller is selected for `pause` milliseconds.
    pub fn claim_refresh(&self, now: Time, pause: Millis) -> bool {
        self.late().revalidation().claim(now, pause)
    }

    /// Number of uses since the response became stale.
    pub fn demand(&self) -> &Arc<AtomicU32> {
        &self.late().revalidation().demand
    }

    /// Memory used, in bytes, without notes and other variants of the key.
    pub fn weight(&self) -> usize {
        let head = self.head();
        let rare = head.rare.as_deref().map_or(0, RareParts::heap_size);
        let late = head.late.get().map_or(0, |late| {
            allocated(size_of::<LateParts>()) + late.encodings.heap_size(head.fields_len as usize)
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

    #[inline]
    fn head(&self) -> &BlockHead {
        &self.0.header.header
    }

    #[inline]
    fn rare(&self) -> &RareParts {
        self.head().rare.as_deref().unwrap_or(&NO_PARTS)
    }

    #[inline]
    fn exact_times(&self) -> Option<&ExactTimes> {
        self.head().rare.as_ref()?.times.as_deref()
    }

    fn late(&self) -> &LateParts {
        self.head().late.get_or_init(Box::default)
    }

    /// The block behind the fields.
    #[inline]
    fn rest(&self) -> &[u8] {
        let head = self.head();
        &self.0.slice[head.key_len as usize + head.fields_len as usize..]
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

/// The body in a block.
struct BlockBody(Stored);

impl AsRef<[u8]> for BlockBody {
    fn as_ref(&self) -> &[u8] {
        self.0.rest()
    }
}

impl BlockHead {
    fn new(status: u16) -> Self {
        Self {
            place: TablePlace::default(),
            key_len: 0,
            fields_len: 0,
            took: 0,
            lifetime: CompactLifetime::default(),
            status,
            recent_uses: RecentUses::default(),
            cost: FetchCost::default(),
            uses: AtomicU32::new(0),
            used: AtomicU32::new(0),
            may_be_encoded: CachedDecision::default(),
            purges_checked: AtomicU64::new(0),
            rare: None,
            late: OnceBox::new(),
        }
    }

    /// Copies all but the place in the table.
    fn copy(&self) -> Self {
        let late = self.late.get().cloned().map(Box::new);
        Self {
            place: TablePlace::default(),
            key_len: self.key_len,
            fields_len: self.fields_len,
            took: self.took,
            lifetime: self.lifetime,
            status: self.status,
            recent_uses: RecentUses::default(),
            cost: self.cost,
            uses: AtomicU32::new(self.uses.load(Ordering::Relaxed)),
            used: AtomicU32::new(self.used.load(Ordering::Relaxed)),
            may_be_encoded: self.may_be_encoded.clone(),
            purges_checked: AtomicU64::new(self.purges_checked.load(Ordering::Relaxed)),
            rare: self.rare.clone(),
            late: late.map_or_else(OnceBox::new, OnceBox::with_value),
        }
    }

    fn set_times(&mut self, lifetime: Lifetime, began: Time) {
        let received = lifetime.response_time().as_millis();
        let took = received.checked_sub(began.as_millis());
        let took = took.and_then(|took| u32::try_from(took).ok());
        let compact = CompactLifetime::of(&lifetime).zip(took);
        let exact = compact.is_none();
        (self.lifetime, self.took) = compact.unwrap_or_default();
        self.change_rare(exact, |rare| {
            rare.times = exact.then(|| Box::new(ExactTimes { lifetime, began }));
        });
    }

    /// Changes the rare parts, and drops those of a response that has none. A change that adds nothing to a response
    /// without any is left out.
    fn change_rare(&mut self, adds: bool, change: impl FnOnce(&mut RareParts)) {
        if !adds && self.rare.is_none() {
            return;
        }
        let mut none = RareParts::default();
        let rare = self.rare.as_deref_mut().unwrap_or(&mut none);
        change(rare);
        let is_empty = rare.is_empty();
        if is_empty {
            self.rare = None;
        } else if self.rare.is_none() {
            self.rare = Some(Box::new(none));
        }
    }
}

impl RareParts {
    const fn is_empty(&self) -> bool {
        self.times.is_none()
            && self.content.is_none()
            && self.varies.is_none()
            && self.tags.is_empty()
            && self.pieces.is_none()
            && self.purges_known.is_none()
            && self.notes.is_none()
            && self.others.is_none()
    }

    /// Memory used, in bytes, without notes and other variants.
    fn heap_size(&self) -> usize {
        let boxed = |size: usize, is_some: bool| if is_some { allocated(size) } else { 0 };
        Stored::APART
            + boxed(size_of::<ExactTimes>(), self.times.is_some())
            + boxed(size_of::<LogPositions>(), self.purges_known.is_some())
            + self.content.as_ref().map_or(0, Content::heap_size)
            + self.varies.as_ref().map_or(0, VarySelection::heap_size)
            + self.tags.heap_size()
            + self.pieces.as_ref().map_or(0, |pieces| pieces.heap_size())
    }
}

impl VarySelection {
    fn heap_size(&self) -> usize {
        allocated(self.names.as_bytes().len()) + allocated(self.selection.len())
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

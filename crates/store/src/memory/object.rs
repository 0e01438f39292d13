//! Objects of the memory tier, and hits on them.

use std::ops::Deref;
use std::sync::Arc;

use microcache_policy::vary::{self, Selection, VaryNames};
use microcache_policy::{Detail, OriginView, Time};
use smallvec::SmallVec;

use super::variant_matcher::VariantMatcher;
use crate::allocation::allocated;
use crate::content::FileBody;
use crate::key_notes::{KeyNotes, NOTHING};
use crate::stored::Stored;

/// Cache key, shared by its users.
pub type Key = Arc<[u8]>;

/// Variants of a key, latest last.
pub(super) type Variants = SmallVec<[Stored; 1]>;

/// Cached responses of one key, with notes about it: the latest response, which leads the others. Clones share it.
#[derive(Clone, Debug)]
pub struct Object(Stored);

impl Object {
    /// Memory per key in addition to the responses: a slot in the index and one in the queue, as far as they are in
    /// use. `tests/it/memory.rs` compares the sum with the memory of the process.
    pub(super) const OVERHEAD: usize = 48;

    pub(super) fn new(key: &[u8], notes: KeyNotes, mut variants: Variants) -> Self {
        let latest = match variants.pop() {
            Some(latest) => latest.with_key(key),
            None => Stored::no_response(key),
        };
        let others = variants
            .into_iter()
            .map(|one| one.leading(None, Box::default()));
        Self(latest.leading(notes.compact(), others.collect()))
    }

    /// A response that is not stored.
    pub(super) const fn detached(stored: Stored) -> Self {
        Self(stored)
    }

    /// Latest response of the key, or the place of notes about it.
    #[inline]
    pub(super) const fn latest(&self) -> &Stored {
        &self.0
    }

    /// Cache key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Memory used, in bytes.
    pub(super) fn weight(&self) -> u64 {
        let notes = self.0.notes().map_or(0, KeyNotes::heap_size);
        let others = self.0.others();
        let others =
            allocated(size_of_val(others)) + others.iter().map(Stored::weight).sum::<usize>();
        (Self::OVERHEAD + self.0.weight() + notes + others) as u64
    }

    #[inline]
    pub(super) fn notes(&self) -> &KeyNotes {
        self.0.notes().unwrap_or(&NOTHING)
    }

    /// Returns whether there is neither a response nor a note.
    pub(super) fn is_empty(&self) -> bool {
        !self.0.is_response() && self.0.notes().is_none()
    }

    /// Variants stored for this key, latest last.
    pub fn variants(&self) -> impl DoubleEndedIterator<Item = &Stored> {
        let latest = self.0.is_response().then_some(&self.0);
        self.0.others().iter().chain(latest)
    }

    /// Returns the selection of a request: equal for requests that can share a response.
    pub fn selection(&self, request: &OriginView<'_>) -> Selection {
        self.notes().selection(request)
    }

    /// Returns the Vary names of the key, with the values of a request in these fields.
    pub fn vary_and_selection(&self, request: &OriginView<'_>) -> (&VaryNames, Selection) {
        let mut selection = Selection::new();
        vary::select(&self.notes().vary, request, &mut selection);
        (&self.notes().vary, selection)
    }

    /// Iterates over the variants that a request selects.
    pub fn selected<'a>(&'a self, request: &'a OriginView<'a>) -> impl Iterator<Item = &'a Stored> {
        let mut selects = VariantMatcher::by(request, self.notes());
        self.variants().filter(move |one| selects.one(one))
    }

    /// Returns the names that a response varies on, given those it lists itself.
    pub fn vary_of(&self, named: VaryNames, now: Time) -> VaryNames {
        self.notes().vary_of(named, now)
    }

    /// Returns why responses to this [`Object::selection`] are expected not to be storable, if they are.
    pub fn uncacheable(&self, selection: &[u8], now: Time) -> Option<Detail> {
        self.notes().marked(selection, now)
    }

    /// Returns the latest variant that a request selects, or the object if there is none.
    #[inline]
    pub fn select(self, request: &OriginView<'_>, now: Time) -> Result<Hit, Self> {
        if self.0.is_alone() {
            return Ok(Hit::latest(self, None));
        }
        let mut selects = VariantMatcher::by(request, self.notes());
        let others = self.0.others();
        let index = if self.0.is_response() && selects.one(&self.0) {
            Some(Hit::LATEST)
        } else {
            others.iter().rposition(|one| selects.one(one))
        };
        let Some(index) = index else {
            return Err(self);
        };
        // The use only matters for evicting one of several variants.
        if !others.is_empty() {
            others.get(index).unwrap_or(&self.0).record_use(now);
        }
        Hit::new(self, index)
    }

    /// Counts a use of the key for eviction.
    #[inline]
    pub fn count_use(&self) {
        self.0.recent_uses().count();
    }

    /// Returns whether the file of a body has been closed, so that it is to be looked up in its tier again.
    pub fn has_lost_a_file(&self) -> bool {
        self.variants().any(Stored::has_lost_its_file)
    }
}

/// Reference to a response in memory, which outlives its eviction.
#[derive(Clone, Debug)]
pub struct Hit {
    object: Object,
    /// Number among the other variants of the object, or [`Hit::LATEST`].
    index: usize,
    /// File of the body, kept open.
    file: Option<Arc<FileBody>>,
}

impl Deref for Hit {
    type Target = Stored;
    #[inline]
    fn deref(&self) -> &Stored {
        let latest = &self.object.0;
        if self.index == Self::LATEST {
            latest
        } else {
            latest.others().get(self.index).unwrap_or(latest)
        }
    }
}

impl Hit {
    const LATEST: usize = usize::MAX;

    /// Fails if the file of the body has been closed.
    #[inline]
    fn new(object: Object, index: usize) -> Result<Self, Object> {
        let hit = Self {
            object,
            index,
            file: None,
        };
        if hit.body().is_some() {
            return Ok(hit);
        }
        match hit.file_of_body() {
            Some(file) => Ok(Self {
                file: Some(file),
                ..hit
            }),
            None => Err(hit.object),
        }
    }

    /// Reference to the latest variant of an object.
    pub(super) const fn latest(object: Object, file: Option<Arc<FileBody>>) -> Self {
        Self {
            object,
            index: Self::LATEST,
            file,
        }
    }

    /// Counts a use of the response, and of its key.
    #[inline]
    pub fn count_use(&self) {
        self.object.count_use();
        Stored::count_use(self);
    }

    /// File of the body, if it is not in memory.
    pub const fn file(&self) -> Option<&Arc<FileBody>> {
        self.file.as_ref()
    }

    /// All stored data of the key.
    pub const fn object(&self) -> &Object {
        &self.object
    }
}

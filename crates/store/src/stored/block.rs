//! The block of memory of a stored response: its head, its bytes, and the parts that few responses have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use microcache_policy::edge::PagePieces;
use microcache_policy::vary::VaryNames;
use microcache_policy::{CompactLifetime, Lifetime, Millis, Time};
use once_cell::race::OnceBox;
use triomphe::ThinArc;

use super::late::LateParts;
use super::place::{RecentUses, TablePlace};
use crate::allocation::allocated;
use crate::content::Content;
use crate::encodings::CachedDecision;
use crate::eviction::FetchCost;
use crate::key_notes::KeyNotes;
use crate::log_position::LogPositions;
use crate::tags::TagNumbers;

/// Complete response: one block of memory with a head of fixed size, the key, the header fields, and a body of up to
/// [`Stored::COMPACT`] bytes. Clones share the block.
#[derive(Clone, Debug)]
pub struct Stored(pub(super) ThinArc<BlockHead, u8>);

const _: () = assert!(Stored::HEAD <= 104);

impl Stored {
    /// Size up to which bodies are part of the block, in bytes, which saves a cache miss per hit.
    pub const COMPACT: usize = 16 * 1024;
    /// Memory in front of the bytes of a block, in bytes.
    pub const HEAD: usize = size_of::<BlockHead>() + 2 * size_of::<usize>();
    /// Memory of a body that is not part of the block, in addition to the body, in bytes.
    pub const APART: usize = allocated(size_of::<RareParts>());
    /// Resolution of the last use, in milliseconds. Further uses within a tick write nothing.
    pub(super) const TICK: Millis = 16;
    /// Status of the object of a key without a response.
    pub(super) const NO_STATUS: u16 = 0;

    #[inline]
    pub(super) fn head(&self) -> &BlockHead {
        &self.0.header.header
    }

    #[inline]
    pub(super) fn rare(&self) -> &RareParts {
        self.head().rare.as_deref().unwrap_or(&NO_PARTS)
    }

    #[inline]
    pub(super) fn exact_times(&self) -> Option<&ExactTimes> {
        self.head().rare.as_ref()?.times.as_deref()
    }

    pub(super) fn late(&self) -> &LateParts {
        self.head().late.get_or_init(Box::default)
    }

    /// The block behind the fields.
    #[inline]
    pub(super) fn rest(&self) -> &[u8] {
        let head = self.head();
        &self.0.slice[head.key_len as usize + head.fields_len as usize..]
    }
}

/// Beginning of a block.
#[derive(Debug)]
pub(super) struct BlockHead {
    pub(super) place: TablePlace,
    pub(super) key_len: u32,
    pub(super) fields_len: u32,
    /// Time from the request to the receipt, in milliseconds. Unused with [`RareParts::times`].
    pub(super) took: u32,
    /// Unused with [`RareParts::times`].
    pub(super) lifetime: CompactLifetime,
    pub(super) status: u16,
    pub(super) recent_uses: RecentUses,
    pub(super) cost: FetchCost,
    /// Approximate number of uses; concurrent ones may be counted once.
    pub(super) uses: AtomicU32,
    /// Time of the last use, in units of [`Stored::TICK`]; 0 if never used.
    pub(super) used: AtomicU32,
    pub(super) may_be_encoded: CachedDecision,
    /// Number of the latest purge rule that has been checked against this response.
    pub(super) purges_checked: AtomicU64,
    pub(super) rare: Option<Box<RareParts>>,
    pub(super) late: OnceBox<LateParts>,
}

/// Parts that few responses have.
#[derive(Clone, Debug, Default)]
pub(super) struct RareParts {
    /// Times that the head cannot represent.
    pub(super) times: Option<Box<ExactTimes>>,
    /// Body that is not part of the block.
    pub(super) content: Option<Content>,
    pub(super) varies: Option<VarySelection>,
    /// Surrogate keys, for purges by tag.
    pub(super) tags: TagNumbers,
    /// Parts of a page with tags.
    pub(super) pieces: Option<Arc<PagePieces>>,
    /// See [`Stored::purges_known`].
    pub(super) purges_known: Option<Box<LogPositions>>,
    /// Notes about the key, and its other variants, if the response leads the object of a key.
    pub(super) notes: Option<Box<KeyNotes>>,
    pub(super) others: Option<Box<[Stored]>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExactTimes {
    pub(super) lifetime: Lifetime,
    pub(super) began: Time,
}

/// Request fields that selected a response, with their normalized values.
#[derive(Clone, Debug)]
pub(super) struct VarySelection {
    pub(super) names: VaryNames,
    pub(super) selection: Box<[u8]>,
}

/// Parts of a response that has none of them.
pub(super) static NO_PARTS: RareParts = RareParts {
    times: None,
    content: None,
    varies: None,
    tags: TagNumbers::NONE,
    pieces: None,
    purges_known: None,
    notes: None,
    others: None,
};

impl BlockHead {
    pub(super) fn new(status: u16) -> Self {
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
    pub(super) fn copy(&self) -> Self {
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

    pub(super) fn set_times(&mut self, lifetime: Lifetime, began: Time) {
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
    pub(super) fn change_rare(&mut self, adds: bool, change: impl FnOnce(&mut RareParts)) {
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
    pub(super) fn heap_size(&self) -> usize {
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
    pub(super) fn heap_size(&self) -> usize {
        allocated(self.names.as_bytes().len()) + allocated(self.selection.len())
    }
}

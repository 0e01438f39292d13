//! Stored responses.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use microcache_policy::vary::VaryNames;
use microcache_policy::{FieldBlock, Fields, Lifetime, Millis, Rules, Time};

use crate::content::Content;
use crate::encodings::{BodyEncodings, CachedDecision, LazyEncodings, ResponseEncodings};
use crate::key_update::KeyUpdate;
use crate::log_position::{LOG_COPIES, LogPositions};
use crate::tags::TagNumbers;

/// Complete response.
#[derive(Debug)]
pub struct Stored {
    /// Status code.
    pub status: u16,
    /// Header fields as sent, without framing fields and `Age`.
    pub fields: FieldBlock,
    /// Complete body.
    pub body: Content,
    /// Freshness lifetime and age.
    pub lifetime: Lifetime,
    varies: Option<Arc<VarySelection>>,
    /// Time of the request that fetched it; a later purge applies to this response.
    pub began: Time,
    /// Surrogate keys, for purges by tag.
    pub tags: TagNumbers,
    /// See [`Stored::purges_known`]. Boxed, since it is `None` in memory, where size matters.
    purges_known: Option<Box<LogPositions>>,
    /// Number of the latest purge rule that has been checked against this response.
    purges_checked: AtomicU64,
    /// Approximate number of uses; concurrent ones may be counted once.
    uses: AtomicU32,
    refresh: OnceLock<Arc<RevalidationState>>,
    encodings: LazyEncodings,
    may_be_encoded: CachedDecision,
    /// Time of the last use, in units of [`Stored::TICK`]; 0 if never used.
    used: AtomicU32,
}

/// Request fields that selected a response, with their normalized values.
#[derive(Debug)]
struct VarySelection {
    names: VaryNames,
    selection: Box<[u8]>,
}

impl VarySelection {
    fn heap_size(&self) -> usize {
        size_of::<Self>() + self.names.as_bytes().len() + self.selection.len()
    }
}

/// State of the revalidation of a response, not part of its value.
#[derive(Debug, Default)]
struct RevalidationState {
    not_before: AtomicU64,
    demand: Arc<AtomicU32>,
}

impl Stored {
    /// Size up to which bodies share one allocation with their fields, in bytes, which saves a cache miss
    /// per hit.
    pub const COMPACT: usize = 16 * 1024;
    /// Resolution of the last use, in milliseconds. Further uses within a tick write nothing.
    const TICK: Millis = 16;

    /// Creates a stored response.
    pub fn new(
        status: u16,
        fields: Fields<'_>,
        body: Content,
        lifetime: Lifetime,
        vary: VaryNames,
        selection: &[u8],
        began: Time,
    ) -> Self {
        let own: &[u8] = match &body {
            Content::Bytes(bytes) if bytes.len() <= Self::COMPACT => bytes,
            _ => &[],
        };
        let (fields, together) = FieldBlock::copied_with(fields, &[own]);
        let varies = VarySelection {
            names: vary,
            selection: selection.into(),
        };
        let body = if own.is_empty() {
            body
        } else {
            Content::Bytes(together)
        };
        Self {
            status,
            fields,
            body,
            lifetime,
            varies: (!varies.names.is_empty()).then(|| Arc::new(varies)),
            began,
            tags: TagNumbers::default(),
            purges_known: None,
            purges_checked: AtomicU64::new(0),
            uses: AtomicU32::new(0),
            refresh: OnceLock::new(),
            encodings: LazyEncodings::default(),
            may_be_encoded: CachedDecision::default(),
            used: AtomicU32::new(0),
        }
    }

    /// Sets the tags.
    #[must_use]
    pub fn with_tags(self, tags: TagNumbers) -> Self {
        Self { tags, ..self }
    }

    /// Sets the log positions up to which purges were known when it was fetched.
    #[must_use]
    pub fn with_purges_known(self, purges_known: LogPositions) -> Self {
        let is_any = purges_known.iter().any(|position| *position > 0);
        Self {
            purges_known: is_any.then(|| Box::new(purges_known)),
            ..self
        }
    }

    /// Position in each copy of the shared purge log up to which purges were known before the response was
    /// requested. Later ones apply to it, regardless of clocks.
    pub fn purges_known(&self) -> LogPositions {
        let known = self.purges_known.as_deref();
        known.copied().unwrap_or([0; LOG_COPIES])
    }

    /// Returns the number of the latest purge rule that has been checked.
    pub fn purges_checked(&self) -> u64 {
        self.purges_checked.load(Ordering::Relaxed)
    }

    /// Records that the purge rules up to this number have been checked.
    pub fn set_purges_checked(&self, number: u64) {
        self.purges_checked.fetch_max(number, Ordering::Relaxed);
    }

    /// Approximate number of uses.
    pub fn uses(&self) -> u32 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Counts a use.
    pub fn count_use(&self) {
        // A separate load and store, to avoid a locked instruction per hit.
        let uses = self.uses().saturating_add(1);
        self.uses.store(uses, Ordering::Relaxed);
    }

    /// Vary names.
    #[inline]
    pub fn vary(&self) -> &VaryNames {
        self.varies
            .as_ref()
            .map_or(&VaryNames::NONE, |it| &it.names)
    }

    /// Normalized values of these request fields.
    #[inline]
    pub fn selection(&self) -> &[u8] {
        self.varies.as_ref().map_or(&[], |it| &it.selection)
    }

    /// Header fields.
    pub fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }

    /// Returns the properties that update the notes of its key.
    pub fn key_update<'a>(&'a self, rules: &'a Rules) -> KeyUpdate<'a> {
        KeyUpdate {
            fields: self.fields(),
            rules,
            vary: self.vary(),
            selection: self.selection(),
            usable_until: self.lifetime.usable_until(),
        }
    }

    /// Copies the response with another lifetime, after a revalidation or a purge. The log positions are
    /// dropped: in memory, each purge is checked as it arrives.
    #[must_use]
    pub fn with_lifetime(&self, lifetime: Lifetime) -> Self {
        Self {
            status: self.status,
            fields: self.fields.clone(),
            body: self.body.clone(),
            lifetime,
            varies: self.varies.clone(),
            began: self.began,
            tags: self.tags.clone(),
            purges_known: None,
            purges_checked: AtomicU64::new(self.purges_checked()),
            uses: AtomicU32::new(self.uses()),
            refresh: OnceLock::new(),
            encodings: self.encodings.clone(),
            may_be_encoded: self.may_be_encoded.clone(),
            used: AtomicU32::new(self.last_use()),
        }
    }

    /// Sets encodings of the same body that were made for another response.
    #[must_use]
    pub fn with_encodings(self, encoded: ResponseEncodings) -> Self {
        Self {
            encodings: LazyEncodings::of(encoded),
            ..self
        }
    }

    /// Returns the encodings. `may_be` decides whether there may be any, once per number of the settings.
    pub fn encoded(
        &self,
        settings: u32,
        may_be: impl FnOnce(&Self) -> bool,
    ) -> Option<&ResponseEncodings> {
        let may_be = self.may_be_encoded.may_be(settings, || may_be(self));
        may_be.then(|| self.encodings.get())
    }

    /// Returns the encodings, if already created.
    pub fn known_encoded(&self) -> Option<&ResponseEncodings> {
        self.encodings.known()
    }

    /// Copies the response with the state of its revalidation.
    pub(crate) fn copy(&self) -> Self {
        Self {
            refresh: self.refresh.clone(),
            ..self.with_lifetime(self.lifetime)
        }
    }

    /// Time of the last use, in ticks, for comparison only; 0 if never used.
    pub(crate) fn last_use(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn record_use(&self, now: Time) {
        let tick = (now.as_millis() / Self::TICK) as u32;
        if self.last_use() != tick {
            self.used.store(tick, Ordering::Relaxed);
        }
    }

    /// Takes over the last use of the response that it replaces.
    pub(crate) fn inherit_use(&self, other: &Self) {
        self.used.fetch_max(other.last_use(), Ordering::Relaxed);
    }

    /// Replaces the body by another representation of the same bytes.
    #[must_use]
    pub fn with_body(self, body: Content) -> Self {
        Self { body, ..self }
    }

    /// Counts a use of the stale response, and returns whether the caller is to revalidate it. No other
    /// caller is selected for `pause` milliseconds.
    pub fn claim_refresh(&self, now: Time, pause: Millis) -> bool {
        let refresh = self.refresh.get_or_init(Arc::default);
        refresh.demand.fetch_add(1, Ordering::Relaxed);
        let not_before = refresh.not_before.load(Ordering::Relaxed);
        now.as_millis() >= not_before
            && refresh
                .not_before
                .compare_exchange(
                    not_before,
                    now.plus(pause).as_millis(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Number of uses since the response became stale.
    pub fn demand(&self) -> &Arc<AtomicU32> {
        &self.refresh.get_or_init(Arc::default).demand
    }

    /// Memory owned by this response, in bytes, excluding the struct itself.
    pub fn heap_size(&self) -> usize {
        self.own_size() + self.encodings.heap_size(self.fields().as_block().len())
    }

    /// Memory owned, in bytes, excluding encodings.
    pub(crate) fn own_size(&self) -> usize {
        self.fields().as_block().len()
            + self.varies.as_ref().map_or(0, |it| it.heap_size())
            + self.body.heap_size()
            + self.tags.heap_size()
    }
}

impl BodyEncodings {
    /// Returns the encodings of a body that replaces that of `before`, with at most `most` earlier versions
    /// that fit into `room` bytes.
    pub fn after(before: &Stored, most: usize, room: u64) -> Self {
        let known = before.known_encoded().map(|encoded| &**encoded.bodies());
        Self::succeeding(known, before.body.bytes(), most, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_claim_per_pause() {
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
        let vary = VaryNames::default();
        let one = Stored::new(
            200,
            Fields::default(),
            Content::default(),
            lifetime,
            vary,
            b"",
            Time::default(),
        );
        let now = Time::from_secs(100);
        assert!(one.claim_refresh(now, 1000));
        assert!(!one.claim_refresh(now.plus(999), 1000));
        assert!(one.claim_refresh(now.plus(1000), 1000));
        assert_eq!(one.demand().load(Ordering::Relaxed), 3);
    }
}

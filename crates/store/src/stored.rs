//! A stored response.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use microcache_policy::vary::VaryNames;
use microcache_policy::{FieldBlock, Fields, Lifetime, Millis, Rules, Time};

use crate::content::Content;
use crate::encodings::{Decided, Encoded, Place};
use crate::key_notes::Learnt;
use crate::tags::TagNumbers;
use crate::tier::{LOG_COPIES, LogPositions};

/// A complete response, ready to be sent.
#[derive(Debug)]
pub struct Stored {
    /// The status code.
    pub status: u16,
    /// The field lines as they will be sent; no framing, no `Age`.
    pub fields: FieldBlock,
    /// The whole body.
    pub body: Content,
    /// How long it may be used.
    pub lifetime: Lifetime,
    varies: Option<Arc<Varies>>,
    /// When the request was sent that brought it: a purge after that moment means this response.
    pub began: Time,
    /// By what it may be purged together with others.
    pub tags: TagNumbers,
    /// See [`Stored::purges_known`]. In a box, because in memory nobody needs it and each byte counts.
    purges_known: Option<Box<LogPositions>>,
    /// Every purge up to the one of this number has been held against it.
    purges_checked: AtomicU64,
    /// How often it was the answer, about: two that count at the same moment count one.
    uses: AtomicU32,
    refresh: OnceLock<Arc<Refresh>>,
    encodings: Place,
    may_be_encoded: Decided,
    /// When it was last used, in units of [`Stored::TICK`]; 0 if never.
    used: AtomicU32,
}

/// The request fields that selected a response, and what they said, normalised.
#[derive(Debug)]
struct Varies {
    names: VaryNames,
    selection: Box<[u8]>,
}

impl Varies {
    fn heap_size(&self) -> usize {
        size_of::<Self>() + self.names.as_bytes().len() + self.selection.len()
    }
}

/// What is going on about renewing a response. Not part of its value.
#[derive(Debug, Default)]
struct Refresh {
    not_before: AtomicU64,
    demand: Arc<AtomicU32>,
}

impl Stored {
    /// Bodies up to this size share one allocation with their fields: one cache miss less per hit.
    pub const COMPACT: usize = 16 * 1024;
    /// Uses are told apart that lie further apart than this. A use within the same tick writes nothing.
    const TICK: Millis = 16;

    /// Puts a response together.
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
        let varies = Varies {
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
            encodings: Place::default(),
            may_be_encoded: Decided::default(),
            used: AtomicU32::new(0),
        }
    }

    /// The same with these tags.
    #[must_use]
    pub fn with_tags(self, tags: TagNumbers) -> Self {
        Self { tags, ..self }
    }

    /// The same, brought by somebody who knew of the purges up to these positions.
    #[must_use]
    pub fn with_purges_known(self, purges_known: LogPositions) -> Self {
        let is_any = purges_known.iter().any(|position| *position > 0);
        Self {
            purges_known: is_any.then(|| Box::new(purges_known)),
            ..self
        }
    }

    /// Which purges of the log that processes share were known to whoever brought it, before it was asked
    /// for: those up to this position in each copy. A later one means this response, whatever the clocks say.
    pub fn purges_known(&self) -> LogPositions {
        let known = self.purges_known.as_deref();
        known.copied().unwrap_or([0; LOG_COPIES])
    }

    /// Every purge up to the one of this number has been held against it.
    pub fn purges_checked(&self) -> u64 {
        self.purges_checked.load(Ordering::Relaxed)
    }

    /// Notes that.
    pub fn note_purges_checked(&self, number: u64) {
        self.purges_checked.fetch_max(number, Ordering::Relaxed);
    }

    /// How often it was the answer.
    pub fn uses(&self) -> u32 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Counts one more answer.
    pub fn count_use(&self) {
        // A hit does not wait for the other cores here.
        let uses = self.uses().saturating_add(1);
        self.uses.store(uses, Ordering::Relaxed);
    }

    /// The request fields that selected it.
    #[inline]
    pub fn vary(&self) -> &VaryNames {
        self.varies
            .as_ref()
            .map_or(&VaryNames::NONE, |it| &it.names)
    }

    /// What those fields said, normalised.
    #[inline]
    pub fn selection(&self) -> &[u8] {
        self.varies.as_ref().map_or(&[], |it| &it.selection)
    }

    /// The field lines.
    pub fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }

    /// What it tells about its key.
    pub fn learnt<'a>(&'a self, rules: &'a Rules) -> Learnt<'a> {
        Learnt {
            fields: self.fields(),
            rules,
            vary: self.vary(),
            selection: self.selection(),
            usable_until: self.lifetime.usable_until(),
        }
    }

    /// The same response with another lifetime, for memory: revalidated, or expired by a purge. Up to where its
    /// bringer had read the log of purges does not come along: in memory it is held against each that comes.
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

    /// The same, whose body others have made something of already.
    #[must_use]
    pub fn with_encodings(self, encoded: Encoded) -> Self {
        Self {
            encodings: Place::of(encoded),
            ..self
        }
    }

    /// It in other codings. Whoever asks first by settings of this number says whether there may be any.
    pub fn encoded(&self, settings: u32, may_be: impl FnOnce(&Self) -> bool) -> Option<&Encoded> {
        let may_be = self.may_be_encoded.may_be(settings, || may_be(self));
        may_be.then(|| self.encodings.get())
    }

    /// The same, if anybody has asked for it who might have it.
    pub fn known_encoded(&self) -> Option<&Encoded> {
        self.encodings.known()
    }

    /// The same, with all that is going on about it.
    pub(crate) fn copy(&self) -> Self {
        Self {
            refresh: self.refresh.clone(),
            ..self.with_lifetime(self.lifetime)
        }
    }

    /// When it was last used, in ticks; 0 if never. Only to be compared.
    pub(crate) fn last_use(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn note_use(&self, now: Time) {
        let tick = (now.as_millis() / Self::TICK) as u32;
        if self.last_use() != tick {
            self.used.store(tick, Ordering::Relaxed);
        }
    }

    /// It takes the place of another one, and is in use as that was.
    pub(crate) fn inherit_use(&self, other: &Self) {
        self.used.fetch_max(other.last_use(), Ordering::Relaxed);
    }

    /// The same response with its body elsewhere.
    #[must_use]
    pub fn with_body(self, body: Content) -> Self {
        Self { body, ..self }
    }

    /// Counts one more use of the stale copy, and says whether the caller is the one to refresh
    /// it. The next one is asked no sooner than `pause` from now.
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

    /// How often the stale copy was asked for since it expired.
    pub fn demand(&self) -> &Arc<AtomicU32> {
        &self.refresh.get_or_init(Arc::default).demand
    }

    /// The bytes this response owns, beside the struct itself.
    pub fn heap_size(&self) -> usize {
        self.own_size() + self.encodings.heap_size(self.fields().as_block().len())
    }

    /// The same without what was made of its body.
    pub(crate) fn own_size(&self) -> usize {
        self.fields().as_block().len()
            + self.varies.as_ref().map_or(0, |it| it.heap_size())
            + self.body.heap_size()
            + self.tags.heap_size()
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

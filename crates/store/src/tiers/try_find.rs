//! Non-blocking lookup in the nearest tier.

use std::sync::Arc;
use std::time::Instant;

use microcache_policy::OriginView;

use super::Tiers;
use super::active::ActiveTier;
use super::lookup::TierEntry;
use super::variant::VariantLookup;
use crate::encoding::{RecordHead, TierRecord};
use crate::stored::Stored;
use crate::tier::EntryId;

impl Tiers {
    /// Looks up the response that a request selects, without blocking. `None` is not a miss:
    /// [`Tiers::find`] may find it, and handles damage.
    pub fn try_find(&self, key: &[u8], request: &OriginView<'_>) -> Option<TierEntry> {
        let tier = self.tiers.first()?;
        let began = Instant::now();
        let (stored, id) = response(tier, key, request)?;
        tier.note_hit(began.elapsed());
        Some(TierEntry {
            stored,
            tier: Arc::clone(tier),
            id,
        })
    }
}

fn response(tier: &ActiveTier, key: &[u8], request: &OriginView<'_>) -> Option<(Stored, EntryId)> {
    let id = EntryId::of(key);
    let varies = match record(tier, id, key)? {
        TierRecord::Response(stored) => return stored.vary().is_empty().then_some((stored, id)),
        TierRecord::Varies(varies) => varies,
        TierRecord::Unstorable => return None,
    };
    let variant = VariantLookup::of(varies, key, request);
    let stored = variant.response(record(tier, variant.id, key)?)?;
    Some((stored, variant.id))
}

fn record(tier: &ActiveTier, id: EntryId, key: &[u8]) -> Option<TierRecord> {
    let entry = tier.tier.local()?.try_get(id)?;
    let head = RecordHead::decode(&entry.head).ok()?;
    let record = (head.key[..] == *key).then(|| head.with_checked_body(entry.body))?;
    record.ok()
}

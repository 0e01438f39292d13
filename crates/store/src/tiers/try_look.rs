//! Hits that nobody has to wait for: what the nearest tier has at hand.

use std::sync::Arc;
use std::time::Instant;

use microcache_policy::OriginView;

use super::in_use::TierInUse;
use super::variant::Variant;
use super::{Found, Tiers};
use crate::encoding::{Head, Record};
use crate::stored::Stored;
use crate::tier::EntryId;

impl Tiers {
    /// The response of a key that a request selects, if the nearest tier has it at hand. `None`
    /// says nothing: [`Tiers::find`] knows more, and does what there is to do about damage.
    pub fn try_look(&self, key: &[u8], request: &OriginView<'_>) -> Option<Found> {
        let tier = self.tiers.first()?;
        let began = Instant::now();
        let (stored, id) = response(tier, key, request)?;
        tier.note_hit(began.elapsed());
        Some(Found {
            stored,
            tier: Arc::clone(tier),
            id,
        })
    }
}

fn response(tier: &TierInUse, key: &[u8], request: &OriginView<'_>) -> Option<(Stored, EntryId)> {
    let id = EntryId::of(key);
    let varies = match record(tier, id, key)? {
        Record::Response(stored) => return stored.vary().is_empty().then_some((*stored, id)),
        Record::Varies(varies) => varies,
        Record::Unstorable => return None,
    };
    let variant = Variant::of(varies, key, request);
    let stored = variant.response(record(tier, variant.id, key)?)?;
    Some((stored, variant.id))
}

fn record(tier: &TierInUse, id: EntryId, key: &[u8]) -> Option<Record> {
    let entry = tier.tier.local()?.try_get(id)?;
    let head = Head::decode(&entry.head).ok()?;
    let record = (head.key[..] == *key).then(|| head.with_checked_body(entry.body))?;
    record.ok()
}

//! Variant of a key in a tier.

use microcache_policy::OriginView;
use microcache_policy::vary::{self, Selection, VaryNames};

use crate::encoding::{TierRecord, VaryRecord};
use crate::stored::Stored;
use crate::tier::EntryId;

/// Variant that a request selects, with its id.
pub(super) struct VariantLookup {
    pub(super) id: EntryId,
    names: VaryNames,
    selection: Selection,
}

impl VariantLookup {
    pub(super) fn of(varies: VaryRecord, key: &[u8], request: &OriginView<'_>) -> Self {
        let mut selection = Selection::new();
        vary::select(&varies.names, request, &mut selection);
        Self {
            id: EntryId::of_variant(key, &selection, varies.generation),
            names: varies.names,
            selection,
        }
    }

    /// Returns the response if it is this variant; two selections may share an id.
    pub(super) fn response(&self, record: TierRecord) -> Option<Stored> {
        match record {
            TierRecord::Response(stored)
                if *stored.vary() == self.names && *stored.selection() == self.selection[..] =>
            {
                Some(stored)
            }
            _ => None,
        }
    }
}

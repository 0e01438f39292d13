//! The variant of a key that a request selects.

use microcache_policy::OriginView;
use microcache_policy::vary::{self, Selection, VaryNames};

use crate::encoding::{Record, Varies};
use crate::stored::Stored;
use crate::tier::EntryId;

/// What a request selects of a key that varies, and where that lies.
pub(super) struct Variant {
    pub(super) id: EntryId,
    names: VaryNames,
    selection: Selection,
}

impl Variant {
    pub(super) fn of(varies: Varies, key: &[u8], request: &OriginView<'_>) -> Self {
        let mut selection = Selection::new();
        vary::select(&varies.names, request, &mut selection);
        Self {
            id: EntryId::of_variant(key, &selection, varies.generation),
            names: varies.names,
            selection,
        }
    }

    /// The response, if that is what lies there: two selections may have one id.
    pub(super) fn response(&self, record: Record) -> Option<Stored> {
        match record {
            Record::Response(stored)
                if *stored.vary() == self.names && *stored.selection() == self.selection[..] =>
            {
                Some(*stored)
            }
            _ => None,
        }
    }
}

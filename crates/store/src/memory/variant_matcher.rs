//! Matching of a request with the variants of a key.

use microcache_policy::OriginView;
use microcache_policy::vary::{self, Codings, Selection, VaryNames};

use crate::key_notes::KeyNotes;
use crate::stored::Stored;

/// Matcher of a request's variants. The selection is computed once per set of Vary names.
pub(super) struct VariantMatcher<'a, 's> {
    request: &'a OriginView<'a>,
    telling: Codings,
    selection: Selection,
    written_for: Option<&'s VaryNames>,
}

impl<'a, 's> VariantMatcher<'a, 's> {
    pub(super) fn by(request: &'a OriginView<'a>, notes: &KeyNotes) -> Self {
        Self {
            request,
            telling: notes.codings.telling(),
            selection: Selection::new(),
            written_for: None,
        }
    }

    #[inline]
    pub(super) fn one(&mut self, stored: &'s Stored) -> bool {
        let names = stored.vary();
        if names.is_empty() {
            return true;
        }
        if self.written_for != Some(names) {
            vary::select(names, self.request, &mut self.selection);
            self.written_for = Some(names);
        }
        vary::is_selected(names, stored.selection(), &self.selection, self.telling)
    }
}

//! Per-key notes besides the stored responses: Vary names, codings in use, and selections that are not
//! storable.

use microcache_policy::vary::{self, ObservedCodings, Selection, VaryNames};
use microcache_policy::{Detail, OriginView, Time};

use crate::key_update::KeyUpdate;

/// Notes about the responses of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyNotes {
    /// Request fields on which the responses vary.
    pub(crate) vary: VaryNames,
    /// Until this time, a response that lists fewer names in its Vary counts as varying on all of them, so
    /// that an origin's omission in one response does not leak it to other clients.
    pub(crate) varies_until: Time,
    pub(crate) codings: ObservedCodings,
    /// Selections whose responses were not storable.
    marks: Vec<UnstorableMark>,
}

/// Mark on a selection: until it expires, responses are expected not to be storable, so requests are not
/// coalesced.
#[derive(Clone, Debug)]
struct UnstorableMark {
    selection: Box<[u8]>,
    until: Time,
    /// Reason of the latest one.
    why: Detail,
}

/// Empty notes.
pub(crate) static NOTHING: KeyNotes = KeyNotes {
    vary: VaryNames::NONE,
    varies_until: Time::from_millis(0),
    codings: ObservedCodings::NONE,
    marks: Vec::new(),
};

impl KeyNotes {
    /// Maximum of marks per key; the oldest one is dropped.
    const MARKS: usize = 8;
    /// Converts to a compact form: `None` if empty, as most are.
    pub(crate) fn compact(self) -> Option<Box<Self>> {
        let says_nothing =
            self.vary.is_empty() && self.codings == ObservedCodings::NONE && self.marks.is_empty();
        (!says_nothing).then(|| Box::new(self))
    }

    /// Returns the names that a response varies on, given those it lists itself.
    pub(crate) fn vary_of(&self, named: VaryNames, now: Time) -> VaryNames {
        const LONGEST: usize = 1024;
        if now >= self.varies_until {
            return named;
        }
        let all = named.union(&self.vary);
        if all.as_bytes().len() > LONGEST {
            named
        } else {
            all
        }
    }

    pub(crate) fn selection(&self, request: &OriginView<'_>) -> Selection {
        let mut selection = Selection::new();
        vary::select(&self.vary, request, &mut selection);
        vary::reduce(&self.vary, &mut selection, self.codings.telling());
        selection
    }

    pub(crate) fn learn(&mut self, response: KeyUpdate<'_>, now: Time) {
        let vary = self.vary_of(response.vary.clone(), now);
        // The check is skipped in the common case without names.
        let named = || vary::of_response(response.fields, &response.rules.vary_ignored).names();
        let until = if vary.is_empty() || named().contains(&vary) {
            response.usable_until
        } else {
            Time::default()
        };
        vary::note_codings(
            &mut self.codings,
            response.vary,
            response.selection,
            response.fields,
        );
        self.note_vary(vary, until);
    }

    pub(crate) fn note_vary(&mut self, vary: VaryNames, until: Time) {
        self.varies_until = self.varies_until.max(until);
        if self.vary != vary {
            self.vary = vary;
            // Marks refer to the previous names.
            self.marks = Vec::new();
        }
    }

    pub(crate) fn mark(&mut self, selection: &[u8], why: Detail, until: Time, now: Time) {
        let others = self.marks.iter();
        let mut marks: Vec<UnstorableMark> = others
            .filter(|mark| now < mark.until && mark.selection[..] != *selection)
            .cloned()
            .collect();
        if marks.len() >= Self::MARKS {
            marks.remove(0);
        }
        let selection = selection.into();
        marks.push(UnstorableMark {
            selection,
            until,
            why,
        });
        self.marks = marks;
    }

    pub(crate) fn unmark(&mut self, selection: &[u8]) {
        self.marks.retain(|mark| mark.selection[..] != *selection);
    }

    /// Reason why the latest response to this selection was not storable, while marked.
    pub(crate) fn marked(&self, selection: &[u8], now: Time) -> Option<Detail> {
        let mut marks = self.marks.iter();
        let mark = marks.find(|mark| now < mark.until && mark.selection[..] == *selection);
        mark.map(|mark| mark.why)
    }

    pub(crate) fn heap_size(&self) -> usize {
        let marks = self.marks.iter();
        let marks: usize = marks
            .map(|m| size_of::<UnstorableMark>() + m.selection.len())
            .sum();
        size_of::<Self>() + self.vary.as_bytes().len() + marks
    }
}

//! What is remembered of a key beside its responses: what they vary on, which codings are in use, and
//! whose answers turned out not to be storable.

use microcache_policy::vary::{self, Codings, ObservedCodings, Selection, VaryNames};
use microcache_policy::{Detail, Fields, OriginView, Rules, Time};

use crate::stored::Stored;

/// What is known about the responses of a key, beside those that are there.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyNotes {
    /// The request fields that tell requests for this key apart.
    pub(crate) vary: VaryNames,
    /// Until then a response that names fewer of them in its `Vary` counts as if it named all: what
    /// an origin leaves out of the answer to one client is not to answer the others.
    pub(crate) varies_until: Time,
    pub(crate) codings: ObservedCodings,
    /// Requests whose answers turned out not to be storable.
    marks: Vec<Mark>,
}

/// Until then the answers to requests that say this are expected not to be storable, and nobody
/// waits for somebody else's.
#[derive(Clone, Debug)]
struct Mark {
    selection: Box<[u8]>,
    until: Time,
    /// Why the last one was not.
    why: Detail,
}

/// Nothing is known.
pub(crate) static NOTHING: KeyNotes = KeyNotes {
    vary: VaryNames::NONE,
    varies_until: Time::from_millis(0),
    codings: ObservedCodings::NONE,
    marks: Vec::new(),
};

impl KeyNotes {
    /// Selections of a key that are marked as not storable. Beyond it the oldest mark goes.
    const MARKS: usize = 8;
    /// The same for those who keep many, of which most say nothing.
    pub(crate) fn kept(self) -> Option<Box<Self>> {
        let says_nothing =
            self.vary.is_empty() && self.codings == ObservedCodings::NONE && self.marks.is_empty();
        (!says_nothing).then(|| Box::new(self))
    }

    /// The names that a response of this key counts as varying on, which itself names `named`.
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

    pub(crate) fn learn(&mut self, response: Learnt<'_>, now: Time) {
        let vary = self.vary_of(response.vary.clone(), now);
        // Mostly there is nothing that it could leave out.
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
            // They were written for other names.
            self.marks = Vec::new();
        }
    }

    pub(crate) fn mark(&mut self, selection: &[u8], why: Detail, until: Time, now: Time) {
        let others = self.marks.iter();
        let mut marks: Vec<Mark> = others
            .filter(|mark| now < mark.until && mark.selection[..] != *selection)
            .cloned()
            .collect();
        if marks.len() >= Self::MARKS {
            marks.remove(0);
        }
        let selection = selection.into();
        marks.push(Mark {
            selection,
            until,
            why,
        });
        self.marks = marks;
    }

    pub(crate) fn unmark(&mut self, selection: &[u8]) {
        self.marks.retain(|mark| mark.selection[..] != *selection);
    }

    /// Why the last answer to such a request was not storable, if that is remembered.
    pub(crate) fn marked(&self, selection: &[u8], now: Time) -> Option<Detail> {
        let mut marks = self.marks.iter();
        let mark = marks.find(|mark| now < mark.until && mark.selection[..] == *selection);
        mark.map(|mark| mark.why)
    }

    pub(crate) fn heap_size(&self) -> usize {
        let marks = self.marks.iter();
        let marks: usize = marks.map(|m| size_of::<Mark>() + m.selection.len()).sum();
        size_of::<Self>() + self.vary.as_bytes().len() + marks
    }
}

/// What a response tells about its key.
#[derive(Clone, Copy, Debug)]
pub struct Learnt<'a> {
    /// Its field lines.
    pub fields: Fields<'a>,
    /// The rules of its route.
    pub rules: &'a Rules,
    /// The request fields that select it.
    pub vary: &'a VaryNames,
    /// What they said.
    pub selection: &'a [u8],
    /// When it is of no use any more.
    pub usable_until: Time,
}

/// Which variants a request selects. What it says is worked out once for those that vary on the same.
pub(crate) struct Selects<'a, 's> {
    request: &'a OriginView<'a>,
    telling: Codings,
    selection: Selection,
    written_for: Option<&'s VaryNames>,
}

impl<'a, 's> Selects<'a, 's> {
    pub(crate) fn by(request: &'a OriginView<'a>, notes: &KeyNotes) -> Self {
        Self {
            request,
            telling: notes.codings.telling(),
            selection: Selection::new(),
            written_for: None,
        }
    }

    #[inline]
    pub(crate) fn one(&mut self, stored: &'s Stored) -> bool {
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

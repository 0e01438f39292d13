//! Look up: what memory has for a request. Nothing here waits, and a hit takes no lock of ours.

use std::sync::Arc;

use microcache_policy::vary::{Selection, VaryNames};
use microcache_policy::{Detail, OriginView, Time};
use microcache_store::{Hit, Object, Stored};

use super::Cache;
use super::rule::{Held, variant_number};

/// What memory knows of a request's key.
pub(crate) enum Known {
    Nothing,
    /// No response that the request selects.
    Key(Arc<Object>),
    Response(Hit),
}

impl Known {
    /// What a request says in the fields that are known to tell requests for this key apart.
    pub(crate) fn selection(&self, request: &OriginView<'_>) -> Selection {
        self.object()
            .map_or_else(Selection::new, |object| object.selection(request))
    }

    /// Why the answer is expected not to be storable, if it is.
    pub(crate) fn uncacheable(&self, selection: &[u8], now: Time) -> Option<Detail> {
        self.object()?.uncacheable(selection, now)
    }

    /// The response, if there is one that the request selects.
    pub(crate) fn response(self) -> Option<Hit> {
        match self {
            Self::Response(hit) => Some(hit),
            Self::Nothing | Self::Key(_) => None,
        }
    }

    /// What else is known of it.
    pub(crate) fn object(&self) -> Option<&Object> {
        match self {
            Self::Nothing => None,
            Self::Key(object) => Some(object),
            Self::Response(hit) => Some(hit.object()),
        }
    }
}

impl Cache {
    /// What memory has for a request.
    #[inline]
    pub(crate) fn look_up(&self, key: &[u8], request: &OriginView<'_>, now: Time) -> Known {
        let Some(object) = self.memory.get(key) else {
            return Known::Nothing;
        };
        match object.select(request, now) {
            // Whoever met the damage got a response that breaks off; nobody else shall.
            Ok(hit) if hit.file().is_some_and(|file| file.is_damaged()) => {
                self.purge_key(key);
                Known::Nothing
            }
            Ok(hit) if hit.purges_checked() == self.rules.newest() => Known::Response(hit),
            Ok(hit) => self.held_against_rules(hit, key, request, now),
            // What lies in a file that was closed is to be looked for where it was.
            Err(object) if object.has_lost_a_file() => {
                self.memory.remove(key);
                Known::Nothing
            }
            Err(object) => Known::Key(object),
        }
    }

    /// What is left of what memory has for a request, after the purges by rule that came since anybody
    /// looked.
    #[cold]
    fn held_against_rules(
        &self,
        hit: Hit,
        key: &[u8],
        request: &OriginView<'_>,
        now: Time,
    ) -> Known {
        let newest = self.rules.newest();
        let held = Held::stored(key, &hit);
        if self.covered(held, hit.purges_checked()).is_none() {
            hit.note_purges_checked(newest);
            return Known::Response(hit);
        }
        self.revise(&key.into());
        match self
            .memory
            .get(key)
            .map(|object| object.select(request, now))
        {
            Some(Ok(hit)) if hit.purges_checked() >= newest => Known::Response(hit),
            // Somebody has just put it there who began before.
            Some(Ok(_)) | None => Known::Nothing,
            Some(Err(object)) => Known::Key(object),
        }
    }

    /// The numbers of the variants in memory that a request selects, and of the one that a response to it
    /// becomes if it varies on what those of its key are known to.
    pub(crate) fn variants_for(&self, key: &[u8], request: &OriginView<'_>) -> Vec<u64> {
        let Some(object) = self.memory.get(key) else {
            return Vec::new();
        };
        let (names, selection) = object.told_apart_by(request);
        let number = |one: &Stored| variant_number(key, one.vary(), one.selection());
        let selected = object.selected(request).map(number);
        let next = variant_number(key, names, &selection);
        selected.chain([next]).collect()
    }

    /// The response in memory that a request selects.
    pub(crate) fn response(&self, key: &[u8], request: &OriginView<'_>) -> Option<Hit> {
        self.look_up(key, request, self.clock.now()).response()
    }

    /// What a request says in the fields that are known to tell requests for this key apart.
    pub(crate) fn selection(&self, key: &[u8], request: &OriginView<'_>) -> Selection {
        let object = self.memory.get(key);
        object.map_or_else(Selection::new, |object| object.selection(request))
    }

    /// What a response of a key counts as varying on, which itself names `named`: that, and what
    /// others of its key have lately named. An origin that leaves `Vary` out of some answers (an error
    /// page, say) would otherwise have those answer everyone.
    pub(crate) fn vary_of(&self, key: &[u8], named: &VaryNames) -> VaryNames {
        let now = self.clock.now();
        // What is sent because of what others have named selects, whether this one names it or not.
        let named = named.union(&self.urls.selecting(key, now));
        match self.memory.get(key) {
            Some(object) => object.vary_of(named, now),
            None => named,
        }
    }

    /// The request fields that a fetch of a key for everyone sends because its answers vary on them.
    pub(crate) fn known_vary(&self, key: &[u8]) -> VaryNames {
        let now = self.clock.now();
        let named = self.urls.sent(key, now);
        match self.memory.get(key) {
            Some(object) => object.vary_of(VaryNames::NONE, now).union(&named),
            None => named,
        }
    }

    /// Whether a refresh of `key` and `selection` is under way.
    pub(crate) fn is_refreshing(&self, key: &[u8], selection: &[u8]) -> bool {
        self.flights.is_refreshing(key, selection)
    }

    /// Whether the latest response was too large to be kept, not long ago.
    pub(crate) fn is_too_large(&self, key: &[u8], selection: &[u8], now: Time) -> bool {
        self.oversized.contains(key, selection, now)
    }

    /// Whether requests of which a fetch for everyone would withhold this are sent whole.
    pub(crate) fn is_sent_whole(&self, key: &[u8], withheld: &[u8], now: Time) -> bool {
        self.whole.contains(key, withheld, now)
    }

    /// Whether what requests with credentials get for a key is for everyone.
    pub(crate) fn is_open(&self, key: &[u8]) -> bool {
        self.open.contains(key, &[], self.clock.now())
    }

    /// The largest response that memory takes, body and head together.
    pub(crate) fn largest_in_memory(&self) -> u64 {
        self.memory.limits().object
    }

    /// The largest body that is stored at all: in a tier, if one takes larger ones than memory.
    pub(crate) fn largest(&self) -> u64 {
        self.largest_in_memory().max(self.tiers.largest())
    }
}

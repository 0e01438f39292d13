//! Lookup in memory. Nothing here waits, and a hit takes no lock of this crate.

use microcache_policy::vary::{Selection, VaryNames};
use microcache_policy::{Detail, OriginView, Time};
use microcache_store::{Hit, Object, Stored};

use super::Cache;
use super::rule::{RuleSubject, variant_number};
use super::rules::RuleNumber;

/// The result of a memory lookup.
pub(crate) enum MemoryLookup {
    Nothing,
    /// No response that the request selects.
    Key(Object),
    Response(Hit),
}

impl MemoryLookup {
    /// The values of the request fields that this key's responses vary on.
    pub(crate) fn selection(&self, request: &OriginView<'_>) -> Selection {
        self.object()
            .map_or_else(Selection::new, |object| object.selection(request))
    }

    /// The reason the response is expected not to be storable, if it is.
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

    /// The variants and notes of the key.
    pub(crate) fn object(&self) -> Option<&Object> {
        match self {
            Self::Nothing => None,
            Self::Key(object) => Some(object),
            Self::Response(hit) => Some(hit.object()),
        }
    }
}

impl Cache {
    /// Looks up the response that a request selects.
    #[inline]
    pub(crate) fn look_up(&self, key: &[u8], request: &OriginView<'_>, now: Time) -> MemoryLookup {
        let Some(object) = self.memory.get(key) else {
            return MemoryLookup::Nothing;
        };
        match object.select(request, now) {
            // The request that met the damage got a truncated response; no other shall.
            Ok(hit) if hit.file().is_some_and(|file| file.is_damaged()) => {
                self.purge_key(key);
                MemoryLookup::Nothing
            }
            Ok(hit) if RuleNumber::checked(&hit) == self.rules.newest() => {
                MemoryLookup::Response(hit)
            }
            Ok(hit) => self.held_against_rules(hit, key, request, now),
            // Its file was closed: the entry has to be searched for in the tier again.
            Err(object) if object.has_lost_a_file() => {
                self.memory.remove(key);
                MemoryLookup::Nothing
            }
            Err(object) => MemoryLookup::Key(object),
        }
    }

    /// Checks a response against the purge rules issued since it was last checked, and returns what
    /// remains.
    #[cold]
    fn held_against_rules(
        &self,
        hit: Hit,
        key: &[u8],
        request: &OriginView<'_>,
        now: Time,
    ) -> MemoryLookup {
        let newest = self.rules.newest();
        let held = RuleSubject::stored(key, &hit);
        if self.covered(held, RuleNumber::checked(&hit)).is_none() {
            newest.note_checked(&hit);
            return MemoryLookup::Response(hit);
        }
        self.revise(&key.into());
        match self
            .memory
            .get(key)
            .map(|object| object.select(request, now))
        {
            Some(Ok(hit)) if RuleNumber::checked(&hit) >= newest => MemoryLookup::Response(hit),
            // A fetch that began before has just stored it.
            Some(Ok(_)) | None => MemoryLookup::Nothing,
            Some(Err(object)) => MemoryLookup::Key(object),
        }
    }

    /// The numbers of the variants in memory that a request selects, and of the one that a new
    /// response would become if it varies on the known fields of its key.
    pub(crate) fn variants_for(&self, key: &[u8], request: &OriginView<'_>) -> Vec<u64> {
        let Some(object) = self.memory.get(key) else {
            return Vec::new();
        };
        let (names, selection) = object.vary_and_selection(request);
        let number = |one: &Stored| variant_number(key, one.vary(), one.selection());
        let selected = object.selected(request).map(number);
        let next = variant_number(key, names, &selection);
        selected.chain([next]).collect()
    }

    /// The response in memory that a request selects.
    pub(crate) fn response(&self, key: &[u8], request: &OriginView<'_>, now: Time) -> Option<Hit> {
        self.look_up(key, request, now).response()
    }

    /// The values of the request fields that this key's responses vary on.
    pub(crate) fn selection(&self, key: &[u8], request: &OriginView<'_>) -> Selection {
        let object = self.memory.get(key);
        object.map_or_else(Selection::new, |object| object.selection(request))
    }

    /// The fields that a response counts as varying on: the ones it names, and those that other
    /// responses of the key have lately named. Otherwise a response without `Vary`, such as an
    /// error page, would be served to every request.
    pub(crate) fn vary_of(&self, key: &[u8], named: &VaryNames, now: Time) -> VaryNames {
        // A field sent because earlier responses varied on it selects, even if this one does not
        // name it.
        let named = named.union(&self.urls.selecting(key, now));
        match self.memory.get(key) {
            Some(object) => object.vary_of(named, now),
            None => named,
        }
    }

    /// The request fields that a coalesced fetch of a key sends because its responses vary on them.
    pub(crate) fn known_vary(&self, key: &[u8], now: Time) -> VaryNames {
        let named = self.urls.sent(key, now);
        match self.memory.get(key) {
            Some(object) => object.vary_of(VaryNames::NONE, now).union(&named),
            None => named,
        }
    }

    /// Returns true while a refresh of `key` and `selection` is under way.
    pub(crate) fn is_refreshing(&self, key: &[u8], selection: &[u8]) -> bool {
        self.flights.is_refreshing(key, selection)
    }

    /// Returns true if a recent response was too large to be stored.
    pub(crate) fn is_too_large(&self, key: &[u8], selection: &[u8], now: Time) -> bool {
        self.oversized.contains(key, selection, now)
    }

    /// Returns false if no request has ever been sent unchanged for its withheld fields.
    pub(crate) fn sends_any_whole(&self) -> bool {
        self.whole.has_any()
    }

    /// Returns true if requests with these fields withheld are sent to the origin unchanged.
    pub(crate) fn is_sent_whole(&self, key: &[u8], withheld: &[u8], now: Time) -> bool {
        self.whole.contains(key, withheld, now)
    }

    /// Returns true if responses to QUERY of this url are stored.
    pub(crate) fn is_queried(&self, host: &[u8], target: &[u8], now: Time) -> bool {
        self.queried.has_any() && self.queried.contains(host, target, now)
    }

    /// Returns true if the key's responses to requests with credentials are shareable.
    pub(crate) fn is_open(&self, key: &[u8], now: Time) -> bool {
        self.open.contains(key, &[], now)
    }

    /// The largest response that memory takes in bytes, head and body together.
    pub(crate) fn largest_in_memory(&self) -> u64 {
        self.memory.limits().object
    }

    /// The largest body that is stored at all, in bytes: in a tier, if one takes larger ones than
    /// memory.
    pub(crate) fn largest(&self) -> u64 {
        self.largest_in_memory().max(self.tiers.largest())
    }
}

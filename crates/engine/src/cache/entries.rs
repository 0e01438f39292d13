//! Listing of entries for operators.
//!
//! A listing never blocks requests: it reads memory one key at a time and a tier one page at a
//! time, and yields in between. Entries stored or removed meanwhile may be missing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;
use microcache_policy::{FieldBlock, Millis, Time, VaryNames};
use microcache_store::{EntryId, Key, Stored, TagNumbers, TierError};
use tokio::task::yield_now;

use super::Cache;
use super::rule::{EntryNames, RuleSubject, Scope, variant_number};

/// Keys, or entries of a tier, read in one batch.
const BATCH: usize = 256;
/// The most entries per page.
pub const MAX_PAGE: usize = 1_000;

/// A filter over entries.
#[derive(Clone, Debug)]
pub struct EntryFilter {
    /// Entries in one of these purge scopes.
    pub scopes: Vec<Scope>,
    /// Entries of at least this size in bytes, head and body together.
    pub size: u64,
    /// Entries received at least this long ago, in milliseconds.
    pub age: Millis,
    /// Entries with at least about this many hits.
    pub uses: u32,
}

impl Default for EntryFilter {
    /// No restriction.
    fn default() -> Self {
        Self {
            scopes: vec![Scope::Everything],
            size: 0,
            age: 0,
            uses: 0,
        }
    }
}

/// The sort order of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListingOrder {
    /// By key.
    #[default]
    Key,
    /// Largest first.
    Size,
    /// Oldest first.
    Age,
    /// Most hits first.
    Uses,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// Its key.
    pub key: Key,
    /// The request fields that select it.
    pub vary: VaryNames,
    /// The values of the selecting request fields.
    pub selection: Bytes,
    /// The status code.
    pub status: u16,
    /// Its field lines.
    pub fields: FieldBlock,
    /// Bytes, body and head together.
    pub size: u64,
    /// Milliseconds since it was received.
    pub age: Millis,
    /// Milliseconds of freshness left; negative since it became stale.
    pub ttl: i64,
    /// The approximate number of hits since it entered memory.
    pub uses: u32,
}

/// A page of the entries in memory.
#[derive(Clone, Debug, Default)]
pub struct EntryPage {
    /// The entries, in the requested order.
    pub entries: Vec<EntryInfo>,
    /// The start of the next page; `None` after the last one.
    pub next: Option<ListingCursor>,
}

/// A position in a sort order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListingCursor {
    rank: Reverse<u64>,
    key: Key,
    selection: Bytes,
}

impl ListingCursor {
    /// Encodes the cursor, for a client that requests the next page.
    pub fn encode(&self) -> Vec<u8> {
        let (Reverse(rank), length) = (self.rank, self.key.len() as u64);
        let lengths = [rank.to_le_bytes(), length.to_le_bytes()].concat();
        [&lengths[..], &self.key, &self.selection].concat()
    }

    /// Decodes a cursor; `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (rank, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (key, selection) = rest.split_at_checked(length)?;
        Some(Self {
            rank: Reverse(u64::from_le_bytes(*rank)),
            key: key.into(),
            selection: Bytes::copy_from_slice(selection),
        })
    }
}

/// A page of a tier's entries.
#[derive(Clone, Debug, Default)]
pub struct TierPage {
    /// The entries, by id.
    pub entries: Vec<EntryInfo>,
    /// The start of the next page; `None` after the last one.
    pub next: Option<EntryId>,
}

impl Cache {
    /// The first entries in memory after a position in this order, at most [`MAX_PAGE`].
    pub async fn entries(
        &self,
        filter: &EntryFilter,
        order: ListingOrder,
        after: Option<&ListingCursor>,
        most: usize,
    ) -> EntryPage {
        let (now, most) = (self.clock.now(), most.clamp(1, MAX_PAGE));
        let mut first = BTreeMap::new();
        let mut is_end = true;
        for (number, object) in self.memory.entries().enumerate() {
            let key = Key::from(object.key());
            for one in object.variants() {
                let entry = of_stored(&key, one, now);
                let place = entry.place(order);
                if after.is_some_and(|after| place <= *after)
                    || !filter.includes(&entry, one.tags())
                    || self.is_purged(&key, one)
                {
                    continue;
                }
                first.insert(place, entry);
                if first.len() > most {
                    first.pop_last();
                    is_end = false;
                }
            }
            if number % BATCH == BATCH - 1 {
                yield_now().await;
            }
        }
        let last = first.last_key_value().map(|(place, _)| place.clone());
        EntryPage {
            entries: first.into_values().collect(),
            next: last.filter(|_| !is_end),
        }
    }

    /// The entries of the local tier after this id, without those that are purged but not removed
    /// yet.
    pub async fn entries_on_disk(
        &self,
        filter: &EntryFilter,
        after: Option<EntryId>,
        most: usize,
    ) -> Result<TierPage, TierError> {
        let Some(tier) = self.tiers.local() else {
            return Ok(TierPage::default());
        };
        let (now, most) = (self.clock.now(), most.clamp(1, MAX_PAGE));
        let mut page = TierPage {
            entries: Vec::new(),
            next: after,
        };
        while page.entries.len() < most {
            let listing = tier
                .list(page.next, (most - page.entries.len()).min(BATCH))
                .await?;
            for listed in &listing.entries {
                if let Some(head) = listed.response()
                    && !self.is_purged_in_tier(&head)
                {
                    let entry = EntryInfo {
                        key: head.key[..].into(),
                        vary: head.vary,
                        selection: head.selection,
                        status: head.status,
                        size: head.body_len + listed.head.len() as u64,
                        age: now.since(head.lifetime.response_time()),
                        ttl: head.lifetime.ttl(now),
                        uses: 0,
                        fields: head.fields,
                    };
                    let is_wanted = filter.includes(&entry, &head.tags);
                    page.entries.extend(is_wanted.then_some(entry));
                }
            }
            page.next = listing.next;
            if page.next.is_none() {
                break;
            }
        }
        Ok(page)
    }
}

impl EntryFilter {
    /// Checks whether the filter selects an entry with these tags.
    fn includes(&self, entry: &EntryInfo, tags: &TagNumbers) -> bool {
        entry.size >= self.size
            && entry.age >= self.age
            && entry.uses >= self.uses
            && (self.scopes.contains(&Scope::Everything) || {
                let names = EntryNames::new(entry.held(tags));
                self.scopes.iter().any(|scope| names.is_in(scope))
            })
    }
}

impl EntryInfo {
    /// The number that identifies the variant in a purge.
    pub fn variant(&self) -> u64 {
        variant_number(&self.key, &self.vary, &self.selection)
    }

    fn held<'a>(&'a self, tags: &'a TagNumbers) -> RuleSubject<'a> {
        RuleSubject::of_variant(&self.key, tags, &self.vary, &self.selection)
    }

    fn place(&self, order: ListingOrder) -> ListingCursor {
        let rank = match order {
            ListingOrder::Key => 0,
            ListingOrder::Size => self.size,
            ListingOrder::Age => self.age,
            ListingOrder::Uses => u64::from(self.uses),
        };
        ListingCursor {
            rank: Reverse(rank),
            key: Key::clone(&self.key),
            selection: self.selection.clone(),
        }
    }
}

fn of_stored(key: &Key, stored: &Stored, now: Time) -> EntryInfo {
    EntryInfo {
        key: Key::clone(key),
        vary: stored.vary().clone(),
        selection: Bytes::copy_from_slice(stored.selection()),
        status: stored.status(),
        fields: stored.fields().into(),
        size: stored.body_len() + stored.fields().as_block().len() as u64,
        age: now.since(stored.lifetime().response_time()),
        ttl: stored.lifetime().ttl(now),
        uses: stored.uses(),
    }
}

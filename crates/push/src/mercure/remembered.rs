//! What the hub remembers: what was published, and what it says itself of those who subscribe.
//!
//! These are two logs. The hub's own has a bound of its own, so that nobody can push what was published out of memory by
//! coming and going; and of the subscribers only those wait for it whose token may let them be told, so that many who come
//! at once do not wake each other. Each update knows where the other log ended when it came: that makes one order of both,
//! and any id stands for a place in both.

use std::sync::Arc;

use smallvec::SmallVec;

use super::log::Log;
use super::members::Members;
use super::update::{EARLIEST, Update};
use crate::waiting::Woken;

/// The share of what is remembered that the hub's own updates may take on top of it.
const OWN_SHARE: u64 = 4;
/// They may always take so much, for one can have some kilobytes.
const LEAST_OWN: u64 = 64 * 1024;

/// Both logs, and all who subscribe.
pub(crate) struct Remembered {
    pub(crate) published: Log,
    pub(crate) own: Log,
    pub(crate) members: Members,
    /// How many subscribe, whether or not they are told of.
    pub(crate) subscribers: usize,
    /// The id of the last update of both.
    last: Option<Arc<str>>,
    /// Differs from process to process.
    epoch: u64,
}

/// How far somebody has come in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) published: u64,
    pub(crate) own: u64,
}

impl Remembered {
    /// Nothing, and room for so many bytes that are published.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            published: Log::new(capacity),
            own: Log::new(own_capacity(capacity)),
            members: Members::default(),
            subscribers: 0,
            last: None,
            epoch: microcache_store::random::number(),
        }
    }

    pub(crate) fn resize(&mut self, capacity: u64) {
        self.published.resize(capacity);
        self.own.resize(own_capacity(capacity));
    }

    /// Takes up what was published. Gives those who wait for it.
    pub(crate) fn note(&mut self, mut update: Update) -> SmallVec<[Woken; 4]> {
        update.beside = self.own.newest();
        self.last = Some(Arc::clone(&update.id));
        self.published.note(update)
    }

    /// The same of what the hub says itself.
    pub(crate) fn note_own(&mut self, mut update: Update) -> SmallVec<[Woken; 4]> {
        update.beside = self.published.newest();
        self.last = Some(Arc::clone(&update.id));
        self.own.note(update)
    }

    pub(crate) const fn newest(&self) -> Seen {
        Seen {
            published: self.published.newest(),
            own: self.own.newest(),
        }
    }

    /// Everything up to there is not remembered.
    pub(crate) fn forgotten(&self) -> Seen {
        Seen {
            published: self.published.forgotten(),
            own: self.own.forgotten(),
        }
    }

    /// How far somebody has come who has seen the update that is called so, if all that came after it is remembered. He
    /// may be told of the hub's own updates, or not.
    pub(crate) fn find(&self, id: &str, is_told: bool) -> Option<Seen> {
        let in_published = || {
            let number = self.published.find(id)?;
            let own = self.published.get(number)?.beside;
            let published = number;
            Some(Seen { published, own })
        };
        let in_own = || {
            let own = self.own.find(id)?;
            let published = self.own.get(own)?.beside;
            Some(Seen { published, own })
        };
        let forgotten = self.forgotten();
        in_published().or_else(in_own).filter(|seen| {
            seen.published >= forgotten.published && (!is_told || seen.own >= forgotten.own)
        })
    }

    /// The id of the last update of all.
    pub(crate) fn last(&self) -> Arc<str> {
        self.last.clone().unwrap_or_else(|| EARLIEST.into())
    }

    /// What stands for all of this as it is now.
    pub(crate) fn entity_tag(&self) -> String {
        let Seen { published, own } = self.newest();
        format!("\"{:016x}.{published}.{own}\"", self.epoch)
    }
}

fn own_capacity(capacity: u64) -> u64 {
    (capacity / OWN_SHARE).max(LEAST_OWN)
}

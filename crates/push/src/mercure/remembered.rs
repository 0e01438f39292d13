//! The history of the hub: published updates and presence updates.
//!
//! These are two logs. The limit of presence updates is separate, so that joining and leaving cannot evict
//! published updates. Only subscribers whose token may cover presence wait for it, so that many who join at
//! once do not wake each other. Each update records the newest number of the other log, which orders both and
//! makes every id a position in both.

use std::sync::Arc;

use smallvec::SmallVec;

use super::log::Log;
use super::members::Members;
use super::update::{EARLIEST, Update};
use crate::waiting::Woken;

/// Memory limit of presence updates, as a fraction of that of published ones: one in so many bytes.
const OWN_SHARE: u64 = 4;
/// Minimum of that limit, in bytes: a single presence update may take several kilobytes.
const LEAST_OWN: u64 = 64 * 1024;

/// Both logs, and the presence list.
pub(crate) struct Remembered {
    pub(crate) published: Log,
    pub(crate) own: Log,
    pub(crate) members: Members,
    /// Current subscribers, including those whose presence is not reported.
    pub(crate) subscribers: usize,
    /// The id of the newest update of both logs.
    last: Option<Arc<str>>,
    /// Random, to distinguish processes.
    epoch: u64,
}

/// A position in both logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) published: u64,
    pub(crate) own: u64,
}

impl Remembered {
    /// Creates an empty history with a memory limit for published updates, in bytes.
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

    /// Adds a published update; returns the tasks to wake.
    pub(crate) fn note(&mut self, mut update: Update) -> SmallVec<[Woken; 4]> {
        update.beside = self.own.newest();
        self.last = Some(Arc::clone(&update.id));
        self.published.note(update)
    }

    /// Adds a presence update; returns the tasks to wake.
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

    /// Returns the position up to which updates are evicted.
    pub(crate) fn forgotten(&self) -> Seen {
        Seen {
            published: self.published.forgotten(),
            own: self.own.forgotten(),
        }
    }

    /// Returns the position after the update with this id, if everything after it is still in the history.
    /// The presence log counts only for subscribers that receive it.
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

    /// Returns the id of the newest update of both logs.
    pub(crate) fn last(&self) -> Arc<str> {
        self.last.clone().unwrap_or_else(|| EARLIEST.into())
    }

    /// Returns an entity tag of the current state.
    pub(crate) fn entity_tag(&self) -> String {
        let Seen { published, own } = self.newest();
        format!("\"{:016x}.{published}.{own}\"", self.epoch)
    }
}

fn own_capacity(capacity: u64) -> u64 {
    (capacity / OWN_SHARE).max(LEAST_OWN)
}

//! The history of the hub: published updates and presence updates.
//!
//! These are two logs. The limit of presence updates is separate, so that joining and leaving cannot evict
//! published updates. Only subscribers whose token may cover presence wait for it, so that many clients that
//! join at once do not wake each other. Each update records the newest number of the other log, which orders
//! both and makes every id a position in both.

use std::sync::Arc;

use smallvec::SmallVec;

use super::local_presence::LocalPresence;
use super::presence::PresenceChange;
use super::presence_list::PresenceList;
use super::update::{EARLIEST, Update};
use super::update_log::UpdateLog;
use crate::wait_list::Wakeups;

/// Divisor of the memory limit of published updates; the result is the limit of presence updates.
const PRESENCE_SHARE: u64 = 4;
/// Minimum of that limit, in bytes: a single presence update may take several kilobytes.
const MIN_PRESENCE: u64 = 64 * 1024;

/// Both logs, and the presence list.
pub(crate) struct History {
    pub(crate) published: UpdateLog,
    pub(crate) presence: UpdateLog,
    pub(crate) presence_list: PresenceList,
    /// Current subscribers, including those whose presence is not reported.
    pub(crate) subscribers: usize,
    /// Updates published since the start.
    pub(crate) updates: u64,
    /// Updates handed to connections.
    pub(crate) events: u64,
    /// Subscribers disconnected because they fell behind.
    pub(crate) cut_off: u64,
    /// False until a shared history has been read.
    pub(crate) is_loaded: bool,
    /// This node's part of a shared presence list.
    pub(crate) local_presence: Option<LocalPresence>,
    /// The id of the newest update of both logs.
    last_id: Option<Arc<str>>,
    /// Random, to distinguish processes.
    epoch: u64,
}

/// A position in both logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryPosition {
    pub(crate) published: u64,
    pub(crate) presence: u64,
}

impl History {
    /// Creates an empty history with a memory limit for published updates, in bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            published: UpdateLog::new(capacity),
            presence: UpdateLog::new(presence_capacity(capacity)),
            presence_list: PresenceList::default(),
            subscribers: 0,
            updates: 0,
            is_loaded: true,
            local_presence: None,
            events: 0,
            cut_off: 0,
            last_id: None,
            epoch: microcache_store::random::number(),
        }
    }

    pub(crate) fn resize(&mut self, capacity: u64) {
        self.published.resize(capacity);
        self.presence.resize(presence_capacity(capacity));
    }

    /// Adds a published update; returns the tasks to wake.
    pub(crate) fn record(&mut self, mut update: Update) -> SmallVec<[Wakeups; 4]> {
        update.other_log_position = self.presence.newest();
        self.last_id = Some(Arc::clone(&update.id));
        self.published.record(update)
    }

    /// Adds presence updates; returns the tasks to wake.
    pub(crate) fn record_presence(&mut self, events: Vec<Update>) -> Vec<Wakeups> {
        let mut wakeups = Vec::new();
        for mut update in events {
            update.other_log_position = self.published.newest();
            self.last_id = Some(Arc::clone(&update.id));
            wakeups.extend(self.presence.record(update));
        }
        wakeups
    }

    /// Adds a subscriber of this process to the presence list, or removes it; returns the tasks to wake. In a shared list, it
    /// takes effect when all nodes read it.
    pub(crate) fn announce(&mut self, change: PresenceChange, events: Vec<Update>) -> Vec<Wakeups> {
        if let Some(local) = &mut self.local_presence {
            local.set(change);
            return Vec::new();
        }
        self.presence_list.set(&change.entry, change.active);
        self.record_presence(events)
    }

    /// Returns the number of this node; zero if the hub is not shared.
    pub(crate) fn node(&self) -> u64 {
        self.local_presence.as_ref().map_or(0, LocalPresence::node)
    }

    /// Determines the presence changes to share with other nodes, all of them or those made since. Returns whether there is
    /// nothing to share.
    pub(crate) fn compare_presence(&mut self, all: bool) -> bool {
        match &mut self.local_presence {
            Some(local) if all => local.compare(&self.presence_list),
            Some(local) => local.is_shared(),
            None => true,
        }
    }

    /// Evicts everything, so that all subscribers fall behind. Returns the tasks to wake.
    pub(crate) fn reset(&mut self) -> Vec<Wakeups> {
        self.last_id = None;
        let mut wakeups = self.published.reset();
        wakeups.extend(self.presence.reset());
        wakeups
    }

    pub(crate) const fn newest(&self) -> HistoryPosition {
        HistoryPosition {
            published: self.published.newest(),
            presence: self.presence.newest(),
        }
    }

    /// Returns the position up to which updates are evicted.
    pub(crate) fn evicted_through(&self) -> HistoryPosition {
        HistoryPosition {
            published: self.published.evicted_through(),
            presence: self.presence.evicted_through(),
        }
    }

    /// Returns the position after the update with this id, if everything after it is still in the history.
    /// The presence log counts only for subscribers that receive it.
    pub(crate) fn find(&self, id: &str, receives_presence: bool) -> Option<HistoryPosition> {
        let in_published = || {
            let number = self.published.find(id)?;
            let presence = self.published.get(number)?.other_log_position;
            let published = number;
            Some(HistoryPosition {
                published,
                presence,
            })
        };
        let in_presence = || {
            let presence = self.presence.find(id)?;
            let published = self.presence.get(presence)?.other_log_position;
            Some(HistoryPosition {
                published,
                presence,
            })
        };
        let evicted_through = self.evicted_through();
        in_published().or_else(in_presence).filter(|seen| {
            seen.published >= evicted_through.published
                && (!receives_presence || seen.presence >= evicted_through.presence)
        })
    }

    /// Returns the id of the newest update of both logs.
    pub(crate) fn last_id(&self) -> Arc<str> {
        self.last_id.clone().unwrap_or_else(|| EARLIEST.into())
    }

    /// Returns an entity tag of the current state.
    pub(crate) fn entity_tag(&self) -> String {
        let HistoryPosition {
            published,
            presence,
        } = self.newest();
        format!("\"{:016x}.{published}.{presence}\"", self.epoch)
    }
}

fn presence_capacity(capacity: u64) -> u64 {
    (capacity / PRESENCE_SHARE).max(MIN_PRESENCE)
}

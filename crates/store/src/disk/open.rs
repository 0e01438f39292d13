//! The entries whose files are open, so that the next hit opens nothing, and their bound.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use foldhash::fast::RandomState;

use crate::content::{Content, FileBody};
use crate::tier::{Entry, EntryId};

/// So many files in use are passed over in the search for one to close: whoever looks has the lock
/// that everybody needs.
const PATIENCE: usize = 64;

/// Open files: those that can be found by id, and those that were replaced or removed while
/// somebody was still reading them.
pub(super) struct OpenFiles {
    limit: usize,
    entries: HashMap<EntryId, OpenFile, RandomState>,
    /// Who was opened when. What was forgotten since is passed over where it turns up, and not looked
    /// for.
    order: VecDeque<(EntryId, u64)>,
    opened: u64,
    lent: VecDeque<Weak<FileBody>>,
}

/// An open entry. To drop it may close a file, and that may free many blocks: not a thing for a
/// serving thread.
pub(super) struct OpenFile {
    head: Bytes,
    body: Arc<FileBody>,
    /// Its place in the order.
    number: u64,
}

impl OpenFiles {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            entries: HashMap::default(),
            order: VecDeque::new(),
            opened: 0,
            lent: VecDeque::new(),
        }
    }

    pub(super) fn get(&self, id: EntryId) -> Option<Entry> {
        self.entries.get(&id).map(|open| {
            open.body.touch();
            Entry {
                head: open.head.clone(),
                body: Content::File(Arc::clone(&open.body)),
            }
        })
    }

    /// Keeps a file open, if the bound allows for one more after those that nobody uses have made
    /// room.
    pub(super) fn admit(&mut self, id: EntryId, head: Bytes, body: &Arc<FileBody>) -> bool {
        self.forget(id);
        if !self.make_room() {
            return false;
        }
        let (body, number) = (Arc::clone(body), self.opened);
        self.opened += 1;
        self.entries.insert(id, OpenFile { head, body, number });
        self.order.push_back((id, number));
        if self.order.len() > 2 * self.limit {
            let entries = &self.entries;
            let is_there = |(id, number): &(EntryId, u64)| {
                entries.get(id).is_some_and(|open| open.number == *number)
            };
            // Once in as many openings as there may be files.
            self.order.retain(is_there);
        }
        true
    }

    /// The entry has another head now.
    pub(super) fn renew(&mut self, id: EntryId, head: &Bytes) {
        if let Some(open) = self.entries.get_mut(&id) {
            open.head = head.clone();
        }
    }

    /// Counts a file that is open without being kept here.
    pub(super) fn lend(&mut self, body: &Arc<FileBody>) {
        self.lent.push_back(Arc::downgrade(body));
    }

    /// Forgets an entry that was removed or replaced.
    pub(super) fn forget(&mut self, id: EntryId) -> Option<OpenFile> {
        let old = self.entries.remove(&id)?;
        self.remember(&old);
        Some(old)
    }

    /// Whether an entry's file was used since this was last asked.
    pub(super) fn take_used(&self, id: EntryId) -> bool {
        self.entries
            .get(&id)
            .is_some_and(|open| open.body.take_used())
    }

    pub(super) fn clear(&mut self) {
        for (_, open) in std::mem::take(&mut self.entries) {
            self.remember(&open);
        }
        self.order.clear();
    }

    fn remember(&mut self, open: &OpenFile) {
        if Arc::strong_count(&open.body) > 1 {
            self.lent.push_back(Arc::downgrade(&open.body));
        }
    }

    fn make_room(&mut self) -> bool {
        for _ in 0..PATIENCE {
            if self.has_room() {
                return true;
            }
            self.look_at_lent();
            self.look_at_oldest();
        }
        self.has_room()
    }

    fn has_room(&self) -> bool {
        self.entries.len() + self.lent.len() < self.limit
    }

    /// Nobody may be reading it any more.
    fn look_at_lent(&mut self) {
        if let Some(body) = self.lent.pop_front()
            && body.strong_count() > 0
        {
            self.lent.push_back(body);
        }
    }

    /// Closes the file that was opened first, unless somebody reads it.
    fn look_at_oldest(&mut self) {
        if self.has_room() {
            return;
        }
        let Some((id, number)) = self.order.pop_front() else {
            return;
        };
        let Some(open) = self.entries.get(&id).filter(|open| open.number == number) else {
            return;
        };
        if Arc::strong_count(&open.body) == 1 {
            self.entries.remove(&id);
        } else {
            self.order.push_back((id, number));
        }
    }
}

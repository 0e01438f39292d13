//! The entries whose files are open, so that the next hit opens nothing, and their bound.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::content::{Content, FileBody};
use crate::tier::{Entry, EntryId};

/// So many files in use are passed over in the search for one to close.
const PATIENCE: usize = 64;

/// Open files: those that can be found by id, and those that were replaced or removed while
/// somebody was still reading them.
pub(super) struct OpenFiles {
    limit: usize,
    entries: HashMap<EntryId, OpenFile>,
    order: VecDeque<EntryId>,
    lent: Vec<Weak<FileBody>>,
}

/// An open entry. To drop it may close a file, and that may free many blocks: not a thing for a
/// serving thread.
pub(super) struct OpenFile {
    head: Bytes,
    body: Arc<FileBody>,
}

impl OpenFiles {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            entries: HashMap::new(),
            order: VecDeque::new(),
            lent: Vec::new(),
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
        let body = Arc::clone(body);
        self.entries.insert(id, OpenFile { head, body });
        self.order.push_back(id);
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
        self.lent.push(Arc::downgrade(body));
    }

    /// Forgets an entry that was removed or replaced.
    pub(super) fn forget(&mut self, id: EntryId) -> Option<OpenFile> {
        let old = self.entries.remove(&id)?;
        self.order.retain(|other| *other != id);
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
            self.lent.push(Arc::downgrade(&open.body));
        }
    }

    fn make_room(&mut self) -> bool {
        if self.entries.len() + self.lent.len() < self.limit {
            return true;
        }
        self.lent.retain(|body| body.strong_count() > 0);
        for _ in 0..PATIENCE.min(self.order.len()) {
            if self.entries.len() + self.lent.len() < self.limit {
                break;
            }
            let Some(id) = self.order.pop_front() else {
                break;
            };
            let is_idle = |open: &OpenFile| Arc::strong_count(&open.body) == 1;
            if self.entries.get(&id).is_some_and(is_idle) {
                self.entries.remove(&id);
            } else {
                self.order.push_back(id);
            }
        }
        self.entries.len() + self.lent.len() < self.limit
    }
}

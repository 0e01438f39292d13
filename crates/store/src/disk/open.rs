//! The entries whose files are open, so that the next hit opens nothing, and their bound.
//!
//! They lie in shards by their ids, so that a hit on one holds up next to nobody. Whoever opens one more
//! file than there may be looks for another to close, in one shard after the other and not for long.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::expiry::is_over;
use crate::content::{Content, FileBody};
use crate::tier::{Entry, EntryId};

const SHARDS: usize = 32;
/// In the search for a file to close, every shard is looked into once, and so many of its files in use
/// are passed over: whoever looks has the lock that others may need.
const PATIENCE: usize = 8;

/// Open files: those that can be found by id, and those that were replaced or removed while
/// somebody was still reading them.
pub(super) struct OpenFiles {
    limit: usize,
    /// How many there are in all shards.
    count: AtomicUsize,
    shards: [Mutex<Shard>; SHARDS],
    /// Where the next search for one to close begins.
    next: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<EntryId, OpenFile, RandomState>,
    /// The same, each at its place.
    ids: Vec<EntryId>,
    /// The place that is looked at next.
    hand: usize,
    lent: VecDeque<Weak<FileBody>>,
}

/// An open entry. To drop it may close a file, and that may free many blocks: not a thing for a
/// serving thread.
pub(super) struct OpenFile {
    head: Bytes,
    body: Arc<FileBody>,
    /// In seconds since 1970.
    expires: u64,
    place: usize,
}

impl OpenFile {
    #[cfg(test)]
    pub(super) fn body(&self) -> Arc<FileBody> {
        Arc::clone(&self.body)
    }

    fn entry(&self) -> Entry {
        Entry {
            head: self.head.clone(),
            body: Content::File(Arc::clone(&self.body)),
        }
    }
}

impl OpenFiles {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            count: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            next: AtomicUsize::new(0),
        }
    }

    /// The entry, if its file is open and it is not over.
    pub(super) fn get(&self, id: EntryId) -> Option<Entry> {
        let shard = self.shard(id).lock();
        let open = shard.entries.get(&id)?;
        open.body.touch();
        (!is_over(open.expires)).then(|| open.entry())
    }

    /// Keeps a file open, if the bound allows for one more after those that nobody uses have made
    /// room. Not for two at once who bring the same entry.
    pub(super) fn admit(
        &self,
        id: EntryId,
        head: Bytes,
        body: &Arc<FileBody>,
        expires: u64,
    ) -> bool {
        drop(self.forget(id));
        let has_room = self.take_room();
        if has_room {
            let body = Arc::clone(body);
            let mut shard = self.shard(id).lock();
            let place = shard.ids.len();
            let open = OpenFile {
                head,
                body,
                expires,
                place,
            };
            shard.ids.push(id);
            shard.entries.insert(id, open);
        }
        has_room
    }

    /// The entry has another head now.
    pub(super) fn renew(&self, id: EntryId, head: &Bytes, expires: u64) {
        if let Some(open) = self.shard(id).lock().entries.get_mut(&id) {
            open.head = head.clone();
            open.expires = expires;
        }
    }

    /// Counts a file that is open without being kept here.
    pub(super) fn lend(&self, id: EntryId, body: &Arc<FileBody>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(id).lock();
        shard.lent.push_back(Arc::downgrade(body));
    }

    /// Forgets an entry that was removed or replaced.
    pub(super) fn forget(&self, id: EntryId) -> Option<OpenFile> {
        let mut shard = self.shard(id).lock();
        let old = shard.take(id)?;
        self.no_longer_kept(&mut shard, &old);
        Some(old)
    }

    /// Whether an entry's file was used since this was last asked.
    pub(super) fn take_used(&self, id: EntryId) -> bool {
        let shard = self.shard(id).lock();
        let open = shard.entries.get(&id);
        open.is_some_and(|open| open.body.take_used())
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            for (_, open) in std::mem::take(&mut shard.entries) {
                self.no_longer_kept(&mut shard, &open);
            }
            shard.ids.clear();
        }
    }

    /// A file that somebody reads is open until he has done.
    fn no_longer_kept(&self, shard: &mut Shard, old: &OpenFile) {
        if Arc::strong_count(&old.body) > 1 {
            shard.lent.push_back(Arc::downgrade(&old.body));
        } else {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts one more, if there may be one more.
    fn take_room(&self) -> bool {
        let one_more = |count| (count < self.limit).then_some(count + 1);
        let take = || {
            let taken = self
                .count
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
            taken.is_ok()
        };
        if take() {
            return true;
        }
        for _ in 0..SHARDS {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let closed = self.shards[next % SHARDS].lock().close_one();
            // It is closed when the shard is free again.
            if closed.is_some() {
                self.count.fetch_sub(1, Ordering::Relaxed);
                if take() {
                    return true;
                }
            }
        }
        false
    }

    fn shard(&self, id: EntryId) -> &Mutex<Shard> {
        let [.., last] = id.to_bytes();
        &self.shards[usize::from(last) % SHARDS]
    }
}

/// What is not open any more, or will not be when it is dropped.
enum Closed {
    Kept { _file: OpenFile },
    Lent,
}

impl Shard {
    fn take(&mut self, id: EntryId) -> Option<OpenFile> {
        let old = self.entries.remove(&id)?;
        self.ids.swap_remove(old.place);
        if let Some(moved) = self.ids.get(old.place)
            && let Some(moved) = self.entries.get_mut(moved)
        {
            moved.place = old.place;
        }
        Some(old)
    }

    /// Closes a file that nobody reads, or finds one that has been closed since.
    fn close_one(&mut self) -> Option<Closed> {
        for _ in 0..PATIENCE {
            if let Some(body) = self.lent.pop_front() {
                if body.strong_count() == 0 {
                    return Some(Closed::Lent);
                }
                self.lent.push_back(body);
            }
            if let Some(file) = self.close_next() {
                return Some(Closed::Kept { _file: file });
            }
        }
        None
    }

    fn close_next(&mut self) -> Option<OpenFile> {
        if self.hand >= self.ids.len() {
            self.hand = 0;
        }
        let id = *self.ids.get(self.hand)?;
        // In its place comes the one that was opened last.
        self.hand += 1;
        let is_read = Arc::strong_count(&self.entries.get(&id)?.body) > 1;
        if is_read { None } else { self.take(id) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::thread;

    use super::*;
    use crate::disk::expiry::now;

    const LIMIT: usize = 100;

    fn id(number: usize) -> EntryId {
        EntryId::of(&number.to_le_bytes())
    }

    fn body() -> Arc<FileBody> {
        let file = File::open("/dev/null").expect("it is there");
        Arc::new(FileBody::new(file, 0, 0, Box::default()).expect("an empty body"))
    }

    fn admit(files: &OpenFiles, number: usize) -> bool {
        files.admit(id(number), Bytes::new(), &body(), now() + 1000)
    }

    fn kept(files: &OpenFiles) -> usize {
        files
            .shards
            .iter()
            .map(|shard| shard.lock().ids.len())
            .sum()
    }

    #[test]
    fn there_are_never_more_than_the_bound() {
        let files = OpenFiles::new(LIMIT);
        thread::scope(|scope| {
            for thread in 0..4 {
                let files = &files;
                scope.spawn(move || {
                    for number in 0..2000 {
                        admit(files, number * 4 + thread);
                        assert!(files.count.load(Ordering::Relaxed) <= LIMIT);
                        if number % 3 == 0 {
                            files.forget(id(number * 4 + thread));
                        }
                    }
                });
            }
        });
        let all = kept(&files);
        assert_eq!(files.count.load(Ordering::Relaxed), all);
        assert!(all > LIMIT / 2, "{all}");
        files.clear();
        assert_eq!(files.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_read_stays_open_and_counts() {
        let files = OpenFiles::new(LIMIT);
        assert!((0..LIMIT).all(|number| admit(&files, number)));
        let mut read: Vec<_> = (0..LIMIT)
            .filter_map(|number| files.get(id(number)))
            .collect();
        assert_eq!(read.len(), LIMIT);
        assert!(!admit(&files, LIMIT), "all of them are read");
        // Removed while they are read, they are open all the same.
        for number in 0..LIMIT {
            drop(files.forget(id(number)));
        }
        assert!(files.get(id(0)).is_none());
        assert!(!admit(&files, LIMIT));
        read.pop();
        assert!(admit(&files, LIMIT), "one has been closed");
        assert!(admit(&files, LIMIT + 1), "nobody reads that one");
        assert!(files.get(id(LIMIT)).is_none());
        read.clear();
        assert!((0..LIMIT).all(|number| admit(&files, number)));
    }

    #[test]
    fn what_is_over_is_not_found() {
        let files = OpenFiles::new(1);
        assert!(files.admit(id(1), Bytes::new(), &body(), now()));
        assert!(files.get(id(1)).is_none());
        files.renew(id(1), &Bytes::from_static(b"new"), now() + 1000);
        assert_eq!(files.get(id(1)).expect("it is there").head, "new");
    }
}

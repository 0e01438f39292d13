//! Open entry files, so that further hits need no open(2), and their limit.
//!
//! They are sharded by id to avoid lock contention. Above the limit, a bounded search over the shards
//! selects a file to close.

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
/// Maximum of files in use that are skipped per shard in the search for a file to close, since it holds the
/// lock of the shard.
const MAX_SKIPPED: usize = 8;

/// Open files: those found by id, and replaced or removed ones that are still being read.
pub(super) struct OpenFiles {
    limit: usize,
    /// Total over all shards.
    count: AtomicUsize,
    shards: [Mutex<OpenFileShard>; SHARDS],
    /// Shard at which the next search starts.
    next: AtomicUsize,
}

#[derive(Default)]
struct OpenFileShard {
    entries: HashMap<EntryId, OpenFile, RandomState>,
    /// Ids of the entries, each at its `place`.
    ids: Vec<EntryId>,
    /// Position at which the next search starts.
    hand: usize,
    still_read: VecDeque<Weak<FileBody>>,
}

/// Open entry. Dropping it may close a file and free many blocks, so it must not be dropped on a serving
/// thread.
pub(super) struct OpenFile {
    head: Bytes,
    body: Arc<FileBody>,
    /// Expiry, in seconds since the Unix epoch.
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

    /// Returns the entry, if its file is open and it has not expired.
    pub(super) fn get(&self, id: EntryId) -> Option<Entry> {
        let shard = self.shard(id).lock();
        let open = shard.entries.get(&id)?;
        open.body.touch();
        (!is_over(open.expires)).then(|| open.entry())
    }

    /// Keeps a file open, if the limit allows it after closing an unused one. Concurrent calls for the same
    /// id are excluded by the caller.
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

    /// Replaces the head of an open entry.
    pub(super) fn renew(&self, id: EntryId, head: &Bytes, expires: u64) {
        if let Some(open) = self.shard(id).lock().entries.get_mut(&id) {
            open.head = head.clone();
            open.expires = expires;
        }
    }

    /// Counts an open file that cannot be found by id.
    pub(super) fn count_still_read(&self, id: EntryId, body: &Arc<FileBody>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(id).lock();
        shard.still_read.push_back(Arc::downgrade(body));
    }

    /// Forgets an entry that was removed or replaced.
    pub(super) fn forget(&self, id: EntryId) -> Option<OpenFile> {
        let mut shard = self.shard(id).lock();
        let old = shard.take(id)?;
        self.no_longer_kept(&mut shard, &old);
        Some(old)
    }

    /// Clears the use bit of an entry's file. Returns its previous value.
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

    /// Keeps counting the file while it is being read.
    fn no_longer_kept(&self, shard: &mut OpenFileShard, old: &OpenFile) {
        if Arc::strong_count(&old.body) > 1 {
            shard.still_read.push_back(Arc::downgrade(&old.body));
        } else {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts one more file, if the limit allows it.
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
            // The file is closed after the lock of the shard is released.
            if closed.is_some() {
                self.count.fetch_sub(1, Ordering::Relaxed);
                if take() {
                    return true;
                }
            }
        }
        false
    }

    fn shard(&self, id: EntryId) -> &Mutex<OpenFileShard> {
        let [.., last] = id.to_bytes();
        &self.shards[usize::from(last) % SHARDS]
    }
}

/// File that is closed, or will be when this is dropped.
enum ClosedFile {
    Kept { _file: OpenFile },
    StillRead,
}

impl OpenFileShard {
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

    /// Takes a file that is not being read, or finds one that has been closed since.
    fn close_one(&mut self) -> Option<ClosedFile> {
        for _ in 0..MAX_SKIPPED {
            if let Some(body) = self.still_read.pop_front() {
                if body.strong_count() == 0 {
                    return Some(ClosedFile::StillRead);
                }
                self.still_read.push_back(body);
            }
            if let Some(file) = self.close_next() {
                return Some(ClosedFile::Kept { _file: file });
            }
        }
        None
    }

    fn close_next(&mut self) -> Option<OpenFile> {
        if self.hand >= self.ids.len() {
            self.hand = 0;
        }
        let id = *self.ids.get(self.hand)?;
        // The last id has moved to its position.
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
    fn a_file_being_read_stays_open_and_counts() {
        let files = OpenFiles::new(LIMIT);
        assert!((0..LIMIT).all(|number| admit(&files, number)));
        let mut read: Vec<_> = (0..LIMIT)
            .filter_map(|number| files.get(id(number)))
            .collect();
        assert_eq!(read.len(), LIMIT);
        assert!(!admit(&files, LIMIT), "all of them are read");
        // Removed files count as open while they are read.
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
    fn expired_entries_are_not_found() {
        let files = OpenFiles::new(1);
        assert!(files.admit(id(1), Bytes::new(), &body(), now()));
        assert!(files.get(id(1)).is_none());
        files.renew(id(1), &Bytes::from_static(b"new"), now() + 1000);
        assert_eq!(files.get(id(1)).expect("it is there").head, "new");
    }
}

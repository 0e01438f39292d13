//! The index of documents and of their changes, in one order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use microcache_policy::Time;
use microcache_store::random;
use smallvec::SmallVec;

use crate::changes::change::DocumentChange;
use crate::changes::change_numbers::ChangeNumbers;
use crate::changes::encodings::EncodedChanges;
use crate::changes::generations::{Generation, Generations};
use crate::changes::journal::{LogContents, LogHeader};
use crate::changes::version::DocumentVersion;
use crate::documents::client_network::ClientNetwork;
use crate::documents::topics::{TopicError, TopicId, TopicIndex};
use crate::name::{DocumentName, Pattern};
use crate::wait_list::Wakeups;

/// Limit of remembered deletions. A subscriber that has not seen a forgotten one is reset.
const MAX_DELETIONS: usize = 64 * 1024;
/// Divisor of the memory for documents; the result may be used by deletions in addition to it.
const DELETION_SHARE: u64 = 4;
/// Documents scanned for a new pattern per turn.
const MAX_SCANNED: usize = 1024;

/// The index of all documents.
pub(crate) struct DocumentIndex {
    pub(crate) generations: Generations,
    /// The number of the newest change.
    pub(crate) newest: u64,
    documents: HashMap<DocumentName, DocumentHistory, RandomState>,
    /// The names of the documents, sorted.
    names: BTreeSet<DocumentName>,
    /// Deleted documents, by the number of the deletion.
    deletions: BTreeMap<u64, DocumentName>,
    /// Memory used by deletions and its limit, in bytes.
    deletions_size: u64,
    deletions_capacity: u64,
    /// Upper bound of the deletions that may be forgotten.
    pub(crate) forgotten_through: u64,
    /// Documents by expiry time.
    expiries: BTreeMap<(Time, u64), DocumentName>,
    /// Memory used by documents, in bytes.
    size: u64,
    /// Versions stored per document; at least one.
    history: usize,
    pub(crate) topics: TopicIndex,
    pub(crate) encodings: EncodedChanges,
    pub(crate) subscribers: usize,
    /// True if documents are shared with other nodes, which may be ahead of this one.
    pub(crate) is_shared: bool,
    /// The numbers of the changes of all nodes.
    pub(crate) numbers: ChangeNumbers,
}

/// The parts of a snapshot of Redis besides the documents.
#[derive(Default)]
pub(crate) struct SnapshotExtras {
    /// Documents with a missing change: its content is overtaken, though later changes exist.
    pub(crate) missing: HashMap<DocumentName, u64>,
    pub(crate) numbers: ChangeNumbers,
}

/// The differences between a snapshot and the documents before.
#[derive(Default)]
pub(crate) struct SnapshotDiff {
    pub(crate) changed: Vec<Arc<DocumentChange>>,
    pub(crate) removed: Vec<DocumentName>,
    pub(crate) wakeups: Vec<Wakeups>,
    /// Tasks that wait for changes delivered by other nodes.
    pub(crate) waiting_for_numbers: Vec<Waker>,
    /// Number of documents before.
    pub(crate) documents: usize,
    /// True if the epoch is another one, so that all versions have new names.
    pub(crate) is_new_epoch: bool,
}

/// A document with its history.
#[derive(Default)]
pub(crate) struct DocumentHistory {
    /// Oldest first; the last one is current.
    changes: VecDeque<Arc<DocumentChange>>,
    /// Upper bound of the changes that are evicted from the history or never arrived.
    pub(crate) forgotten_through: u64,
}

impl DocumentHistory {
    /// Returns the newest change.
    pub(crate) fn current(&self) -> Option<&Arc<DocumentChange>> {
        self.changes.back()
    }

    /// Sets the bound of missing changes after a load. A log may have been compacted: earlier versions
    /// existed if the history is full or begins with a deletion.
    fn set_evicted_through(&mut self, history: usize) {
        if let Some(first) = self.changes.front()
            && (self.changes.len() >= history || first.is_deletion())
        {
            self.forgotten_through = self.forgotten_through.max(first.number - 1);
        }
    }

    /// Returns whether the newest change has not arrived yet.
    fn awaits_change(&self) -> bool {
        self.forgotten_through > self.current().map_or(0, |now| now.number)
    }

    /// Iterates over up to `most` changes, newest first.
    pub(crate) fn newest(&self, most: usize) -> impl Iterator<Item = &Arc<DocumentChange>> {
        self.changes.iter().rev().take(most)
    }

    /// Returns whether [`Self::newest`] begins with the first change of the document.
    pub(crate) fn has_all(&self, most: usize) -> bool {
        self.forgotten_through == 0 && self.changes.len() <= most
    }

    /// Returns the first change after this one.
    pub(crate) fn after(&self, number: u64) -> Option<&Arc<DocumentChange>> {
        self.changes.iter().find(|change| change.number > number)
    }
}

impl DocumentIndex {
    /// Creates an empty index that stores `history` versions per document, within `capacity` bytes.
    pub(crate) fn new(history: usize, capacity: u64) -> Self {
        Self {
            generations: Generations::new(random::number()),
            newest: 0,
            documents: HashMap::default(),
            names: BTreeSet::new(),
            deletions: BTreeMap::new(),
            deletions_size: 0,
            deletions_capacity: capacity / DELETION_SHARE,
            forgotten_through: 0,
            expiries: BTreeMap::new(),
            size: 0,
            history: history.max(1),
            topics: TopicIndex::default(),
            encodings: EncodedChanges::default(),
            subscribers: 0,
            is_shared: false,
            numbers: ChangeNumbers::default(),
        }
    }

    /// Loads the contents of a log.
    pub(crate) fn load(&mut self, loaded: LogContents) {
        let LogHeader {
            generations,
            newest,
            forgotten_through,
        } = loaded.header;
        self.generations = generations;
        for change in loaded.changes {
            self.apply(&change);
        }
        self.newest = self.newest.max(newest);
        self.forgotten_through = self.forgotten_through.max(forgotten_through);
        for document in self.documents.values_mut() {
            document.set_evicted_through(self.history);
        }
    }

    /// Starts a new generation of versions.
    pub(crate) fn begin_generation(&mut self) -> Generation {
        let generation = Generation {
            epoch: random::number(),
            first: self.newest + 1,
        };
        self.generations.begin(generation);
        generation
    }

    /// Replaces the contents by a snapshot of Redis; returns the differences.
    ///
    /// Within the same epoch, changes were missed: a subscriber behind `forgotten_through` is reset when its
    /// next event is due.
    pub(crate) fn replace_all(
        &mut self,
        loaded: LogContents,
        extras: SnapshotExtras,
    ) -> SnapshotDiff {
        let LogHeader {
            generations,
            newest,
            forgotten_through,
        } = loaded.header;
        let is_new_epoch = generations != self.generations;
        let mut diff = SnapshotDiff {
            documents: self.len(),
            is_new_epoch,
            ..SnapshotDiff::default()
        };
        if is_new_epoch {
            diff.removed = self.documents.keys().map(Arc::clone).collect();
            diff.wakeups = self.reset(generations);
        } else {
            let changes = loaded.changes.iter();
            let stays: HashSet<&str> = changes.map(|change| &*change.name).collect();
            let names = self.documents.keys().map(Arc::clone);
            diff.removed = names.filter(|name| !stays.contains(&**name)).collect();
            for name in &diff.removed {
                diff.wakeups.extend(self.remove_document(name));
            }
        }
        for change in loaded.changes {
            let now = self
                .document(&change.name)
                .and_then(DocumentHistory::current);
            if now.is_none_or(|now| now.number < change.number) {
                diff.wakeups.extend(self.apply(&change));
                diff.changed.push(change);
            }
        }
        for (name, number) in &extras.missing {
            if self.documents.contains_key(name) {
                diff.wakeups.extend(self.record_missing(name, *number));
            }
        }
        diff.waiting_for_numbers = self.numbers.replace(extras.numbers);
        self.newest = self.newest.max(newest);
        // The deletions may exceed their memory limit here.
        self.forgotten_through = self.forgotten_through.max(forgotten_through);
        diff
    }

    /// Clears everything for another epoch; returns all waiting tasks, whose positions are void.
    fn reset(&mut self, generations: Generations) -> Vec<Wakeups> {
        self.generations = generations;
        (self.newest, self.forgotten_through) = (0, 0);
        (self.size, self.deletions_size) = (0, 0);
        self.documents.clear();
        self.names.clear();
        self.deletions.clear();
        self.expiries.clear();
        self.encodings = EncodedChanges::default();
        self.numbers = ChangeNumbers::default();
        self.topics.reset()
    }

    /// Removes a document whose deletion was missed.
    fn remove_document(&mut self, name: &DocumentName) -> SmallVec<[Wakeups; 2]> {
        let Some(document) = self.document(name) else {
            return SmallVec::new();
        };
        let changes: Vec<_> = document.changes.iter().map(Arc::clone).collect();
        for change in &changes {
            self.deletions.remove(&change.number);
            if let Some(expires) = change.expires {
                self.expiries.remove(&(expires, change.number));
            }
        }
        self.remove(name);
        let numbers: Vec<_> = changes.iter().map(|change| change.number).collect();
        self.topics.remove_document(name, &numbers)
    }

    /// Returns a document with its history.
    pub(crate) fn document(&self, name: &str) -> Option<&DocumentHistory> {
        self.documents.get(name)
    }

    /// Returns the current version of a document, unless it is deleted.
    pub(crate) fn current(&self, name: &str) -> Option<&Arc<DocumentChange>> {
        self.documents
            .get(name)?
            .current()
            .filter(|it| !it.is_deletion())
    }

    /// Adds a change; returns the tasks to wake.
    pub(crate) fn apply(&mut self, change: &Arc<DocumentChange>) -> SmallVec<[Wakeups; 2]> {
        self.newest = self.newest.max(change.number);
        if !self.documents.contains_key(&change.name) {
            self.names.insert(Arc::clone(&change.name));
        }
        let document = self.documents.entry(Arc::clone(&change.name)).or_default();
        if let Some(before) = document.current() {
            if self.deletions.remove(&before.number).is_some() {
                self.deletions_size -= before.deletion_size();
            }
            if let Some(expires) = before.expires {
                self.expiries.remove(&(expires, before.number));
            }
        }
        self.size += change.size();
        let awaits_change = document.awaits_change();
        // Versions before a deletion or before a missing change are not replayed.
        let most = if change.is_deletion() || awaits_change {
            1
        } else {
            self.history
        };
        let mut forgotten = SmallVec::<[u64; 2]>::new();
        if awaits_change {
            // Until now the version before the missing change was delivered as the newest.
            document.forgotten_through = change.number;
            forgotten.push(change.number);
        }
        document.changes.push_back(Arc::clone(change));
        while document.changes.len() > most {
            if let Some(old) = document.changes.pop_front() {
                self.size -= old.size();
                document.forgotten_through = document.forgotten_through.max(old.number);
                forgotten.push(old.number);
            }
        }
        if change.is_deletion() {
            self.deletions
                .insert(change.number, Arc::clone(&change.name));
            self.deletions_size += change.deletion_size();
        }
        if let Some(expires) = change.expires {
            self.expiries
                .insert((expires, change.number), Arc::clone(&change.name));
        }
        let wakeups = self.topics.record(change, &forgotten);
        self.evict_deletions();
        wakeups
    }

    /// Records that a change did not arrive, and that a later one will; returns the tasks to wake.
    pub(crate) fn record_missing(
        &mut self,
        name: &DocumentName,
        number: u64,
    ) -> SmallVec<[Wakeups; 2]> {
        if !self.has_history() {
            return SmallVec::new();
        }
        self.names.insert(Arc::clone(name));
        let document = self.documents.entry(Arc::clone(name)).or_default();
        document.forgotten_through = document.forgotten_through.max(number);
        self.topics.record_missing(name, number)
    }

    fn evict_deletions(&mut self) {
        while (self.deletions.len() > MAX_DELETIONS
            || self.deletions_size > self.deletions_capacity)
            && let Some((number, name)) = self.deletions.pop_first()
        {
            self.remove(&name);
            self.topics.forget(number);
            self.forgotten_through = number;
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(document) = self.documents.remove(name) {
            self.names.remove(name);
            for change in &document.changes {
                self.size -= change.size();
                self.deletions_size -= change.deletion_size();
            }
        }
    }

    /// Returns whether Redis has lost this version.
    pub(crate) fn is_lost(&self, version: DocumentVersion) -> bool {
        self.generations.has(version) && self.numbers.is_lost(version.number)
    }

    /// Subscribes to a pattern. Its documents still have to be found by [`Self::scan`].
    pub(crate) fn join(
        &mut self,
        pattern: &Pattern,
        client: ClientNetwork,
    ) -> Result<TopicId, TopicError> {
        let topic = self.topics.join(pattern, client)?;
        if let Pattern::Exact(name) = pattern
            && let Some(document) = self.document(name)
        {
            let forgotten = document.forgotten_through;
            self.topics
                .add_matches(topic, (Vec::new(), forgotten), None);
        }
        Ok(topic)
    }

    /// Scans some more documents for a topic; returns whether the scan is complete. Concurrent changes are
    /// added separately.
    pub(crate) fn scan(&mut self, topic: TopicId) -> bool {
        let Some((pattern, unscanned)) = self.topics.unscanned(topic) else {
            return true;
        };
        let (mut found, mut forgotten) = (Vec::new(), 0);
        let mut next = None;
        let names = self
            .names
            .range::<DocumentName, _>((unscanned.as_ref(), Bound::Unbounded));
        let names = names.take_while(|name| name.starts_with(pattern.literal_prefix()));
        for (count, name) in names.enumerate() {
            if count == MAX_SCANNED {
                next = Some(Bound::Included(Arc::clone(name)));
                break;
            }
            if pattern.matches(name) {
                let Some(document) = self.documents.get(name) else {
                    continue;
                };
                found.extend(document.changes.iter().map(Arc::clone));
                forgotten = forgotten.max(document.forgotten_through);
            }
        }
        let are_all = next.is_none();
        self.topics.add_matches(topic, (found, forgotten), next);
        are_all
    }

    /// Returns the first change of a topic after this one.
    pub(crate) fn after(&self, topic: TopicId, number: u64) -> Option<&Arc<DocumentChange>> {
        let topic = self.topics.get(topic);
        match &topic.pattern {
            Pattern::Exact(name) => self.document(name)?.after(number),
            Pattern::Glob(_) | Pattern::Template(_) => {
                let mut later = topic.changes.range(number + 1..);
                later.next().map(|(_, change)| change)
            }
        }
    }

    /// Returns whether only the latest version of each document is stored.
    pub(crate) const fn stores_only_latest(&self) -> bool {
        self.history == 1
    }

    /// Returns the bytes that this change evicts from the document's history.
    pub(crate) fn evicted_size(&self, change: &DocumentChange) -> u64 {
        let Some(document) = self.document(&change.name) else {
            return 0;
        };
        let most = if change.is_deletion() {
            1
        } else {
            self.history
        };
        let leaving = (document.changes.len() + 1).saturating_sub(most);
        let sizes = document.changes.iter().take(leaving);
        sizes.map(|change| change.size()).sum()
    }

    /// Returns whether earlier versions are stored, too.
    pub(crate) const fn has_history(&self) -> bool {
        self.history > 1
    }

    /// Returns whether this is the document's newest change.
    pub(crate) fn is_current(&self, change: &DocumentChange) -> bool {
        let now = self
            .document(&change.name)
            .and_then(DocumentHistory::current);
        now.is_some_and(|now| now.number == change.number)
    }

    /// Returns the documents whose lifetime ends at `now` or earlier.
    pub(crate) fn expired(&self, now: Time) -> Vec<DocumentName> {
        let due = self.expiries.iter().take_while(|((at, _), _)| *at <= now);
        due.map(|(_, name)| Arc::clone(name)).collect()
    }

    /// Returns the next expiry time.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.expiries.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns all stored changes, oldest first, as they are written to a compacted log.
    pub(crate) fn all(&self) -> Vec<Arc<DocumentChange>> {
        let mut all: Vec<_> = self
            .documents
            .values()
            .flat_map(|document| document.changes.iter().map(Arc::clone))
            .collect();
        all.sort_unstable_by_key(|change| change.number);
        all
    }

    /// Returns the memory used by documents, in bytes.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the memory used by documents and deletions, in bytes.
    pub(crate) const fn total_size(&self) -> u64 {
        self.size + self.deletions_size
    }

    /// Returns the number of documents.
    pub(crate) fn len(&self) -> usize {
        self.documents.len() - self.deletions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::change::DocumentContent;

    fn change(number: u64, name: &str, is_there: bool) -> Arc<DocumentChange> {
        Arc::new(DocumentChange {
            number,
            name: name.into(),
            content: is_there.then(|| DocumentContent {
                media_type: "text/plain".into(),
                body: "x".into(),
            }),
            expires: None,
            delta: None,
        })
    }

    /// The changes that a topic should know, by an exhaustive search.
    fn expected(index: &DocumentIndex, pattern: &Pattern) -> Vec<u64> {
        let all = index.all().into_iter();
        let matching = all.filter(|change| pattern.matches(&change.name));
        matching.map(|change| change.number).collect()
    }

    fn snapshot(epoch: u64, newest: u64, changes: &[Arc<DocumentChange>]) -> LogContents {
        LogContents {
            header: LogHeader {
                generations: Generations::new(epoch),
                newest,
                forgotten_through: newest - 1,
            },
            changes: changes.to_vec(),
            is_damaged: false,
        }
    }

    #[test]
    fn a_loaded_index_has_the_current_documents() {
        let mut index = DocumentIndex::new(1, 1 << 20);
        index.generations = Generations::new(1);
        for (number, name) in [(1, "/live/a"), (2, "/live/b"), (3, "/live/c")] {
            let _ = index.apply(&change(number, name, true));
        }
        let pattern = Pattern::parse("/live/*").expect("a pattern");
        let topic = index
            .join(&pattern, ClientNetwork::default())
            .expect("room");
        assert!(index.scan(topic));
        let same = [change(3, "/live/c", true), change(9, "/live/b", true)];
        for (epoch, differ, removed) in [(1, 1, 1), (1, 0, 0), (2, 2, 2)] {
            let diff = index.replace_all(snapshot(epoch, 9, &same), SnapshotExtras::default());
            assert_eq!((diff.changed.len(), diff.removed.len()), (differ, removed));
            assert_eq!(diff.is_new_epoch, epoch == 2);
            let numbers: Vec<_> = index.topics.get(topic).changes.keys().copied().collect();
            assert_eq!(numbers, [3, 9]);
            assert_eq!((index.len(), index.newest), (2, 9));
            assert_eq!(index.generations.current(), epoch);
            assert_eq!(index.size(), same.iter().map(|it| it.size()).sum::<u64>());
            assert!(index.current("/live/a").is_none() && index.current("/live/c").is_some());
        }
    }

    /// A subscriber behind a forgotten deletion cannot learn of it, and has to be reset.
    #[test]
    fn deletions_without_room_are_forgotten_when_loaded_too() {
        let deletions: Vec<_> = (1..=5)
            .map(|number| change(number, &format!("/live/{number}"), false))
            .collect();
        let room_for_three = deletions[0].deletion_size() * 3 * DELETION_SHARE;
        let mut index = DocumentIndex::new(1, room_for_three);
        for (epoch, forgotten, expected) in [(1, 0, 2), (2, 0, 2), (2, 4, 4), (3, 0, 2)] {
            let mut loaded = snapshot(epoch, 9, &deletions);
            loaded.header.forgotten_through = forgotten;
            let _ = index.replace_all(loaded, SnapshotExtras::default());
            assert_eq!(index.forgotten_through, expected, "{epoch}, {forgotten}");
        }
    }

    #[test]
    fn a_new_pattern_is_looked_for_a_few_documents_at_a_time() {
        const DOCUMENTS: u64 = 100_000;
        let mut index = DocumentIndex::new(2, 1 << 40);
        for number in 1..=DOCUMENTS {
            let _ = index.apply(&change(
                number,
                &format!("/live/{}/{number}", number % 2),
                true,
            ));
        }
        let mut number = DOCUMENTS;
        for (text, part) in [("/live/*7", 1), ("/live/1/*", 2), ("/live/{a}/{b}", 1)] {
            let pattern = Pattern::parse(text).expect("a pattern");
            let topic = index
                .join(&pattern, ClientNetwork::default())
                .expect("room");
            let mut slices = 1;
            while !index.scan(topic) {
                slices += 1;
                // Between two turns, documents before and after the scan position are added, changed and
                // deleted.
                for (name, is_there) in [
                    (format!("/live/1/{number}7"), true),
                    (format!("/live/1/{slices}7"), true),
                    (format!("/live/0/{}", slices * 1000), slices % 2 == 0),
                    (format!("/live/1/{}7", slices * 700), slices % 3 > 0),
                ] {
                    number += 1;
                    let _ = index.apply(&change(number, &name, is_there));
                }
            }
            let least = DOCUMENTS as usize / part / MAX_SCANNED;
            assert!((least..2 * least).contains(&slices), "{text}: {slices}");
            let known: Vec<_> = index.topics.get(topic).changes.keys().copied().collect();
            assert_eq!(known, expected(&index, &pattern), "{text}");
            assert!(index.scan(topic), "it is known once for all");
        }
        // A prefix without documents needs no scan.
        let pattern = Pattern::parse("/other/*").expect("a pattern");
        let topic = index
            .join(&pattern, ClientNetwork::default())
            .expect("room");
        assert!(index.scan(topic));
    }
}

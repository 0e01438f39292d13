//! The index of documents and of their changes, in one order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use microcache_policy::Time;
use microcache_store::random;
use smallvec::SmallVec;

use crate::changes::change::Change;
use crate::changes::encodings::Encodings;
use crate::changes::generations::{Generation, Generations};
use crate::changes::journal::{Header, Loaded};
use crate::changes::numbers::Numbers;
use crate::changes::version::Version;
use crate::documents::client::Client;
use crate::documents::topics::{NoTopic, TopicId, Topics};
use crate::name::{Name, Pattern};
use crate::waiting::Woken;

/// Limit of remembered deletions. A subscriber that has not seen a forgotten one is reset.
const MAX_GONE: usize = 64 * 1024;
/// Share of the memory for documents that deletions may use in addition to it: one in so many bytes.
const GONE_SHARE: u64 = 4;
/// Documents scanned for a new pattern per turn.
const MAX_LOOKED_AT: usize = 1024;

/// The index of all documents.
pub(crate) struct Books {
    pub(crate) generations: Generations,
    /// The number of the newest change.
    pub(crate) newest: u64,
    documents: HashMap<Name, Document, RandomState>,
    /// The names of the documents, sorted.
    names: BTreeSet<Name>,
    /// Deleted documents, by the number of the deletion.
    gone: BTreeMap<u64, Name>,
    /// Memory used by deletions and its limit, in bytes.
    gone_size: u64,
    gone_capacity: u64,
    /// Upper bound of the deletions that may be forgotten.
    pub(crate) forgotten_through: u64,
    /// Documents by expiry time.
    expiries: BTreeMap<(Time, u64), Name>,
    /// Memory used by documents, in bytes.
    size: u64,
    /// Versions stored per document; at least one.
    history: usize,
    pub(crate) topics: Topics,
    pub(crate) encodings: Encodings,
    pub(crate) subscribers: usize,
    /// True if documents are shared with other nodes, which may be ahead of this one.
    pub(crate) is_shared: bool,
    /// The numbers of the changes of all nodes.
    pub(crate) numbers: Numbers,
}

/// The parts of a snapshot of Redis besides the documents.
#[derive(Default)]
pub(crate) struct Beside {
    /// Documents with a missing change: its content is overtaken, though later changes exist.
    pub(crate) missing: HashMap<Name, u64>,
    pub(crate) numbers: Numbers,
}

/// The differences between a snapshot and the documents before.
#[derive(Default)]
pub(crate) struct TakenOver {
    pub(crate) changed: Vec<Arc<Change>>,
    pub(crate) vanished: Vec<Name>,
    pub(crate) woken: Vec<Woken>,
    /// Tasks that wait for changes delivered by other nodes.
    pub(crate) ahead: Vec<Waker>,
    /// Number of documents before.
    pub(crate) documents: usize,
    /// True if the epoch is another one, so that all versions have new names.
    pub(crate) is_another_life: bool,
}

/// A document with its history.
#[derive(Default)]
pub(crate) struct Document {
    /// Oldest first; the last one is current.
    changes: VecDeque<Arc<Change>>,
    /// Upper bound of the changes that are evicted from the history or never arrived.
    pub(crate) forgotten_through: u64,
}

impl Document {
    /// Returns the newest change.
    pub(crate) fn now(&self) -> Option<&Arc<Change>> {
        self.changes.back()
    }

    /// Sets the bound of missing changes after a load. A log may have been compacted: earlier versions
    /// existed if the history is full or begins with a deletion.
    fn note_forgotten(&mut self, history: usize) {
        if let Some(first) = self.changes.front()
            && (self.changes.len() >= history || first.is_gone())
        {
            self.forgotten_through = self.forgotten_through.max(first.number - 1);
        }
    }

    /// Returns whether the newest change has not arrived yet.
    fn is_behind(&self) -> bool {
        self.forgotten_through > self.now().map_or(0, |now| now.number)
    }

    /// Returns the first change after this one.
    pub(crate) fn after(&self, number: u64) -> Option<&Arc<Change>> {
        self.changes.iter().find(|change| change.number > number)
    }
}

impl Books {
    /// Creates an empty index with a history of so many versions, and a memory limit in bytes.
    pub(crate) fn new(history: usize, capacity: u64) -> Self {
        Self {
            generations: Generations::new(random::number()),
            newest: 0,
            documents: HashMap::default(),
            names: BTreeSet::new(),
            gone: BTreeMap::new(),
            gone_size: 0,
            gone_capacity: capacity / GONE_SHARE,
            forgotten_through: 0,
            expiries: BTreeMap::new(),
            size: 0,
            history: history.max(1),
            topics: Topics::default(),
            encodings: Encodings::default(),
            subscribers: 0,
            is_shared: false,
            numbers: Numbers::default(),
        }
    }

    /// Loads the contents of a log.
    pub(crate) fn load(&mut self, loaded: Loaded) {
        let Header {
            generations,
            newest,
            forgotten_through,
        } = loaded.header;
        self.generations = generations;
        for change in loaded.changes {
            self.note(&change);
        }
        self.newest = self.newest.max(newest);
        self.forgotten_through = self.forgotten_through.max(forgotten_through);
        for document in self.documents.values_mut() {
            document.note_forgotten(self.history);
        }
    }

    /// Starts a new generation of versions.
    pub(crate) fn begin_generation(&mut self) -> Generation {
        let begun = Generation {
            epoch: random::number(),
            first: self.newest + 1,
        };
        self.generations.begin(begun);
        begun
    }

    /// Replaces the contents by a snapshot of Redis; returns the differences.
    ///
    /// Within the same epoch, changes were missed: a subscriber behind `forgotten_through` is reset when its
    /// next event is due.
    pub(crate) fn take_over(&mut self, loaded: Loaded, beside: Beside) -> TakenOver {
        let Header {
            generations,
            newest,
            forgotten_through,
        } = loaded.header;
        let is_another_life = generations != self.generations;
        let mut taken = TakenOver {
            documents: self.len(),
            is_another_life,
            ..TakenOver::default()
        };
        if is_another_life {
            taken.vanished = self.documents.keys().map(Arc::clone).collect();
            taken.woken = self.begin_anew(generations);
        } else {
            let changes = loaded.changes.iter();
            let stays: HashSet<&str> = changes.map(|change| &*change.name).collect();
            let names = self.documents.keys().map(Arc::clone);
            taken.vanished = names.filter(|name| !stays.contains(&**name)).collect();
            for name in &taken.vanished {
                taken.woken.extend(self.vanish(name));
            }
        }
        for change in loaded.changes {
            let now = self.document(&change.name).and_then(Document::now);
            if now.is_none_or(|now| now.number < change.number) {
                taken.woken.extend(self.note(&change));
                taken.changed.push(change);
            }
        }
        for (name, number) in &beside.missing {
            if self.documents.contains_key(name) {
                taken.woken.extend(self.note_missing(name, *number));
            }
        }
        taken.ahead = self.numbers.take_over(beside.numbers);
        self.newest = self.newest.max(newest);
        // The deletions may exceed their memory limit here.
        self.forgotten_through = self.forgotten_through.max(forgotten_through);
        taken
    }

    /// Clears everything for another epoch; returns all waiting tasks, whose positions are void.
    fn begin_anew(&mut self, generations: Generations) -> Vec<Woken> {
        self.generations = generations;
        (self.newest, self.forgotten_through) = (0, 0);
        (self.size, self.gone_size) = (0, 0);
        self.documents.clear();
        self.names.clear();
        self.gone.clear();
        self.expiries.clear();
        self.encodings = Encodings::default();
        self.numbers = Numbers::default();
        self.topics.begin_anew()
    }

    /// Removes a document whose deletion was missed.
    fn vanish(&mut self, name: &Name) -> SmallVec<[Woken; 2]> {
        let Some(document) = self.document(name) else {
            return SmallVec::new();
        };
        let changes: Vec<_> = document.changes.iter().map(Arc::clone).collect();
        for change in &changes {
            self.gone.remove(&change.number);
            if let Some(expires) = change.expires {
                self.expiries.remove(&(expires, change.number));
            }
        }
        self.forget(name);
        let numbers: Vec<_> = changes.iter().map(|change| change.number).collect();
        self.topics.vanish(name, &numbers)
    }

    /// Returns a document with its history.
    pub(crate) fn document(&self, name: &str) -> Option<&Document> {
        self.documents.get(name)
    }

    /// Returns the current version of a document, unless it is deleted.
    pub(crate) fn now(&self, name: &str) -> Option<&Arc<Change>> {
        self.documents.get(name)?.now().filter(|it| !it.is_gone())
    }

    /// Adds a change; returns the tasks to wake.
    pub(crate) fn note(&mut self, change: &Arc<Change>) -> SmallVec<[Woken; 2]> {
        self.newest = self.newest.max(change.number);
        if !self.documents.contains_key(&change.name) {
            self.names.insert(Arc::clone(&change.name));
        }
        let document = self.documents.entry(Arc::clone(&change.name)).or_default();
        if let Some(before) = document.now() {
            if self.gone.remove(&before.number).is_some() {
                self.gone_size -= before.gone_size();
            }
            if let Some(expires) = before.expires {
                self.expiries.remove(&(expires, before.number));
            }
        }
        self.size += change.size();
        let is_behind = document.is_behind();
        // Versions before a deletion or before a missing change are not replayed.
        let most = if change.is_gone() || is_behind {
            1
        } else {
            self.history
        };
        let mut forgotten = SmallVec::<[u64; 2]>::new();
        if is_behind {
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
        if change.is_gone() {
            self.gone.insert(change.number, Arc::clone(&change.name));
            self.gone_size += change.gone_size();
        }
        if let Some(expires) = change.expires {
            self.expiries
                .insert((expires, change.number), Arc::clone(&change.name));
        }
        let woken = self.topics.note(change, &forgotten);
        self.forget_long_gone();
        woken
    }

    /// Records that a change did not arrive, and that a later one will; returns the tasks to wake.
    pub(crate) fn note_missing(&mut self, name: &Name, number: u64) -> SmallVec<[Woken; 2]> {
        if !self.has_history() {
            return SmallVec::new();
        }
        self.names.insert(Arc::clone(name));
        let document = self.documents.entry(Arc::clone(name)).or_default();
        document.forgotten_through = document.forgotten_through.max(number);
        self.topics.note_missing(name, number)
    }

    fn forget_long_gone(&mut self) {
        while (self.gone.len() > MAX_GONE || self.gone_size > self.gone_capacity)
            && let Some((number, name)) = self.gone.pop_first()
        {
            self.forget(&name);
            self.topics.forget(number);
            self.forgotten_through = number;
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(document) = self.documents.remove(name) {
            self.names.remove(name);
            for change in &document.changes {
                self.size -= change.size();
                self.gone_size -= change.gone_size();
            }
        }
    }

    /// Returns whether Redis has lost this version.
    pub(crate) fn has_lost(&self, version: Version) -> bool {
        self.generations.has(version) && self.numbers.has_lost(version.number)
    }

    /// Subscribes to a pattern. Its documents still have to be found by [`Self::look_on`].
    pub(crate) fn join(&mut self, pattern: &Pattern, client: Client) -> Result<TopicId, NoTopic> {
        let topic = self.topics.join(pattern, client)?;
        if let Pattern::Exact(name) = pattern
            && let Some(document) = self.document(name)
        {
            let forgotten = document.forgotten_through;
            self.topics.found(topic, (Vec::new(), forgotten), None);
        }
        Ok(topic)
    }

    /// Scans some more documents for a topic; returns whether the scan is complete. Concurrent changes are
    /// added separately.
    pub(crate) fn look_on(&mut self, topic: TopicId) -> bool {
        let Some((pattern, unseen)) = self.topics.unseen(topic) else {
            return true;
        };
        let (mut found, mut forgotten) = (Vec::new(), 0);
        let mut next = None;
        let names = self
            .names
            .range::<Name, _>((unseen.as_ref(), Bound::Unbounded));
        let names = names.take_while(|name| name.starts_with(pattern.begins_with()));
        for (count, name) in names.enumerate() {
            if count == MAX_LOOKED_AT {
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
        self.topics.found(topic, (found, forgotten), next);
        are_all
    }

    /// Returns the first change of a topic after this one.
    pub(crate) fn after(&self, topic: TopicId, number: u64) -> Option<&Arc<Change>> {
        let topic = self.topics.get(topic);
        match &topic.pattern {
            Pattern::Exact(name) => self.document(name)?.after(number),
            Pattern::Like(_) | Pattern::Template(_) => {
                let mut later = topic.changes.range(number + 1..);
                later.next().map(|(_, change)| change)
            }
        }
    }

    /// Returns whether only the latest version of each document is stored.
    pub(crate) const fn keeps_only_the_last(&self) -> bool {
        self.history == 1
    }

    /// Returns the bytes that this change evicts from the document's history.
    pub(crate) fn leaves(&self, change: &Change) -> u64 {
        let Some(document) = self.document(&change.name) else {
            return 0;
        };
        let most = if change.is_gone() { 1 } else { self.history };
        let leaving = (document.changes.len() + 1).saturating_sub(most);
        let sizes = document.changes.iter().take(leaving);
        sizes.map(|change| change.size()).sum()
    }

    /// Returns whether earlier versions are stored, too.
    pub(crate) const fn has_history(&self) -> bool {
        self.history > 1
    }

    /// Returns whether this is the document's newest change.
    pub(crate) fn is_now(&self, change: &Change) -> bool {
        let now = self.document(&change.name).and_then(Document::now);
        now.is_some_and(|now| now.number == change.number)
    }

    /// Returns the documents whose lifetime ends at `now` or earlier.
    pub(crate) fn expired(&self, now: Time) -> Vec<Name> {
        let due = self.expiries.iter().take_while(|((at, _), _)| *at <= now);
        due.map(|(_, name)| Arc::clone(name)).collect()
    }

    /// Returns the next expiry time.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.expiries.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns all stored changes, oldest first, as they are written to a compacted log.
    pub(crate) fn all(&self) -> Vec<Arc<Change>> {
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
    pub(crate) const fn whole_size(&self) -> u64 {
        self.size + self.gone_size
    }

    /// Returns the number of documents.
    pub(crate) fn len(&self) -> usize {
        self.documents.len() - self.gone.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::change::Content;

    fn change(number: u64, name: &str, is_there: bool) -> Arc<Change> {
        Arc::new(Change {
            number,
            name: name.into(),
            content: is_there.then(|| Content {
                media_type: "text/plain".into(),
                body: "x".into(),
            }),
            expires: None,
            delta: None,
        })
    }

    /// The changes that a topic should know, by an exhaustive search.
    fn expected(books: &Books, pattern: &Pattern) -> Vec<u64> {
        let all = books.all().into_iter();
        let matching = all.filter(|change| pattern.matches(&change.name));
        matching.map(|change| change.number).collect()
    }

    fn snapshot(epoch: u64, newest: u64, changes: &[Arc<Change>]) -> Loaded {
        Loaded {
            header: Header {
                generations: Generations::new(epoch),
                newest,
                forgotten_through: newest - 1,
            },
            changes: changes.to_vec(),
            is_damaged: false,
        }
    }

    #[test]
    fn what_is_taken_up_is_what_there_is() {
        let mut books = Books::new(1, 1 << 20);
        books.generations = Generations::new(1);
        for (number, name) in [(1, "/live/a"), (2, "/live/b"), (3, "/live/c")] {
            let _ = books.note(&change(number, name, true));
        }
        let pattern = Pattern::parse("/live/*").expect("a pattern");
        let topic = books.join(&pattern, Client::default()).expect("room");
        assert!(books.look_on(topic));
        let same = [change(3, "/live/c", true), change(9, "/live/b", true)];
        for (epoch, differ, vanished) in [(1, 1, 1), (1, 0, 0), (2, 2, 2)] {
            let taken = books.take_over(snapshot(epoch, 9, &same), Beside::default());
            assert_eq!(
                (taken.changed.len(), taken.vanished.len()),
                (differ, vanished)
            );
            assert_eq!(taken.is_another_life, epoch == 2);
            let numbers: Vec<_> = books.topics.get(topic).changes.keys().copied().collect();
            assert_eq!(numbers, [3, 9]);
            assert_eq!((books.len(), books.newest), (2, 9));
            assert_eq!(books.generations.current(), epoch);
            assert_eq!(books.size(), same.iter().map(|it| it.size()).sum::<u64>());
            assert!(books.now("/live/a").is_none() && books.now("/live/c").is_some());
        }
    }

    /// A subscriber behind a forgotten deletion cannot learn of it, and has to be reset.
    #[test]
    fn what_is_gone_and_has_no_room_is_forgotten_when_it_is_taken_up_too() {
        let gone: Vec<_> = (1..=5)
            .map(|number| change(number, &format!("/live/{number}"), false))
            .collect();
        let room_for_three = gone[0].gone_size() * 3 * GONE_SHARE;
        let mut books = Books::new(1, room_for_three);
        for (epoch, forgotten, expected) in [(1, 0, 2), (2, 0, 2), (2, 4, 4), (3, 0, 2)] {
            let mut loaded = snapshot(epoch, 9, &gone);
            loaded.header.forgotten_through = forgotten;
            let _ = books.take_over(loaded, Beside::default());
            assert_eq!(books.forgotten_through, expected, "{epoch}, {forgotten}");
        }
    }

    #[test]
    fn a_new_pattern_is_looked_for_a_few_documents_at_a_time() {
        const DOCUMENTS: u64 = 100_000;
        let mut books = Books::new(2, 1 << 40);
        for number in 1..=DOCUMENTS {
            let _ = books.note(&change(
                number,
                &format!("/live/{}/{number}", number % 2),
                true,
            ));
        }
        let mut number = DOCUMENTS;
        for (text, part) in [("/live/*7", 1), ("/live/1/*", 2), ("/live/{a}/{b}", 1)] {
            let pattern = Pattern::parse(text).expect("a pattern");
            let topic = books.join(&pattern, Client::default()).expect("room");
            let mut slices = 1;
            while !books.look_on(topic) {
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
                    let _ = books.note(&change(number, &name, is_there));
                }
            }
            let least = DOCUMENTS as usize / part / MAX_LOOKED_AT;
            assert!((least..2 * least).contains(&slices), "{text}: {slices}");
            let known: Vec<_> = books.topics.get(topic).changes.keys().copied().collect();
            assert_eq!(known, expected(&books, &pattern), "{text}");
            assert!(books.look_on(topic), "it is known once for all");
        }
        // A prefix without documents needs no scan.
        let pattern = Pattern::parse("/other/*").expect("a pattern");
        let topic = books.join(&pattern, Client::default()).expect("room");
        assert!(books.look_on(topic));
    }
}

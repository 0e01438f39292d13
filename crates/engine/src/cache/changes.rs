//! Change notifications of the cache. Every change has a number; a watcher of a key, a prefix, a
//! host or a tag gets a notice of each entry stored, renewed or removed there.
//!
//! A mailbox is bounded. On overflow it is replaced by one notice with the number up to which
//! changes were missed; the watcher then reads the current state. Without watchers a change costs
//! one atomic load.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use foldhash::fast::RandomState;
use microcache_store::{Key, Stored, TagNumbers};
use parking_lot::Mutex;

use super::rule::{EntryNames, Rule, RuleSubject, Scope, Strength};

/// The most notices waiting for one watcher. On overflow they are replaced by one notice that some
/// were missed.
const MAILBOX: usize = 256;
/// The most watchers at a time.
pub const MAX_WATCHERS: usize = 64 * 1024;

/// The entries to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchTarget {
    /// The responses of one key.
    Key(Key),
    /// Every entry in this purge scope.
    Scope(Scope),
    /// Every purge, whatever its scope. The entries it covers are removed or stale when the notice
    /// arrives.
    Purges,
}

/// A change in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheChange {
    /// Greater than the numbers of all earlier changes.
    pub number: u64,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The subject.
    pub subject: Subject,
}

/// The subject of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A response of this key.
    Key {
        /// The key.
        key: Key,
        /// The entity tag or the modification date of the response, if it has one.
        validator: Option<Bytes>,
    },
    /// Every entry in this scope.
    Scope(Scope),
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A response was stored.
    Stored,
    /// The origin confirmed the stored response.
    Renewed,
    /// The entry was removed.
    Purged,
    /// The entry became stale.
    Expired,
}

/// A notice to a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A change.
    Changed(CacheChange),
    /// Changes up to this number were dropped because the mailbox was full. The watched entries
    /// have to be read again.
    Missed(u64),
}

/// The limit of watchers is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many watchers: {MAX_WATCHERS} at most")]
pub struct TooManyWatchers;

/// All watchers.
#[derive(Debug, Default)]
pub(super) struct Changes {
    watching: AtomicUsize,
    index: Mutex<WatcherIndex>,
}

#[derive(Debug, Default)]
struct WatcherIndex {
    number: u64,
    next_id: u64,
    everything: Mailboxes,
    purges: Mailboxes,
    keys: HashMap<Key, Mailboxes, RandomState>,
    named: HashMap<u64, Mailboxes, RandomState>,
    prefixes: BTreeMap<usize, HashMap<Vec<u8>, Mailboxes, RandomState>>,
}

type Mailboxes = Vec<(u64, Arc<Mailbox>)>;

#[derive(Debug, Default)]
struct Mailbox(Mutex<Letters>);

#[derive(Debug, Default)]
struct Letters {
    waiting: VecDeque<CacheChange>,
    missed: Option<u64>,
    waker: Option<Waker>,
}

impl Changes {
    /// Registers a watcher.
    pub(super) fn watch(self: &Arc<Self>, what: WatchTarget) -> Result<Watcher, TooManyWatchers> {
        let mut index = self.index.lock();
        if self.watching.load(Ordering::Relaxed) >= MAX_WATCHERS {
            return Err(TooManyWatchers);
        }
        index.next_id += 1;
        let (id, mailbox) = (index.next_id, Arc::new(Mailbox::default()));
        index.of(&what).push((id, Arc::clone(&mailbox)));
        // Every later change sees the watcher.
        self.watching.fetch_add(1, Ordering::SeqCst);
        Ok(Watcher {
            changes: Arc::downgrade(self),
            mailbox,
            what,
            id,
            since: index.number,
        })
    }

    /// Notifies the watchers of a response of a key.
    pub(super) fn notify(&self, key: &Key, response: &Stored, kind: ChangeKind) {
        if self.watching.load(Ordering::SeqCst) == 0 {
            return;
        }
        let validator = validator(response);
        self.notify_watchers(key, response.tags(), validator, kind);
    }

    /// Notifies the watchers that all responses of a key were removed.
    pub(super) fn notify_removed(&self, key: &[u8]) {
        if self.watching.load(Ordering::SeqCst) > 0 {
            let (key, none) = (Key::from(key), TagNumbers::default());
            self.notify_watchers(&key, &none, None, ChangeKind::Purged);
        }
    }

    fn notify_watchers(
        &self,
        key: &Key,
        tags: &TagNumbers,
        validator: Option<Bytes>,
        kind: ChangeKind,
    ) {
        let entry = EntryNames::new(RuleSubject::fetch(key, tags));
        let mut index = self.index.lock();
        index.number += 1;
        let change = CacheChange {
            number: index.number,
            kind,
            subject: Subject::Key {
                key: Arc::clone(key),
                validator,
            },
        };
        let by_name = entry.numbers().map(|number| index.named.get(&number));
        let by_prefix = index
            .prefixes
            .iter()
            .map(|(length, all)| all.get(entry.begins_with(*length)?));
        let mailboxes = [Some(&index.everything), index.keys.get(key)]
            .into_iter()
            .chain(by_name)
            .chain(by_prefix)
            .flatten();
        let wakers: Vec<_> = mailboxes
            .flatten()
            .filter_map(|(_, mailbox)| mailbox.put(&change))
            .collect();
        drop(index);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notifies the watchers of the scope that a rule names. Watchers of single entries are
    /// notified when the sweep removes them.
    pub(super) fn notify_rule(&self, rule: &Rule) {
        if self.watching.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut index = self.index.lock();
        index.number += 1;
        let change = CacheChange {
            number: index.number,
            kind: match rule.strength {
                Strength::Hard => ChangeKind::Purged,
                Strength::Soft => ChangeKind::Expired,
            },
            subject: Subject::Scope(rule.scope.clone()),
        };
        let same = match &rule.scope {
            Scope::Everything => None,
            Scope::Prefix { .. } => {
                let prefix = rule.scope.pattern();
                let of_length = index.prefixes.get(&prefix.len());
                of_length.and_then(|all| all.get(&prefix))
            }
            scope => index.named.get(&scope.number()),
        };
        let mailboxes = same
            .into_iter()
            .chain([&index.everything, &index.purges])
            .flatten();
        let wakers: Vec<_> = mailboxes
            .filter_map(|(_, mailbox)| mailbox.put(&change))
            .collect();
        drop(index);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn leave(&self, what: &WatchTarget, id: u64) {
        let mut index = self.index.lock();
        index.of(what).retain(|(one, _)| *one != id);
        index.forget_empty(what);
        self.watching.fetch_sub(1, Ordering::SeqCst);
    }
}

impl WatcherIndex {
    fn of(&mut self, what: &WatchTarget) -> &mut Mailboxes {
        match what {
            WatchTarget::Key(key) => self.keys.entry(Arc::clone(key)).or_default(),
            WatchTarget::Scope(Scope::Everything) => &mut self.everything,
            WatchTarget::Purges => &mut self.purges,
            WatchTarget::Scope(scope @ Scope::Prefix { .. }) => {
                let prefix = scope.pattern();
                let of_length = self.prefixes.entry(prefix.len()).or_default();
                of_length.entry(prefix).or_default()
            }
            WatchTarget::Scope(scope) => self.named.entry(scope.number()).or_default(),
        }
    }

    fn forget_empty(&mut self, what: &WatchTarget) {
        match what {
            WatchTarget::Purges => {}
            WatchTarget::Key(key) => {
                if self.keys.get(key).is_some_and(Vec::is_empty) {
                    self.keys.remove(key);
                }
            }
            WatchTarget::Scope(Scope::Prefix { .. }) => {
                for of_length in self.prefixes.values_mut() {
                    of_length.retain(|_, all| !all.is_empty());
                }
                self.prefixes.retain(|_, of_length| !of_length.is_empty());
            }
            WatchTarget::Scope(scope) => {
                let number = scope.number();
                if self.named.get(&number).is_some_and(Vec::is_empty) {
                    self.named.remove(&number);
                }
            }
        }
    }
}

impl Mailbox {
    fn put(&self, change: &CacheChange) -> Option<Waker> {
        let mut letters = self.0.lock();
        if letters.missed.is_some() || letters.waiting.len() >= MAILBOX {
            letters.waiting.clear();
            letters.missed = Some(change.number);
        } else {
            letters.waiting.push_back(change.clone());
        }
        letters.waker.take()
    }
}

/// A registered watcher; unregistered on drop.
#[derive(Debug)]
pub struct Watcher {
    changes: Weak<Changes>,
    mailbox: Arc<Mailbox>,
    what: WatchTarget,
    id: u64,
    since: u64,
}

impl Watcher {
    /// The number of the last change before the watcher was registered.
    pub const fn since(&self) -> u64 {
        self.since
    }

    /// The next notice.
    pub async fn next(&mut self) -> Notice {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next notice, if there is one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Notice> {
        let mut letters = self.mailbox.0.lock();
        if let Some(missed) = letters.missed.take() {
            return Poll::Ready(Notice::Missed(missed));
        }
        if let Some(change) = letters.waiting.pop_front() {
            return Poll::Ready(Notice::Changed(change));
        }
        letters.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(changes) = self.changes.upgrade() {
            changes.leave(&self.what, self.id);
        }
    }
}

fn validator(response: &Stored) -> Option<Bytes> {
    let fields = response.fields();
    let validator = fields.get("etag").or_else(|| fields.get("last-modified"))?;
    Some(Bytes::copy_from_slice(validator))
}

#[cfg(all(test, not(shuttle)))]
mod tests;

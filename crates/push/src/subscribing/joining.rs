//! Adding and removing patterns of a live subscription.
//!
//! The documents of an added pattern are sent as a snapshot before any further change. Documents that another
//! pattern has delivered, or is about to deliver, are left out of it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::changes::events::Form;
use crate::documents::books::Books;
use crate::documents::topics::TopicId;
use crate::name::Pattern;
use crate::subscribing::page::Watching;
use crate::subscribing::subscription::{
    As, Next, NoSubscription, Step, Subscription, Wanted, look_for_all,
};

/// Limit of changes skipped per turn.
const MAX_SKIPPED: usize = 1024;

/// An added pattern whose snapshot is being delivered.
pub(crate) struct Joining {
    topic: TopicId,
    told_through: u64,
    /// The newest change when the pattern was added; the snapshot ends here.
    through: u64,
    /// Upper bound of changes another pattern of this subscription will still deliver.
    owed_through: u64,
    /// True if the pattern stays subscribed after the snapshot.
    stays: bool,
}

impl Joining {
    pub(crate) const fn topic(&self) -> TopicId {
        self.topic
    }
}

/// The size of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) urls: usize,
    pub(crate) stars: usize,
}

impl Subscription {
    /// Adds a pattern that is not subscribed to yet; no other join may be pending. If `stays` is false, only
    /// the snapshot is delivered.
    pub(crate) fn add(&mut self, pattern: &Pattern, stays: bool) -> Result<(), NoSubscription> {
        debug_assert!(self.joining.is_none());
        let documents = Arc::clone(&self.documents);
        let mut books = documents.books.lock();
        if self.is_quiet(&books) {
            self.has_seen_all(&books);
        }
        let topic = books.join(pattern, self.client).map_err(|why| {
            documents.counters.turned_away.add_one();
            NoSubscription::from(why)
        })?;
        look_for_all(&mut books, topic);
        if stays {
            // The subscription is not caught up with the new pattern.
            self.caught_up = 0;
            self.forget_told(pattern, &books);
        }
        self.joining = Some(Box::new(Joining {
            topic,
            told_through: 0,
            through: books.newest,
            owed_through: 0,
            stays,
        }));
        Ok(())
    }

    /// Returns whether the snapshot of an added pattern is incomplete.
    pub(crate) const fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// Returns whether the pattern is subscribed to.
    pub(crate) fn has(&self, pattern: &Pattern) -> bool {
        let books = self.documents.books.lock();
        let mut topics = self.topics.iter();
        topics.any(|it| books.topics.get(it.topic).pattern == *pattern)
    }

    /// Removes a pattern; returns whether it was subscribed to.
    pub(crate) fn remove(&mut self, pattern: &Pattern) -> bool {
        let documents = Arc::clone(&self.documents);
        let mut books = documents.books.lock();
        let is_it = |it: &Wanted| books.topics.get(it.topic).pattern == *pattern;
        let Some(at) = self.topics.iter().position(is_it) else {
            return false;
        };
        let wanted = self.topics.remove(at);
        books.topics.leave(wanted.topic, wanted.seat);
        // Changes that it was to deliver for overlapping patterns are now theirs to deliver.
        for other in &mut self.topics {
            other.since = other.since.min(self.seen);
        }
        true
    }

    /// Removes all patterns and pages.
    pub(crate) fn remove_all(&mut self) {
        let documents = Arc::clone(&self.documents);
        let mut books = documents.books.lock();
        for wanted in self.topics.drain(..) {
            books.topics.leave(wanted.topic, wanted.seat);
        }
        drop(books);
        self.pages.clear();
    }

    /// Adds a page.
    pub(crate) fn add_page(&mut self, page: Watching) {
        self.pages.push(page);
    }

    /// Returns whether the page is subscribed to.
    pub(crate) fn has_page(&self, url: &str) -> bool {
        self.pages.iter().any(|page| page.url() == url)
    }

    /// Removes a page; returns whether it was subscribed to.
    pub(crate) fn remove_page(&mut self, url: &str) -> bool {
        let at = self.pages.iter().position(|page| page.url() == url);
        at.map(|at| self.pages.remove(at)).is_some()
    }

    /// Returns the number of URLs and of patterns subscribed to.
    pub(crate) fn extent(&self) -> Extent {
        let books = self.documents.books.lock();
        let is_star = |it: &&Wanted| books.topics.get(it.topic).pattern.is_like();
        Extent {
            urls: self.topics.len() + self.pages.len(),
            stars: self.topics.iter().filter(is_star).count(),
        }
    }

    /// Polls the next event as JSON.
    pub(crate) fn poll_told(&mut self, cx: &mut Context<'_>, delta: Form) -> Poll<Bytes> {
        self.poll_encoded(cx, Form::Json, delta)
    }

    /// Advances the snapshot of the added pattern; `None` if no pattern is pending.
    pub(crate) fn join_on(&mut self, books: &mut Books) -> Option<Step> {
        let mut joining = self.joining.take()?;
        for _ in 0..MAX_SKIPPED {
            let next = books.after(joining.topic, joining.told_through);
            let next = next.filter(|change| change.number <= joining.through);
            let Some(change) = next.map(Arc::clone) else {
                return Some(self.join_last(joining, books));
            };
            joining.told_through = change.number;
            let is_there = !change.is_gone() && books.is_now(&change);
            let is_known = joining.stays && self.tells(&change.name, books);
            if !is_there || self.is_hidden(&change.name) {
                continue;
            }
            if is_known {
                if self.is_to_be_told(&change) {
                    joining.owed_through = change.number;
                }
                continue;
            }
            if joining.stays {
                self.note_told(&change);
            }
            self.joining = Some(joining);
            return Some(Step::Next(Next::Change(change, As::Added)));
        }
        self.joining = Some(joining);
        Some(Step::Later)
    }

    /// Finishes the snapshot, after changes that another pattern delivers first.
    fn join_last(&mut self, joining: Box<Joining>, books: &mut Books) -> Step {
        if self.seen < joining.owed_through && !self.has_to_begin_anew(books) {
            // Later changes wait: some of them may be of the added pattern.
            let step = self.next(books, joining.owed_through);
            if !matches!(step, Step::Nothing) {
                self.joining = Some(joining);
                return step;
            }
        }
        self.joined(&joining, books);
        Step::Joined
    }

    fn joined(&mut self, joining: &Joining, books: &mut Books) {
        if joining.stays {
            self.topics.push(Wanted {
                since: joining.through,
                ..Wanted::new(joining.topic)
            });
        } else {
            books.topics.leave(joining.topic, None);
        }
    }

    /// Drops the delivered versions of an earlier subscription to this pattern: the client may have discarded
    /// those documents.
    fn forget_told(&mut self, pattern: &Pattern, books: &Books) {
        let mut told = std::mem::take(&mut self.told);
        told.retain(|name| !pattern.matches(name) || self.tells(name, books));
        self.told = told;
    }

    /// Returns whether a subscribed pattern covers this document.
    fn tells(&self, name: &str, books: &Books) -> bool {
        let mut topics = self.topics.iter();
        topics.any(|it| books.topics.get(it.topic).pattern.matches(name))
    }
}

//! What somebody adds to a subscription, and takes away from it, while it goes on.
//!
//! What is added is told as it is now, before anything else goes on. What the subscriber was told of it by
//! something that it asked for before is not told again, and neither is what it still will be.

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

/// So many documents that are not to be told are passed over at a time.
const MAX_SKIPPED: usize = 1024;

/// A pattern that was added, until all that there was of it is told.
pub(crate) struct Joining {
    topic: TopicId,
    told_through: u64,
    /// The last change when it was added.
    through: u64,
    /// The last change up to which something else that it asks for has still to tell what there is of this.
    owed_through: u64,
    /// What comes later is told too.
    stays: bool,
}

impl Joining {
    pub(crate) const fn topic(&self) -> TopicId {
        self.topic
    }
}

/// How much somebody asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) urls: usize,
    pub(crate) stars: usize,
}

impl Subscription {
    /// Adds a pattern, which is neither there nor is another one that is not told yet. If it does not stay, what
    /// there is is told, and no change.
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
            // That it knew all there was is not said of what is added.
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

    /// Whether what was added is not told whole yet.
    pub(crate) const fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// Whether it asks for this.
    pub(crate) fn has(&self, pattern: &Pattern) -> bool {
        let books = self.documents.books.lock();
        let mut topics = self.topics.iter();
        topics.any(|it| books.topics.get(it.topic).pattern == *pattern)
    }

    /// Takes a pattern away. Says whether it was there.
    pub(crate) fn remove(&mut self, pattern: &Pattern) -> bool {
        let documents = Arc::clone(&self.documents);
        let mut books = documents.books.lock();
        let is_it = |it: &Wanted| books.topics.get(it.topic).pattern == *pattern;
        let Some(at) = self.topics.iter().position(is_it) else {
            return false;
        };
        let wanted = self.topics.remove(at);
        books.topics.leave(wanted.topic, wanted.seat);
        // What it was about to tell of the others' is theirs to tell now.
        for other in &mut self.topics {
            other.since = other.since.min(self.seen);
        }
        true
    }

    /// Takes all away.
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

    /// Whether it asks for this page.
    pub(crate) fn has_page(&self, url: &str) -> bool {
        self.pages.iter().any(|page| page.url() == url)
    }

    /// Takes a page away. Says whether it was there.
    pub(crate) fn remove_page(&mut self, url: &str) -> bool {
        let at = self.pages.iter().position(|page| page.url() == url);
        at.map(|at| self.pages.remove(at)).is_some()
    }

    /// How much it asks for.
    pub(crate) fn extent(&self) -> Extent {
        let books = self.documents.books.lock();
        let is_star = |it: &&Wanted| books.topics.get(it.topic).pattern.is_like();
        Extent {
            urls: self.topics.len() + self.pages.len(),
            stars: self.topics.iter().filter(is_star).count(),
        }
    }

    /// What comes next, as JSON.
    pub(crate) fn poll_told(&mut self, cx: &mut Context<'_>, delta: Form) -> Poll<Bytes> {
        self.poll_encoded(cx, Form::Json, delta)
    }

    /// What comes next of what was added, if something was.
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

    /// All is told of it that only it tells. What something else tells of it comes first, and then it is there.
    fn join_last(&mut self, joining: Box<Joining>, books: &mut Books) -> Step {
        if self.seen < joining.owed_through && !self.has_to_begin_anew(books) {
            // Later changes wait, since those of what was added are told among them.
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

    /// What it was told of when it asked for it before it may have dropped since.
    fn forget_told(&mut self, pattern: &Pattern, books: &Books) {
        let mut told = std::mem::take(&mut self.told);
        told.retain(|name| !pattern.matches(name) || self.tells(name, books));
        self.told = told;
    }

    /// Whether something that it asks for already is about this document too.
    fn tells(&self, name: &str, books: &Books) -> bool {
        let mut topics = self.topics.iter();
        topics.any(|it| books.topics.get(it.topic).pattern.matches(name))
    }
}

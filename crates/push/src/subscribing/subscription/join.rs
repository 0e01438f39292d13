//! Adding and removing patterns of a live subscription.
//!
//! The documents of an added pattern are sent as a snapshot before any further change. Documents that another
//! pattern has delivered, or is about to deliver, are left out of it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::{
    Delivery, DeliveryMode, SubscribeError, Subscription, SubscriptionStep, TopicSubscription,
    scan_all,
};
use crate::changes::events::EventFormat;
use crate::documents::index::DocumentIndex;
use crate::name::Pattern;
use crate::subscribing::page::PageSubscription;
use crate::subscribing::pending_join::PendingJoin;

/// Limit of changes skipped per turn.
const MAX_SKIPPED: usize = 1024;

/// The size of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionSize {
    pub(crate) urls: usize,
    pub(crate) patterns: usize,
}

impl Subscription {
    /// Adds a pattern that is not subscribed to yet; no other join may be pending. If `stays` is false, only
    /// the snapshot is delivered.
    pub(crate) fn add(&mut self, pattern: &Pattern, stays: bool) -> Result<(), SubscribeError> {
        debug_assert!(self.joining.is_none());
        let documents = Arc::clone(&self.documents);
        let mut index = documents.index.lock();
        if self.is_quiet(&index) {
            self.mark_caught_up(&index);
        }
        let topic = index.join(pattern, self.client).map_err(|why| {
            documents.counters.turned_away.add_one();
            SubscribeError::from(why)
        })?;
        scan_all(&mut index, topic);
        if stays {
            // The subscription is not caught up with the new pattern.
            self.cursor.fall_behind();
            self.forget_deliveries(pattern, &index);
        }
        self.joining = Some(Box::new(PendingJoin {
            topic,
            sent_through: 0,
            through: index.newest,
            covered_through: 0,
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
        let index = self.documents.index.lock();
        let mut topics = self.topics.iter();
        topics.any(|it| index.topics.get(it.id).pattern == *pattern)
    }

    /// Removes a pattern; returns whether it was subscribed to.
    pub(crate) fn remove(&mut self, pattern: &Pattern) -> bool {
        let documents = Arc::clone(&self.documents);
        let mut index = documents.index.lock();
        let is_it = |it: &TopicSubscription| index.topics.get(it.id).pattern == *pattern;
        let Some(at) = self.topics.iter().position(is_it) else {
            return false;
        };
        let topic = self.topics.remove(at);
        index.topics.leave(topic.id, topic.registration);
        // Changes that it was to deliver for overlapping patterns are now theirs to deliver.
        for other in &mut self.topics {
            other.since = other.since.min(self.cursor.seen());
        }
        true
    }

    /// Removes all patterns and pages.
    pub(crate) fn remove_all(&mut self) {
        let documents = Arc::clone(&self.documents);
        let mut index = documents.index.lock();
        for topic in self.topics.drain(..) {
            index.topics.leave(topic.id, topic.registration);
        }
        drop(index);
        self.pages.clear();
    }

    /// Adds a page.
    pub(crate) fn add_page(&mut self, page: PageSubscription) {
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
    pub(crate) fn size(&self) -> SubscriptionSize {
        let index = self.documents.index.lock();
        let is_pattern =
            |it: &&TopicSubscription| index.topics.get(it.id).pattern.matches_several();
        SubscriptionSize {
            urls: self.topics.len() + self.pages.len(),
            patterns: self.topics.iter().filter(is_pattern).count(),
        }
    }

    /// Polls the next event as JSON.
    pub(crate) fn poll_json(&mut self, cx: &mut Context<'_>, delta: EventFormat) -> Poll<Bytes> {
        self.poll_encoded(cx, EventFormat::Json, delta)
    }

    /// Advances the snapshot of the added pattern; `None` if no pattern is pending.
    pub(super) fn poll_join(&mut self, index: &mut DocumentIndex) -> Option<SubscriptionStep> {
        let mut joining = self.joining.take()?;
        for _ in 0..MAX_SKIPPED {
            let next = index.after(joining.topic, joining.sent_through);
            let next = next.filter(|change| change.number <= joining.through);
            let Some(change) = next.map(Arc::clone) else {
                return Some(self.finish_join(joining, index));
            };
            joining.sent_through = change.number;
            let is_there = !change.is_deletion() && index.is_current(&change);
            let is_covered = joining.stays && self.covers(&change.name, index);
            if !is_there || self.is_hidden(&change.name) {
                continue;
            }
            if is_covered {
                if self.is_due(&change) {
                    joining.covered_through = change.number;
                }
                continue;
            }
            if joining.stays {
                self.record_delivery(&change);
            }
            self.joining = Some(joining);
            return Some(SubscriptionStep::Deliver(Delivery::Change(
                change,
                DeliveryMode::Joined,
            )));
        }
        self.joining = Some(joining);
        Some(SubscriptionStep::Yield)
    }

    /// Finishes the snapshot, after changes that another pattern delivers first.
    fn finish_join(
        &mut self,
        joining: Box<PendingJoin>,
        index: &mut DocumentIndex,
    ) -> SubscriptionStep {
        if self.cursor.seen() < joining.covered_through && !self.needs_reset(index) {
            // Later changes wait: some of them may be of the added pattern.
            let step = self.next(index, joining.covered_through);
            if !matches!(step, SubscriptionStep::CaughtUp) {
                self.joining = Some(joining);
                return step;
            }
        }
        self.complete_join(&joining, index);
        SubscriptionStep::Joined
    }

    fn complete_join(&mut self, joining: &PendingJoin, index: &mut DocumentIndex) {
        if joining.stays {
            self.topics.push(TopicSubscription {
                since: joining.through,
                ..TopicSubscription::new(joining.topic)
            });
        } else {
            index.topics.leave(joining.topic, None);
        }
    }

    /// Drops the delivered versions of an earlier subscription to this pattern: the client may have discarded
    /// those documents.
    fn forget_deliveries(&mut self, pattern: &Pattern, index: &DocumentIndex) {
        let mut delivered = std::mem::take(&mut self.delivered);
        delivered.retain(|name| !pattern.matches(name) || self.covers(name, index));
        self.delivered = delivered;
    }

    /// Returns whether a subscribed pattern covers this document.
    fn covers(&self, name: &str, index: &DocumentIndex) -> bool {
        let mut topics = self.topics.iter();
        topics.any(|it| index.topics.get(it.id).pattern.matches(name))
    }
}

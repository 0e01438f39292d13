//! The state of a join: a pattern that was added to a live subscription.

use crate::documents::topics::TopicId;

/// An added pattern whose snapshot is being delivered.
pub(crate) struct PendingJoin {
    pub(super) topic: TopicId,
    pub(super) sent_through: u64,
    /// The newest change when the pattern was added; the snapshot ends here.
    pub(super) through: u64,
    /// Upper bound of changes another pattern of this subscription will still deliver.
    pub(super) covered_through: u64,
    /// True if the pattern stays subscribed after the snapshot.
    pub(super) stays: bool,
}

impl PendingJoin {
    pub(crate) const fn topic(&self) -> TopicId {
        self.topic
    }
}

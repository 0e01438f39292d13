//! Announcements of Redis and Valkey: purges that were appended to the log, and claims that ended. Messages come
//! from the subscription of `crate::redis`, or from that of a simulation.
//!
//! A connection of its own subscribes to the channel of the log, and to one of this process. The script that
//! refuses a claim adds that one to a set beside the claim, and the script that ends the claim publishes the
//! key of the record on the channels of the set. In a cluster, masters pass messages on to each other, so one
//! connection is enough, to the master of the log.
//!
//! A message is only a reason to look at once: callers look anyway after some time, so a message that was lost,
//! and a connection that leads nowhere, delay and change nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::random;
use crate::tier::{BoxFuture, EntryId};

/// Maximum of awaited claims; beyond it, their callers look at once.
const MAX_AWAITED: usize = 4096;

/// Announcements as they arrive.
pub struct Announcements {
    /// Channel of this process.
    own_channel: String,
    /// Channel of the log. The channels of all databases of a server are the same, so it names the database.
    log_channel: String,
    is_subscribed: AtomicBool,
    log: Notify,
    /// Claims that were refused. A claim that ends is removed, and with it the sender. Ordered: a simulation has to
    /// wake all callers in the same order each time.
    awaited: Mutex<BTreeMap<EntryId, watch::Sender<()>>>,
    /// The reason why the server does not let this process subscribe.
    refusal: Mutex<Option<String>>,
}

impl Announcements {
    /// Announcements of a database, to which this process has not subscribed yet.
    pub fn new(database: i64) -> Self {
        Self {
            own_channel: format!("mc1:{:016x}", random::number()),
            log_channel: format!("mcl1:{database}"),
            is_subscribed: AtomicBool::default(),
            log: Notify::new(),
            awaited: Mutex::default(),
            refusal: Mutex::default(),
        }
    }

    /// Returns the channel of the log.
    pub fn log_channel(&self) -> &str {
        &self.log_channel
    }

    /// Returns the channel for the end of this claim, to be called before it is requested; empty if there is
    /// none at present.
    pub fn await_end(&self, id: EntryId) -> &str {
        if !self.is_subscribed() {
            return "";
        }
        let mut awaited = self.awaited.lock();
        if awaited.len() >= MAX_AWAITED {
            awaited.clear();
        }
        awaited.entry(id).or_default();
        &self.own_channel
    }

    /// Wakes the callers that wait for the end of this claim.
    pub fn end(&self, id: EntryId) {
        self.awaited.lock().remove(&id);
    }

    /// Waits for the end of a claim that was refused; `None` if it may not be announced.
    pub fn claim_end(&self, id: EntryId) -> Option<BoxFuture<'_, ()>> {
        if !self.is_subscribed() {
            return None;
        }
        let awaited = self.awaited.lock().get(&id).map(watch::Sender::subscribe);
        Some(Box::pin(async move {
            if let Some(mut end) = awaited {
                // An error: the sender was dropped.
                let _ = end.changed().await;
            }
        }))
    }

    /// Waits for new records in the log; `None` if they may not be announced.
    pub fn log_news(&self) -> Option<BoxFuture<'_, ()>> {
        self.is_subscribed().then(|| self.log_wake())
    }

    /// Waits for [`Self::note_log_news`], with or without a subscription.
    pub fn log_wake(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.log.notified())
    }

    /// Returns a remark for the operator if the server refuses to announce anything.
    pub fn refusal(&self) -> Vec<String> {
        let refusal = self.refusal.lock().clone();
        let line = |why| {
            format!(
                "purges and waiting requests are polled for: SUBSCRIBE is refused: {why} (for an ACL user: \
                     +subscribe &mc1:* &mcl1:*)"
            )
        };
        refusal.map(line).into_iter().collect()
    }

    /// Notes whether the server refuses to announce anything, and why.
    pub fn set_refusal(&self, refusal: Option<String>) {
        *self.refusal.lock() = refusal;
    }

    /// Returns the channels to subscribe to.
    pub const fn channels(&self) -> [&String; 2] {
        [&self.log_channel, &self.own_channel]
    }

    fn is_subscribed(&self) -> bool {
        self.is_subscribed.load(Ordering::Acquire)
    }

    /// Begins or ends the subscription.
    pub fn set_subscribed(&self, is_subscribed: bool) {
        self.is_subscribed.store(is_subscribed, Ordering::Release);
        // What was announced meanwhile is unknown.
        self.note_log_news();
        self.awaited.lock().clear();
    }

    /// Wakes the caller that waits for new records in the log.
    pub fn note_log_news(&self) {
        self.log.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn ends_of_claims_are_not_missed() {
        let announcements = Announcements::new(0);
        let ids = [1_u8, 2].map(|number| EntryId::of(&[number]));
        assert_eq!(
            announcements.await_end(ids[0]),
            "",
            "without a subscription"
        );
        assert!(announcements.claim_end(ids[0]).is_none() && announcements.log_news().is_none());
        announcements.note_log_news();
        let waked = announcements.log_wake().now_or_never();
        assert!(waked.is_some(), "a server that is back, for example");
        announcements.set_subscribed(true);
        assert_eq!(announcements.await_end(ids[0]), announcements.own_channel);
        announcements.await_end(ids[1]);
        let mut first = announcements.claim_end(ids[0]).unwrap();
        assert!((&mut first).now_or_never().is_none());
        announcements.end(ids[0]);
        assert!(first.now_or_never().is_some());
        let late = announcements.claim_end(ids[0]).unwrap();
        assert!(late.now_or_never().is_some(), "it ended before");
        let mut other = announcements.claim_end(ids[1]).unwrap();
        assert!((&mut other).now_or_never().is_none(), "it has not ended");
        announcements.set_subscribed(false);
        assert!(
            other.now_or_never().is_some(),
            "its end may have been missed"
        );
        announcements.set_subscribed(true);
        for number in 0..=MAX_AWAITED {
            announcements.await_end(EntryId::of(&number.to_le_bytes()));
        }
        assert_eq!(announcements.awaited.lock().len(), 1, "there is a bound");
    }
}

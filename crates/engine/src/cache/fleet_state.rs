//! The state of the log of purge rules that processes share: by copy, what is to be appended and what may be missing.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use microcache_store::{LOG_COPIES, TierError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::logs::LogPlace;
use super::rules::RulePlaces;

/// The bound of the outgoing rules. On overflow a gap marker is sent instead; a reader that meets
/// it cannot know which rules are missing.
pub(super) const MAX_QUEUED: usize = 4096;
/// The time after which a missing reply is reported: with [`super::fleet`]'s interval, a process reports within
/// a second that it is cut off from the log.
const SILENCE: Duration = Duration::from_millis(500);
/// The gap marker: records before it may be missing. It is not a rule; a process that does not
/// recognise it purges everything.
pub(super) const BEGINNING: Bytes = Bytes::from_static(b"beginning");

/// The time for which appended rules are kept: a replica that takes over lacks the records of the last moments.
const REPLICA_LAG: Duration = Duration::from_secs(10);

/// The state shared with the other processes.
#[derive(Debug, Default)]
pub(super) struct PurgeFleet {
    /// The copies of the log; a log kept in one copy uses only the first.
    pub(super) copies: [PurgeLogCopy; LOG_COPIES],
    pub(super) doubt: Mutex<Doubt>,
    /// The journal has rules that the log may have by now.
    pub(super) has_written: AtomicBool,
    /// Number of times everything was purged because of a lost or unreadable log.
    pub(super) lost: AtomicU64,
}

/// The state of one copy of the log.
#[derive(Debug, Default)]
pub(super) struct PurgeLogCopy {
    /// Rules not yet appended to it, oldest first.
    pub(super) queued: Mutex<VecDeque<QueuedRule>>,
    /// Rules appended within [`REPLICA_LAG`], oldest first.
    appended: Mutex<VecDeque<(Instant, QueuedRule)>>,
    /// Held while appending.
    pub(super) appending: tokio::sync::Mutex<()>,
    /// Held while reading, so that records are applied in order.
    pub(super) reading: tokio::sync::Mutex<()>,
    /// The error of the last attempt to reach it.
    pub(super) trouble: Mutex<Option<TierError>>,
    /// Notified when the copy has records to read, or lacks queued ones again.
    pub(super) news: Notify,
}

#[derive(Clone, Debug)]
pub(super) struct QueuedRule {
    /// The id of the rule.
    pub(super) id: u64,
    pub(super) record: Bytes,
}

/// Gaps in the log that may hide lost rules.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// By copy, a gap that no other copy has filled yet.
    pub(super) gaps: [Option<Gap>; LOG_COPIES],
    /// The moment at which the last complete read of each copy began.
    pub(super) read_from: [u64; LOG_COPIES],
    /// A logical clock, to order reads and gaps.
    pub(super) moment: u64,
}

/// A gap in a copy: records before this place may be missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) place: LogPlace,
    pub(super) noticed: u64,
    pub(super) since: Instant,
    /// Records are certainly lost, as this process had already read the copy before.
    pub(super) is_loss: bool,
}

impl PurgeFleet {
    /// Queues the rules that the other copy lacks for this one too, after it has lost records:
    /// otherwise neither might have them.
    pub(super) fn queue_again(&self, copy: usize) {
        let others = self.copies.iter().enumerate().filter(|(it, _)| *it != copy);
        for (_, other) in others {
            let owed: Vec<_> = other.queued.lock().iter().cloned().collect();
            let mut queued = self.copies[copy].queued.lock();
            let is_new = |owed: &QueuedRule| queued.iter().all(|queued| queued.id != owed.id);
            let new: Vec<_> = owed.into_iter().filter(is_new).collect();
            queued.extend(new);
        }
    }

    /// Records that the journal has rules.
    pub(super) fn note_written(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }
}

impl PurgeLogCopy {
    /// Waits for a reply, and notes its absence early: a link that swallows packets reports nothing.
    pub(super) async fn awaited<T>(
        &self,
        reply: impl Future<Output = Result<T, TierError>>,
    ) -> Result<T, TierError> {
        let mut reply = pin!(reply);
        let done = if let Ok(done) = timeout(SILENCE, &mut reply).await {
            done
        } else {
            *self.trouble.lock() = Some(TierError::Timeout);
            reply.await
        };
        self.noted(done)
    }

    pub(super) fn noted<T>(&self, done: Result<T, TierError>) -> Result<T, TierError> {
        *self.trouble.lock() = done.as_ref().err().cloned();
        done
    }

    /// Removes these rules from the queue.
    pub(super) fn note_appended(&self, ids: &[u64]) {
        let (now, mut appended) = (Instant::now(), self.appended.lock());
        self.queued.lock().retain(|queued| {
            let is_queued = !ids.contains(&queued.id);
            if !is_queued {
                appended.push_back((now, queued.clone()));
            }
            is_queued
        });
        let is_recent = |at: Instant| now.duration_since(at) <= REPLICA_LAG;
        while appended.len() > MAX_QUEUED || appended.front().is_some_and(|(at, _)| !is_recent(*at))
        {
            appended.pop_front();
        }
    }

    /// Queues rules again that the log may have lost although they were appended.
    pub(super) fn append_again(&self) {
        let appended = std::mem::take(&mut *self.appended.lock());
        let again = appended
            .into_iter()
            .filter(|(at, _)| at.elapsed() <= REPLICA_LAG);
        let mut queued = self.queued.lock();
        queued.extend(again.map(|(_, rule)| rule));
        if !queued.is_empty() {
            self.news.notify_one();
        }
    }

    /// The copy is known to be down.
    pub(super) fn is_down(&self) -> bool {
        *self.trouble.lock() == Some(TierError::Down)
    }
}

impl Doubt {
    pub(super) fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(super) fn note_gap(&mut self, copy: usize, place: LogPlace, is_loss: bool) {
        self.gaps[copy] = Some(Gap {
            place,
            noticed: self.next_moment(),
            since: Instant::now(),
            is_loss,
        });
    }

    /// Clears the gaps of a copy where another one has since been read to its end without a gap.
    pub(super) fn find_in_others(&mut self) {
        let whole = (0..LOG_COPIES).filter(|copy| self.gaps[*copy].is_none());
        let read_from = whole.map(|copy| self.read_from[copy]).max().unwrap_or(0);
        for gap in &mut self.gaps {
            *gap = gap.filter(|gap| gap.noticed >= read_from);
        }
    }

    /// The time of the oldest gap.
    pub(super) fn since(&self) -> Option<Instant> {
        self.gaps.iter().flatten().map(|gap| gap.since).min()
    }

    /// The place in each copy from which no record is missing; `None` for a copy not read to its
    /// end since the newest gap was noticed.
    pub(super) fn places(&self) -> RulePlaces {
        let newest = self.gaps.iter().flatten().map(|gap| gap.noticed).max();
        RulePlaces::new(std::array::from_fn(|copy| {
            let gap = self.gaps[copy]?;
            let is_current = Some(gap.noticed.max(self.read_from[copy])) >= newest;
            is_current.then_some(gap.place)
        }))
    }
}

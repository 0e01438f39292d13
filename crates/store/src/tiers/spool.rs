//! Spooling: writing bodies too large for memory to a tier while they are received.
//!
//! The producer never waits for the tier: pieces are queued, and a separate task writes them. The queue is
//! bounded in bytes; a body that exceeds it is abandoned and counted as dropped.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use microcache_policy::Time;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use xxhash_rust::xxh3::Xxh3;

use super::active::ActiveTier;
use super::lookup::ClaimGuard;
use super::pending_bodies::{PendingBodies, PendingBody};
use super::variant_index::VariantIndex;
use crate::encoding::encode;
use crate::stored::Stored;
use crate::tier::{EntryId, Spool, TierError};

/// Body being spooled to a tier. Dropped before [`Self::finish`], it leaves nothing behind.
pub struct BodySpool {
    steps: UnboundedSender<SpoolStep>,
    waiting: Arc<SpoolQueue>,
    writing: AbortHandle,
    has_ended: bool,
    /// Claim under which it is fetched, in a shared tier.
    claimed: Option<ClaimGuard>,
}

/// Element of the queue.
enum SpoolStep {
    Piece(Bytes, QueueCharge),
    End(Box<SpoolEnd>),
}

struct SpoolEnd {
    key: Box<[u8]>,
    response: Stored,
    expires: Duration,
    kept: oneshot::Sender<Stored>,
    claimed: Option<ClaimGuard>,
    _ending: PendingBody,
}

impl BodySpool {
    /// Starts to spool a body. `limit` bounds the queued pieces of all bodies for this tier, in bytes.
    pub(super) fn begin(
        tier: &Arc<ActiveTier>,
        spool: Box<dyn Spool>,
        limit: u64,
        claimed: Option<ClaimGuard>,
    ) -> Self {
        let (steps, coming) = unbounded_channel();
        let task = tier
            .background
            .spawn(write(Arc::clone(tier), spool, coming));
        let waiting = SpoolQueue {
            tier: Arc::clone(tier),
            limit,
            bytes: AtomicU64::new(0),
            fewer: Notify::new(),
        };
        Self {
            steps,
            waiting: Arc::new(waiting),
            writing: task.abort_handle(),
            has_ended: false,
            claimed,
        }
    }

    /// Queues a piece. Returns `false` if the body is abandoned: the tier has failed or is too slow.
    pub fn push(&self, piece: Bytes) -> bool {
        let charge = SpoolQueue::charge(&self.waiting, piece.len() as u64);
        charge.is_some_and(|charge| self.steps.send(SpoolStep::Piece(piece, charge)).is_ok())
    }

    /// Waits until the queue is short (back-pressure), for a body that only the tier is to receive.
    pub async fn ready(&self) {
        while self.waiting.bytes.load(Ordering::Acquire) > self.waiting.limit / 4 {
            self.waiting.fewer.notified().await;
        }
    }

    /// Waits until the queue is short, as long as the tier makes progress. Returns `false` if it has written
    /// nothing for `time_limit`.
    pub async fn makes_progress(&self, time_limit: Duration) -> bool {
        while self.waiting.bytes.load(Ordering::Acquire) > self.waiting.limit / 4 {
            if timeout(time_limit, self.waiting.fewer.notified())
                .await
                .is_err()
            {
                self.waiting.tier.note_dropped();
                return false;
            }
        }
        true
    }

    /// Stores the pushed pieces as the body of `response`. From now on, lookups of the key wait briefly for
    /// it. The future yields the response with the stored body, or `None` on failure.
    pub fn finish(
        mut self,
        key: &[u8],
        response: Stored,
        now: Time,
    ) -> impl Future<Output = Option<Stored>> + Send + use<> {
        let (kept, resolved) = oneshot::channel();
        let end = SpoolEnd {
            key: key.into(),
            expires: Duration::from_millis(response.lifetime().usable_until().since(now)),
            response,
            kept,
            claimed: self.claimed.take(),
            _ending: PendingBodies::register(&self.waiting.tier.endings, EntryId::of(key)),
        };
        // Fails if the task has ended because the tier failed.
        let _ = self.steps.send(SpoolStep::End(Box::new(end)));
        self.has_ended = true;
        async { resolved.await.ok() }
    }
}

impl Drop for BodySpool {
    fn drop(&mut self) {
        if !self.has_ended {
            self.writing.abort();
        }
    }
}

/// Writes the queued pieces until the first failure.
async fn write(
    tier: Arc<ActiveTier>,
    mut spool: Box<dyn Spool>,
    mut coming: UnboundedReceiver<SpoolStep>,
) {
    let (mut length, mut sum) = (0, Xxh3::new());
    while let Some(step) = coming.recv().await {
        match step {
            SpoolStep::Piece(piece, _charge) => {
                length += piece.len() as u64;
                sum.update(&piece);
                let written = spool.write(piece).await;
                if tier.counted(written).is_err() {
                    return;
                }
            }
            SpoolStep::End(end) => {
                let stored = end.keep(&tier, spool, length, sum.digest()).await;
                let _ = tier.counted(stored);
                return;
            }
        }
    }
}

impl SpoolEnd {
    async fn keep(
        mut self,
        tier: &ActiveTier,
        spool: Box<dyn Spool>,
        length: u64,
        sum: u64,
    ) -> Result<(), TierError> {
        let (key, response) = (&*self.key, self.response);
        let claim = self.claimed.as_ref().and_then(ClaimGuard::known);
        let variants = VariantIndex::new(tier, key);
        let Some((id, _)) = variants.id_for(&response, self.expires, claim).await? else {
            return Err(TierError::Failed("purged meanwhile".into()));
        };
        let head = encode(key, &response, (length, sum), tier.tier.epoch());
        let body = spool.finish(id, head, self.expires).await?;
        // The tier has released the claim.
        self.claimed.as_mut().and_then(ClaimGuard::spend);
        tier.note_written();
        // The receiver may be gone; the body is stored anyway.
        let _ = self.kept.send(response.with_body(body));
        Ok(())
    }
}

/// Accounting of the queued pieces of a body.
struct SpoolQueue {
    tier: Arc<ActiveTier>,
    limit: u64,
    bytes: AtomicU64,
    fewer: Notify,
}

/// Reservation of a queued piece, released on drop.
struct QueueCharge {
    waiting: Arc<SpoolQueue>,
    bytes: u64,
}

impl SpoolQueue {
    /// Reserves space for a piece. A body may use as much as it leaves free, thus at most half of the limit.
    fn charge(waiting: &Arc<Self>, bytes: u64) -> Option<QueueCharge> {
        let own = waiting.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let all = waiting.tier.spooled.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let charge = QueueCharge {
            waiting: Arc::clone(waiting),
            bytes,
        };
        let fits = own.saturating_add(all) <= waiting.limit;
        if !fits {
            waiting.tier.note_dropped();
        }
        fits.then_some(charge)
    }
}

impl Drop for QueueCharge {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        let all = &self.waiting.tier.spooled;
        all.fetch_sub(self.bytes, Ordering::AcqRel);
        self.waiting.fewer.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::{Fields, Lifetime};
    use tokio::runtime::Handle;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::content::Content;
    use crate::tier::AnyTier;
    use crate::tiers::scripted::ScriptedTier;
    use crate::tiers::{TierLimits, Tiers};

    const LIMIT: u64 = 1000;

    /// Tier that writes a piece of a spooled body per permit.
    fn tiers() -> (Tiers, Arc<Semaphore>) {
        let tier = ScriptedTier::new(0, 10);
        let writes = Arc::clone(&tier.writes);
        let limits = TierLimits {
            spool_queue: LIMIT,
            ..TierLimits::default()
        };
        let local = AnyTier::Local(Arc::new(tier));
        (Tiers::new(vec![local], limits, &Handle::current()), writes)
    }

    fn begin(tiers: &Tiers) -> BodySpool {
        tiers.spool(&mut None).expect("the tier takes such")
    }

    fn piece(length: usize) -> Bytes {
        vec![b'x'; length].into()
    }

    fn response() -> Stored {
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]);
        let lifetime = lifetime.expect("all zeros is a lifetime");
        let began = Time::from_secs(1);
        Stored::new(
            b"",
            200,
            Fields::default(),
            Content::default(),
            lifetime,
            began,
        )
    }

    fn dropped(tiers: &Tiers) -> u64 {
        tiers.reports()[0].dropped
    }

    #[tokio::test]
    async fn jobs_above_the_capacity_of_a_tier_are_dropped_and_counted() {
        let (tiers, writes) = tiers();
        let one = begin(&tiers);
        assert!((0..5).all(|_| one.push(piece(100))), "half of the room");
        assert_eq!(dropped(&tiers), 0);
        assert!(!one.push(piece(100)));
        assert_eq!(dropped(&tiers), 1);
        let other = begin(&tiers);
        assert!(other.push(piece(200)), "it leaves room for others");
        drop(one);
        let room = begin(&tiers);
        while !room.push(piece(300)) {
            tokio::task::yield_now().await;
        }
        drop(room);
        writes.add_permits(10);
        let kept = other.finish(b"key", response(), Time::from_secs(1)).await;
        assert_eq!(kept.expect("it is kept").body_len(), 200);
        tiers.settle().await;
        assert_eq!(tiers.reports()[0].written, 1);
    }

    #[tokio::test]
    async fn a_waiting_job_continues_when_the_tier_has_written() {
        let (tiers, writes) = tiers();
        let spool = begin(&tiers);
        spool.ready().await;
        assert!(spool.push(piece(400)));
        writes.add_permits(1);
        spool.ready().await;
        assert!(spool.push(piece(500)), "the first piece has gone");
        writes.close();
        // A failed tier is not waited for.
        spool.ready().await;
        let kept = spool.finish(b"key", response(), Time::from_secs(1));
        assert!(kept.await.is_none());
        assert_eq!(tiers.reports()[0].errors, 1);
        tiers.settle().await;
    }
}

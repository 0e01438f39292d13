//! Bodies that are too large for memory, on their way into a tier while they arrive.
//!
//! Who hands over the pieces never waits for the tier: they go into a queue, and a task of its own
//! writes them. The queue is bounded in bytes. A body that does not fit is not kept, and counted.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use microcache_policy::Time;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use xxhash_rust::xxh3::Xxh3;

use super::Claimed;
use super::in_use::TierInUse;
use crate::encoding::encode;
use crate::stored::Stored;
use crate::tier::{EntryId, Spool, TierError};

/// So long a look-up waits for a body of its key that is complete, but not under its name yet: about
/// as long as a disk may take to read one. Beyond it, the look-up finds what is there.
const ENDING_WAIT: Duration = Duration::from_millis(250);

/// A body on its way into a tier. Dropped before its end, it leaves nothing behind.
pub struct Spooling {
    steps: UnboundedSender<Step>,
    waiting: Arc<Waiting>,
    writing: AbortHandle,
    has_ended: bool,
    /// The right to bring it, where the tier is shared.
    claimed: Option<Claimed>,
}

/// What is to be done, in this order.
enum Step {
    Piece(Bytes, Charge),
    End(Box<End>),
}

struct End {
    key: Box<[u8]>,
    response: Stored,
    expires: Duration,
    kept: oneshot::Sender<Stored>,
    claimed: Option<Claimed>,
    _ending: Ending,
}

impl Spooling {
    /// `limit` bounds what waits to be written of all bodies on their way into the tier.
    pub(super) fn begin(
        tier: &Arc<TierInUse>,
        spool: Box<dyn Spool>,
        limit: u64,
        claimed: Option<Claimed>,
    ) -> Self {
        let (steps, coming) = unbounded_channel();
        let task = tier
            .background
            .spawn(write(Arc::clone(tier), spool, coming));
        let waiting = Waiting {
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

    /// Takes the next piece. Says whether the body is still going to be kept: the tier may have
    /// failed, or be too slow for it.
    pub fn push(&self, piece: Bytes) -> bool {
        let charge = Waiting::charge(&self.waiting, piece.len() as u64);
        charge.is_some_and(|charge| self.steps.send(Step::Piece(piece, charge)).is_ok())
    }

    /// Ready when little waits to be written: for who brings a body that nobody but the tier is
    /// going to have, and which need not come faster than the tier takes it.
    pub async fn ready(&self) {
        while self.waiting.bytes.load(Ordering::Acquire) > self.waiting.limit / 4 {
            self.waiting.fewer.notified().await;
        }
    }

    /// The same, for who can wait for a tier as long as it goes on. Says whether it does: one that has taken nothing
    /// for `patience` is too slow for this body.
    pub async fn goes_on(&self, patience: Duration) -> bool {
        while self.waiting.bytes.load(Ordering::Acquire) > self.waiting.limit / 4 {
            if timeout(patience, self.waiting.fewer.notified())
                .await
                .is_err()
            {
                self.waiting.tier.note_dropped();
                return false;
            }
        }
        true
    }

    /// Has what was pushed kept as the body of `response`, which has none yet. From now on who looks
    /// for the key waits a little for that. Resolves to the response with its body where it is then,
    /// or to nothing if it is not kept.
    pub fn finish(
        mut self,
        key: &[u8],
        response: Stored,
        now: Time,
    ) -> impl Future<Output = Option<Stored>> + Send + use<> {
        let (kept, resolved) = oneshot::channel();
        let end = End {
            key: key.into(),
            expires: Duration::from_millis(response.lifetime.usable_until().since(now)),
            response,
            kept,
            claimed: self.claimed.take(),
            _ending: Endings::note(&self.waiting.tier.endings, EntryId::of(key)),
        };
        // Where the tier has failed before, nobody is there to take it.
        let _ = self.steps.send(Step::End(Box::new(end)));
        self.has_ended = true;
        async { resolved.await.ok() }
    }
}

impl Drop for Spooling {
    fn drop(&mut self) {
        if !self.has_ended {
            self.writing.abort();
        }
    }
}

/// Writes what comes. At the first failure it ends, and nothing more is taken.
async fn write(
    tier: Arc<TierInUse>,
    mut spool: Box<dyn Spool>,
    mut coming: UnboundedReceiver<Step>,
) {
    let (mut length, mut sum) = (0, Xxh3::new());
    while let Some(step) = coming.recv().await {
        match step {
            Step::Piece(piece, _charge) => {
                length += piece.len() as u64;
                sum.update(&piece);
                let written = spool.write(piece).await;
                if tier.counted(written).is_err() {
                    return;
                }
            }
            Step::End(end) => {
                let stored = end.keep(&tier, spool, length, sum.digest()).await;
                let _ = tier.counted(stored);
                return;
            }
        }
    }
}

impl End {
    async fn keep(
        mut self,
        tier: &TierInUse,
        spool: Box<dyn Spool>,
        length: u64,
        sum: u64,
    ) -> Result<(), TierError> {
        let (key, response) = (&*self.key, self.response);
        let claim = self.claimed.as_ref().and_then(Claimed::known);
        let id = tier.id_for(key, &response, self.expires, claim).await?;
        let Some((id, _)) = id else {
            return Err(TierError::Failed("purged meanwhile".into()));
        };
        let head = encode(key, &response, (length, sum), tier.tier.epoch());
        let body = spool.finish(id, head, self.expires).await?;
        // The tier has ended it.
        self.claimed.as_mut().and_then(Claimed::spend);
        tier.note_written();
        // Nobody may be there to hear it. It is kept all the same.
        let _ = self.kept.send(response.with_body(body));
        Ok(())
    }
}

/// What of a body waits to be written.
struct Waiting {
    tier: Arc<TierInUse>,
    limit: u64,
    bytes: AtomicU64,
    fewer: Notify,
}

/// The place of a piece in the queue. Given back when it is dropped.
struct Charge {
    waiting: Arc<Waiting>,
    bytes: u64,
}

impl Waiting {
    /// A body may take as much as it leaves free for the others; if there is but one, half of all.
    fn charge(waiting: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let own = waiting.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let all = waiting.tier.spooled.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let charge = Charge {
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

impl Drop for Charge {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        let all = &self.waiting.tier.spooled;
        all.fetch_sub(self.bytes, Ordering::AcqRel);
        self.waiting.fewer.notify_one();
    }
}

/// The keys of bodies that are complete, but not under their names yet. There are at most as many as
/// a tier takes such bodies at once.
#[derive(Debug, Default)]
pub(super) struct Endings {
    ids: Mutex<Vec<EntryId>>,
    fewer: Notify,
}

/// One of them, for as long as it goes on.
struct Ending {
    endings: Arc<Endings>,
    id: EntryId,
}

impl Endings {
    fn note(endings: &Arc<Self>, id: EntryId) -> Ending {
        endings.ids.lock().push(id);
        Ending {
            endings: Arc::clone(endings),
            id,
        }
    }

    /// Waits until none of them is this key's, or for as long as a look-up may wait.
    pub(super) async fn wait_for(&self, id: EntryId) {
        let _ = timeout(ENDING_WAIT, self.wait_until(|ids| !ids.contains(&id))).await;
    }

    /// Waits until there is none.
    pub(super) async fn wait_for_all(&self) {
        self.wait_until(<[EntryId]>::is_empty).await;
    }

    async fn wait_until(&self, is_over: impl Fn(&[EntryId]) -> bool) {
        loop {
            let fewer = self.fewer.notified();
            if is_over(&self.ids.lock()) {
                return;
            }
            fewer.await;
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut ids = self.endings.ids.lock();
        if let Some(at) = ids.iter().position(|id| *id == self.id) {
            ids.swap_remove(at);
        }
        drop(ids);
        self.endings.fewer.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::vary::VaryNames;
    use microcache_policy::{Fields, Lifetime};
    use tokio::runtime::Handle;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::content::Content;
    use crate::tier::AnyTier;
    use crate::tiers::scripted::ScriptedTier;
    use crate::tiers::{TierLimits, Tiers};

    const LIMIT: u64 = 1000;

    /// A tier that takes a piece of a large body for each permit.
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

    fn begin(tiers: &Tiers) -> Spooling {
        tiers.spool(&mut None).expect("the tier takes such")
    }

    fn piece(length: usize) -> Bytes {
        vec![b'x'; length].into()
    }

    fn response() -> Stored {
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]);
        let lifetime = lifetime.expect("all zeros is a lifetime");
        let (vary, began) = (VaryNames::default(), Time::from_secs(1));
        Stored::new(
            200,
            Fields::default(),
            Content::default(),
            lifetime,
            vary,
            b"",
            began,
        )
    }

    fn dropped(tiers: &Tiers) -> u64 {
        tiers.reports()[0].dropped
    }

    #[tokio::test]
    async fn what_the_tier_is_too_slow_for_is_dropped_and_counted() {
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
        assert_eq!(kept.expect("it is kept").body.len(), 200);
        tiers.settle().await;
        assert_eq!(tiers.reports()[0].written, 1);
    }

    #[tokio::test]
    async fn who_may_wait_goes_on_when_the_tier_has_written() {
        let (tiers, writes) = tiers();
        let spooling = begin(&tiers);
        spooling.ready().await;
        assert!(spooling.push(piece(400)));
        writes.add_permits(1);
        spooling.ready().await;
        assert!(spooling.push(piece(500)), "the first piece has gone");
        writes.close();
        // A tier that has failed is not waited for.
        spooling.ready().await;
        let kept = spooling.finish(b"key", response(), Time::from_secs(1));
        assert!(kept.await.is_none());
        assert_eq!(tiers.reports()[0].errors, 1);
        tiers.settle().await;
    }
}

//! Tiers behind memory: looked up in order on a memory miss, written to in the background.

mod active;
mod job_queue;
mod jobs;
mod lookup;
mod pending_bodies;
mod report;
#[cfg(any(test, feature = "scripted-tier"))]
pub mod scripted;
mod spool;
mod try_find;
mod variant;
mod variant_index;

use std::sync::Arc;
use std::time::Duration;

use microcache_policy::{OriginView, Time, VaryNames};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::memory::Hit;
use crate::tier::{AnyTier, ApplicationPage, EntryId, LocalTier, SharedTier};

use active::ActiveTier;
pub use job_queue::MAX_QUEUED_REMOVALS;
use job_queue::StoreJob;
pub use lookup::{ClaimGuard, FetchClaim, HeldClaim, TierEntry, TierReply};
pub use report::{LATENCIES, TierReport};
pub use spool::BodySpool;

/// Limits of the tiers.
#[derive(Clone, Copy, Debug)]
pub struct TierLimits {
    /// Lifetime of a claim in a shared tier.
    pub claim: Duration,
    /// Maximum size of queued records per tier, in bytes; further ones are dropped.
    pub queue: u64,
    /// Maximum size of queued pieces of spooled bodies per tier, in bytes. A body that exceeds it is not
    /// stored. Half of it must hold two objects of the maximum size in memory.
    pub spool_queue: u64,
}

impl Default for TierLimits {
    fn default() -> Self {
        Self {
            claim: Duration::from_secs(5),
            queue: 64 * 1024 * 1024,
            spool_queue: 64 * 1024 * 1024,
        }
    }
}

/// Tiers behind memory.
#[derive(Debug, Default)]
pub struct Tiers {
    tiers: Box<[Arc<ActiveTier>]>,
    limits: TierLimits,
}

impl Tiers {
    /// Creates the tiers, in order of lookup. Writes run on `background`.
    pub fn new(tiers: Vec<AnyTier>, limits: TierLimits, background: &Handle) -> Self {
        Self {
            tiers: tiers
                .into_iter()
                .map(|tier| ActiveTier::new(tier, background))
                .collect(),
            limits,
        }
    }

    /// Returns whether there are no tiers.
    pub fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// Limits.
    pub const fn limits(&self) -> &TierLimits {
        &self.limits
    }

    /// Looks up the response that a request selects. A missing one is claimed in a shared tier.
    pub async fn find(&self, key: &[u8], request: &OriginView<'_>) -> TierReply {
        let claim = Some(self.limits.claim);
        Self::find_in(self.tiers.iter(), claim, key, request).await
    }

    /// Looks up the response that a request selects, without a claim.
    pub async fn look(&self, key: &[u8], request: &OriginView<'_>) -> Option<TierEntry> {
        Self::find_in(self.tiers.iter(), None, key, request)
            .await
            .found()
    }

    /// Looks up the response in shared tiers only, without a claim.
    pub async fn look_shared(&self, key: &[u8], request: &OriginView<'_>) -> Option<TierEntry> {
        let shared = self.tiers.iter().filter(|in_use| in_use.is_shared());
        Self::find_in(shared, None, key, request).await.found()
    }

    /// Looks up the response in shared tiers only; a missing one is claimed.
    pub async fn find_shared(&self, key: &[u8], request: &OriginView<'_>) -> TierReply {
        let shared = self.tiers.iter().filter(|in_use| in_use.is_shared());
        Self::find_in(shared, Some(self.limits.claim), key, request).await
    }

    async fn find_in(
        tiers: impl Iterator<Item = &Arc<ActiveTier>>,
        claim: Option<Duration>,
        key: &[u8],
        request: &OriginView<'_>,
    ) -> TierReply {
        let (mut turn, mut others) = (FetchClaim::NotNeeded, None);
        for in_use in tiers {
            match in_use.find(key, request, claim).await {
                Ok(TierReply::Missing(one, varies)) => {
                    if !matches!(one, FetchClaim::NotNeeded) {
                        turn = one;
                    }
                    others = others.or(varies);
                }
                Ok(found @ TierReply::Found(_)) => return found,
                // The next tier may have it.
                Err(_) => {}
            }
        }
        TierReply::Missing(turn, others)
    }

    /// Looks up the page that an application has stored for a request.
    pub async fn page(&self, host: &[u8], target: &[u8]) -> Option<ApplicationPage> {
        for in_use in &self.tiers {
            if let Some(page) = in_use.page(host, target).await {
                return Some(page);
            }
        }
        None
    }

    /// Claims the renewal of a response found in a tier.
    pub async fn claim_renewal(&self, found: &TierEntry) -> FetchClaim {
        let in_use = &found.tier;
        let Some(shared) = in_use.tier.shared() else {
            return FetchClaim::NotNeeded;
        };
        let claim = shared.claim(found.id, self.limits.claim).await;
        match in_use.counted(claim) {
            Ok(claim) => in_use.claim_result(found.id, claim),
            Err(_) => FetchClaim::NotNeeded,
        }
    }

    /// Queues the store of a response in all tiers. A shared one requires its claim: otherwise a response
    /// purged by another process could reappear.
    pub fn store(&self, key: &[u8], response: &Hit, mut claimed: Option<ClaimGuard>, now: Time) {
        let expires = response.lifetime().usable_until().since(now);
        let charged = (key.len() + response.weight()) as u64;
        for in_use in &self.tiers {
            let claimed = claimed
                .as_mut()
                .filter(|claimed| Arc::ptr_eq(&claimed.tier, in_use));
            // A body in a file is already in the tier; only its head is replaced.
            let has_body =
                response.body().is_some() || in_use.has_files() && response.file().is_some();
            let wanted = expires > 0 && has_body && (claimed.is_some() || !in_use.is_shared());
            if !wanted || !in_use.has_room(charged, self.limits.queue) {
                continue;
            }
            in_use.queue_store(StoreJob {
                key: key.into(),
                response: response.clone(),
                expires: Duration::from_millis(expires),
                claim: claimed.and_then(ClaimGuard::spend),
                charged,
            });
        }
    }

    /// Marks the responses of a key as not storable for `lasts`, so that other processes fetch without
    /// waiting for one another. In a directory, only processes that wait for this claim learn of it: later
    /// ones may store the response.
    pub fn mark_unstorable(&self, key: &[u8], mut claimed: ClaimGuard, lasts: Duration) {
        if let Some(claim) = claimed.spend() {
            claimed.tier.queue_unstorable(key, claim, lasts);
        }
    }

    /// Queues the removal of all responses of a key from all tiers, cancelling queued stores.
    pub fn remove(&self, key: &[u8]) -> Removal {
        // Variants become unreachable with the Vary record.
        let id = EntryId::of(key);
        Removal(self.tiers.iter().map(|in_use| in_use.remove(id)).collect())
    }

    /// Queues the removal of a variant from all tiers. Returns whether all removals were queued.
    #[must_use]
    pub fn remove_variant(&self, key: &[u8], names: &VaryNames, selection: &[u8]) -> bool {
        let mut all = true;
        for in_use in &self.tiers {
            all &= in_use.queue_variant_removal(key, names, selection);
        }
        all
    }

    /// Waits until the queues of all tiers are empty.
    pub async fn settle(&self) {
        for in_use in &self.tiers {
            in_use.settle().await;
        }
    }

    /// Starts to write a body too large for memory to the first tier that accepts it. A shared tier requires
    /// its claim.
    pub fn spool(&self, claimed: &mut Option<ClaimGuard>) -> Option<BodySpool> {
        self.tiers.iter().find_map(|in_use| {
            let is_its = |claimed: &mut ClaimGuard| Arc::ptr_eq(&claimed.tier, in_use);
            let (spool, claimed) = match &in_use.tier {
                AnyTier::Local(local) => (local.spool()?, None),
                AnyTier::Shared(shared) => {
                    let claimed = claimed.take_if(is_its)?;
                    let (id, token) = claimed.known()?;
                    (shared.spool(id, token)?, Some(claimed))
                }
            };
            let limit = self.limits.spool_queue;
            Some(BodySpool::begin(in_use, spool, limit, claimed))
        })
    }

    /// Returns the local tier, if there is one.
    pub fn local(&self) -> Option<&Arc<dyn LocalTier>> {
        self.tiers.iter().find_map(|in_use| in_use.tier.local())
    }

    /// Returns the tier with the shared purge log, if there is one.
    pub fn log(&self) -> Option<&Arc<dyn SharedTier>> {
        self.tiers.iter().find_map(|in_use| in_use.tier.shared())
    }

    /// Maximum size of a body that can be spooled, in bytes; 0 without such a tier.
    pub fn largest(&self) -> u64 {
        let largest = self.tiers.iter().map(|in_use| in_use.tier.largest());
        largest.max().unwrap_or(0)
    }

    /// Returns whether one of the tiers is shared.
    pub fn is_shared(&self) -> bool {
        self.tiers.iter().any(|in_use| in_use.is_shared())
    }

    /// Returns the reports of all tiers.
    pub fn reports(&self) -> Vec<TierReport> {
        self.tiers.iter().map(|in_use| in_use.report()).collect()
    }
}

/// Removal in progress, which completes even if this is dropped.
#[derive(Debug)]
pub struct Removal(Vec<oneshot::Receiver<bool>>);

impl Removal {
    /// Waits for all tiers. Returns whether the removal succeeded in each.
    pub async fn is_complete(self) -> bool {
        let mut complete = true;
        for tier in self.0 {
            complete &= tier.await.unwrap_or(false);
        }
        complete
    }
}

//! The tiers in use: asked in their order on a miss of memory, written to in the background.

mod in_use;
mod jobs;
mod lanes;
mod report;
#[cfg(any(test, feature = "scripted-tier"))]
pub mod scripted;
mod spooling;
mod try_look;
mod variant;

use std::sync::Arc;
use std::time::Duration;

use microcache_policy::{OriginView, Time, VaryNames};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::encoding::Varies;
use crate::memory::Hit;
use crate::stored::Stored;
use crate::tier::{AnyTier, EntryId, LocalTier, Page, SharedTier, Token};

use in_use::TierInUse;
use jobs::Storing;
pub use lanes::REMOVALS_WAITING;
pub use report::{LATENCIES, TierReport};
pub use spooling::Spooling;

/// The bounds of what tiers are asked to do.
#[derive(Clone, Copy, Debug)]
pub struct TierLimits {
    /// How long one of the processes that share a tier may keep the others from asking the origin.
    pub claim: Duration,
    /// Bytes of records that wait to be written to one tier. Beyond it they are not written.
    pub queue: u64,
    /// Bytes that wait to be written to one tier, of bodies too large for memory that go there while
    /// they arrive. A body for which there is no room is not kept. What memory takes of one object has
    /// to fit twice into half of it.
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

/// All tiers behind memory.
#[derive(Debug, Default)]
pub struct Tiers {
    tiers: Box<[Arc<TierInUse>]>,
    limits: TierLimits,
}

/// What the tiers have for a request.
#[derive(Debug)]
pub enum Lookup {
    /// A response that the request selects.
    Found(Found),
    /// No such response; but perhaps others, which vary on this.
    Missing(Turn, Option<Varies>),
}

impl Lookup {
    fn found(self) -> Option<Found> {
        match self {
            Self::Found(found) => Some(found),
            Self::Missing(..) => None,
        }
    }
}

/// A response out of a tier.
#[derive(Debug)]
pub struct Found {
    /// The response.
    pub stored: Stored,
    tier: Arc<TierInUse>,
    id: EntryId,
}

impl Found {
    /// The name of the tier it comes from.
    pub fn tier(&self) -> &'static str {
        self.tier.tier.tier().name()
    }

    /// Whether other processes use that tier too.
    pub fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }
}

/// Who of all processes that share a tier asks the origin.
#[derive(Debug)]
pub enum Turn {
    /// No tier is shared, or none can be asked: everybody for himself.
    Free,
    /// This process, and nobody else meanwhile.
    Ours(Claimed),
    /// Another process is at it.
    Theirs,
}

/// The right to bring what others wait for. Given back when it is dropped unused.
#[derive(Debug)]
pub struct Claimed {
    tier: Arc<TierInUse>,
    id: EntryId,
    token: Option<Token>,
}

impl Tiers {
    /// These tiers, the nearest first. Writing happens on `background`.
    pub fn new(tiers: Vec<AnyTier>, limits: TierLimits, background: &Handle) -> Self {
        Self {
            tiers: tiers
                .into_iter()
                .map(|tier| TierInUse::new(tier, background))
                .collect(),
            limits,
        }
    }

    /// Whether there is nothing behind memory.
    pub fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// The bounds.
    pub const fn limits(&self) -> &TierLimits {
        &self.limits
    }

    /// Looks for the response of a key that a request selects. Who finds nothing learns whose turn
    /// it is to ask the origin.
    pub async fn find(&self, key: &[u8], request: &OriginView<'_>) -> Lookup {
        let claim = Some(self.limits.claim);
        Self::find_in(self.tiers.iter(), claim, key, request).await
    }

    /// The same for who is not going to ask the origin.
    pub async fn look(&self, key: &[u8], request: &OriginView<'_>) -> Option<Found> {
        Self::find_in(self.tiers.iter(), None, key, request)
            .await
            .found()
    }

    /// The same where other processes may have put it.
    pub async fn look_shared(&self, key: &[u8], request: &OriginView<'_>) -> Option<Found> {
        let shared = self.tiers.iter().filter(|in_use| in_use.is_shared());
        Self::find_in(shared, None, key, request).await.found()
    }

    /// The same as `find` where other processes may have put it.
    pub async fn find_shared(&self, key: &[u8], request: &OriginView<'_>) -> Lookup {
        let shared = self.tiers.iter().filter(|in_use| in_use.is_shared());
        Self::find_in(shared, Some(self.limits.claim), key, request).await
    }

    async fn find_in(
        tiers: impl Iterator<Item = &Arc<TierInUse>>,
        claim: Option<Duration>,
        key: &[u8],
        request: &OriginView<'_>,
    ) -> Lookup {
        let (mut turn, mut others) = (Turn::Free, None);
        for in_use in tiers {
            match in_use.find(key, request, claim).await {
                Ok(Lookup::Missing(one, varies)) => {
                    if !matches!(one, Turn::Free) {
                        turn = one;
                    }
                    others = others.or(varies);
                }
                Ok(found @ Lookup::Found(_)) => return found,
                // The next tier may know more.
                Err(_) => {}
            }
        }
        Lookup::Missing(turn, others)
    }

    /// The page that an application itself keeps behind memory for what a request asks.
    pub async fn page(&self, host: &[u8], target: &[u8]) -> Option<Page> {
        for in_use in &self.tiers {
            if let Some(page) = in_use.page(host, target).await {
                return Some(page);
            }
        }
        None
    }

    /// Whose turn it is to renew what was found.
    pub async fn turn_to_renew(&self, found: &Found) -> Turn {
        let in_use = &found.tier;
        let Some(shared) = in_use.tier.shared() else {
            return Turn::Free;
        };
        let claim = shared.claim(found.id, self.limits.claim).await;
        match in_use.counted(claim) {
            Ok(claim) => in_use.turn(found.id, claim),
            Err(_) => Turn::Free,
        }
    }

    /// Has a response written to every tier. To one that is shared only with its claim: without,
    /// it could bring back what another process has purged meanwhile.
    pub fn store(&self, key: &[u8], response: &Hit, mut claimed: Option<Claimed>, now: Time) {
        let expires = response.lifetime.usable_until().since(now);
        let charged = (key.len() + response.heap_size()) as u64;
        for in_use in &self.tiers {
            let claimed = claimed
                .as_mut()
                .filter(|claimed| Arc::ptr_eq(&claimed.tier, in_use));
            // What lies in a file is in the tier already, and gets another head there.
            let has_body =
                response.body.bytes().is_some() || in_use.has_files() && response.file().is_some();
            let wanted = expires > 0 && has_body && (claimed.is_some() || !in_use.is_shared());
            if !wanted || !in_use.has_room(charged, self.limits.queue) {
                continue;
            }
            in_use.ask_to_store(Storing {
                key: key.into(),
                response: response.clone(),
                expires: Duration::from_millis(expires),
                claim: claimed.and_then(Claimed::spend),
                charged,
            });
        }
    }

    /// Has the others who want what a claim was for know that it cannot be stored, for so long: each of them asks
    /// the origin then, and none waits for another. In a directory only those learn it who wait for this claim: commands
    /// that follow each other store what they may.
    pub fn note_unstorable(&self, key: &[u8], mut claimed: Claimed, lasts: Duration) {
        if let Some(claim) = claimed.spend() {
            claimed.tier.ask_to_note_unstorable(key, claim, lasts);
        }
    }

    /// Has every response of a key removed from every tier, before anything else is done there; what
    /// waits to be stored for it is not stored any more.
    pub fn remove(&self, key: &[u8]) -> Removal {
        // Variants cannot be found without the record that says what they vary on.
        let id = EntryId::of(key);
        Removal(self.tiers.iter().map(|in_use| in_use.remove(id)).collect())
    }

    /// Has one response of a key removed from every tier: the one that varies on these fields, where
    /// they said this. Says whether that is going to be done.
    #[must_use]
    pub fn remove_variant(&self, key: &[u8], names: &VaryNames, selection: &[u8]) -> bool {
        let mut all = true;
        for in_use in &self.tiers {
            all &= in_use.ask_to_remove_variant(key, names, selection);
        }
        all
    }

    /// Waits until the tiers have nothing left to do.
    pub async fn settle(&self) {
        for in_use in &self.tiers {
            in_use.settle().await;
        }
    }

    /// A place for a body that is too large for memory, if a tier takes such. One that is shared takes it with its
    /// claim only.
    pub fn spool(&self, claimed: &mut Option<Claimed>) -> Option<Spooling> {
        self.tiers.iter().find_map(|in_use| {
            let is_its = |claimed: &mut Claimed| Arc::ptr_eq(&claimed.tier, in_use);
            let (spool, claimed) = match &in_use.tier {
                AnyTier::Local(local) => (local.spool()?, None),
                AnyTier::Shared(shared) => {
                    let claimed = claimed.take_if(is_its)?;
                    let (id, token) = claimed.known()?;
                    (shared.spool(id, token)?, Some(claimed))
                }
            };
            let limit = self.limits.spool_queue;
            Some(Spooling::begin(in_use, spool, limit, claimed))
        })
    }

    /// The tier that is this process's alone, if there is one.
    pub fn local(&self) -> Option<&Arc<dyn LocalTier>> {
        self.tiers.iter().find_map(|in_use| in_use.tier.local())
    }

    /// The tier that has the log which processes share, if there is one.
    pub fn log(&self) -> Option<&Arc<dyn SharedTier>> {
        self.tiers.iter().find_map(|in_use| in_use.tier.shared())
    }

    /// The largest body that goes to a tier while it arrives; 0 if there is no tier for such.
    pub fn largest(&self) -> u64 {
        let largest = self.tiers.iter().map(|in_use| in_use.tier.largest());
        largest.max().unwrap_or(0)
    }

    /// Whether other processes use one of them too.
    pub fn is_shared(&self) -> bool {
        self.tiers.iter().any(|in_use| in_use.is_shared())
    }

    /// What the tiers have done and say of themselves.
    pub fn reports(&self) -> Vec<TierReport> {
        self.tiers.iter().map(|in_use| in_use.report()).collect()
    }
}

/// A removal that goes on by itself, whether anybody waits for it or not.
#[derive(Debug)]
pub struct Removal(Vec<oneshot::Receiver<bool>>);

impl Removal {
    /// Waits until every tier was told. Whether all of them have said that nothing is left.
    pub async fn is_complete(self) -> bool {
        let mut complete = true;
        for tier in self.0 {
            complete &= tier.await.unwrap_or(false);
        }
        complete
    }
}

impl Claimed {
    /// The claim, which stays.
    fn known(&self) -> Option<(EntryId, Token)> {
        self.token.map(|token| (self.id, token))
    }

    /// The claim, for the job that ends it.
    fn spend(&mut self) -> Option<(EntryId, Token)> {
        self.token.take().map(|token| (self.id, token))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some((id, token)) = self.spend() {
            self.tier.ask_to_release(id, token);
        }
    }
}

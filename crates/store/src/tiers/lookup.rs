//! Lookups in a tier, and claims on what is missing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use microcache_policy::OriginView;
use tokio::time::{sleep, timeout};

use super::active::{ActiveTier, decode};
use super::variant::VariantLookup;
use crate::encoding::{TierRecord, VaryRecord};
use crate::stored::Stored;
use crate::tier::{ApplicationPage, Claim, EntryId, GetOutcome, TierError, Token};

/// Result of a lookup in the tiers.
#[derive(Debug)]
pub enum TierReply {
    /// Response that the request selects.
    Found(TierEntry),
    /// No such response; carries the result of the claim, and the Vary record of the key if there is one.
    Missing(FetchClaim, Option<VaryRecord>),
}

impl TierReply {
    pub(super) fn found(self) -> Option<TierEntry> {
        match self {
            Self::Found(found) => Some(found),
            Self::Missing(..) => None,
        }
    }
}

/// Response found in a tier.
#[derive(Debug)]
pub struct TierEntry {
    /// The response.
    pub stored: Stored,
    pub(super) tier: Arc<ActiveTier>,
    pub(super) id: EntryId,
}

impl TierEntry {
    /// Name of the tier.
    pub fn tier(&self) -> &'static str {
        self.tier.tier.tier().name()
    }

    /// Returns whether other processes use the tier.
    pub fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }
}

/// Result of a claim on a fetch.
#[derive(Debug)]
pub enum FetchClaim {
    /// The fetch need not be claimed: no shared tier is available, or the response is not storable.
    NotNeeded,
    /// Claimed by this process.
    Granted(ClaimGuard),
    /// Claimed by another process.
    HeldElsewhere(HeldClaim),
}

/// Claim of another process.
#[derive(Debug)]
pub struct HeldClaim {
    tier: Arc<ActiveTier>,
    id: EntryId,
}

/// Factor by which a pause is longer if the end of the claim is announced, and its maximum then.
const ANNOUNCED: (u32, Duration) = (50, Duration::from_millis(500));

impl HeldClaim {
    /// Waits until the claim has ended, for at most the pause, or a longer one if the tier announces the end. Returns
    /// whether it has announced it, or may have missed it.
    pub async fn wait(&self, pause: Duration) -> bool {
        let shared = self.tier.tier.shared();
        let Some(end) = shared.and_then(|shared| shared.claim_end(self.id)) else {
            sleep(pause).await;
            return false;
        };
        let end = timeout((pause * ANNOUNCED.0).min(ANNOUNCED.1), end);
        end.await.is_ok()
    }

    /// Counts a claim that its holder has neither used nor released in its time.
    pub fn note_expired(&self) {
        self.tier.note_expired_claim();
    }
}

/// Claim on a fetch, released on drop unless used.
#[derive(Debug)]
pub struct ClaimGuard {
    pub(super) tier: Arc<ActiveTier>,
    id: EntryId,
    token: Option<Token>,
}

impl ClaimGuard {
    pub(super) fn new(tier: &Arc<ActiveTier>, id: EntryId, token: Token) -> Self {
        Self {
            tier: Arc::clone(tier),
            id,
            token: Some(token),
        }
    }

    /// Returns the claim without using it.
    pub(super) fn known(&self) -> Option<(EntryId, Token)> {
        self.token.map(|token| (self.id, token))
    }

    /// Takes the claim, for the job that ends it.
    pub(super) fn spend(&mut self) -> Option<(EntryId, Token)> {
        self.token.take().map(|token| (self.id, token))
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        if let Some((id, token)) = self.spend() {
            self.tier.queue_release(id, token);
        }
    }
}

impl ActiveTier {
    /// Looks up the response that a request selects. With `claim`, a missing one is claimed in a shared
    /// tier.
    pub(super) async fn find(
        self: &Arc<Self>,
        key: &[u8],
        request: &OriginView<'_>,
        claim: Option<Duration>,
    ) -> Result<TierReply, TierError> {
        self.endings.wait_for(EntryId::of(key)).await;
        let began = Instant::now();
        let looked_up = self.look_up(key, request, claim).await;
        self.record_latency(began.elapsed());
        if let Ok(lookup) = &looked_up {
            self.count_lookup(matches!(lookup, TierReply::Found(_)));
        }
        looked_up
    }

    /// Looks up the page stored by an application, if configured.
    pub(super) async fn page(&self, host: &[u8], target: &[u8]) -> Option<ApplicationPage> {
        let lookup = self.tier.shared()?.page(host, target)?;
        let began = Instant::now();
        let page = lookup.await;
        self.record_latency(began.elapsed());
        let page = self.counted(page).ok()?;
        self.count_lookup(page.is_some());
        page
    }

    async fn look_up(
        self: &Arc<Self>,
        key: &[u8],
        request: &OriginView<'_>,
        claim: Option<Duration>,
    ) -> Result<TierReply, TierError> {
        let id = EntryId::of(key);
        let (record, turn) = self.read(id, key, claim).await?;
        let varies = match record {
            None => return Ok(TierReply::Missing(turn, None)),
            Some(TierRecord::Varies(varies)) => varies,
            Some(TierRecord::Response(stored)) if stored.vary().is_empty() => {
                return Ok(self.found(stored, id));
            }
            Some(TierRecord::Response(_) | TierRecord::Unstorable) => {
                return Ok(TierReply::Missing(FetchClaim::NotNeeded, None));
            }
        };
        let variant = VariantLookup::of(varies.clone(), key, request);
        let (record, turn) = self.read(variant.id, key, claim).await?;
        let Some(record) = record else {
            return Ok(TierReply::Missing(turn, Some(varies)));
        };
        Ok(match variant.response(record) {
            Some(stored) => self.found(stored, variant.id),
            None => TierReply::Missing(FetchClaim::NotNeeded, Some(varies)),
        })
    }

    fn found(self: &Arc<Self>, stored: Stored, id: EntryId) -> TierReply {
        TierReply::Found(TierEntry {
            stored,
            tier: Arc::clone(self),
            id,
        })
    }

    /// Reads the record of an id and key, or claims a missing one.
    async fn read(
        self: &Arc<Self>,
        id: EntryId,
        key: &[u8],
        claim: Option<Duration>,
    ) -> Result<(Option<TierRecord>, FetchClaim), TierError> {
        let entry = match (claim, self.tier.shared()) {
            (Some(hold), Some(shared)) => {
                match self.counted(shared.get_or_claim(id, hold).await)? {
                    GetOutcome::Entry(entry) => entry,
                    GetOutcome::Missing(claim) => return Ok((None, self.claim_result(id, claim))),
                }
            }
            _ => match self.counted(self.tier.tier().get(id).await)? {
                Some(entry) => entry,
                None => return Ok((None, FetchClaim::NotNeeded)),
            },
        };
        match decode(entry, key, self.tier.epoch()) {
            Ok(record) => Ok((record, FetchClaim::NotNeeded)),
            Err(corrupt) => {
                self.count_corrupt();
                self.remove_damaged(EntryId::of(key), id);
                Err(TierError::Corrupt(corrupt.to_string()))
            }
        }
    }

    pub(super) fn claim_result(self: &Arc<Self>, id: EntryId, claim: Claim) -> FetchClaim {
        match claim {
            Claim::HeldElsewhere => FetchClaim::HeldElsewhere(HeldClaim {
                tier: Arc::clone(self),
                id,
            }),
            Claim::Unstorable => FetchClaim::NotNeeded,
            Claim::Granted(token) => FetchClaim::Granted(ClaimGuard::new(self, id, token)),
        }
    }
}

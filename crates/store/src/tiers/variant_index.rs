//! Ids of the responses of a key in a tier.

use std::time::Duration;

use microcache_policy::{Time, VaryNames, vary};

use super::active::{ActiveTier, decode};
use crate::content::Content;
use crate::encoding::{TierRecord, VaryRecord, encode_varies};
use crate::random;
use crate::stored::Stored;
use crate::tier::{Entry, EntryId, PutOutcome, TierError, Token};

/// Additional lifetime of a Vary record over its variants, so that few of them need to extend it.
const VARIES_LONGER: Duration = Duration::from_mins(1);

/// Ids of the responses of a key in a tier. A response without Vary has the id of the key. Others are
/// variants: the Vary record has that id, and theirs depend on its generation.
pub(super) struct VariantIndex<'a> {
    active: &'a ActiveTier,
    key: &'a [u8],
    base: EntryId,
}

impl<'a> VariantIndex<'a> {
    pub(super) fn new(active: &'a ActiveTier, key: &'a [u8]) -> Self {
        let base = EntryId::of(key);
        Self { active, key, base }
    }

    /// Returns the id of a variant if the key varies on these names, otherwise the id of the key.
    pub(super) async fn id_of(
        &self,
        names: &VaryNames,
        selection: &[u8],
    ) -> Result<EntryId, TierError> {
        let varies = self.varies().await?.filter(|varies| varies.names == *names);
        Ok(varies.map_or(self.base, |varies| self.variant(selection, &varies)))
    }

    /// Returns the id to store a response under, and the claim that remains for it; `None` if the claim is
    /// void. A purge removes the Vary record only, so a claim on a variant is valid while that is unchanged.
    pub(super) async fn id_for(
        &self,
        response: &Stored,
        expires: Duration,
        claim: Option<(EntryId, Token)>,
    ) -> Result<Option<(EntryId, Option<Token>)>, TierError> {
        let token = claim.map(|(_, token)| token);
        let is_claim_on_variant = claim.is_some_and(|(id, _)| id != self.base);
        if response.vary().is_empty() && !is_claim_on_variant {
            return Ok(Some((self.base, token)));
        }
        let known = self.varies().await?;
        if let Some(varies) = &known
            && varies.names == *response.vary()
        {
            let id = self.variant(response.selection(), varies);
            if claim.is_some_and(|(claimed, _)| claimed != id) {
                return Ok(None);
            }
            if varies.until < response.lifetime().usable_until() {
                let prolonged = self.prolong(varies, response, expires).await;
                // A failure only shortens the time in which the variant can be found.
                let _ = self.active.counted(prolonged);
            }
            return Ok(Some((id, token)));
        }
        if is_claim_on_variant {
            if known.is_some() {
                // The origin varies on other fields now; the Vary record is dropped.
                self.active.tier.tier().remove(self.base).await?;
            }
            return Ok(None);
        }
        if known.is_none() && !names_all(response) {
            // The response counts as varying on names learnt from others of its key. Their Vary record is
            // gone, so the next request starts over.
            return Ok(None);
        }
        let id = self.start_generation(response, expires, token).await?;
        Ok(id.map(|id| (id, None)))
    }

    /// Stores a new Vary record, which releases the claim on the key. Returns the id of the response; `None`
    /// if the record was not stored.
    async fn start_generation(
        &self,
        response: &Stored,
        expires: Duration,
        token: Option<Token>,
    ) -> Result<Option<EntryId>, TierError> {
        let varies = VaryRecord {
            names: response.vary().clone(),
            // Random, since two processes must not choose the same.
            generation: random::number(),
            began: response.began(),
            until: varies_until(response),
        };
        let entry = Entry {
            head: encode_varies(self.key, &varies, self.active.tier.epoch()),
            body: Content::default(),
        };
        let expires = expires.saturating_add(VARIES_LONGER);
        let tier = self.active.tier.tier();
        let put = tier.put(self.base, entry, expires, token).await?;
        let id = self.variant(response.selection(), &varies);
        Ok((put == PutOutcome::Stored).then_some(id))
    }

    fn variant(&self, selection: &[u8], varies: &VaryRecord) -> EntryId {
        EntryId::of_variant(self.key, selection, varies.generation)
    }

    /// Extends the lifetime of the Vary record to that of a variant. Its generation is kept; a record that was
    /// removed or replaced in the meantime is left alone.
    async fn prolong(
        &self,
        known: &VaryRecord,
        response: &Stored,
        expires: Duration,
    ) -> Result<(), TierError> {
        let tier = self.active.tier.tier();
        let Some(entry) = tier.get(self.base).await? else {
            return Ok(());
        };
        let from = entry.head.clone();
        if let Ok(Some(TierRecord::Varies(now))) = decode(entry, self.key, self.active.tier.epoch())
            && (now.generation, &now.names) == (known.generation, &known.names)
        {
            let until = varies_until(response);
            let epoch = self.active.tier.epoch();
            let head = encode_varies(self.key, &VaryRecord { until, ..now }, epoch);
            let expires = expires.saturating_add(VARIES_LONGER);
            tier.renew(self.base, from, head, expires, None).await?;
        }
        Ok(())
    }

    /// Reads the Vary record of the key.
    async fn varies(&self) -> Result<Option<VaryRecord>, TierError> {
        let Some(entry) = self.active.tier.tier().get(self.base).await? else {
            return Ok(None);
        };
        Ok(match decode(entry, self.key, self.active.tier.epoch()) {
            Ok(Some(TierRecord::Varies(varies))) => Some(varies),
            _ => None,
        })
    }
}

fn varies_until(response: &Stored) -> Time {
    let longer = VARIES_LONGER.as_millis() as u64;
    response.lifetime().usable_until().plus(longer)
}

/// Returns whether the response's own Vary lists all names that it counts as varying on.
fn names_all(response: &Stored) -> bool {
    let named = vary::of_response(response.fields(), &[]).names();
    named.contains(response.vary())
}

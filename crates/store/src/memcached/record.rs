//! Operations on one record.

use std::time::Duration;

use bytes::Bytes;

use super::claims::{ClaimGrant, ClaimPurpose};
use super::pieces;
use super::protocol::{MetaItem, MetaRequest, MetaResponse, SetOptions};
use super::record_item::RecordItem;
use super::server::ConnectionLane;
use super::value::{self, ItemValue, Manifest};
use super::{keys, time};
use crate::content::Content;
use crate::tier::{Claim, Entry, GetOutcome, PutOutcome, TierError};

/// Result of a lookup.
enum ItemLookup {
    Entry(Entry),
    /// No record; carries the result of the claim.
    Nothing(Claim),
    /// Incomplete or stale record, to be deleted.
    Useless,
    /// Not a record.
    Damaged,
}

impl RecordItem<'_> {
    /// Reads the record.
    pub(super) async fn get(&self) -> Result<Option<Entry>, TierError> {
        Ok(match self.look(None).await? {
            ItemLookup::Entry(entry) => Some(entry),
            _ => None,
        })
    }

    /// Reads the record, or claims it if it is missing.
    pub(super) async fn get_or_claim(&self, hold: Duration) -> Result<GetOutcome, TierError> {
        match self.look(Some(hold)).await? {
            ItemLookup::Entry(entry) => Ok(GetOutcome::Entry(entry)),
            ItemLookup::Nothing(claim) => Ok(GetOutcome::Missing(claim)),
            ItemLookup::Useless | ItemLookup::Damaged => {
                let key = keys::record(self.id);
                Err(TierError::Failed(format!("{key} could not be claimed")))
            }
        }
    }

    async fn look(&self, claim: Option<Duration>) -> Result<ItemLookup, TierError> {
        let key = keys::record(self.id);
        let purpose = claim.map(|_| ClaimPurpose::Fill);
        let claim = claim.map(time::expiry);
        // An unusable item is deleted, and the missing one is then claimed.
        for _ in 0..2 {
            let answer = self.request(MetaRequest::default().get(&key, claim)).await;
            let item = match self.track_claim(purpose, answer)? {
                MetaResponse::Done(item) => item,
                MetaResponse::Missing => break,
                MetaResponse::TooLong => return Err(self.discard(None).await),
                other => return Err(other.to_unexpected_error()),
            };
            let number = item.number;
            if let Some(expires) = claim
                && item.taken
                && item.value.is_empty()
            {
                self.shorten(&key, &item, expires).await?;
            }
            match self.look_at(item).await? {
                ItemLookup::Useless => {
                    self.request(MetaRequest::default().delete(&key, Some(number)))
                        .await?;
                }
                ItemLookup::Damaged => return Err(self.discard(Some(number)).await),
                look @ (ItemLookup::Entry(_) | ItemLookup::Nothing(_)) => return Ok(look),
            }
        }
        Ok(ItemLookup::Useless)
    }

    async fn look_at(&self, item: MetaItem) -> Result<ItemLookup, TierError> {
        if item.stale {
            return Ok(ItemLookup::Useless);
        }
        if item.value.is_empty() {
            return Ok(match item {
                MetaItem { won: true, .. } => {
                    ItemLookup::Nothing(self.grant(ClaimPurpose::Fill, item.number))
                }
                MetaItem { taken: true, .. } if self.server.pending_claims.take(self.id) => {
                    ItemLookup::Useless
                }
                MetaItem { taken: true, .. } => ItemLookup::Nothing(Claim::HeldElsewhere),
                // The item is empty without a claim, which would never be granted.
                _ => ItemLookup::Useless,
            });
        }
        Ok(match ItemValue::decode(&item.value, self.max_object) {
            None => ItemLookup::Damaged,
            Some(ItemValue::Whole { head, body }) => ItemLookup::Entry(Entry {
                head,
                body: Content::Bytes(body),
            }),
            Some(ItemValue::Manifest(manifest)) => match pieces::fetch(self, &manifest).await? {
                Some(body) => ItemLookup::Entry(Entry {
                    head: manifest.head,
                    body: Content::Bytes(body),
                }),
                None => ItemLookup::Useless,
            },
        })
    }

    /// Deletes an item that is not a record.
    async fn discard(&self, number: Option<u64>) -> TierError {
        let key = keys::record(self.id);
        match self
            .request(MetaRequest::default().delete(&key, number))
            .await
        {
            Ok(_) => TierError::Corrupt(format!("{key} is not a record")),
            Err(error) => error,
        }
    }

    /// Claims the renewal of a record, or its fill if it no longer exists.
    pub(super) async fn claim(&self, hold: Duration) -> Result<Claim, TierError> {
        let lock = SetOptions {
            expires: time::expiry(hold),
            only_new: true,
            only_if: None,
        };
        let request = MetaRequest::default()
            .set(&keys::lock(self.id), [], lock)
            .peek(&keys::record(self.id), lock.expires)
            .lifetime(&keys::lock(self.id));
        let answers = self.request_all(request).await;
        let answers = self.track_claim(Some(ClaimPurpose::Renewal), answers)?;
        if let [MetaResponse::NotStored, _, MetaResponse::Done(other)] = &answers[..] {
            self.shorten(&keys::lock(self.id), other, lock.expires)
                .await?;
        }
        let (locked, item) = match &answers[..] {
            [MetaResponse::Done(_), MetaResponse::Done(item), ..] => (true, item.clone()),
            [MetaResponse::NotStored, MetaResponse::Done(item), ..] => (false, item.clone()),
            [MetaResponse::Done(_) | MetaResponse::NotStored, other] | [other, ..] => {
                return Err(other.to_unexpected_error());
            }
            [] => return Err(TierError::Down),
        };
        if !locked && self.server.pending_claims.take(self.id) {
            // The next request gets the claim.
            self.unlock();
        }
        if locked && !item.won && !item.taken {
            return Ok(self.grant(ClaimPurpose::Renewal, item.number));
        }
        if locked {
            // The record no longer exists.
            self.unlock();
        }
        Ok(if item.won {
            self.grant(ClaimPurpose::Fill, item.number)
        } else {
            Claim::HeldElsewhere
        })
    }

    /// Limits the lifetime of a foreign claim to that of one by this process. A longer one is forged or by a
    /// process with another `claim_timeout`, and would delay requests again and again.
    async fn shorten(&self, key: &str, claim: &MetaItem, expires: u64) -> Result<(), TierError> {
        let lasts_too_long = claim
            .seconds_left
            .is_some_and(|left| left > time::longest_left(expires));
        if lasts_too_long {
            self.request(MetaRequest::default().touch(key, expires))
                .await?;
        }
        Ok(())
    }

    /// Releases a claim; if that fails, the probe retries when the server responds.
    pub(super) async fn release(&self, grant: ClaimGrant) -> Result<(), TierError> {
        let released = self.release_now(grant).await;
        if released.is_err() {
            self.server.pending_claims.add(self.id, grant.purpose);
        }
        released
    }

    async fn release_now(&self, grant: ClaimGrant) -> Result<(), TierError> {
        let request = match grant.purpose {
            ClaimPurpose::Fill => {
                MetaRequest::default().delete(&keys::record(self.id), Some(grant.number))
            }
            ClaimPurpose::Renewal => MetaRequest::default().delete(&keys::lock(self.id), None),
        };
        match self.request(request).await? {
            MetaResponse::Done(_) | MetaResponse::Missing | MetaResponse::Changed => Ok(()),
            other => Err(other.to_unexpected_error()),
        }
    }

    /// Stores a record, in pieces if it exceeds the item size.
    pub(super) async fn put(
        &self,
        head: Bytes,
        body: Bytes,
        expires: Duration,
        grant: Option<ClaimGrant>,
    ) -> Result<PutOutcome, TierError> {
        let key = keys::record(self.id);
        let how = SetOptions {
            expires: time::expiry(expires),
            only_if: grant.map(|grant| grant.number),
            only_new: false,
        };
        let first = value::whole(&head);
        let request = if first.len() + body.len() <= self.max_item {
            MetaRequest::default().set(&key, [first, body], how)
        } else {
            match pieces::store(self, head, &body, how.expires).await? {
                Some(manifest) => MetaRequest::default().set(&key, [manifest.encode()], how),
                None => return Ok(PutOutcome::Refused),
            }
        };
        self.stored(request, grant).await
    }

    /// Reads the head, without the pieces of the body.
    pub(super) async fn head(&self) -> Result<Option<Bytes>, TierError> {
        let item = self.item().await?;
        let value = item.and_then(|item| ItemValue::decode(&item.value, self.max_object));
        Ok(value.map(|value| match value {
            ItemValue::Whole { head, .. } | ItemValue::Manifest(Manifest { head, .. }) => head,
        }))
    }

    /// Replaces the head of a record that has the head `from`. A body in pieces is left in place and its
    /// lifetime extended. A record stored or removed in the meantime is left unchanged.
    pub(super) async fn renew(
        &self,
        from: &Bytes,
        head: Bytes,
        expires: Duration,
        grant: Option<ClaimGrant>,
    ) -> Result<PutOutcome, TierError> {
        let claimed = |item: &MetaItem| {
            grant.is_none_or(|grant| (grant.server, grant.number) == (self.index, item.number))
        };
        let Some(item) = self.item().await?.filter(claimed) else {
            return Ok(PutOutcome::Superseded);
        };
        let expires = time::expiry(expires);
        let value = match ItemValue::decode(&item.value, self.max_object) {
            Some(ItemValue::Whole { head: old, body }) if old == *from => {
                [value::whole(&head), body]
            }
            Some(ItemValue::Manifest(old)) if old.head == *from => {
                let manifest = Manifest { head, ..old };
                if !pieces::renew(self, &manifest, expires).await? {
                    return Ok(PutOutcome::Superseded);
                }
                [manifest.encode(), Bytes::new()]
            }
            _ => return Ok(PutOutcome::Superseded),
        };
        if value.iter().map(Bytes::len).sum::<usize>() > self.max_item {
            return Ok(PutOutcome::Refused);
        }
        let how = SetOptions {
            expires,
            only_if: Some(item.number),
            only_new: false,
        };
        let request = MetaRequest::default().set(&keys::record(self.id), value, how);
        self.stored(request, grant).await
    }

    /// Stores a record and releases its claim.
    async fn stored(
        &self,
        request: MetaRequest,
        grant: Option<ClaimGrant>,
    ) -> Result<PutOutcome, TierError> {
        match self.request(request).await? {
            MetaResponse::Done(_) => {}
            MetaResponse::Changed | MetaResponse::Missing => return Ok(PutOutcome::Superseded),
            MetaResponse::Refused(_) => return Ok(PutOutcome::Refused),
            other => return Err(other.to_unexpected_error()),
        }
        if grant.is_some_and(|grant| grant.purpose == ClaimPurpose::Renewal) {
            self.unlock();
        }
        Ok(PutOutcome::Stored)
    }

    /// Reads the item of the record, unless it is stale or too large.
    async fn item(&self) -> Result<Option<MetaItem>, TierError> {
        let key = keys::record(self.id);
        match self.request(MetaRequest::default().get(&key, None)).await? {
            MetaResponse::Done(item) => Ok((!item.stale).then_some(item)),
            MetaResponse::Missing | MetaResponse::TooLong => Ok(None),
            other => Err(other.to_unexpected_error()),
        }
    }

    /// Deletes the lock without waiting; if that fails, it expires.
    fn unlock(&self) {
        let unlock = MetaRequest::default().delete(&keys::lock(self.id), None);
        drop(self.server.send(ConnectionLane::of(self.id), unlock, 1));
    }

    /// Records a claim of unknown outcome: a request without a response may have been granted.
    fn track_claim<T>(
        &self,
        purpose: Option<ClaimPurpose>,
        answer: Result<T, TierError>,
    ) -> Result<T, TierError> {
        let was_sent = |error: &TierError| *error != TierError::Down;
        if let Some(purpose) = purpose
            && answer.as_ref().is_err_and(was_sent)
        {
            self.server.pending_claims.add(self.id, purpose);
        }
        answer
    }

    fn grant(&self, purpose: ClaimPurpose, number: u64) -> Claim {
        let grant = ClaimGrant {
            purpose,
            server: self.index,
            number,
        };
        grant
            .to_token()
            .map_or(Claim::HeldElsewhere, Claim::Granted)
    }
}

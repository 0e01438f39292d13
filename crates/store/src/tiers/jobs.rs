//! Background jobs of a tier: stores, removals, releases of claims.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use microcache_policy::VaryNames;
use tokio::sync::oneshot;

use super::active::ActiveTier;
use super::job_queue::{StoreJob, TierJob, TierJobQueue};
use super::variant_index::VariantIndex;
use crate::content::Content;
use crate::encoding::{RecordHead, checksum, encode, encode_unstorable};
use crate::tier::{Entry, EntryId, PutOutcome, TierError, Token};

/// Size of a body, in bytes, from which it is worthwhile to check whether the tier already holds it.
const KEPT_FROM: u64 = 1024 * 1024;

impl ActiveTier {
    /// Queues the store of a response.
    pub(super) fn queue_store(self: &Arc<Self>, storing: StoreJob) {
        let lane = EntryId::of(&storing.key);
        self.enqueue(lane, TierJob::Store(Box::new(storing)));
    }

    /// Queues the release of a claim.
    pub(super) fn queue_release(self: &Arc<Self>, id: EntryId, token: Token) {
        self.enqueue(id, TierJob::Release(id, token));
    }

    /// Queues a marker that responses of the key are not storable for `lasts`, which also releases the
    /// claim.
    pub(super) fn queue_unstorable(
        self: &Arc<Self>,
        key: &[u8],
        claim: (EntryId, Token),
        lasts: Duration,
    ) {
        let (lane, key) = (EntryId::of(key), key.into());
        self.enqueue(lane, TierJob::MarkUnstorable { key, claim, lasts });
    }

    /// Queues the removal of all records of a key, cancelling queued stores. The receiver yields whether the
    /// removal succeeded.
    pub(super) fn remove(self: &Arc<Self>, base: EntryId) -> oneshot::Receiver<bool> {
        let (done, receiver) = oneshot::channel();
        match self.lanes.remove(base, done) {
            Ok((worker_wanted, cancelled)) => {
                for storing in cancelled {
                    self.queued.fetch_sub(storing.charged, Ordering::Release);
                    // Removing the Vary record does not remove the claim on a variant.
                    if let Some((id, token)) = storing.claim {
                        self.queue_release(id, token);
                    }
                }
                self.start(worker_wanted);
            }
            // The sender was dropped, so the receiver reports a failure.
            Err(_) => self.note_not_removed(),
        }
        receiver
    }

    /// Queues the removal of a damaged record.
    pub(super) fn remove_damaged(self: &Arc<Self>, base: EntryId, id: EntryId) {
        let (done, _receiver) = oneshot::channel();
        self.enqueue(base, TierJob::Remove(id, vec![done]));
    }

    /// Queues the removal of a variant. Returns whether it was queued.
    pub(super) fn queue_variant_removal(
        self: &Arc<Self>,
        key: &[u8],
        names: &VaryNames,
        selection: &[u8],
    ) -> bool {
        let job = TierJob::RemoveVariant {
            key: key.into(),
            names: names.clone(),
            selection: selection.into(),
        };
        self.enqueue(EntryId::of(key), job)
    }

    /// Waits until the queue is empty.
    pub(super) async fn settle(&self) {
        self.lanes.idle().await;
        self.endings.wait_for_all().await;
    }

    fn enqueue(self: &Arc<Self>, lane: EntryId, job: TierJob) -> bool {
        let added = self.lanes.add(lane, job);
        match added {
            Ok(worker_wanted) => self.start(worker_wanted),
            Err(_) => self.note_not_removed(),
        }
        added.is_ok()
    }

    fn start(self: &Arc<Self>, worker_wanted: bool) {
        if worker_wanted {
            self.background.spawn(Arc::clone(self).work());
        }
    }

    /// Processes jobs until the queue is empty.
    async fn work(self: Arc<Self>) {
        let mut worker = QueueWorker {
            lanes: &self.lanes,
            lane: None,
            is_dismissed: false,
        };
        while let Some(job) = worker.next() {
            self.work_on(job).await;
        }
    }

    /// Processes a job. Failures are counted, and reported to those waiting for a removal.
    async fn work_on(&self, job: TierJob) {
        match job {
            TierJob::Store(storing) => {
                let stored = self.store(&storing).await;
                self.queued.fetch_sub(storing.charged, Ordering::Release);
                match self.counted(stored) {
                    Ok(PutOutcome::Stored) => self.note_written(),
                    Ok(PutOutcome::Superseded) => {}
                    Ok(PutOutcome::Refused) | Err(_) => self.release(storing.claim).await,
                }
            }
            TierJob::Remove(id, waiters) => {
                let removed = self.counted(self.tier.tier().remove(id).await).is_ok();
                for done in waiters {
                    let _ = done.send(removed);
                }
            }
            TierJob::RemoveVariant {
                key,
                names,
                selection,
            } => {
                let removed = self.remove_variant(&key, &names, &selection).await;
                let _ = self.counted(removed);
            }
            TierJob::Release(id, token) => self.release(Some((id, token))).await,
            TierJob::MarkUnstorable { key, claim, lasts } => {
                self.mark_unstorable(&key, claim, lasts).await;
            }
        }
    }

    async fn mark_unstorable(&self, key: &[u8], (id, token): (EntryId, Token), lasts: Duration) {
        let shared = self.tier.shared();
        if let Some(directory) = shared.filter(|shared| shared.is_on_this_machine()) {
            let released = directory.release_unstorable(id, token).await;
            let _ = self.counted(released);
            return;
        }
        let entry = Entry {
            head: encode_unstorable(key),
            body: Content::default(),
        };
        let marked = self.tier.tier().put(id, entry, lasts, Some(token)).await;
        if let Ok(PutOutcome::Refused) | Err(_) = self.counted(marked) {
            self.release(Some((id, token))).await;
        }
    }

    /// Releases a claim, so that other processes do not wait in vain.
    async fn release(&self, claim: Option<(EntryId, Token)>) {
        if let (Some((id, token)), Some(shared)) = (claim, self.tier.shared()) {
            let _ = self.counted(shared.release(id, token).await);
        }
    }

    /// Removes the variant if the key varies on these names, otherwise the record of the key.
    async fn remove_variant(
        &self,
        key: &[u8],
        names: &VaryNames,
        selection: &[u8],
    ) -> Result<(), TierError> {
        let variants = VariantIndex::new(self, key);
        let id = variants.id_of(names, selection).await?;
        self.tier.tier().remove(id).await
    }

    async fn store(&self, storing: &StoreJob) -> Result<PutOutcome, TierError> {
        let StoreJob {
            key,
            response,
            expires,
            claim,
            ..
        } = storing;
        let variants = VariantIndex::new(self, key);
        let Some((id, token)) = variants.id_for(response, *expires, *claim).await? else {
            self.release(*claim).await;
            return Ok(PutOutcome::Superseded);
        };
        if response.body_len() >= KEPT_FROM || response.body().is_none() {
            let renewed = self.renew(id, storing, token).await?;
            if renewed == PutOutcome::Stored {
                return Ok(renewed);
            }
        }
        let Some(body) = response.body() else {
            return Ok(PutOutcome::Superseded);
        };
        let entry = Entry {
            head: encode(
                key,
                response,
                (body.len() as u64, checksum(body)),
                self.tier.epoch(),
            ),
            body: response.content(),
        };
        self.tier.tier().put(id, entry, *expires, token).await
    }

    /// Replaces the head only, if the tier already holds the body of this response and the response is not
    /// older.
    async fn renew(
        &self,
        id: EntryId,
        storing: &StoreJob,
        token: Option<Token>,
    ) -> Result<PutOutcome, TierError> {
        let StoreJob { key, response, .. } = storing;
        let tier = self.tier.tier();
        let (from, stored_file) = match self.tier.shared() {
            Some(shared) if response.file().is_none() => {
                shared.head(id).await?.map(|head| (head, None))
            }
            _ => {
                let entry = tier.get(id).await?;
                entry.map(|entry| (entry.head, entry.body.file()))
            }
        }
        .unzip();
        let old = from
            .as_ref()
            .and_then(|head| RecordHead::decode_in(head, self.tier.epoch()).ok());
        let (Some(from), Some(old)) = (from, old) else {
            return Ok(PutOutcome::Superseded);
        };
        let has_same_body = match (response.body(), response.file(), stored_file.flatten()) {
            (Some(bytes), ..) => {
                old.body_len == bytes.len() as u64 && old.body_sum == checksum(bytes)
            }
            (None, Some(file), Some(stored_file)) => file.is_same_as(&stored_file),
            _ => false,
        };
        let is_not_newer = old.is_response() && old.key == key[..] && old.began <= response.began();
        if !(is_not_newer && has_same_body) {
            return Ok(PutOutcome::Superseded);
        }
        let head = encode(
            key,
            response,
            (old.body_len, old.body_sum),
            self.tier.epoch(),
        );
        tier.renew(id, from, head, storing.expires, token).await
    }
}

/// Worker task, with the lane that it has locked.
struct QueueWorker<'a> {
    lanes: &'a TierJobQueue,
    lane: Option<EntryId>,
    is_dismissed: bool,
}

impl QueueWorker<'_> {
    fn next(&mut self) -> Option<TierJob> {
        if let Some(done) = self.lane.take() {
            self.lanes.done(done);
        }
        let next = self.lanes.next();
        self.is_dismissed = next.is_none();
        let (lane, job) = next?;
        self.lane = Some(lane);
        Some(job)
    }
}

/// Unlocks the lane, even if a job panics.
impl Drop for QueueWorker<'_> {
    fn drop(&mut self) {
        if let Some(lane) = self.lane {
            self.lanes.done(lane);
        }
        if !self.is_dismissed {
            self.lanes.lost_worker();
        }
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::{Fields, Lifetime, Time, vary};
    use tokio::runtime::Handle;
    use tokio::task::yield_now;

    use super::*;
    use crate::clock::Epoch;
    use crate::encoding::TierRecord;
    use crate::memory::{Hit, Memory};
    use crate::stored::Stored;
    use crate::tier::AnyTier;
    use crate::tiers::active::decode;
    use crate::tiers::job_queue::AT_ONCE;
    use crate::tiers::scripted::{ScriptedOperation, ScriptedTier};
    use crate::tiers::{ClaimGuard, TierLimits, Tiers};

    const NOW: Time = Time::from_secs(1000);

    fn id(key: &str) -> EntryId {
        EntryId::of(key.as_bytes())
    }

    /// Tier in which operations on these keys hang.
    fn tiers(hanging: &[&str]) -> (Tiers, ScriptedTier) {
        let tier = ScriptedTier::hanging(hanging.iter().map(|key| id(key)));
        (behind(AnyTier::Local(Arc::new(tier.clone()))), tier)
    }

    fn behind(tier: AnyTier) -> Tiers {
        Tiers::new(vec![tier], TierLimits::default(), &Handle::current())
    }

    fn response() -> Hit {
        variant(VaryNames::default(), b"", 9000)
    }

    /// Response that is fresh for so many seconds.
    fn variant(vary: VaryNames, selection: &[u8], seconds: u64) -> Hit {
        let mut lifetime = [0; Lifetime::ENCODED_LEN];
        // Stored at the beginning of time.
        let fresh_for = NOW.as_millis() + seconds * 1000;
        lifetime[16..24].copy_from_slice(&fresh_for.to_le_bytes());
        Memory::detached_hit(
            Stored::new(
                b"",
                200,
                Fields::new(b"Vary: A\r\n"),
                bytes::Bytes::from_static(b"body").into(),
                Lifetime::from_bytes(&lifetime).expect("a lifetime"),
                NOW,
            )
            .with_vary(vary, selection),
        )
    }

    fn store(tiers: &Tiers, key: &str, claimed: Option<ClaimGuard>) {
        tiers.store(key.as_bytes(), &response(), claimed, NOW);
    }

    async fn go_on() {
        for _ in 0..50 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_key_that_hangs_keeps_no_other_waiting() {
        let (tiers, tier) = tiers(&["slow"]);
        store(&tiers, "slow", None);
        store(&tiers, "slow", None);
        store(&tiers, "quick", None);
        assert!(tiers.remove(b"other").is_complete().await);
        go_on().await;
        let expected = [
            ScriptedOperation::Put(id("slow")),
            ScriptedOperation::Put(id("quick")),
            ScriptedOperation::Remove(id("other")),
        ];
        for did in expected {
            assert!(tier.begun().contains(&did), "{did:?}");
        }
        assert_eq!(tier.begun().len(), 3, "one after the other");
        tier.permit(id("slow"), 2);
        tiers.settle().await;
        assert_eq!(tiers.reports()[0].written, 3);
    }

    #[tokio::test]
    async fn removals_that_hang_keep_no_other_waiting() {
        let hanging: Vec<String> = (0..AT_ONCE).map(|number| number.to_string()).collect();
        let keys: Vec<&str> = hanging.iter().map(String::as_str).collect();
        let (tiers, tier) = tiers(&keys);
        let slow: Vec<_> = keys
            .iter()
            .map(|key| tiers.remove(key.as_bytes()))
            .collect();
        go_on().await;
        assert_eq!(tier.begun().len(), keys.len());
        assert!(tiers.remove(b"other").is_complete().await);
        for (key, removal) in keys.iter().zip(slow) {
            tier.permit(id(key), 1);
            assert!(removal.is_complete().await);
        }
    }

    #[tokio::test]
    async fn a_removal_drops_the_queued_jobs_of_its_key() {
        let tier = ScriptedTier::hanging([id("key")]);
        let tiers = behind(AnyTier::Shared(Arc::new(tier.clone())));
        let claimed = |name, token| Some(ClaimGuard::new(&tiers.tiers[0], id(name), Token(token)));
        store(&tiers, "key", claimed("key", 1));
        go_on().await;
        store(&tiers, "key", claimed("variant", 7));
        store(&tiers, "key", claimed("key", 2));
        let removals = [tiers.remove(b"key"), tiers.remove(b"key")];
        store(&tiers, "key", claimed("key", 3));
        tier.permit(id("key"), 3);
        for removal in removals {
            assert!(removal.is_complete().await);
        }
        tiers.settle().await;
        let (put, remove) = (
            ScriptedOperation::Put(id("key")),
            ScriptedOperation::Remove(id("key")),
        );
        let (released, of_key): (Vec<_>, Vec<_>) = tier
            .begun()
            .into_iter()
            .partition(|did| matches!(did, ScriptedOperation::Release(..)));
        assert_eq!(of_key, [put, remove, put]);
        let variant = ScriptedOperation::Release(id("variant"), Token(7));
        assert!(released.contains(&variant), "nobody waits for it");
        assert!(released.contains(&ScriptedOperation::Release(id("key"), Token(2))));
        assert_eq!(released.len(), 2, "the others were stored with");
        let in_use = &tiers.tiers[0];
        assert_eq!(in_use.queued.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_removal_without_room_is_reported() {
        let (tiers, tier) = tiers(&["key"]);
        store(&tiers, "key", None);
        go_on().await;
        let waiting: Vec<_> = (0..super::super::MAX_QUEUED_REMOVALS)
            .map(|_| tiers.remove(b"key"))
            .collect();
        assert!(!tiers.remove(b"other").is_complete().await);
        assert!(!tiers.remove_variant(b"other", &VaryNames::default(), b""));
        assert_eq!(tiers.reports()[0].not_removed, 2);
        tier.permit(id("key"), 2);
        for removal in waiting {
            assert!(removal.is_complete().await);
        }
        assert!(tiers.remove(b"other").is_complete().await);
    }

    #[tokio::test]
    async fn a_large_body_already_stored_is_not_sent_again() {
        let tier = ScriptedTier::new(0, 0);
        let tiers = behind(AnyTier::Shared(Arc::new(tier.clone())));
        let large = |byte, status, began| {
            let body = vec![byte; KEPT_FROM as usize];
            Memory::detached_hit(Stored::new(
                b"",
                status,
                Fields::default(),
                bytes::Bytes::from(body).into(),
                response().lifetime(),
                began,
            ))
        };
        let later = NOW.plus(1);
        let (put, renew) = (
            ScriptedOperation::Put(id("key")),
            ScriptedOperation::Renew(id("key")),
        );
        for (response, did) in [
            (large(b'x', 200, NOW), put),
            (large(b'x', 203, later), renew),
            // Older than the stored one, so that only the claim decides.
            (large(b'x', 200, NOW), put),
            (large(b'y', 200, later), put),
        ] {
            let claimed = ClaimGuard::new(&tiers.tiers[0], id("key"), Token(1));
            tiers.store(b"key", &response, Some(claimed), NOW);
            tiers.settle().await;
            assert_eq!(tier.begun().last(), Some(&did));
            let (entry, _) = tier.record(id("key")).expect("it is there");
            let Ok(Some(TierRecord::Response(kept))) = decode(entry, b"key", Epoch::now()) else {
                panic!("no response");
            };
            assert_eq!(
                (kept.status(), kept.began()),
                (response.status(), response.began())
            );
            assert!(kept.body() == response.body());
        }
    }

    #[tokio::test]
    async fn a_variant_that_lasts_longer_is_found_for_as_long() {
        let (tiers, tier) = tiers(&[]);
        let vary = || vary::of_response(Fields::new(b"Vary: A\r\n"), &[]).names();
        let base = || {
            let (entry, _) = tier.record(id("key")).expect("it is there");
            match decode(entry, b"key", Epoch::now()) {
                Ok(Some(TierRecord::Varies(varies))) => varies,
                other => panic!("{other:?}"),
            }
        };
        let kept_for = |id| tier.record(id).expect("it is there").1.as_secs();
        let mut first = None;
        for (selection, seconds, at_least) in [
            (b"a", 10, 10),
            (b"b", 5000, 5000),
            (b"c", 20, 5000),
            (b"d", 5030, 5030),
        ] {
            tiers.store(b"key", &variant(vary(), selection, seconds), None, NOW);
            tiers.settle().await;
            assert!(kept_for(id("key")) >= at_least, "{seconds}");
            let generation = *first.get_or_insert(base().generation);
            assert_eq!(base().generation, generation);
            let found = EntryId::of_variant(b"key", selection, generation);
            assert_eq!(kept_for(found), seconds);
        }
        let written = [
            ScriptedOperation::Put(id("key")),
            ScriptedOperation::Renew(id("key")),
        ];
        let writes = tier.begun().into_iter();
        let writes = writes.filter(|did| written.contains(did)).count();
        assert_eq!(writes, 2, "not for each of them");
    }
}

//! Doing what a tier was asked for in the background.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use microcache_policy::{Time, VaryNames, vary};
use tokio::sync::oneshot;

use super::in_use::{TierInUse, decode};
use super::lanes::{Job, Lanes};
use crate::content::Content;
use crate::encoding::{Head, Record, Varies, checksum, encode, encode_unstorable, encode_varies};
use crate::memory::Hit;
use crate::random;
use crate::stored::Stored;
use crate::tier::{AnyTier, Entry, EntryId, Put, TierError, Token};

/// The record that says what a key varies on is kept for so much longer than the variant for which it
/// is written, so that the next ones need not all prolong it.
const VARIES_LONGER: Duration = Duration::from_mins(1);
/// A body of this size is not sent again where it lies already. To look for that costs more than to send
/// a smaller one.
const KEPT_FROM: u64 = 1024 * 1024;

/// A response on its way into the tier.
#[derive(Debug)]
pub(super) struct Storing {
    pub(super) key: Box<[u8]>,
    pub(super) response: Hit,
    pub(super) expires: Duration,
    pub(super) claim: Option<(EntryId, Token)>,
    pub(super) charged: u64,
}

impl TierInUse {
    /// Has a response written.
    pub(super) fn ask_to_store(self: &Arc<Self>, storing: Storing) {
        let lane = EntryId::of(&storing.key);
        self.ask(lane, Job::Store(Box::new(storing)));
    }

    /// Gives a claim back.
    pub(super) fn ask_to_release(self: &Arc<Self>, id: EntryId, token: Token) {
        self.ask(id, Job::Release(id, token));
    }

    /// Gives a claim back, and says for so long that what it was for cannot be stored.
    pub(super) fn ask_to_note_unstorable(
        self: &Arc<Self>,
        key: &[u8],
        claim: (EntryId, Token),
        lasts: Duration,
    ) {
        let (lane, key) = (EntryId::of(key), key.into());
        self.ask(lane, Job::NoteUnstorable { key, claim, lasts });
    }

    /// Has everything that a key has removed. What waits to be stored for it is not stored any more.
    /// Resolves to whether all is gone for sure.
    pub(super) fn remove(self: &Arc<Self>, base: EntryId) -> oneshot::Receiver<bool> {
        let (told, wait) = oneshot::channel();
        match self.lanes.remove(base, told) {
            Ok((worker_wanted, cancelled)) => {
                for storing in cancelled {
                    self.queued.fetch_sub(storing.charged, Ordering::Release);
                    // The claim on a variant is not removed with what the key varies on.
                    if let Some((id, token)) = storing.claim {
                        self.ask_to_release(id, token);
                    }
                }
                self.start(worker_wanted);
            }
            // What tells is gone, which says that it was not removed.
            Err(_) => self.note_not_removed(),
        }
        wait
    }

    /// Has a record of a key removed that is not what it should be.
    pub(super) fn remove_damaged(self: &Arc<Self>, base: EntryId, id: EntryId) {
        let (told, _nobody_waits) = oneshot::channel();
        self.ask(base, Job::Remove(id, vec![told]));
    }

    /// Has one response of a key removed. Says whether that is going to be done.
    pub(super) fn ask_to_remove_variant(
        self: &Arc<Self>,
        key: &[u8],
        names: &VaryNames,
        selection: &[u8],
    ) -> bool {
        let job = Job::RemoveVariant {
            key: key.into(),
            names: names.clone(),
            selection: selection.into(),
        };
        self.ask(EntryId::of(key), job)
    }

    /// Waits until there is nothing to do.
    pub(super) async fn settle(&self) {
        self.lanes.idle().await;
        self.endings.wait_for_all().await;
    }

    fn ask(self: &Arc<Self>, lane: EntryId, job: Job) -> bool {
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

    /// Does what there is to do, until there is nothing any more.
    async fn work(self: Arc<Self>) {
        let mut worker = Worker {
            lanes: &self.lanes,
            lane: None,
            is_told_to_go: false,
        };
        while let Some(job) = worker.next() {
            self.work_on(job).await;
        }
    }

    /// What fails is counted; there is nobody to tell but those who wait for a removal.
    async fn work_on(&self, job: Job) {
        match job {
            Job::Store(storing) => {
                let stored = self.store(&storing).await;
                self.queued.fetch_sub(storing.charged, Ordering::Release);
                match self.counted(stored) {
                    Ok(Put::Stored) => self.note_written(),
                    Ok(Put::Superseded) => {}
                    Ok(Put::Refused) | Err(_) => self.release(storing.claim).await,
                }
            }
            Job::Remove(id, told) => {
                let removed = self.counted(self.tier.tier().remove(id).await).is_ok();
                for told in told {
                    let _ = told.send(removed);
                }
            }
            Job::RemoveVariant {
                key,
                names,
                selection,
            } => {
                let removed = self.remove_variant(&key, &names, &selection).await;
                let _ = self.counted(removed);
            }
            Job::Release(id, token) => self.release(Some((id, token))).await,
            Job::NoteUnstorable { key, claim, lasts } => {
                self.note_unstorable(&key, claim, lasts).await;
            }
        }
    }

    async fn note_unstorable(&self, key: &[u8], (id, token): (EntryId, Token), lasts: Duration) {
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
        let noted = self.put(id, entry, lasts, Some(token)).await;
        if let Ok(Put::Refused) | Err(_) = self.counted(noted) {
            self.release(Some((id, token))).await;
        }
    }

    /// Nobody shall wait for what does not come.
    async fn release(&self, claim: Option<(EntryId, Token)>) {
        if let (Some((id, token)), Some(shared)) = (claim, self.tier.shared()) {
            let _ = self.counted(shared.release(id, token).await);
        }
    }

    /// The variant alone, if the key varies on these fields; else whatever lies there.
    async fn remove_variant(
        &self,
        key: &[u8],
        names: &VaryNames,
        selection: &[u8],
    ) -> Result<(), TierError> {
        let base = EntryId::of(key);
        let id = match self.varies(base, key).await? {
            Some(varies) if varies.names == *names => {
                EntryId::of_variant(key, selection, varies.generation)
            }
            _ => base,
        };
        self.tier.tier().remove(id).await
    }

    async fn store(&self, storing: &Storing) -> Result<Put, TierError> {
        let Storing {
            key,
            response,
            expires,
            claim,
            ..
        } = storing;
        let Some((id, token)) = self.id_for(key, response, *expires, *claim).await? else {
            self.release(*claim).await;
            return Ok(Put::Superseded);
        };
        if response.body.len() >= KEPT_FROM || response.body.bytes().is_none() {
            let renewed = self.renew(id, storing, token).await?;
            if renewed == Put::Stored {
                return Ok(renewed);
            }
        }
        let Some(body) = response.body.bytes() else {
            return Ok(Put::Superseded);
        };
        let entry = Entry {
            head: encode(
                key,
                response,
                (body.len() as u64, checksum(body)),
                self.tier.epoch(),
            ),
            body: response.body.clone(),
        };
        self.put(id, entry, *expires, token).await
    }

    /// With the claim, if there is one.
    async fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> Result<Put, TierError> {
        match (token, self.tier.shared()) {
            (Some(token), Some(shared)) => shared.put_claimed(id, entry, expires, token).await,
            _ => self.tier.tier().put(id, entry, expires).await,
        }
    }

    /// A body that lies in the tier stays there, and gets the response's head, if it is the response's
    /// body and the response is not older.
    async fn renew(
        &self,
        id: EntryId,
        storing: &Storing,
        token: Option<Token>,
    ) -> Result<Put, TierError> {
        let Storing { key, response, .. } = storing;
        let (from, lying) = match &self.tier {
            AnyTier::Local(local) => {
                let entry = local.get(id).await?;
                entry.map(|entry| (entry.head, entry.body.file()))
            }
            AnyTier::Shared(shared) if response.file().is_some() => {
                let entry = shared.get(id).await?;
                entry.map(|entry| (entry.head, entry.body.file()))
            }
            AnyTier::Shared(shared) => shared.head(id).await?.map(|head| (head, None)),
        }
        .unzip();
        let old = from.as_ref().and_then(|head| Head::decode(head).ok());
        let (Some(from), Some(old)) = (from, old) else {
            return Ok(Put::Superseded);
        };
        let is_its_body = match (response.body.bytes(), response.file(), lying.flatten()) {
            (Some(bytes), ..) => {
                old.body_len == bytes.len() as u64 && old.body_sum == checksum(bytes)
            }
            (None, Some(file), Some(lying)) => file.is_same_as(&lying),
            _ => false,
        };
        let is_it = old.is_response() && old.key == key[..] && old.began <= response.began;
        if !(is_it && is_its_body) {
            return Ok(Put::Superseded);
        }
        let head = encode(
            key,
            response,
            (old.body_len, old.body_sum),
            self.tier.epoch(),
        );
        let expires = storing.expires;
        match (token, self.tier.shared()) {
            (Some(token), Some(shared)) => {
                shared.renew_claimed(id, from, head, expires, token).await
            }
            _ => self.tier.tier().renew(id, from, head, expires).await,
        }
    }

    /// The id that a response is to be stored under, and the claim that is left for it. The
    /// response of a key without `Vary` has the key's own; variants hang on a record that says what
    /// the key varies on. `None` if the claim is of no use any more. A purge takes away that record
    /// alone: a claim on a variant is good as long as the record is the one that it was made under.
    pub(super) async fn id_for(
        &self,
        key: &[u8],
        response: &Stored,
        expires: Duration,
        claim: Option<(EntryId, Token)>,
    ) -> Result<Option<(EntryId, Option<Token>)>, TierError> {
        let base = EntryId::of(key);
        let token = claim.map(|(_, token)| token);
        let on_variant = claim.filter(|(id, _)| *id != base).map(|(id, _)| id);
        if response.vary().is_empty() && on_variant.is_none() {
            return Ok(Some((base, token)));
        }
        let variant = |generation| EntryId::of_variant(key, response.selection(), generation);
        match (self.varies(base, key).await?, on_variant) {
            (Some(varies), on_variant) if varies.names == *response.vary() => {
                let id = variant(varies.generation);
                let is_good = claim.is_none() || on_variant == Some(id);
                if is_good && varies.until < response.lifetime.usable_until() {
                    let prolonged = self.prolong(key, &varies, response, expires).await;
                    // Where that fails, the variant is only found for less long.
                    let _ = self.counted(prolonged);
                }
                Ok(is_good.then_some((id, token)))
            }
            // The origin varies on something else now: whoever comes next begins anew.
            (Some(_), Some(_)) => {
                self.tier.tier().remove(base).await?;
                Ok(None)
            }
            (None, Some(_)) => Ok(None),
            // It counts as varying on more than it says, after what others of its key have said. That
            // record is gone: whoever comes next begins anew.
            (None, None) if !names_all(response) => Ok(None),
            (_, None) => {
                let varies = Varies {
                    names: response.vary().clone(),
                    // Two processes must not give their variants the same.
                    generation: random::number(),
                    began: response.began,
                    until: varies_until(response),
                };
                let put = self.put_varies(key, &varies, expires, token).await?;
                Ok((put == Put::Stored).then(|| (variant(varies.generation), None)))
            }
        }
    }

    /// Has the record that says what a key varies on kept for as long as a variant that hangs on it. Its
    /// generation stays; and if it is removed meanwhile, or another one has come, so does that.
    async fn prolong(
        &self,
        key: &[u8],
        known: &Varies,
        response: &Stored,
        expires: Duration,
    ) -> Result<(), TierError> {
        let (base, tier) = (EntryId::of(key), self.tier.tier());
        let Some(entry) = tier.get(base).await? else {
            return Ok(());
        };
        let from = entry.head.clone();
        if let Ok(Some(Record::Varies(now))) = decode(entry, key)
            && (now.generation, &now.names) == (known.generation, &known.names)
        {
            let until = varies_until(response);
            let head = encode_varies(key, &Varies { until, ..now }, self.tier.epoch());
            let expires = expires.saturating_add(VARIES_LONGER);
            tier.renew(base, from, head, expires).await?;
        }
        Ok(())
    }

    async fn put_varies(
        &self,
        key: &[u8],
        varies: &Varies,
        expires: Duration,
        token: Option<Token>,
    ) -> Result<Put, TierError> {
        let entry = Entry {
            head: encode_varies(key, varies, self.tier.epoch()),
            body: Content::default(),
        };
        let expires = expires.saturating_add(VARIES_LONGER);
        self.put(EntryId::of(key), entry, expires, token).await
    }

    /// What the key varies on.
    async fn varies(&self, base: EntryId, key: &[u8]) -> Result<Option<Varies>, TierError> {
        let Some(entry) = self.tier.tier().get(base).await? else {
            return Ok(None);
        };
        Ok(match decode(entry, key) {
            Ok(Some(Record::Varies(varies))) => Some(varies),
            _ => None,
        })
    }
}

/// One who does jobs, and the lane that is his at the moment.
struct Worker<'a> {
    lanes: &'a Lanes,
    lane: Option<EntryId>,
    is_told_to_go: bool,
}

impl Worker<'_> {
    fn next(&mut self) -> Option<Job> {
        if let Some(done) = self.lane.take() {
            self.lanes.done(done);
        }
        let next = self.lanes.next();
        self.is_told_to_go = next.is_none();
        let (lane, job) = next?;
        self.lane = Some(lane);
        Some(job)
    }
}

/// Also if a job ends by a panic.
impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if let Some(lane) = self.lane {
            self.lanes.done(lane);
        }
        if !self.is_told_to_go {
            self.lanes.lost_worker();
        }
    }
}

fn varies_until(response: &Stored) -> Time {
    let longer = VARIES_LONGER.as_millis() as u64;
    response.lifetime.usable_until().plus(longer)
}

/// Whether a response names in its own `Vary` all that it counts as varying on.
fn names_all(response: &Stored) -> bool {
    let named = vary::of_response(response.fields(), &[]).names();
    named.contains(response.vary())
}

#[cfg(test)]
mod tests {
    use microcache_policy::vary::VaryNames;
    use microcache_policy::{Fields, Lifetime};
    use tokio::runtime::Handle;
    use tokio::task::yield_now;

    use super::*;
    use crate::memory::Memory;
    use crate::tiers::lanes::AT_ONCE;
    use crate::tiers::scripted::{Did, ScriptedTier};
    use crate::tiers::{Claimed, TierLimits, Tiers};

    const NOW: Time = Time::from_secs(1000);

    fn id(key: &str) -> EntryId {
        EntryId::of(key.as_bytes())
    }

    /// A tier in which these keys hang.
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

    /// A response that is fresh for so many seconds from now on.
    fn variant(vary: VaryNames, selection: &[u8], seconds: u64) -> Hit {
        let mut lifetime = [0; Lifetime::ENCODED_LEN];
        // It came at the beginning of time.
        let fresh_for = NOW.as_millis() + seconds * 1000;
        lifetime[16..24].copy_from_slice(&fresh_for.to_le_bytes());
        Memory::hold(Stored::new(
            200,
            Fields::new(b"Vary: A\r\n"),
            bytes::Bytes::from_static(b"body").into(),
            Lifetime::from_bytes(&lifetime).expect("a lifetime"),
            vary,
            selection,
            NOW,
        ))
    }

    fn store(tiers: &Tiers, key: &str, claimed: Option<Claimed>) {
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
            Did::Put(id("slow")),
            Did::Put(id("quick")),
            Did::Remove(id("other")),
        ];
        for did in expected {
            assert!(tier.begun().contains(&did), "{did:?}");
        }
        assert_eq!(tier.begun().len(), 3, "one after the other");
        tier.let_go_on(id("slow"), 2);
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
            tier.let_go_on(id(key), 1);
            assert!(removal.is_complete().await);
        }
    }

    #[tokio::test]
    async fn a_removal_takes_what_waits_with_it() {
        let tier = ScriptedTier::hanging([id("key")]);
        let tiers = behind(AnyTier::Shared(Arc::new(tier.clone())));
        let claimed = |name, token| {
            Some(Claimed {
                tier: Arc::clone(&tiers.tiers[0]),
                id: id(name),
                token: Some(Token(token)),
            })
        };
        store(&tiers, "key", claimed("key", 1));
        go_on().await;
        store(&tiers, "key", claimed("variant", 7));
        store(&tiers, "key", claimed("key", 2));
        let removals = [tiers.remove(b"key"), tiers.remove(b"key")];
        store(&tiers, "key", claimed("key", 3));
        tier.let_go_on(id("key"), 3);
        for removal in removals {
            assert!(removal.is_complete().await);
        }
        tiers.settle().await;
        let (put, remove) = (Did::Put(id("key")), Did::Remove(id("key")));
        let (released, of_key): (Vec<_>, Vec<_>) = tier
            .begun()
            .into_iter()
            .partition(|did| matches!(did, Did::Release(..)));
        assert_eq!(of_key, [put, remove, put]);
        let variant = Did::Release(id("variant"), Token(7));
        assert!(released.contains(&variant), "nobody waits for it");
        assert!(released.contains(&Did::Release(id("key"), Token(2))));
        assert_eq!(released.len(), 2, "the others were stored with");
        let in_use = &tiers.tiers[0];
        assert_eq!(in_use.queued.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_removal_that_finds_no_room_says_so() {
        let (tiers, tier) = tiers(&["key"]);
        store(&tiers, "key", None);
        go_on().await;
        let waiting: Vec<_> = (0..super::super::REMOVALS_WAITING)
            .map(|_| tiers.remove(b"key"))
            .collect();
        assert!(!tiers.remove(b"other").is_complete().await);
        assert!(!tiers.remove_variant(b"other", &VaryNames::default(), b""));
        assert_eq!(tiers.reports()[0].not_removed, 2);
        tier.let_go_on(id("key"), 2);
        for removal in waiting {
            assert!(removal.is_complete().await);
        }
        assert!(tiers.remove(b"other").is_complete().await);
    }

    #[tokio::test]
    async fn a_large_body_that_lies_there_is_not_sent_again() {
        let tier = ScriptedTier::new(0, 0);
        let tiers = behind(AnyTier::Shared(Arc::new(tier.clone())));
        let large = |byte, status, began| {
            let body = vec![byte; KEPT_FROM as usize];
            let lifetime = response().lifetime;
            let vary = VaryNames::default();
            Memory::hold(Stored::new(
                status,
                Fields::default(),
                bytes::Bytes::from(body).into(),
                lifetime,
                vary,
                b"",
                began,
            ))
        };
        let later = NOW.plus(1);
        let (put, renew) = (Did::Put(id("key")), Did::Renew(id("key")));
        for (response, did) in [
            (large(b'x', 200, NOW), put),
            (large(b'x', 203, later), renew),
            // It began before what lies there: the tier shall decide by its claim alone.
            (large(b'x', 200, NOW), put),
            (large(b'y', 200, later), put),
        ] {
            let claimed = Claimed {
                tier: Arc::clone(&tiers.tiers[0]),
                id: id("key"),
                token: Some(Token(1)),
            };
            tiers.store(b"key", &response, Some(claimed), NOW);
            tiers.settle().await;
            assert_eq!(tier.begun().last(), Some(&did));
            let (entry, _) = tier.record(id("key")).expect("it is there");
            let Ok(Some(Record::Response(kept))) = decode(entry, b"key") else {
                panic!("no response");
            };
            assert_eq!((kept.status, kept.began), (response.status, response.began));
            assert!(kept.body.bytes() == response.body.bytes());
        }
    }

    #[tokio::test]
    async fn a_variant_that_lasts_longer_is_found_for_as_long() {
        let (tiers, tier) = tiers(&[]);
        let vary = || vary::of_response(Fields::new(b"Vary: A\r\n"), &[]).names();
        let base = || {
            let (entry, _) = tier.record(id("key")).expect("it is there");
            match decode(entry, b"key") {
                Ok(Some(Record::Varies(varies))) => varies,
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
        let written = [Did::Put(id("key")), Did::Renew(id("key"))];
        let writes = tier.begun().into_iter();
        let writes = writes.filter(|did| written.contains(did)).count();
        assert_eq!(writes, 2, "not for each of them");
    }
}

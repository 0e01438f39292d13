//! A process of the model: its cache, its tiers, and its tasks.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::mem;
use std::sync::Arc;
use std::task::Poll;

use microcache_policy::{FieldBlock, Fields, Network, Rules};
use microcache_store::{AnyTier, ClaimGuard, EntryId, FetchClaim, Hit, Stored, TierLimits, Tiers};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::spawn;
use tokio::task::JoinHandle;

use super::When;
use super::double::{Double, Kept, Mood};
use super::pages::{Purge, Url};
use crate::cache::entries::{EntryFilter, ListingOrder};
use crate::cache::flight::{Leader, Role, UnsharedFetch};
use crate::cache::testing::{self, view};
use crate::cache::{Cache, ChangeKind, Rule, TierHit, TierScope, TierSearch};
use microcache_store::Clock;

pub(super) struct Process {
    pub(super) cache: Arc<Cache>,
    clock: Clock,
    /// The contents of its tiers, and the tiers themselves.
    disk: Option<Arc<Mutex<Kept>>>,
    pool: Option<Arc<Mutex<Kept>>>,
    doubles: Vec<Arc<Double>>,
    /// Fetches under way, by their numbers.
    pub(super) leading: Vec<(usize, LeadingRequest)>,
    looking: Vec<Looking>,
    /// The purges known to it.
    pub(super) purges: Vec<KnownPurge>,
    /// The rules among them.
    ids: HashSet<u64>,
    /// Steps with the other processes under way.
    stepping: Vec<JoinHandle<()>>,
}

/// A purge known to a process.
pub(super) struct KnownPurge {
    pub(super) purge: Purge,
    /// The moment at which it was received.
    pub(super) at: When,
    /// The number of a rule.
    pub(super) id: Option<u64>,
    /// For a rule, the task that journals it.
    written: Option<JoinHandle<bool>>,
    /// The process that knew it has ended, and the next one need not know it.
    pub(super) is_forgotten: bool,
}

/// A request.
pub(super) struct LeadingRequest {
    /// The moment at which it came.
    pub(super) at: When,
    fetch: Fetching,
    claimed: Option<ClaimGuard>,
}

enum Fetching {
    Coalesced(Leader),
    Unshared(UnsharedFetch),
}

/// The result of a tier lookup: a response, or perhaps a claim.
type Lifted = Result<Box<TierHit>, Option<ClaimGuard>>;

/// A tier lookup, and the step in which its request came.
type Looking = (Url, usize, JoinHandle<(LeadingRequest, Lifted)>);

/// A completed tier lookup.
pub(super) struct Look {
    pub(super) url: Url,
    pub(super) request: LeadingRequest,
    pub(super) found: Lifted,
}

impl LeadingRequest {
    pub(super) fn unshared(unshared: UnsharedFetch, at: When) -> Self {
        let fetch = Fetching::Unshared(unshared);
        Self {
            at,
            fetch,
            claimed: None,
        }
    }

    pub(super) fn with(self, claimed: Option<ClaimGuard>) -> Self {
        Self { claimed, ..self }
    }
}

impl KnownPurge {
    pub(super) fn is_rule(&self) -> bool {
        matches!(self.purge, Purge::Rule(..))
    }

    /// Ends the process's knowledge: the next one has to know the rules that are certainly
    /// journaled, but not keys that were not removed from all of these tiers.
    async fn outlive(&mut self, tiers: &[Arc<Double>]) {
        let outlives = match (&self.purge, self.written.take()) {
            (Purge::Key(url), _) => {
                let id = EntryId::of(&url.key());
                tiers.iter().all(|tier| tier.has_removed(id, self.at.step))
            }
            (Purge::Rule(..), Some(written)) if written.is_finished() => {
                written.await.expect("it does not panic")
            }
            (Purge::Rule(..), Some(written)) => {
                written.abort();
                false
            }
            // Journaled by an earlier process.
            (Purge::Rule(..), None) => true,
        };
        self.is_forgotten |= !outlives;
    }
}

impl Process {
    /// A process with an empty memory, possibly a disk, and possibly a shared pool.
    pub(super) fn new(has_disk: bool, pool: Option<Arc<Mutex<Kept>>>, clock: Clock) -> Self {
        let disk = has_disk.then(Arc::<Mutex<Kept>>::default);
        let (cache, doubles) = start(disk.as_ref(), pool.as_ref(), clock);
        Self {
            cache,
            clock,
            disk,
            pool,
            doubles,
            leading: Vec::new(),
            looking: Vec::new(),
            purges: Vec::new(),
            ids: HashSet::new(),
            stepping: Vec::new(),
        }
    }

    /// Restarts the process with its tiers. The new one knows the journaled rules, but not the
    /// purged keys that were removed.
    pub(super) async fn restart(&mut self, pool: Mood) {
        self.doubles.iter().for_each(|tier| tier.cut_off());
        for step in self.stepping.drain(..) {
            step.abort();
        }
        self.leading.clear();
        for (_, _, look) in self.looking.drain(..) {
            look.abort();
        }
        for known in &mut self.purges {
            known.outlive(&self.doubles).await;
        }
        (self.cache, self.doubles) = start(self.disk.as_ref(), self.pool.as_ref(), self.clock);
        if self.pool.is_some() {
            self.doubles.iter().last().expect("the pool").set_mood(pool);
        }
        let loaded = self.cache.load_rules().await;
        assert!(!loaded.expect("the journal is there").is_damaged);
    }

    /// The pool as it sees it.
    pub(super) fn pool(&self) -> &Double {
        self.doubles.last().expect("it has a pool")
    }

    pub(super) fn note_step(&self, step: usize) {
        for kept in self.disk.iter().chain(&self.pool) {
            kept.lock().step = step;
        }
    }

    pub(super) fn set_moods(&self, mut mood: impl FnMut() -> Mood) {
        self.doubles.iter().for_each(|tier| tier.set_mood(mood()));
    }

    /// Returns true while a tier never responds.
    pub(super) fn hangs(&self) -> bool {
        self.doubles.iter().any(|tier| tier.hangs())
    }

    /// Leads the fetch of a url, unless one is under way.
    pub(super) fn enter(&self, url: Url, at: When) -> Option<LeadingRequest> {
        match self
            .cache
            .enter(&url.key(), b"", Some(Network::from_bits(1)))
        {
            Role::Lead(leader) => Some(LeadingRequest {
                at,
                fetch: Fetching::Coalesced(leader),
                claimed: None,
            }),
            Role::Join(_) => None,
            Role::Full => panic!("no bound is near"),
        }
    }

    /// The steps in which coalesced fetches of a url were requested.
    pub(super) fn under_way(&self, url: Url) -> Vec<usize> {
        let leading = self
            .leading
            .iter()
            .filter_map(|(_, request)| match &request.fetch {
                Fetching::Coalesced(leader) => {
                    (**leader.key() == *url.key()).then_some(request.at.step)
                }
                Fetching::Unshared(_) => None,
            });
        let looking = self.looking.iter().filter(|(of, ..)| *of == url);
        leading
            .chain(looking.map(|(_, entered, _)| *entered))
            .collect()
    }

    pub(super) async fn search_tiers(
        &mut self,
        url: Url,
        request: LeadingRequest,
        scope: TierScope,
    ) {
        let (cache, entered) = (Arc::clone(&self.cache), request.at.step);
        let look = begun(async move {
            let Fetching::Coalesced(leader) = &request.fetch else {
                panic!("who is alone does not look")
            };
            let rules = Rules::default();
            let view = view(&rules);
            let looked = cache.search_tiers(leader, &view, scope);
            let found = match looked.await {
                TierSearch::Found(found) => Ok(found),
                TierSearch::Missing(FetchClaim::Granted(claimed)) => Err(Some(claimed)),
                TierSearch::Missing(FetchClaim::NotNeeded | FetchClaim::HeldElsewhere(_)) => {
                    Err(None)
                }
            };
            (request, found)
        });
        self.looking.push((url, entered, look.await));
    }

    pub(super) fn looks(&self) -> bool {
        !self.looking.is_empty()
    }

    /// The completed tier lookups.
    pub(super) async fn ended_looks(&mut self) -> Vec<Look> {
        let mut ended = Vec::new();
        for (url, entered, look) in mem::take(&mut self.looking) {
            if look.is_finished() {
                let (request, found) = look.await.expect("it does not panic");
                ended.push(Look {
                    url,
                    request,
                    found,
                });
            } else {
                self.looking.push((url, entered, look));
            }
        }
        ended
    }

    pub(super) fn promote(&self, request: &LeadingRequest, hit: &Hit) {
        if let Fetching::Coalesced(leader) = &request.fetch {
            self.cache.promote(leader, hit, &view(&Rules::default()));
        }
    }

    pub(super) fn commit(&self, request: LeadingRequest, stored: Stored) {
        let leader = match request.fetch {
            Fetching::Coalesced(leader) => Some(leader),
            Fetching::Unshared(unshared) => unshared.lead(),
        };
        if let Some(leader) = leader {
            let (rules, kind) = (Rules::default(), ChangeKind::Stored);
            self.cache
                .commit(&leader, stored, &view(&rules), request.claimed, kind);
        }
    }

    /// Purges, and returns the rule that others will learn of. With `waits` it waits until a key
    /// has left the tiers.
    pub(super) async fn purge(&mut self, purge: &Purge, waits: bool, at: When) -> Option<Rule> {
        let cache = Arc::clone(&self.cache);
        match purge {
            Purge::Key(url) if waits => {
                let keys = [url.key()];
                begun(async move { cache.invalidate(keys).await }).await;
                self.note(purge.clone(), at, None, None);
                None
            }
            Purge::Key(url) => {
                cache.purge_key(&url.key());
                self.note(purge.clone(), at, None, None);
                None
            }
            Purge::Rule(scope, strength) => {
                let rule = cache.issue(scope.clone(), *strength);
                let decided = rule.clone();
                let written = begun(async move { cache.publish(&[rule]).await.is_ok() });
                let written = written.await;
                self.note(purge.clone(), at, Some(decided.id), Some(written));
                self.ids.insert(decided.id);
                Some(decided)
            }
        }
    }

    /// Exchanges rules with the other processes, as far as the pool responds.
    pub(super) async fn step_in(&mut self) {
        let cache = Arc::clone(&self.cache);
        let step = begun(async move { cache.step_in().await }).await;
        self.stepping.retain(|step| !step.is_finished());
        self.stepping.push(step);
    }

    /// Records which purges of other processes are in effect here by now.
    pub(super) fn learn(&mut self, others: &[(Rule, Purge)], at: When) {
        let rules = self.cache.newest_rules(usize::MAX);
        for (rule, purge) in others {
            let counts = rules.iter().any(|known| known.id == rule.id);
            if counts && self.ids.insert(rule.id) {
                self.note(purge.clone(), at, Some(rule.id), None);
            }
        }
    }

    /// Returns true if it knew of a rule before that step.
    pub(super) fn knew(&self, id: Option<u64>, step: usize) -> bool {
        let is_it = |known: &KnownPurge| known.id == id && known.at.step < step;
        id.is_some() && self.purges.iter().any(is_it)
    }

    fn note(&mut self, purge: Purge, at: When, id: Option<u64>, written: Option<JoinHandle<bool>>) {
        self.purges.push(KnownPurge {
            purge,
            at,
            id,
            written,
            is_forgotten: false,
        });
    }

    pub(super) fn in_memory(&self, url: Url) -> Option<Hit> {
        self.cache
            .response(&url.key(), &view(&Rules::default()), self.cache.clock.now())
    }

    pub(super) fn try_promote(&self, url: Url) -> Option<Hit> {
        let rules = Rules::default();
        let found = self.cache.try_promote(&url.key(), &view(&rules), |_| true);
        found.map(|(hit, _)| hit)
    }

    /// The field lines of all listed entries.
    pub(super) async fn listed(&self) -> Vec<FieldBlock> {
        let filter = EntryFilter::default();
        let memory = self
            .cache
            .entries(&filter, ListingOrder::Key, None, 1_000)
            .await;
        let mut entries = memory.entries;
        if !self.hangs()
            && let Ok(page) = self.cache.entries_on_disk(&filter, None, 1_000).await
        {
            entries.extend(page.entries);
        }
        entries.into_iter().map(|entry| entry.fields).collect()
    }
}

/// A process's cache, and its tiers.
fn start(
    disk: Option<&Arc<Mutex<Kept>>>,
    pool: Option<&Arc<Mutex<Kept>>>,
    clock: Clock,
) -> (Arc<Cache>, Vec<Arc<Double>>) {
    let [disk, pool] = [disk, pool].map(|kept| kept.cloned().map(Double::new));
    let doubles: Vec<_> = disk.iter().chain(&pool).cloned().collect();
    let disk = disk.into_iter().map(|double| AnyTier::Local(double));
    let tiers = disk.chain(pool.into_iter().map(|double| AnyTier::Shared(double)));
    let background = Handle::current();
    let tiers = Tiers::new(tiers.collect(), TierLimits::default(), &background);
    (Arc::new(testing::cache(tiers, clock)), doubles)
}

/// Polls some work once, and continues it in the background.
async fn begun<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let mut work = Box::pin(work);
    let first = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
    spawn(async move {
        match first {
            Poll::Ready(done) => done,
            Poll::Pending => work.await,
        }
    })
}

/// The number of the fetch that brought these fields.
pub(super) fn number_in(fields: Fields<'_>) -> usize {
    let number = fields.get("x-number").expect("every page has one");
    let text = std::str::from_utf8(number).expect("it is text");
    text.parse().expect("it is a number")
}

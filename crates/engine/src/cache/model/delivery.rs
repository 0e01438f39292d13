//! A model of rule delivery between processes, checked against one property: an entry whose purge
//! was reported as delivered to all is never served again by a process that can read the log,
//! whichever records of whichever copies are lost, and even if it reaches only one copy.
//!
//! While only one copy is lost at a time, and every process reads on in the other, no unpurged
//! entry is lost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use microcache_store::{FetchClaim, LOG_COPIES};
use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::advance;

use super::double::{Kept, Line, Mood};
use super::pages::{Chance, Page, Purge, Url};
use super::process::{LeadingRequest, Look, Process, number_in};
use super::{STEPS, When, number_from};
use crate::cache::fleet_state::MAX_QUEUED;
use crate::cache::{NotWritten, Scope, Strength, TierScope};
use microcache_store::Clock;

const PROCESSES: usize = 3;
/// The interval at which a process reads the log, slightly longer than the real one.
const LOOK: Duration = Duration::from_millis(300);
/// Reads of the log that resolve every gap.
const LOOKS: usize = 4;

struct Fetch {
    page: Page,
    began: usize,
}

struct Purged {
    purge: Purge,
    decided: usize,
    /// The process that issued it, while it lives.
    by: Option<usize>,
    /// The step since which it is reported as delivered to all.
    delivered: Option<usize>,
}

struct Fleet {
    clock: Clock,
    chance: Chance,
    step: usize,
    fetches: Vec<Fetch>,
    purges: Vec<Purged>,
    processes: Vec<Process>,
    /// Per process, the step up to which it has to know delivered rules.
    informed: [usize; PROCESSES],
    pool: Arc<Mutex<Kept>>,
    /// The step in which a record was last lost that its writer may have seen stored: the writer
    /// does not send it again.
    unnoticed: usize,
}

impl Fleet {
    fn new(seed: u64, has_disk: bool) -> Self {
        let (clock, pool) = (Clock::start(), Arc::<Mutex<Kept>>::default());
        let process = |_| Process::new(has_disk, Some(Arc::clone(&pool)), clock);
        Self {
            clock,
            chance: Chance::new(seed),
            step: 0,
            fetches: Vec::new(),
            purges: Vec::new(),
            processes: (0..PROCESSES).map(process).collect(),
            informed: [0; PROCESSES],
            pool,
            unnoticed: 0,
        }
    }

    /// Takes a step in which anything may happen to the log.
    async fn take_a_step(&mut self) {
        self.step += 1;
        let at = self.chance.below(PROCESSES);
        match self.chance.below(24) {
            0..9 => self.ask(at).await,
            9..14 => self.purge(at).await,
            14 => self.step_in(at).await,
            15 => self.lose_any(),
            16 => self.restart(at).await,
            17..20 => {
                let (copy, line) = (self.chance.below(LOG_COPIES), Line::any(&mut self.chance));
                self.processes[at].pool().set_line(copy, line);
            }
            20 => self.lose_a_server(),
            21 => advance(LOOK).await,
            _ => self.inform(at).await,
        }
    }

    /// Takes a step in which only one copy at a time is lost or unreachable, and every process
    /// reads the other one before the next loss.
    async fn take_a_gentle_step(&mut self) {
        self.step += 1;
        let at = self.chance.below(PROCESSES);
        match self.chance.below(16) {
            0..9 => self.ask(at).await,
            9..12 => {
                self.purge(at).await;
                // Fetches by a process that does not know it yet are repeated.
                self.inform_all().await;
            }
            12 => {
                self.inform_all().await;
                let (copy, line) = (self.chance.below(LOG_COPIES), Line::any(&mut self.chance));
                for process in &self.processes {
                    process.pool().set_line(1 - copy, Line::Works);
                }
                self.inform_all().await;
                self.pool.lock().forget_log(copy, self.chance.below(3));
                for process in &self.processes {
                    process.pool().set_line(copy, line);
                }
            }
            _ => self.inform(at).await,
        }
        self.check_missing(at).await;
    }

    /// Loses a part of a copy, or all of it.
    fn lose_any(&mut self) {
        let copy = self.chance.below(LOG_COPIES);
        if self.chance.below(2) == 0 {
            self.unnoticed = self.step;
            return self.pool.lock().lose_newest(copy);
        }
        self.pool.lock().forget_log(copy, self.chance.below(4));
    }

    /// Makes a copy unreachable, or reachable again and possibly emptied.
    fn lose_a_server(&mut self) {
        let (copy, line) = (self.chance.below(LOG_COPIES), Line::any(&mut self.chance));
        for process in &self.processes {
            process.pool().set_line(copy, line);
        }
        if self.chance.below(2) == 0 {
            self.pool.lock().forget_log(copy, 0);
        }
    }

    /// Restarts a process: it knows every rule delivered before, or serves nothing from tiers.
    async fn restart(&mut self, at: usize) {
        self.processes[at].restart(Mood::Works).await;
        self.informed[at] = self.step;
        for purged in &mut self.purges {
            purged.by = purged.by.filter(|by| *by != at);
        }
    }

    fn now(&self) -> When {
        When {
            step: self.step,
            time: self.clock.now(),
        }
    }

    /// Serves a request from memory, the pool, or the origin.
    async fn ask(&mut self, at: usize) {
        let url = Url::any(&mut self.chance);
        self.ask_for(at, url).await;
    }

    async fn ask_for(&mut self, at: usize, url: Url) {
        if let Some(hit) = self.processes[at].in_memory(url) {
            return self.check(at, number_in(hit.fields()));
        }
        let now = self.now();
        let request = self.processes[at].enter(url, now);
        let request = request.expect("no other request of the process is under way");
        let mut look = self.look(at, url, request, TierScope::Everywhere).await;
        // As in the engine: a shared tier may have a newer one from another process.
        if matches!(&look.found, Ok(found) if found.is_purged && !found.is_shared()) {
            look = self
                .look(at, url, look.request, TierScope::InSharedTiers)
                .await;
        }
        let (request, found) = (look.request, look.found);
        match found {
            Ok(found) if !found.is_purged => {
                let number = number_in(found.stored().fields());
                self.processes[at].promote(&request, &found.into_hit());
                self.check(at, number);
            }
            Ok(found) => {
                let claimed = match self.processes[at].cache.claim_renewal(&found).await {
                    FetchClaim::Granted(claimed) => Some(claimed),
                    FetchClaim::NotNeeded | FetchClaim::HeldElsewhere(_) => None,
                };
                self.fetch(at, url, request.with(claimed)).await;
            }
            Err(claimed) => self.fetch(at, url, request.with(claimed)).await,
        }
        advance(Duration::from_millis(1)).await;
    }

    async fn look(
        &mut self,
        at: usize,
        url: Url,
        request: LeadingRequest,
        scope: TierScope,
    ) -> Look {
        let process = &mut self.processes[at];
        process.search_tiers(url, request, scope).await;
        loop {
            yield_now().await;
            if let Some(look) = process.ended_looks().await.pop() {
                return look;
            }
        }
    }

    async fn fetch(&mut self, at: usize, url: Url, request: LeadingRequest) {
        let page = Page::any(&mut self.chance, url);
        let began = self.step;
        self.fetches.push(Fetch { page, began });
        let stored = page.stored(self.fetches.len() - 1, self.clock.now());
        let process = &self.processes[at];
        process.commit(request, stored);
        process.cache.settle().await;
    }

    async fn purge(&mut self, at: usize) {
        let purge = Purge::any(&mut self.chance);
        let Purge::Rule(scope, _) = purge.clone() else {
            return;
        };
        let cache = &self.processes[at].cache;
        let purged = cache.purge([(scope.clone(), Strength::Hard)]).await;
        self.purges.push(Purged {
            purge: Purge::Rule(scope, Strength::Hard),
            decided: self.step,
            by: Some(at),
            delivered: purged.written.is_ok().then_some(self.step),
        });
        advance(Duration::from_millis(1)).await;
    }

    async fn step_in(&mut self, at: usize) {
        self.processes[at].cache.step_in().await;
    }

    /// Notes that a process may have delivered all its rules by now. A rule that was not reported
    /// as delivered when it was issued, and was delivered bit by bit, may have been lost in the
    /// first copy.
    fn note_delivered(&mut self, at: usize) {
        let fleet = self.processes[at].cache.fleet().expect("it shares");
        if fleet.queued == 0 {
            let unnoticed = self.unnoticed;
            let is_there = |one: &&mut Purged| one.by == Some(at) && one.decided > unnoticed;
            let own = self.purges.iter_mut().filter(is_there);
            for purged in own {
                purged.delivered.get_or_insert(self.step);
            }
        }
    }

    /// Advances a process by a second. If it reaches a copy of the log, it then knows every rule
    /// delivered before.
    async fn inform(&mut self, at: usize) {
        for _ in 0..LOOKS {
            self.step_in(at).await;
            advance(LOOK).await;
        }
        let pool = self.processes[at].pool();
        let works = |copy| pool.line(copy) == Line::Works;
        let (any, all) = ((0..LOG_COPIES).any(works), (0..LOG_COPIES).all(works));
        if any {
            self.informed[at] = self.step;
        }
        if all {
            self.note_delivered(at);
        }
    }

    async fn inform_all(&mut self) {
        for at in 0..PROCESSES {
            self.inform(at).await;
        }
    }

    /// Checks whether a process may serve the response of this fetch.
    fn check(&self, at: usize, number: usize) {
        let fetch = &self.fetches[number];
        let must_know = |purged: &&Purged| {
            let was_delivered = purged
                .delivered
                .is_some_and(|delivered| delivered <= self.informed[at]);
            was_delivered || purged.by == Some(at)
        };
        let mut known = self.purges.iter().filter(must_know);
        let purged = known.find(|one| fetch.began < one.decided && one.purge.names(fetch.page));
        assert!(
            purged.is_none(),
            "step {}: process {at} answers with fetch {number} of step {} after {:?} of step {:?}",
            self.step,
            fetch.began,
            purged.map(|one| &one.purge),
            purged.map(|one| one.decided),
        );
    }

    /// The last response fetched of a url is in memory or a tier, unless it was purged.
    async fn check_missing(&mut self, at: usize) {
        let url = Url::any(&mut self.chance);
        let mut fetches = self.fetches.iter().enumerate();
        let Some((number, fetch)) = fetches.rfind(|(_, it)| it.page.url == url) else {
            return;
        };
        let mut later = self.purges.iter().filter(|one| one.decided >= fetch.began);
        if later.any(|one| one.purge.names(fetch.page)) {
            return;
        }
        let before = self.fetches.len();
        self.ask_for(at, url).await;
        assert_eq!(
            self.fetches.len(),
            before,
            "step {}: process {at} has lost fetch {number} of {url:?}, which nobody purged",
            self.step
        );
    }
}

async fn begun(seed: u64, has_disk: bool) -> Fleet {
    let fleet = Fleet::new(seed, has_disk);
    for process in &fleet.processes {
        let loaded = process.cache.load_rules().await;
        loaded.expect("a journal, if there is a disk");
    }
    fleet
}

async fn run(runs: u64, is_gentle: bool) {
    let first = number_from("CACHE_MODEL_SEED", 1);
    for seed in first..first + number_from("CACHE_MODEL_RUNS", runs) {
        println!("CACHE_MODEL_SEED={seed}");
        let has_disk = seed.is_multiple_of(2);
        let mut fleet = begun(seed, has_disk).await;
        for _ in 0..STEPS {
            if is_gentle {
                fleet.take_a_gentle_step().await;
            } else {
                fleet.take_a_step().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_purge_reported_to_all_processes_survives_any_loss_of_the_log() {
    run(300, false).await;
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_one_copy_of_the_log_purges_nothing() {
    run(150, true).await;
}

/// A fleet whose second process has fetched a page, and which knows all purges.
async fn with_a_page() -> (Fleet, Url) {
    let mut fleet = begun(1, false).await;
    let url = Url::any(&mut fleet.chance);
    fleet.ask_for(1, url).await;
    fleet.inform_all().await;
    (fleet, url)
}

#[tokio::test(start_paused = true)]
async fn a_purge_known_to_one_copy_only_is_published_again_after_its_loss() {
    let (mut fleet, url) = with_a_page().await;
    let everything = [(Scope::Everything, Strength::Hard)];
    fleet.processes[0].pool().set_line(1, Line::Down);
    let purged = fleet.processes[0].cache.purge(everything).await;
    assert!(matches!(purged.written, Err(NotWritten::HalfDelivered(_))));
    fleet.pool.lock().forget_log(0, 0);
    fleet.inform(1).await;
    fleet.inform(0).await;
    fleet.processes[0].pool().set_line(1, Line::Works);
    fleet.inform(0).await;
    let report = fleet.processes[0].cache.fleet().expect("it shares");
    assert_eq!((report.queued, report.trouble), (0, None));
    // Before the other process has read it there.
    fleet.pool.lock().forget_log(1, 0);
    fleet.inform(1).await;
    assert!(fleet.processes[1].in_memory(url).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_overflow_of_pending_purges_is_a_gap_in_that_copy_only() {
    let (mut fleet, url) = with_a_page().await;
    fleet.processes[0].pool().set_line(1, Line::Down);
    for _ in 0..=MAX_QUEUED {
        let other = Scope::Tag(Bytes::from_static(b"other"));
        let purged = fleet.processes[0].cache.purge([(other, Strength::Hard)]);
        assert!(purged.await.written.is_err());
    }
    fleet.processes[0].pool().set_line(1, Line::Works);
    fleet.inform_all().await;
    assert!(fleet.processes[1].in_memory(url).is_some());
    // This copy does not have the undelivered purges: a process that has read no other cannot use
    // the tier.
    let report = fleet.processes[0].cache.fleet().expect("it shares");
    assert_eq!(report.queued, 0);
    fleet.pool.lock().forget_log(0, 0);
    fleet.restart(2).await;
    let fetches = fleet.fetches.len();
    fleet.ask_for(2, url).await;
    assert_eq!(fleet.fetches.len(), fetches + 1);
}

//! The cache against a model: fetches begin and end, purges of all kinds come in between, tiers are
//! late or fail, processes restart, and after each step the cache's responses are compared with
//! those that the model requires and forbids.
//!
//! `CACHE_MODEL_SEED` and `CACHE_MODEL_RUNS` choose other sequences and longer runs.

mod delivery;
mod double;
mod pages;
mod process;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use microcache_policy::Time;
use microcache_store::{LOG_COPIES, Stored};
use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::advance;

use super::{Rule, TierScope};
use double::{Kept, Mood};
use microcache_store::Clock;
use pages::{Chance, Page, Purge, Url};
use process::{LeadingRequest, Process, number_in};

const STEPS: usize = 200;
/// Pauses long enough for hard rules, and for soft rules, to be dropped.
const AGES: [Duration; 2] = [Duration::from_secs(700), Duration::from_hours(25)];
/// The freshness of stored responses in milliseconds.
const FRESH: u64 = 100_000_000;

/// A fetch, as the model knows it.
struct Fetch {
    page: Page,
    /// The moments at which the request came and at which the origin was asked.
    request: When,
    began: When,
    /// The step and process in which it was committed.
    committed: Option<usize>,
    process: usize,
    /// It was still under way when a newer rule may have been dropped: then it need not be stored.
    is_too_old: bool,
}

/// A step, and its time.
#[derive(Clone, Copy, Debug)]
struct When {
    step: usize,
    time: Time,
}

/// An entry in a tier.
#[derive(Clone, Copy, Debug)]
struct Behind {
    local: bool,
    shared: bool,
    /// It never fails.
    is_reliable: bool,
}

/// All processes and their histories.
struct World {
    behind: Behind,
    clock: Clock,
    chance: Chance,
    step: usize,
    fetches: Vec<Fetch>,
    processes: Vec<Process>,
    /// All rules, which every process learns of eventually.
    rules: Vec<(Rule, Purge)>,
    pool: Option<Arc<Mutex<Kept>>>,
}

impl World {
    fn new(seed: u64, behind: Behind) -> Self {
        let clock = Clock::start();
        let pool = behind.shared.then(Arc::<Mutex<Kept>>::default);
        let count = if behind.shared { 2 } else { 1 };
        let processes: Vec<_> = (0..count)
            .map(|_| Process::new(behind.local, pool.clone(), clock))
            .collect();
        Self {
            behind,
            clock,
            chance: Chance::new(seed),
            step: 0,
            fetches: Vec::new(),
            processes,
            rules: Vec::new(),
            pool,
        }
    }

    fn now(&self) -> When {
        let time = self.clock.now();
        When {
            step: self.step,
            time,
        }
    }

    async fn take_a_step(&mut self) {
        self.step += 1;
        let at = self.chance.below(self.processes.len());
        self.processes[at].note_step(self.step);
        match self.chance.below(40) {
            0..14 => self.begin(at).await,
            14..20 => self.end_looks(at).await,
            20..28 => self.commit(at),
            28..32 => self.purge(at).await,
            32 => self.step_in(at).await,
            33 => self.sweep(at).await,
            34 => advance(Duration::from_millis(1)).await,
            35 => self.grow_old().await,
            36 | 37 => self.change_moods(at),
            38 => self.try_promote(at).await,
            _ if self.chance.below(4) == 0 => self.restart(at).await,
            _ if self.chance.below(8) == 0 => self.forget_log(),
            _ => self.list(at).await,
        }
        for _ in 0..self.chance.below(12) {
            yield_now().await;
        }
    }

    /// Begins a fetch, coalesced or direct, with a tier lookup or without.
    async fn begin(&mut self, at: usize) {
        let url = Url::any(&mut self.chance);
        let (alone, looks) = (self.chance.below(5) == 0, self.chance.below(3) > 0);
        let now = self.now();
        let process = &mut self.processes[at];
        if alone {
            let unshared = process.cache.begin_unshared(&url.key());
            return self.ask(at, url, LeadingRequest::unshared(unshared, now));
        }
        let Some(request) = process.enter(url, now) else {
            // Then a fetch is under way that began after every purge of the url.
            let is_right = process.under_way(url).iter().any(|request| {
                let mut since = process
                    .purges
                    .iter()
                    .filter(|known| known.at.step > *request);
                !since.any(|known| known.purge.names_url(url))
            });
            assert!(
                is_right,
                "step {}: joins one from before a purge",
                self.step
            );
            return;
        };
        if looks && self.behind.is_any() {
            process
                .search_tiers(url, request, TierScope::Everywhere)
                .await;
        } else {
            self.ask(at, url, request);
        }
    }

    /// Sends the request to the origin.
    fn ask(&mut self, at: usize, url: Url, request: LeadingRequest) {
        let page = Page::any(&mut self.chance, url);
        self.fetches.push(Fetch {
            page,
            request: request.at,
            began: self.now(),
            committed: None,
            process: at,
            is_too_old: false,
        });
        let number = self.fetches.len() - 1;
        self.processes[at].leading.push((number, request));
    }

    /// Ends the tier lookups: each response found answers its request and is promoted.
    async fn end_looks(&mut self, at: usize) {
        for look in self.processes[at].ended_looks().await {
            match look.found {
                Ok(found) => {
                    if !found.is_purged {
                        // What another process purged was received after the request, if in the same step.
                        let before = look.request.at.step - 1;
                        self.check_answer(at, look.url, found.stored(), before);
                        self.processes[at].promote(&look.request, &found.into_hit());
                    }
                }
                Err(claimed) => self.ask(at, look.url, look.request.with(claimed)),
            }
        }
    }

    fn commit(&mut self, at: usize) {
        let process = &mut self.processes[at];
        if process.leading.is_empty() {
            return;
        }
        let which = self.chance.below(process.leading.len());
        let (number, request) = process.leading.swap_remove(which);
        let fetch = &mut self.fetches[number];
        fetch.committed = Some(self.step);
        process.commit(request, fetch.page.stored(number, fetch.began.time));
    }

    async fn purge(&mut self, at: usize) {
        let purge = Purge::any(&mut self.chance);
        let waits = self.chance.below(2) == 0;
        let now = self.now();
        let rule = self.processes[at].purge(&purge, waits, now).await;
        self.rules.extend(rule.map(|rule| (rule, purge)));
    }

    async fn step_in(&mut self, at: usize) {
        self.processes[at].step_in().await;
    }

    /// Loses one copy of the purge log, or the older part of it.
    fn forget_log(&mut self) {
        if let Some(pool) = &self.pool {
            let copy = self.chance.below(LOG_COPIES);
            pool.lock().forget_log(copy, self.chance.below(4));
        }
    }

    async fn sweep(&mut self, at: usize) {
        if !self.processes[at].hangs() {
            self.processes[at].cache.sweep().await;
        }
    }

    /// Advances time so far that rules may be dropped. No tier hangs for so long.
    async fn grow_old(&mut self) {
        for at in 0..self.processes.len() {
            self.processes[at].set_moods(|| Mood::Works);
            self.processes[at].cache.settle().await;
            while self.processes[at].looks() {
                yield_now().await;
                self.end_looks(at).await;
            }
        }
        let age = AGES[usize::from(self.chance.below(4) == 0)];
        advance(age).await;
        for process in &self.processes {
            if self.chance.below(2) == 0 {
                process.cache.sweep().await;
            }
            let newest = process.purges.iter().filter(|known| known.is_rule());
            let newest = newest.map(|known| known.at.step).max().unwrap_or(0);
            for (number, _) in &process.leading {
                let fetch = &mut self.fetches[*number];
                fetch.is_too_old |= fetch.request.step < newest;
            }
        }
    }

    fn change_moods(&mut self, at: usize) {
        if !self.behind.is_reliable {
            self.processes[at].set_moods(|| Mood::any(&mut self.chance));
        }
    }

    /// Serves a response that the nearest tier has without waiting.
    async fn try_promote(&mut self, at: usize) {
        let url = Url::any(&mut self.chance);
        let process = &self.processes[at];
        if self.behind.is_reliable {
            process.cache.settle().await;
        }
        let found = process.try_promote(url);
        if let Some(hit) = &found {
            self.check_answer(at, url, hit, self.step);
        } else if self.behind.is_reliable && self.behind.local {
            self.check_missing(at, url);
        }
    }

    /// Checks that no listed entry has been purged.
    async fn list(&mut self, at: usize) {
        for fields in self.processes[at].listed().await {
            let number = number_in(fields.fields());
            let page = self.fetches[number].page;
            let purge = self.named(at, number, self.step, |purge| !purge.is_soft());
            assert!(purge.is_none(), "step {}: {page:?} {purge:?}", self.step);
        }
    }

    /// Restarts a process with the entries in its tiers.
    async fn restart(&mut self, at: usize) {
        if self.behind.is_any() {
            if self.behind.is_reliable {
                self.processes[at].cache.settle().await;
            }
            let pool = if self.chance.below(3) == 0 {
                Mood::Fails
            } else {
                Mood::Works
            };
            self.processes[at].restart(pool).await;
        }
    }

    /// Applies the purges that a process has received from the others.
    fn learn(&mut self) {
        let now = self.now();
        for process in &mut self.processes {
            process.learn(&self.rules, now);
        }
    }

    /// Compares each process's memory with the history, for every url.
    fn check(&self) {
        for (at, process) in self.processes.iter().enumerate() {
            for url in Url::all() {
                match process.in_memory(url) {
                    Some(hit) => self.check_answer(at, url, &hit, self.step),
                    None if self.behind.is_any() => {}
                    None => self.check_missing(at, url),
                }
            }
        }
    }

    /// Checks that a response may answer a request that came in that step.
    fn check_answer(&self, at: usize, url: Url, answer: &Stored, request: usize) {
        let (number, step) = (number_in(answer.fields()), self.step);
        let fetch = &self.fetches[number];
        assert_eq!(fetch.page.url, url, "step {step}: of another url");
        assert!(
            fetch.committed.is_some(),
            "step {step}: nobody has stored fetch {number}"
        );
        let hard = self.named(at, number, request, |purge| !purge.is_soft());
        assert!(
            hard.is_none(),
            "step {step}: process {at} has fetch {number} again after {hard:?}"
        );
        let is_stale = answer.lifetime().ttl(self.clock.now()) <= 0;
        let soft = self.named(at, number, request, Purge::is_soft);
        assert!(
            soft.is_none() || is_stale,
            "step {step}: process {at} has fetch {number} fresh after {soft:?}"
        );
    }

    /// The last committed response is only missing if a purge has covered it or it is too old. In a
    /// tier, a purge also covers a fetch that began in the same moment.
    fn check_missing(&self, at: usize, url: Url) {
        let of_url = |fetch: &&Fetch| fetch.page.url == url && fetch.process == at;
        let committed = self.fetches.iter().filter(of_url);
        let Some(last) = committed.max_by_key(|fetch| fetch.committed) else {
            return;
        };
        let is_named = self.processes[at].purges.iter().any(|known| {
            let is_older = if self.behind.is_any() {
                known.at.time >= last.request.time
            } else {
                known.at.step > last.request.step
            };
            is_older && known.purge.names(last.page)
        });
        let is_old = last.is_too_old || self.clock.now().since(last.began.time) >= FRESH;
        assert!(
            last.committed.is_none() || is_named || is_old,
            "step {}: what nobody purged is gone: {url:?}",
            self.step
        );
    }

    /// A purge that covers a fetch's response, issued after the fetch began and before the request
    /// came.
    fn named(
        &self,
        at: usize,
        number: usize,
        request: usize,
        counts: impl Fn(&Purge) -> bool,
    ) -> Option<&Purge> {
        let fetch = &self.fetches[number];
        let purges = self.processes[at].purges.iter();
        let known = purges.filter(|known| !known.is_forgotten);
        let mut between =
            known.filter(|known| fetch.began.step < known.at.step && known.at.step <= request);
        // The fetching process may have known the purge for longer.
        let fetcher = &self.processes[fetch.process];
        let named = between.find(|known| {
            let is_newer = fetcher.knew(known.id, fetch.began.step);
            !is_newer && known.purge.names(fetch.page) && counts(&known.purge)
        });
        named.map(|known| &known.purge)
    }
}

impl Behind {
    const fn is_any(self) -> bool {
        self.local || self.shared
    }
}

fn number_from(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Runs many worlds in turn.
async fn run(runs: u64, local: bool, shared: bool, is_reliable: bool) {
    let behind = Behind {
        local,
        shared,
        is_reliable,
    };
    let first = number_from("CACHE_MODEL_SEED", 1);
    for seed in first..first + number_from("CACHE_MODEL_RUNS", runs) {
        println!("CACHE_MODEL_SEED={seed}");
        let mut world = World::new(seed, behind);
        for _ in 0..STEPS {
            world.take_a_step().await;
            world.learn();
            world.check();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn purges_are_never_undone_and_hurt_nothing_else() {
    run(300, false, false, true).await;
}

#[tokio::test(start_paused = true)]
async fn with_a_disk_purges_are_never_undone_and_hurt_nothing_else() {
    run(150, true, false, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_late_or_fails_undoes_no_purge() {
    run(150, true, false, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_others_share_undoes_no_purge() {
    run(150, false, true, false).await;
}

#[tokio::test(start_paused = true)]
async fn two_tiers_undo_no_purge() {
    run(150, true, true, false).await;
}

//! Nodes, their visitors, purges and faults, moved by one loop over milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_engine::cache::{NodeSlot, Strength};
use microcache_engine::{
    Engine, ForwardedRequest, Request, Response, RouteMatch, Served, Settings,
};
use microcache_policy::{FieldsBuf, Rules, Time};
use microcache_store::memcached::{Memcached, MemcachedSettings};
use microcache_store::{AnyTier, Clock, MemoryLimits, TierClock, TierLimits, Tiers, random};
use microcache_testkit::Chance;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::faults::Fault;
use crate::network::Network;
use crate::pool::Pool;
use crate::popularity::Popularity;
use crate::valkey::{Valkey, ValkeyTier};
use crate::world::{Aim, Application, Counts, HOST, Life, Shared, TAGS, World, target};
use crate::{DATE, Plan, TierName, support};

/// Servers of the pool.
pub(crate) const POOL: usize = 3;
/// Bytes of memory of each node.
const MEMORY: u64 = 2 << 20;
/// Bytes of a page.
const PAGE: usize = 600;
/// Most fetches under way on a node.
const MAX_FETCHES: usize = 1024;
/// Milliseconds between two purges, on average.
const PURGE_PAUSE: f64 = 2000.0;
/// The time between two looks at whether nodes know a purge.
const LOOK: Duration = Duration::from_millis(5);
/// Milliseconds after which a node is taken to have purged everything instead, because the log was lost.
const LATEST: u64 = 5000;
/// Milliseconds after the start of a node in which its traffic counts as the cost of joining.
const JOINING: u64 = 60_000;
/// The time between two renewals of a node's figures, which are as long as a page.
const FIGURES_PAUSE: Duration = Duration::from_secs(2);
/// The error of wrong clocks, in milliseconds.
const WRONG_BY: u64 = 600_000;

pub(crate) struct Fleet {
    pub(crate) plan: Plan,
    pub(crate) world: Arc<World>,
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) chance: Chance,
    popularity: Popularity,
    requests: Vec<ForwardedRequest>,
    /// The date at the beginning by the clock of each node.
    dates: Vec<u64>,
    body: Bytes,
}

pub(crate) struct Node {
    pub(crate) engine: Arc<Engine>,
    life: Life,
    /// It has read the log and has not ended.
    is_serving: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.is_serving.store(false, Ordering::Relaxed);
    }
}

/// Runs a plan in simulated time. Returns also the operations and bytes after the start of all nodes.
pub(crate) fn run(plan: Plan) -> (Counts, [u64; 2]) {
    random::seed(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(Fleet::new(plan).run())
}

impl Fleet {
    fn new(plan: Plan) -> Self {
        let mut chance = Chance::new(plan.seed);
        let servers = match plan.tier {
            TierName::Valkey => 1,
            TierName::Memcached => POOL,
        };
        let network = Arc::new(Network::new(plan.nodes, servers, chance.number()));
        let shared = match plan.tier {
            TierName::Valkey => Shared::Valkey(Arc::new(Valkey::new(Arc::clone(&network)))),
            TierName::Memcached => Shared::Pool(Arc::new(Pool::new(Arc::clone(&network), POOL))),
        };
        let mut date = |_| match chance.below(20) {
            0 if plan.has_wrong_clocks => DATE - WRONG_BY,
            1 if plan.has_wrong_clocks => DATE + WRONG_BY,
            _ => DATE,
        };
        Self {
            dates: (0..plan.nodes).map(&mut date).collect(),
            world: Arc::new(World::new(network, shared, plan.pages, plan.nodes)),
            nodes: (0..plan.nodes).map(|_| None).collect(),
            popularity: Popularity::zipf(plan.pages, 0.9),
            requests: (0..plan.pages).map(request).collect(),
            body: vec![b'x'; PAGE].into(),
            chance,
            plan,
        }
    }

    async fn run(mut self) -> (Counts, [u64; 2]) {
        for node in 0..self.plan.nodes {
            self.start(node);
            // Not in lockstep.
            sleep(Duration::from_millis(250 / self.plan.nodes as u64)).await;
        }
        sleep(Duration::from_secs(1)).await;
        let world = Arc::clone(&self.world);
        let network = &world.network;
        let (begin, length) = (network.now(), self.plan.minutes * 60_000);
        let before = network.traffic_of_all();
        let visit_pause = 1000.0 / (self.plan.visits * self.plan.nodes as f64);
        let (mut visit_at, mut purge_at) = (0.0, self.chance.pause(PURGE_PAUSE));
        let mut faults = self
            .plan
            .has_faults
            .then(|| Fault::after(0, &self.plan, &mut self.chance));
        for now in 0..length {
            sleep_until(network.instant(begin + now)).await;
            while visit_at < now as f64 {
                self.visit();
                visit_at += self.chance.pause(visit_pause);
            }
            if purge_at < now as f64 {
                self.purge();
                purge_at += self.chance.pause(PURGE_PAUSE);
            }
            if let Some(fault) = &mut faults {
                fault.advance(&mut self, now, length);
            }
            if now % 10_000 == 0 {
                self.check_bounds();
            }
        }
        sleep(Duration::from_secs(1)).await;
        let traffic = network.traffic_of_all();
        let traffic = [
            traffic.operations - before.operations,
            traffic.bytes - before.bytes,
        ];
        (self.world.counts(), traffic)
    }

    /// Starts a node with an empty memory.
    pub(crate) fn start(&mut self, number: usize) {
        let world = &self.world;
        let now = world.network.now();
        let clock = Clock::simulated(Time::from_millis(self.dates[number] + now));
        let tier = match &world.shared {
            Shared::Valkey(valkey) => {
                AnyTier::Shared(Arc::new(ValkeyTier::new(number, clock, Arc::clone(valkey))))
            }
            Shared::Pool(pool) => {
                let settings = MemcachedSettings {
                    servers: pool.addresses(),
                    link: pool.link(number),
                    clock: Arc::new(TierClock::new(clock)),
                    ..MemcachedSettings::default()
                };
                AnyTier::Shared(
                    Memcached::start(settings, &Handle::current()).expect("valid settings"),
                )
            }
        };
        let tiers = Tiers::new(vec![tier], TierLimits::default(), &Handle::current());
        let application = Application {
            world: Arc::clone(world),
            node: number,
            body: self.body.clone(),
        };
        let route = support::route(Arc::new(application), Rules::default());
        let settings = Settings {
            memory: MemoryLimits {
                capacity: MEMORY,
                object: MEMORY >> 7,
                variants: 8,
            },
            ..support::settings()
        };
        let find = |_: &Request<'_>| RouteMatch {
            route: 0,
            bypass: None,
        };
        let engine = Engine::with_clock(settings, vec![route], Arc::new(find), tiers, clock);
        let engine = Arc::new(engine);
        let is_serving = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let (cache, starts) = (Arc::clone(&engine.cache), Arc::clone(&is_serving));
        tasks.spawn(async move {
            let _no_disk = cache.load_rules().await;
            starts.store(true, Ordering::Relaxed);
            cache.keep_in_step().await;
        });
        let cache = Arc::clone(&engine.cache);
        tasks.spawn(async move { cache.keep_swept().await });
        let (cache, figures) = (Arc::clone(&engine.cache), self.body.clone());
        tasks.spawn(async move {
            let mut slot = NodeSlot::new();
            loop {
                let _ = cache.write_node(&mut slot, figures.clone()).await;
                sleep(FIGURES_PAUSE).await;
            }
        });
        self.nodes[number] = Some(Node {
            engine,
            life: Life {
                node: number,
                born: now,
            },
            is_serving,
            _tasks: tasks,
        });
        if now > 0 {
            self.measure_join(number);
        }
    }

    /// Counts what a node costs in its first minute.
    fn measure_join(&self, node: usize) {
        let (world, is_serving) = (
            Arc::clone(&self.world),
            self.nodes[node]
                .as_ref()
                .map(|it| Arc::clone(&it.is_serving)),
        );
        let cost = move |world: &World| {
            let traffic = world.network.traffic(node);
            let mut fetches = 0;
            world.note(|counts| fetches = counts.fetches_of[node]);
            [traffic.operations, traffic.bytes, fetches]
        };
        let before = cost(&world);
        tokio::spawn(async move {
            sleep(Duration::from_millis(JOINING)).await;
            if is_serving.is_some_and(|it| it.load(Ordering::Relaxed)) {
                let after = cost(&world);
                let joined = std::array::from_fn(|at| after[at] - before[at]);
                world.note(|counts| counts.joins.push(joined));
            }
        });
    }

    /// A node that serves, from one on chosen by chance.
    fn any_node(&mut self) -> Option<&Node> {
        let (count, first) = (self.nodes.len(), self.chance.below(self.nodes.len()));
        let nodes = (first..first + count).map(|at| self.nodes[at % count].as_ref());
        nodes
            .flatten()
            .find(|node| node.is_serving.load(Ordering::Relaxed))
    }

    fn visit(&mut self) {
        let page = self.popularity.pick(&mut self.chance);
        let world = Arc::clone(&self.world);
        let Some(node) = self.any_node() else {
            return;
        };
        let (engine, by, at) = (Arc::clone(&node.engine), node.life, world.network.now());
        let check = move |response: &Response| world.check(by, at, response);
        match engine.serve(&self.requests[page].as_request(), engine.clock.now()) {
            Served::Now(response) => check(&response),
            Served::NowAndRefresh(response, refresh) => {
                check(&response);
                engine.refresh(refresh, request(page));
            }
            Served::Fetch(plan) => {
                let (asked, world) = (engine.ask(plan, request(page)), Arc::clone(&self.world));
                tokio::spawn(async move {
                    let Ok(mut response) = asked.await else {
                        return world.note(|counts| counts.failed += 1);
                    };
                    check(&response);
                    while response.body.frame().await.is_some() {}
                });
            }
            Served::Failed(_) => self.world.note(|counts| counts.failed += 1),
        }
    }

    pub(crate) fn purge(&mut self) {
        let aim = match self.chance.below(500) {
            0 => Aim::Everything,
            1..150 => Aim::Tag(self.chance.below(TAGS)),
            _ => Aim::Page(self.popularity.pick(&mut self.chance)),
        };
        let Some(node) = self.any_node() else {
            return;
        };
        let (engine, is_serving, by) = (
            Arc::clone(&node.engine),
            Arc::clone(&node.is_serving),
            node.life,
        );
        let world = Arc::clone(&self.world);
        // Each look at a thousand nodes takes its time, so some purges have to do.
        let is_measured = self.chance.below(self.plan.nodes.div_ceil(100)) == 0;
        let others = self
            .nodes
            .iter()
            .flatten()
            .filter(|node| is_measured && node.life != by)
            .map(|node| {
                (
                    Arc::clone(&node.engine),
                    node.life,
                    Arc::clone(&node.is_serving),
                )
            });
        let mut others: Vec<_> = others.collect();
        tokio::spawn(async move {
            let (number, decided) = (world.decide(aim, by), world.network.now());
            let purged = engine.cache.purge([(aim.scope(), Strength::Hard)]).await;
            if purged.written.is_err() {
                world.note(|counts| counts.unacknowledged += 1);
                others.clear();
                let is_pending = || engine.cache.fleet().is_some_and(|fleet| fleet.queued > 0);
                while is_pending() {
                    sleep(LOOK * 20).await;
                    if !is_serving.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
            world.deliver(number);
            let id = purged.rules.first().map_or(0, |rule| rule.id);
            while !others.is_empty() {
                let delay = world.network.now() - decided;
                others.retain(|(engine, life, is_serving)| {
                    let connected = world.connected_since(life.node);
                    let is_apart =
                        connected.is_none_or(|since| since + JOINING > decided && since > 0);
                    if is_apart || !is_serving.load(Ordering::Relaxed) {
                        return false;
                    }
                    let is_known = engine.cache.progress(id).is_some();
                    if is_known {
                        world.note(|counts| counts.purge_delays.push(delay));
                    }
                    !is_known && delay < LATEST
                });
                sleep(LOOK).await;
            }
        });
    }

    /// Measures how long the nodes take to be in step after a fault.
    pub(crate) fn measure_recovery(&self) {
        let world = Arc::clone(&self.world);
        let nodes = self
            .nodes
            .iter()
            .flatten()
            .map(|node| (Arc::clone(&node.engine), Arc::clone(&node.is_serving)));
        let mut nodes: Vec<_> = nodes.collect();
        let healed = world.network.now();
        let fault = world.counts().fault;
        tokio::spawn(async move {
            while !nodes.is_empty() {
                sleep(LOOK * 10).await;
                nodes.retain(|(engine, is_serving)| {
                    let fleet = engine.cache.fleet().unwrap_or_default();
                    is_serving.load(Ordering::Relaxed)
                        && (fleet.queued > 0 || fleet.trouble.is_some())
                });
            }
            let took = world.network.now() - healed;
            world.note(|counts| counts.recoveries.push((fault, took)));
        });
    }

    fn check_bounds(&self) {
        for node in self.nodes.iter().flatten() {
            let (memory, fetches) = (
                node.engine.cache.memory_stats(),
                node.engine.cache.fetches(),
            );
            self.world
                .note(|counts| counts.most_memory = counts.most_memory.max(memory.bytes));
            if memory.bytes > memory.capacity || fetches > MAX_FETCHES {
                self.world.violate(&format!(
                    "{:?} has {memory:?} and {fetches} fetches",
                    node.life
                ));
            }
        }
    }
}

fn request(page: usize) -> ForwardedRequest {
    support::incoming(Method::GET, HOST, target(page), FieldsBuf::new())
}

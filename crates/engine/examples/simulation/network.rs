//! The network between nodes and servers: latency, loss, cuts, servers that hang or are killed.

use std::time::Duration;

use microcache_testkit::Chance;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The delay of a packet that was lost and sent again, as TCP does.
const RETRANSMISSION: Duration = Duration::from_millis(200);

/// The state of the path from a node to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Works,
    /// Requests arrive, responses do not.
    Deaf,
    Cut,
}

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Up,
    /// Stopped; it goes on with its content.
    Hung,
    /// Its connections are refused.
    Killed,
}

/// Operations and bytes, both ways, between a node and the servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

pub(crate) struct Network {
    started: Instant,
    state: Mutex<State>,
}

struct State {
    chance: Chance,
    loss: f64,
    /// By node and server, each since a time.
    paths: Vec<Vec<(Path, u64)>>,
    servers: Vec<(Server, u64)>,
    traffic: Vec<Traffic>,
}

impl Network {
    pub(crate) fn new(nodes: usize, servers: usize, seed: u64) -> Self {
        Self {
            started: Instant::now(),
            state: Mutex::new(State {
                chance: Chance::new(seed),
                loss: 0.0,
                paths: vec![vec![(Path::Works, 0); servers]; nodes],
                servers: vec![(Server::Up, 0); servers],
                traffic: vec![Traffic::default(); nodes],
            }),
        }
    }

    /// Milliseconds since the beginning.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub(crate) fn instant(&self, at: u64) -> Instant {
        self.started + Duration::from_millis(at)
    }

    /// The time of a round trip: one or two milliseconds, the resolution of the timers.
    pub(crate) fn round_trip(&self) -> Duration {
        let mut state = self.state.lock();
        let usual = Duration::from_millis(1 + state.chance.number() % 2);
        let is_lost = state.loss > 0.0 && state.chance.share() < state.loss;
        usual + RETRANSMISSION * is_lost.into()
    }

    pub(crate) fn path(&self, node: usize, server: usize) -> Path {
        let state = self.state.lock();
        match state.servers[server].0 {
            Server::Up => state.paths[node][server].0,
            Server::Hung | Server::Killed => Path::Cut,
        }
    }

    pub(crate) fn is_killed(&self, server: usize) -> bool {
        self.state.lock().servers[server].0 == Server::Killed
    }

    pub(crate) fn set_path(&self, node: usize, server: usize, path: Path) {
        let now = self.now();
        self.state.lock().paths[node][server] = (path, now);
    }

    pub(crate) fn set_server(&self, server: usize, health: Server) {
        let now = self.now();
        self.state.lock().servers[server] = (health, now);
    }

    pub(crate) fn set_loss(&self, share: f64) {
        self.state.lock().loss = share;
    }

    /// The time since which a node has been connected to one of these servers; `None` if it is not.
    pub(crate) fn connected_since(&self, node: usize, servers: &[usize]) -> Option<u64> {
        let state = self.state.lock();
        let since = servers.iter().filter_map(|&server| {
            let ((health, up), (path, open)) = (state.servers[server], state.paths[node][server]);
            (health == Server::Up && path == Path::Works).then_some(up.max(open))
        });
        since.min()
    }

    /// All servers can be reached.
    pub(crate) fn is_whole(&self, node: usize) -> bool {
        let state = self.state.lock();
        let works = state.paths[node]
            .iter()
            .all(|(path, _)| *path == Path::Works);
        works
            && state
                .servers
                .iter()
                .all(|(health, _)| *health == Server::Up)
    }

    pub(crate) fn count(&self, node: usize, operations: u64, bytes: usize) {
        let traffic = &mut self.state.lock().traffic[node];
        traffic.operations += operations;
        traffic.bytes += bytes as u64;
    }

    /// The sum of all nodes.
    pub(crate) fn traffic_of_all(&self) -> Traffic {
        let state = self.state.lock();
        state
            .traffic
            .iter()
            .fold(Traffic::default(), |sum, it| Traffic {
                operations: sum.operations + it.operations,
                bytes: sum.bytes + it.bytes,
            })
    }

    pub(crate) fn traffic(&self, node: usize) -> Traffic {
        self.state.lock().traffic[node]
    }
}

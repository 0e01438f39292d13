//! Faults, one after the other, with time to recover in between.

use microcache_testkit::Chance;

use crate::Plan;
use crate::fleet::Fleet;
use crate::network::{Path, Server};
use crate::world::Shared;

/// The shortest and the longest fault, in milliseconds.
const LENGTH: [u64; 2] = [2_000, 30_000];
/// Milliseconds by which a replica lags, and those after a purge at which it takes over: the worst moment.
const LAG: u64 = 100;
const FAILOVER: u64 = 20;
/// The share of packets lost.
const LOSS: f64 = 0.05;
/// A zone has one node of so many, and one server.
const ZONES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All nodes are restarted, one after the other.
    Upgrade,
    /// The nodes and the server of a zone are killed, and return empty.
    Zone,
    /// Some nodes are cut off from all servers.
    Cut,
    /// Some nodes do not hear one server.
    Deaf,
    /// A server hangs.
    Hang,
    /// A server is killed, and returns empty.
    Crash,
    /// A server is killed, and replaced by a replica that lags. The pool has none: a server is restarted at once.
    Failover,
    Evict,
    /// Packets are lost.
    Loss,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Upgrade,
        Self::Zone,
        Self::Cut,
        Self::Deaf,
        Self::Hang,
        Self::Crash,
        Self::Failover,
        Self::Evict,
        Self::Loss,
    ];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrade",
            Self::Zone => "zone",
            Self::Cut => "cut",
            Self::Deaf => "deaf",
            Self::Hang => "hang",
            Self::Crash => "crash",
            Self::Failover => "failover",
            Self::Evict => "evict",
            Self::Loss => "loss",
        }
    }
}

/// The present fault, or the next one.
pub(crate) struct Fault {
    kind: Kind,
    zone: usize,
    begins: u64,
    ends: u64,
    is_begun: bool,
    /// The number of nodes restarted so far.
    upgraded: usize,
}

impl Fault {
    /// The next fault, after some calm.
    pub(crate) fn after(now: u64, plan: &Plan, chance: &mut Chance) -> Self {
        let begins = now + plan.calm;
        let any = Kind::ALL[chance.below(Kind::ALL.len())];
        let length = LENGTH[0] + chance.number() % (LENGTH[1] - LENGTH[0]);
        Self {
            kind: plan.only.unwrap_or(any),
            zone: chance.below(ZONES),
            begins,
            ends: begins + length,
            is_begun: false,
            upgraded: 0,
        }
    }

    /// Begins, continues or ends the fault. None is left for the end of the run.
    pub(crate) fn advance(&mut self, fleet: &mut Fleet, now: u64, length: u64) {
        if now == self.begins && self.ends + fleet.plan.calm < length {
            self.is_begun = true;
            fleet.world.note(|counts| counts.fault = self.kind.name());
            self.begin(fleet);
        }
        if !self.is_begun {
            return;
        }
        if self.kind == Kind::Upgrade {
            let due = (now - self.begins) * fleet.nodes.len() as u64 / (self.ends - self.begins);
            while (self.upgraded as u64) < due {
                fleet.start(self.upgraded);
                self.upgraded += 1;
            }
        }
        if self.kind == Kind::Failover && now == self.begins + FAILOVER {
            self.fail_over(fleet);
        }
        if now == self.ends {
            self.end(fleet);
            fleet.measure_recovery();
            *self = Self::after(now, &fleet.plan, &mut fleet.chance);
        }
    }

    fn server(&self, fleet: &Fleet) -> usize {
        match fleet.world.shared {
            Shared::Valkey(_) => 0,
            Shared::Pool(_) => self.zone,
        }
    }

    fn servers(fleet: &Fleet) -> usize {
        match fleet.world.shared {
            Shared::Valkey(_) => 1,
            Shared::Pool(_) => crate::fleet::POOL,
        }
    }

    fn victims(&self, fleet: &Fleet) -> impl Iterator<Item = usize> + use<> {
        (self.zone % fleet.nodes.len()..fleet.nodes.len()).step_by(ZONES)
    }

    fn begin(&mut self, fleet: &mut Fleet) {
        let (server, network) = (
            self.server(fleet),
            std::sync::Arc::clone(&fleet.world.network),
        );
        match self.kind {
            Kind::Upgrade => {}
            Kind::Zone => {
                for node in self.victims(fleet) {
                    fleet.nodes[node] = None;
                    (0..Self::servers(fleet))
                        .for_each(|server| network.set_path(node, server, Path::Cut));
                }
                if matches!(fleet.world.shared, Shared::Pool(_)) {
                    network.set_server(server, Server::Killed);
                }
            }
            Kind::Cut => {
                for node in self.victims(fleet) {
                    (0..Self::servers(fleet))
                        .for_each(|server| network.set_path(node, server, Path::Cut));
                }
            }
            Kind::Deaf => self
                .victims(fleet)
                .for_each(|node| network.set_path(node, server, Path::Deaf)),
            Kind::Hang => network.set_server(server, Server::Hung),
            Kind::Crash => {
                network.set_server(server, Server::Killed);
                if let Shared::Valkey(valkey) = &fleet.world.shared {
                    valkey.disconnect();
                }
            }
            Kind::Failover => {
                fleet.purge();
                self.ends = self.begins + LENGTH[0];
            }
            Kind::Evict => match &fleet.world.shared {
                Shared::Valkey(valkey) => valkey.evict(&mut fleet.chance),
                Shared::Pool(pool) => pool.evict(server, &mut fleet.chance),
            },
            Kind::Loss => network.set_loss(LOSS),
        }
    }

    fn fail_over(&self, fleet: &Fleet) {
        fleet
            .world
            .network
            .set_server(self.server(fleet), Server::Killed);
        match &fleet.world.shared {
            Shared::Valkey(valkey) => valkey.fail_over(LAG),
            Shared::Pool(pool) => pool.restart(self.zone),
        }
    }

    fn end(&self, fleet: &mut Fleet) {
        let (server, network) = (
            self.server(fleet),
            std::sync::Arc::clone(&fleet.world.network),
        );
        network.set_loss(0.0);
        if matches!(self.kind, Kind::Zone | Kind::Cut | Kind::Deaf) {
            for node in self.victims(fleet) {
                (0..Self::servers(fleet))
                    .for_each(|server| network.set_path(node, server, Path::Works));
            }
        }
        let loses_data = network.is_killed(server);
        match &fleet.world.shared {
            _ if self.kind == Kind::Failover => {}
            Shared::Valkey(valkey) if loses_data => valkey.lose_everything(),
            Shared::Pool(pool) if loses_data => pool.restart(server),
            Shared::Valkey(_) | Shared::Pool(_) => {}
        }
        if matches!(
            self.kind,
            Kind::Zone | Kind::Hang | Kind::Crash | Kind::Failover
        ) {
            network.set_server(server, Server::Up);
        }
        for node in 0..fleet.nodes.len() {
            if fleet.nodes[node].is_none() {
                fleet.start(node);
            }
        }
    }
}

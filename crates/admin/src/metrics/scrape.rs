//! The state of the process that metrics are read from.

use std::sync::Arc;

use microcache_engine::cache::FleetReport;
use microcache_engine::{CompressionStats, Engine};
use microcache_proxy::upstream::{GroupSnapshot, ServerSnapshot};
use microcache_proxy::{
    CertificateReport, ConnectionUsage, FleetStats, MercureStats, MetricsSnapshot, PushStats,
    TierReport, Traces,
};
use microcache_store::MemoryStats;

use crate::interface::Interface;

/// All statistics of the process, taken once per request for metrics. What is not configured is `None` or empty.
pub(super) struct Scrape<'a> {
    pub(super) interface: &'a Interface,
    pub(super) engine: Arc<Engine>,
    pub(super) requests: MetricsSnapshot,
    pub(super) memory: MemoryStats,
    pub(super) compression: CompressionStats,
    pub(super) purge_log: Option<FleetReport>,
    pub(super) tiers: Vec<TierReport>,
    pub(super) groups: Vec<GroupSnapshot>,
    pub(super) connections: ConnectionUsage,
    pub(super) certificates: Vec<CertificateReport>,
    pub(super) push: Option<PushStats>,
    pub(super) redis: Option<FleetStats>,
    pub(super) mercure: Option<MercureStats>,
    pub(super) traces: Option<Arc<Traces>>,
}

impl<'a> Scrape<'a> {
    pub(super) fn of(interface: &'a Interface) -> Self {
        let handle = &interface.handle;
        let engine = handle.engine();
        Self {
            interface,
            requests: handle.metrics(),
            memory: engine.cache.memory_stats(),
            compression: engine.cache.compression_stats(),
            purge_log: engine.cache.fleet(),
            tiers: engine.cache.tier_reports(),
            groups: handle.upstreams(),
            connections: handle.connections(),
            certificates: handle.certificates(),
            push: handle.push_stats(),
            redis: handle.fleet_stats().or_else(|| handle.hub_fleet_stats()),
            mercure: handle.mercure_stats(),
            traces: handle.traces(),
            engine,
        }
    }

    /// All servers of the origin groups, with the name of their group and their address.
    pub(super) fn servers(&self) -> Vec<(&str, String, &ServerSnapshot)> {
        let mut all = Vec::new();
        for group in &self.groups {
            for server in &group.servers {
                let address = server.settings.address.to_string();
                all.push((&*group.name, address, server));
            }
        }
        all
    }

    /// A time of the first certificate of each name.
    pub(super) fn of_certificates(&self, of: fn(&CertificateReport) -> i64) -> Vec<(&str, i64)> {
        let mut all: Vec<(&str, i64)> = Vec::new();
        for report in &self.certificates {
            for name in &report.names {
                if !all.iter().any(|(known, _)| known == name) {
                    all.push((name, of(report)));
                }
            }
        }
        all
    }
}

//! The figures of nodes, as they stand in the tier that the nodes share.
//!
//! No node connects to another, and nothing that was read is used as an address or sent anywhere: any program that can
//! write to the tier can write these figures.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use microcache_engine::Outcome;
use microcache_engine::cache::{NodeFigures, NodeSlot};
use microcache_proxy::Handle;
use serde::{Deserialize, Serialize};

/// Maximum length of names and versions, in characters.
const MAX_TEXT: usize = 64;

/// The figures of a node, as they stand in the tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Figures {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// Number of this renewal: a node that is away repeats none.
    pub(crate) round: u64,
    pub(crate) uptime_seconds: u64,
    pub(crate) draining: bool,
    pub(crate) requests: u64,
    pub(crate) stored: u64,
    pub(crate) errors: u64,
    pub(crate) origin_requests: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) origin_per_second: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_capacity: u64,
    pub(crate) purge_position: u64,
    pub(crate) purges_unpublished: u64,
}

/// The figures of this node, and the renewals of others that were seen.
#[derive(Debug)]
pub(crate) struct NodeList {
    name: String,
    id: u64,
    own: Mutex<Figures>,
    renewals: Mutex<HashMap<u64, Renewal>>,
}

/// The last renewal of a node, and the time at which it was first seen.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    round: u64,
    seen: Instant,
    /// Position in the log of purges that another node had read, which this one has not yet, and the time of that.
    awaited: (u64, Instant),
}

/// The standing of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Time since it was seen to renew its figures.
    pub(crate) silent: Duration,
    /// Time for which it has lacked purges that another node has read.
    pub(crate) behind: Duration,
}

impl NodeList {
    /// This node, and no other yet.
    pub(crate) fn new(slot: &NodeSlot) -> Self {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            name: plain(name.trim()),
            id: slot.id(),
            own: Mutex::default(),
            renewals: Mutex::default(),
        }
    }

    /// Returns the figures of now, which count from here on.
    pub(crate) fn renewed(&self, handle: &Handle, uptime: Duration, since: Duration) -> Figures {
        let (counts, engine) = (handle.metrics(), handle.engine());
        let memory = engine.cache.memory_stats();
        let purges = engine.cache.fleet().unwrap_or_default();
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let per_second = |now: u64, before: u64| {
            let seconds = since.as_secs_f64().max(0.001);
            (now.saturating_sub(before) as f64 / seconds * 10.0).round() / 10.0
        };
        let (requests, origin) = (counts.requests(), counts.origin().requests);
        let new = Figures {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            round: own.round + 1,
            uptime_seconds: uptime.as_secs(),
            draining: handle.is_leaving(),
            requests,
            stored: counts.of(Outcome::Hit) + counts.of(Outcome::Stale),
            errors: counts.of(Outcome::Error),
            origin_requests: origin,
            requests_per_second: per_second(requests, own.requests),
            origin_per_second: per_second(origin, own.origin_requests),
            memory_bytes: memory.bytes,
            memory_capacity: memory.capacity,
            purge_position: purges.position,
            purges_unpublished: purges.queued as u64,
        };
        own.clone_from(&new);
        new
    }

    /// The number of this node.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the figures of this node that were renewed last.
    pub(crate) fn own(&self) -> Figures {
        self.own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the standing of each node, by its figures and those that were read before. Clocks of other machines do not
    /// matter.
    pub(crate) fn standings(&self, nodes: &[(u64, Figures)], now: Instant) -> Vec<Standing> {
        let newest = nodes.iter().map(|(_, node)| node.purge_position).max();
        let newest = newest.unwrap_or(0);
        let mut known = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|id, _| nodes.iter().any(|(present, _)| present == id));
        let standing = |(id, figures): &(u64, Figures)| {
            let (round, position) = (figures.round, figures.purge_position);
            let renewal = known.entry(*id).or_insert(Renewal {
                round,
                seen: now,
                awaited: (position, now),
            });
            if renewal.round != round {
                (renewal.round, renewal.seen) = (round, now);
            }
            if position >= renewal.awaited.0 {
                renewal.awaited = (newest, now);
            }
            Standing {
                silent: now.saturating_duration_since(renewal.seen),
                behind: now.saturating_duration_since(renewal.awaited.1),
            }
        };
        nodes.iter().map(standing).collect()
    }
}

/// Reads figures that any program may have written.
pub(crate) fn known(node: &NodeFigures) -> Option<(u64, Figures)> {
    let mut figures: Figures = serde_json::from_slice(&node.figures).ok()?;
    figures.name = plain(&figures.name);
    figures.version = plain(&figures.version);
    Some((node.id, figures))
}

/// Returns the printable part of a short text.
fn plain(text: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_graphic();
    text.chars().filter(is_plain).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(text: &str) -> Option<Figures> {
        let figures = Bytes::copy_from_slice(text.as_bytes());
        known(&NodeFigures { id: 7, figures }).map(|(_, figures)| figures)
    }

    #[test]
    fn figures_of_other_versions_and_programs_are_read_as_far_as_they_can_be() {
        let newer = r#"{"name":"a","version":"9.0","requests":5,"invented":[1]}"#;
        let newer = read(newer).expect("figures");
        assert_eq!((newer.requests, newer.errors), (5, 0));
        let hostile = r#"{"name":"<b>\u0000\u202e\n\u001b[31m x","version":"é"}"#;
        let hostile = read(hostile).expect("figures");
        assert_eq!((&*hostile.name, &*hostile.version), ("<b>[31mx", ""));
        let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(1000));
        assert_eq!(read(&long).expect("figures").name.len(), MAX_TEXT);
        for text in ["", "7", r#"{"requests":-1}"#, r#"{"name":"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_node_that_repeats_itself_is_away_whatever_its_clock_says() {
        let nodes = NodeList::new(&NodeSlot::new());
        let start = Instant::now();
        let at = |seconds, rounds: &[(u64, u64)]| {
            let figures = |&(id, round): &(u64, u64)| {
                let figures = Figures {
                    round,
                    ..Figures::default()
                };
                (id, figures)
            };
            let all: Vec<_> = rounds.iter().map(figures).collect();
            let standings = nodes.standings(&all, start + Duration::from_secs(seconds));
            let silent = standings.iter().map(|it| it.silent.as_secs());
            silent.collect::<Vec<_>>()
        };
        assert_eq!(at(0, &[(1, 5), (2, 90)]), [0, 0]);
        assert_eq!(at(7, &[(1, 8), (2, 90)]), [0, 7]);
        assert_eq!(at(9, &[(2, 1)]), [0], "it was started again");
        assert_eq!(at(30, &[(1, 8)]), [0], "it was not listed meanwhile");
    }

    #[test]
    fn a_node_is_behind_for_as_long_as_it_lacks_a_purge() {
        let nodes = NodeList::new(&NodeSlot::new());
        let start = Instant::now();
        let at = |seconds, positions: [u64; 2]| {
            let figures = |(id, purge_position)| {
                let figures = Figures {
                    purge_position,
                    ..Figures::default()
                };
                (id, figures)
            };
            let all = [(1, positions[0]), (2, positions[1])].map(figures);
            let standings = nodes.standings(&all, start + Duration::from_secs(seconds));
            let behind = standings.iter().map(|it| it.behind.as_secs());
            behind.collect::<Vec<_>>()
        };
        assert_eq!(at(0, [70, 70]), [0, 0]);
        assert_eq!(at(2, [90, 70]), [0, 0]);
        assert_eq!(at(4, [95, 70]), [0, 2]);
        assert_eq!(
            at(6, [99, 90]),
            [0, 0],
            "it has the first, and lacks newer ones"
        );
        assert_eq!(at(9, [99, 90]), [0, 3]);
        assert_eq!(at(11, [99, 99]), [0, 0]);
    }
}

//! The truth: each fetch and purge, and what nodes may serve because of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::cache::Scope;
use microcache_engine::{
    Body, BoxFuture, Origin, OriginError, OriginRequest, OriginResponse, Outcome, Response,
};
use microcache_policy::FieldsBuf;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::network::Network;
use crate::pool::Pool;
use crate::valkey::Valkey;

/// The host of all pages.
pub(crate) const HOST: &str = "site.example";
/// The time for which a response is fresh, and for which it may be served stale while it is revalidated.
pub(crate) const FRESH: u64 = 60_000;
const CACHE_CONTROL: &str = "max-age=60, stale-while-revalidate=10";
/// The time that the application takes for a page.
const RENDERING: Duration = Duration::from_millis(80);
/// Pages with tags in common.
pub(crate) const TAGS: usize = 50;
/// The time within which a purge reaches connected nodes.
const PURGE_BOUND: u64 = 1000;
/// The time within which a node uses servers again that it can reach again: a pause, and an attempt.
const RECONNECTION: u64 = 1000;
/// Most faults that are described.
const DESCRIBED: usize = 5;

/// The shared tier.
#[derive(Clone)]
pub(crate) enum Shared {
    Valkey(Arc<Valkey>),
    Pool(Arc<Pool>),
}

/// The pages that a purge names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    Page(usize),
    Tag(usize),
    Everything,
}

/// A node from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) node: usize,
    pub(crate) born: u64,
}

pub(crate) struct World {
    pub(crate) network: Arc<Network>,
    pub(crate) shared: Shared,
    truth: Mutex<Truth>,
}

#[derive(Default)]
struct Truth {
    fetches: Vec<(usize, u64)>,
    pages: Vec<PageHistory>,
    purges: Vec<Purge>,
    counts: Counts,
}

#[derive(Clone, Default)]
struct PageHistory {
    fetched: Option<u64>,
    purges: Vec<usize>,
}

struct Purge {
    aim: Aim,
    by: Life,
    decided: u64,
    /// The time at which all nodes can know it.
    delivered: Option<u64>,
}

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) served: u64,
    pub(crate) hits: u64,
    pub(crate) failed: u64,
    pub(crate) fetches: u64,
    /// Fetches although an earlier response was fresh and not purged.
    pub(crate) repeated: u64,
    /// Repeated fetches by nodes that could not reach the whole tier.
    pub(crate) cut_off: u64,
    /// Repeated fetches by other nodes, by the last fault.
    pub(crate) repeated_after: BTreeMap<&'static str, u64>,
    pub(crate) fault: &'static str,
    pub(crate) fetches_of: Vec<u64>,
    pub(crate) purges: u64,
    pub(crate) unacknowledged: u64,
    /// Milliseconds from the decision of a purge until another node knew it.
    pub(crate) purge_delays: Vec<u64>,
    /// Each fault, and the milliseconds until every node was in step after it.
    pub(crate) recoveries: Vec<(&'static str, u64)>,
    /// By node that joined: operations, bytes, fetches in its first minute.
    pub(crate) joins: Vec<[u64; 3]>,
    pub(crate) most_memory: u64,
    pub(crate) violations: Vec<String>,
    /// Differs if anything was fetched or served at another time, or in another order.
    pub(crate) digest: u64,
}

impl World {
    pub(crate) fn new(network: Arc<Network>, shared: Shared, pages: usize, nodes: usize) -> Self {
        let truth = Truth {
            pages: vec![PageHistory::default(); pages],
            counts: Counts {
                fetches_of: vec![0; nodes],
                ..Counts::default()
            },
            ..Truth::default()
        };
        let truth = Mutex::new(truth);
        Self {
            network,
            shared,
            truth,
        }
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.truth.lock().counts);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.truth.lock().counts.clone()
    }

    pub(crate) fn violate(&self, what: &str) {
        let at = self.network.now();
        let mut truth = self.truth.lock();
        if truth.counts.violations.len() < DESCRIBED {
            truth.counts.violations.push(format!("{at} ms: {what}"));
        }
    }

    /// The time since which a node has been able to read the log.
    pub(crate) fn connected_since(&self, node: usize) -> Option<u64> {
        match &self.shared {
            Shared::Valkey(_) => self.network.connected_since(node, &[0]),
            Shared::Pool(pool) => self.network.connected_since(node, &pool.log_servers()),
        }
    }

    /// A purge is decided: from now on, its node serves no earlier response.
    pub(crate) fn decide(&self, aim: Aim, by: Life) -> usize {
        let decided = self.network.now();
        let mut truth = self.truth.lock();
        let number = truth.purges.len();
        for (page, history) in truth.pages.iter_mut().enumerate() {
            if aim.names(page) {
                history.purges.push(number);
            }
        }
        truth.purges.push(Purge {
            aim,
            by,
            decided,
            delivered: None,
        });
        truth.counts.purges += 1;
        number
    }

    /// A purge is in the log.
    pub(crate) fn deliver(&self, purge: usize) {
        self.truth.lock().purges[purge].delivered = Some(self.network.now());
    }

    /// Checks whether a node may answer a request of that time with this response.
    pub(crate) fn check(&self, by: Life, requested: u64, response: &Response) {
        let fields = response.fields();
        let number = fields
            .get("x-number")
            .and_then(|number| std::str::from_utf8(number).ok());
        let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) else {
            return self.note(|counts| counts.failed += 1);
        };
        let mut truth = self.truth.lock();
        truth.counts.served += 1;
        let is_hit = matches!(response.outcome, Outcome::Hit | Outcome::Stale);
        truth.counts.hits += u64::from(is_hit);
        truth.mix((by.node + number) as u64);
        let (page, began) = truth.fetches[number];
        let history = truth.pages[page]
            .purges
            .iter()
            .rev()
            .map(|&purge| &truth.purges[purge]);
        let broken = history
            .take_while(|purge| purge.decided > began)
            .find(|purge| {
                let known = if purge.by == by {
                    Some(purge.decided)
                } else {
                    let since = self.connected_since(by.node);
                    let both = purge.delivered.zip(since);
                    both.map(|(delivered, since)| delivered.max(since + RECONNECTION) + PURGE_BOUND)
                };
                known.is_some_and(|known| requested > known)
            });
        if let Some(purge) = broken {
            let what = format!(
                "{by:?} answers a request of {requested} ms with fetch {number} of {began} ms, although {:?} was purged at {} ms by {:?} (delivered {:?}); connected since {:?}",
                purge.aim,
                purge.decided,
                purge.by,
                purge.delivered,
                self.connected_since(by.node),
            );
            drop(truth);
            self.violate(&what);
        }
    }

    /// Counts a fetch; returns its number.
    fn fetch(&self, node: usize, page: usize) -> usize {
        let now = self.network.now();
        let mut truth = self.truth.lock();
        let history = &truth.pages[page];
        let is_purged = |fetched| {
            let newest = history
                .purges
                .last()
                .map(|&purge| truth.purges[purge].decided);
            newest.is_some_and(|decided| decided > fetched)
        };
        let is_repeated = history
            .fetched
            .is_some_and(|fetched| now < fetched + FRESH && !is_purged(fetched));
        truth.pages[page].fetched = Some(now);
        truth.counts.fetches += 1;
        truth.counts.fetches_of[node] += 1;
        if is_repeated {
            truth.counts.repeated += 1;
            let counts = &mut truth.counts;
            if self.network.is_whole(node) {
                *counts.repeated_after.entry(counts.fault).or_default() += 1;
            } else {
                counts.cut_off += 1;
            }
        }
        truth.mix(now ^ (page as u64) << 40);
        truth.fetches.push((page, now));
        truth.fetches.len() - 1
    }
}

impl Truth {
    fn mix(&mut self, with: u64) {
        let digest = self.counts.digest ^ with;
        self.counts.digest = digest.wrapping_mul(0x0100_0000_01b3).rotate_left(5);
    }
}

impl Aim {
    fn names(self, page: usize) -> bool {
        match self {
            Self::Page(number) => number == page,
            Self::Tag(tag) => page % TAGS == tag,
            Self::Everything => true,
        }
    }

    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::Page(number) => Scope::Url {
                host: Bytes::from_static(HOST.as_bytes()),
                target: target(number),
            },
            Self::Tag(tag) => Scope::Tag(format!("t{tag}").into()),
            Self::Everything => Scope::Everything,
        }
    }
}

pub(crate) fn target(page: usize) -> Bytes {
    format!("/{page}").into()
}

/// The application as a node uses it.
pub(crate) struct Application {
    pub(crate) world: Arc<World>,
    pub(crate) node: usize,
    pub(crate) body: Bytes,
}

impl Origin for Application {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let page = std::str::from_utf8(&request.target[1..])
            .ok()
            .and_then(|page| page.parse().ok());
        let page = page.expect("a page of this site");
        let number = self.world.fetch(self.node, page);
        Box::pin(async move {
            sleep(RENDERING).await;
            let mut fields = FieldsBuf::new();
            fields.push("Cache-Control", CACHE_CONTROL);
            fields.push("Content-Type", "text/html");
            fields.push("Cache-Tag", format!("t{}", page % TAGS));
            fields.push("X-Number", number.to_string());
            Ok(OriginResponse {
                status: 200,
                fields,
                length: Some(self.body.len() as u64),
                body: Body::Full(self.body.clone()),
                tunnel: None,
                waited: 0,
            })
        })
    }
}

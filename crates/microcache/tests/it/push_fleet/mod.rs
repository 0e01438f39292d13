//! Documents that several processes share by a real Redis.

mod catching_up;
mod history;
mod model;
mod outages;
pub(crate) mod relay;
mod together;

use std::net::SocketAddr;

use crate::push::{Kept, Live};
use crate::support::{Events, Origin, Proxy, TierKind, TierServer, eventually};

/// Several nodes, and what they have in common.
struct Nodes {
    redis: TierServer,
    kept: Kept,
    origin: Origin,
    all: Vec<Live>,
}

impl Nodes {
    fn start(count: usize) -> Self {
        Self::beside(TierServer::start(TierKind::Redis), count)
    }

    fn beside(redis: TierServer, count: usize) -> Self {
        let (kept, origin) = (Kept::new(), Origin::start());
        let mut nodes = Self {
            redis,
            kept,
            origin,
            all: Vec::new(),
        };
        nodes.all = (0..count).map(|_| nodes.another(&[])).collect();
        nodes
    }

    /// One more node.
    fn another(&self, flags: &[&str]) -> Live {
        let redis = self.redis.address();
        let flags = [&["--push-redis", &redis], flags].concat();
        self.kept.start(&self.origin, &flags)
    }

    /// One that operators reach.
    fn operated(&self, flags: &[&str]) -> (Live, SocketAddr) {
        let token = self.kept.token();
        let redis = self.redis.address();
        let usual = [
            "--push",
            "/live/",
            "--push-token-file",
            &token,
            "--push-redis",
            &redis,
        ];
        let (proxy, admin) = Proxy::operated(&self.origin, &[&usual, flags].concat());
        (Live(proxy), admin)
    }
}

impl std::ops::Index<usize> for Nodes {
    type Output = Live;

    fn index(&self, at: usize) -> &Live {
        &self.all[at]
    }
}

/// A Redis that loses nothing when it is killed.
pub(crate) fn lasting() -> TierServer {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    TierServer::start_with(TierKind::Redis, &flags)
}

/// One of the two keys of documents, which has the id of "documents that are pushed" in it.
pub(crate) fn key(kind: &str) -> String {
    format!("{kind}:{{83bdc30942b0fc29923476d2b98b88dd}}")
}

/// What comes next: its kind and what it says.
fn next_event(events: &mut Events) -> (String, String) {
    let (_, kind, data) = events.event();
    (kind, data)
}

fn put(data: &str) -> (String, String) {
    ("put".to_owned(), data.to_owned())
}

/// Waits until a document is this on a node.
fn until_is(node: &Live, target: &str, body: &str) {
    eventually(body, || (node.0.get(target).text() == body).then_some(()));
}

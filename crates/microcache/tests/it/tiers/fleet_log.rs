//! The log of purges lies on two servers of a memcached pool: the loss of one of them brings back nothing that was purged, and
//! purges nothing else.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use super::fleet_purge::{Node, body};
use super::{disk_in, end};
use crate::support::{Folder, Origin, Reply, TierKind, TierServer, eventually};

/// The two copies of the log.
const COPIES: [&str; 2] = ["mcl1", "mcl1b"];
/// Soon enough for a server that hangs, and late enough for one that is slow.
const TIMEOUT: &[&str] = &["--memcached-timeout", "1s"];
/// Several, so that each server has some.
const PAGES: usize = 12;

struct Pool {
    servers: Vec<TierServer>,
}

impl Pool {
    fn start() -> Self {
        let servers = (0..3)
            .map(|_| TierServer::start(TierKind::Memcached))
            .collect();
        Self { servers }
    }

    fn node(&self, origin: &Origin, more: &[&str]) -> Node {
        let flags: Vec<_> = self.servers.iter().flat_map(TierServer::flags).collect();
        let mut flags: Vec<_> = flags.iter().map(String::as_str).collect();
        flags.extend(TIMEOUT);
        flags.extend(more);
        Node::start_with(origin, &flags)
    }

    /// Which server has this copy. All of them are up.
    fn holder(&self, copy: usize) -> usize {
        eventually("the log to be there", || {
            let has = |server: &TierServer| server.has(COPIES[copy]);
            self.servers.iter().position(has)
        })
    }
}

/// Pages that say how often they were asked for, some with the tag `red` and some with `blue`.
fn counting(origin: &Origin) {
    for page in 0..PAGES {
        for tag in ["red", "blue"] {
            let mut times = 0;
            origin.on(&format!("/{tag}/{page}")).answer(move |_| {
                times += 1;
                Reply::ok(
                    &["Cache-Control: max-age=1000", &format!("Cache-Tag: {tag}")],
                    times.to_string(),
                )
            });
        }
    }
}

fn bodies(node: &Node, tag: &str) -> Vec<String> {
    let pages = 0..PAGES;
    pages
        .map(|page| body(node, &format!("/{tag}/{page}")))
        .collect()
}

fn visit(nodes: &[&Node]) {
    for node in nodes {
        for tag in ["red", "blue"] {
            assert_eq!(bodies(node, tag), ["1"; PAGES]);
        }
    }
}

/// Two nodes have everything, and one of them has gone. Gives the other one, and the folder of the disk of this one.
fn one_goes_away(origin: &Origin, pool: &Pool) -> (Node, Folder) {
    counting(origin);
    let folder = Folder::absent();
    let here = pool.node(origin, &[]);
    let away = pool.node(origin, &["--disk", &disk_in(&folder)]);
    visit(&[&here, &away]);
    end(away.proxy);
    (here, folder)
}

fn purges(node: &Node) -> Value {
    node.ask("GET /v1/stats", "")["purges"].take()
}

/// It reaches both copies, and both have all that it had to tell. Then it has looked at each of them a few times.
fn until_in_step(nodes: &[&Node]) {
    for node in nodes {
        eventually("both copies are reached", || {
            let purges = purges(node);
            (purges["unpublished"] == json!(0) && purges["last_error"].is_null()).then_some(())
        });
    }
    sleep(Duration::from_secs(1));
}

fn until_in_trouble(nodes: &[&Node]) {
    for node in nodes {
        let is_told = || (!purges(node)["last_error"].is_null()).then_some(());
        eventually("the loss is noticed", is_told);
    }
}

fn purge_red(node: &Node) -> Option<String> {
    let answer = node.purge(&json!({"tag": "red"}));
    let why = answer["purges"][0]["persist_error"].as_str();
    why.map(str::to_owned)
}

fn until_purged(node: &Node, before: &str) {
    eventually("the purge arrives", || {
        let red = bodies(node, "red");
        red.iter().all(|body| body != before).then_some(())
    });
}

#[test]
fn one_server_of_the_log_after_the_other_is_lost_and_nothing_with_it() {
    let (origin, mut pool) = (Origin::start(), Pool::start());
    counting(&origin);
    let nodes = [(); 2].map(|()| pool.node(&origin, &[]));
    let [here, there] = nodes.each_ref();
    visit(&[here, there]);
    for lost in [0, 1] {
        let server = pool.holder(lost);
        assert_ne!(server, pool.holder(1 - lost));
        pool.servers[server].kill();
        until_in_trouble(&[here, there]);
        let before = body(there, "/red/0");
        let why = purge_red(here).expect("one of them has it");
        assert!(why.contains("one of the two copies"), "{why}");
        until_purged(there, &before);
        pool.servers[server].restart();
        until_in_step(&[here, there]);
        let before = body(there, "/red/0");
        assert_eq!(purge_red(here), None);
        until_purged(there, &before);
        for node in [here, there] {
            assert_eq!(bodies(node, "blue"), ["1"; PAGES], "nobody purged them");
        }
    }
}

#[test]
fn a_server_that_returns_with_old_data_brings_nothing_back() {
    for halted in [0, 1] {
        let (origin, mut pool) = (Origin::start(), Pool::start());
        let (here, folder) = one_goes_away(&origin, &pool);
        let disk = disk_in(&folder);
        let server = pool.holder(halted);
        let other = pool.holder(1 - halted);
        pool.servers[server].freeze();
        let why = purge_red(&here).expect("one of them has it");
        assert!(why.contains("one of the two copies"), "{why}");
        pool.servers[server].thaw();
        until_in_step(&[&here]);
        // Now only the one that was halted can say what was purged.
        pool.servers[other].kill();
        let away = pool.node(&origin, &["--disk", &disk]);
        assert!(!bodies(&away, "red").contains(&"1".to_owned()), "{halted}");
        eventually("it uses what it has", || {
            purges(&away)["position"]
                .as_u64()
                .filter(|position| *position > 0)
        });
        assert!(!bodies(&away, "red").contains(&"1".to_owned()), "{halted}");
    }
}

#[test]
fn a_process_that_starts_while_a_server_is_down_uses_the_others() {
    for lost in [0, 1] {
        let (origin, mut pool) = (Origin::start(), Pool::start());
        let (here, folder) = one_goes_away(&origin, &pool);
        let disk = disk_in(&folder);
        assert_eq!(purge_red(&here), None);
        let server = pool.holder(lost);
        pool.servers[server].kill();
        let away = pool.node(&origin, &["--disk", &disk]);
        assert!(!bodies(&away, "red").contains(&"1".to_owned()), "{lost}");
        let mut pages = 0..PAGES;
        eventually("what lies on the disk is used", || {
            sleep(Duration::from_millis(200));
            let page = pages.next().expect("it is used before all are asked for");
            (body(&away, &format!("/blue/{page}")) == "1").then_some(())
        });
    }
}

#[test]
fn where_both_servers_are_lost_everything_older_is_purged() {
    let (origin, mut pool) = (Origin::start(), Pool::start());
    counting(&origin);
    let node = pool.node(&origin, &[]);
    visit(&[&node]);
    for lost in [0, 1].map(|copy| pool.holder(copy)) {
        pool.servers[lost].kill();
        pool.servers[lost].restart();
    }
    eventually("nothing older is served", || {
        (body(&node, "/blue/0") == "2").then_some(())
    });
    until_in_step(&[&node]);
    assert_eq!(body(&node, "/blue/0"), "2", "once");
}

#[test]
fn a_purge_that_one_server_took_is_not_lost_with_it_once_the_other_is_back() {
    for lost in [0, 1] {
        let (origin, mut pool) = (Origin::start(), Pool::start());
        counting(&origin);
        let [here, there] = [(); 2].map(|()| pool.node(&origin, &[]));
        visit(&[&here, &there]);
        let (server, other) = (pool.holder(lost), pool.holder(1 - lost));
        pool.servers[server].kill();
        until_in_trouble(&[&here, &there]);
        assert!(purge_red(&here).is_some());
        pool.servers[server].restart();
        until_in_step(&[&here, &there]);
        pool.servers[other].kill();
        assert!(!bodies(&there, "red").contains(&"1".to_owned()), "{lost}");
        let away = pool.node(&origin, &[]);
        assert!(!bodies(&away, "red").contains(&"1".to_owned()), "{lost}");
        assert_eq!(
            bodies(&there, "blue"),
            ["1"; PAGES],
            "{lost}: nobody purged them"
        );
    }
}

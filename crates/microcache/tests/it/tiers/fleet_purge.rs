//! A purge on one node holds on all that share a tier.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use super::{PATIENT, disk_in, end};
use crate::push_fleet::relay::Relay;
use crate::support::{Client, Folder, Origin, Proxy, Reply, TierKind, TierServer, eventually};

pub(super) struct Node {
    pub(super) proxy: Proxy,
    admin: SocketAddr,
}

impl Node {
    fn start(origin: &Origin, flags: &[&str]) -> Self {
        Self::start_with(origin, &[flags, PATIENT].concat())
    }

    pub(super) fn start_with(origin: &Origin, flags: &[&str]) -> Self {
        let (proxy, admin) = Proxy::operated(origin, flags);
        Self { proxy, admin }
    }

    pub(super) fn ask(&self, head: &str, body: &str) -> Value {
        serde_json::from_str(&self.ask_text(head, body)).expect("JSON")
    }

    pub(super) fn ask_text(&self, head: &str, body: &str) -> String {
        let mut client = Client::connect(self.admin);
        client.send(format!(
            "{head} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.admin,
            body.len(),
        ));
        let response = client.response();
        assert_eq!(response.status, 200, "{}", response.text());
        response.text()
    }

    pub(super) fn purge(&self, named: &Value) -> Value {
        self.ask("POST /v1/purges", &named.to_string())
    }

    fn is_told(&self) -> bool {
        let stats = self.ask("GET /v1/stats", "");
        stats["purges"]["unpublished"] == json!(0)
    }
}

/// Pages that say how often they were asked for; `/red/…` has the tag `red`.
fn counting(origin: &Origin) {
    for target in ["/red", "/blue"] {
        let mut times = 0;
        origin.on(target).answer(move |_| {
            times += 1;
            Reply::ok(
                &[
                    "Cache-Control: max-age=1000",
                    &format!("Cache-Tag: {}", &target[1..]),
                ],
                times.to_string(),
            )
        });
    }
}

pub(super) fn body(node: &Node, target: &str) -> String {
    node.proxy.get(target).text()
}

#[test]
fn a_purge_on_one_node_holds_on_all() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        counting(&origin);
        let [flag, address] = server.flags();
        let nodes: Vec<_> = (0..3)
            .map(|_| Node::start(&origin, &[&flag, &address]))
            .collect();
        for node in &nodes {
            assert_eq!(
                (body(node, "/red"), body(node, "/blue")),
                ("1".into(), "1".into())
            );
        }
        nodes[0].purge(&json!({"tag": "red"}));
        assert_eq!(body(&nodes[0], "/red"), "2", "{kind:?}: at once here");
        for node in &nodes[1..] {
            eventually("the purge arrives", || {
                (body(node, "/red") == "2").then_some(())
            });
            assert_eq!(body(node, "/blue"), "1", "{kind:?}: nothing else is hurt");
        }
        assert_eq!(origin.count("/red"), 2, "{kind:?}: fetched once for all");
    }
}

#[test]
fn a_purge_of_one_variant_holds_on_all_and_leaves_the_others() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let mut times = 0;
        origin.on("/many").answer(move |_| {
            times += 1;
            Reply::ok(
                &["Cache-Control: max-age=1000", "Vary: User-Agent"],
                times.to_string(),
            )
        });
        let [flag, address] = server.flags();
        let nodes = [(); 2].map(|()| Node::start(&origin, &[&flag, &address]));
        let body = |node: &Node, language: &str| {
            let field = format!("User-Agent: {language}");
            node.proxy.get_with("/many", &[&field]).text()
        };
        let expected = ["1", "2"].map(str::to_owned);
        for node in &nodes {
            let languages = ["de", "en"].map(|language| body(node, language));
            assert_eq!(languages, expected, "{kind:?}");
        }
        let url = "http://example.com/many";
        nodes[0].purge(&json!({"url": url, "headers": ["User-Agent: de"]}));
        assert_eq!(body(&nodes[0], "de"), "3", "{kind:?}: at once here");
        // What was fetched here before the purge came back from the log counts as older there.
        eventually("the purge arrives", || {
            ["3", "4"].contains(&&*body(&nodes[1], "de")).then_some(())
        });
        for node in &nodes {
            assert_eq!(body(node, "en"), "2", "{kind:?}: the other stays");
        }
    }
}

#[test]
fn a_node_that_was_away_learns_of_it_before_it_uses_its_disk() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        counting(&origin);
        let [flag, address] = server.flags();
        let folders = [Folder::absent(), Folder::absent()];
        let start =
            |folder: &Folder| Node::start(&origin, &["--disk", &disk_in(folder), &flag, &address]);
        let (here, away) = (start(&folders[0]), start(&folders[1]));
        for node in [&here, &away] {
            body(node, "/red");
            body(node, "/blue");
        }
        end(away.proxy);
        here.purge(&json!({"tag": "red"}));
        let away = start(&folders[1]);
        assert_eq!(body(&away, "/red"), "2", "{kind:?}");
        assert_eq!(
            body(&away, "/blue"),
            "1",
            "{kind:?}: what was not purged is still there"
        );
    }
}

#[test]
fn a_node_without_contact_to_the_log_reports_it_serves_and_catches_up() {
    let (origin, server) = (Origin::start(), TierServer::redis());
    counting(&origin);
    let relay = Relay::start(server.port());
    let here = Node::start(&origin, &["--redis", &server.address()]);
    let far = Node::start(&origin, &["--redis", &relay.address()]);
    for node in [&here, &far] {
        assert_eq!(body(node, "/red"), "1");
        assert_eq!(body(node, "/blue"), "1");
    }
    let trouble = |node: &Node| node.ask("GET /v1/stats", "")["purges"]["last_error"].clone();
    let reports = |node: &Node| eventually("trouble", || trouble(node).is_string().then_some(()));
    let recovers = |node: &Node| eventually("recovery", || trouble(node).is_null().then_some(()));
    relay.hold(true);
    reports(&far);
    let purged = here.purge(&json!({"tag": "red"}));
    assert_eq!(purged["persist_error"], Value::Null, "{purged}");
    assert_eq!(body(&here, "/red"), "2");
    assert_eq!(body(&far, "/red"), "1", "the cache outlives Redis");
    relay.hold(false);
    recovers(&far);
    assert_eq!(body(&far, "/red"), "2");
    assert_eq!(body(&far, "/blue"), "1", "nothing else is hurt");
    server.freeze();
    reports(&here);
    reports(&far);
    server.thaw();
    recovers(&here);
    here.purge(&json!({"tag": "red"}));
    eventually("the purge arrives", || {
        (body(&far, "/red") != "2").then_some(())
    });
}

#[test]
fn a_purge_during_an_outage_is_delivered_afterwards() {
    for kind in TierKind::ALL {
        let (origin, mut server) = (Origin::start(), TierServer::start(kind));
        counting(&origin);
        let [flag, address] = server.flags();
        let nodes = [(); 2].map(|()| Node::start(&origin, &[&flag, &address]));
        for node in &nodes {
            body(node, "/red");
            body(node, "/blue");
        }
        server.kill();
        let answer = nodes[0].purge(&json!({"tag": "red"}));
        let why = answer["purges"][0]["persist_error"].as_str().expect("why");
        assert!(why.contains("other processes"), "{kind:?}: {why}");
        assert_eq!(body(&nodes[0], "/red"), "2", "{kind:?}");
        server.restart();
        for node in &nodes {
            eventually("all is told", || (node.is_told()).then_some(()));
        }
        eventually("the purge arrives", || {
            (body(&nodes[1], "/red") != "1").then_some(())
        });
    }
}

#[test]
fn a_node_that_cannot_know_purges_all_that_is_older() {
    for kind in TierKind::ALL {
        let (origin, mut server) = (Origin::start(), TierServer::start(kind));
        counting(&origin);
        let [flag, address] = server.flags();
        let node = Node::start(&origin, &[&flag, &address]);
        assert_eq!(body(&node, "/red"), "1");
        // What was in it may have been a purge that this node has not read.
        server.kill();
        server.restart();
        eventually("nothing older is served", || {
            (body(&node, "/red") == "2").then_some(())
        });
        sleep(Duration::from_millis(600));
        assert_eq!(body(&node, "/red"), "2", "{kind:?}: once");
    }
}

/// Has the clock of Redis been a day ahead when the log was last written to.
const A_DAY_AHEAD: &str = "EVAL \"local key = redis.call('KEYS', 'mcl1:*')[1] \
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1][1] \
    local log, count = string.match(last, '^(%d+)-(%d+)$') \
    local ahead = log .. '-' .. string.format('%.0f', count + 86400000) \
    return redis.call('XADD', key, ahead, 'r', 'beginning')\" 0";

/// Whether the log has a purge, by the answer to it.
fn is_written(answer: &Value) -> bool {
    answer["purges"][0]["id"].is_string() && answer["purges"][0]["persist_error"].is_null()
}

#[test]
fn a_clock_of_redis_that_was_ahead_makes_nothing_immune_to_purges() {
    let (origin, mut server, folder) = (
        Origin::start(),
        TierServer::start(TierKind::Redis),
        Folder::absent(),
    );
    counting(&origin);
    let [flag, address] = server.flags();
    let shared = [&flag[..], &address];
    let disk = disk_in(&folder);
    let with_disk = [&shared[..], &["--disk", &disk]].concat();
    let (node, other) = (
        Node::start(&origin, &with_disk),
        Node::start(&origin, &shared),
    );
    assert_eq!(body(&node, "/red"), "1");
    let added = server.say(A_DAY_AHEAD);
    assert!(added.contains('-') && !added.contains("ERR"), "{added}");
    eventually("what cannot be known counts as purged", || {
        (body(&node, "/red") == "2").then_some(())
    });
    // It is empty then, and has the right time.
    server.kill();
    server.restart();
    let red = json!({"tag": "red"});
    eventually("the others are told", || {
        is_written(&other.purge(&red)).then_some(())
    });
    eventually("the purge arrives", || {
        (body(&node, "/red") != "2").then_some(())
    });
    let lost = eventually("the loss is counted", || {
        node.ask("GET /v1/stats", "")["purges"]["lost"]
            .as_u64()
            .filter(|lost| *lost > 0)
    });
    assert!(lost <= 2, "once for each that was lost: {lost}");
    let metrics = node.ask_text("GET /metrics", "");
    assert!(
        metrics.contains(&format!("\nmicrocache_purge_log_losses_total {lost}\n")),
        "{metrics}"
    );
    let newest = body(&node, "/red");
    end(node.proxy);
    assert!(is_written(&other.purge(&red)));
    let node = Node::start(&origin, &with_disk);
    let after = body(&node, "/red");
    assert!(after != "2" && after != newest, "{after} after {newest}");
}

#[test]
fn an_unreadable_log_record_blocks_no_process() {
    let (origin, server) = (Origin::start(), TierServer::start(TierKind::Redis));
    counting(&origin);
    let [flag, address] = server.flags();
    let nodes = [(); 2].map(|()| Node::start(&origin, &[&flag, &address]));
    for odd in ["18446744073709551614-0 r x", "* r x more fields"] {
        let before: Vec<_> = nodes.iter().map(|node| body(node, "/red")).collect();
        let add = format!(
            "EVAL \"local key = redis.call('KEYS', 'mcl1:*')[1] return redis.call('XADD', key, '{}')\" 0",
            odd.replace(' ', "', '")
        );
        let added = server.say(&add);
        assert!(added.contains('-') && !added.contains("ERR"), "{added}");
        nodes[0].purge(&json!({"tag": "red"}));
        for (node, before) in nodes.iter().zip(before) {
            eventually("the purge arrives", || {
                (body(node, "/red") != before).then_some(())
            });
        }
        eventually("all are told", || nodes[0].is_told().then_some(()));
    }
}

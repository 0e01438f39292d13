//! Changes that are made on any of them.

use std::thread;

use super::{Nodes, key, next_event, put, until_is};
use crate::push::tag;
use crate::support::{Origin, Proxy, TierKind, TierServer, eventually};

const WATCH: &str = "/.well-known/microcache/watch?url=/live/*";

#[test]
fn a_change_on_one_is_an_event_on_all() {
    let nodes = Nodes::start(4);
    let mut all: Vec<_> = nodes
        .all
        .iter()
        .map(|it| it.subscribe(WATCH, &[]))
        .collect();
    let mut tags = Vec::new();
    for round in 0..40 {
        let target = format!("/live/{}", round % 3);
        let changed = nodes[round % 4].put(&target, &round.to_string());
        // Who has put it is given it at once.
        nodes[round % 4]
            .0
            .get(&target)
            .assert_is(200, &round.to_string());
        let tag = tag(&changed);
        // Before the next change of this document: a subscriber that is behind gets the latest version only.
        for events in &mut all {
            let (id, kind, data) = events.event();
            assert_eq!((kind.as_str(), format!("\"{id}\"")), ("put", tag.clone()));
            assert!(data.ends_with(&format!("\"value\":{round}}}")), "{data}");
        }
        tags.push(tag);
    }
    // All of them have the same, under the same version.
    for node in &nodes.all {
        until_is(node, "/live/0", "39");
        assert_eq!(tag(&node.0.get("/live/0")), tags[39]);
    }
    // The same bytes again are no event, wherever they are put.
    for node in &nodes.all {
        assert_eq!(tag(&node.put("/live/0", "39")), tags[39]);
    }
    nodes[1].put("/live/0", "40");
    for events in &mut all {
        assert!(next_event(events).1.ends_with("\"value\":40}"));
    }
}

#[test]
fn of_concurrent_conditional_writes_one_wins() {
    let nodes = Nodes::start(4);
    let text = "Content-Type: text/plain";
    let race = |condition: &str| {
        let results: Vec<_> = thread::scope(|scope| {
            let each = (0..16).map(|at| {
                let node = &nodes[at % 4];
                scope.spawn(move || {
                    let answer = node.publish(
                        "PUT",
                        "/live/x",
                        &[text, condition],
                        &format!("{at} {condition}"),
                    );
                    (answer.status, answer.field("etag").map(str::to_owned))
                })
            });
            let each: Vec<_> = each.collect();
            each.into_iter()
                .map(|it| it.join().expect("an answer"))
                .collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(|it| it.0 != 412);
        assert_eq!((won.len(), lost.len()), (1, 15), "{won:?}");
        won[0].1.clone().expect("an entity tag")
    };
    let mut now = race("If-None-Match: *");
    for _ in 0..10 {
        now = race(&format!("If-Match: {now}"));
    }
}

#[test]
fn patches_of_all_come_through() {
    let nodes = Nodes::start(4);
    nodes[0].put("/live/x", "{}");
    thread::scope(|scope| {
        for at in 0..8 {
            let node = &nodes[at % 4];
            scope.spawn(move || {
                for number in 0..10 {
                    let merge = ["Content-Type: application/merge-patch+json"];
                    let patch = format!(r#"{{"{at}-{number}":1}}"#);
                    let patched = node.publish("PATCH", "/live/x", &merge, &patch);
                    assert_eq!(patched.status, 204, "{}", patched.text());
                }
            });
        }
    });
    for node in &nodes.all {
        eventually("all of them", || {
            (node.0.get("/live/x").text().matches(":1").count() == 80).then_some(())
        });
    }
}

/// What a patch cannot be applied to is said of what there is, and not of what a node has come to.
#[test]
fn a_patch_applies_to_the_current_version() {
    let nodes = Nodes::start(2);
    for round in 0..50 {
        nodes[0].put("/live/x", &format!(r#"{{"n":{round}}}"#));
        let test = format!(
            r#"[{{"op":"test","path":"/n","value":{round}}},{{"op":"replace","path":"/n","value":-1}}]"#
        );
        let operations = ["Content-Type: application/json-patch+json"];
        let patch = || {
            nodes[1]
                .publish("PATCH", "/live/x", &operations, &test)
                .status
        };
        assert_eq!(patch(), 204);
        assert_eq!(patch(), 409);
    }
    nodes[0].publish("DELETE", "/live/x", &[], "");
    let merge = ["Content-Type: application/merge-patch+json"];
    assert_eq!(
        nodes[1].publish("PATCH", "/live/x", &merge, "{}").status,
        404
    );
    nodes[0].put("/live/new", "{}");
    assert_eq!(
        nodes[1]
            .publish("PATCH", "/live/new", &merge, "{\"a\":1}")
            .status,
        204
    );
}

/// Others change a document all the time, or so it seems to the node.
#[test]
fn a_failing_patch_blocks_no_other_write() {
    let nodes = Nodes::start(1);
    let documents = key("mcd1");
    nodes.redis.say(&format!(
        "HSET {documents} /live/busy \"1 0 1 0 0\\napplication/json\\n1\""
    ));
    let merge = ["Content-Type: application/merge-patch+json"];
    let patch = |target: &str| nodes[0].publish("PATCH", target, &merge, "{\"a\":1}");
    nodes[0].put("/live/x", "{}");
    let redis = || {
        let stats = nodes.redis.say("INFO commandstats");
        let (_, rest) = stats.split_once("cmdstat_evalsha:calls=")?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    thread::scope(|scope| {
        let before = redis();
        let in_vain: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| patch("/live/busy")))
            .collect();
        eventually("one to be tried", || {
            (redis() > before.map(|it| it + 100)).then_some(())
        });
        assert_eq!(patch("/live/x").status, 204);
        assert!(in_vain.iter().all(|it| !it.is_finished()));
        for busy in in_vain {
            let busy = busy.join().expect("an answer");
            assert_eq!(busy.status, 503);
            assert!(busy.text().contains("concurrent writes"), "{}", busy.text());
        }
    });
}

#[test]
fn a_subscriber_with_the_previous_version_gets_a_delta() {
    let nodes = Nodes::start(2);
    nodes[0].put("/live/x", r#"{"a":1,"text":"a long text that stays"}"#);
    let watch = "/.well-known/microcache/watch?url=/live/x&deltas=1";
    until_is(
        &nodes[1],
        "/live/x",
        r#"{"a":1,"text":"a long text that stays"}"#,
    );
    let mut events = nodes[1].subscribe(watch, &[]);
    assert_eq!(next_event(&mut events).0, "put");
    let merge = ["Content-Type: application/merge-patch+json"];
    nodes[0].publish("PATCH", "/live/x", &merge, r#"{"a":2}"#);
    let (kind, data) = next_event(&mut events);
    assert_eq!(kind, "patch", "{data}");
    assert!(data.ends_with(r#""patch":{"a":2}}"#), "{data}");
}

#[test]
fn an_expired_document_is_deleted_once() {
    let nodes = Nodes::start(4);
    let mut all: Vec<_> = nodes
        .all
        .iter()
        .map(|it| it.subscribe(WATCH, &[]))
        .collect();
    let fields = ["Content-Type: application/json", "Push-TTL: 1"];
    for number in 0..20 {
        let target = format!("/live/{number}");
        assert_eq!(nodes[0].publish("PUT", &target, &fields, "1").status, 201);
    }
    for events in &mut all {
        let kinds: Vec<_> = (0..40).map(|_| next_event(events).0).collect();
        assert!(kinds[..20].iter().all(|it| it == "put"), "{kinds:?}");
        assert!(kinds[20..].iter().all(|it| it == "delete"), "{kinds:?}");
    }
    nodes[3].put("/live/end", "1");
    for events in &mut all {
        assert!(next_event(events).1.contains("/live/end"));
    }
    // Put again in time, it stays.
    nodes[1].publish("PUT", "/live/x", &fields, "1");
    nodes[2].put("/live/x", "2");
    nodes[1].publish("PUT", "/live/y", &fields, "1");
    eventually("the other one to go", || {
        (nodes[3].0.get("/live/y").status == 404).then_some(())
    });
    for node in &nodes.all {
        node.0.get("/live/x").assert_is(200, "2");
    }
}

#[test]
fn each_node_applies_its_own_limit() {
    let nodes = Nodes::start(1);
    let (small, admin) = nodes.operated(&["--push-memory", "64KiB"]);
    let large = format!("\"{}\"", "x".repeat(40_000));
    assert_eq!(nodes[0].put("/live/a", &large).status, 201);
    assert_eq!(small.put("/live/b", &large).status, 507);
    assert_eq!(nodes[0].put("/live/b", &large).status, 201);
    // It holds what the others have taken, and says so.
    until_is(&small, "/live/b", &large);
    small
        .0
        .output_with("above this node's push_memory of 65536");
    let health = crate::support::Client::connect(admin)
        .get("/v1/health")
        .text();
    assert!(
        health.contains("exceed this node's push_memory"),
        "{health}"
    );
    // What becomes less is taken.
    assert_eq!(small.put("/live/a", "1").status, 204);
    assert_eq!(small.publish("DELETE", "/live/b", &[], "").status, 204);
    assert_eq!(small.put("/live/c", &large).status, 201);
}

#[test]
fn a_redis_that_may_evict_documents_is_reported_at_the_start() {
    let nodes = Nodes::start(1);
    nodes[0]
        .0
        .output_with("push_redis does not persist documents");
    let evicting = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];
    let nodes = Nodes::beside(TierServer::start_with(TierKind::Redis, &evicting), 1);
    nodes[0]
        .0
        .output_with("push_redis has maxmemory-policy allkeys-lru");
    let secret = TierServer::start_with(TierKind::Redis, &["--requirepass", "a-password"]);
    let url = Origin::start().url();
    let refused = |redis: &str| {
        let (_, next_event) = Proxy::refusal(&[&url, "--push", "/live/", "--push-redis", redis]);
        next_event
    };
    let next_event = refused(&secret.address());
    assert!(
        next_event.contains("push_redis: ") && next_event.contains("password required"),
        "{next_event}"
    );
    let next_event = refused("redis://:wrong@localhost:x");
    assert!(
        next_event.contains("push_redis: ") && !next_event.contains("wrong"),
        "{next_event}"
    );
    let flags = ["--push", "/live/", "--push-redis", "rediss://localhost"];
    let (_, next_event) =
        Proxy::refusal(&[&[&*url][..], &flags, &["--push-redis-ca", "/nowhere/ca"]].concat());
    assert!(next_event.contains("/nowhere/ca: "), "{next_event}");
    let with_password = secret.address().replace("://", "://:a-password@");
    let origin = Origin::start();
    let flags = ["--push", "/live/", "--push-redis", &with_password];
    Proxy::start(&origin, &flags).get("/live/x").assert_is(
        404,
        r#"{"detail":"there is no such document","status":404}"#,
    );
}

#[test]
fn a_redis_that_is_full_changes_nothing() {
    let full = ["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"];
    let nodes = Nodes::beside(TierServer::start_with(TierKind::Redis, &full), 2);
    let mut events = nodes[1].subscribe("/live/a", &[]);
    nodes[0].put("/live/a", "1");
    assert_eq!(next_event(&mut events), put("1"));
    let large = format!("\"{}\"", "x".repeat(500_000));
    let mut kept = 0;
    let refused = loop {
        let answer = nodes[0].put(&format!("/live/{kept}"), &large);
        if answer.status != 201 {
            break answer;
        }
        kept += 1;
    };
    assert_eq!(refused.status, 507);
    assert!(
        refused.text().contains("push_redis is out of memory"),
        "{}",
        refused.text()
    );
    assert_eq!(nodes[1].0.get(&format!("/live/{kept}")).status, 404);
    // What takes less is taken, whatever else is in Redis.
    nodes.redis.say("CONFIG SET maxmemory 1");
    assert_eq!(nodes[0].publish("DELETE", "/live/0", &[], "").status, 204);
    assert_eq!(nodes[0].put("/live/1", "\"short\"").status, 204);
    until_is(&nodes[1], "/live/1", "\"short\"");
    assert_eq!(nodes[0].put("/live/1", "\"longer\"").status, 507);
    let json = ["Content-Type: application/json"];
    let both =
        r#"[{"url":"/live/1","delete":true},{"url":"/live/new","value":"longer than it was"}]"#;
    let batch = nodes[1].publish("POST", "/live/batch", &json, both);
    assert_eq!(batch.status, 507, "{}", batch.text());
    nodes.redis.say("CONFIG SET maxmemory 100mb");
    assert_eq!(nodes[0].put("/live/a", "2").status, 204);
    assert_eq!(next_event(&mut events), put("2"));
}

#[test]
fn documents_lie_on_one_server_of_a_cluster() {
    let redis = TierServer::cluster_member(&[]);
    redis.say("CLUSTER ADDSLOTSRANGE 0 16383");
    eventually("the cluster", || {
        redis
            .say("CLUSTER INFO")
            .contains("cluster_state:ok")
            .then_some(())
    });
    let nodes = Nodes::beside(redis, 0);
    let (first, second) = (
        nodes.another(&["--push-redis-cluster"]),
        nodes.another(&["--push-redis-cluster"]),
    );
    let mut events = second.subscribe("/live/x", &[]);
    assert_eq!(first.put("/live/x", "1").status, 201);
    assert_eq!(next_event(&mut events), put("1"));
    assert_eq!(second.publish("DELETE", "/live/x", &[], "").status, 204);
    assert_eq!(next_event(&mut events).0, "delete");
}

/// At each step of the move, also while they are there and the cluster does not say so yet.
#[test]
fn documents_are_changed_and_watched_while_a_cluster_moves_them() {
    let [from, to] = [(); 2].map(|()| TierServer::cluster_member(&[]));
    from.say("CLUSTER ADDSLOTSRANGE 0 16383");
    from.say(&format!(
        "CLUSTER MEET 127.0.0.1 {} {}",
        to.port(),
        to.bus()
    ));
    eventually("the cluster", || {
        let all = [&from, &to].map(|it| it.say("CLUSTER INFO"));
        let are_in =
            |it: &String| it.contains("cluster_state:ok") && it.contains("cluster_known_nodes:2");
        all.iter().all(are_in).then_some(())
    });
    let nodes = Nodes::beside(from, 0);
    let flags = ["--push-redis-cluster", "--push-history", "3"];
    let (first, second) = (nodes.another(&flags), nodes.another(&flags));
    let mut events = second.subscribe("/live/x", &[]);
    let mut number = 0;
    let mut change = |statuses: &[u16]| {
        number += 1;
        let value = number.to_string();
        let status = first.put("/live/x", &value).status;
        assert!(statuses.contains(&status), "{number}: {status}");
        if status != 503 {
            assert_eq!(next_event(&mut events), put(&value));
        }
        status != 503
    };
    change(&[201]);
    let keys = ["mcd1", "mcd1c", "mcd1h"].map(key);
    let slot = nodes.redis.say(&format!("CLUSTER KEYSLOT {}", keys[0]));
    let ids = [&nodes.redis, &to].map(|it| it.say("CLUSTER MYID"));
    to.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]));
    let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]);
    nodes.redis.say(&migrating);
    change(&[204]);
    let (port, keys) = (to.port(), keys.join(" "));
    let migrate = format!("MIGRATE 127.0.0.1 {port} \"\" 0 5000 KEYS {keys}");
    nodes.redis.say(&migrate);
    for _ in 0..20 {
        change(&[204]);
    }
    for server in [&to, &nodes.redis] {
        server.say(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1]));
    }
    eventually("the new place", || change(&[204, 503]).then_some(()));
    change(&[204]);
}

/// docs/push.md names what a user has to be allowed.
#[test]
fn a_redis_user_with_the_documented_rights_suffices() {
    let nodes = Nodes::start(0);
    let allowed =
        "evalsha eval hscan xrange xread ping time hget hmget hset hdel del xadd xrevrange";
    let allowed: Vec<_> = allowed.split(' ').map(|it| format!("+{it}")).collect();
    let user = format!("ACL SETUSER user on >password ~mcd1* {}", allowed.join(" "));
    nodes.redis.say(&user);
    let redis = nodes.redis.address().replace("://", "://user:password@");
    let node = nodes.kept.start(&nodes.origin, &["--push-redis", &redis]);
    let mut events = node.subscribe("/live/x", &[]);
    let fields = ["Content-Type: application/json", "Push-TTL: 1"];
    assert_eq!(node.publish("PUT", "/live/x", &fields, "1").status, 201);
    assert_eq!(next_event(&mut events), put("1"));
    assert_eq!(next_event(&mut events).0, "delete");
    assert_eq!(node.put("/live/x", "2").status, 201);
    assert_eq!(node.publish("DELETE", "/live/x", &[], "").status, 204);
    let late = nodes.kept.start(&nodes.origin, &["--push-redis", &redis]);
    assert_eq!(late.0.get("/live/x").status, 404);
}

/// Another program has written there.
#[test]
fn foreign_data_in_redis_is_ignored() {
    let nodes = Nodes::start(1);
    nodes[0].put("/live/x", "1");
    let documents = key("mcd1");
    nodes
        .redis
        .say(&format!("HSET {documents} /live/y nonsense"));
    nodes.redis.say(&format!(
        "HSET {documents} /live/../z \"1 0 1 0 0\\ntext/plain\\nz\""
    ));
    nodes.redis.say(&format!(
        "HSET {documents} \"/live/\\xff\" \"1 0 1 0 0\\ntext/plain\\nz\""
    ));
    let for_ever = u64::MAX;
    nodes.redis.say(&format!(
        "HSET {documents} /live/old \"1 {for_ever} 1 0 0\\ntext/plain\\nold\""
    ));
    let late = nodes.another(&[]);
    late.0.output_with("an entry that is not a document");
    late.0.get("/live/x").assert_is(200, "1");
    assert_eq!(late.0.get("/live/y").status, 404);
    late.0.get("/live/old").assert_is(200, "old");
    let mut events = late.subscribe(WATCH, &[]);
    assert!(next_event(&mut events).1.contains("/live/old"));
    assert!(next_event(&mut events).1.contains("/live/x"));
    // It can be put right.
    nodes[0].put("/live/y", "2");
    assert!(next_event(&mut events).1.contains("/live/y"));
}

#[test]
fn an_id_of_a_time_to_come_begins_anew() {
    let nodes = Nodes::start(1);
    let now = tag(&nodes[0].put("/live/x", "1"));
    let (epoch, _) = now.trim_matches('"').split_once('.').expect("a version");
    for number in [
        "18446744073709551615",
        "9007199254740993",
        "0-18446744073709551615",
    ] {
        let seen = format!("Last-Event-ID: {epoch}.{number}");
        let mut events = nodes[0].subscribe("/live/x", &[&seen]);
        assert_eq!(next_event(&mut events).0, "reset", "{number}");
        assert_eq!(next_event(&mut events), put("1"));
    }
}

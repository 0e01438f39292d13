//! Redis is away for a while.

use std::time::Instant;

use super::relay::Relay;
use super::{Nodes, next_event, put, until_is};
use crate::push::Live;
use crate::support::{Client, Proxy, TierKind, TierServer, eventually, free_port};

fn metric(admin: std::net::SocketAddr, name: &str) -> String {
    let mut client = Client::connect(admin);
    client.send(format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    let text = client.response().text();
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.expect("a metric").to_owned()
}

#[test]
fn documents_are_served_and_watched_during_an_outage() {
    let mut nodes = Nodes::start(1);
    let (node, admin) = nodes.operated(&[]);
    node.put("/live/x", "1");
    let mut events = node.subscribe("/live/x", &[]);
    assert_eq!(next_event(&mut events), put("1"));
    for round in 2..5 {
        let before = metric(admin, "microcache_push_redis_outages_total");
        nodes.redis.freeze();
        // It would wait for ever.
        let refused = node.put("/live/x", "\"never\"");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.field("retry-after"), Some("1"));
        assert!(
            refused
                .text()
                .contains("unknown whether the change was made"),
            "{}",
            refused.text()
        );
        eventually("it to be noticed", || {
            (metric(admin, "microcache_push_redis_connected") == "0").then_some(())
        });
        assert_ne!(metric(admin, "microcache_push_redis_outages_total"), before);
        // No request waits by now.
        let refused = node.put("/live/x", "\"never\"");
        assert_eq!(refused.status, 503);
        assert!(
            refused.text().contains("nothing was changed"),
            "{}",
            refused.text()
        );
        node.0.get("/live/x").assert_hit();
        let mut late = node.subscribe("/live/x", &[]);
        assert_eq!(next_event(&mut late).0, "put");
        let health = Client::connect(admin).get("/v1/health").text();
        assert!(health.contains("writes are rejected"), "{health}");
        let ready = Client::connect(admin).get("/v1/ready");
        assert_eq!(ready.status, 200, "it has all documents");
        nodes.redis.thaw();
        eventually("it to be there again", || {
            matches!(node.put("/live/x", &round.to_string()).status, 201 | 204).then_some(())
        });
        while next_event(&mut events) != put(&round.to_string()) {}
        eventually("it to be heard", || {
            (metric(admin, "microcache_push_redis_connected") == "1").then_some(())
        });
    }
    // It is said once for each time, and not for each request.
    let output = node.0.output_with("push_redis is reachable again");
    assert_eq!(
        output.matches("documents are served unchanged").count(),
        3,
        "{output}"
    );
    nodes.redis.kill();
    eventually("it to be noticed", || {
        (metric(admin, "microcache_push_redis_connected") == "0").then_some(())
    });
    node.0.get("/live/x").assert_is(200, "4");
}

/// However many ask, none waits longer than one would.
#[test]
fn a_frozen_redis_delays_requests_only_briefly() {
    let nodes = Nodes::start(1);
    nodes[0].put("/live/x", "{}");
    nodes.redis.freeze();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for at in 0..20 {
            let node = &nodes[0];
            scope.spawn(move || {
                let merge = ["Content-Type: application/merge-patch+json"];
                let answer = if at % 2 == 0 {
                    node.put("/live/x", &at.to_string())
                } else {
                    node.publish("PATCH", "/live/x", &merge, &format!("{{\"a\":{at}}}"))
                };
                assert_eq!(answer.status, 503);
            });
        }
    });
    // Two seconds each, were they one after the other.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    nodes.redis.thaw();
}

#[test]
fn a_node_without_documents_answers_503() {
    let redis = TierServer::start(TierKind::Redis);
    let mut nodes = Nodes::beside(redis, 1);
    nodes[0].put("/live/x", "1");
    nodes.redis.freeze();
    let (late, admin) = nodes.operated(&[]);
    late.0.output_with("no documents yet");
    for fields in [&[][..], &["Accept: text/event-stream"]] {
        let answer = late.0.get_with("/live/x", fields);
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!(answer.field("retry-after"), Some("1"));
    }
    assert_eq!(Client::connect(admin).get("/v1/ready").status, 503);
    nodes.redis.thaw();
    until_is(&late, "/live/x", "1");
    assert_eq!(Client::connect(admin).get("/v1/ready").status, 200);
    // The same without any server.
    nodes.redis.kill();
    let nowhere = format!("redis://127.0.0.1:{}", free_port());
    let flags = ["--push", "/live/", "--push-redis", &nowhere];
    let alone = Proxy::start(&nodes.origin, &flags);
    assert_eq!(alone.get("/live/x").status, 503);
}

/// However many they are.
#[test]
fn all_that_has_had_its_time_is_not_answered_while_redis_is_away() {
    let nodes = Nodes::start(1);
    let each: Vec<_> = (0..600)
        .map(|at| format!(r#"{{"url":"/live/{at}","value":1,"ttl":1}}"#))
        .collect();
    let json = ["Content-Type: application/json"];
    let batch = format!("[{}]", each.join(","));
    let answer = nodes[0].publish("POST", "/live/batch", &json, &batch);
    assert_eq!(answer.status, 200, "{}", answer.text());
    nodes.redis.freeze();
    for at in 0..600 {
        let target = format!("/live/{at}");
        eventually("it to be hidden", || {
            (nodes[0].0.get(&target).status == 404).then_some(())
        });
    }
    nodes.redis.thaw();
}

/// Its disk is full, say: it rejects writes, and can be read.
#[test]
fn a_redis_that_refuses_writes_is_read_and_reported() {
    let nodes = Nodes::start(1);
    // Redis 6 takes this for nothing if it is an argument.
    nodes.redis.say("CONFIG SET save \"3600 1\"");
    nodes[0].put("/live/x", "1");
    // Where the file belongs.
    let dump = nodes.redis.folder().file("dump.rdb");
    std::fs::create_dir(dump).expect("a directory");
    nodes.redis.say("BGSAVE");
    eventually("it to fail", || {
        let info = nodes.redis.say("INFO persistence");
        info.contains("rdb_last_bgsave_status:err").then_some(())
    });
    let (late, admin) = nodes.operated(&[]);
    late.0.get("/live/x").assert_is(200, "1");
    let health = || Client::connect(admin).get("/v1/health").text();
    for node in [&nodes[0], &late] {
        let refused = node.put("/live/x", "2");
        assert_eq!(refused.status, 503);
        let next_event = refused.text();
        assert!(
            next_event.contains("nothing was changed") && next_event.contains("MISCONF"),
            "{next_event}"
        );
        node.0.output_with("push_redis rejects writes");
    }
    assert!(health().contains("push_redis rejects writes"));
    nodes.redis.say("CONFIG SET stop-writes-on-bgsave-error no");
    assert_eq!(late.put("/live/x", "2").status, 204);
    assert!(!health().contains("push_redis rejects writes"));
    let next_event = late.0.output();
    assert_eq!(next_event.matches("push_redis rejects writes").count(), 1);
}

/// A load balancer stands before two servers that know nothing of each other.
#[test]
fn a_read_only_replica_is_reported() {
    let (nodes, other) = (Nodes::start(0), TierServer::start(TierKind::Redis));
    let relay = Relay::between(vec![nodes.redis.port(), other.port()]);
    let flags = ["--push", "/live/", "--push-redis", &relay.address()];
    let token = nodes.kept.token();
    let (node, admin) = Proxy::operated(
        &nodes.origin,
        &[&flags[..], &["--push-token-file", &token]].concat(),
    );
    let node = Live(node);
    assert_eq!(node.put("/live/x", "1").status, 201);
    assert_eq!(node.0.get("/live/x").status, 404);
    node.0.output_with("missing where this node reads");
    let health = Client::connect(admin).get("/v1/health").text();
    assert!(health.contains("missing where this node reads"), "{health}");
}

/// Its time is over although subscribers cannot be notified yet.
#[test]
fn expired_documents_are_404_during_an_outage() {
    let nodes = Nodes::start(2);
    let mut events = nodes[1].subscribe("/live/x", &[]);
    let fields = ["Content-Type: application/json", "Push-TTL: 1"];
    assert_eq!(nodes[0].publish("PUT", "/live/x", &fields, "1").status, 201);
    assert_eq!(next_event(&mut events), put("1"));
    nodes.redis.freeze();
    for node in &nodes.all {
        eventually("it to be hidden", || {
            (node.0.get("/live/x").status == 404).then_some(())
        });
    }
    nodes.redis.thaw();
    assert_eq!(next_event(&mut events).0, "delete");
    eventually("Redis", || {
        matches!(nodes[1].put("/live/x", "2").status, 201 | 204).then_some(())
    });
    assert_eq!(next_event(&mut events), put("2"), "it went once");
}

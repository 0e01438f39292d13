//! Nodes that were away, and subscribers that come back to another one.

use super::relay::Relay;
use super::{Nodes, key, lasting, next_event, put, until_is};
use crate::push::{Live, tag};
use crate::support::{Events, Signal, eventually};

const WATCH: &str = "/.well-known/microcache/watch?url=/live/*";

/// What is answered as soon as Redis is reached.
fn unless_away(ask: impl Fn() -> u16) -> u16 {
    eventually("Redis", || Some(ask()).filter(|status| *status != 503))
}

fn resume(node: &Live, target: &str, seen: &str) -> Events {
    node.subscribe(target, &[&format!("Last-Event-ID: {seen}")])
}

#[test]
fn a_subscriber_on_another_node_gets_the_missed_changes() {
    let nodes = Nodes::start(3);
    nodes[0].put("/live/x", "1");
    nodes[0].put("/live/gone", "1");
    let mut events = nodes[0].subscribe(WATCH, &[]);
    let (_, first) = next_event(&mut events);
    assert!(first.contains("/live/x"), "{first}");
    let (seen, ..) = events.event();
    drop(events);
    nodes[1].put("/live/x", "2");
    nodes[2].put("/live/y", "1");
    nodes[2].put("/live/y", "2");
    nodes[1].publish("DELETE", "/live/gone", &[], "");
    let fresh = nodes.another(&[]);
    for node in nodes.all.iter().chain([&fresh]) {
        eventually("all of it", || {
            (node.0.get("/live/gone").status == 404).then_some(())
        });
        let mut events = resume(node, WATCH, &seen);
        for end in ["\"value\":2}", "\"value\":2}", "\"url\":\"/live/gone\"}"] {
            let (kind, data) = next_event(&mut events);
            assert!(data.ends_with(end) && kind != "reset", "{kind} {data}");
        }
    }
}

/// A subscriber may have been told by another node of what has not come to this one yet.
#[test]
fn changes_delivered_elsewhere_are_not_repeated() {
    let nodes = Nodes::start(2);
    let mut events = nodes[0].subscribe(WATCH, &[]);
    for round in 0..20 {
        nodes[1].0.freeze();
        nodes[0].put("/live/x", &format!("{round}"));
        let (seen, ..) = events.event();
        // It is asked before it goes on, and answers before it has read.
        let mut client = nodes[1].0.connect();
        let fields = [
            "Accept: text/event-stream",
            &*format!("Last-Event-ID: {seen}"),
        ];
        client.send(crate::support::request("GET", WATCH, &fields));
        nodes[1].0.thaw();
        let mut back = Events::begin(client);
        nodes[0].put("/live/y", &format!("{round}"));
        let (kind, data) = next_event(&mut back);
        assert!(kind == "put" && data.contains("/live/y"), "{kind} {data}");
        assert!(events.data().contains("/live/y"));
    }
}

#[test]
fn a_node_that_was_killed_has_everything_again() {
    let mut nodes = Nodes::start(2);
    nodes[0].put("/live/x", "1");
    nodes[0].put("/live/gone", "1");
    let seen = tag(&nodes[0].put("/live/y", "1"));
    let mut live = nodes.all.remove(0);
    live.0.signal(Signal::KILL);
    live.0.wait();
    nodes[0].publish("DELETE", "/live/gone", &[], "");
    nodes[0].put("/live/x", "2");
    let again = nodes.another(&[]);
    again.0.get("/live/x").assert_is(200, "2");
    again.0.get("/live/y").assert_is(200, "1");
    assert_eq!(again.0.get("/live/gone").status, 404);
    let mut events = resume(&again, WATCH, seen.trim_matches('"'));
    assert_eq!(next_event(&mut events).0, "delete");
    assert!(next_event(&mut events).1.ends_with("\"value\":2}"));
}

#[test]
fn a_node_that_stood_still_catches_up() {
    let nodes = Nodes::start(2);
    nodes[0].put("/live/x", "0");
    let mut events = nodes[1].subscribe("/live/x", &[]);
    assert_eq!(next_event(&mut events), put("0"));
    nodes[1].0.freeze();
    for number in 1..=2000 {
        assert_eq!(nodes[0].put("/live/x", &number.to_string()).status, 204);
    }
    nodes[1].0.thaw();
    // The latest counts, and there is no other one before it that it would begin anew with.
    let mut last = 0;
    while last < 2000 {
        let (kind, data) = next_event(&mut events);
        let number = data.parse().expect("a number");
        assert!(kind == "put" && number > last, "{kind} {data} after {last}");
        last = number;
    }
}

/// The stream does not go back as far as what the node had come to.
#[test]
fn a_subscriber_that_missed_forgotten_changes_is_reset() {
    let nodes = Nodes::start(2);
    for name in ["gone", "changed", "same"] {
        nodes[0].put(&format!("/live/{name}"), "1");
    }
    until_is(&nodes[1], "/live/same", "1");
    let [mut gone, mut changed, mut same] = ["gone", "changed", "same"].map(|name| {
        let mut events = nodes[1].subscribe(&format!("/live/{name}"), &[]);
        assert_eq!(next_event(&mut events), put("1"));
        events
    });
    let mut all = nodes[1].subscribe(WATCH, &[]);
    let seen = (0..3).map(|_| all.event().0).last().expect("three of them");
    nodes[1].0.freeze();
    nodes[0].publish("DELETE", "/live/gone", &[], "");
    nodes[0].put("/live/changed", "2");
    let mut here = nodes[0].subscribe("/live/changed", &[]);
    assert_eq!(next_event(&mut here), put("2"));
    nodes.redis.say(&format!("XTRIM {} MAXLEN 1", key("mcd1c")));
    nodes[1].0.thaw();
    assert_eq!(next_event(&mut changed).0, "reset");
    assert_eq!(next_event(&mut changed), put("2"));
    assert_eq!(next_event(&mut gone).0, "reset");
    assert_eq!(next_event(&mut all).0, "reset");
    let urls: Vec<_> = (0..2).map(|_| next_event(&mut all).1).collect();
    assert!(
        urls[0].contains("/live/same") && urls[1].contains("/live/changed"),
        "{urls:?}"
    );
    assert_eq!(nodes[1].0.get("/live/gone").status, 404);
    // Nothing has happened to it, which it may not have found out yet.
    nodes[0].put("/live/same", "2");
    let next = next_event(&mut same);
    assert!(
        next == put("2") || next.0 == "reset" && next_event(&mut same) == put("2"),
        "{next:?}"
    );
    nodes[0].put("/live/gone", "3");
    assert_eq!(next_event(&mut gone), put("3"));
    assert!(next_event(&mut all).1.contains("/live/same"));
    assert!(next_event(&mut all).1.contains("/live/gone"));
    // A later subscriber with a forgotten version is reset too, and one that has missed nothing is not.
    assert_eq!(next_event(&mut resume(&nodes[1], WATCH, &seen)).0, "reset");
    nodes[0].put("/live/changed", "3");
    assert_eq!(next_event(&mut here), put("3"));
}

#[test]
fn a_redis_that_begins_anew_has_all_begin_anew() {
    let mut nodes = Nodes::start(2);
    nodes[0].put("/live/x", "1");
    let mut streams: Vec<_> = nodes
        .all
        .iter()
        .map(|it| it.subscribe("/live/x", &[]))
        .collect();
    let seen: Vec<_> = streams.iter_mut().map(|it| it.event().0).collect();
    nodes.redis.kill();
    nodes.redis.restart();
    for events in &mut streams {
        assert_eq!(next_event(events).0, "reset");
    }
    for node in &nodes.all {
        eventually("the document to be gone", || {
            (node.0.get("/live/x").status == 404).then_some(())
        });
        node.0.output_with("push_redis has lost its data");
    }
    // New versions are not mistaken for old ones.
    let condition = format!("If-Match: \"{}\"", seen[0]);
    let json = "Content-Type: application/json";
    let refused = || {
        nodes[1]
            .publish("PUT", "/live/x", &[json, &condition], "2")
            .status
    };
    assert_eq!(unless_away(refused), 412);
    assert_eq!(nodes[1].put("/live/x", "2").status, 201);
    for events in &mut streams {
        assert_eq!(next_event(events), put("2"));
    }
    let mut late = resume(&nodes[0], "/live/x", &seen[0]);
    assert_eq!(next_event(&mut late).0, "reset");
    assert_eq!(next_event(&mut late), put("2"));
    // So it is where everything is removed, or one of the two keys.
    for (number, command) in [
        "FLUSHALL".to_owned(),
        format!("DEL {}", key("mcd1")),
        format!("DEL {}", key("mcd1c")),
    ]
    .into_iter()
    .enumerate()
    {
        nodes.redis.say(&command);
        let value = format!("{}", number + 3);
        let status = unless_away(|| nodes[0].put("/live/x", &value).status);
        assert!(matches!(status, 201 | 204), "{status}");
        for events in &mut streams {
            assert_eq!(next_event(events).0, "reset", "{command}");
            let mut now = next_event(events);
            if command.contains("mcd1c") && now == put("4") {
                now = next_event(events);
            }
            assert_eq!(now, put(&value), "{command}");
        }
    }
}

/// It comes back with what it had a while ago, as a replica may that takes over.
#[test]
fn changes_that_redis_has_lost_are_not_taken_for_others() {
    let mut nodes = Nodes::start(2);
    nodes[0].put("/live/x", "1");
    nodes.redis.say("SAVE");
    let mut events = nodes[1].subscribe("/live/x", &[]);
    assert_eq!(next_event(&mut events), put("1"));
    nodes[0].put("/live/x", "2");
    let (seen, ..) = events.event();
    nodes.redis.kill();
    nodes.redis.restart();
    assert_eq!(next_event(&mut events).0, "reset");
    assert_eq!(next_event(&mut events), put("1"));
    for node in &nodes.all {
        until_is(node, "/live/x", "1");
        let mut late = resume(node, "/live/x", &seen);
        assert_eq!(next_event(&mut late).0, "reset");
        assert_eq!(next_event(&mut late), put("1"));
    }
    assert_eq!(unless_away(|| nodes[1].put("/live/x", "3").status), 204);
    assert_eq!(next_event(&mut events), put("3"));
}

/// The power fails on all nodes: only subscribers still know of the lost versions.
#[test]
fn a_subscriber_with_lost_versions_is_reset_on_a_node_without_them() {
    let mut nodes = Nodes::start(1);
    nodes[0].put("/live/x", "1");
    let mut events = nodes[0].subscribe("/live/x", &[]);
    let (kept, ..) = events.event();
    nodes.redis.say("SAVE");
    nodes[0].put("/live/x", "2");
    let (lost, ..) = events.event();
    nodes.all.clear();
    nodes.redis.kill();
    nodes.redis.restart();
    let again = nodes.another(&[]);
    let watch = |seen: &str| format!("/.well-known/microcache/watch?url=/live/x&{seen}");
    for target in [
        watch(&format!("last_event_id={lost}")),
        watch(&format!(
            "last_event_id={kept}-{}",
            &lost[lost.find('.').expect("a version") + 1..]
        )),
        watch(&format!("version={lost}")),
    ] {
        let mut events = again.subscribe(&target, &[]);
        assert_eq!(next_event(&mut events).0, "reset", "{target}");
        assert!(next_event(&mut events).1.ends_with("\"value\":1}"));
    }
    let mut back = resume(&again, "/live/x", &lost);
    assert_eq!(next_event(&mut back).0, "reset");
    assert_eq!(next_event(&mut back), put("1"));
    let mut others = resume(&again, "/live/x", &kept);
    again.put("/live/x", "3");
    assert_eq!(next_event(&mut others), put("3"), "and no reset");
}

/// It comes while Redis is away to a node that has never been there; what is lost is found when that can be read again.
#[test]
fn a_subscriber_with_lost_versions_during_an_outage_is_reset_afterwards() {
    let mut nodes = Nodes::start(1);
    let relay = Relay::start(nodes.redis.port());
    let far = nodes
        .kept
        .start(&nodes.origin, &["--push-redis", &relay.address()]);
    nodes[0].put("/live/x", "1");
    nodes[0].put("/live/y", "1");
    nodes.redis.say("SAVE");
    until_is(&far, "/live/y", "1");
    relay.cut();
    let kept = tag(&nodes[0].0.get("/live/y"));
    let lost = tag(&nodes[0].put("/live/x", "2"));
    let [kept, lost] = [kept, lost].map(|it| it.trim_matches('"').to_owned());
    nodes.all.clear();
    nodes.redis.kill();
    let version = format!("/.well-known/microcache/watch?url=/live/x&version={lost}");
    let mut streams = [
        resume(&far, "/live/x", &lost),
        resume(&far, WATCH, &lost),
        far.subscribe(&version, &[]),
    ];
    let mut others = resume(&far, "/live/y", &kept);
    nodes.redis.restart();
    // A later version follows the lost ones, and is not mistaken for all of them.
    let again = nodes.another(&[]);
    assert_eq!(again.put("/live/y", "2").status, 204);
    relay.mend();
    for events in &mut streams {
        assert_eq!(next_event(events).0, "reset");
        let (kind, data) = next_event(events);
        assert!(
            kind == "put" && data.ends_with('1') || data.ends_with("\"value\":1}"),
            "{data}"
        );
    }
    assert_eq!(next_event(&mut others), put("2"), "and no reset");
    // Where nothing follows, they are reset too.
    nodes.redis.say("SAVE");
    relay.cut();
    let lost = tag(&again.put("/live/x", "3"));
    let mut events = resume(&far, "/live/x", lost.trim_matches('"'));
    drop(again);
    nodes.redis.kill();
    nodes.redis.restart();
    relay.mend();
    assert_eq!(next_event(&mut events).0, "reset");
}

/// The same where the server's clock was set back, so that numbers are ahead of it.
#[test]
fn a_number_that_redis_has_lost_is_not_given_again() {
    let mut nodes = Nodes::start(2);
    nodes[0].put("/live/x", "1");
    let ahead = 4_000_000_000_000_000_u64;
    nodes.redis.say(&format!(
        "EVAL \"redis.call('HSET', KEYS[1], 'newest', {ahead}) return redis.call('XADD', KEYS[2], '{ahead}-0', 'begins', '')\" 2 {} {}",
        key("mcd1"),
        key("mcd1c")
    ));
    nodes.redis.say("SAVE");
    nodes[0].put("/live/x", "2");
    until_is(&nodes[1], "/live/x", "2");
    nodes.all.iter().for_each(|node| node.0.freeze());
    nodes.redis.kill();
    nodes.redis.restart();
    assert_eq!(nodes.another(&[]).put("/live/y", "3").status, 201);
    for node in &nodes.all {
        node.0.thaw();
        until_is(node, "/live/y", "3");
        node.0.get("/live/x").assert_is(200, "1");
    }
}

/// So many that they come in many pages, while others are changed.
#[test]
fn a_late_node_loads_all_documents_during_changes() {
    let nodes = Nodes::start(1);
    let batch = |from: usize, value: usize| {
        let each: Vec<_> = (from..from + 500)
            .map(|at| format!(r#"{{"url":"/live/{at}","value":{value}}}"#))
            .collect();
        let body = format!("[{}]", each.join(","));
        let json = ["Content-Type: application/json"];
        let answer = nodes[0].publish("POST", "/live/batch", &json, &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    for from in 0..8 {
        batch(from * 500, 0);
    }
    let late = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for value in 1..4 {
                for from in 0..8 {
                    batch(from * 500, value);
                }
            }
        });
        let late = nodes.another(&[]);
        writing.join().expect("it is written");
        late
    });
    for at in 0..4000 {
        until_is(&late, &format!("/live/{at}"), "3");
    }
}

/// One node does not reach Redis, and the others do.
#[test]
fn a_node_without_redis_goes_on_and_catches_up() {
    let mut nodes = Nodes::start(1);
    let relay = Relay::start(nodes.redis.port());
    let far = nodes
        .kept
        .start(&nodes.origin, &["--push-redis", &relay.address()]);
    nodes[0].put("/live/x", "1");
    let mut events = far.subscribe("/live/x", &[]);
    assert_eq!(next_event(&mut events), put("1"));
    for round in 2..5 {
        relay.cut();
        let value = round.to_string();
        assert_eq!(nodes[0].put("/live/x", &value).status, 204);
        let before = (round - 1).to_string();
        far.0.get("/live/x").assert_is(200, &before);
        assert_eq!(far.put("/live/x", "9").status, 503);
        assert_eq!(next_event(&mut far.subscribe("/live/x", &[])), put(&before));
        relay.mend();
        assert_eq!(next_event(&mut events), put(&value), "and no reset");
        until_is(&far, "/live/x", &value);
        let status = unless_away(|| far.put("/live/y", &value).status);
        assert!(matches!(status, 201 | 204), "{status}");
        until_is(&nodes[0], "/live/y", &value);
    }
    // Others begin anew meanwhile.
    relay.cut();
    nodes.redis.kill();
    nodes.redis.restart();
    unless_away(|| nodes[0].put("/live/z", "1").status);
    relay.mend();
    assert_eq!(next_event(&mut events).0, "reset");
    until_is(&far, "/live/z", "1");
    assert_eq!(far.0.get("/live/x").status, 404);
}

#[test]
fn a_redis_that_is_killed_and_has_written_everything_down_has_lost_nothing() {
    let mut nodes = Nodes::beside(lasting(), 2);
    let mut all: Vec<_> = nodes
        .all
        .iter()
        .map(|it| it.subscribe("/live/x", &[]))
        .collect();
    for round in 0..5 {
        let value = round.to_string();
        let status = unless_away(|| nodes[round % 2].put("/live/x", &value).status);
        assert!(matches!(status, 201 | 204), "{status}");
        for events in &mut all {
            assert_eq!(next_event(events), put(&value), "and no reset");
        }
        nodes.redis.kill();
        nodes.redis.restart();
    }
}

//! Several nodes that remember more than the latest version of each document.

use super::relay::Relay;
use super::{Nodes, key, next_event, put, until_is};
use crate::push::{Live, tag};
use crate::support::{Events, Signal, eventually};

const WATCH: &str = "/.well-known/microcache/watch?url=/live/*";

/// So many nodes, which remember so many versions.
fn nodes(count: usize, versions: &'static str) -> Nodes {
    let mut nodes = Nodes::start(0);
    for _ in 0..count {
        let node = another(&nodes, versions);
        nodes.all.push(node);
    }
    nodes
}

fn another(nodes: &Nodes, versions: &str) -> Live {
    nodes.another(&["--push-history", versions])
}

fn resume(node: &Live, target: &str, seen: &str) -> Events {
    node.subscribe(target, &[&format!("Last-Event-ID: {seen}")])
}

fn version(node: &Live, value: &str) -> String {
    let put = node.put("/live/x", value);
    tag(&put).trim_matches('"').to_owned()
}

fn gap() -> (String, String) {
    ("gap".to_owned(), r#"{"event":"gap"}"#.to_owned())
}

#[test]
fn each_node_delivers_each_version() {
    let nodes = nodes(3, "100");
    nodes[0].put("/live/x", "0");
    let mut all: Vec<_> = nodes
        .all
        .iter()
        .flat_map(|node| {
            until_is(node, "/live/x", "0");
            [node.subscribe("/live/x", &[]), node.subscribe(WATCH, &[])]
        })
        .collect();
    // Two nodes come to them while they are made, and one when all are there.
    nodes[2].0.freeze();
    for number in 1..=90 {
        nodes[number % 2].put("/live/x", &number.to_string());
    }
    nodes[2].0.thaw();
    for events in &mut all {
        for number in 0..=90 {
            let (kind, data) = next_event(events);
            let value = data.rsplit(':').next().unwrap_or_default();
            let value = value.trim_end_matches('}');
            assert_eq!((&*kind, value), ("put", &*number.to_string()));
        }
    }
    // The changes of one batch to one document are delivered step by step, too.
    let each: Vec<_> = (91..=99)
        .map(|value| format!(r#"{{"url":"/live/x","value":{value}}}"#))
        .collect();
    let batch = format!("[{}]", each.join(","));
    let json = ["Content-Type: application/json"];
    nodes[0].publish("POST", "/live/batch", &json, &batch);
    for events in all.iter_mut().step_by(2) {
        for number in 91..=99 {
            assert_eq!(next_event(events), put(&number.to_string()));
        }
    }
}

#[test]
fn a_subscriber_on_another_node_gets_each_version_or_a_gap() {
    let mut nodes = nodes(2, "3");
    let seen = version(&nodes[0], "1");
    for value in ["2", "3", "4"] {
        nodes[0].put("/live/x", value);
    }
    until_is(&nodes[1], "/live/x", "4");
    let late = another(&nodes, "3");
    nodes.all.push(late);
    for node in &nodes.all {
        let mut events = resume(node, "/live/x", &seen);
        for value in ["2", "3", "4"] {
            assert_eq!(next_event(&mut events), put(value));
        }
        // Who knows nothing gets what there is.
        assert_eq!(next_event(&mut node.subscribe("/live/x", &[])), put("4"));
    }
    nodes[0].put("/live/x", "5");
    // A node that was killed has what Redis has.
    let mut killed = nodes.all.remove(0);
    killed.0.signal(Signal::KILL);
    killed.0.wait();
    let again = another(&nodes, "3");
    nodes.all.push(again);
    for node in &nodes.all {
        until_is(node, "/live/x", "5");
        let mut events = resume(node, "/live/x", &seen);
        for expected in [gap(), put("3"), put("4"), put("5")] {
            assert_eq!(next_event(&mut events), expected);
        }
    }
}

/// The gap is sent before any later event, so that it is not skipped.
#[test]
fn a_node_that_missed_more_than_the_history_sends_a_gap() {
    let nodes = nodes(2, "3");
    nodes[0].put("/live/x", "0");
    nodes[0].put("/live/y", "0");
    until_is(&nodes[1], "/live/y", "0");
    let mut events = nodes[1].subscribe("/live/x", &[]);
    assert_eq!(next_event(&mut events), put("0"));
    let mut both = nodes[1].subscribe(WATCH, &[]);
    both.event();
    let (seen, ..) = both.event();
    nodes[1].0.freeze();
    for number in 1..=5 {
        nodes[0].put("/live/x", &number.to_string());
    }
    nodes[0].put("/live/y", "1");
    for number in 6..=9 {
        nodes[0].put("/live/x", &number.to_string());
    }
    nodes[1].0.thaw();
    assert_eq!(values_behind_a_gap(&mut events).1, ["7", "8", "9"]);
    let late = another(&nodes, "3");
    let again = |node, seen: &str| resume(node, WATCH, seen);
    for mut events in [both, again(&nodes[0], &seen), again(&late, &seen)] {
        let (y, values) = values_behind_a_gap(&mut events);
        assert_eq!(values, ["1", "7", "8", "9"]);
        // The sixth is missing behind that.
        for node in [&nodes[0], &nodes[1], &late] {
            until_is(node, "/live/x", "9");
            assert_eq!(values_behind_a_gap(&mut again(node, &y)).1, ["7", "8", "9"]);
        }
    }
}

/// What comes up to a nine, and the id of the first of it. It is said once or twice that something is missing.
fn values_behind_a_gap(events: &mut Events) -> (String, Vec<String>) {
    assert_eq!(next_event(events), gap());
    let (mut first, mut values) = (String::new(), Vec::new());
    while values.last().is_none_or(|it| it != "9") {
        let (id, kind, data) = events.event();
        if kind == "gap" {
            continue;
        }
        let value = data.rsplit(':').next().unwrap_or_default();
        values.push(value.trim_end_matches('}').to_owned());
        if first.is_empty() {
            first = id;
        }
    }
    (first, values)
}

/// A node may have told nothing between two versions that it has, because it did not get what was between.
#[test]
fn a_missing_version_is_a_gap_and_no_delta() {
    let nodes = nodes(1, "3");
    let relay = Relay::start(nodes.redis.port());
    let flags = ["--push-redis", &relay.address(), "--push-history", "3"];
    let far = nodes.kept.start(&nodes.origin, &flags);
    let merge = ["Content-Type: application/merge-patch+json"];
    let text = r#"{"text":"a long text that stays as it is","n":0}"#;
    nodes[0].put("/live/x", text);
    until_is(&far, "/live/x", text);
    let watch = "/.well-known/microcache/watch?url=/live/x&deltas=1";
    let mut events = far.subscribe(watch, &[]);
    assert_eq!(next_event(&mut events).0, "put");
    relay.cut();
    for number in 1..=5 {
        let patch = format!(r#"{{"n":{number}}}"#);
        assert_eq!(
            nodes[0].publish("PATCH", "/live/x", &merge, &patch).status,
            204
        );
    }
    relay.mend();
    let kinds: Vec<_> = (0..4).map(|_| next_event(&mut events).0).collect();
    assert_eq!(kinds, ["gap", "put", "patch", "patch"]);
}

#[test]
fn deleted_documents_have_no_history() {
    let nodes = nodes(2, "10");
    let there = || nodes.redis.say(&format!("HLEN {}", key("mcd1h")));
    let seen = version(&nodes[0], "1");
    nodes[0].put("/live/x", "2");
    assert_ne!(there(), "1");
    until_is(&nodes[1], "/live/x", "2");
    nodes[1].0.freeze();
    nodes[0].put("/live/x", "3");
    nodes[0].publish("DELETE", "/live/x", &[], "");
    assert_eq!(there(), "1");
    nodes[0].put("/live/x", "4");
    nodes[1].0.thaw();
    for node in &nodes.all {
        until_is(node, "/live/x", "4");
        let mut events = resume(node, "/live/x", &seen);
        assert_eq!(next_event(&mut events), gap());
        assert_eq!(next_event(&mut events).0, "delete");
        assert_eq!(next_event(&mut events), put("4"));
    }
    // So it is when its time is over.
    let fields = ["Content-Type: application/json", "Push-TTL: 1"];
    nodes[0].publish("PUT", "/live/x", &fields, "5");
    assert_ne!(there(), "1");
    eventually("it to go", || (there() == "1").then_some(()));
}

#[test]
fn histories_count_for_memory() {
    let mut nodes = nodes(0, "3");
    let flags = ["--push-history", "3", "--push-memory", "144KiB"];
    let node = nodes.another(&flags);
    nodes.all.push(node);
    let large = |letter: &str| format!("\"{}\"", letter.repeat(40_000));
    assert_eq!(nodes[0].put("/live/x", &large("a")).status, 201);
    assert_eq!(nodes[0].put("/live/x", &large("b")).status, 204);
    assert_eq!(nodes[0].put("/live/x", &large("c")).status, 204);
    // Something of this size leaves when it comes.
    assert_eq!(nodes[0].put("/live/x", &large("d")).status, 204);
    assert_eq!(nodes[0].put("/live/y", &large("e")).status, 507);
    // Small ones push the large ones out, and what is left is known to the byte.
    for value in ["1", "2", "3"] {
        assert_eq!(nodes[0].put("/live/x", value).status, 204);
    }
    for (name, letter, status) in [
        ("y", "a", 201),
        ("y", "b", 204),
        ("z", "c", 201),
        ("z", "d", 507),
    ] {
        let answer = nodes[0].put(&format!("/live/{name}"), &large(letter));
        assert_eq!(answer.status, status, "{name}");
    }
    for name in ["x", "y", "z"] {
        let gone = nodes[0].publish("DELETE", &format!("/live/{name}"), &[], "");
        assert_eq!(gone.status, 204);
    }
    assert_eq!(nodes.redis.say(&format!("HGET {} size", key("mcd1"))), "0");
    assert_eq!(nodes.redis.say(&format!("HLEN {}", key("mcd1h"))), "1");
    assert_eq!(nodes.redis.say(&format!("HGET {} size", key("mcd1h"))), "0");
}

/// A node that remembers less leaves less to the others, and they say so.
#[test]
fn nodes_that_remember_less_make_gaps() {
    let mut nodes = nodes(1, "10");
    let seen = version(&nodes[0], "1");
    nodes[0].put("/live/x", "2");
    let forgetful = another(&nodes, "1");
    forgetful.put("/live/x", "3");
    nodes[0].put("/live/x", "4");
    let late = another(&nodes, "10");
    nodes.all.push(late);
    for (node, expected) in [
        (&nodes[0], vec![put("2"), put("3"), put("4")]),
        (&nodes[1], vec![gap(), put("3"), put("4")]),
        (&forgetful, vec![put("4")]),
    ] {
        until_is(node, "/live/x", "4");
        let mut events = resume(node, "/live/x", &seen);
        for expected in expected {
            assert_eq!(next_event(&mut events), expected);
        }
    }
}

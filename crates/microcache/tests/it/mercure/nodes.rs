//! A hub on several nodes, which share it by a real Redis.

use std::thread;

use serde_json::json;

use super::active::{ALL, ALL_CODED, event};
use super::*;
use crate::push_fleet::relay::Relay;
use crate::push_fleet::{key, lasting};
use crate::support::{TierKind, TierServer};

/// The rights that docs/push.md names.
const RIGHTS: &str = "evalsha eval hscan xread ping time hget hset hdel xadd xrange xrevrange xdel zadd zrange zscore zremrangebyscore";

/// So many nodes beside a server.
fn nodes<const COUNT: usize>(redis: &str, flags: &[&str]) -> [Hub; COUNT] {
    std::array::from_fn(|_| Hub::open(&[&["--push-redis", redis], flags].concat()))
}

/// The address for a user who may do no more than is documented.
fn limited(redis: &TierServer) -> String {
    let rights = RIGHTS.split(' ').map(|it| format!(" +{it}"));
    let rights: String = rights.collect();
    redis.say(&format!("ACL SETUSER user on >password ~mcd1*{rights}"));
    redis.address().replace("://", "://user:password@")
}

impl Hub {
    /// Publishes until Redis can be reached.
    fn published_at_last(&self, form: &str) {
        eventually("Redis", || (self.publish(form).status == 200).then_some(()));
    }

    /// Ids of the events after this one, up to the update `last`, and the `Last-Event-ID` of the response.
    fn after(&self, seen: &str, fields: &[&str], last: &str) -> (Option<String>, Vec<String>) {
        let target = format!("{HUB}?topic=*&lastEventID={seen}");
        let (head, mut events) = Events::with_head(self.proxy.ask_with(&target, fields));
        let mut ids = vec![events.event().0];
        while ids.last().is_some_and(|id| id != last) {
            ids.push(events.event().0);
        }
        (head.field("last-event-id").map(str::to_owned), ids)
    }
}

#[test]
fn the_cases_hold_for_updates_of_another_node() {
    let redis = TierServer::start(TierKind::Redis);
    let [here, there] = nodes(&redis.address(), &[]);
    let hub = Hub {
        publisher: Some(there.proxy.address()),
        ..here
    };
    check_topics(&hub);
    check_private_updates(&hub);
    check_fields(&hub);
}

/// The node of a subscriber is killed, and it goes on at another one, and at one that was not there before.
#[test]
fn a_subscriber_goes_on_at_another_node() {
    let redis = TierServer::start(TierKind::Redis);
    let [one, two, mut killed] = nodes(&redis.address(), &[]);
    let may = bearer(&json!({"subscribe": ["b"]}));
    let mut streams = [&one, &two, &killed].map(|hub| hub.subscribe("topic=*", &[&may]));
    thread::scope(|scope| {
        for (hub, name) in [(&one, "x"), (&two, "y"), (&killed, "z")] {
            scope.spawn(move || {
                for number in 0..20 {
                    let topic = ["a", "b&private", "c&private"][number % 3];
                    hub.published(&format!("topic={topic}&id={name}{number}&data=1%0A2"));
                }
            });
        }
    });
    one.published("topic=a&id=middle");
    // Those for which there is permission, in the same order everywhere.
    let orders = streams.each_mut().map(|events| {
        let ids = std::iter::from_fn(|| Some(events.event().0));
        ids.take_while(|id| id != "middle").collect::<Vec<_>>()
    });
    assert_eq!(orders[0].len(), 3 * (7 + 7), "{orders:?}");
    assert!(orders[1] == orders[0] && orders[2] == orders[0]);
    killed.proxy.signal(Signal::KILL);
    killed.proxy.wait();
    for (hub, form) in [
        (&one, "topic=b&id=1&private"),
        (&two, "topic=c&id=2&private"),
        (&two, "topic=a&id=3"),
    ] {
        hub.published(form);
    }
    let [late] = nodes(&redis.address(), &[]);
    for hub in [&one, &two, &late] {
        let ids = |seen: &str| hub.after(seen, &[&may], "3");
        assert_eq!(
            ids("middle"),
            (
                Some("middle".to_owned()),
                vec!["1".to_owned(), "3".to_owned()]
            )
        );
        let (after, public) = hub.after("middle", &[], "3");
        assert_eq!(
            (after.as_deref(), &*public),
            (Some("middle"), &["3".to_owned()][..])
        );
        for seen in ["earliest", "unknown"] {
            let (after, all) = ids(seen);
            assert_eq!(
                (after.as_deref(), &all[..42]),
                (Some("earliest"), &*orders[0]),
                "{seen}"
            );
        }
    }
}

#[test]
fn subscribers_stay_while_redis_is_away() {
    let mut redis = lasting();
    let relay = Relay::start(redis.port());
    let [hub] = nodes(&redis.address(), &[]);
    let far = Hub::open(&["--push-redis", &relay.address()]);
    let mut streams = [&hub, &far].map(|hub| hub.subscribe("topic=a", &[]));
    hub.published("topic=a&id=1");
    relay.cut();
    hub.published("topic=a&id=2");
    let refused = eventually("the loss", || {
        Some(far.publish("topic=a&id=never"))
            .filter(|it| it.text().contains("nothing was published"))
    });
    assert_eq!(
        (refused.status, refused.field("retry-after")),
        (503, Some("1"))
    );
    assert!(refused.text().contains("push_redis"), "{}", refused.text());
    far.proxy.output_with("publications are rejected");
    relay.mend();
    // Nor does a restart of Redis, which has lost nothing, end a stream.
    redis.kill();
    redis.restart();
    far.published_at_last("topic=a&id=3");
    for events in &mut streams {
        assert_eq!(["1", "2", "3"].map(|_| events.event().0), ["1", "2", "3"]);
    }
    far.proxy.output_with("accepts publications again");
    // Data that Redis loses is lost on all nodes, and subscribers notice it.
    redis.say("FLUSHALL");
    hub.published_at_last("topic=a&id=4");
    for (events, hub) in streams.iter_mut().zip([&hub, &far]) {
        while events.next_or_end().is_some() {}
        let ids = eventually("the new history", || {
            let (after, ids) = hub.after("3", &[], "4");
            (after.as_deref() == Some("earliest")).then_some(ids)
        });
        assert_eq!(ids, ["4"]);
    }
}

#[test]
fn presence_is_that_of_all_nodes() {
    let redis = TierServer::start(TierKind::Redis);
    // Another program has written there.
    redis.say(&format!("ZADD {} 9e18 nonsense", key("mcd1n")));
    redis.say(&format!("HSET {} bytes nonsense", key("mcd1s")));
    let [one, mut other] = nodes(&limited(&redis), &["--mercure-subscriptions"]);
    let may = bearer(&json!({"subscribe": ["*"], "payload": {"user": "me"}}));
    let mut watcher = one.subscribe(ALL_CODED, &[&may]);
    assert_eq!(event(&mut watcher).2["topic"], ALL);
    let left = other.subscribe("topic=left", &[]);
    let _dies = other.subscribe("topic=dies", &[&may]);
    let mut reported: Vec<_> = (0..2).map(|_| event(&mut watcher)).collect();
    reported.sort_by_key(|(.., said)| said["topic"].to_string());
    let (id, _, said) = reported.pop().expect("two of them");
    assert_eq!(
        (&said["topic"], &said["active"]),
        (&json!("left"), &json!(true))
    );
    drop(left);
    let (_, _, end) = event(&mut watcher);
    assert_eq!(
        (&end["topic"], &end["active"]),
        (&json!("left"), &json!(false))
    );
    assert_eq!(end["id"], said["id"]);
    let topics = |hub: &Hub| {
        let list = hub.list("").into_iter();
        let mut all: Vec<_> = list.map(|it| it["topic"].to_string()).collect();
        all.sort();
        all
    };
    let expected = [&*format!("\"{ALL}\""), "\"dies\""];
    for hub in [&one, &other] {
        eventually("the list", || (topics(hub) == expected).then_some(()));
    }
    // Ids of these events are the same on all nodes.
    let mut back = other.subscribe(ALL_CODED, &[&may, &format!("Last-Event-ID: {id}")]);
    let mut next = Vec::new();
    while next.last() != Some(&end) {
        next.push(event(&mut back).2);
    }
    drop(back);
    while event(&mut watcher).2["active"] == true {}
    // A node without a sign of life is not there any more, nor are its subscribers.
    other.proxy.signal(Signal::KILL);
    other.proxy.wait();
    redis.say(&format!("DEL {}", key("mcd1n")));
    let (_, _, end) = event(&mut watcher);
    assert_eq!(
        (&end["topic"], &end["active"]),
        (&json!("dies"), &json!(false))
    );
    assert_eq!(topics(&one), expected[..1]);
    let there = redis.say(&format!("HLEN {}", key("mcd1s")));
    assert_eq!(there, "2", "one subscriber, and the bytes");
}

#[test]
fn a_key_of_another_type_is_named_and_the_hub_goes_on_when_it_is_gone() {
    let redis = TierServer::start(TierKind::Redis);
    for (name, stops_publishing) in [
        ("mcd1u", true),
        ("mcd1p", true),
        ("mcd1s", false),
        ("mcd1n", false),
    ] {
        redis.say("FLUSHALL");
        let [hub] = nodes(&limited(&redis), &["--mercure-subscriptions"]);
        hub.published("topic=a&id=1");
        let key = key(name);
        let remedy = format!("delete them (DEL {key})");
        redis.say(&format!("DEL {key}"));
        redis.say(&format!("SET {key} foreign"));
        let reply = hub.publish("topic=a&id=never");
        if stops_publishing {
            assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
            let text = reply.text();
            assert!(
                text.contains("nothing was published: push_redis:") && text.contains(&remedy),
                "{text}"
            );
        } else {
            assert_eq!(reply.status, 200, "{name}");
        }
        // A subscription is what these keys are needed for.
        let _subscriber = hub.subscribe("topic=b", &[]);
        hub.proxy.output_with(&remedy);
        assert_eq!(redis.say(&format!("GET {key}")), "foreign");
        redis.say(&format!("DEL {key}"));
        hub.published("topic=a&id=2");
        eventually("the history", || {
            let (_, ids) = hub.after("earliest", &[], "2");
            (ids.last().is_some_and(|id| id == "2")).then_some(())
        });
        eventually("the list", || {
            redis
                .say(&format!("EXISTS {}", self::key("mcd1n")))
                .contains('1')
                .then_some(())
        });
    }
}

#[test]
fn damaged_records_are_skipped_and_the_stream_is_bounded() {
    let redis = TierServer::start(TierKind::Redis);
    let [hub] = nodes(
        &redis.address(),
        &["--mercure-history", "64KiB", "--mercure-subscriptions"],
    );
    hub.published("topic=a&id=1");
    for stream in ["mcd1u", "mcd1p"].map(key) {
        for fields in [
            "x y",
            "\"0-0 1 1\" \"\\xff\" join {",
            "\"9 9 9\" a text/event-stream \"id: 1\"",
        ] {
            redis.say(&format!("XADD {stream} * {fields}"));
        }
    }
    redis.say(&format!("HSET {} \"s x\" nonsense", key("mcd1s")));
    eventually("the next", || {
        (hub.publish("topic=a&id=2").status == 200).then_some(())
    });
    hub.proxy.output_with("not an update of the Mercure hub");
    drop(hub);
    let [hub, late] = nodes(&redis.address(), &["--mercure-history", "64KiB"]);
    let data = "x".repeat(1024);
    for number in 3..200 {
        hub.published(&format!("topic=%C3%A9%22&id={number}&data={data}"));
    }
    let length = redis.say(&format!("XLEN {}", key("mcd1u")));
    let length: usize = length.parse().expect("a number");
    assert!((20..60).contains(&length), "{length}");
    eventually("all of it", || {
        let (after, ids) = late.after("1", &[], "199");
        (after.as_deref() == Some("earliest") && ids.len() == length).then_some(())
    });
    assert!(late.stats()["redis"]["ignored"].as_u64() > Some(0));
}

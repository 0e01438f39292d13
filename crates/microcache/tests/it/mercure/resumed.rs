//! Who comes back, and what he is sent of the time between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use super::*;

/// The response to a subscriber with this last id, and its updates.
fn check(hub: &Hub, query: &str, fields: &[&str], after: Option<&str>, ids: &[&str]) {
    let target = format!("{HUB}?topic=/a/%7Bx%7D&{query}");
    let (head, mut events) = Events::with_head(hub.proxy.ask_with(&target, fields));
    for name in ["last-event-id", "mercure-last-event-id"] {
        assert_eq!(head.field(name), after, "{query} {fields:?}");
    }
    for id in ids {
        assert_eq!(events.event().0, *id, "{query} {fields:?}");
    }
    // Nothing else came before this.
    hub.published("topic=/a/last&id=last");
    assert_eq!(events.event().0, "last", "{query} {fields:?}");
}

#[test]
fn a_subscriber_with_a_last_event_id_gets_the_missed_updates() {
    for (query, fields, after, ids) in [
        ("", &[][..], None, &[][..]),
        ("lastEventID=2", &[], Some("2"), &["3", "5"]),
        ("last_event_id=1", &[], Some("1"), &["2", "3", "5"]),
        ("Last-Event-ID=3", &[], Some("3"), &["5"]),
        ("lastEventID=4", &[], Some("4"), &["5"]),
        ("lastEventID=5", &[], Some("5"), &[]),
        ("lastEventID=1", &["Last-Event-ID: 3"], Some("3"), &["5"]),
        // A subscriber without a last id begins now, and gets the current one.
        ("lastEventID=", &["Last-Event-ID: "], Some("5"), &[]),
        ("last_event_id=", &[], Some("5"), &[]),
        (
            "lastEventID=earliest",
            &[],
            Some("earliest"),
            &["1", "2", "3", "5"],
        ),
        (
            "",
            &["Last-Event-ID: earliest"],
            Some("earliest"),
            &["1", "2", "3", "5"],
        ),
        (
            "lastEventID=unknown",
            &[],
            Some("earliest"),
            &["1", "2", "3", "5"],
        ),
        (
            "",
            &["Last-Event-ID: #1 or worse"],
            Some("earliest"),
            &["1", "2", "3", "5"],
        ),
    ] {
        let hub = Hub::open(&[]);
        for id in 1..=5 {
            let topic = if id == 4 { "/b" } else { "/a/1" };
            hub.published(&format!("topic={topic}&id={id}"));
        }
        check(&hub, query, fields, after, ids);
    }
    let hub = Hub::open(&[]);
    check(&hub, "lastEventID=x", &[], Some("earliest"), &[]);
}

#[test]
fn private_updates_stay_private_when_sent_again() {
    let hub = Hub::open(&[]);
    for id in 1..=4 {
        let private = if id % 2 == 0 { "&private" } else { "" };
        hub.published(&format!("topic=/a/{id}&id={id}{private}"));
    }
    check(
        &hub,
        "lastEventID=earliest",
        &[],
        Some("earliest"),
        &["1", "3"],
    );
    let may = bearer(&json!({"subscribe": ["/a/4"]}));
    check(
        &hub,
        "lastEventID=2",
        &[&may],
        Some("2"),
        &["3", "4", "last"],
    );
}

/// Updates are published all the time, and subscribers that reconnect again and again get all of them.
#[test]
fn no_update_is_lost_or_duplicated_during_publications() {
    const ALL: usize = 1500;
    let hub = Hub::open(&[]);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let by = bearer(&json!({"publish": ["*"]}));
            let mut client = hub.proxy.connect();
            for number in 0..ALL {
                let topic = if number % 3 == 0 { "/b" } else { "/a/1" };
                let form = format!("topic={topic}&id={number}&data={number}");
                let length = format!("Content-Length: {}", form.len());
                client.send(request("POST", HUB, &[FORM, &by, &length]) + &form);
                assert_eq!(client.response().status, 200);
            }
            is_done.store(true, Ordering::SeqCst);
        });
        for requested in [
            "topic=/a/1",
            "topic=/a/%7Bx%7D",
            "topic=*",
            "match_urlpattern=/a/:x",
        ] {
            let hub = &hub;
            scope.spawn(move || {
                let is_all = requested == "topic=*";
                let mut last = "earliest".to_owned();
                let mut expected = (0..ALL).filter(|number| is_all || number % 3 != 0);
                let mut next = expected.next();
                while next.is_some() {
                    let seen = format!("Last-Event-ID: {last}");
                    let mut events = hub.subscribe(requested, &[&seen]);
                    for _ in 0..70 {
                        let Some(number) = next else { break };
                        let (id, _, data) = events.event();
                        assert_eq!(
                            (&*id, &*data),
                            (&*number.to_string(), &*number.to_string()),
                            "{requested}"
                        );
                        last = id;
                        next = expected.next();
                    }
                }
            });
        }
    });
    assert!(is_done.load(Ordering::SeqCst));
    assert_eq!(hub.stats()["slow_subscribers_dropped"], 0);
}

#[test]
fn a_slow_subscriber_is_disconnected_and_returns() {
    let hub = Hub::open(&["--mercure-history", "256KiB"]);
    let target = format!("{HUB}?topic=a");
    let mut slow = Client::connect_narrow(hub.proxy.address());
    slow.send(request("GET", &target, &[]));
    let mut slow = Events::begin(slow);
    let mut other = hub.subscribe("topic=b", &[]);
    let data = "x".repeat(16 * 1024);
    let sent = 400;
    for id in 0..sent {
        hub.published(&format!("topic=a&id={id}&data={data}"));
    }
    let mut last = None;
    let mut expected = 0;
    while let Some(event) = slow.next_or_end() {
        let begins = format!("id: {expected}\n");
        assert!(event.starts_with(&begins), "{event:.100}");
        last = Some(expected);
        expected += 1;
    }
    let last: usize = last.expect("it has read something");
    assert!(last + 1 < sent);
    assert_eq!(hub.stats()["slow_subscribers_dropped"], 1);
    // It learns that its last id is not in the history, and gets the history.
    let seen = format!("Last-Event-ID: {last}");
    let (head, mut again) = Events::with_head(hub.proxy.ask_with(&target, &[&seen]));
    assert_eq!(head.field("last-event-id"), Some("earliest"));
    let first: usize = again.event().0.parse().expect("a number");
    assert!(first > last + 1, "{first} {last}");
    for number in first + 1..sent {
        assert_eq!(again.event().0, number.to_string());
    }
    assert!(hub.stats()["bytes"].as_u64().expect("bytes") <= 256 * 1024);
    // Subscribers that missed nothing noticed nothing.
    hub.published("topic=b&id=b");
    assert_eq!(other.event().0, "b");
}

#[test]
fn a_stream_ends_when_its_token_does() {
    let hub = Hub::start(&[]);
    let claims = json!({"exp": seconds_from_now(3), "mercure": {"subscribe": ["*"]}});
    let short = format!("Authorization: Bearer {}", token(&claims));
    let mut events = hub.subscribe("topic=a", &[&short]);
    let mut quiet = hub.subscribe("topic=b", &[&short]);
    let mut lasting = hub.subscribe("topic=b", &[&bearer(&json!({}))]);
    hub.published("topic=a&id=1&private");
    assert_eq!(events.event().0, "1");
    assert_eq!(events.next_or_end(), None);
    assert_eq!(quiet.next_or_end(), None);
    hub.published("topic=b&id=2");
    assert_eq!(lasting.event().0, "2");
    assert_eq!(hub.get("topic=a", &[&short]).status, 401);
}

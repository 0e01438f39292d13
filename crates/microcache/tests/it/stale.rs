//! Never a visible expiry, and never an error while there is something to show.

use serde_json::json;

use crate::operators::Operator;
use crate::support::{Gate, Origin, Proxy, Reply, eventually};

/// Fields of a response that is stale when it comes, and worth keeping for its validator.
const OVERDUE: [&str; 3] = ["Cache-Control: max-age=10", "Age: 20", "ETag: \"a\""];

/// Asks until the answer is stale, which every answer meanwhile must allow.
fn until_stale(proxy: &Proxy, target: &str, body: &str) {
    eventually("the stored response to become stale", || {
        let response = proxy.get(target);
        response.assert_is(200, body);
        response.assert_hit();
        (response.cache().ttl().unwrap() < 0).then_some(())
    });
}

/// Has an old page stored whose renewal waits for the gate.
fn stored_and_renewed_behind_a_gate(origin: &Origin, proxy: &Proxy) -> Gate {
    let gate = Gate::default();
    origin
        .on("/")
        .reply(Reply::new(200).body("old"))
        .reply(Reply::new(200).body("new").after(&gate));
    proxy.get("/").assert_is(200, "old");
    gate
}

fn until_new(proxy: &Proxy) {
    eventually("the new page", || {
        (proxy.get("/").text() == "new").then_some(())
    });
}

#[test]
fn all_requests_get_the_stale_copy_during_one_refresh() {
    let origin = Origin::start();
    let proxy = Proxy::start(
        &origin,
        &[
            "--ttl",
            "50ms",
            "--stale-while-revalidate",
            "1h",
            "--threads",
            "2",
        ],
    );
    let gate = stored_and_renewed_behind_a_gate(&origin, &proxy);
    until_stale(&proxy, "/", "old");
    origin.wait_for("/", 2);
    let mut clients: Vec<_> = (0..50).map(|_| proxy.ask("/")).collect();
    for client in &mut clients {
        let response = client.response();
        response.assert_is(200, "old");
        response.assert_hit();
    }
    assert_eq!(origin.count("/"), 2, "one refresh");
    gate.open();
    until_new(&proxy);
}

#[test]
fn the_default_window_hides_the_expiry() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--ttl", "50ms"]);
    let gate = stored_and_renewed_behind_a_gate(&origin, &proxy);
    until_stale(&proxy, "/", "old");
    gate.open();
    until_new(&proxy);
}

#[test]
fn a_refresh_longer_than_the_window_delays_no_request() {
    let origin = Origin::start();
    let flags = ["--ttl", "50ms", "--stale-while-revalidate", "1s"];
    let proxy = Proxy::start(&origin, &flags);
    let gate = stored_and_renewed_behind_a_gate(&origin, &proxy);
    eventually("the window to be over", || {
        let response = proxy.get("/");
        response.assert_is(200, "old");
        response.assert_hit();
        (response.cache().ttl().unwrap() < -2).then_some(())
    });
    assert_eq!(origin.count("/"), 2, "one refresh");
    gate.open();
    until_new(&proxy);
}

#[test]
fn a_refresh_is_conditional_when_it_can_be() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--stale-while-revalidate", "1h"]);
    origin
        .on("/")
        .reply(Reply::new(200).with_all(&OVERDUE).body("hello"))
        .reply(Reply::new(304).with_all(&[
            "Cache-Control: max-age=100",
            "ETag: \"a\"",
            "X-New: 1",
        ]));
    proxy.get("/").assert_is(200, "hello");
    eventually("the confirmation", || {
        let response = proxy.get("/");
        response.assert_is(200, "hello");
        response.assert_hit();
        (response.field("x-new") == Some("1")).then_some(())
    });
    let requested = &origin.seen("/")[1];
    assert_eq!(
        (requested.method.as_str(), requested.field("if-none-match")),
        ("GET", Some("\"a\""))
    );
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn a_refresh_holds_up_no_request_of_the_same_connection() {
    // nginx trac 1723: the next request of that keep-alive connection waited for the update.
    let origin = Origin::start();
    let proxy = Proxy::start(
        &origin,
        &[
            "--ttl",
            "50ms",
            "--stale-while-revalidate",
            "1h",
            "--threads",
            "1",
        ],
    );
    let gate = stored_and_renewed_behind_a_gate(&origin, &proxy);
    origin.on("/other").reply(Reply::new(200).body("other"));
    until_stale(&proxy, "/", "old");
    let mut client = proxy.connect();
    client.get("/").assert_is(200, "old");
    client.get("/other").assert_is(200, "other");
    client.get("/").assert_is(200, "old");
    origin.wait_for("/", 2);
    assert_eq!(origin.count("/"), 2);
    gate.open();
}

#[test]
fn a_refresh_runs_although_the_client_left() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--stale-while-revalidate", "1h"]);
    let gate = Gate::default();
    origin
        .on("/")
        .reply(Reply::new(200).with_all(&OVERDUE).body("old"))
        .reply(Reply::ok(&["Cache-Control: max-age=100"], "new").after(&gate));
    proxy.get("/").assert_is(200, "old");
    drop(proxy.ask("/"));
    origin.wait_for("/", 2);
    gate.open();
    until_new(&proxy);
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn failing_refreshes_are_not_seen_and_come_to_an_end() {
    let origin = Origin::start();
    let proxy = Proxy::start(
        &origin,
        &["--ttl", "50ms", "--stale-while-revalidate", "1h"],
    );
    origin
        .on("/")
        .reply(Reply::new(200).body("old"))
        .reply(Reply::new(503).body("broken"))
        .reply(Reply::hang_up())
        .reply(Reply::raw("garbage\r\n\r\n"))
        .reply(Reply::ok(&["Cache-Control: max-age=100"], "new"));
    proxy.get("/").assert_is(200, "old");
    eventually("the origin to recover", || {
        let response = proxy.get("/");
        assert_eq!(response.status, 200, "{response:?}");
        (response.text() == "new").then_some(())
    });
}

#[test]
fn a_refresh_that_turns_private_is_not_shared() {
    let origin = Origin::start();
    let proxy = Proxy::start(
        &origin,
        &[
            "--ttl",
            "50ms",
            "--stale-while-revalidate",
            "500ms",
            "--stale-if-error",
            "0s",
        ],
    );
    let mut count = 0;
    origin.on("/").answer(move |_| {
        count += 1;
        match count {
            1 => Reply::new(200).body("old"),
            _ => Reply::ok(&["Cache-Control: private"], count.to_string()),
        }
    });
    proxy.get("/").assert_is(200, "old");
    let mut seen = std::collections::HashSet::new();
    eventually("private answers", || {
        let response = proxy.get("/");
        if response.text() == "old" {
            return None;
        }
        assert!(!response.is_hit(), "{response:?}");
        assert!(
            seen.insert(response.text()),
            "{response:?} was shown before"
        );
        (seen.len() == 3).then_some(())
    });
}

/// Stores a page, lets it expire, and says what the next client gets from an origin that fails so.
fn after_failure(flags: &[&str], failure: Reply) -> (u16, String) {
    let origin = Origin::start();
    let timeouts = [
        "--first-byte-timeout",
        "1s",
        "--between-bytes-timeout",
        "1s",
    ];
    let proxy = Proxy::start(
        &origin,
        &[flags, &["--stale-while-revalidate", "0s"], &timeouts].concat(),
    );
    origin
        .on("/")
        .reply(Reply::new(200).with_all(&OVERDUE).body("old"))
        .reply(failure);
    proxy.get("/").assert_is(200, "old");
    let next = proxy.get("/");
    assert!(origin.count("/") > 1, "the origin was asked first");
    (next.status, next.text())
}

fn failures() -> Vec<(&'static str, Reply)> {
    vec![
        ("500", Reply::new(500).body("broken")),
        ("502", Reply::new(502).body("broken")),
        ("503", Reply::new(503).body("broken")),
        ("504", Reply::new(504).body("broken")),
        ("hang-up", Reply::hang_up()),
        ("silence", Reply::silence()),
        ("garbage", Reply::raw("garbage\r\n\r\n")),
        (
            "half a head",
            Reply::raw("HTTP/1.1 200 OK\r\nContent-Le").close(),
        ),
        (
            "two lengths",
            Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        ),
    ]
}

#[test]
fn stale_is_served_when_the_origin_fails() {
    for (name, failure) in failures() {
        assert_eq!(
            after_failure(&[], failure),
            (200, "old".to_owned()),
            "{name}"
        );
    }
}

#[test]
fn a_window_of_zero_shows_the_failure() {
    for (name, failure) in failures() {
        let (status, body) = after_failure(&["--stale-if-error", "0s"], failure);
        assert!(status >= 500 && body != "old", "{name}: {status} {body}");
    }
}

#[test]
fn stale_is_served_when_the_origin_is_down() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--stale-while-revalidate", "0s"]);
    origin
        .on("/")
        .reply(Reply::new(200).with_all(&OVERDUE).body("old"));
    proxy.get("/").assert_is(200, "old");
    origin.stop();
    for _ in 0..20 {
        proxy.get("/").assert_is(200, "old");
    }
    assert!(matches!(proxy.get("/absent").status, 502 | 503));
}

#[test]
fn stale_is_served_when_the_queue_is_full() {
    let origin = Origin::start();
    let flags = [
        "--stale-while-revalidate",
        "0s",
        "--max-concurrent",
        "1",
        "--max-queue",
        "0",
    ];
    let proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    origin
        .on("/")
        .reply(Reply::new(200).with_all(&OVERDUE).body("old"));
    origin
        .on("/busy")
        .reply(Reply::new(200).body("busy").after(&gate));
    proxy.get("/").assert_is(200, "old");
    let mut busy = proxy.ask("/busy");
    origin.wait_for("/busy", 1);
    proxy.get("/").assert_is(200, "old");
    gate.open();
    busy.response().assert_is(200, "busy");
}

#[test]
fn an_answer_is_no_failure() {
    for status in [400, 403, 404, 410, 429] {
        let (got, body) = after_failure(&[], Reply::new(status).body("gone"));
        assert_eq!((got, body.as_str()), (status, "gone"));
    }
}

#[test]
fn joiners_of_a_failed_fetch_get_stale() {
    let origin = Origin::start();
    let proxy = Proxy::start(
        &origin,
        &["--stale-while-revalidate", "0s", "--threads", "1"],
    );
    let gate = Gate::default();
    origin
        .on("/")
        .reply(Reply::new(200).with_all(&OVERDUE).body("old"))
        .reply(Reply::hang_up().after(&gate));
    proxy.get("/").assert_is(200, "old");
    let mut clients: Vec<_> = (0..10).map(|_| proxy.ask("/")).collect();
    origin.wait_for("/", 2);
    proxy.settle();
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "old");
    }
}

#[test]
fn after_both_windows_nothing_stale_is_shown() {
    let origin = Origin::start();
    let proxy = Proxy::start(
        &origin,
        &[
            "--ttl",
            "50ms",
            "--stale-while-revalidate",
            "50ms",
            "--stale-if-error",
            "50ms",
        ],
    );
    origin
        .on("/")
        .reply(Reply::new(200).body("old"))
        .reply(Reply::new(503).body("broken"));
    proxy.get("/").assert_is(200, "old");
    eventually("the end of the windows", || {
        (proxy.get("/").status == 503).then_some(())
    });
    for _ in 0..5 {
        proxy.get("/").assert_is(503, "broken");
    }
}

/// An old page that everyone may get, whose renewal waits for the gate, and what is said of it.
fn hung_after_one_page(origin: &Origin) -> Gate {
    let gate = Gate::default();
    let page = [
        "Cache-Control: public, max-age=10",
        "Age: 20",
        "ETag: \"a\"",
    ];
    origin
        .on("/")
        .reply(Reply::new(200).with_all(&page).body("old"))
        .reply(Reply::ok(&["Cache-Control: public, max-age=100"], "new").after(&gate));
    gate
}

#[test]
fn a_hung_origin_is_not_waited_for_while_there_is_a_copy() {
    let origin = Origin::start();
    let flags = ["--stale-while-revalidate", "0s", "--stale-wait", "50ms"];
    let proxy = Proxy::start(&origin, &flags);
    let gate = hung_after_one_page(&origin);
    proxy.get("/").assert_is(200, "old");
    for _ in 0..5 {
        let response = proxy.get("/");
        response.assert_is(200, "old");
        assert_eq!(response.cache().get("detail"), Some("origin-slow"));
    }
    assert_eq!(origin.count("/"), 2, "one fetch, which goes on");
    gate.open();
    until_new(&proxy);
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn a_refresh_that_turns_private_is_not_shared_without_coalescing() {
    for (flags, request) in [
        (&[][..], "Cookie: a=b"),
        (&["--collapse", "false"], "X-Nothing: said"),
    ] {
        let origin = Origin::start();
        let window = ["--stale-while-revalidate", "0s", "--stale-wait", "50ms"];
        let proxy = Proxy::start(&origin, &[flags, &window].concat());
        let gate = hung_after_one_page(&origin);
        proxy.get("/").assert_is(200, "old");
        proxy.get_with("/", &[request]).assert_is(200, "old");
        assert_eq!(origin.count("/"), 2);
        gate.open();
        until_new(&proxy);
    }
}

#[test]
fn without_a_copy_for_it_a_slow_origin_is_waited_for() {
    let origin = Origin::start();
    let flags = [
        "--stale-while-revalidate",
        "0s",
        "--stale-if-error",
        "0s",
        "--stale-wait",
        "1ms",
    ];
    let proxy = Proxy::start(&origin, &flags);
    let gate = hung_after_one_page(&origin);
    proxy.get("/").assert_is(200, "old");
    let mut clients = [
        proxy.ask("/"),
        proxy.ask("/"),
        proxy.ask_with("/", &["Cookie: a=b"]),
    ];
    origin.wait_for("/", 3);
    proxy.settle();
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "new");
    }
}

/// A cache in front of this one, such as a CDN, keeps no stale page for the whole lifetime once more.
#[test]
fn a_cache_in_front_knows_what_is_stale() {
    for (lifetime, ttls, is_purged) in [
        // The page is fresh by its own field, and purged softly.
        (&["Cache-Control: max-age=100"][..], ["1h", "1h"], true),
        // Only the lifetimes of the operators end.
        (&[], ["50ms", "1h"], false),
    ] {
        let origin = Origin::start();
        let gate = Gate::default();
        let page = |body: &str| Reply::ok(lifetime, body);
        origin
            .on("/")
            .reply(page("old"))
            .reply(page("new").after(&gate));
        let flags = |ttl| ["--ttl", ttl, "--stale-while-revalidate", "1h"];
        let (inner, admin) = Proxy::operated(&origin, &flags(ttls[0]));
        let outer = Proxy::before_url(&format!("http://{}", inner.address()), &flags(ttls[1]));
        inner.get("/").assert_is(200, "old");
        if is_purged {
            Operator::at(admin).purge(&json!({"all": true, "soft": true}));
        }
        until_stale(&inner, "/", "old");
        let first = outer.get("/");
        first.assert_is(200, "old");
        if is_purged {
            let age: u64 = first.field("age").unwrap().parse().unwrap();
            assert!(age > 100, "{first:?}");
        }
        let second = outer.get("/");
        second.assert_is(200, "old");
        assert!(second.cache().ttl().unwrap() <= 0, "{second:?}");
        gate.open();
        until_new(&outer);
    }
}

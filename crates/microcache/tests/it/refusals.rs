//! A client that the origin refuses, or that makes it fail, takes nothing away from the others.

use crate::support::{Client, Gate, Origin, Proxy, Reply, Seen, eventually};

const FRESH: &str = "Cache-Control: max-age=100";
/// Fields of a response that is stale when it comes, and worth keeping.
const OVERDUE: [&str; 3] = ["Cache-Control: max-age=10", "Age: 20", "ETag: \"a\""];
const BAD: &str = "User-Agent: bad";
const NO_WINDOW: [&str; 2] = ["--stale-while-revalidate", "0s"];

fn is_bad(request: &Seen) -> bool {
    request.field("user-agent") == Some("bad")
}

/// An overdue page, and what the origin says from then on to a bad request and to the others.
fn overdue_then(origin: &Origin, bad: Reply, good: Reply) {
    let mut first = Some(Reply::new(200).with_all(&OVERDUE).body("old"));
    origin.on("/").answer(move |request| {
        first.take().unwrap_or_else(|| {
            let reply = if is_bad(request) { &bad } else { &good };
            reply.clone()
        })
    });
}

/// A gate for each request, in the order in which they come.
fn behind_gates(origin: &Origin, count: usize, answer: fn(&Seen) -> Reply) -> Vec<Gate> {
    let gates: Vec<Gate> = (0..count).map(|_| Gate::default()).collect();
    let mut waiting = gates.clone().into_iter();
    origin.on("/").answer(move |request| {
        let reply = answer(request);
        match waiting.next() {
            Some(gate) => reply.after(&gate),
            None => reply,
        }
    });
    gates
}

/// A request that leads, and so many plain ones that wait for it.
fn leader_and_waiters(origin: &Origin, proxy: &Proxy, waiters: usize) -> (Client, Vec<Client>) {
    let leader = proxy.ask_with("/", &[BAD]);
    origin.wait_for("/", 1);
    let waiting = (0..waiters).map(|_| proxy.ask("/")).collect();
    proxy.settle();
    (leader, waiting)
}

#[test]
fn a_refused_client_leaves_the_page_to_the_others() {
    for status in [400, 401, 403, 413, 414, 429, 431] {
        for lifetime in [
            "X-Nothing: said",
            FRESH,
            "Cache-Control: public, s-maxage=60",
        ] {
            let origin = Origin::start();
            let proxy = Proxy::start(&origin, &NO_WINDOW);
            let refusal = Reply::new(status).with(lifetime).body("refused");
            overdue_then(&origin, refusal, Reply::new(503).body("broken"));
            proxy.get("/").assert_is(200, "old");
            let refused = proxy.get_with("/", &[BAD]);
            refused.assert_is(status, "refused");
            assert!(!refused.cache().has("stored"), "{refused:?}");
            proxy.get("/").assert_is(200, "old");
            origin.stop();
            proxy.get("/").assert_is(200, "old");
        }
    }
}

#[test]
fn a_404_or_410_ends_the_stale_entry() {
    for status in [404, 410] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &NO_WINDOW);
        let gone = Reply::new(status)
            .with("Cache-Control: no-store")
            .body("gone");
        overdue_then(&origin, gone, Reply::hang_up());
        proxy.get("/").assert_is(200, "old");
        proxy.get_with("/", &[BAD]).assert_is(status, "gone");
        assert_eq!(proxy.get("/").status, 502);
    }
}

#[test]
fn a_refresh_for_a_refused_client_leaves_the_copy() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--stale-while-revalidate", "1h"]);
    let new = Reply::new(200).with(FRESH).body("new");
    overdue_then(&origin, Reply::new(403).with(FRESH).body("refused"), new);
    proxy.get("/").assert_is(200, "old");
    proxy.get_with("/", &[BAD]).assert_is(200, "old");
    origin.wait_for("/", 2);
    eventually("somebody else's refresh", || {
        let response = proxy.get("/");
        assert_eq!(response.status, 200, "{response:?}");
        (response.text() == "new").then_some(())
    });
}

#[test]
fn waiters_of_a_refused_client_still_share_a_fetch() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    let gates = behind_gates(&origin, 2, |request| {
        if is_bad(request) {
            Reply::new(431).body("refused")
        } else {
            Reply::new(200).with(FRESH).body("good")
        }
    });
    let (mut bad, mut waiting) = leader_and_waiters(&origin, &proxy, 5);
    assert_eq!(origin.count("/"), 1, "they wait");
    gates[0].open();
    bad.response().assert_is(431, "refused");
    origin.wait_for("/", 2);
    proxy.settle();
    gates[1].open();
    for client in &mut waiting {
        client.response().assert_is(200, "good");
    }
    assert_eq!(origin.count("/"), 2, "one of them asked for all");
}

#[test]
fn a_page_that_is_refused_to_all_is_not_shared() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    let mut count = 0;
    let first = Gate::default();
    let opening = first.clone();
    origin.on("/").answer(move |_| {
        count += 1;
        let reply = Reply::new(403).body(count.to_string());
        if count == 1 {
            reply.after(&opening)
        } else {
            reply
        }
    });
    let (mut leader, mut waiting) = leader_and_waiters(&origin, &proxy, 5);
    first.open();
    leader.response().assert_is(403, "1");
    let mut bodies: Vec<_> = waiting
        .iter_mut()
        .map(|client| client.response().text())
        .collect();
    bodies.sort();
    assert_eq!(bodies, ["2", "3", "4", "5", "6"]);
}

#[test]
fn clients_that_make_the_origin_fail_do_not_fail_the_others() {
    fn good() -> Reply {
        Reply::new(200).with(FRESH).body("good")
    }
    let ways: [fn(&Seen) -> Reply; 3] = [
        |request| {
            if is_bad(request) {
                Reply::new(500).body("broken")
            } else {
                good()
            }
        },
        |request| {
            if is_bad(request) {
                Reply::hang_up()
            } else {
                good()
            }
        },
        |request| {
            if is_bad(request) {
                Reply::raw("garbage\r\n\r\n").close()
            } else {
                good()
            }
        },
    ];
    for answer in ways {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &["--threads", "1"]);
        let gates = behind_gates(&origin, 2, answer);
        let mut bad = proxy.ask_with("/", &[BAD]);
        origin.wait_for("/", 1);
        let mut second = proxy.ask_with("/", &[BAD]);
        proxy.settle();
        let mut waiting: Vec<_> = (0..3).map(|_| proxy.ask("/")).collect();
        proxy.settle();
        gates.iter().for_each(Gate::open);
        assert!(matches!(bad.response().status, 500 | 502));
        for client in &mut waiting {
            client.response().assert_is(200, "good");
        }
        assert!(matches!(second.response().status, 200 | 500 | 502));
    }
}

#[test]
fn waiters_for_an_odd_variant_still_share_a_fetch() {
    for odd in ["Cache-Control: private", "Set-Cookie: a=1"] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &["--threads", "1"]);
        let first = Gate::default();
        let opening = first.clone();
        origin.on("/").answer(move |request| {
            let reply = Reply::new(200).with("Vary: User-Agent");
            if is_bad(request) {
                reply.with(odd).body("odd").after(&opening)
            } else {
                reply.with(FRESH).body("good")
            }
        });
        let (mut bad, mut waiting) = leader_and_waiters(&origin, &proxy, 5);
        first.open();
        bad.response().assert_is(200, "odd");
        for client in &mut waiting {
            client.response().assert_is(200, "good");
        }
        assert_eq!(origin.count("/"), 2, "{odd}: one of them asked for all");
    }
}

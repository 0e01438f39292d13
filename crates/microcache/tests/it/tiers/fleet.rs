//! Several processes that share a tier send the origin one request for all of them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::fleet_purge::Node;
use super::{PATIENT, disk_in, lasting};
use crate::support::{
    Client, Folder, Gate, Origin, Proxy, Reply, TierKind, TierServer, eventually,
};

const CLIENTS: usize = 5;

fn fleet(size: usize, origin: &Origin, server: &TierServer) -> Vec<Proxy> {
    fleet_with("60s", size, origin, server)
}

fn fleet_with(claim: &str, size: usize, origin: &Origin, server: &TierServer) -> Vec<Proxy> {
    let [flag, address] = server.flags();
    let own = [
        &*flag,
        &*address,
        "--threads",
        "1",
        "--claim-timeout",
        claim,
    ];
    let flags = [&own, PATIENT].concat();
    (0..size).map(|_| Proxy::start(origin, &flags)).collect()
}

fn first_miss(kind: TierKind, size: usize) {
    let (origin, server, gate) = (Origin::start(), TierServer::start(kind), Gate::default());
    origin.on("/page").reply(lasting("one").after(&gate));
    let fleet = fleet(size, &origin, &server);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .flat_map(|_| fleet.iter().map(|proxy| proxy.ask("/page")))
        .collect();
    origin.wait_for("/page", 1);
    fleet.iter().for_each(Proxy::settle);
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "one");
    }
    for proxy in &fleet {
        proxy.get("/page").assert_hit();
    }
    assert_eq!(origin.count("/page"), 1, "{size} processes with {kind:?}");
}

#[test]
fn two_processes_send_one_request() {
    for kind in TierKind::ALL {
        first_miss(kind, 2);
    }
}

#[test]
fn four_processes_send_one_request() {
    for kind in TierKind::ALL {
        first_miss(kind, 4);
    }
}

#[test]
fn eight_processes_send_one_request() {
    for kind in TierKind::ALL {
        first_miss(kind, 8);
    }
}

#[test]
fn variants_are_fetched_once_each() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        origin.on("/page").answer(|seen| {
            Reply::ok(
                &["Cache-Control: max-age=1000", "Vary: User-Agent"],
                seen.field("user-agent").unwrap_or(""),
            )
        });
        let fleet = fleet(3, &origin, &server);
        for proxy in &fleet {
            for language in ["en", "de", "fr"] {
                proxy
                    .get_with("/page", &[&format!("User-Agent: {language}")])
                    .assert_is(200, language);
            }
        }
        assert_eq!(origin.count("/page"), 3, "{kind:?}");
    }
}

#[test]
fn the_stale_page_is_served_everywhere_while_one_process_renews_it() {
    for kind in TierKind::ALL {
        let (origin, server, gate) = (Origin::start(), TierServer::start(kind), Gate::default());
        let page = |body: &str| {
            let fields = "Cache-Control: max-age=1, stale-while-revalidate=1000";
            Reply::new(200).with(fields).body(body)
        };
        origin
            .on("/page")
            .reply(page("one"))
            .reply(page("two").after(&gate))
            .reply(lasting("three"));
        let fleet = fleet(4, &origin, &server);
        for proxy in &fleet {
            proxy.get("/page").assert_is(200, "one");
        }
        eventually("a renewal", || {
            for proxy in &fleet {
                proxy.get("/page").assert_is(200, "one");
            }
            (origin.count("/page") > 1).then_some(())
        });
        for _ in 0..10 {
            for proxy in &fleet {
                let stale = proxy.get("/page");
                stale.assert_is(200, "one");
                stale.assert_hit();
            }
        }
        assert_eq!(origin.count("/page"), 2, "{kind:?}");
        gate.open();
        for proxy in &fleet {
            eventually("the new page", || {
                (proxy.get("/page").text() != "one").then_some(())
            });
        }
    }
}

#[test]
fn a_stale_entry_is_refreshed_without_further_requests() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let overdue = [
            "Cache-Control: max-age=10, stale-while-revalidate=1000",
            "Age: 20",
        ];
        origin
            .on("/page")
            .reply(Reply::new(200).with_all(&overdue).body("one"))
            .reply(lasting("two"));
        let fleet = fleet(2, &origin, &server);
        fleet[0].get("/page").assert_is(200, "one");
        let stale = fleet[1].get("/page");
        stale.assert_is(200, "one");
        stale.assert_hit();
        origin.wait_for("/page", 2);
    }
}

/// A page that is fresh for a second, asked for without a pause in four processes.
fn per_lifetime(kind: TierKind) {
    const LIFETIMES: usize = 4;
    let (origin, server) = (Origin::start(), TierServer::start(kind));
    let requested = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&requested);
    origin.on("/page").answer(move |_| {
        times.lock().unwrap().push(Instant::now());
        Reply::ok(
            &["Cache-Control: max-age=1, stale-while-revalidate=1000"],
            "page",
        )
    });
    let fleet = fleet(4, &origin, &server);
    let began = Instant::now();
    eventually("some lifetimes", || {
        for proxy in &fleet {
            proxy.get("/page").assert_is(200, "page");
        }
        (origin.count("/page") > LIFETIMES).then_some(())
    });
    // One at the beginning, and one for each second that has passed.
    let lifetimes = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    let requests = requested.lock().unwrap().len();
    assert!(
        requests <= lifetimes + 1,
        "{requests} requests in {lifetimes} lifetimes with {kind:?}"
    );
}

#[test]
fn memcached_lets_one_request_through_in_each_lifetime() {
    per_lifetime(TierKind::Memcached);
}

#[test]
fn redis_lets_one_request_through_in_each_lifetime() {
    per_lifetime(TierKind::Redis);
}

/// What lies on a process's own disk may be older than what is shared.
#[test]
fn processes_with_disks_of_their_own_send_one_request_in_each_lifetime() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let folders = [Folder::absent(), Folder::absent(), Folder::absent()];
        let page = |body: &str| {
            let fields = "Cache-Control: max-age=1, stale-while-revalidate=1000";
            Reply::new(200).with(fields).body(body)
        };
        origin
            .on("/page")
            .reply(page("one"))
            .reply(lasting("two"))
            .reply(lasting("three"));
        let [flag, address] = server.flags();
        let fleet = folders.each_ref().map(|folder| {
            let disk = disk_in(folder);
            let own = [&*flag, &*address, "--claim-timeout", "60s", "--disk", &disk];
            Proxy::start(&origin, &[&own, PATIENT].concat())
        });
        for proxy in &fleet {
            proxy.get("/page").assert_is(200, "one");
        }
        for proxy in &fleet {
            eventually("the new page", || {
                (proxy.get("/page").text() == "two").then_some(())
            });
        }
        assert_eq!(origin.count("/page"), 2, "{kind:?}");
    }
}

#[test]
fn a_process_that_is_killed_holds_the_others_up_for_the_claim_timeout() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        origin
            .on("/page")
            .reply(Reply::silence())
            .reply(lasting("one"));
        let mut fleet = fleet_with("2s", 3, &origin, &server);
        let winner = fleet.pop().expect("three");
        let began = Instant::now();
        let _unanswered = winner.ask("/page");
        origin.wait_for("/page", 1);
        let mut waiting: Vec<Client> = fleet.iter().map(|proxy| proxy.ask("/page")).collect();
        drop(winner);
        for client in &mut waiting {
            client.response().assert_is(200, "one");
        }
        // Far more than the two seconds, far less than the minute of a first byte.
        assert!(began.elapsed() < Duration::from_secs(9));
        let requests = origin.count("/page");
        assert!((2..=3).contains(&requests), "{requests} with {kind:?}");
        for proxy in &fleet {
            proxy.get("/page").assert_hit();
        }
        let line = format!(
            "microcache: {}: the claim of another node expired, this one fetches: another one was killed, hangs or is cut \
             off; if all run, pages take longer than `claim_timeout` (2s): raise it",
            kind.name()
        );
        eventually("the cause", || {
            let is_logged = |proxy: &Proxy| proxy.output().contains(&line);
            fleet.iter().any(is_logged).then_some(())
        });
    }
}

#[test]
fn a_claim_that_was_released_has_not_expired() {
    for kind in TierKind::ALL {
        let (origin, server, gate) = (Origin::start(), TierServer::start(kind), Gate::default());
        origin
            .on("/page")
            .reply(Reply::new(503).body("busy").after(&gate))
            .reply(lasting("one"));
        let [flag, address] = server.flags();
        let flags = [&[&*flag, &*address, "--claim-timeout", "60s"], PATIENT].concat();
        let [holder, node] = [0; 2].map(|_| Node::start_with(&origin, &flags));
        let mut first = holder.proxy.ask("/page");
        origin.wait_for("/page", 1);
        let mut second = node.proxy.ask("/page");
        node.proxy.settle();
        gate.open();
        first.response().assert_is(503, "busy");
        second.response();
        let metrics = node.ask_text("GET /metrics", "");
        let counted = format!(
            "microcache_tier_claims_expired_total{{tier=\"{}\"}} 0",
            kind.name()
        );
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[test]
fn a_personal_page_delays_no_process() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        origin
            .on("/page")
            .reply(Reply::new(200).with("Cache-Control: no-store").body("mine"));
        let fleet = fleet(3, &origin, &server);
        let mut clients: Vec<Client> = (0..CLIENTS)
            .flat_map(|_| fleet.iter().map(|proxy| proxy.ask("/page")))
            .collect();
        for client in &mut clients {
            client.response().assert_is(200, "mine");
        }
        assert_eq!(origin.count("/page"), clients.len(), "{kind:?}");
    }
}

#[test]
fn a_failing_origin_delays_no_process() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        origin.on("/page").reply(Reply::new(503).body("busy"));
        let fleet = fleet(3, &origin, &server);
        for proxy in &fleet {
            proxy.get("/page").assert_is(503, "busy");
        }
        assert!(origin.count("/page") >= fleet.len(), "{kind:?}");
    }
}

/// Those who wait for the claim would otherwise have to find out one after the other.
#[test]
fn an_unstorable_page_is_fetched_by_all_processes_at_once() {
    for kind in TierKind::ALL {
        for fields in [
            "Cache-Control: no-store",
            "Set-Cookie: a=b",
            "Cache-Control: private",
        ] {
            let (origin, server, gates) = (Origin::start(), TierServer::start(kind), two_gates());
            let (first, others) = (gates[0].clone(), gates[1].clone());
            let mut count = 0;
            origin.on("/page").answer(move |_| {
                count += 1;
                let gate = if count == 1 { &first } else { &others };
                Reply::new(200).with(fields).body("mine").after(gate)
            });
            let fleet = fleet(5, &origin, &server);
            let mut clients: Vec<_> = fleet.iter().map(|proxy| proxy.ask("/page")).collect();
            origin.wait_for("/page", 1);
            fleet.iter().for_each(Proxy::settle);
            assert_eq!(origin.count("/page"), 1, "they take turns at first");
            gates[0].open();
            // None of the others is answered before all have asked.
            origin.wait_for("/page", 5);
            gates[1].open();
            for client in &mut clients {
                client.response().assert_is(200, "mine");
            }
        }
    }
}

fn two_gates() -> [Gate; 2] {
    [Gate::default(), Gate::default()]
}

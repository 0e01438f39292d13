//! The origin is protected: bounds, queue, health, retries, connections.

use std::thread;
use std::time::Duration;

use crate::support::{Client, Gate, Origin, Proxy, Reply, eventually};

/// Every path waits at the gate before it is answered.
fn gated(origin: &Origin, gate: &Gate, targets: &[&str]) {
    for target in targets {
        origin
            .on(target)
            .reply(Reply::new(200).body(target).after(gate));
    }
}

fn all_answered(clients: &mut [Client], targets: &[&str]) {
    for (client, target) in clients.iter_mut().zip(targets) {
        client.response().assert_is(200, target);
    }
}

/// One request at the origin, and one that waits.
const ONE_AND_ONE_MORE: [&str; 6] = [
    "--max-concurrent",
    "1",
    "--max-queue",
    "1",
    "--threads",
    "1",
];

#[test]
fn concurrent_requests_are_bounded() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-concurrent", "2", "--threads", "2"]);
    let gate = Gate::default();
    let targets = ["/1", "/2", "/3", "/4", "/5", "/6"];
    gated(&origin, &gate, &targets);
    let mut clients: Vec<_> = targets.iter().map(|target| proxy.ask(target)).collect();
    eventually("two requests at the origin", || {
        (origin.requests().len() == 2).then_some(())
    });
    proxy.settle();
    assert_eq!(origin.requests().len(), 2);
    gate.open();
    all_answered(&mut clients, &targets);
}

#[test]
fn requests_that_pass_are_bounded_too() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-concurrent", "1"]);
    let gate = Gate::default();
    origin.on("/").reply(Reply::new(200).body("x").after(&gate));
    let mut clients: Vec<_> = (0..4)
        .map(|_| proxy.ask_with("/", &["Cookie: session=1"]))
        .collect();
    origin.wait_for("/", 1);
    proxy.settle();
    assert_eq!(origin.count("/"), 1);
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "x");
    }
}

/// What many wait for is rendered once, also if it waits for its place longer than it may be stored.
#[test]
fn the_time_in_the_queue_makes_no_page_older() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-concurrent", "1"]);
    let gate = Gate::default();
    gated(&origin, &gate, &["/slow"]);
    let fields = ["Cache-Control: s-maxage=2"];
    origin
        .on("/page")
        .reply(Reply::new(200).with_all(&fields).body("page"));
    let mut first = proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    let mut visitors: Vec<_> = (0..25).map(|_| proxy.ask("/page")).collect();
    proxy.settle();
    // It has to be queued for longer than its lifetime.
    thread::sleep(Duration::from_millis(2_100));
    gate.open();
    first.response().assert_is(200, "/slow");
    for visitor in &mut visitors {
        visitor.response().assert_is(200, "page");
    }
    proxy.get("/page").assert_hit();
    assert_eq!(origin.count("/page"), 1);
}

#[test]
fn the_queue_is_first_come_first_served() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-concurrent", "1", "--threads", "1"]);
    let gate = Gate::default();
    let targets = ["/1", "/2", "/3", "/4", "/5"];
    gated(&origin, &gate, &targets);
    let mut clients = Vec::new();
    for target in targets {
        clients.push(proxy.ask(target));
        proxy.settle();
    }
    gate.open();
    all_answered(&mut clients, &targets);
    let order: Vec<_> = origin
        .requests()
        .into_iter()
        .map(|seen| seen.target)
        .collect();
    assert_eq!(order, targets);
}

#[test]
fn a_full_queue_is_a_503_with_a_plain_page() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &ONE_AND_ONE_MORE);
    let gate = Gate::default();
    gated(&origin, &gate, &["/1", "/2"]);
    let mut clients = vec![proxy.ask("/1")];
    origin.wait_for("/1", 1);
    clients.push(proxy.ask("/2"));
    proxy.settle();
    let refused = proxy.get("/3");
    assert_eq!(refused.status, 503, "{refused:?}");
    let seconds: u32 = refused
        .field("retry-after")
        .expect("Retry-After")
        .parse()
        .unwrap();
    assert!(seconds > 0, "{refused:?}");
    assert!(
        refused
            .field("content-type")
            .unwrap()
            .starts_with("text/plain"),
        "{refused:?}"
    );
    assert!(
        !refused.body.is_empty() && !refused.cache().has("stored"),
        "{refused:?}"
    );
    gate.open();
    all_answered(&mut clients, &["/1", "/2"]);
    assert_eq!(origin.count("/3"), 0);
}

#[test]
fn queued_requests_time_out() {
    let origin = Origin::start();
    let proxy = Proxy::start(
        &origin,
        &["--max-concurrent", "1", "--queue-timeout", "100ms"],
    );
    let gate = Gate::default();
    gated(&origin, &gate, &["/1"]);
    let mut first = proxy.ask("/1");
    origin.wait_for("/1", 1);
    let late = proxy.get("/2");
    assert_eq!(late.status, 503, "{late:?}");
    assert!(late.field("retry-after").is_some(), "{late:?}");
    gate.open();
    first.response().assert_is(200, "/1");
    assert_eq!(origin.count("/2"), 0);
}

#[test]
fn a_client_that_leaves_the_queue_makes_room() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &ONE_AND_ONE_MORE);
    let gate = Gate::default();
    gated(&origin, &gate, &["/1", "/3"]);
    let mut first = proxy.ask("/1");
    origin.wait_for("/1", 1);
    // No other client of these requests, so that leaving ends them.
    let second = proxy.ask_with("/2", &["Cookie: session=1"]);
    proxy.settle();
    // One that only closed its sending side would wait for its answer.
    second.reset();
    proxy.settle();
    let mut third = proxy.ask("/3");
    proxy.settle();
    gate.open();
    first.response().assert_is(200, "/1");
    third.response().assert_is(200, "/3");
    assert_eq!(origin.count("/2"), 0);
}

#[test]
fn clients_come_before_refreshes() {
    let origin = Origin::start();
    let flags = [
        "--max-concurrent",
        "1",
        "--threads",
        "1",
        "--stale-while-revalidate",
        "1h",
    ];
    let proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    let stale = Reply::ok(&["Cache-Control: max-age=10", "Age: 20"], "old");
    origin
        .on("/stale")
        .reply(stale)
        .reply(Reply::new(200).body("new"));
    proxy.get("/stale").assert_is(200, "old");
    gated(&origin, &gate, &["/1", "/2"]);
    let mut clients = vec![proxy.ask("/1")];
    origin.wait_for("/1", 1);
    proxy.get("/stale").assert_is(200, "old");
    proxy.settle();
    clients.push(proxy.ask("/2"));
    proxy.settle();
    gate.open();
    all_answered(&mut clients, &["/1", "/2"]);
    origin.wait_for("/stale", 2);
    let order: Vec<_> = origin
        .requests()
        .into_iter()
        .map(|seen| seen.target)
        .collect();
    assert_eq!(order, ["/stale", "/1", "/2", "/stale"]);
}

#[test]
fn hot_refreshes_come_before_cold_ones() {
    let origin = Origin::start();
    let flags = [
        "--max-concurrent",
        "1",
        "--threads",
        "1",
        "--stale-while-revalidate",
        "1h",
    ];
    let proxy = Proxy::start(&origin, &flags);
    for target in ["/cold", "/hot"] {
        let stale = Reply::ok(&["Cache-Control: max-age=10", "Age: 20"], "old");
        origin
            .on(target)
            .reply(stale)
            .reply(Reply::ok(&["Cache-Control: max-age=100"], "new"));
        proxy.get(target).assert_is(200, "old");
    }
    let gate = Gate::default();
    gated(&origin, &gate, &["/1"]);
    let mut busy = proxy.ask("/1");
    origin.wait_for("/1", 1);
    proxy.get("/cold").assert_is(200, "old");
    for _ in 0..20 {
        proxy.get("/hot").assert_is(200, "old");
    }
    gate.open();
    busy.response().assert_is(200, "/1");
    origin.wait_for("/cold", 2);
    let order: Vec<_> = origin
        .requests()
        .into_iter()
        .skip(3)
        .map(|seen| seen.target)
        .collect();
    assert_eq!(order, ["/hot", "/cold"]);
}

#[test]
fn a_slow_refresh_does_not_hold_up_the_others() {
    let origin = Origin::start();
    // One refresh at a time, an eighth.
    let flags = ["--max-concurrent", "8", "--stale-while-revalidate", "1h"];
    let proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    for target in ["/slow", "/quick"] {
        let stale = Reply::ok(&["Cache-Control: max-age=10", "Age: 20"], "old");
        origin.on(target).reply(stale);
        proxy.get(target).assert_is(200, "old");
    }
    gated(&origin, &gate, &["/slow"]);
    let fresh = Reply::ok(&["Cache-Control: max-age=100"], "new");
    origin.on("/quick").reply(fresh);
    proxy.get("/slow").assert_is(200, "old");
    origin.wait_for("/slow", 2);
    proxy.get("/quick").assert_is(200, "old");
    origin.wait_for("/quick", 2);
    gate.open();
}

#[test]
fn a_dead_server_is_not_noticed() {
    let (dead, alive) = (Origin::start(), Origin::start());
    dead.stop();
    let proxy = Proxy::before(&[&dead, &alive], &[]);
    for number in 0..20 {
        let target = format!("/{number}");
        alive.on(&target).reply(Reply::new(200).body("x"));
        proxy.get(&target).assert_is(200, "x");
    }
}

#[test]
fn a_failing_server_is_left_out() {
    let (failing, alive) = (Origin::start(), Origin::start());
    let proxy = Proxy::before(
        &[&failing, &alive],
        &["--fail-limit", "2", "--fail-pause", "1h"],
    );
    let targets: Vec<String> = (0..60).map(|number| format!("/{number}")).collect();
    for target in &targets {
        failing.on(target).reply(Reply::hang_up());
        alive.on(target).reply(Reply::new(200).body("x"));
    }
    let failures = targets
        .iter()
        .filter(|target| proxy.get(target).status != 200)
        .count();
    assert!(failures <= 2, "{failures} clients saw the failing server");
    assert!(
        failing.requests().len() <= 4,
        "{} requests went there",
        failing.requests().len()
    );
}

#[test]
fn a_server_that_answers_with_errors_is_left_out() {
    let (failing, alive) = (Origin::start(), Origin::start());
    let flags = [
        "--fail-status",
        "500-599",
        "--fail-limit",
        "2",
        "--fail-pause",
        "1h",
    ];
    let proxy = Proxy::before(&[&failing, &alive], &flags);
    let targets: Vec<String> = (0..60).map(|number| format!("/{number}")).collect();
    for target in &targets {
        failing.on(target).reply(Reply::new(503).body("overload"));
        alive.on(target).reply(Reply::new(200).body("x"));
    }
    let statuses: Vec<_> = targets
        .iter()
        .map(|target| proxy.get(target).status)
        .collect();
    let failures = statuses.iter().filter(|status| **status != 200).count();
    assert!(failures <= 2, "{statuses:?}");
    assert!(failing.requests().len() <= 4);
    // With the other one gone, it is tried.
    failing.on("/again").reply(Reply::new(503).body("overload"));
    alive.stop();
    assert_eq!(proxy.get("/again").status, 503);
}

#[test]
fn load_is_shared_by_outstanding_requests_and_weight() {
    let (heavy, light) = (Origin::start(), Origin::start());
    let gate = Gate::default();
    let targets = ["/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8"];
    gated(&heavy, &gate, &targets);
    gated(&light, &gate, &targets);
    let proxy = Proxy::with_config(&format!(
        "[upstreams.app]\nservers = [{{ url = \"{}\", weight = 3 }}, \"{}\"]\n",
        heavy.url(),
        light.url()
    ));
    let mut clients: Vec<_> = targets.iter().map(|target| proxy.ask(target)).collect();
    let counts = || (heavy.requests().len(), light.requests().len());
    eventually("eight requests", || {
        (counts().0 + counts().1 == 8).then_some(())
    });
    assert_eq!(counts(), (6, 2));
    gate.open();
    all_answered(&mut clients, &targets);
}

#[test]
fn a_backup_serves_only_in_need() {
    let (main, backup) = (Origin::start(), Origin::start());
    let proxy = Proxy::with_config(&format!(
        "[upstreams.app]\nservers = [\"{}\", {{ url = \"{}\", backup = true }}]\n",
        main.url(),
        backup.url()
    ));
    for target in ["/1", "/2", "/3", "/4", "/5"] {
        main.on(target).reply(Reply::new(200).body("main"));
        backup.on(target).reply(Reply::new(200).body("backup"));
    }
    for target in ["/1", "/2", "/3"] {
        proxy.get(target).assert_is(200, "main");
    }
    assert!(backup.requests().is_empty());
    main.stop();
    for target in ["/4", "/5"] {
        proxy.get(target).assert_is(200, "backup");
    }
}

#[test]
fn checks_have_a_method_and_a_host() {
    let origin = Origin::start();
    origin.on("/healthz").reply(Reply::new(200).body("ok"));
    let _proxy = Proxy::with_config(&format!(
        "[upstreams.app]\nservers = \"{}\"\norigin_host = \"app\"\n\
         health_check = {{ path = \"/healthz\", method = \"HEAD\", host = \"health.internal\", interval = \"50ms\", timeout = \"50ms\" }}\n",
        origin.url(),
    ));
    let seen = origin.wait_for("/healthz", 2);
    assert_eq!(
        (&*seen.method, seen.field("host")),
        ("HEAD", Some("health.internal"))
    );
}

#[test]
fn a_server_that_fails_its_checks_is_left_out_until_it_recovers() {
    let (sick, well) = (Origin::start(), Origin::start());
    sick.on("/healthz").reply(Reply::new(503).body(""));
    well.on("/healthz").reply(Reply::new(200).body(""));
    let proxy = Proxy::with_config(&format!(
        "[upstreams.app]\nservers = [\"{}\", \"{}\"]\n\
         health_check = {{ path = \"/healthz\", interval = \"50ms\", timeout = \"50ms\", rise = 1, fall = 1 }}\n",
        sick.url(),
        well.url()
    ));
    for origin in [&sick, &well] {
        origin
            .on("/")
            .reply(Reply::new(200).with("Cache-Control: no-store").body("x"));
    }
    sick.wait_for("/healthz", 2);
    let before = sick.count("/");
    for _ in 0..20 {
        proxy.get("/").assert_is(200, "x");
    }
    assert_eq!(sick.count("/"), before);
    sick.on("/healthz").answer(|_| Reply::new(200).body(""));
    eventually("the server to come back", || {
        proxy.get("/").assert_is(200, "x");
        (sick.count("/") > before).then_some(())
    });
}

#[test]
fn connections_are_used_again() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("x"));
    origin.on("/chunked").reply(
        Reply::new(200)
            .with("Transfer-Encoding: chunked")
            .chunk("x")
            .send("0\r\n\r\n"),
    );
    for _ in 0..5 {
        proxy.get("/").assert_is(200, "x");
    }
    proxy.get("/chunked").assert_is(200, "x");
    proxy
        .send("POST", "/", &["Content-Length: 0"])
        .assert_is(200, "x");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_connection_closed_by_the_origin_is_not_reused() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin.on("/").reply(Reply::ok(
        &["Cache-Control: no-store", "Connection: close"],
        "x",
    ));
    for expected in 1..=3 {
        proxy.get("/").assert_is(200, "x");
        assert_eq!(origin.connections(), expected);
    }
}

#[test]
fn idle_connections_are_closed_after_a_while() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--pool-idle-timeout", "100ms"]);
    origin.on("/").reply(Reply::new(200).body("x"));
    proxy.get("/").assert_is(200, "x");
    origin.wait_for_close(0);
}

#[test]
fn a_connection_that_died_while_idle_is_replaced() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    // No `Connection: close`: the proxy keeps a connection that is already gone.
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: no-store"], "x").close());
    for _ in 0..10 {
        proxy.get("/").assert_is(200, "x");
    }
    assert_eq!(origin.count("/"), 10);
}

#[test]
fn a_request_that_may_have_been_processed_is_not_repeated() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin.on("/").reply(Reply::hang_up());
    for method in ["POST", "PATCH", "BREW"] {
        let before = origin.count("/");
        assert_eq!(
            proxy.send(method, "/", &["Content-Length: 0"]).status,
            502,
            "{method}"
        );
        assert_eq!(origin.count("/"), before + 1, "{method}");
    }
}

#[test]
fn an_origin_that_refuses_connections() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.stop();
    for _ in 0..10 {
        let response = proxy.get("/");
        assert!(matches!(response.status, 502 | 503), "{response:?}");
        response.assert_forwarded("uri-miss");
        assert!(!response.cache().has("stored"), "{response:?}");
    }
}

#[test]
fn names_are_resolved() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::new(200).body("x"));
    let url = format!("http://localhost:{}", origin.address().port());
    let proxy = Proxy::with_config(&format!("origin = \"{url}\"\n"));
    proxy.get("/").assert_is(200, "x");
}

//! Figures for operators: by route and upstream, latency, top lists, errors.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::operators::Operator;
use crate::support::{Gate, Origin, Proxy, Reply, eventually, request};

/// The answer of the interface to operators as soon as it is like this.
fn until(operator: &Operator, target: &str, is: impl Fn(&Value) -> bool) -> Value {
    eventually(target, || Some(operator.get(target)).filter(&is))
}

/// What `microcache bench` tells of a run.
fn bench(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(["bench", "--format", "json"])
        .args(arguments)
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

/// The samples of one family, by their labels.
fn samples(text: &str, family: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let labels = name.strip_prefix(family)?;
        (labels.is_empty() || labels.starts_with('{')).then(|| {
            let value = value.parse().expect("a number");
            (labels.to_owned(), value)
        })
    });
    samples.collect()
}

fn metrics(operator: &Operator) -> String {
    operator.ask("GET", "/metrics", None).text()
}

const ROUTES: &str = r#"
[[routes]]
name = "api"
match = { path = "/api/*" }
pass = true
[[routes]]
name = "pages"
"#;

#[test]
fn every_request_of_the_load_generator_is_counted_once_and_as_it_saw_it() {
    let origin = Origin::start();
    for number in 1..=20 {
        let page = Reply::new(200).with("Cache-Control: max-age=600");
        let page = page.body("page ".repeat(number));
        origin.on(&format!("/page/{number}")).reply(page);
        let api = Reply::new(200).body("api");
        origin.on(&format!("/api/{number}")).reply(api);
    }
    let text = format!("origin = \"{}\"\n{ROUTES}", origin.url());
    let (proxy, admin) = Proxy::operated_by_file(&text);
    let operator = Operator::at(admin);
    let urls = ["page", "api"].map(|kind| format!("http://{}/{kind}/[1-20]", proxy.address()));
    let report = bench(&["-c", "8", "-n", "4000", &urls[0], &urls[1]]);
    let stats = until(&operator, "/v1/stats", |stats| {
        stats["requests"]["total"].as_u64() >= Some(4000)
    });
    assert_eq!(
        (&report["requests"], &report["errors"]),
        (&4000.into(), &0.into())
    );
    assert_eq!(stats["requests"]["total"], 4000);
    let seen = |outcome: &str| {
        report["outcomes"][outcome]["requests"]
            .as_u64()
            .unwrap_or(0)
    };
    for outcome in ["hit", "stale", "revalidated", "miss", "collapsed", "pass"] {
        assert_eq!(
            stats["requests"][outcome],
            seen(outcome),
            "{outcome}: {stats:#}"
        );
    }
    assert_eq!(seen("pass"), 2000, "{report:#}");
    // By route it is the same.
    let routes = stats["routes"].as_array().expect("a list");
    let names: Vec<_> = routes.iter().map(|route| route["name"].as_str()).collect();
    assert_eq!(names, [Some("api"), Some("pages")]);
    assert_eq!(routes[0]["requests"]["pass"], 2000);
    assert_eq!(routes[1]["requests"]["total"], 2000);
    let sent = routes[0]["bytes_sent"].as_u64();
    assert_eq!(sent, Some(2000 * "api".len() as u64));
    // So it is at the origin, and in the metrics.
    assert_eq!(stats["origin"]["requests"], origin.requests().len());
    assert_eq!(
        stats["upstreams"][0]["origin"]["responses"]["2xx"],
        origin.requests().len()
    );
    let text = metrics(&operator);
    let sum = |family: &str| samples(&text, family).values().sum::<f64>();
    assert!((sum("microcache_requests_total") - 4000.0).abs() < 0.5);
    assert!((sum("microcache_route_requests_total") - 4000.0).abs() < 0.5);
    let timed = sum("microcache_hit_duration_seconds_count");
    let hits = seen("hit") as f64;
    assert!(
        timed > hits / 32.0 && timed < hits / 8.0,
        "{timed} of {hits}"
    );
    assert_eq!(stats["hit_microseconds"]["count"].as_f64(), Some(timed));
    // All others waited, for the origin or for each other; and some of the hits, for what came meanwhile.
    let others = ["miss", "collapsed", "pass", "revalidated"].map(seen);
    let waited = &stats["wait_microseconds"]["count"];
    assert!(waited.as_u64() >= Some(others.iter().sum()), "{waited}");
    let reported = sum("microcache_wait_duration_seconds_count");
    assert_eq!(waited.as_f64(), Some(reported));
    let windows = eventually("the last second is noted", || {
        let windows = operator.get("/v1/stats")["windows"].clone();
        (windows[2]["wait_microseconds"]["count"] == *waited).then_some(windows)
    });
    assert_eq!(windows[2]["hit_microseconds"], stats["hit_microseconds"]);
    assert_eq!(windows[2]["wait_microseconds"], stats["wait_microseconds"]);
    // What was saved is what the origin did not see.
    let saved = stats["saved"]["fetches"].as_u64();
    assert_eq!(saved, Some(seen("hit") + seen("collapsed") + seen("stale")));
    let whole = &routes[1]["origin"]["total_microseconds"];
    let estimate = whole["mean"].as_f64().expect("it was asked") / 1e6 * saved.unwrap_or(0) as f64;
    let reported = stats["saved"]["origin_seconds"].as_f64().expect("a number");
    assert!(
        (reported - estimate).abs() <= estimate * 1e-3,
        "{reported} {estimate}"
    );
}

/// What goes out on a connection that turns out to be closed goes out again on another one; and what had something
/// withheld, and gets an answer for one client, goes out again whole.
#[test]
fn repeated_requests_are_counted() {
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated(&origin, &["--threads", "1"]);
    let page = || Reply::ok(&["Cache-Control: no-store"], "a page");
    origin.on("/first").reply(page());
    // On the connection that was kept.
    origin.on("/again").reply(Reply::hang_up()).reply(page());
    origin
        .on("/tenant")
        .answer(|request| match request.field("X-Tenant") {
            Some(tenant) => Reply::new(200).with("Cache-Control: private").body(tenant),
            None => Reply::new(401)
                .with("Cache-Control: private")
                .body("nobody's"),
        });
    proxy.get("/first").assert_is(200, "a page");
    proxy.get("/again").assert_is(200, "a page");
    proxy
        .get_with("/tenant", &["X-Tenant: a"])
        .assert_is(200, "a");
    let counts = ["/first", "/again", "/tenant"].map(|target| origin.count(target));
    assert_eq!(counts, [1, 2, 2]);
    let operator = Operator::at(admin);
    let text = metrics(&operator);
    for family in [
        "microcache_origin_requests_total",
        "microcache_route_origin_requests_total",
    ] {
        let reported: f64 = samples(&text, family).values().sum();
        assert!((reported - 5.0).abs() < 0.5, "{family} {reported}");
    }
    let stats = operator.get("/v1/stats");
    assert_eq!(stats["origin"]["requests"], origin.requests().len());
}

#[test]
fn a_client_that_leaves_before_the_answer_is_counted_too() {
    let origin = Origin::start();
    let gate = Gate::default();
    origin
        .on("/slow")
        .reply(Reply::new(200).body("late").after(&gate));
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    let client = proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    client.reset();
    let stats = until(&operator, "/v1/stats", |stats| {
        stats["requests"]["aborted"] == 1
    });
    assert_eq!(stats["requests"]["total"], 1);
    assert_eq!(stats["routes"][0]["requests"]["aborted"], 1);
    gate.open();
}

#[test]
fn fetches_in_progress_are_listed_with_their_waiters() {
    let origin = Origin::start();
    let gate = Gate::default();
    for target in ["/slow", "/other"] {
        let reply = Reply::new(200).with("Cache-Control: max-age=100");
        origin.on(target).reply(reply.body("late").after(&gate));
    }
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    let mut clients: Vec<_> = (0..5).map(|_| proxy.ask("/slow")).collect();
    clients.push(proxy.ask("/other"));
    let stats = until(&operator, "/v1/stats", |stats| {
        stats["fetches"]["waiting"] == 4 && stats["fetches"]["in_progress"] == 2
    });
    let most = &stats["fetches"]["most_awaited"];
    assert_eq!(most[0]["url"], "http://example.com/slow");
    assert_eq!(
        (&most[0]["waiting"], &most[1]["waiting"]),
        (&4.into(), &0.into())
    );
    assert_eq!(most[0]["refresh"], false);
    let waiting = samples(&metrics(&operator), "microcache_fetches_waiting");
    assert_eq!(waiting.values().copied().collect::<Vec<_>>(), [4.0]);
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "late");
    }
    let stats = until(&operator, "/v1/stats", |stats| {
        stats["fetches"]["in_progress"] == 0
    });
    assert_eq!(stats["requests"]["collapsed"], 4);
    assert_eq!(stats["upstreams"][0]["servers"][0]["responses"]["2xx"], 2);
    assert_eq!(stats["origin"]["total_microseconds"]["count"], 2);
}

#[test]
fn the_top_urls_are_listed_by_each_measure() {
    let origin = Origin::start();
    let long = format!("/long?{}", "x".repeat(6000));
    for (target, length) in [("/large", 100_000), ("/often", 10), (&long, 1)] {
        let reply = Reply::new(200).with("Cache-Control: max-age=100");
        origin.on(target).reply(reply.body("x".repeat(length)));
    }
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    proxy.get("/large");
    proxy.get(&long);
    let mut client = proxy.connect();
    for _ in 0..400 {
        client.get("/often");
    }
    let first = |by: &str| {
        let top = operator.get(&format!("/v1/top?by={by}&limit=5"));
        assert_eq!(top["by"], by);
        assert!(top["seconds"].as_f64() > Some(0.0));
        top["urls"][0].clone()
    };
    let often = first("requests");
    assert_eq!(often["url"], "http://example.com/often");
    let requests = often["requests"].as_u64().expect("a count");
    assert!(
        (100..1000).contains(&requests),
        "{requests} of 400, by samples"
    );
    assert_eq!(often["misses"], 1);
    let large = first("bytes");
    assert_eq!(large["url"], "http://example.com/large");
    assert_eq!(large["bytes"], 100_000);
    // There may have been hits that were not looked at.
    assert!(large["error"].as_u64() > Some(100_000));
    let missed = first("misses");
    assert_eq!(
        (&missed["misses"], &missed["error"]),
        (&1.into(), &0.into())
    );
    let top = operator.get("/v1/top?by=origin_time");
    assert_eq!(top["urls"].as_array().map(Vec::len), Some(3));
    let all = top["urls"].as_array().expect("a list");
    let cut = all
        .iter()
        .find(|url| url["truncated"] == true)
        .expect("the long one");
    assert_eq!(cut["url"].as_str().map(str::len), Some(512));
    for wrong in ["by=size", "limit=0", "limit=101", "x=1"] {
        let refused = operator.ask("GET", &format!("/v1/top?{wrong}"), None);
        assert_eq!(refused.status, 400, "{wrong}: {}", refused.text());
    }
}

#[test]
fn recent_errors_are_listed_with_their_reasons() {
    let origin = Origin::start();
    origin.on("/broken").reply(Reply::new(500).body("sorry"));
    origin.on("/garbage").reply(Reply::raw("nonsense\r\n\r\n"));
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    assert_eq!(proxy.get("/broken").status, 500);
    assert_eq!(proxy.get("/garbage").status, 502);
    for _ in 0..3 {
        proxy.connect().send("nonsense\r\n\r\n");
    }
    let reported = until(&operator, "/v1/errors", |reported| {
        let errors = reported["errors"].as_array().expect("a list");
        errors.iter().any(|error| error["count"] == 3)
    });
    let errors = reported["errors"].as_array().expect("a list");
    let find = |kind: &str, word: &str| {
        let of_kind = errors.iter().filter(|error| error["kind"] == kind);
        let mut found = of_kind.filter(|error| {
            error["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains(word))
        });
        found
            .next()
            .unwrap_or_else(|| panic!("{kind} {word}: {reported:#}"))
    };
    let broken = find("origin", "answered 500");
    assert_eq!(
        (&broken["status"], &broken["url"]),
        (&500.into(), &"http://example.com/broken".into())
    );
    assert_eq!(
        (&broken["upstream"], &broken["count"]),
        (&"origin".into(), &1.into())
    );
    assert_eq!(
        find("origin", "malformed")["url"],
        "http://example.com/garbage"
    );
    let page = find("answer", "origin-malformed");
    assert_eq!(
        (&page["status"], &page["upstream"]),
        (&502.into(), &Value::Null)
    );
    let unread = find("answer", "bad-request");
    assert_eq!(
        (&unread["route"], &unread["url"]),
        (&Value::Null, &Value::Null)
    );
    let limited = operator.get("/v1/errors?limit=1");
    assert_eq!(limited["errors"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        operator.ask("GET", "/v1/errors?limit=257", None).status,
        400
    );
}

#[test]
fn nothing_that_clients_send_makes_a_label_or_breaks_a_line() {
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    proxy.get("/");
    let until_told = |count: u64| {
        until(&operator, "/v1/stats", |stats| {
            stats["requests"]["total"] == count
        });
        metrics(&operator)
    };
    let before = until_told(1);
    let mut client = proxy.connect();
    for number in 0..1000 {
        let host = format!("Host: host-{number}.example");
        let target = format!("/{number}%0A%22%5C?microcache_requests_total='1'");
        client.send(
            request(&format!("M{}", number % 50), &target, &[]).replace("Host: example.com", &host),
        );
        client.response();
    }
    let after = until_told(1001);
    assert_eq!(before.lines().count(), after.lines().count());
    let reported = operator.get("/v1/top?limit=100");
    assert_eq!(reported["urls"].as_array().map(Vec::len), Some(100));
    // Every line is one of the format's, and every family is said what it is.
    for line in after.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        assert!(
            value.parse::<f64>().is_ok_and(|value| value >= 0.0),
            "{line}"
        );
        let family = name.split('{').next().unwrap_or_default();
        let parts = ["", "_bucket", "_sum", "_count"];
        let mut families = parts.iter().filter_map(|part| family.strip_suffix(part));
        let is_told = families.any(|family| after.contains(&format!("# TYPE {family} ")));
        assert!(is_told, "{line}");
    }
}

const TRACE: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_valid_traceparent_is_forwarded() {
    let origin = Origin::start();
    for target in ["/", "/pass", "/bad"] {
        let reply = Reply::new(200).with("Cache-Control: max-age=100");
        origin.on(target).reply(reply.body("x"));
    }
    let proxy = Proxy::start(&origin, &[]);
    let state = "tracestate: a=1,b=2";
    proxy.get_with("/", &[TRACE, state]);
    proxy
        .get_with("/", &[&TRACE.replace("4bf9", "aaaa"), state])
        .assert_hit();
    proxy.send("POST", "/pass", &[TRACE, state, "Content-Length: 0"]);
    proxy.get_with("/bad", &["traceparent: 00-nonsense", state]);
    let trace = TRACE.split_once(": ").map(|(_, trace)| trace);
    for (target, expected) in [("/", trace), ("/pass", trace), ("/bad", None)] {
        let seen = origin.seen(target);
        assert_eq!(seen.len(), 1, "{target}");
        assert_eq!(seen[0].field("traceparent"), expected, "{target}");
        assert_eq!(
            seen[0].field("tracestate"),
            expected.map(|_| "a=1,b=2"),
            "{target}"
        );
    }
}

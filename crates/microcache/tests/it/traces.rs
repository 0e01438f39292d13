//! Traces of requests, as a collector gets them by OTLP.

use serde_json::Value;

use crate::operators::Operator;
use crate::support::{Gate, Origin, Proxy, Reply, eventually};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const COLLECTED: &str = "/v1/traces";

/// A collector, and an application whose pages may be kept.
fn start(flags: &[&str]) -> (Origin, Origin, Proxy, Operator) {
    let (origin, collector) = (Origin::start(), Origin::start());
    collector
        .on(COLLECTED)
        .answer(|_| Reply::new(200).body("{}"));
    for target in ["/page", "/page?secret=1"] {
        let page = Reply::new(200).with("Cache-Control: max-age=600");
        origin.on(target).answer(move |_| page.clone().body("page"));
    }
    let url = collector.url();
    let flags = [&["--otlp", &url], flags].concat();
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    (origin, collector, proxy, Operator::at(admin))
}

/// All spans that the collector has.
fn collected(collector: &Origin) -> Vec<Value> {
    let requests = collector.seen(COLLECTED);
    let spans = requests.iter().flat_map(|request| {
        assert_eq!(request.field("content-type"), Some("application/json"));
        let reported: Value = serde_json::from_slice(&request.body()).expect("JSON");
        let spans = &reported["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.as_array().expect("a list").clone()
    });
    spans.collect()
}

/// As many spans as are waited for.
fn spans(collector: &Origin, count: usize) -> Vec<Value> {
    eventually("the spans", || {
        let spans = collected(collector);
        (spans.len() >= count).then_some(spans)
    })
}

fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a str> {
    let all = span["attributes"].as_array()?;
    let one = all.iter().find(|one| one["key"] == name)?;
    let value = &one["value"];
    value["stringValue"].as_str().or(value["intValue"].as_str())
}

fn of_kind(spans: &[Value], kind: u64) -> Vec<&Value> {
    spans.iter().filter(|span| span["kind"] == kind).collect()
}

#[test]
fn origin_requests_are_child_spans_and_parents_of_the_applications() {
    let (origin, collector, proxy, _operator) = start(&["--otlp-sample", "1"]);
    proxy.get("/page?secret=1");
    let parent = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01");
    let state = "tracestate: other=1";
    proxy
        .get_with("/page", &[&parent, state])
        .assert_is(200, "page");
    proxy.get_with("/page", &[&parent]).assert_hit();
    let all = spans(&collector, 5);
    let (servers, clients) = (of_kind(&all, 2), of_kind(&all, 3));
    assert_eq!((servers.len(), clients.len()), (3, 2), "{all:#?}");
    let ours: Vec<_> = servers
        .iter()
        .filter(|span| span["traceId"] == TRACE)
        .collect();
    for span in &ours {
        assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
        assert_eq!(span["name"], "GET default");
        assert_eq!(attribute(span, "url.path"), Some("/page"));
        assert_eq!(attribute(span, "http.response.status_code"), Some("200"));
        assert_eq!(attribute(span, "microcache.route"), Some("default"));
    }
    let outcome = |span: &Value| attribute(span, "microcache.outcome").map(str::to_owned);
    let mut outcomes: Vec<_> = ours.iter().filter_map(|span| outcome(span)).collect();
    outcomes.sort();
    assert_eq!(outcomes, ["hit", "miss"]);
    let missed = ours
        .iter()
        .find(|span| outcome(span).as_deref() == Some("miss"));
    let missed = missed.expect("one of them");
    let requested = clients.iter().find(|span| span["traceId"] == TRACE);
    let requested = requested.expect("one of them");
    assert_eq!(requested["parentSpanId"], missed["spanId"]);
    assert_eq!(attribute(requested, "microcache.upstream"), Some("origin"));
    // The application's spans have that one as their parent, in the same trace.
    let seen = origin.wait_for("/page", 1);
    let span = requested["spanId"].as_str().expect("an id");
    let expected = format!("00-{TRACE}-{span}-01");
    assert_eq!(seen.field("traceparent"), Some(&*expected));
    assert_eq!(seen.field("tracestate"), Some("other=1"));
    // A request that belongs to no trace begins one; and nothing tells what stands behind the `?`.
    let other = clients.iter().find(|span| span["traceId"] != TRACE);
    let id = other
        .and_then(|span| span["traceId"].as_str())
        .expect("an id");
    let seen = origin.wait_for("/page?secret=1", 1);
    assert!(
        seen.field("traceparent")
            .is_some_and(|line| line.contains(id))
    );
    assert!(!all.iter().any(|span| span.to_string().contains("secret")));
}

#[test]
fn a_request_that_its_client_does_not_sample_is_not_exported() {
    let (origin, collector, proxy, operator) = start(&["--otlp-sample", "1"]);
    let unkept = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-00");
    proxy.get_with("/page", &[&unkept]).assert_is(200, "page");
    proxy.get_with("/page", &[&unkept]).assert_hit();
    let seen = origin.wait_for("/page", 1);
    assert_eq!(
        seen.field("traceparent"),
        unkept.split_once(": ").map(|(_, value)| value)
    );
    proxy.get("/page").assert_hit();
    let all = spans(&collector, 1);
    assert_eq!(all.len(), 1, "{all:#?}");
    eventually("it is counted", || {
        let sent = operator.get("/v1/stats")["traces"]["sent"].clone();
        (sent == 1).then_some(())
    });
}

#[test]
fn by_default_nothing_is_traced_and_with_a_share_of_none_only_requests_of_trusted_proxies() {
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    proxy.get("/x");
    assert!(Operator::at(admin).get("/v1/stats")["traces"].is_null());

    let kept = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01");
    let trusted = ["--otlp-sample", "0", "--trusted-proxies", "127.0.0.1"];
    let (_origin, collector, proxy, _) = start(&trusted);
    proxy.get("/page");
    proxy.get_with("/page", &[&kept]).assert_hit();
    let all = spans(&collector, 1);
    assert_eq!(
        (all.len(), &all[0]["traceId"]),
        (1, &TRACE.into()),
        "{all:#?}"
    );
}

#[test]
fn a_failure_is_exported_with_its_reason() {
    let (origin, collector, proxy, _operator) = start(&["--otlp-sample", "1"]);
    origin.on("/gone").reply(Reply::hang_up());
    assert_eq!(proxy.get("/gone").status, 502);
    let all = spans(&collector, 2);
    for (kind, why) in [(2, "origin-disconnected"), (3, "closed the connection")] {
        let span = of_kind(&all, kind)[0];
        assert_eq!(span["status"]["code"], 2, "{span:#}");
        let reported = span["status"]["message"].as_str().expect("a reason");
        assert!(reported.contains(why), "{reported}");
    }
}

#[test]
fn a_collector_that_hangs_or_refuses_costs_spans_and_no_request() {
    let (origin, collector) = (Origin::start(), Origin::start());
    let gate = Gate::default();
    let behind = gate.clone();
    collector
        .on(COLLECTED)
        .answer(move |_| Reply::new(400).body("no").after(&behind));
    let page = Reply::ok(&["Cache-Control: max-age=600"], "page");
    origin.on("/page").reply(page);
    let url = collector.url();
    let (proxy, admin) = Proxy::operated(&origin, &["--otlp", &url, "--otlp-sample", "1"]);
    let operator = Operator::at(admin);
    let mut client = proxy.connect();
    client.get("/page");
    collector.wait_for(COLLECTED, 1);
    // As many as wait, and more.
    for _ in 0..3000 {
        client.get("/page").assert_hit();
    }
    let dropped = operator.get("/v1/stats")["traces"]["dropped"].clone();
    assert!(dropped.as_u64() >= Some(900), "{dropped}");
    gate.open();
    eventually("those that were not taken are counted", || {
        let failed = operator.get("/v1/stats")["traces"]["failed"].clone();
        (failed.as_u64() >= Some(2000)).then_some(())
    });
    let text = operator.ask("GET", "/metrics", None).text();
    assert!(
        text.contains("microcache_trace_spans_total{result=\"sent\"} 0"),
        "{text}"
    );
    eventually("it is told", || {
        proxy
            .output()
            .contains("rejects spans: status 400")
            .then_some(())
    });
}

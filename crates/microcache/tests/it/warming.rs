//! Warming, from the command line to the visitor's hit.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::json;

use crate::operators::{Operator, check_schema};
use crate::support::{Origin, Proxy, Reply, eventually};

/// Runs a command against the interface at this address, and returns its exit status and output.
fn run(admin: SocketAddr, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(arguments)
        .args(["--admin", &admin.to_string()])
        .output()
        .expect("the binary can be run");
    let texts = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&texts).into_owned(),
    )
}

/// A sitemap, and pages that may be kept.
fn site() -> Origin {
    let origin = Origin::start();
    let kept = &["Cache-Control: max-age=600, stale-while-revalidate=600"];
    let sitemap = "<?xml version=\"1.0\"?><urlset><url><loc>http://example.com/1</loc></url>\
                   <url><loc>http://example.com/2</loc></url><url><loc>http://localhost/</loc></url></urlset>";
    origin.on("/sitemap.xml").reply(Reply::ok(kept, sitemap));
    for target in ["/1", "/2"] {
        origin.on(target).reply(Reply::ok(kept, target));
    }
    origin
}

#[test]
fn the_first_visitor_of_a_warmed_page_gets_a_hit() {
    let origin = site();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let sitemap = [
        "warm",
        "--sitemap",
        "http://example.com/sitemap.xml",
        "--rate",
        "off",
    ];
    let (code, text) = run(admin, &sitemap);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("2 stored, 0 fresh already, 1 not stored"),
        "{text}"
    );
    assert!(text.contains("1 other-host: http://localhost/"), "{text}");
    for target in ["/1", "/2"] {
        proxy.get(target).assert_hit();
        assert_eq!(origin.count(target), 1);
    }
    let operator = Operator::at(admin);
    assert_eq!(operator.get("/v1/stats")["warming"]["stored"], 2);
    let json = [&sitemap[..], &["--json"]].concat();
    let (_, text) = run(admin, &json);
    let job: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let description = operator.get("/v1/openapi.json");
    let schema = &description["components"]["schemas"]["WarmJob"];
    check_schema(&description, schema, &job, "job");
    assert_eq!((&job["state"], &job["fresh"]), (&"done".into(), &2.into()));
    origin.on("/none.xml").reply(Reply::new(404).body("none"));
    let (code, text) = run(admin, &["warm", "--sitemap", "http://example.com/none.xml"]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("http://example.com/none.xml: the response has status 404"),
        "{text}"
    );
    let (code, text) = run(admin, &[&sitemap[..4], &["fast"]].concat());
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn what_was_purged_and_requested_lately_is_fetched_at_once() {
    let origin = site();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    proxy.get("/1").assert_is(200, "/1");
    proxy.get("/1").assert_hit();
    let operator = Operator::at(admin);
    operator.post("/v1/warm", &json!({"urls": ["http://example.com/2"]}));
    eventually("a warm page", || {
        (operator.get("/v1/stats")["warming"]["stored"] == 1).then_some(())
    });
    let (code, text) = run(admin, &["purge", "--all", "--refresh"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("fetched again, as requested lately: 1 page"),
        "{text}"
    );
    eventually("the page again", || (origin.count("/1") == 2).then_some(()));
    eventually("a hit", || proxy.get("/1").is_hit().then_some(()));
    // No visitor has asked for the other.
    assert_eq!((origin.count("/1"), origin.count("/2")), (2, 1));
    let softly = operator.post(
        "/v1/purges",
        &json!({"tag": "x", "soft": true, "refresh": true}),
    );
    assert_eq!(softly["refresh"], json!({"urls": 0}));
    let description = operator.get("/v1/openapi.json");
    let schema = &description["components"]["schemas"]["Purges"];
    check_schema(&description, schema, &softly, "purges");
}

//! Maintenance mode over real connections.

use std::net::SocketAddr;

use serde_json::json;

use crate::operators::Operator;
use crate::push::{Kept, Live};
use crate::support::http2::Http2;
use crate::support::{Client, Events, Folder, Origin, Proxy, Reply, eventually, request};

const OTHER: &str = "127.0.0.2";
const FRESH: &str = "Cache-Control: max-age=1000";

fn operated(origin: &Origin, lines: &str) -> (Proxy, SocketAddr) {
    Proxy::operated_by_file(&format!("origin = \"{}\"\n{lines}", origin.url()))
}

#[test]
fn all_clients_but_those_allowed_get_the_page() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::ok(&[FRESH], "page"));
    let folder = Folder::new();
    let page = folder.write("down.html", "<h1>Back soon</h1>");
    let errors = folder.write("5xx.html", "error");
    let (proxy, admin) = operated(
        &origin,
        &format!(
            r#"
            maintenance_page = "{page}"
            maintenance_allow = ["127.0.0.3"]
            error_pages = {{ 5xx = "{errors}" }}
            trusted_proxies = ["127.0.0.4"]
            purge_from = ["127.0.0.5"]
            [[routes]]
            match = {{ path = "/denied" }}
            deny = "all"
            [[routes]]
            match = {{ path = "/old" }}
            redirect = {{ to = "/" }}
            "#
        ),
    );
    let operator = Operator::at(admin);
    proxy.get("/").assert_is(200, "page");
    operator.post(
        "/v1/maintenance",
        &json!({"allow": ["127.0.0.6"], "retry_after": 7}),
    );
    for target in ["/", "/old", "/missing"] {
        let stopped = proxy.get_from(OTHER, target, &["X-Forwarded-For: 127.0.0.3"]);
        stopped.assert_is(503, "<h1>Back soon</h1>");
        assert_eq!(stopped.field("retry-after"), Some("7"), "{target}");
        assert_eq!(stopped.field("cache-control"), Some("no-store"));
        assert_eq!(
            stopped.field("content-type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(stopped.cache().get("detail"), Some("maintenance"));
    }
    assert_eq!(Http2::connect(proxy.address()).get("/").status(), 503);
    assert_eq!(proxy.get("/denied").status, 403);
    for allowed in ["127.0.0.3", "127.0.0.6"] {
        proxy.get_from(allowed, "/", &[]).assert_hit();
        let through = proxy.get_from("127.0.0.4", "/", &[&format!("X-Forwarded-For: {allowed}")]);
        through.assert_hit();
    }
    assert_eq!(proxy.get_from("127.0.0.4", "/", &[]).status, 503);
    let explained = operator.post(
        "/v1/explain",
        &json!({"url": format!("http://{}/", proxy.address())}),
    );
    assert!(explained.to_string().contains("maintenance"), "{explained}");
    let stats = operator.get("/v1/stats");
    assert_eq!(stats["maintenance"]["allow"], json!(["127.0.0.6"]));
    assert_eq!(operator.get("/v1/ready")["ready"], true);
    let metrics = operator.ask("GET", "/metrics", None).text();
    assert!(
        metrics.contains("\nmicrocache_maintenance 1\n"),
        "{metrics}"
    );
    assert_eq!(origin.count("/old") + origin.count("/missing"), 0);
    let off = operator.ask("DELETE", "/v1/maintenance", None);
    assert_eq!(
        (off.status, off.text()),
        (200, r#"{"on":false}"#.to_owned())
    );
    proxy.get("/").assert_hit();
    eventually("lines in the log", || {
        let log = proxy.output();
        let has = |what: &str| log.contains(what);
        (has("maintenance mode is on (POST /v1/maintenance)") && has("maintenance mode is off"))
            .then_some(())
    });
}

#[test]
fn stored_responses_are_sent_if_asked_for() {
    let origin = Origin::start();
    origin.on("/fresh").reply(Reply::ok(&[FRESH], "fresh"));
    origin.on("/stale").reply(Reply::ok(
        &["Cache-Control: max-age=0, stale-while-revalidate=1000"],
        "stale",
    ));
    origin
        .on("/none")
        .reply(Reply::ok(&["Cache-Control: no-store"], "none"));
    let (proxy, admin) = operated(&origin, "");
    for target in ["/fresh", "/stale", "/none"] {
        assert_eq!(proxy.get(target).status, 200);
    }
    let operator = Operator::at(admin);
    operator.post("/v1/maintenance", &json!({"keep_cached": true}));
    proxy.get("/fresh").assert_hit();
    proxy.get("/stale").assert_is(200, "stale");
    let stopped = proxy.get("/none");
    assert_eq!(
        (stopped.status, stopped.field("retry-after")),
        (503, Some("60"))
    );
    assert_eq!(stopped.cache().get("detail"), Some("maintenance"));
    assert_eq!(
        proxy.send("POST", "/fresh", &["Content-Length: 0"]).status,
        503
    );
    proxy.get("/fresh").assert_hit();
    assert_eq!((origin.count("/stale"), origin.count("/none")), (1, 1));
    operator.ask("DELETE", "/v1/maintenance", None);
    assert_eq!(proxy.get("/none").status, 200);
}

#[test]
fn open_streams_go_on() {
    let (origin, kept) = (Origin::start(), Kept::new());
    let flags = [
        "--push",
        "/live/",
        "--push-directory",
        "none",
        "--push-token-file",
    ];
    let (proxy, admin) = Proxy::operated(&origin, &[&flags[..], &[&kept.token()]].concat());
    let live = Live(proxy);
    assert_eq!(live.put("/live/a", "1").status, 201);
    let lines = ["Accept: text/event-stream"];
    let mut client = Client::connect_from(OTHER.parse().expect("an address"), live.0.address());
    client.send(request("GET", "/live/a", &lines));
    let mut events = Events::begin(client);
    assert_eq!(events.data(), "1");
    let operator = Operator::at(admin);
    operator.post("/v1/maintenance", &json!({"allow": ["127.0.0.1"]}));
    assert_eq!(live.put("/live/a", "2").status, 204);
    assert_eq!(events.data(), "2");
    assert_eq!(live.0.get_from(OTHER, "/live/a", &lines).status, 503);
}

#[test]
fn the_command_line_switches_it() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::ok(&[], "page"));
    let (proxy, admin) = operated(&origin, "");
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_microcache"))
            .arg("maintenance")
            .args(arguments)
            .args(["--admin", &admin.to_string()])
            .output()
            .expect("it runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    assert_eq!(
        run(&["status"]),
        (Some(0), "maintenance mode is off\n".to_owned())
    );
    let (code, text) = run(&[
        "on",
        "--allow",
        OTHER,
        "--retry-after",
        "9",
        "--keep-cached",
    ]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("except from 127.0.0.2") && text.contains("a restart"),
        "{text}"
    );
    let stopped = proxy.get("/");
    assert_eq!(
        (stopped.status, stopped.field("retry-after")),
        (503, Some("9"))
    );
    assert!(run(&[]).1.starts_with("maintenance mode is on"));
    assert_eq!(run(&["off"]).0, Some(0));
    for wrong in [
        &["on", "--allow", "office"][..],
        &["off", "--keep-cached"],
        &["pause"],
        &["on", "--retry-after", "1h"],
    ] {
        assert_eq!(run(wrong).0, Some(2), "{wrong:?}");
    }
    proxy.get("/").assert_is(200, "page");
}

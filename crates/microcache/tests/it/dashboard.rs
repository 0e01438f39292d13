//! The page for operators as a browser would ask for it, and the events that it lives on. What it looks
//! like and does is tested in a browser: crates/admin/browser.

use std::net::SocketAddr;

use serde_json::Value;

use crate::operators::{Operator, check_schema};
use crate::support::{Client, Folder, Origin, Proxy, Reply, Response, eventually};

/// Those who may watch at a time.
const ROOM: usize = 32;

/// A page that may be kept.
fn origin() -> Origin {
    let origin = Origin::start();
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=600"], "page"));
    origin
}

/// A GET with these lines beside `Host`, on a connection of its own.
fn request_to(admin: SocketAddr, target: &str, lines: &[&str]) -> Client {
    let mut client = Client::connect(admin);
    let host = format!("Host: {admin}");
    let host = if lines.iter().any(|line| line.starts_with("Host:")) {
        Vec::new()
    } else {
        vec![host.as_str()]
    };
    let lines = [&host, lines].concat().join("\r\n");
    client.send(format!("GET {target} HTTP/1.1\r\n{lines}\r\n\r\n"));
    client
}

fn answer(admin: SocketAddr, target: &str, lines: &[&str]) -> Response {
    request_to(admin, target, lines).response()
}

/// The next event: its name, and what it says.
fn event(client: &mut Client) -> (String, Value) {
    let text = client.chunk();
    let lines: Vec<_> = text.lines().collect();
    let [name, id, data, ""] = lines.as_slice() else {
        panic!("{text:?}");
    };
    let id = id.strip_prefix("id: ").expect("an id");
    assert!(id.parse::<u64>().is_ok(), "{id}");
    let name = name.strip_prefix("event: ").expect("a name");
    let data = data.strip_prefix("data: ").expect("data");
    (
        name.to_owned(),
        serde_json::from_str(data).expect("JSON in one line"),
    )
}

#[test]
fn a_subscriber_gets_the_statistics_every_second() {
    let origin = origin();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    for _ in 0..3 {
        proxy.get("/").assert_is(200, "page");
    }
    let operator = Operator::at(admin);
    let description = operator.get("/v1/openapi.json");
    let mut client = request_to(admin, "/v1/stream", &[]);
    let head = client.head();
    assert_eq!(head.field("content-type"), Some("text/event-stream"));
    let mut check = |wanted: &str, schema: &str| {
        let (name, reported) = event(&mut client);
        assert_eq!(name, wanted);
        let schema = &description["components"]["schemas"][schema];
        check_schema(&description, schema, &reported, wanted);
        reported
    };
    let history = check("history", "History");
    let columns = history["columns"].as_array().expect("columns").len();
    let points = history["points"].as_array().expect("points");
    assert!(
        points
            .iter()
            .all(|point| point.as_array().map(Vec::len) == Some(columns))
    );
    let first = check("stats", "Stats");
    assert_eq!(first["requests"]["total"], 3);
    assert_eq!(first["requests"], operator.get("/v1/stats")["requests"]);
    proxy.get("/").assert_hit();
    let later = eventually("a snapshot with the fourth", || {
        let reported = check("stats", "Stats");
        (reported["requests"]["total"] == 4).then_some(reported)
    });
    assert_eq!(later["requests"]["hit"], 3);
    // A new subscriber gets the history.
    let mut client = request_to(admin, "/v1/stream", &[]);
    client.head();
    let (_, history) = event(&mut client);
    let points = history["points"].as_array().expect("points");
    let last = points.last().expect("a second");
    assert!(last[1].as_u64() >= Some(3) && last[5] == 1, "{history}");
}

#[test]
fn subscribers_above_the_limit_get_a_message() {
    let origin = origin();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    let mut watching: Vec<_> = (0..ROOM)
        .map(|_| {
            let mut client = request_to(admin, "/v1/stream", &[]);
            client.head();
            client
        })
        .collect();
    let refused = answer(admin, "/v1/stream", &[]);
    assert_eq!(refused.status, 503);
    let reported: Value = serde_json::from_str(&refused.text()).expect("a problem");
    assert!(reported["hint"].is_string(), "{reported}");
    // All else is answered meanwhile.
    assert_eq!(answer(admin, "/v1/stats", &[]).status, 200);
    drop(watching.pop());
    eventually("a place", || {
        let mut client = request_to(admin, "/v1/stream", &[]);
        let head = client.head();
        (head.field("content-type") == Some("text/event-stream")).then_some(())
    });
    for client in &mut watching {
        assert_eq!(event(client).0, "history");
    }
}

#[test]
fn the_page_connects_to_its_own_server_only() {
    let origin = origin();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    let page = answer(admin, "/", &[]);
    assert_eq!(page.status, 200);
    let text = page.text();
    let named: Vec<_> = text
        .split('"')
        .filter(|word| word.starts_with("/assets/"))
        .collect();
    assert!(named.len() > 2, "{named:?}");
    for target in named.into_iter().chain(["/"]) {
        let file = answer(admin, target, &[]);
        assert_eq!(file.status, 200, "{target}");
        let policy = file.field("content-security-policy").expect("a policy");
        for rule in [
            "default-src 'none'",
            "script-src 'self';",
            "connect-src 'self';",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(rule), "{target}: {policy}");
        }
        assert_eq!(file.field("x-content-type-options"), Some("nosniff"));
    }
    for target in ["/assets/", "/assets/x.js", "/assets/..%2fopenapi.json"] {
        assert_eq!(answer(admin, target, &[]).status, 404, "{target}");
    }
}

#[test]
fn a_page_of_another_site_can_link_but_neither_read_nor_act() {
    let origin = origin();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    let check = |lines: &[&str], page: u16, numbers: u16| {
        assert_eq!(answer(admin, "/", lines).status, page, "{lines:?}");
        let mut client = request_to(admin, "/v1/stream", lines);
        let head = client.head();
        assert!(
            head.start.contains(&format!(" {numbers} ")),
            "{lines:?}: {head:?}"
        );
    };
    let own = format!("Origin: http://{admin}");
    check(&["Sec-Fetch-Site: same-origin", &own], 200, 200);
    check(&["Sec-Fetch-Site: none"], 200, 200);
    check(&["Sec-Fetch-Site: cross-site"], 200, 403);
    check(&["Sec-Fetch-Site: same-site"], 200, 403);
    check(&["Origin: http://127.0.0.1:3000"], 200, 403);
    // Through a proxy on this machine.
    check(&["X-Forwarded-For: 192.0.2.1"], 403, 403);
    check(&["Via: 1.1 proxy"], 403, 403);
    // A name resolved to this server by a foreign name server is an origin of its own to browsers.
    let rebound = [
        "Host: evil.example:8081",
        "Origin: http://evil.example:8081",
        "Sec-Fetch-Site: same-origin",
    ];
    check(&rebound, 403, 403);
}

#[test]
fn with_a_token_the_page_opens_and_its_numbers_require_the_token() {
    let secret = "correct-horse-battery";
    let folder = Folder::new();
    let path = folder.write("token", secret);
    let origin = origin();
    let (_proxy, admin) = Proxy::operated(&origin, &["--admin-token-file", &path]);
    assert_eq!(answer(admin, "/", &[]).status, 200);
    assert_eq!(answer(admin, "/assets/main.js", &[]).status, 200);
    let refused = answer(admin, "/v1/stream", &["Sec-Fetch-Site: same-origin"]);
    assert_eq!(refused.status, 401);
    let carried = format!("Authorization: Bearer {secret}");
    let mut client = request_to(admin, "/v1/stream", &[&carried]);
    client.head();
    assert_eq!(event(&mut client).0, "history");
}

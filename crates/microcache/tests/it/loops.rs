//! An origin that leads back here: refused where it can be told, else stopped at once.

use std::process::Command;

use crate::support::{Origin, Proxy, Reply, free_port};

#[test]
fn requests_that_come_back_are_stopped_at_once() {
    let here = format!("127.0.0.1:{}", free_port());
    let inner = Proxy::before_url(&format!("http://{here}"), &[]);
    let outer = Proxy::before_url(&format!("http://{}", inner.address()), &["--listen", &here]);
    for method in ["GET", "POST", "DELETE"] {
        let response = outer.send(method, "/", &["Cookie: a=b"]);
        assert_eq!(response.status, 502, "{response:?}");
        let said = response.head.all("cache-status").join(", ");
        assert!(said.contains("detail=loop"), "{response:?}");
        assert!(!response.cache().has("stored"), "{response:?}");
    }
    let response = outer.get("/page");
    assert_eq!(response.status, 502, "{response:?}");
    outer.output_with("leads to this server");
}

#[test]
fn several_in_a_row_are_no_loop() {
    let origin = Origin::start();
    let inner = Proxy::start(&origin, &[]);
    let outer = Proxy::before_url(&format!("http://{}", inner.address()), &[]);
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: max-age=100").body("x"));
    outer.get("/").assert_is(200, "x");
    outer.get("/").assert_hit();
    // Nor does it help to claim to be one.
    for via in [
        "1.1 microcache",
        "1.1 microcache-0123456789abcdef",
        "1.1 microcache-",
    ] {
        let target = format!("/{}", via.len());
        origin.on(&target).reply(Reply::new(200).body("x"));
        outer
            .get_with(&target, &[&format!("Via: {via}")])
            .assert_is(200, "x");
    }
    let seen = &origin.seen("/")[0];
    let via = seen.head.all("via").join(", ");
    let names: Vec<_> = via.split(", ").collect();
    assert_eq!(names.len(), 2, "{via}");
    assert_ne!(names[0], names[1], "each has a name of its own");
    let members = seen.head.all("cdn-loop");
    for (member, name) in members.iter().zip(names) {
        let id = name.strip_prefix("1.1 microcache-").expect("a name");
        assert_eq!(*member, format!("microcache; id={id}"));
    }
    // What a client says of other CDNs reaches no origin in a request for all.
    let another = ["CDN-Loop: cdn.example; a=b", "Cookie: a=b"];
    for (fields, sent) in [(&another[..1], false), (&another, true)] {
        let target = format!("/{}", fields.len());
        outer.get_with(&target, fields);
        let seen = &origin.seen(&target)[0];
        let members = seen.head.all("cdn-loop");
        assert_eq!(members.contains(&"cdn.example; a=b"), sent);
        assert_eq!(members.len(), 2 + usize::from(sent));
    }
}

/// The name of a process is known to its origin. Who learns it there keeps out himself alone.
#[test]
fn a_forged_loop_affects_its_sender_only() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let page = Reply::new(200).with("Cache-Control: max-age=0, stale-while-revalidate=0");
    origin.on("/").reply(page.with("ETag: \"1\"").body("x"));
    proxy.get("/").assert_is(200, "x");
    let seen = origin.seen("/");
    for field in ["via", "cdn-loop"] {
        let forged = format!("{field}: {}", seen[0].field(field).unwrap());
        let forged = proxy.get_with("/", &[&forged]);
        assert_eq!(forged.status, 502, "{forged:?}");
        assert_eq!(forged.cache().get("detail"), Some("loop"));
    }
    let response = proxy.get("/");
    response.assert_is(200, "x");
    response.assert_forwarded("stale");
}

#[test]
fn an_origin_that_is_this_server_is_refused_at_the_start() {
    let binary = env!("CARGO_BIN_EXE_microcache");
    for (listen, origin) in [
        ("127.0.0.1:9", "http://127.0.0.1:9"),
        ("0.0.0.0:9", "http://localhost:9"),
        ("[::]:9", "http://127.0.0.2:9/"),
    ] {
        let output = Command::new(binary)
            .args(["--admin", "off", "--listen", listen, origin])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("is Microcache itself"), "{said}");
    }
}

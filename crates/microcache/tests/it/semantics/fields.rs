//! Fields of one connection stay on it; all others pass untouched: RFC 9110 §7.6.

use super::exact;
use crate::support::{Origin, Reply};

const HOP_BY_HOP: [&str; 8] = [
    "Connection: X-Named, close-not, Keep-Alive",
    "X-Named: 1",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: keep-alive",
    "TE: trailers",
    "Trailer-Not: kept",
    "Proxy-Authenticate: Basic",
    "X-Kept: 1",
];

#[test]
fn hop_by_hop_fields_of_requests_are_stripped() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::new(200).body("x"));
    let fields = [
        &HOP_BY_HOP[..],
        &["Proxy-Authorization: Basic x", "Upgrade: h2c"],
    ]
    .concat();
    proxy.get_with("/", &fields).assert_is(200, "x");
    let seen = &origin.seen("/")[0];
    for name in [
        "x-named",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
    ] {
        assert_eq!(seen.field(name), None, "{:?}", seen.head);
    }
    assert_eq!(
        (seen.field("x-kept"), seen.field("trailer-not")),
        (Some("1"), Some("kept"))
    );
    let connection = seen.field("connection").unwrap_or_default();
    assert!(
        !connection.to_lowercase().contains("x-named"),
        "{connection}"
    );
}

#[test]
fn hop_by_hop_fields_of_responses_are_stripped() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(
        Reply::new(200)
            .with("Cache-Control: max-age=100")
            .with_all(&HOP_BY_HOP)
            .body("x"),
    );
    for response in [proxy.get("/"), proxy.get("/")] {
        response.assert_is(200, "x");
        for name in ["x-named", "proxy-connection", "te"] {
            assert_eq!(response.field(name), None, "{response:?}");
        }
        assert_eq!(
            (response.field("x-kept"), response.field("trailer-not")),
            (Some("1"), Some("kept"))
        );
        let connection = response.field("connection").unwrap_or_default();
        assert!(
            !connection.to_lowercase().contains("x-named"),
            "{connection}"
        );
    }
}

#[test]
fn connection_cannot_remove_essential_fields() {
    // Varnish CVE-2022-45059: naming Content-Length or Host in Connection desynchronised the origin.
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(
        Reply::new(200)
            .with("Connection: Content-Length, Cache-Control, Age, Date, Set-Cookie, Vary")
            .with_all(&["Cache-Control: max-age=100", "Vary: X-A", "Age: 10"])
            .body("hello"),
    );
    let response = proxy.request(
        "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\
         Connection: Content-Length, Host, Cookie, Authorization\r\n\
         Cookie: a=1\r\nAuthorization: Basic x\r\n\r\nhello",
    );
    response.assert_is(200, "hello");
    let seen = &origin.seen("/")[0];
    assert_eq!(seen.field("host"), Some("example.com"));
    assert_eq!(seen.body(), b"hello");
    assert_eq!(
        (seen.field("cookie"), seen.field("authorization")),
        (Some("a=1"), Some("Basic x"))
    );
    assert_eq!(
        (response.field("vary"), response.field("cache-control")),
        (Some("X-A"), Some("max-age=100"))
    );
}

#[test]
fn connection_cannot_hide_a_set_cookie_from_the_cache() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&["Connection: Set-Cookie, Cache-Control", "Set-Cookie: a=1"])
            .with("Cache-Control: max-age=100")
            .body("mine"),
    );
    proxy.get("/");
    assert!(!proxy.get("/").is_hit());
}

#[test]
fn request_fields_pass_in_their_order_and_case() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::new(200).body("x"));
    let fields = [
        "x-B: 2",
        "X-a: 1",
        "X-b: 3",
        "x-EMPTY:",
        "Accept: */*",
        "X-Odd: \u{e9} \"q\" ; ,,",
        "x-a: 4",
    ];
    proxy.send("POST", "/", &[&fields[..], &["Content-Length: 0"]].concat());
    let seen = &origin.seen("/")[0];
    let names = seen.head.names();
    let kept: Vec<_> = names
        .into_iter()
        .filter(|name| {
            name.to_lowercase().starts_with("x-") && !name.to_lowercase().starts_with("x-forwarded")
                || *name == "Accept"
        })
        .collect();
    assert_eq!(
        kept,
        ["x-B", "X-a", "X-b", "x-EMPTY", "Accept", "X-Odd", "x-a"]
    );
    assert_eq!(seen.field("x-empty"), Some(""));
    assert_eq!(
        seen.field("x-odd"),
        Some("\u{c3}\u{a9} \"q\" ; ,,"),
        "bytes are not touched"
    );
    assert_eq!(seen.head.all("x-b"), ["2", "3"], "lines are not joined");
}

#[test]
fn response_fields_pass_in_their_order_and_case_on_hits_too() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::ok(
        &[
            "x-B: 2",
            "X-a: 1",
            "Cache-Control: max-age=100",
            "X-b: 3",
            "x-EMPTY:",
            "ETag: \"a\"",
        ],
        "x",
    ));
    for response in [proxy.get("/"), proxy.get("/")] {
        let ours = [
            "date",
            "age",
            "via",
            "cache-status",
            "content-length",
            "connection",
            "keep-alive",
        ];
        let names = response.head.names();
        let kept: Vec<_> = names
            .into_iter()
            .filter(|name| !ours.contains(&name.to_lowercase().as_str()))
            .collect();
        assert_eq!(
            kept,
            ["x-B", "X-a", "Cache-Control", "X-b", "x-EMPTY", "ETag"],
            "{response:?}"
        );
    }
}

#[test]
fn the_host_of_the_client_reaches_the_origin() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::new(200).body("x"));
    proxy.request("GET / HTTP/1.1\r\nHost: Shop.Example:8080\r\n\r\n");
    assert_eq!(origin.seen("/")[0].head.all("host"), ["shop.example:8080"]);
}

#[test]
fn the_target_reaches_the_origin_undecoded() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let targets = [
        "/%2e%2e/%41?%20=%7e",
        "/a//b/../c/./d",
        "/?",
        "/a?b?c=/d",
        "/a;b=c,d'e(f)*!$&+@:[]",
        "/?a;b=c,d'e(f)*!$&+@:|^`{}\\[]",
    ];
    for target in targets {
        let response = proxy.get(target);
        assert_eq!(
            response.status, 500,
            "unscripted, but forwarded: {response:?}"
        );
    }
    let seen: Vec<_> = origin
        .requests()
        .into_iter()
        .map(|request| request.target)
        .collect();
    assert_eq!(seen, targets);
}

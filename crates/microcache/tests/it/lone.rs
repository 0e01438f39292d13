//! Requests that go to the origin alone: what they bring is stored only if it is what a fetch for
//! everyone would have brought.

use crate::support::{Gate, Origin, Proxy, Reply};

const SHARED: &str = "Cache-Control: public, max-age=60";
const MEMBER: &str = "Cookie: a=b";

/// Answers as an application does that looks at ranges, conditions and negotiation.
fn application(origin: &Origin) {
    origin.on("/").answer(|request| {
        let says = |name, value: &str| request.field(name).is_some_and(|all| all.contains(value));
        if request.field("range").is_some() {
            Reply::new(416).with(SHARED).body("no such part")
        } else if request.field("if-match").is_some() {
            Reply::new(412).with(SHARED).body("no match")
        } else if says("accept-encoding", "gzip") {
            Reply::ok(
                &[SHARED, "Vary: Accept-Encoding", "Content-Encoding: gzip"],
                "zipped",
            )
        } else if says("accept-language", "de") {
            Reply::ok(&[SHARED, "Vary: Accept-Language"], "deutsch")
        } else {
            Reply::new(200).with(SHARED).body("whole")
        }
    });
}

#[test]
fn a_response_shaped_by_one_client_is_not_shared() {
    let many_languages = "x, ".repeat(70);
    let bending = [
        "Range: bytes=999-".to_owned(),
        "If-Match: \"no\"".to_owned(),
        "Accept-Encoding: gzip;x".to_owned(),
        format!("Accept-Language: {many_languages}de"),
    ];
    for flags in [&[][..], &["--collapse", "false"]] {
        for line in &bending {
            let origin = Origin::start();
            let proxy = Proxy::start(&origin, flags);
            application(&origin);
            proxy.get_with("/", &[MEMBER, line]);
            proxy.get_with("/", &[line]);
            let next = proxy.get("/");
            next.assert_is(200, "whole");
            assert_eq!(next.field("content-encoding"), None, "{line}");
        }
    }
}

#[test]
fn credentials_reach_the_origin_and_ranges_with_them() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    application(&origin);
    let fields = [MEMBER, "Authorization: Basic eDp5", "Range: bytes=999-"];
    proxy.get_with("/", &fields).assert_is(416, "no such part");
    let seen = origin.wait_for("/", 1);
    assert_eq!(seen.field("cookie"), Some("a=b"));
    assert_eq!(seen.field("authorization"), Some("Basic eDp5"));
    assert_eq!(seen.field("range"), Some("bytes=999-"));
}

#[test]
fn a_shareable_response_to_a_signed_in_member_is_stored() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    application(&origin);
    let reload = "Cache-Control: no-cache";
    proxy
        .get_with("/", &[MEMBER, reload])
        .assert_is(200, "whole");
    let seen = origin.wait_for("/", 1);
    assert_eq!(
        (seen.field("cookie"), seen.field("cache-control")),
        (Some("a=b"), None)
    );
    proxy.get("/").assert_hit();
}

/// The response to a HEAD of a stored page, with fields for its client only.
fn with_a_head_that_lies(origin: &Origin) {
    origin
        .on("/")
        .answer(|request| match request.method.as_str() {
            "HEAD" => Reply::new(200)
                .with_all(&[SHARED, "ETag: \"a\"", "X-Evil: 1"])
                .with("Content-Length: 4"),
            _ => Reply::ok(&["Cache-Control: max-age=60", "ETag: \"a\""], "page"),
        });
}

#[test]
fn a_head_that_the_stored_page_could_not_have_answered_does_not_touch_it() {
    for line in [
        MEMBER,
        "Authorization: Basic eDp5",
        "Cache-Control: no-store",
        "Connection: x-a",
        "Accept: text/event-stream",
    ] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &["--collapse", "false"]);
        with_a_head_that_lies(&origin);
        proxy.get("/").assert_is(200, "page");
        proxy.send("HEAD", "/", &[line]);
        assert_eq!(origin.count("/"), 2, "{line}");
        let page = proxy.get("/");
        page.assert_hit();
        assert_eq!(page.field("x-evil"), None, "{line}");
    }
}

#[test]
fn a_head_that_the_stored_page_could_have_answered_freshens_it() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--collapse", "false"]);
    origin.on("/").answer(|request| {
        let page = Reply::new(200).with("ETag: \"a\"");
        match request.method.as_str() {
            "HEAD" => page.with_all(&[SHARED, "X-New: 1", "Content-Length: 4"]),
            _ => page.with("Cache-Control: max-age=0").body("page"),
        }
    });
    proxy.get("/").assert_is(200, "page");
    assert_eq!(proxy.send("HEAD", "/", &[]).status, 200);
    let page = proxy.get("/");
    page.assert_is(200, "page");
    page.assert_hit();
    assert_eq!(page.field("x-new"), Some("1"));
}

#[test]
fn a_head_with_a_body_leaves_the_entry_alone() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    with_a_head_that_lies(&origin);
    proxy.get("/").assert_is(200, "page");
    let mut client = proxy.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\n\r\nevil");
    assert_eq!(client.response_to_head().status, 200);
    let page = proxy.get("/");
    page.assert_hit();
    assert_eq!(page.field("x-evil"), None);
}

#[test]
fn a_members_head_takes_nothing_away() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin
        .on("/")
        .answer(|request| match request.method.as_str() {
            "HEAD" => Reply::new(200)
                .with("Cache-Control: private")
                .with("Content-Length: 9"),
            _ => Reply::ok(&["Cache-Control: max-age=60"], "page"),
        });
    proxy.get("/").assert_is(200, "page");
    assert_eq!(proxy.send("HEAD", "/", &[MEMBER]).status, 200);
    proxy.get("/").assert_hit();
}

#[test]
fn a_purge_of_another_page_does_not_undo_a_lone_fetch() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--collapse", "false"]);
    let gate = Gate::default();
    let page = Reply::new(200).with(SHARED).body("page");
    origin.on("/").reply(page.after(&gate));
    origin.on("/form").reply(Reply::new(200).body("done"));
    let mut client = proxy.ask("/");
    origin.wait_for("/", 1);
    // Many, so that some of them are near it, however keys are spread.
    for _ in 0..3 {
        for number in 0..100 {
            let target = format!("/form?{number}");
            origin.on(&target).reply(Reply::new(200).body("done"));
            proxy.send("POST", &target, &["Content-Length: 0"]);
        }
    }
    gate.open();
    client.response().assert_is(200, "page");
    proxy.get("/").assert_hit();
}

#[test]
fn a_purge_of_its_page_undoes_a_lone_fetch() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--collapse", "false"]);
    let gate = Gate::default();
    let gated = gate.clone();
    let mut first = true;
    origin.on("/").answer(move |request| {
        let page = Reply::new(200).with(SHARED).body("page");
        if request.method == "GET" && std::mem::take(&mut first) {
            page.after(&gated)
        } else {
            page
        }
    });
    let mut client = proxy.ask("/");
    origin.wait_for("/", 1);
    assert_eq!(proxy.send("POST", "/", &["Content-Length: 0"]).status, 200);
    gate.open();
    client.response().assert_is(200, "page");
    assert!(!proxy.get("/").is_hit());
}

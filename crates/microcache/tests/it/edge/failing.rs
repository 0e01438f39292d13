//! Fragments that fail: an older copy, then `alt`, then nothing; and bounds that end what would not.

use super::*;
use crate::operators::Operator;
use crate::support::config_file;

/// The responses that are no fragment, by the target that gives them.
fn fail(origin: &Origin) -> Vec<String> {
    let encoded = Reply::ok(&[PERSONAL, "Content-Encoding: br"], "x");
    let partial = Reply::new(206).with("Content-Range: bytes 0-0/2");
    let cut_off = Reply::new(200).with_all(&[PERSONAL, "Content-Length: 10"]);
    let failures = [
        Reply::new(500).body("SECRET"),
        Reply::new(404).body("SECRET"),
        Reply::new(302).with("Location: /account").body("SECRET"),
        Reply::raw("SECRET\r\n\r\n"),
        Reply::hang_up(),
        Reply::silence(),
        cut_off.send("SECRET").close(),
        partial.body("x"),
        encoded,
    ];
    let targets = failures.into_iter().enumerate().map(|(at, reply)| {
        let target = format!("/f/fails/{at}");
        origin.on(&target).reply(reply);
        target
    });
    targets.collect()
}

#[test]
fn a_fragment_that_fails_leaves_its_page_alone() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "edge_timeout = \"200ms\"");
    origin.on("/f/other").reply(shared("other"));
    for (at, target) in fail(&origin).iter().enumerate() {
        let body = format!(
            "({})({})<!--# block name=\"b\" -->stub<!--# endblock -->(<!--#include virtual=\"{target}\" stub=\"b\" -->)",
            tag(target),
            tag(target).replace("/>", " alt='/f/other'/>"),
        );
        let page_target = format!("/{at}");
        origin.on(&page_target).reply(page(&body));
        for _ in 0..2 {
            let response = proxy.get(&page_target);
            response.assert_is(200, "()(other)(stub)");
            let lifetime = response.field("cache-control");
            assert_eq!(lifetime, Some("private, no-cache"), "{target}");
        }
    }
    proxy.output_with("edge_timeout");
}

#[test]
fn failures_are_counted_and_logged_by_reason() {
    let origin = Origin::start();
    let file = config_file(&config(&origin, ""));
    let name = file.display().to_string();
    let (proxy, admin) = Proxy::operated(&origin, &["--config", &name]);
    let body = format!(
        "{}{}{}<esi:unknown/>",
        tag("/f/fails"),
        tag("/account"),
        tag("/f/cookie")
    );
    origin.on("/").reply(page(&body));
    origin.on("/f/fails").reply(Reply::new(503).body(""));
    origin
        .on("/f/cookie")
        .reply(Reply::ok(&[PERSONAL, "Set-Cookie: a=b"], "x"));
    let response = proxy.get("/");
    response.assert_is(200, "x");
    assert_eq!(response.field("set-cookie"), None);
    let metrics = Operator::at(admin).ask("GET", "/metrics", None).text();
    for (outcome, number) in [
        ("failed", 2),
        ("left-out", 1),
        ("cookie-dropped", 1),
        ("fetched", 1),
    ] {
        let line = format!("microcache_fragments_total{{outcome=\"{outcome}\"}} {number}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    proxy.output_with("/f/fails");
}

#[test]
fn an_older_copy_comes_before_the_alternative() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "stale_if_error = \"1h\"");
    let body = tag("/f/menu").replace("/>", " alt='/f/other'/>");
    origin.on("/").reply(page(&body));
    let overdue = [
        "Cache-Control: public, max-age=10",
        "Age: 20",
        "ETag: \"a\"",
    ];
    origin
        .on("/f/menu")
        .reply(Reply::ok(&overdue, "menu"))
        .reply(Reply::new(500).body("error"));
    origin.on("/f/other").reply(shared("other"));
    for _ in 0..3 {
        proxy.get("/").assert_is(200, "menu");
    }
    assert!(origin.count("/f/menu") > 1);
    assert_eq!(origin.count("/f/other"), 0);
}

#[test]
fn a_strict_route_answers_502_for_an_incomplete_page() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "edge_strict = true\nedge_timeout = \"200ms\"");
    origin.on("/f/other").reply(shared("other"));
    for (at, target) in fail(&origin).iter().enumerate() {
        let optional = tag(target).replace("/>", " onerror='continue'/>");
        let with_other = tag(target).replace("/>", " alt='/f/other'/>");
        for (name, body, expected) in [
            ("plain", format!("a{}b", tag(target)), None),
            ("optional", format!("a{optional}b"), Some("ab")),
            ("alternative", format!("a{with_other}b"), Some("aotherb")),
        ] {
            let page_target = format!("/{at}/{name}");
            origin.on(&page_target).reply(page(&body));
            for _ in 0..2 {
                let response = proxy.get(&page_target);
                if let Some(text) = expected {
                    response.assert_is(200, text);
                } else {
                    assert_eq!(response.status, 502, "{target}: {response:?}");
                    let detail = response.cache().get("detail").map(str::to_owned);
                    assert_eq!(detail.as_deref(), Some("fragment-failed"), "{target}");
                    assert!(!response.text().contains("SECRET"), "{response:?}");
                }
            }
        }
    }
}

#[test]
fn a_loop_of_pages_ends() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    for reply in [page as fn(&str) -> Reply, personal_page] {
        let origin_before = origin.requests().len();
        origin
            .on("/f/loop")
            .answer(move |_| reply(&format!("({})", tag("/f/loop"))));
        let mut client = proxy.ask_with("/f/loop", &["Cookie: a=b"]);
        client.response().assert_is(200, "(((())))");
        let asked = origin.requests().len() - origin_before;
        assert!(asked <= 4, "{asked} requests");
    }
}

#[test]
fn fragments_of_fragments_are_composed_to_the_third_level() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    for level in 0..6 {
        let body = format!("{level}({})", tag(&format!("/f/{}", level + 1)));
        origin.on(&format!("/f/{level}")).reply(page(&body));
    }
    for _ in 0..2 {
        proxy.get("/f/0").assert_is(200, "0(1(2(3())))");
    }
    assert_eq!(origin.count("/f/4"), 0);
}

#[test]
fn a_page_has_at_most_64_fragments_with_those_of_its_fragments() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let tags: String = (0..70).map(|at| tag(&format!("/f/{at}"))).collect();
    origin.on("/").reply(page(&tags));
    for at in 0..70 {
        origin
            .on(&format!("/f/{at}"))
            .reply(Reply::ok(&[PERSONAL], "x"));
    }
    for rounds in 1..=2 {
        proxy.get("/").assert_is(200, &"x".repeat(64));
        assert_eq!(origin.requests().len(), 1 + rounds * 64);
    }
    // Each of them as many again.
    let before = origin.requests().len();
    let tags = tag("/f/bomb").repeat(64);
    origin.on("/f/bomb").answer(move |_| personal_page(&tags));
    let response = proxy.get("/f/bomb");
    assert_eq!(response.status, 200);
    let asked = origin.requests().len() - before;
    assert!(asked <= 65, "{asked} requests");
}

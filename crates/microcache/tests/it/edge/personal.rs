//! One page for all, with fragments for one: the request for a fragment is the visitor's.

use super::*;
use crate::operators::Operator;
use serde_json::json;

#[test]
fn a_shared_page_has_a_personal_fragment() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    origin
        .on("/")
        .reply(page(&format!("<p>{}</p>", tag("/f/cart"))));
    show_cookie(&origin, "/f/cart", &[HTML, PERSONAL]);
    proxy.get("/").assert_is(200, "<p>[-]</p>");
    for name in ["ann", "bob", "ann"] {
        let response = get_as(&proxy, name, "/");
        response.assert_is(200, &format!("<p>[session={name}]</p>"));
        response.assert_hit();
        assert_eq!(
            response.field("cache-control"),
            Some("private, no-cache"),
            "{response:?}"
        );
    }
    assert_eq!(origin.count("/"), 1);
    assert_eq!(origin.count("/f/cart"), 4);
}

#[test]
fn a_fragment_is_kept_for_each_visitor() {
    let origin = Origin::start();
    let routes = "[[routes]]\nmatch = { path = \"/f/*\" }\nkey = { cookies = [\"session\"] }\nttl = \"30s\"\n[[routes]]\n";
    let proxy = proxy(&origin, routes);
    origin.on("/").reply(page(&tag("/f/cart")));
    show_cookie(&origin, "/f/cart", &[HTML]);
    proxy.get("/");
    for name in ["ann", "bob", "ann", "bob"] {
        let response = get_as(&proxy, name, "/");
        response.assert_is(200, &format!("[session={name}]"));
        let lifetime = response.field("cache-control").expect("a lifetime");
        assert!(
            lifetime.contains("private") || lifetime.contains("no-cache"),
            "a CDN would keep it: {response:?}"
        );
    }
    assert_eq!(origin.count("/f/cart"), 3, "nobody, Ann and Bob");
}

#[test]
fn the_request_for_a_fragment_is_the_visitors_without_what_is_about_the_page() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    origin
        .on("/form")
        .reply(personal_page(&tag("/f/a?b=c&amp;d")));
    origin.on("/f/a?b=c&d").reply(Reply::ok(&[PERSONAL], "x"));
    let request = "POST /form HTTP/1.1\r\nHost: example.com\r\nCookie: a=b\r\nAccept-Language: de\r\nAccept-Encoding: br\r\n\
        Authorization: Basic eDp5\r\nRange: bytes=0-1\r\nIf-None-Match: \"a\"\r\nCache-Control: no-cache\r\nUser-Agent: it\r\n\
        Surrogate-Capability: evil=\"ESI/1.0\"\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc";
    proxy.request(request).assert_is(200, "x");
    let seen = origin.wait_for("/f/a?b=c&d", 1);
    assert_eq!(seen.method, "GET");
    for (name, expected) in [
        ("host", Some("example.com")),
        ("cookie", Some("a=b")),
        ("authorization", Some("Basic eDp5")),
        ("accept-language", Some("de")),
        ("user-agent", Some("it")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("surrogate-capability", Some("microcache=\"ESI/1.0\"")),
        ("accept-encoding", Some("identity")),
        ("range", None),
        ("if-none-match", None),
        ("cache-control", None),
        ("content-type", None),
        ("content-length", None),
    ] {
        assert_eq!(
            seen.field(name),
            expected,
            "{name}: {seen:?}",
            seen = seen.head
        );
    }
    let page = origin.wait_for("/form", 1);
    assert_eq!(page.body(), b"abc");
    assert_eq!(
        page.head.all("surrogate-capability"),
        ["microcache=\"ESI/1.0\""],
        "it takes no other surrogate's"
    );
}

#[test]
fn a_capability_that_a_client_makes_up_makes_no_tags_where_none_are_replaced() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    answer_by_capability(&origin);
    let forged = "Surrogate-Capability: evil=\"ESI/1.0\"";
    for fields in [&[forged][..], &[]] {
        let response = proxy.get_with("/", fields);
        response.assert_is(200, "inline");
    }
}

/// Answers as Symfony does: with tags where they are understood, or else with the fragment itself.
pub(super) fn answer_by_capability(origin: &Origin) {
    origin.on("/").answer(|seen| {
        let capability = seen.field("surrogate-capability");
        if capability.is_some_and(|it| it.contains("ESI/1.0")) {
            page(&tag("/f/a"))
        } else {
            Reply::ok(&[HTML, SHARED], "inline")
        }
    });
    origin.on("/f/a").reply(shared("composed"));
}

#[test]
fn fragments_do_not_count_as_requests_of_the_rate() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "rate = \"2/h\"\nburst = 2\n");
    let tags: String = (0..5).map(|at| tag(&format!("/f/{at}"))).collect();
    origin.on("/").reply(personal_page(&tags));
    for at in 0..5 {
        let text = at.to_string();
        origin
            .on(&format!("/f/{at}"))
            .reply(Reply::ok(&[PERSONAL], text));
    }
    for expected in [200, 200, 429] {
        let response = proxy.get("/");
        assert_eq!(response.status, expected, "{response:?}");
        assert!(
            expected == 429 || response.text() == "01234",
            "{response:?}"
        );
    }
    assert_eq!(
        proxy.get("/f/1").status,
        429,
        "it counts where a client asks for it"
    );
}

#[test]
fn a_fragment_has_the_access_of_its_visitor() {
    let origin = Origin::start();
    let routes =
        "[[routes]]\nmatch = { path = \"/f/staff\" }\nallow = [\"192.0.2.1\"]\n[[routes]]\n";
    let proxy = proxy(&origin, routes);
    origin
        .on("/")
        .reply(page(&format!("({})", tag("/f/staff"))));
    origin.on("/f/staff").reply(shared("SECRET"));
    proxy.get("/").assert_is(200, "()");
    assert_eq!(origin.count("/f/staff"), 0);
}

#[test]
fn explain_lists_the_fragments() {
    let origin = Origin::start();
    let file = crate::support::config_file(&config(&origin, ""));
    let name = file.display().to_string();
    let (proxy, admin) = Proxy::operated(&origin, &["--config", &name]);
    origin
        .on("/")
        .reply(page(&format!("{}{}", tag("/f/a"), tag("/account"))));
    origin.on("/f/a").reply(shared("x"));
    proxy.get("/").assert_is(200, "x");
    let operator = Operator::at(admin);
    let explained = operator.post("/v1/explain", &json!({"url": "http://example.com/"}));
    let text = explained.to_string();
    assert!(
        text.contains("/f/a") && text.contains("/account") && text.contains("edge_paths"),
        "{text}"
    );
}

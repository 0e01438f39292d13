//! Parts that are there are sent, and all others are asked for at once.

use super::*;
use crate::support::{Gate, request};

#[test]
fn text_does_not_wait_for_the_fragment_behind_it() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let gate = Gate::default();
    let body = format!("head{}middle{}end", tag("/f/slow"), tag("/f/fast"));
    origin.on("/").reply(page(&body));
    origin
        .on("/f/slow")
        .reply(Reply::ok(&[PERSONAL], "slow").after(&gate));
    origin.on("/f/fast").reply(Reply::ok(&[PERSONAL], "fast"));
    // From the origin, and from memory.
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = proxy.ask("/");
            let head = client.head();
            assert_eq!(head.field("cache-control"), Some("private, no-cache"));
            assert_eq!(head.field("transfer-encoding"), Some("chunked"));
            for name in ["etag", "content-length", "surrogate-control", "age"] {
                assert_eq!(head.field(name), None, "{name}");
            }
            assert_eq!(client.chunk(), "head");
            client
        })
        .collect();
    origin.wait_for("/f/fast", 3);
    gate.open();
    for client in &mut clients {
        assert_eq!(rest(client), "slowmiddlefastend");
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn all_fragments_are_asked_for_before_the_first_answers() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let gate = Gate::default();
    let mut body = String::new();
    for at in 0..5 {
        let target = format!("/f/{at}");
        body.extend([format!("<{at}>"), tag(&target)]);
        let reply = Reply::ok(&[PERSONAL], at.to_string());
        origin.on(&target).reply(reply.after(&gate));
    }
    for (target, reply) in [("/", page(&body)), ("/account", personal_page(&body))] {
        origin.on(target).reply(reply);
    }
    let mut clients = [proxy.ask("/"), proxy.ask_with("/account", &["Cookie: a=b"])];
    for at in 0..5 {
        origin.wait_for(&format!("/f/{at}"), 2);
    }
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "<0>0<1>1<2>2<3>3<4>4");
    }
}

#[test]
fn a_page_gives_its_place_in_the_queue_to_its_fragments() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "max_concurrent = 1\nedge_timeout = \"1h\"");
    let inner = format!("({})", tag("/f/2"));
    let tags = format!("{}-{}-{}", tag("/f/1"), tag("/f/2"), tag("/f/outer"));
    let long = "x".repeat(100_000);
    origin.on("/f/outer").reply(personal_page(&inner));
    for (target, body) in [
        ("/", tags.clone()),
        ("/long", format!("{tags}{long}")),
        ("/account", format!("{long}{tags}")),
    ] {
        let reply = if target == "/account" {
            personal_page(&body)
        } else {
            page(&body)
        };
        origin.on(target).reply(reply);
    }
    origin.on("/f/1").reply(Reply::ok(&[PERSONAL], "1"));
    origin.on("/f/2").reply(Reply::ok(&[PERSONAL], "2"));
    for _ in 0..2 {
        proxy.get("/").assert_is(200, "1-2-(2)");
        proxy.get("/long").assert_is(200, &format!("1-2-(2){long}"));
        proxy
            .get_with("/account", &["Cookie: a=b"])
            .assert_is(200, &format!("{long}1-2-(2)"));
        proxy
            .send("POST", "/account", &["Content-Length: 0"])
            .assert_is(200, &format!("{long}1-2-(2)"));
    }
    let mut clients: Vec<_> = (0..20).map(|_| proxy.ask("/")).collect();
    for client in &mut clients {
        client.response().assert_is(200, "1-2-(2)");
    }
}

#[test]
fn a_page_that_is_larger_than_what_is_held_lacks_no_fragment() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "max_concurrent = 1\nedge_timeout = \"5s\"");
    let long = "x".repeat(3 << 20);
    origin
        .on("/")
        .reply(page(&format!("{}{long}", tag("/f/1"))));
    origin.on("/f/1").reply(Reply::ok(&[PERSONAL], "1"));
    for _ in 0..2 {
        let response = proxy.get("/");
        assert!(
            response.text() == format!("1{long}"),
            "{} bytes begin with {:?}",
            response.body.len(),
            &response.text()[..10]
        );
    }
}

#[test]
fn pages_that_are_not_stored_are_composed_while_they_arrive() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let gate = Gate::default();
    let arriving = || {
        Reply::new(200)
            .with_all(&[HTML, ANNOUNCED, PERSONAL, "Transfer-Encoding: chunked"])
            .chunk("first<esi:incl")
            .pause(&gate)
            .chunk("ude src='/f/a'")
            .chunk("/>after<esi:remove>x")
            .chunk("</esi:remove>")
            .send("0\r\n\r\n")
    };
    origin.on("/account").reply(arriving());
    origin.on("/missing").reply(arriving());
    show_cookie(&origin, "/f/a", &[HTML, PERSONAL]);
    let visitor = "Cookie: session=ann";
    let mut logged_in = proxy.ask_with("/account", &[visitor]);
    let mut posted = proxy.connect();
    posted.send(request("POST", "/account", &[visitor, "Content-Length: 0"]));
    for client in [&mut logged_in, &mut posted] {
        assert!(client.head().start.starts_with("HTTP/1.1 200"));
        assert_eq!(client.chunk(), "first");
    }
    gate.open();
    for client in [&mut logged_in, &mut posted] {
        assert_eq!(rest(client), "[session=ann]after");
    }
}

#[test]
fn error_pages_are_composed() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let body = format!("none: {}", tag("/f/menu"));
    origin
        .on("/gone")
        .reply(Reply::new(404).with_all(&[HTML, ANNOUNCED]).body(body));
    origin.on("/f/menu").reply(shared("menu"));
    for _ in 0..2 {
        proxy.get("/gone").assert_is(404, "none: menu");
    }
}

#[test]
fn those_who_wait_for_the_same_page_get_fragments_of_their_own() {
    let origin = Origin::start();
    let routes =
        "[[routes]]\nmatch = { path = \"/f/*\" }\n[[routes]]\nignore_cookies = [\"session\"]\n";
    let proxy = proxy(&origin, routes);
    let gate = Gate::default();
    let body = format!("a{}b", tag("/f/cart"));
    let reply = Reply::new(200)
        .with_all(&[HTML, ANNOUNCED, SHARED])
        .with(&format!("Content-Length: {}", body.len()))
        .send(&body[..5])
        .pause(&gate)
        .send(&body[5..]);
    origin.on("/").reply(reply);
    show_cookie(&origin, "/f/cart", &[HTML, PERSONAL]);
    let mut clients: Vec<_> = (0..10)
        .map(|at| proxy.ask_with("/", &[&format!("Cookie: session={at}")]))
        .collect();
    for client in &mut clients {
        client.head();
        assert_eq!(client.chunk(), "a");
    }
    gate.open();
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(rest(client), format!("[session={at}]b"));
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_hundred_visitors_share_one_request_for_a_shared_fragment() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "threads = 2");
    let gate = Gate::default();
    origin.on("/").reply(page(&format!("a{}", tag("/f/menu"))));
    origin.on("/f/menu").reply(shared("menu").after(&gate));
    let mut clients: Vec<_> = (0..100).map(|_| proxy.ask("/")).collect();
    origin.wait_for("/f/menu", 1);
    proxy.settle();
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "amenu");
    }
    assert_eq!(origin.count("/"), 1);
    assert_eq!(origin.count("/f/menu"), 1);
}

#[test]
fn a_visitor_who_leaves_cancels_the_fragments() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "edge_timeout = \"1h\"");
    origin
        .on("/")
        .reply(personal_page(&format!("a{}", tag("/f/never"))));
    origin.on("/f/never").reply(Reply::silence());
    // With a cookie, so that nobody else waits for it.
    let mut client = proxy.ask_with("/", &["Cookie: session=ann"]);
    client.head();
    let fragment = origin.wait_for("/f/never", 1);
    client.reset();
    origin.wait_for_close(fragment.connection);
}

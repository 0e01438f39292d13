//! The head of a composed page.

use super::*;
use crate::support::Gate;
use crate::support::http2::Http2;

/// A shared page with a shared fragment, both of them in memory.
fn in_memory(lines: &str, page_fields: &[&str], fragment_fields: &[&str]) -> (Origin, Proxy) {
    let origin = Origin::start();
    let proxy = proxy(&origin, lines);
    let fields = [&[HTML, ANNOUNCED], page_fields].concat();
    origin
        .on("/")
        .reply(Reply::ok(&fields, format!("<p>{}</p>", tag("/f/menu"))));
    let fields = [&[HTML], fragment_fields].concat();
    origin.on("/f/menu").reply(Reply::ok(&fields, "menu"));
    proxy.get("/").assert_is(200, "<p>menu</p>");
    (origin, proxy)
}

/// Seconds that a directive gives.
fn seconds(value: &str, name: &str) -> Option<u64> {
    let mut directives = value.split(", ");
    directives.find_map(|it| it.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[test]
fn the_strictest_lifetime_counts() {
    for (page_lifetime, fragment_lifetime, expected) in [
        (
            "public, max-age=600",
            "public, max-age=300",
            "public, max-age=300",
        ),
        (
            "public, max-age=300",
            "public, max-age=600",
            "public, max-age=300",
        ),
        ("public, max-age=600", "max-age=300", "max-age=300"),
        (
            "public, max-age=600, s-maxage=900",
            "public, max-age=500, s-maxage=700",
            "public, max-age=500, s-maxage=700",
        ),
        (
            "public, max-age=600, must-revalidate",
            "public, max-age=600, no-transform",
            "no-transform, must-revalidate, public, max-age=600",
        ),
    ] {
        let (page, fragment) = (
            format!("Cache-Control: {page_lifetime}"),
            format!("Cache-Control: {fragment_lifetime}"),
        );
        let (origin, proxy) = in_memory("", &[&page], &[&fragment]);
        let response = proxy.get("/");
        response.assert_is(200, "<p>menu</p>");
        response.assert_hit();
        let lifetime = response.field("cache-control").expect("a lifetime");
        let words = |text: &str| -> Vec<String> {
            let names = text.split(", ").map(|it| it.split('=').next());
            names.map(|it| it.unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(words(lifetime), words(expected), "{lifetime}");
        for name in ["max-age", "s-maxage"] {
            let (left, most) = (seconds(lifetime, name), seconds(expected, name));
            assert!(
                left <= most && left.map(|it| it + 50) >= most,
                "{lifetime}, not {expected}"
            );
        }
        assert_eq!(response.field("age"), None);
        assert_eq!(origin.requests().len(), 2);
    }
}

#[test]
fn a_page_that_is_still_arriving_keeps_the_restrictions_of_the_application() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "[[routes]]\nedge = \"always\"");
    for (target, lifetime, expected) in [
        ("/1", "max-age=60", "private, no-cache"),
        (
            "/2",
            "max-age=60, must-revalidate",
            "private, no-cache, must-revalidate",
        ),
        ("/3", "max-age=0, no-store", "private, no-cache, no-store"),
        (
            "/4",
            "private, No-Store, no-cache=\"a\"",
            "private, no-cache, no-store",
        ),
        // Stored here: a cache that knows the status is to ignore this `no-store` (RFC 9111, 5.2.2.3).
        (
            "/7",
            "public, max-age=60, must-understand, no-store",
            "private, no-cache, no-store",
        ),
        ("/8", "max-age=600; no-store", "private, no-cache, no-store"),
    ] {
        let gate = Gate::default();
        let lifetime = format!("Cache-Control: {lifetime}");
        let page = Reply::new(200).with_all(&[HTML, &lifetime, "Transfer-Encoding: chunked"]);
        let page = page.chunk("<p>").pause(&gate).chunk("late</p>");
        origin.on(target).reply(page.send("0\r\n\r\n"));
        let mut client = proxy.ask(target);
        let head = client.head();
        assert_eq!(head.field("cache-control"), Some(expected));
        gate.open();
        assert_eq!(rest(&mut client), "<p>late</p>");
    }
    let cookie = "Set-Cookie: a=b";
    origin
        .on("/f/cookie")
        .reply(Reply::ok(&[HTML, cookie], "c"));
    for (target, expected) in [
        ("/5", "private, no-cache, no-store"),
        ("/6", "private, no-cache"),
    ] {
        let lifetime = if target == "/5" {
            "no-store"
        } else {
            "private"
        };
        let lifetime = format!("Cache-Control: {lifetime}");
        let body = "<esi:include src=\"/f/cookie\" wait=\"true\"/>";
        origin.on(target).reply(Reply::ok(&[HTML, &lifetime], body));
        let response = proxy.get(target);
        response.assert_is(200, "c");
        assert_eq!(response.field("set-cookie"), Some("a=b"));
        assert_eq!(response.field("cache-control"), Some(expected));
    }
}

#[test]
fn a_page_in_memory_has_a_validator_and_a_length() {
    let lifetime = "Cache-Control: public, max-age=600";
    let (origin, proxy) = in_memory(
        "",
        &[
            lifetime,
            "ETag: \"shell\"",
            "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT",
            "Vary: X-A",
        ],
        &[lifetime, "ETag: \"part\"", "Vary: X-B", "Cache-Tag: menu"],
    );
    let response = proxy.get("/");
    assert_eq!(response.field("content-length"), Some("11"));
    for name in ["last-modified", "accept-ranges", "surrogate-control"] {
        assert_eq!(response.field(name), None, "{name}");
    }
    let vary = response.head.all("vary").join(", ").to_lowercase();
    assert!(vary.contains("x-a") && vary.contains("x-b"), "{vary}");
    let tag = response.field("etag").expect("an entity tag").to_owned();
    assert!(tag.starts_with("W/\"") && !tag.contains("shell"), "{tag}");
    let condition = format!("If-None-Match: {tag}");
    let unchanged = proxy.get_with("/", &[&condition]);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(unchanged.field("etag"), Some(&*tag));
    assert_eq!(unchanged.field("content-length"), None);
    // The date of the page in memory says nothing about its fragments.
    let since = response.field("date").expect("a date");
    for other in [
        "If-None-Match: \"shell\"",
        "If-None-Match: \"part\"",
        &format!("If-Modified-Since: {since}"),
    ] {
        proxy.get_with("/", &[other]).assert_is(200, "<p>menu</p>");
    }
    origin
        .on("/f/menu")
        .reply(Reply::ok(&[HTML, lifetime], "new"));
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_personal_fragment_in_memory_makes_the_page_private() {
    let routes =
        "[[routes]]\nmatch = { path = \"/f/*\" }\nkey = { cookies = [\"session\"] }\n[[routes]]\n";
    let lifetime = "Cache-Control: public, max-age=600";
    let (_origin, proxy) = in_memory(routes, &[lifetime], &[lifetime]);
    for _ in 0..3 {
        let response = get_as(&proxy, "ann", "/");
        response.assert_is(200, "<p>menu</p>");
        let said = response.field("cache-control").expect("a lifetime");
        assert!(said.contains("private"), "{response:?}");
    }
}

#[test]
fn conditions_and_ranges_are_about_the_whole_page() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let validated = [HTML, ANNOUNCED, SHARED, "ETag: \"shell\""];
    origin
        .on("/")
        .reply(Reply::ok(&validated, format!("<p>{}</p>", tag("/f/cart"))));
    show_cookie(&origin, "/f/cart", &[HTML, PERSONAL]);
    proxy.get("/");
    for fields in [
        &["Range: bytes=0-3"][..],
        &["Range: bytes=0-3", "If-Range: \"shell\""],
        &["Range: bytes=1000-"],
        &["If-None-Match: \"shell\""],
        &["If-None-Match: W/\"shell\""],
        &["If-Match: \"shell\""],
    ] {
        let fields = [fields, &["Cookie: session=ann"]].concat();
        let response = proxy.get_with("/", &fields);
        response.assert_is(200, "<p>[session=ann]</p>");
        assert_eq!(response.field("etag"), None, "{fields:?}");
    }
}

#[test]
fn a_head_request_asks_for_no_fragments() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    origin.on("/").reply(page(&tag("/f/cart")));
    show_cookie(&origin, "/f/cart", &[HTML, PERSONAL]);
    for _ in 0..2 {
        let response = proxy.send("HEAD", "/", &[]);
        assert_eq!(response.status, 200);
        for name in ["content-length", "etag", "surrogate-control"] {
            assert_eq!(response.field(name), None, "{name}: {response:?}");
        }
        assert_eq!(response.field("cache-control"), Some("private, no-cache"));
    }
    assert_eq!(origin.count("/f/cart"), 0);
    proxy.get("/");
    proxy.send("HEAD", "/", &[]);
    assert_eq!(origin.count("/f/cart"), 1);
}

#[test]
fn old_and_new_versions_of_http_get_the_same_page() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    origin
        .on("/")
        .reply(page(&format!("a{}b{}", tag("/f/cart"), tag("/f/menu"))));
    show_cookie(&origin, "/f/cart", &[HTML, PERSONAL]);
    origin.on("/f/menu").reply(shared("menu"));
    for _ in 0..2 {
        let response = proxy.request("GET / HTTP/1.0\r\nHost: example.com\r\n\r\n");
        response.assert_is(200, "a[-]bmenu");
        assert_eq!(response.field("transfer-encoding"), None, "{response:?}");
        let answer = Http2::connect(proxy.address()).get("/");
        answer.assert_is(200, "a[-]bmenu");
        assert_eq!(answer.field("content-length"), None);
    }
}

#[test]
fn a_fragment_sets_a_cookie_only_if_it_is_waited_for() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let setting = Reply::ok(&[PERSONAL, "Set-Cookie: session=new; HttpOnly"], "form");
    origin.on("/f/form").reply(setting);
    let waited = tag("/f/form").replace("/>", " wait=\"true\"/>");
    origin.on("/").reply(page(&tag("/f/form")));
    origin.on("/waited").reply(page(&waited));
    // The head of a page that is still arriving does not wait: its tags are unknown.
    proxy.get("/waited").assert_is(200, "form");
    for _ in 0..2 {
        let response = proxy.get("/");
        response.assert_is(200, "form");
        assert_eq!(response.field("set-cookie"), None);
        let response = proxy.get("/waited");
        response.assert_is(200, "form");
        assert_eq!(response.field("set-cookie"), Some("session=new; HttpOnly"));
        let lifetime = response.field("cache-control").expect("a lifetime");
        assert!(lifetime.contains("private"), "{response:?}");
        assert_eq!(response.field("etag"), None);
    }
}

#[test]
fn the_announcement_ends_here() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    origin.on("/").reply(page("no tags"));
    origin.on("/more").reply(Reply::ok(
        &[
            HTML,
            SHARED,
            "Surrogate-Control: content=\"ESI/1.0\", no-store-remote",
        ],
        tag("/f/a"),
    ));
    origin.on("/f/a").reply(shared("x"));
    for _ in 0..2 {
        for target in ["/", "/more"] {
            let response = proxy.get(target);
            assert_eq!(response.field("surrogate-control"), None, "{response:?}");
        }
    }
}

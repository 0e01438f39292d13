//! Redirects and fixed responses.

use crate::support::http2::Http2;
use crate::support::{Folder, Origin, Proxy, Reply, request};

const FRESH: &str = "Cache-Control: max-age=1000";

fn site(origin: &Origin, lines: &str) -> Proxy {
    Proxy::with_config(&format!("origin = \"{}\"\n{lines}\n", origin.url()))
}

#[test]
fn a_route_responds_in_place_of_the_application() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let robots = folder.write("robots.txt", "User-agent: *\nDisallow:\n");
    let proxy = site(
        &origin,
        &format!(
            r#"
[[routes]]
match = {{ path = "*/.env*" }}
respond = {{ status = 403 }}
[[routes]]
match = {{ path = "/robots.txt" }}
respond = {{ file = "{robots}", cache_control = "max-age=60" }}
[[routes]]
match = {{ path = "/favicon.ico" }}
respond = {{ status = 204 }}
[[routes]]
match = {{ path = "/old/*" }}
respond = {{ status = 410, body = "Gone.\n" }}
"#
        ),
    );
    for _ in 0..2 {
        let robots = proxy.get("/robots.txt?x");
        robots.assert_is(200, "User-agent: *\nDisallow:\n");
        assert_eq!(
            robots.field("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert_eq!(robots.field("cache-control"), Some("max-age=60"));
        assert_eq!(robots.cache().get("detail"), Some("respond"));
    }
    for method in ["GET", "POST", "DELETE"] {
        let gone = proxy.send(method, "/old/a", &["Content-Length: 0"]);
        gone.assert_is(410, "Gone.\n");
        assert_eq!(gone.field("cache-control"), Some("no-store"));
    }
    let mut client = proxy.connect();
    client.send(request("HEAD", "/old/a", &[]));
    let head = client.response_to_head();
    assert_eq!(
        (head.status, head.field("content-length")),
        (410, Some("6"))
    );
    client.send(request("GET", "/favicon.ico", &[]));
    let empty = client.response();
    assert_eq!((empty.status, empty.text().as_str()), (204, ""));
    assert_eq!(empty.field("content-length"), None);
    client.get("/.env").assert_is(403, "");
    // The same connection goes on.
    client
        .get("/robots.txt")
        .assert_is(200, "User-agent: *\nDisallow:\n");
    for path in ["/.env", "/a/.env.local", "/.env?a", "/.env/b"] {
        assert_eq!(proxy.get(path).status, 403, "{path}");
    }
    for path in [
        "/%2eenv",
        "/x/..%2f.env",
        "/%2Eenv",
        "/.%65nv",
        "//.env%00",
        "/%252eenv",
    ] {
        assert_eq!(proxy.get(path).status, 400, "{path}");
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn a_redirect_keeps_path_and_query() {
    let origin = Origin::start();
    let proxy = site(
        &origin,
        r#"
[[routes]]
match = { host = "example.com", scheme = "http" }
redirect = { to = "{scheme}://www.{host}{path}", status = 301 }
[[routes]]
match = { path = "/store/*" }
redirect = { to = "/shop/{1}" }
[[routes]]
match = { path = ["/go/*", "/go"] }
redirect = { to = "/page?", status = 307 }
[[routes]]
match = { path = "/out/*" }
redirect = { to = "https://new.example/{1}", status = 308 }
"#,
    );
    let check = |host: &str, target: &str, status: u16, location: &str| {
        let response = proxy.request(format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\nx"
        ));
        assert_eq!(
            (response.status, response.field("location")),
            (status, Some(location)),
            "{target}"
        );
    };
    check("example.com", "/a?b=c", 301, "http://www.example.com/a?b=c");
    check("a", "/store/x/y?z", 302, "/shop/x/y?z");
    check("a", "/go?x", 307, "/page");
    check("a", "/out/%20a", 308, "https://new.example/%20a");
    // Conditions that a cache in front does not see.
    let conditional = proxy.request("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(conditional.field("cache-control"), Some("no-store"));
    let by_url = proxy.request("GET /go HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((by_url.status, by_url.field("cache-control")), (307, None));
    assert!(origin.requests().is_empty());
}

#[test]
fn no_link_leads_to_another_site() {
    let origin = Origin::start();
    let proxy = site(
        &origin,
        r#"
[[routes]]
match = { path = "/go/*" }
redirect = { to = "/{1}" }
[[routes]]
match = { path = "*/" }
redirect = { to = "/{1}" }
[[routes]]
match = { path = "/host" }
redirect = { to = "https://{host}/x" }
"#,
    );
    for target in [
        "/go//evil.example",
        "/go///evil.example",
        "/go/\\evil.example",
        "/go//\\/evil.example",
        "/go/%2f%2fevil.example",
        "/go/%5cevil.example",
        "/go/%0d%0aSet-Cookie:%20a=b",
        "//evil.example/",
        "/\\evil.example/",
        "/go/https://evil.example",
    ] {
        let response = proxy.get(target);
        if response.status == 400 {
            continue;
        }
        let location = response.field("location").expect("a redirect");
        assert!(location.starts_with('/'), "{target}: {location}");
        assert!(
            !location[1..].starts_with(['/', '\\']),
            "{target}: {location}"
        );
        assert_eq!(response.field("set-cookie"), None);
    }
    // A request without a host has none to be sent to; one with an odd host is refused.
    let without = proxy.request("GET /host HTTP/1.0\r\n\r\n");
    assert_eq!((without.status, without.field("location")), (400, None));
    let odd = proxy.request("GET /host HTTP/1.1\r\nHost: a@evil.example\r\n\r\n");
    assert_eq!((odd.status, odd.field("location")), (400, None));
    assert!(origin.requests().is_empty());
}

#[test]
fn responses_of_a_route_over_http2_and_for_purges() {
    let origin = Origin::start();
    origin
        .on("/page")
        .reply(Reply::new(200).with(FRESH).body("x"));
    let proxy = site(
        &origin,
        r#"
purge_from = "127.0.0.1"
[[routes]]
match = { cookie = "beta" }
redirect = { to = "https://beta.example{path}" }
[[routes]]
match = { path = "/gone" }
respond = { status = 410, body = "Gone.\n" }
"#,
    );
    let mut http2 = Http2::connect(proxy.address());
    let gone = http2.get("/gone");
    gone.assert_is(410, "Gone.\n");
    proxy.get("/page").assert_is(200, "x");
    proxy.get("/page");
    assert_eq!(origin.count("/page"), 1);
    let redirected = proxy.get_with("/page", &["Cookie: beta=1"]);
    assert_eq!(
        redirected.field("location"),
        Some("https://beta.example/page")
    );
    // A purge concerns the URL, whatever its cookies.
    assert_eq!(
        proxy.send("PURGE", "/page", &["Cookie: beta=1"]).status,
        200
    );
    proxy.get("/page");
    assert_eq!(origin.count("/page"), 2);
}

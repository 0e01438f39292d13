//! Pages of other sites: fields for their browsers, and refused sockets.

use super::{WATCH, expect_put};
use crate::push::{Kept, Live, SECRET};
use crate::support::websocket::{UPGRADE, WebSocket};
use crate::support::{Origin, Response};

const SHOP: &str = "Origin: https://shop.example";
const EVIL: &str = "Origin: https://evil.example";

fn socket_status(live: &Live, target: &str, fields: &[&str]) -> String {
    let mut client = live.0.ask_with(target, &[&UPGRADE, fields].concat());
    client.head().start
}

fn allowed(response: &Response) -> Option<&str> {
    response.field("access-control-allow-origin")
}

#[test]
fn a_page_of_another_site_opens_no_socket() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    let watch = format!("{WATCH}?url=/live/x");
    for target in ["/live/x", "/live/", &watch] {
        for (fields, expected) in [
            (&[][..], "101"),
            (&["Origin: http://example.com"], "101"),
            (&["Origin: https://example.com"], "101"),
            (&[EVIL], "403"),
            (&["Origin: null"], "403"),
            (&["Origin: http://example.com.evil.example"], "403"),
            (&["Origin: http://example.com:8080"], "403"),
            // This one is not trusted to set the field.
            (&[EVIL, "X-Forwarded-Host: evil.example"], "403"),
            (&["Sec-WebSocket-Protocol: piper-protocol", EVIL], "403"),
        ] {
            let status = socket_status(&live, target, fields);
            assert!(status.contains(expected), "{target} {fields:?}: {status}");
        }
    }
    // Browsers keep the rest from it, as nothing is said of it.
    live.put("/live/x", "1");
    let read = live.0.get_with("/live/x", &[EVIL]);
    assert_eq!((allowed(&read), read.field("vary")), (None, None));
}

#[test]
fn a_proxy_in_front_names_the_host_of_the_browser() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--trusted-proxies", "127.0.0.1"]);
    let by_proxy = [SHOP, "X-Forwarded-Host: shop.example"];
    assert!(socket_status(&live, "/live/x", &by_proxy).contains("101"));
    let by_proxy = [EVIL, "X-Forwarded-Host: shop.example"];
    assert!(socket_status(&live, "/live/x", &by_proxy).contains("403"));
}

#[test]
fn sites_that_are_named_may() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--push-allow-origins", "https://shop.example"]);
    live.put("/live/x", "1");
    let shop = Some("https://shop.example");
    let watch = format!("{WATCH}?url=/live/x");
    let mut socket = WebSocket::open(&live.0, &watch, &[SHOP]);
    expect_put(&mut socket, "/live/x", "1");
    assert!(socket_status(&live, "/live/x", &[EVIL]).contains("403"));
    for target in ["/live/x", "/live/none", &watch] {
        for (from, expected) in [(&[SHOP][..], shop), (&[EVIL], None), (&[], None)] {
            let read = live.0.get_with(target, from);
            assert_eq!(allowed(&read), expected, "{target} {from:?}");
            assert_eq!(read.field("vary"), Some("Origin"));
            assert_eq!(read.field("access-control-allow-credentials"), None);
        }
    }
    // It is the hit that it was.
    let read = live.0.get_with("/live/x", &[SHOP]);
    read.assert_is(200, "1");
    read.assert_hit();
    let tag = format!("If-None-Match: {}", read.field("etag").expect("a tag"));
    let same = live.0.get_with("/live/x", &[SHOP, &tag]);
    assert_eq!((same.status, allowed(&same)), (304, shop));
    let mut events = live
        .0
        .ask_with("/live/x", &["Accept: text/event-stream", SHOP]);
    assert_eq!(events.head().field("access-control-allow-origin"), shop);
    let ask = |from: &str| {
        live.0.send(
            "OPTIONS",
            "/live/x",
            &[from, "Access-Control-Request-Method: PUT"],
        )
    };
    let requested = ask(SHOP);
    assert_eq!((requested.status, allowed(&requested)), (204, shop));
    let methods = requested.field("access-control-allow-methods");
    assert!(
        methods.is_some_and(|it| it.contains("PUT")),
        "{requested:?}"
    );
    let requested = ask(EVIL);
    assert_eq!(
        (
            allowed(&requested),
            requested.field("access-control-allow-methods")
        ),
        (None, None)
    );
    // With the secret, as for all.
    let publish = |fields: &[&str]| live.publish("PUT", "/live/x", fields, "2");
    let json = "Content-Type: application/json";
    assert_eq!(allowed(&publish(&[SHOP, json])), shop);
    assert!(!SECRET.is_empty());
}

#[test]
fn all_sites_may_read_where_configured() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--push-allow-origins", "*"]);
    live.put("/live/x", "1");
    assert!(socket_status(&live, "/live/x", &[EVIL]).contains("101"));
    let read = live.0.get_with("/live/x", &[EVIL]);
    assert_eq!(allowed(&read), Some("*"));
    let fields = [EVIL, "Access-Control-Request-Method: PUT"];
    for target in ["/live/x", WATCH] {
        let requested = live.0.send("OPTIONS", target, &fields);
        assert_eq!(requested.status, 204, "{target}");
        assert_eq!(
            requested.field("access-control-allow-methods"),
            Some("GET, HEAD")
        );
    }
}

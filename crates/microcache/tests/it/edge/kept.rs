//! Pages in memory and in tiers: each is stored with its tags, and no tag leaves.

use serde_json::json;

use super::personal::answer_by_capability;
use super::*;
use crate::operators::Operator;
use crate::reload::Server;
use crate::support::{Folder, TierKind, TierServer, config_file, eventually};
use crate::tiers::{disk_in, end};

#[test]
fn no_reload_makes_a_tag_visible() {
    let origin = Origin::start();
    answer_by_capability(&origin);
    let folder = Folder::absent();
    let with = |mode: &str| {
        let disk = disk_in(&folder);
        format!("disk = \"{disk}\"\nedge = \"{mode}\"\nedge_paths = [\"/f/*\"]\n")
    };
    let server = Server::start(&origin, &with("off"));
    for mode in [
        "off",
        "announced",
        "off",
        "always",
        "announced",
        "always",
        "off",
    ] {
        server.reload(&with(mode));
        let expected = if mode == "off" { "inline" } else { "composed" };
        for _ in 0..2 {
            server.proxy.get("/").assert_is(200, expected);
        }
    }
}

#[test]
fn a_purge_of_a_fragment_leaves_its_page() {
    let origin = Origin::start();
    let file = config_file(&config(&origin, ""));
    let name = file.display().to_string();
    let (proxy, admin) = Proxy::operated(&origin, &["--config", &name]);
    origin.on("/").reply(page(&format!("a{}", tag("/f/menu"))));
    let mut times = 0;
    origin.on("/f/menu").answer(move |_| {
        times += 1;
        Reply::ok(&[HTML, SHARED, "Cache-Tag: menu"], times.to_string())
    });
    let mut tags = Vec::new();
    for expected in ["a1", "a2"] {
        for _ in 0..2 {
            proxy.get("/").assert_is(200, expected);
        }
        tags.push(
            proxy
                .get("/")
                .field("etag")
                .expect("an entity tag")
                .to_owned(),
        );
        Operator::at(admin).purge(&json!({"tag": "menu"}));
    }
    assert_ne!(tags[0], tags[1]);
    assert_eq!((origin.count("/"), origin.count("/f/menu")), (1, 2));
}

#[test]
fn a_page_from_a_tier_is_composed() {
    let (folder, server) = (Folder::absent(), TierServer::start(TierKind::Memcached));
    for lines in [
        format!("disk = \"{}\"", disk_in(&folder)),
        format!("memcached = \"127.0.0.1:{}\"", server.port()),
    ] {
        let origin = Origin::start();
        origin.on("/").reply(page(&format!("a{}b", tag("/f/cart"))));
        // Too large for memory.
        let large = "x".repeat(600_000);
        origin
            .on("/large")
            .reply(page(&format!("{}{large}", tag("/f/cart"))));
        show_cookie(&origin, "/f/cart", &[HTML, PERSONAL]);
        let lines = format!("{lines}\nmax_object = \"500KB\"");
        for name in ["ann", "bob", "cat"] {
            let proxy = proxy(&origin, &lines);
            for target in ["/", "/large"] {
                // A request without cookies has it stored, or found in the tier.
                proxy.get(target);
                let response = get_as(&proxy, name, target);
                let expected = if target == "/" {
                    format!("a[session={name}]b")
                } else {
                    format!("[session={name}]{large}")
                };
                assert!(response.text() == expected, "{target}: {:?}", response.head);
            }
            end(proxy);
        }
        assert_eq!(origin.count("/"), 1, "{lines}");
    }
}

#[test]
fn a_stale_page_is_composed_while_it_is_renewed() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let fields = [
        HTML,
        ANNOUNCED,
        "Cache-Control: public, max-age=10, stale-while-revalidate=600",
        "Age: 20",
    ];
    origin
        .on("/")
        .reply(Reply::ok(&fields, format!("old{}", tag("/f/cart"))))
        .reply(page(&format!("new{}", tag("/f/cart"))));
    show_cookie(&origin, "/f/cart", &[HTML, PERSONAL]);
    proxy.get("/").assert_is(200, "old[-]");
    let stale = get_as(&proxy, "ann", "/");
    stale.assert_is(200, "old[session=ann]");
    stale.assert_hit();
    eventually("the new page", || {
        let response = get_as(&proxy, "ann", "/");
        (response.text() == "new[session=ann]").then_some(())
    });
}

#[test]
fn what_is_no_readable_page_is_left_as_it_is() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let body = tag("/f/a");
    for (target, fields) in [
        (
            "/encoded",
            &[HTML, ANNOUNCED, SHARED, "Content-Encoding: gzip"][..],
        ),
        (
            "/json",
            &["Content-Type: application/json", ANNOUNCED, SHARED],
        ),
        (
            "/script",
            &["Content-Type: text/javascript", ANNOUNCED, SHARED],
        ),
        ("/silent", &[HTML, SHARED]),
        (
            "/other",
            &[HTML, SHARED, "Surrogate-Control: content=\"ESI/1.0\";other"],
        ),
        ("/personal", &[HTML, PERSONAL]),
    ] {
        origin.on(target).reply(Reply::ok(fields, &body));
        for _ in 0..2 {
            let accepting = ["Accept-Encoding: gzip"];
            proxy.get_with(target, &accepting).assert_is(200, &body);
        }
        let asked = origin.wait_for(target, 1);
        assert_eq!(asked.field("accept-encoding"), Some("identity"), "{target}");
    }
    assert_eq!(origin.count("/f/a"), 0);
}

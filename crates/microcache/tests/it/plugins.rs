//! Purges as the plugins of applications send them where visitors connect: their requests, byte by
//! byte, and what is fetched again after them.

use crate::support::{Client, Origin, Proxy, Reply, eventually};

const HERE: [&str; 2] = ["--purge-from", "127.0.0.1"];

/// Pages with the tags that an application writes into this field, by target.
type Pages = [(&'static str, &'static str)];

/// An origin whose every page says how often it was asked for.
fn counting(field: &'static str, pages: &Pages) -> Origin {
    let origin = Origin::start();
    for &(target, tags) in pages {
        let mut times = 0;
        origin.on(target).answer(move |_| {
            times += 1;
            let reply = Reply::new(200).with("Cache-Control: max-age=600");
            let reply = if tags.is_empty() {
                reply
            } else {
                reply.with(&format!("{field}: {tags}"))
            };
            reply.body(times.to_string())
        });
    }
    origin
}

/// What a plugin does, and the pages that are fetched again after it.
struct Sent {
    by: &'static str,
    bytes: &'static str,
    purged: &'static [&'static str],
}

/// Stores all pages, sends each request, and sees which pages are fetched again.
fn check(flags: &[&str], field: &'static str, pages: &Pages, requests: &[Sent]) {
    let origin = counting(field, pages);
    let proxy = Proxy::start(&origin, &[&HERE[..], flags].concat());
    let mut versions = vec![1; pages.len()];
    for (target, _) in pages {
        proxy.get(target).assert_is(200, "1");
        proxy.get(target).assert_hit();
    }
    for Sent { by, bytes, purged } in requests {
        let answer = proxy.request(bytes);
        assert_eq!(answer.status, 200, "{by}: {}", answer.text());
        assert!(answer.text().starts_with("purged"), "{by}");
        assert_eq!(answer.cache().get("detail"), Some("purge"), "{by}");
        for ((target, _), version) in pages.iter().zip(&mut versions) {
            *version += i32::from(purged.contains(target));
            let page = proxy.get(target);
            assert_eq!(page.text(), version.to_string(), "{by}: {target}");
        }
    }
    let purges = |method: &str| method == "PURGE" || method == "BAN" || method == "PURGEKEYS";
    assert!(!origin.requests().iter().any(|seen| purges(&seen.method)));
}

#[test]
fn wordpress_purges_urls_and_their_beginnings() {
    let all = ["/", "/blog/1/", "/blog/2/", "/wp-json/"];
    check(
        &[],
        "",
        &all.map(|target| (target, "")),
        &[
            Sent {
                by: "Proxy Cache Purge, on publishing a post",
                bytes: "PURGE /blog/1/ HTTP/1.1\r\nhost: example.com\r\nX-Purge-Method: default\r\n\
                        User-Agent: WordPress/6.8; http://example.com\r\nAccept: */*\r\nConnection: close\r\n\r\n",
                purged: &["/blog/1/"],
            },
            Sent {
                by: "Proxy Cache Purge, everything",
                bytes: "PURGE /.* HTTP/1.1\r\nhost: example.com\r\nX-Purge-Method: regex\r\n\
                        User-Agent: WordPress/6.8; http://example.com\r\nConnection: close\r\n\r\n",
                purged: &["/", "/blog/1/", "/blog/2/", "/wp-json/"],
            },
            Sent {
                by: "WP Rocket, what lies under a page",
                bytes: "PURGE /blog/.* HTTP/1.1\r\nHost: example.com\r\nX-Purge-Method: regex\r\nConnection: close\r\n\r\n",
                purged: &["/blog/1/", "/blog/2/"],
            },
            Sent {
                by: "another site",
                bytes: "PURGE /.* HTTP/1.1\r\nHost: example.org\r\nX-Purge-Method: regex\r\nConnection: close\r\n\r\n",
                purged: &[],
            },
        ],
    );
}

#[test]
fn drupal_bans_tags() {
    check(
        &["--tag-fields", "Cache-Tags=space"],
        "Cache-Tags",
        &[
            ("/node/1", "node:1 node_list rendered"),
            ("/node/10", "node:10 rendered"),
            ("/", "node_list rendered"),
        ],
        &[
            Sent {
                by: "Purge, one tag",
                bytes: "BAN / HTTP/1.1\r\nHost: varnish:6081\r\nCache-Tags: node:1\r\nUser-Agent: GuzzleHttp/7\r\n\r\n",
                purged: &["/node/1"],
            },
            Sent {
                by: "Purge, several",
                bytes: "BAN / HTTP/1.1\r\nHost: varnish:6081\r\nCache-Tags: node:10|node_list\r\n\r\n",
                purged: &["/node/1", "/node/10", "/"],
            },
            Sent {
                by: "Purge, held to whole tags",
                bytes: "BAN / HTTP/1.1\r\nHost: varnish:6081\r\nCache-Tags: (^| )node:1( |$)\r\n\r\n",
                purged: &["/node/1"],
            },
            Sent {
                by: "Purge, everything",
                bytes: "BAN / HTTP/1.1\r\nHost: varnish:6081\r\nCache-Tags: .*\r\n\r\n",
                purged: &["/node/1", "/node/10", "/"],
            },
        ],
    );
}

#[test]
fn magento_purges_patterns_of_tags() {
    check(
        &["--tag-fields", "X-Magento-Tags=comma"],
        "X-Magento-Tags",
        &[
            ("/shoe", "cat_c_2,cat_p_1,cat_p"),
            ("/hat", "cat_c_3,cat_p_10,cat_p"),
            ("/shoes", "cat_c_2,store"),
        ],
        &[
            Sent {
                by: "a product",
                bytes: "PURGE / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\n\
                        X-Magento-Tags-Pattern: ((^|,)cat_p_1(,|$))\r\n\r\n",
                purged: &["/shoe"],
            },
            Sent {
                by: "a product and a category",
                bytes: "PURGE / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\n\
                        X-Magento-Tags-Pattern: ((^|,)cat_p_10(,|$))|((^|,)cat_c_2(,|$))\r\n\r\n",
                purged: &["/shoe", "/hat", "/shoes"],
            },
            Sent {
                by: "cache:flush",
                bytes: "PURGE / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\nX-Magento-Tags-Pattern: .*\r\n\r\n",
                purged: &["/shoe", "/hat", "/shoes"],
            },
        ],
    );
}

#[test]
fn symfony_bans_and_purges() {
    check(
        &["--tag-fields", "X-Cache-Tags=comma"],
        "X-Cache-Tags",
        &[
            ("/one", "tag-one"),
            ("/two", "tag-two,group-a"),
            ("/four", "tag-four,group-b"),
        ],
        &[
            Sent {
                by: "FOSHttpCache 2, tags",
                bytes: "BAN / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Host: .*\r\nX-Url: .*\r\nX-Content-Type: .*\r\n\
                        X-Cache-Tags: (^|,)(group\\-a|tag\\-four)(,|$)\r\n\r\n",
                purged: &["/two", "/four"],
            },
            Sent {
                by: "FOSHttpCache 1, tags",
                bytes: "BAN / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Host: .*\r\nX-Url: .*\r\nX-Content-Type: .*\r\n\
                        X-Cache-Tags: (group-b|tag-one)(,.+)?$\r\n\r\n",
                purged: &["/one", "/four"],
            },
            Sent {
                by: "FOSHttpCache, xkey",
                bytes: "PURGEKEYS / HTTP/1.1\r\nHost: 127.0.0.1\r\nxkey-purge: tag-one tag-two\r\n\r\n",
                purged: &["/one", "/two"],
            },
            Sent {
                by: "FOSHttpCache, a path of a host",
                bytes: "BAN / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Host: ^(example.com|b.example)$\r\nX-Url: ^/t\r\n\
                        X-Content-Type: .*\r\n\r\n",
                purged: &["/two"],
            },
            Sent {
                by: "FOSHttpCache, a url",
                bytes: "PURGE /four HTTP/1.1\r\nHost: example.com\r\n\r\n",
                purged: &["/four"],
            },
            Sent {
                by: "FOSHttpCache, clear",
                bytes: "BAN / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Host: .*\r\nX-Url: .*\r\nX-Content-Type: .*\r\n\r\n",
                purged: &["/one", "/two", "/four"],
            },
        ],
    );
}

const PURGE: &str = "PURGE /a HTTP/1.1\r\nHost: example.com\r\n";

/// One stored page, `/a`.
fn stored(flags: &[&str]) -> (Origin, Proxy) {
    let origin = counting("", &[("/a", "")]);
    let proxy = Proxy::start(&origin, flags);
    proxy.get("/a").assert_is(200, "1");
    (origin, proxy)
}

#[test]
fn without_a_block_it_is_a_request_like_any_other() {
    let (origin, proxy) = stored(&[]);
    let answer = proxy.request(format!("{PURGE}Connection: close\r\n\r\n"));
    assert_eq!(answer.cache().get("detail"), Some("method"));
    assert_eq!(origin.seen("/a").last().expect("requests").method, "PURGE");
}

#[test]
fn purges_from_other_addresses_are_refused() {
    for (flags, fields) in [
        (&["--purge-from", "10.0.0.0/8"][..], ""),
        (
            &["--purge-from", "10.0.0.0/8"],
            "X-Forwarded-For: 10.0.0.1\r\n",
        ),
        (&HERE, "X-Forwarded-For: 192.0.2.1\r\n"),
        (&HERE, "Forwarded: for=192.0.2.1\r\n"),
        (&HERE, "X-Forwarded-For: 127.0.0.1, 192.0.2.1\r\n"),
    ] {
        let (origin, proxy) = stored(flags);
        for method in ["PURGE", "BAN", "PURGEALL", "PURGEKEYS", "URIBAN"] {
            let head = PURGE.replace("PURGE", method);
            let answer = proxy.request(format!("{head}{fields}\r\n"));
            assert_eq!(answer.status, 403, "{method} {fields}");
            proxy.get("/a").assert_hit();
        }
        assert_eq!(origin.requests().len(), 1, "{fields}");
        proxy.output_with("`purge_from`");
    }
}

#[test]
fn nothing_but_the_method_makes_a_purge() {
    let (origin, proxy) = stored(&HERE);
    proxy
        .get_with("/a", &["X-HTTP-Method-Override: PURGE"])
        .assert_hit();
    proxy
        .get_with("/a", &["X-Magento-Tags-Pattern: .*"])
        .assert_hit();
    proxy.request("purge /a HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(origin.seen("/a").last().expect("requests").method, "purge");
}

#[test]
fn nginx_helper_purges_by_get_where_it_is_allowed() {
    const AGENT: &str = "User-Agent: WordPress/6.8; https://example.com";
    let (origin, proxy) = stored(&[&HERE[..], &["--purge-path", "/purge"]].concat());
    let other = proxy.get_from("127.0.0.2", "/purge/a", &[AGENT]);
    let behind = proxy.get_with("/purge/a", &[AGENT, "X-Forwarded-For: 192.0.2.1"]);
    assert_eq!((other.status, behind.status), (403, 403));
    proxy.output_with("`purge_from`");
    // Another path, another method, and what would be many pages or tags.
    proxy.get("/purged/a").assert_forwarded("uri-miss");
    proxy.send("POST", "/purge/a", &["Content-Length: 0"]);
    proxy.get_with("/purge/*", &["Cache-Tag: x", "X-Purge-Regex: .*"]);
    proxy.get("/a").assert_hit();
    let purges = [
        ("GET", "/purge/a"),
        ("HEAD", "/purge/a"),
        ("PURGE", "/purgeall"),
    ];
    for ((method, target), version) in purges.into_iter().zip(2..) {
        let answer = proxy.send(method, target, &[AGENT]);
        let kept = answer.field("cache-control");
        assert_eq!((answer.status, kept), (200, Some("no-store")), "{method}");
        assert_eq!(answer.cache().get("detail"), Some("purge"), "{method}");
        proxy.get("/a").assert_is(200, &version.to_string());
        proxy.get("/a").assert_hit();
    }
    assert_eq!(origin.count("/purge/a"), 1, "the POST alone");
    // Without the option it is a page like any other.
    let (origin, proxy) = stored(&HERE);
    proxy.get("/purge/a");
    assert_eq!(origin.count("/purge/a"), 1);
    proxy.get("/a").assert_hit();
}

#[test]
fn an_unsupported_purge_is_refused_with_a_hint() {
    let (origin, proxy) = stored(&HERE);
    for fields in [
        "X-Cache-Tags: a[0-9]+",
        "X-Cache-Tags:",
        "X-Purge-Regex: \\.css$",
    ] {
        let answer = proxy.request(format!("{PURGE}{fields}\r\n\r\n"));
        assert_eq!(answer.status, 400, "{fields}");
        let text = answer.text();
        assert!(
            text.contains(&fields[..12]) && text.contains("; "),
            "{text}"
        );
        proxy.get("/a").assert_hit();
    }
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn content_of_a_purge_is_no_next_request() {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: example.com\r\n\r\n";
    for (flags, status) in [(&HERE[..], 200), (&["--purge-from", "10.0.0.0/8"], 403)] {
        let (origin, proxy) = stored(flags);
        for framing in [
            format!("Content-Length: {}\r\n\r\n{hidden}", hidden.len()),
            format!(
                "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{hidden}\r\n0\r\n\r\n",
                hidden.len()
            ),
        ] {
            let mut client = proxy.connect();
            client.send(format!("{PURGE}{framing}{hidden}"));
            assert_eq!(client.response().status, status);
            assert!(client.is_closed(), "{status}");
        }
        assert_eq!(origin.count("/hidden"), 0);
    }
}

#[test]
fn a_purge_is_one_request_of_a_connection() {
    let (origin, proxy) = stored(&HERE);
    let mut client = proxy.connect();
    client.get("/a").assert_hit();
    client.send(format!("{PURGE}\r\n"));
    assert_eq!(client.response().text(), "purged: the URL example.com/a\n");
    client.get("/a").assert_is(200, "2");
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_plugin_that_hangs_up_at_once_has_purged() {
    let (_origin, proxy) = stored(&HERE);
    let mut client = Client::connect(proxy.address());
    client.send(format!("{PURGE}\r\n"));
    drop(client);
    eventually("the purge", || {
        (proxy.get("/a").text() == "2").then_some(())
    });
}

#[test]
fn a_soft_purge_leaves_the_page_to_visitors() {
    let (_origin, proxy) = stored(&[&HERE[..], &["--stale-while-revalidate", "1m"]].concat());
    let answer = proxy.request(format!("{PURGE}Soft-Purge: 1\r\n\r\n"));
    assert_eq!(answer.text(), "purged (soft): the URL example.com/a\n");
    proxy.get("/a").assert_is(200, "1");
    eventually("the refresh", || {
        (proxy.get("/a").text() == "2").then_some(())
    });
}

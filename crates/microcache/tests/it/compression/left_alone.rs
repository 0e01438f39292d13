//! What is sent as it is.

use super::{ALL, BROWSER, html, in_coding, metrics, page};
use crate::support::{Origin, Proxy, Reply, noise};

/// Asks for these after for something that is compressed: by then they would be as well.
fn check(flags: &[&str], replies: &[(&str, Reply)], fields: &[&str]) {
    let origin = Origin::start();
    origin.on("/text").reply(html(&page(1)));
    for (target, reply) in replies {
        origin.on(target).reply(reply.clone());
    }
    let proxy = Proxy::start(&origin, flags);
    for _ in 0..3 {
        for (target, _) in replies {
            let response = proxy.get_with(target, &[&[BROWSER], fields].concat());
            assert_eq!(response.status, 200);
            assert!(response.text() == page(2), "{target}: {response:?}");
            // No answer that depends on nothing says that it does.
            if fields.is_empty() {
                assert_eq!(response.field("vary"), None, "{target}");
            }
        }
        proxy.get("/text");
        in_coding(&proxy, "/text", "zstd");
    }
}

fn reply(fields: &[&str]) -> Reply {
    let reply = Reply::new(200).with("Cache-Control: max-age=1000");
    reply.with_all(fields).body(page(2))
}

#[test]
fn binary_and_no_transform_responses_are_left_alone() {
    let text = "Content-Type: text/plain";
    check(
        ALL,
        &[
            ("/image", reply(&["Content-Type: image/png"])),
            ("/nothing", reply(&[])),
            ("/left", reply(&[text, "Cache-Control: no-transform"])),
            ("/encoded", reply(&[text, "Content-Encoding: foo"])),
        ],
        &[],
    );
}

#[test]
fn types_excluded_by_the_operator_are_left_alone() {
    let text = "Content-Type: text/plain";
    let flags = [ALL, &["--compress-types", "text/html"]].concat();
    check(&flags, &[("/plain", reply(&[text]))], &[]);
    let length = page(1).len().max(page(2).len());
    let origin = Origin::start();
    let large = Reply::new(200).with(text).body("x".repeat(length + 1));
    origin.on("/large").reply(large);
    origin.on("/small").reply(html(&page(1)));
    let most = format!("{length}B");
    let proxy = Proxy::start(&origin, &[ALL, &["--compress-max", &most]].concat());
    proxy.get("/small");
    proxy.get("/large");
    for _ in 0..3 {
        let large = proxy.get_with("/large", &[BROWSER]);
        assert_eq!(large.field("content-encoding"), None);
        in_coding(&proxy, "/small", "br");
    }
}

#[test]
fn clients_that_want_identity_get_it() {
    let reply = reply(&["Content-Type: text/plain"]);
    check(ALL, &[("/", reply)], &["Cache-Control: no-transform"]);
}

#[test]
fn without_the_option_all_is_as_the_origin_has_it() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    let proxy = Proxy::start(&origin, &[]);
    for _ in 0..5 {
        let response = proxy.get_with("/", &[BROWSER]);
        response.assert_is(200, &page(1));
        assert_eq!(response.field("vary"), None);
        assert_eq!(response.field("accept-ranges"), Some("bytes"));
    }
    let requested = origin.seen("/");
    assert_eq!(
        requested[0].field("accept-encoding"),
        Some("gzip, deflate, br, zstd")
    );
}

#[test]
fn personal_pages_are_left_to_the_application() {
    let origin = Origin::start();
    let coded = |request: &crate::support::Seen| {
        let accepted = request
            .field("accept-encoding")
            .unwrap_or_default()
            .to_owned();
        let reply = Reply::new(200).with("Content-Type: text/html");
        if accepted.contains("gzip") {
            reply
                .with("Content-Encoding: gzip")
                .with("Vary: Accept-Encoding")
                .body("coded")
        } else {
            reply.body(page(1))
        }
    };
    origin.on("/").answer(coded);
    let proxy = Proxy::start(&origin, ALL);
    for secret in ["Cookie: session=1", "Authorization: Basic x"] {
        for _ in 0..3 {
            let response = proxy.get_with("/", &[secret, BROWSER]);
            response.assert_is(200, "coded");
            assert_eq!(response.field("content-encoding"), Some("gzip"));
        }
    }
    // A response that it has encoded for one client is for no other.
    proxy.get("/").assert_is(200, &page(1));
}

#[test]
fn pages_that_vary_on_cookies_are_compressed_only_if_configured() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    let config = |more: &str| {
        let url = origin.url();
        format!("origin = \"{url}\"\ncompress = \"gzip\"\nkey = {{ cookies = [\"shop\"] }}\n{more}")
    };
    let cookie = "Cookie: shop=1";
    let proxy = Proxy::with_config(&config(""));
    proxy.output_with("compress_personal");
    for _ in 0..10 {
        let response = proxy.get_with("/", &[cookie, "Accept-Encoding: gzip"]);
        response.assert_is(200, &page(1));
        assert_eq!(response.field("content-encoding"), None);
    }
    let proxy = Proxy::with_config(&config("compress_personal = true\n"));
    proxy.get("/");
    in_coding(&proxy, "/", "gzip");
}

#[test]
fn incompressible_bodies_are_tried_once() {
    let origin = Origin::start();
    let noise = noise(5000, 1);
    let reply = Reply::new(200)
        .with("Content-Type: text/plain")
        .with("Cache-Control: max-age=1000")
        .body(noise.clone());
    origin.on("/noise").reply(reply);
    origin.on("/text").reply(html(&page(1)));
    let (proxy, admin) = Proxy::operated(&origin, ALL);
    proxy.get("/noise");
    proxy.get("/text");
    for _ in 0..5 {
        let response = proxy.get_with("/noise", &["Accept-Encoding: br"]);
        assert_eq!(response.field("content-encoding"), None);
        assert_eq!(response.body, noise);
        in_coding(&proxy, "/text", "br");
    }
    let metrics = metrics(admin);
    let incompressible = "microcache_compression_dropped_total{why=\"incompressible\"} 1\n";
    assert!(metrics.contains(incompressible), "{metrics}");
}

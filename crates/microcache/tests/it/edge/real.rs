//! Applications that write tags: Symfony's own components, and the markup of Magento and Shopware.

use std::path::Path;

use super::*;
use crate::php::fpm::Fpm;
use crate::support::left_out;

const KERNEL: &str = "/usr/share/php/Symfony/Component/HttpKernel/HttpKernel.php";

/// Symfony's page as a browser shows it.
fn shown_to(name: &str) -> String {
    let menu = format!("menu ({name})");
    format!("<html><body>{menu}|cart of {name} with 5|{menu}</body></html>")
}

#[test]
fn symfony_renders_fragments_for_each_visitor() {
    if !Path::new(KERNEL).exists() {
        left_out("edge side includes of Symfony, which is not installed (php-symfony-http-kernel)");
        return;
    }
    let Some(fpm) = Fpm::start() else { return };
    fpm.site
        .write("index.php", include_str!("symfony/index.php"));
    // Without the handshake, Symfony renders the fragments of the first visitor into the page of all.
    let plain = fpm.proxy(&[]);
    let response = plain.get("/account");
    response.assert_is(200, "<p>nobody</p>menu (nobody)");
    assert_eq!(response.field("x-tags"), Some("0"));

    let proxy = fpm.proxy(&["--edge", "announced"]);
    proxy.get("/").assert_is(200, &shown_to("nobody"));
    for name in ["ann", "bob"] {
        let response = get_as(&proxy, name, "/");
        response.assert_is(200, &shown_to(name));
        response.assert_hit();
        assert_eq!(response.field("x-tags"), Some("3"), "the handshake");
        for field in ["surrogate-control", "set-cookie", "etag", "last-modified"] {
            assert_eq!(response.field(field), None, "{response:?}");
        }
        assert_eq!(response.field("cache-control"), Some("private, no-cache"));
        let expected = format!("<p>{name}</p>menu ({name})");
        get_as(&proxy, name, "/account").assert_is(200, &expected);
    }
    // A fragment's URL is signed, so that nobody calls other controllers.
    for target in ["/_fragment?_path=_controller%3Dcart", "/_fragment"] {
        assert_eq!(proxy.get(target).status, 403, "{target}");
    }
}

#[test]
fn blocks_of_magento_are_composed() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nedge = \"always\"\n",
        origin.url()
    ));
    let block = "/page_cache/block/esi/blocks/%5B%22catalog.topnav%22%5D/handles/WyJkZWZhdWx0Il0=/";
    let body = format!("<nav><esi:include src=\"http://example.com{block}\" /></nav>");
    let fields = [
        "Content-Type: text/html; charset=UTF-8",
        "Cache-Control: max-age=86400, public, s-maxage=86400",
        "X-Magento-Tags: cat_c,store",
    ];
    origin.on("/shirts.html").reply(Reply::ok(&fields, body));
    origin.on(block).reply(Reply::ok(&fields, "<ul>menu</ul>"));
    for name in ["ann", "bob"] {
        let visitor = format!("Cookie: PHPSESSID={name}");
        let fields = [&*visitor, "X-Forwarded-Proto: https"];
        let response = proxy.get_with("/shirts.html", &fields);
        response.assert_is(200, "<nav><ul>menu</ul></nav>");
    }
    assert_eq!(
        origin.requests().len(),
        2,
        "{:?}",
        origin.requests()[0].head
    );
}

#[test]
fn header_and_footer_of_shopware_are_composed() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nedge = \"announced\"\n",
        origin.url()
    ));
    let header = "/_esi/global/header?headerParameters%5BactiveRoute%5D=frontend.home.page&headerParameters%5Bx%5D=1";
    let footer = "/_esi/global/footer";
    // With the URL of the host before version 6.7.3, and with the path alone after it.
    let body = format!(
        "<body><esi:include src=\"http://example.com{header}\" />main<esi:include src=\"{footer}\" /></body>"
    );
    let fields = [
        HTML,
        ANNOUNCED,
        "Cache-Control: public, s-maxage=7200",
        "xkey: product-1",
    ];
    origin.on("/").reply(Reply::ok(&fields, body));
    origin.on(header).reply(shared("<header/>"));
    origin.on(footer).reply(shared("<footer/>"));
    for _ in 0..3 {
        let expected = "<body><header/>main<footer/></body>";
        proxy.get("/").assert_is(200, expected);
    }
    assert_eq!(origin.requests().len(), 3);
}

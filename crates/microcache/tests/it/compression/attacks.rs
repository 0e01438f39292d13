//! What a client can say and ask for to make compression dear.

use super::{ALL, BROWSER, decoded, html, in_coding, page};
use crate::support::{Origin, Proxy};

#[test]
fn no_accept_encoding_causes_another_origin_request() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    let proxy = Proxy::start(&origin, ALL);
    proxy.get("/");
    in_coding(&proxy, "/", "gzip");
    let thousand: Vec<String> = (0..1000).map(|n| format!("c{n}")).collect();
    let gzips = vec!["gzip"; 1000].join(",");
    let weights = vec!["gzip;q=0.5"; 64].join(",");
    for accepted in [
        thousand.join(", ").as_str(),
        gzips.as_str(),
        weights.as_str(),
        "gzip;q=9999999999999999999999",
        "gzip;q=-0, br;q=nan, zstd;q=",
        ";;;,,,===\"\",gzip",
        "*;q=0.0000000001",
        "gzip;q=1;q=0",
        "\t , ,,gzip ;\tq=1",
    ] {
        let response = proxy.get_with("/", &[&format!("Accept-Encoding: {accepted}")]);
        assert_eq!(response.status, 200, "{accepted}");
        assert!(decoded(&response) == page(1), "{accepted}");
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_flood_of_urls_does_not_displace_the_popular_page() {
    let origin = Origin::start();
    let urls: Vec<String> = (0..300).map(|n| format!("/flood/{n}")).collect();
    for url in &urls {
        origin.on(url).reply(html(&page(7)));
    }
    origin.on("/").reply(html(&page(1)));
    let proxy = Proxy::start(&origin, &[ALL, &["--compress-queue", "2"]].concat());
    let mut flood = proxy.connect();
    for url in &urls {
        // The first is a miss, and the second asks for a compression.
        for _ in 0..2 {
            flood.send(format!(
                "GET {url} HTTP/1.1\r\nHost: example.com\r\n{BROWSER}\r\n\r\n"
            ));
        }
    }
    // They are all answered, and what is not compressed is sent as it is.
    proxy.get("/");
    let response = in_coding(&proxy, "/", "br");
    assert!(decoded(&response) == page(1));
    for _ in 0..2 * urls.len() {
        let response = flood.response();
        assert_eq!(response.status, 200);
        assert!(decoded(&response) == page(7));
    }
}

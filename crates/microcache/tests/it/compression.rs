//! Stored responses are sent compressed to clients that accept it: RFC 9110 §8.4 and §12.5.3.

mod attacks;
mod browser;
mod dictionaries;
mod holes;
mod left_alone;
mod operators;

use std::io::Read;
use std::net::SocketAddr;
use std::process::Command;

use crate::support::{Client, Origin, Proxy, Reply, Response, eventually};

/// Everything that can be made.
const ALL: &[&str] = &["--compress", "zstd,br,gzip"];
/// What a browser says.
const BROWSER: &str = "Accept-Encoding: gzip, deflate, br, zstd";
const DATE: &str = "Sun, 06 Nov 1994 08:00:00 GMT";

/// A page of about 20 KB, which says that it is this one.
fn page(number: usize) -> String {
    let rows: Vec<String> = (0..500)
        .map(|row| format!("<p>row {row} of page {number}: {}</p>", row * 7919 % 1000))
        .collect();
    rows.join("\n")
}

fn html(body: &str) -> Reply {
    html_for("max-age=1000", body)
}

fn html_for(cache_control: &str, body: &str) -> Reply {
    Reply::new(200)
        .with("Content-Type: text/html; charset=utf-8")
        .with(&format!("Cache-Control: {cache_control}"))
        .with("ETag: \"a\"")
        .with(&format!("Last-Modified: {DATE}"))
        .with("Accept-Ranges: bytes")
        .body(body)
}

/// Asks until the answer comes in this coding.
fn in_coding(proxy: &Proxy, target: &str, coding: &str) -> Response {
    let accept = format!("Accept-Encoding: {coding}");
    eventually(&format!("{target} in {coding}"), || {
        let response = proxy.get_with(target, &[&accept]);
        let is_there = response.field("content-encoding") == Some(coding);
        assert!(is_there || response.field("content-encoding").is_none());
        is_there.then_some(response)
    })
}

/// What a body says, whatever its coding.
fn decoded(response: &Response) -> String {
    let body = &response.body[..];
    let mut text = String::new();
    match response.field("content-encoding") {
        None => text = response.text(),
        Some("gzip") => {
            let mut reader = flate2::read::GzDecoder::new(body);
            reader.read_to_string(&mut text).expect("it is gzip");
        }
        Some("br") => {
            let mut reader = brotli::Decompressor::new(body, 4096);
            reader.read_to_string(&mut text).expect("it is brotli");
        }
        Some("zstd") => {
            text = String::from_utf8(zstd::decode_all(body).expect("it is zstd")).unwrap();
        }
        Some(other) => panic!("nobody has asked for {other}"),
    }
    text
}

/// What Prometheus reads.
fn metrics(admin: SocketAddr) -> String {
    let mut client = Client::connect(admin);
    client.send(format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    client.response().text()
}

#[test]
fn a_page_is_fetched_once_and_sent_in_each_coding() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    let proxy = Proxy::start(&origin, ALL);
    let first = proxy.get_with("/", &[BROWSER]);
    // No request waits for a compression.
    first.assert_is(200, &page(1));
    assert_eq!(first.field("vary"), Some("Accept-Encoding"));
    assert_eq!(first.field("etag"), Some("\"a\""));
    for coding in ["gzip", "br", "zstd"] {
        let response = in_coding(&proxy, "/", coding);
        response.assert_hit();
        assert_eq!(decoded(&response), page(1));
        assert!(response.body.len() < page(1).len() / 3, "{coding}");
        let length = response.body.len().to_string();
        assert_eq!(response.field("content-length"), Some(&length[..]));
        assert_eq!(response.field("vary"), Some("Accept-Encoding"));
        assert_eq!(response.field("etag"), Some("W/\"a\""));
        assert_eq!(response.field("accept-ranges"), None);
        let expected = "text/html; charset=utf-8";
        assert_eq!(response.field("content-type"), Some(expected));
        let head = proxy.send("HEAD", "/", &[&format!("Accept-Encoding: {coding}")]);
        assert_eq!(head.field("content-encoding"), Some(coding));
        assert_eq!(head.field("content-length"), Some(&length[..]));
    }
    // Now all are there, and the best is chosen.
    let best = proxy.get_with("/", &[BROWSER]);
    assert_eq!(best.field("content-encoding"), Some("zstd"));
    let other = proxy.get_with("/", &["Accept-Encoding: zstd;q=0.5, br"]);
    assert_eq!(other.field("content-encoding"), Some("br"));
    for accepted in ["identity", "", "*;q=0", "compress"] {
        let plain = proxy.get_with("/", &[&format!("Accept-Encoding: {accepted}")]);
        plain.assert_is(200, &page(1));
        assert_eq!(plain.field("vary"), Some("Accept-Encoding"), "{accepted}");
        assert_eq!(plain.field("etag"), Some("\"a\""), "{accepted}");
    }
    proxy.get("/").assert_is(200, &page(1));
    assert_eq!(origin.count("/"), 1);
    let requested = origin.seen("/");
    assert_eq!(requested[0].field("accept-encoding"), Some("identity"));
}

#[test]
fn conditions_apply_to_the_encoded_response() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    let proxy = Proxy::start(&origin, ALL);
    proxy.get("/");
    in_coding(&proxy, "/", "br");
    let br = "Accept-Encoding: br";
    for (condition, fields, status, tag) in [
        ("If-None-Match: W/\"a\"", br, 304, "W/\"a\""),
        ("If-None-Match: \"a\"", br, 304, "W/\"a\""),
        ("If-None-Match: \"b\"", br, 200, "W/\"a\""),
        ("If-None-Match: \"a\"", "X-A: 1", 304, "\"a\""),
        (&format!("If-Modified-Since: {DATE}"), br, 304, "W/\"a\""),
        ("If-Match: \"a\"", "X-A: 1", 200, "\"a\""),
    ] {
        let response = proxy.get_with("/", &[condition, fields]);
        response.assert_hit();
        assert_eq!(response.status, status, "{condition} {fields}");
        assert_eq!(response.field("etag"), Some(tag), "{condition} {fields}");
        assert_eq!(response.field("vary"), Some("Accept-Encoding"));
        let has_coding = response.field("content-encoding").is_some();
        assert_eq!(has_coding, status == 200 && fields == br, "{condition}");
    }
    // What is compressed is never the very same bytes.
    for tag in ["\"a\"", "W/\"a\""] {
        let response = proxy.get_with("/", &[&format!("If-Match: {tag}"), br]);
        assert_eq!(response.status, 412, "{tag}");
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn ranges_apply_to_the_stored_response() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    let proxy = Proxy::start(&origin, ALL);
    proxy.get("/");
    in_coding(&proxy, "/", "gzip");
    let gzip = "Accept-Encoding: gzip";
    let part = proxy.get_with("/", &[gzip, "Range: bytes=3-9"]);
    part.assert_is(206, &page(1)[3..10]);
    assert_eq!(part.field("content-encoding"), None);
    assert_eq!(part.field("etag"), Some("\"a\""));
    assert_eq!(part.field("accept-ranges"), Some("bytes"));
    assert_eq!(part.field("vary"), Some("Accept-Encoding"));
    let goes_on = proxy.get_with("/", &[gzip, "Range: bytes=3-9", "If-Range: \"a\""]);
    goes_on.assert_is(206, &page(1)[3..10]);
    // Who has the beginning of what is compressed gets all of it again.
    for condition in ["If-Range: W/\"a\"", &format!("If-Range: {DATE}")] {
        let whole = proxy.get_with("/", &[gzip, "Range: bytes=3-9", condition]);
        assert_eq!(whole.status, 200, "{condition}");
        assert_eq!(decoded(&whole), page(1), "{condition}");
    }
    let only_coded = "Accept-Encoding: gzip, identity;q=0";
    let whole = proxy.get_with("/", &[only_coded, "Range: bytes=3-9"]);
    assert_eq!((whole.status, decoded(&whole)), (200, page(1)));
}

#[test]
fn a_revalidated_response_is_not_compressed_again() {
    let origin = Origin::start();
    origin
        .on("/")
        .reply(html_for("max-age=0, stale-while-revalidate=1000", &page(1)))
        .reply(
            Reply::new(304)
                .with("ETag: \"a\"")
                .with("Cache-Control: max-age=1000"),
        );
    let (proxy, admin) = Proxy::operated(&origin, ALL);
    proxy.get("/");
    let stale = in_coding(&proxy, "/", "br");
    assert_eq!(decoded(&stale), page(1));
    let fresh = eventually("the confirmation", || {
        let response = proxy.get_with("/", &["Accept-Encoding: br"]);
        response
            .cache()
            .ttl()
            .is_some_and(|ttl| ttl > 0)
            .then_some(response)
    });
    // No request has to wait for it again, not even the next one.
    assert_eq!(fresh.field("content-encoding"), Some("br"));
    assert_eq!(fresh.field("etag"), Some("W/\"a\""));
    assert_eq!(fresh.field("vary"), Some("Accept-Encoding"));
    assert_eq!(decoded(&fresh), page(1));
    // What the origin is asked is what it has said itself.
    assert_eq!(origin.seen("/")[1].field("if-none-match"), Some("\"a\""));
    // The thread that compresses counts its time when it has handed the body over.
    for name in [
        "microcache_compressed_responses_total ",
        "microcache_compression_saved_bytes_total ",
        "microcache_compression_cpu_seconds_total ",
    ] {
        eventually(name, || {
            let metrics = metrics(admin);
            let line = metrics.lines().find(|line| line.starts_with(name))?;
            let value: f64 = line.rsplit(' ').next()?.parse().ok()?;
            (value > 0.0).then_some(())
        });
    }
    let made = "microcache_compressed_bodies_total{coding=\"br\"} 1\n";
    let metrics = metrics(admin);
    assert!(metrics.contains(made), "{metrics}");
}

#[test]
fn another_page_is_never_sent_in_the_coding_of_the_one_before() {
    let origin = Origin::start();
    let mut number = 0;
    origin.on("/").answer(move |_| {
        number += 1;
        Reply::new(200)
            .with("Content-Type: text/html")
            .with("Cache-Control: max-age=0, stale-while-revalidate=1000")
            .with(&format!("X-Page: {number}"))
            .body(page(number))
    });
    let proxy = Proxy::start(&origin, ALL);
    proxy.get("/");
    let mut compressed = 0;
    let mut connection = proxy.connect();
    // The page is replaced again and again while it is compressed.
    while compressed < 200 || origin.count("/") < 3 {
        connection.send(format!(
            "GET / HTTP/1.1\r\nHost: example.com\r\n{BROWSER}\r\n\r\n"
        ));
        let response = connection.response();
        let number: usize = response.field("x-page").unwrap().parse().unwrap();
        assert!(decoded(&response) == page(number), "page {number}");
        compressed += usize::from(response.field("content-encoding").is_some());
    }
}

#[test]
fn a_purge_removes_the_compressed_forms() {
    let origin = Origin::start();
    for number in 1..=20 {
        origin.on("/").reply(html(&page(number)));
    }
    let proxy = Proxy::start(&origin, &[ALL, &["--purge-from", "127.0.0.1"]].concat());
    for number in 1..20 {
        proxy.get_with("/", &[BROWSER]);
        // It may be under way, or there already.
        let response = proxy.get_with("/", &[BROWSER]);
        assert!(decoded(&response) == page(number), "page {number}");
        if number % 2 == 0 {
            assert!(decoded(&in_coding(&proxy, "/", "gzip")) == page(number));
        }
        assert_eq!(proxy.send("PURGE", "/", &[]).status, 200);
    }
}

#[test]
fn real_clients_read_it_over_both_protocols() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    let proxy = Proxy::start(&origin, ALL);
    proxy.get("/");
    in_coding(&proxy, "/", "gzip");
    let url = format!("http://{}/", proxy.address());
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let curl = Command::new("curl")
            .args(["-sS", "--compressed", protocol, "-H", "Host: example.com"])
            .args(["-H", "Accept-Encoding: gzip", "-D", "-", &url])
            .output()
            .expect("curl is there");
        let reported = String::from_utf8_lossy(&curl.stdout).into_owned();
        let (head, body) = reported.split_once("\r\n\r\n").expect("a head");
        let head = head.to_ascii_lowercase();
        assert!(
            head.contains("content-encoding: gzip"),
            "{protocol}: {head}"
        );
        assert!(head.contains("vary: accept-encoding"), "{protocol}: {head}");
        assert!(body == page(1), "{protocol}");
    }
    assert_eq!(origin.count("/"), 1);
}

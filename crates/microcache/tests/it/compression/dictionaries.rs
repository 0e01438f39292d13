//! The version of a page that a client has is the dictionary for the next one: RFC 9842.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::{decoded, in_coding};
use crate::operators::Operator;
use crate::support::{Origin, Proxy, Reply, Response, eventually};

const FLAGS: &[&str] = &["--compress", "zstd", "--dictionaries"];
const ACCEPTED: &str = "Accept-Encoding: gzip, br, zstd, dcb, dcz";

/// A page of about 57 KB, of which a little differs from one second to the next.
pub(super) fn page(second: usize) -> String {
    let row = |row: usize| {
        let number = row.wrapping_mul(2_654_435_761) % 1_000_003;
        format!(
            "<article id=\"{row}\"><h2>Post {number}</h2><p>{}</p></article>",
            number * 31
        )
    };
    let rows: Vec<String> = (0..900).map(row).collect();
    let changed = format!("<p>{second} seconds; visitor {}</p>", second * 7919);
    format!("<!doctype html>{changed}{}", rows.join("\n"))
}

/// Sends the version that it is time for, each time it is asked.
fn changing(origin: &Origin, target: &str) -> Arc<AtomicUsize> {
    changing_for("max-age=0, stale-while-revalidate=1000", origin, target)
}

pub(super) fn changing_for(
    cache_control: &'static str,
    origin: &Origin,
    target: &str,
) -> Arc<AtomicUsize> {
    let clock = Arc::new(AtomicUsize::new(1));
    let time = Arc::clone(&clock);
    origin.on(target).answer(move |_| {
        let second = time.load(Ordering::SeqCst);
        Reply::new(200)
            .with("Content-Type: text/html")
            .with(&format!("Cache-Control: {cache_control}"))
            .with(&format!("ETag: \"{second}\""))
            .with(&format!("X-Second: {second}"))
            .body(page(second))
    });
    clock
}

fn second(response: &Response) -> usize {
    response
        .field("x-second")
        .expect("it is a page")
        .parse()
        .unwrap()
}

fn available(body: &[u8]) -> String {
    format!("Available-Dictionary: :{}:", base64_of_hash(body))
}

pub(super) fn base64_of_hash(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for piece in Sha256::digest(bytes).chunks(3) {
        let bytes = [
            piece[0],
            *piece.get(1).unwrap_or(&0),
            *piece.get(2).unwrap_or(&0),
        ];
        let number = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = char::from(digits[(number >> shift) as usize & 63]);
            text.push(if at > piece.len() { '=' } else { digit });
        }
    }
    text
}

/// A second later, asks with a version until the answer is what differs from it.
fn next(proxy: &Proxy, clock: &AtomicUsize, has: usize, accepted: &str) -> Response {
    let next = 1 + clock.fetch_add(1, Ordering::SeqCst);
    differs(proxy, has, next, &[accepted])
}

/// Asks with a version until the answer is what this one differs by.
fn differs(proxy: &Proxy, has: usize, wanted: usize, fields: &[&str]) -> Response {
    let dictionary = available(page(has).as_bytes());
    eventually("what differs", || {
        let response = proxy.get_with("/", &[fields, &[&dictionary]].concat());
        let coding = response.field("content-encoding");
        let is_difference = matches!(coding, Some("dcb" | "dcz"));
        (is_difference && second(&response) == wanted).then_some(response)
    })
}

/// What a body says to who has this page.
fn applied(response: &Response, dictionary: &str) -> String {
    let (magic, is_brotli) = match response.field("content-encoding") {
        Some("dcb") => (&[0xff, 0x44, 0x43, 0x42][..], true),
        Some("dcz") => (&[0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0][..], false),
        other => panic!("it differs from nothing: {other:?}"),
    };
    let rest = response.body.strip_prefix(magic).expect("the magic number");
    let (hash, encoded) = rest.split_at(32);
    let dictionary = dictionary.as_bytes();
    assert_eq!(hash, &Sha256::digest(dictionary)[..]);
    let mut text = String::new();
    let read = if is_brotli {
        brotli::Decompressor::new_with_custom_dict(encoded, 4096, dictionary.to_vec().into())
            .read_to_string(&mut text)
    } else {
        zstd::stream::read::Decoder::with_ref_prefix(encoded, dictionary)
            .expect("a decoder")
            .read_to_string(&mut text)
    };
    read.expect("it can be decoded");
    text
}

#[test]
fn a_returning_browser_gets_the_changes() {
    for (compress, accepted, coding) in [
        ("zstd", ACCEPTED, "dcz"),
        ("br,zstd", ACCEPTED, "dcb"),
        ("zstd", "Accept-Encoding: br, dcb", "dcb"),
        ("gzip", ACCEPTED, "dcz"),
    ] {
        let origin = Origin::start();
        let clock = changing(&origin, "/");
        let proxy = Proxy::start(&origin, &["--compress", compress, "--dictionaries"]);
        let first = proxy.get_with("/", &[accepted]);
        assert_eq!(first.field("use-as-dictionary"), Some("match=\"/\""));
        let vary = Some("Accept-Encoding, Available-Dictionary");
        assert_eq!(first.field("vary"), vary);
        assert!(first.text() == page(1) && first.body.len() > 50_000);
        let mut has = 1;
        for _ in 0..5 {
            let response = next(&proxy, &clock, has, accepted);
            let now = second(&response);
            assert_eq!(response.field("content-encoding"), Some(coding));
            assert_eq!(response.field("vary"), vary);
            assert_eq!(response.field("use-as-dictionary"), Some("match=\"/\""));
            assert_eq!(response.field("etag"), Some(&format!("W/\"{now}\"")[..]));
            assert!(response.body.len() < 500, "{} bytes", response.body.len());
            assert!(applied(&response, &page(has)) == page(now));
            has = now;
        }
    }
}

#[test]
fn a_shared_response_is_much_larger_than_the_delta() {
    let origin = Origin::start();
    let clock = changing(&origin, "/");
    let proxy = Proxy::start(&origin, FLAGS);
    proxy.get("/");
    let small = next(&proxy, &clock, 1, ACCEPTED).body.len();
    let whole = in_coding(&proxy, "/", "zstd");
    assert!(whole.body.len() > 10 * small);
    assert!(decoded(&whole) == page(second(&whole)));
}

/// A page that says nothing by which it could be confirmed is sent again by who has it.
#[test]
fn a_client_with_the_latest_version_gets_almost_nothing() {
    let origin = Origin::start();
    let html = Reply::new(200)
        .with("Content-Type: text/html")
        .with("Cache-Control: max-age=1000")
        .with("X-Second: 1");
    origin.on("/").reply(html.body(page(1)));
    let (proxy, admin) = Proxy::operated(&origin, FLAGS);
    proxy.get("/");
    for answers in 1..10 {
        let response = differs(&proxy, 1, 1, &[ACCEPTED]);
        assert!(response.body.len() < 100, "{} bytes", response.body.len());
        assert!(applied(&response, &page(1)) == page(1));
        // It is made once for all.
        let compression = &Operator::at(admin).get("/v1/stats")["compression"];
        assert_eq!(compression["sent"]["dcz"], answers);
        assert_eq!(compression["deltas"], 1);
    }
    assert_eq!(origin.count("/"), 1);
}

/// The encodings requested of one version are made of the next before a request.
#[test]
fn the_next_versions_are_compared_unasked() {
    let origin = Origin::start();
    let clock = changing(&origin, "/");
    let (proxy, admin) = Proxy::operated(&origin, FLAGS);
    let deltas = || {
        let compression = &Operator::at(admin).get("/v1/stats")["compression"];
        compression["deltas"].as_u64().expect("a count")
    };
    proxy.get("/");
    next(&proxy, &clock, 1, ACCEPTED);
    for version in 3..6 {
        let before = eventually("nothing more to be made", || {
            let waiting = &Operator::at(admin).get("/v1/stats")["compression"]["waiting"];
            (waiting == 0).then(deltas)
        });
        clock.fetch_add(1, Ordering::SeqCst);
        // These clients have no dictionary.
        eventually("the next version", || {
            (second(&proxy.get("/")) == version).then_some(())
        });
        eventually("what differs", || (deltas() > before).then_some(()));
    }
}

#[test]
fn a_client_without_the_dictionary_gets_the_page() {
    let origin = Origin::start();
    let clock = changing(&origin, "/");
    let proxy = Proxy::start(&origin, &[FLAGS, &["--purge-from", "127.0.0.1"]].concat());
    proxy.get("/");
    let has = second(&next(&proxy, &clock, 1, ACCEPTED));
    let known = available(page(has).as_bytes());
    next(&proxy, &clock, has, ACCEPTED);
    let unknown = available(b"another page");
    let twice = format!("{known}\r\n{known}");
    for fields in [
        [ACCEPTED, unknown.as_str()],
        [ACCEPTED, "Available-Dictionary: :AAAA:"],
        [ACCEPTED, "Available-Dictionary: x"],
        [ACCEPTED, twice.as_str()],
        ["Accept-Encoding: gzip, br, zstd", known.as_str()],
        ["Accept-Encoding: dcz;q=0", known.as_str()],
    ] {
        let response = proxy.get_with("/", &fields);
        assert_ne!(
            response.field("content-encoding"),
            Some("dcz"),
            "{fields:?}"
        );
        assert!(decoded(&response) == page(second(&response)));
    }
    let part = proxy.get_with("/", &[ACCEPTED, &known, "Range: bytes=0-14"]);
    part.assert_is(206, "<!doctype html>");
    // And a purge takes the versions along.
    assert_eq!(proxy.send("PURGE", "/", &[]).status, 200);
    let response = proxy.get_with("/", &[ACCEPTED, &known]);
    assert_eq!(response.field("content-encoding"), None);
    let response = proxy.get_with("/", &[ACCEPTED, &known]);
    assert_ne!(response.field("content-encoding"), Some("dcz"));
}

#[test]
fn conditions_come_before_dictionaries_and_insecure_requests_get_none() {
    let origin = Origin::start();
    let clock = changing(&origin, "/");
    // The client is a proxy that is believed, and its own client has not come by TLS.
    let flags = [FLAGS, &["--trusted-proxies", "127.0.0.1"]].concat();
    let proxy = Proxy::start(&origin, &flags);
    proxy.get_with("/", &["X-Forwarded-Proto: https"]);
    proxy.get_with("/", &["X-Forwarded-Proto: http"]);
    clock.fetch_add(1, Ordering::SeqCst);
    let response = differs(&proxy, 1, 2, &[ACCEPTED, "X-Forwarded-Proto: https"]);
    assert!(applied(&response, &page(1)) == page(2));
    let dictionary = available(page(1).as_bytes());
    let requested = [ACCEPTED, &dictionary, "X-Forwarded-Proto: http"];
    let response = eventually("the next version, compressed", || {
        let response = proxy.get_with("/", &requested);
        let is_next = second(&response) == 2 && response.field("content-encoding").is_some();
        is_next.then_some(response)
    });
    assert_eq!(response.field("content-encoding"), Some("zstd"));
    let tag = format!("If-None-Match: {}", response.field("etag").unwrap());
    let https = "X-Forwarded-Proto: https";
    let known = proxy.get_with("/", &[ACCEPTED, &dictionary, &tag, https]);
    assert_eq!(known.status, 304);
}

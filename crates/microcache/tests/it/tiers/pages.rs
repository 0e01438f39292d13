//! Pages that an application writes into memcached itself, for nginx's memcached module.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use super::servers::LOG_ITEMS;
use super::{assert_found, disk_in, end, lasting};
use crate::support::{Folder, Origin, Proxy, Reply, TierKind, TierServer, eventually};

const DETAIL: &str = "memcached-page";

/// The application: it keeps the page under the key.
fn keep(server: &TierServer, key: &str, flags: u32, page: &str) {
    let length = page.len();
    let stored = tell(
        server,
        &format!("set {key} {flags} 0 {length}\r\n{page}\r\n"),
    );
    assert_eq!(stored, "STORED\r\n");
}

/// What the server says to one command, up to the first line's end.
fn tell(server: &TierServer, command: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.write_all(command.as_bytes()).expect("it reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a line");
    line
}

fn is_there(server: &TierServer, key: &str) -> bool {
    tell(server, &format!("mg {key}\r\n")) == "HD\r\n"
}

fn start(origin: &Origin, server: &TierServer, key: &str, more: &[&str]) -> Proxy {
    start_with("1000s", origin, server, key, more)
}

fn start_with(ttl: &str, origin: &Origin, server: &TierServer, key: &str, more: &[&str]) -> Proxy {
    let [flag, address] = server.flags();
    let own = [
        "--ttl",
        ttl,
        &*flag,
        &*address,
        "--memcached-timeout",
        "5s",
        "--memcached-pages",
        key,
    ];
    Proxy::start(origin, &[&own, more].concat())
}

#[test]
fn a_page_of_the_application_is_served_without_the_origin() {
    let (origin, server) = (Origin::start(), TierServer::start(TierKind::Memcached));
    keep(&server, "/news?a=1", 0, "the news");
    keep(&server, "/style.css?", 0, "p {}");
    let proxy = start(&origin, &server, "$uri?$args", &[]);

    let found = proxy.get("/news?a=1");
    assert_found(&found, DETAIL, b"the news");
    assert_eq!(found.field("content-type"), Some("text/html"));
    assert_eq!(found.field("content-length"), Some("8"));
    assert!(found.field("date").is_some());
    let ttl = found.cache().ttl().expect("a ttl");
    assert!((900..=1000).contains(&ttl), "{ttl}");
    let again = proxy.get("/news?a=1");
    again.assert_hit();
    assert_eq!(again.cache().get("detail"), None, "it is in memory now");

    let head = proxy.send("HEAD", "/style.css", &[]);
    assert_found(&head, DETAIL, b"");
    assert_eq!(head.field("content-type"), Some("text/css"));
    assert_eq!(head.field("content-length"), Some("4"));
    let part = proxy.get_with("/style.css", &["Range: bytes=2-"]);
    part.assert_is(206, "{}");
    assert!(origin.requests().is_empty());
}

#[test]
fn every_process_finds_the_page_and_none_writes_it() {
    let (origin, server, folder) = (
        Origin::start(),
        TierServer::start(TierKind::Memcached),
        Folder::absent(),
    );
    keep(&server, "shop:example.com/a", 0, "a page");
    let flags = [
        "--memcached-pages-type",
        "text/plain; charset=utf-8",
        "--disk",
        &disk_in(&folder),
    ];
    let one = start(&origin, &server, "shop:$host$uri", &flags);
    let other = start(&origin, &server, "shop:$host$uri", &[]);
    assert_found(&one.get("/a?x"), DETAIL, b"a page");
    assert_found(&other.get("/a?x"), DETAIL, b"a page");
    let found = one.get("/a?x");
    assert_eq!(
        found.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    end(other);
    end(one);
    // Neither a record nor a claim of ours is left beside it.
    eventually("nothing but the page and the log in memcached", || {
        (server.statistic("curr_items") == 1 + LOG_ITEMS).then_some(())
    });
    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    origin.on("/a?x").reply(lasting("the origin's"));
    proxy.get("/a?x").assert_is(200, "the origin's");
}

#[test]
fn without_a_page_the_request_goes_to_the_origin() {
    let (origin, mut server) = (Origin::start(), TierServer::start(TierKind::Memcached));
    keep(&server, "/packed?", 16, "compressed by a client");
    keep(&server, "/empty?", 0, "");
    let targets = ["/none", "/packed", "/empty", "//packed"];
    for target in targets {
        origin.on(target).reply(lasting("the origin's"));
    }
    let proxy = start(&origin, &server, "$uri?$args", &[]);
    for target in targets {
        let answer = proxy.get(target);
        answer.assert_is(200, "the origin's");
        answer.assert_forwarded("uri-miss");
    }
    // What the origin sent is a record of ours, and what the application keeps stays as it is.
    let other = start(&origin, &server, "$uri?$args", &[]);
    eventually("a record", || {
        let found = other.get("/none");
        found.assert_is(200, "the origin's");
        found.is_hit().then_some(())
    });
    assert!(!is_there(&server, "/none?") && is_there(&server, "/packed?"));

    origin.on("/down").reply(lasting("the origin's"));
    keep(&server, "/down?", 0, "the page");
    server.kill();
    proxy.get("/down").assert_is(200, "the origin's");
}

#[test]
fn a_route_that_keeps_nothing_and_a_method_that_reads_nothing_go_to_the_origin() {
    let (origin, server) = (Origin::start(), TierServer::start(TierKind::Memcached));
    keep(&server, "/a?", 0, "the page");
    origin.on("/a").reply(Reply::new(200).body("the origin's"));
    let proxy = start_with("0s", &origin, &server, "$uri?$args", &[]);
    proxy.get("/a").assert_is(200, "the origin's");
    let proxy = start(&origin, &server, "$uri?$args", &[]);
    proxy
        .send("OPTIONS", "/a", &[])
        .assert_is(200, "the origin's");
    assert_found(&proxy.get("/a"), DETAIL, b"the page");
}

#[test]
fn after_a_purge_the_page_of_memcached_is_served() {
    let (origin, server) = (Origin::start(), TierServer::start(TierKind::Memcached));
    origin.on("/a").reply(Reply::new(200).body("done"));
    keep(&server, "/a?", 0, "one");
    let proxy = start(&origin, &server, "$uri?$args", &[]);
    assert_found(&proxy.get("/a"), DETAIL, b"one");
    keep(&server, "/a?", 0, "two");
    proxy.get("/a").assert_is(200, "one");
    proxy
        .send("POST", "/a", &["Content-Length: 0"])
        .assert_is(200, "done");
    assert_found(&proxy.get("/a"), DETAIL, b"two");
    assert!(
        is_there(&server, "/a?"),
        "nobody but the application writes it"
    );
}

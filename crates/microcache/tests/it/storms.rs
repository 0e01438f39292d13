//! Storms: purges, wrong secrets, unread dashboards, names without end. Each is bounded, refused or counted,
//! and requests for a page are answered from memory meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::json;

use crate::operators::Operator;
use crate::support::{Client, Origin, Proxy, Reply, config_file, eventually, request};

const HOT: &str = "/hot";

/// A visitor who asks for the same page again and again, and gets it from memory each time.
struct Visitor {
    served: Arc<AtomicUsize>,
    enough: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Visitor {
    fn at(address: SocketAddr) -> Self {
        let (served, enough) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, reported) = (Arc::clone(&served), Arc::clone(&enough));
        let thread = thread::spawn(move || {
            let mut client = Client::connect(address);
            while !reported.load(Ordering::SeqCst) {
                let answer = client.get(HOT);
                answer.assert_hit();
                answer.assert_is(200, "hot");
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self {
            served,
            enough,
            thread,
        }
    }

    /// Waits until he has been served some more, which happens while the storm goes on.
    fn is_served(&self) {
        let before = self.served.load(Ordering::SeqCst);
        eventually("the visitor is served", || {
            (self.served.load(Ordering::SeqCst) > before + 2).then_some(())
        });
    }

    /// All his answers were right.
    fn leave(self) {
        self.enough.store(true, Ordering::SeqCst);
        self.thread.join().expect("every answer was a hit");
    }
}

fn hot() -> Origin {
    let origin = Origin::start();
    let page = Reply::new(200).with("Cache-Control: max-age=3600");
    origin.on(HOT).reply(page.body("hot"));
    origin
}

fn start(origin: &Origin, flags: &[&str]) -> (Proxy, Operator, Visitor) {
    let (proxy, admin) = Proxy::operated(origin, flags);
    proxy.get(HOT).assert_is(200, "hot");
    let visitor = Visitor::at(proxy.address());
    (proxy, Operator::at(admin), visitor)
}

#[test]
fn ten_thousand_purges_are_in_force_and_hits_go_on() {
    const REQUESTS: usize = 40;
    const NAMES: usize = 256;
    let origin = hot();
    let (proxy, operator, visitor) = start(&origin, &[]);
    let before = proxy.resident();
    for number in 0..REQUESTS {
        let each = |kind: &str| -> Vec<String> {
            let names = 0..NAMES / 4;
            names
                .map(|name| format!("{kind}-{number}-{name}"))
                .collect()
        };
        let urls = |kind: &str| -> Vec<String> {
            each(kind)
                .iter()
                .map(|name| format!("http://other.example/{name}"))
                .collect()
        };
        operator.purge(&json!({
            "tag": each("tag"),
            "host": each("host"),
            "url": urls("url"),
            "prefix": urls("prefix"),
        }));
    }
    visitor.is_served();
    let listed = operator.get("/v1/purges");
    assert_eq!(listed["total"], REQUESTS * NAMES);
    // Patterns are more work: no more than so many are looked at one by one, whatever their number. Beyond
    // that they count for their hosts.
    for number in 0..NAMES {
        operator.purge(&json!({"glob": format!("http://other.example/*{number}*")}));
    }
    visitor.is_served();
    visitor.leave();
    assert_eq!(origin.count(HOT), 1);
    let grown = proxy.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}

#[test]
fn a_thousand_wrong_secrets_are_refused_and_counted() {
    const WRONG: usize = 1000;
    let secret = "correct-horse-battery";
    let file = config_file(secret);
    let path = file.to_str().expect("a path");
    let origin = hot();
    let (_proxy, operator, visitor) = start(&origin, &["--admin-token-file", path]);
    let mut client = Client::connect(operator.address);
    for number in 0..WRONG {
        client.send(format!(
            "GET /v1/stats HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer wrong-{number}\r\n\r\n",
            operator.address
        ));
        assert_eq!(client.response().status, 401);
    }
    visitor.is_served();
    let operator = Operator {
        token: Some(secret),
        ..operator
    };
    assert_eq!(operator.get("/v1/stats")["admin"]["refused"], WRONG);
    visitor.leave();
}

#[test]
fn unread_dashboards_are_bounded() {
    const MOST: usize = 32;
    let origin = hot();
    let (_proxy, operator, visitor) = start(&origin, &[]);
    let watch = || {
        let mut client = Client::connect_narrow(operator.address);
        let head = format!(
            "GET /v1/stream HTTP/1.1\r\nHost: {}\r\n\r\n",
            operator.address
        );
        client.send(head);
        client
    };
    let mut all: Vec<_> = (0..MOST).map(|_| watch()).collect();
    for client in &mut all {
        assert!(client.head().start.contains(" 200 "));
    }
    assert_eq!(watch().response().status, 503);
    visitor.is_served();
    // They do not lock out the operator.
    operator.purge(&json!({"tag": "other"}));
    drop(all);
    eventually("there is room again", || {
        watch().head().start.contains(" 200 ").then_some(())
    });
    visitor.leave();
}

#[test]
fn names_without_end_make_no_labels() {
    const NAMES: usize = 2000;
    let origin = hot();
    let (proxy, operator, visitor) = start(&origin, &[]);
    let lines = || {
        let text = operator.ask("GET", "/metrics", None).text();
        text.lines().count()
    };
    let mut client = proxy.connect();
    let mut ask = |number: usize| {
        let host = format!("Host: {number}.example");
        client.send(format!(
            "GET /{number}?{number} HTTP/1.1\r\n{host}\r\nX-{number}: y\r\n\r\n"
        ));
        client.response();
    };
    ask(0);
    let before = lines();
    for number in 1..NAMES {
        ask(number);
    }
    assert_eq!(lines(), before);
    let top = operator.get("/v1/top?by=misses&limit=100");
    assert_eq!(top["urls"].as_array().map(Vec::len), Some(100));
    visitor.is_served();
    visitor.leave();
}

#[test]
fn a_response_with_more_tags_than_are_kept_is_stored_until_any_purge_by_tag() {
    let origin = hot();
    let tags: Vec<_> = (0..5000).map(|number| format!("tag-{number}")).collect();
    let line = format!("Cache-Tag: {}", tags.join(", "));
    origin.on("/tags").answer(move |_| {
        let reply = Reply::new(200).with("Cache-Control: max-age=3600");
        reply.with(&line).body("tags")
    });
    let (proxy, operator, visitor) = start(&origin, &[]);
    for count in 1..3 {
        let answer = proxy.get("/tags");
        answer.assert_is(200, "tags");
        assert_eq!(answer.cache().get("detail"), Some("too-many-tags"));
        proxy.get("/tags").assert_hit();
        assert_eq!(origin.count("/tags"), count);
        operator.purge(&json!({"tag": "another"}));
    }
    visitor.is_served();
    visitor.leave();
}

#[test]
fn urls_of_64_kib_are_refused_where_visitors_connect_and_understood_where_operators_do() {
    let origin = hot();
    let (proxy, operator, visitor) = start(&origin, &["--purge-from", "127.0.0.1"]);
    let target = format!("/{}", "x".repeat(64 << 10));
    for method in ["GET", "PURGE"] {
        let answer = proxy.request(request(method, &target, &[]));
        assert!(
            [414, 431].contains(&answer.status),
            "{method}: {}",
            answer.status
        );
    }
    let url = format!("http://example.com{target}");
    operator.purge(&json!({"url": url}));
    // In the target of a request it is too long for them too.
    let listed = operator.ask("GET", &format!("/v1/entries?url={url}"), None);
    assert!((400..500).contains(&listed.status), "{}", listed.status);
    let explained = operator.ask(
        "POST",
        "/v1/explain",
        Some(&json!({"url": url}).to_string()),
    );
    assert_eq!(explained.status, 400);
    assert!(explained.text().len() < 1000, "{}", explained.text().len());
    visitor.is_served();
    visitor.leave();
}

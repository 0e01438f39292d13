//! Watched pages of the application: the events of their subscribers, and the cost for the application.

use std::fs;
use std::sync::{Arc, Mutex};

use crate::operators::Operator;
use crate::support::{Client, Events, Gate, Origin, Proxy, Reply, Signal, config_file, eventually};

const WATCH: &str = "/.well-known/microcache/watch?url=";
const STREAM: &str = "Accept: text/event-stream";

/// A page that says what the test has it say.
struct Page(Arc<Mutex<String>>);

impl Page {
    fn on(origin: &Origin, target: &str, fields: &'static str, body: &str) -> Self {
        let says = Arc::new(Mutex::new(body.to_owned()));
        let page = Self(Arc::clone(&says));
        origin.on(target).answer(move |_| {
            let body = says.lock().expect("nobody has panicked").clone();
            Reply::new(200).with(fields).body(body)
        });
        page
    }

    fn becomes(&self, body: &str) {
        body.clone_into(&mut self.0.lock().expect("nobody has panicked"));
    }
}

/// Who watches.
struct Watcher(Events);

impl Watcher {
    fn of(proxy: &Proxy, urls: &str) -> Self {
        Self(Events::begin(
            proxy.ask_with(&format!("{WATCH}{urls}"), &[STREAM]),
        ))
    }

    /// The version that the next event is about, which is of this page.
    fn version(&mut self, url: &str) -> String {
        version_in(&self.0.next(), url)
    }

    /// The version that follows a purge. The purge itself is skipped by a watcher that gets its turn late.
    fn version_after_purge(&mut self, url: &str) -> String {
        let purge = format!("event: purge\ndata: {{\"event\":\"purge\",\"url\":\"{url}\"}}");
        let event = self.0.next();
        let event = if event == purge { self.0.next() } else { event };
        version_in(&event, url)
    }

    fn expect(&mut self, kind: &str, url: &str) {
        let event = format!("event: {kind}\ndata: {{\"event\":\"{kind}\",\"url\":\"{url}\"}}");
        assert_eq!(self.0.next(), event);
    }
}

fn version_in(event: &str, url: &str) -> String {
    let begins =
        format!("event: page\ndata: {{\"event\":\"page\",\"url\":\"{url}\",\"version\":\"");
    let rest = event
        .strip_prefix(&begins)
        .unwrap_or_else(|| panic!("{event}"));
    rest[..16].to_owned()
}

fn purge(admin: std::net::SocketAddr, what: &str) {
    let mut client = Client::connect(admin);
    let length = what.len();
    client.send(format!(
        "POST /v1/purges HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{what}"
    ));
    let response = client.response();
    assert_eq!(response.status, 200, "{}", response.text());
}

#[test]
fn watchers_get_each_version_for_one_origin_request() {
    let origin = Origin::start();
    let page = Page::on(&origin, "/news/?a=1", "Cache-Control: max-age=1", "first");
    let proxy = Proxy::start(&origin, &["--watch", "refresh"]);
    let mut watchers: Vec<_> = (0..5)
        .map(|_| Watcher::of(&proxy, "/news/%3Fa=1"))
        .collect();
    let first: Vec<_> = watchers
        .iter_mut()
        .map(|it| it.version("/news/?a=1"))
        .collect();
    assert!(first.iter().all(|it| *it == first[0]), "{first:?}");
    // A subscriber with the version gets the next one only.
    let known = format!("/news/%3Fa=1&version={}", first[0]);
    let mut informed = Watcher::of(&proxy, &known);
    page.becomes("second");
    let second = informed.version("/news/?a=1");
    assert_ne!(second, first[0]);
    for watcher in &mut watchers {
        assert_eq!(watcher.version("/news/?a=1"), second);
    }
    proxy.get("/news/?a=1").assert_is(200, "second");
    // Requests to the application have no field of a subscriber, and stop after the last has left.
    let requested = origin.seen("/news/?a=1");
    assert!(requested.iter().all(|it| it.field("cookie").is_none()));
    drop((watchers, informed));
    let mut before = usize::MAX;
    eventually("the end of the requests", || {
        std::thread::sleep(std::time::Duration::from_millis(2500));
        let now = origin.seen("/news/?a=1").len();
        let is_over = now == before;
        before = now;
        is_over.then_some(())
    });
}

#[test]
fn a_thousand_stalled_watchers_cost_the_others_nothing() {
    const CHANGES: usize = 100;
    let origin = Origin::start();
    let page = Page::on(&origin, "/", "Cache-Control: max-age=1000", "first");
    let flags = [
        "--watch",
        "refresh",
        "--max-connections-per-address",
        "2000",
    ];
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    let mut watcher = Watcher::of(&proxy, "/");
    let mut last = watcher.version("/");
    let before = proxy.resident();
    let silent: Vec<_> = (0..1000)
        .map(|_| proxy.ask_with(&format!("{WATCH}/"), &[STREAM]))
        .collect();
    for number in 0..CHANGES {
        page.becomes(&number.to_string());
        purge(admin, r#"{"url": "http://example.com/"}"#);
        let version = watcher.version_after_purge("/");
        assert_ne!(std::mem::replace(&mut last, version.clone()), version);
        proxy.get("/").assert_is(200, &number.to_string());
    }
    assert_eq!(origin.count("/"), CHANGES + 1);
    let grown = proxy.resident() - before;
    assert!(grown < 1000 * (8 << 10), "{grown} bytes");
    drop(silent);
}

#[test]
fn a_purge_by_any_name_shows_the_page_anew() {
    const FRESH: &str = "Cache-Control: max-age=1000\r\nCache-Tag: red";
    let origin = Origin::start();
    let page = Page::on(&origin, "/", FRESH, "0");
    let (proxy, admin) = Proxy::operated(&origin, &["--watch", "refresh"]);
    let mut watcher = Watcher::of(&proxy, "/");
    let mut last = watcher.version("/");
    for (number, purged) in [
        r#"{"url": "http://example.com/"}"#.to_owned(),
        r#"{"tag": "red"}"#.to_owned(),
        r#"{"prefix": "http://example.com/"}"#.to_owned(),
        r#"{"all": true}"#.to_owned(),
        r#"{"tag": "red", "soft": true}"#.to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        page.becomes(&(number + 1).to_string());
        purge(admin, &purged);
        if !purged.contains("soft") {
            watcher.expect("purge", "/");
        }
        let next = watcher.version("/");
        assert_ne!(next, last, "{purged}");
        last = next;
    }
    assert_eq!(origin.seen("/").len(), 6);
}

/// What the application answers is then not stored, which says nothing about whether it may be.
#[test]
fn a_purge_during_the_fetch_does_not_end_the_watch() {
    for visitor_comes_first in [false, true] {
        let origin = Origin::start();
        let gate = Gate::default();
        let fresh = Reply::new(200).with("Cache-Control: max-age=1000");
        origin.on("/").reply(fresh.after(&gate).body("page"));
        let (proxy, admin) = Proxy::operated(&origin, &["--watch", "refresh"]);
        let visitor = visitor_comes_first.then(|| {
            let words = [
                "Accept: text/html,*/*;q=0.8",
                "Accept-Encoding: gzip, deflate, br, zstd",
            ];
            let visitor = proxy.ask_with("/", &words);
            origin.wait_for("/", 1);
            visitor
        });
        let mut watcher = Watcher::of(&proxy, "/");
        origin.wait_for("/", 1);
        if visitor_comes_first {
            eventually("the follower to wait", || {
                let stats = Operator::at(admin).get("/v1/stats");
                (stats["fetches"]["waiting"] == 1).then_some(())
            });
        }
        purge(admin, r#"{"url": "http://example.com/"}"#);
        gate.open();
        watcher.version("/");
        assert_eq!(origin.count("/"), 2);
        drop(visitor);
    }
}

#[test]
fn events_contain_the_public_page_only() {
    let origin = Origin::start();
    Page::on(&origin, "/private", "Cache-Control: private", "mine");
    Page::on(
        &origin,
        "/public",
        "Cache-Control: max-age=1000",
        "everybody's",
    );
    let proxy = Proxy::start(&origin, &["--watch", "refresh"]);
    let mut private = Watcher::of(&proxy, "/private");
    private.expect("unwatchable", "/private");
    assert_eq!(origin.seen("/private").len(), 1);
    // The cookie of a subscriber is not forwarded.
    let target = format!("{WATCH}/public&wait=5");
    let reported = proxy.get_with(&target, &["Cookie: session=1", "Authorization: Basic eA=="]);
    assert!(
        reported
            .text()
            .contains(r#""event":"page","url":"/public""#),
        "{}",
        reported.text()
    );
    let requested = &origin.seen("/public")[0];
    assert_eq!(
        (requested.field("cookie"), requested.field("authorization")),
        (None, None)
    );
    for wrong in ["", "news", "/%0A", "/a%20b", "/a%23b", "http://other/"] {
        let response = proxy.get(&format!("{WATCH}{wrong}"));
        assert_eq!(response.status, 400, "{wrong}: {}", response.text());
    }
}

#[test]
fn if_configured_only_pages_that_visitors_request_are_reported() {
    const FRESH: &str = "Cache-Control: max-age=1000";
    let origin = Origin::start();
    let page = Page::on(&origin, "/", FRESH, "one");
    let (proxy, admin) = Proxy::operated(&origin, &["--watch", "stored"]);
    let mut watcher = Watcher::of(&proxy, "/");
    proxy.get("/").assert_is(200, "one");
    let first = watcher.version("/");
    purge(admin, r#"{"all": true}"#);
    watcher.expect("purge", "/");
    page.becomes("two");
    proxy.get("/").assert_is(200, "two");
    assert_ne!(watcher.version("/"), first);
    assert_eq!(origin.seen("/").len(), 2);
}

#[test]
fn routes_and_reloads_decide_which_pages_may_be_watched() {
    let origin = Origin::start();
    for target in ["/a", "/b/c"] {
        Page::on(&origin, target, "Cache-Control: max-age=1000", "page");
    }
    let text = |watch: &str| {
        format!(
            "watch = \"{watch}\"\nwatch_max_pages = 1\n[[routes]]\nmatch = {{ path = \"/b/*\" }}\nwatch = \"off\"\n"
        )
    };
    let file = config_file(&text("refresh"));
    let name = file.display().to_string();
    let proxy = Proxy::start(&origin, &["--config", &name]);
    // Fresh for long: only the reload can wake the page's follower.
    proxy.get("/a");
    let mut watcher = Watcher::of(&proxy, "/a");
    watcher.version("/a");
    // Pages that may not be watched are refused, and take nothing from the others.
    let mut several = Watcher::of(&proxy, "/b/c&url=/x*&url=/a&url=/a");
    several.expect("unwatchable", "/b/c");
    several.expect("unwatchable", "/x*");
    several.version("/a");
    assert_eq!(origin.count("/b/c"), 0);
    let full = proxy.get(&format!("{WATCH}/another"));
    assert_eq!((full.status, full.field("retry-after")), (503, Some("1")));
    fs::write(&file, text("off")).expect("written");
    proxy.signal(Signal::HUP);
    // Watching is disabled: the path is the application's, and subscribers get an event.
    eventually("no more watching", || {
        (proxy.get(&format!("{WATCH}/a")).status != 200).then_some(())
    });
    watcher.expect("unwatchable", "/a");
}

#[test]
fn invented_urls_are_not_fetched_each_second() {
    let origin = Origin::start();
    origin.on("/made-up").reply(Reply::new(404).body("nothing"));
    Page::on(&origin, "/", "Cache-Control: max-age=1", "page");
    let proxy = Proxy::start(&origin, &["--watch", "refresh"]);
    let mut made_up = Watcher::of(&proxy, "/made-up");
    made_up.version("/made-up");
    let _page = Watcher::of(&proxy, "/");
    origin.wait_for("/", 3);
    assert_eq!(origin.count("/made-up"), 1);
}

#[test]
fn joining_and_leaving_causes_no_more_origin_requests_than_staying() {
    let origin = Origin::start();
    let text = format!(
        "origin = \"{}\"\nwatch = \"refresh\"\nwatch_max_pages = 10\n",
        origin.url()
    );
    let proxy = Proxy::with_config(&text);
    let began = std::time::Instant::now();
    let refused = (0..100).filter(|number| {
        let target = format!("{WATCH}/made-up-{number}");
        let mut client = proxy.ask_with(&target, &[STREAM]);
        client.head().start.contains(" 503 ")
    });
    let refused = refused.count();
    let seconds = began.elapsed().as_secs() as usize + 1;
    assert!(100 - refused <= 10 * (seconds + 1), "{refused} of 100");
}

#[test]
fn by_default_nothing_is_watched() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    for path in ["watch?url=/", "live.js"] {
        let target = format!("/.well-known/microcache/{path}");
        proxy.get(&target);
        assert_eq!(origin.seen(&target).len(), 1, "the application is asked");
    }
}

#[test]
fn events_carry_the_content_for_subscribers_that_want_it() {
    let origin = Origin::start();
    let html = "Content-Type: text/html\r\nCache-Control: max-age=1000";
    let page = Page::on(&origin, "/", html, "<p>first");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, b"{\"n\": 1}").expect("memory");
    let coded = [
        "Content-Type: application/json",
        "Content-Encoding: gzip",
        "Vary: Accept-Encoding",
        "Cache-Control: max-age=1000",
    ];
    origin
        .on("/coded")
        .reply(Reply::ok(&coded, gzip.finish().expect("memory")));
    let _long = Page::on(&origin, "/long", html, &"x".repeat(65_537));
    let _personal = Page::on(&origin, "/personal", "Cache-Control: private", "secret");
    let (proxy, admin) = Proxy::operated(&origin, &["--watch", "refresh"]);
    let event = |url: &str| {
        let mut events =
            Events::begin(proxy.ask_with(&format!("{WATCH}{url}&inline=1"), &[STREAM]));
        events.data()
    };
    assert!(event("/").ends_with(r#","type":"text/html","text":"<p>first"}"#));
    assert!(event("/coded").ends_with(r#","type":"application/json","value":{"n": 1}}"#));
    for url in ["/long", "/personal"] {
        let reported = event(url);
        assert!(
            !reported.contains("\"text\"") && !reported.contains("\"type\""),
            "{reported}"
        );
    }
    // It is the same by other ways, and of the next version.
    let poll = proxy.get(&format!("{WATCH}/&inline=1"));
    assert!(
        poll.text().contains(r#""text":"<p>first"}]"#),
        "{}",
        poll.text()
    );
    let mut socket =
        crate::support::websocket::WebSocket::open(&proxy, &format!("{WATCH}/coded&inline=1"), &[]);
    assert!(socket.text().contains(r#""value":{"n": 1}"#));
    socket.say(r#"{"subscribe":"/"}"#);
    let (mut reported, mut subscribed) = (socket.text(), socket.text());
    if reported.contains("subscribed") {
        std::mem::swap(&mut reported, &mut subscribed);
    }
    assert!(reported.contains("<p>first"), "{reported}");
    page.becomes("<p>second");
    purge(admin, r#"{"all": true}"#);
    let reported = (0..9)
        .map(|_| socket.text())
        .find(|it| it.contains("second"));
    assert!(reported.is_some_and(|it| it.contains(r#""text":"<p>second""#)));
    // A subscriber without that parameter gets the usual event.
    let mut plain = Watcher::of(&proxy, "/");
    plain.version("/");
}

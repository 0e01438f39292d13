//! The access log: each request has its line once, whatever becomes of it, and no client writes there
//! but what stands between quotes.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::push::{Kept, Live};
use crate::support::http2::{self, DATA, END_HEADERS, HEADERS, Http2};
use crate::support::websocket::{CLOSE, FIN, WebSocket, frame};
use crate::support::{Folder, Gate, Origin, Proxy, Reply, eventually, request};

/// Ends the process such that everything is written.
pub(crate) fn end(proxy: &mut Proxy) {
    proxy.terminate();
    let status = proxy.wait();
    assert!(status.success(), "{status}: {}", proxy.output());
}

/// The lines of a file; each has its end.
pub(crate) fn lines(path: &str) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a log, in UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    text.lines().map(str::to_owned).collect()
}

fn objects(path: &str) -> Vec<Value> {
    let read = |line: &String| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    lines(path).iter().map(read).collect()
}

/// A line in the combined form, taken apart as strictly as its readers do.
#[derive(Debug)]
struct Combined {
    address: String,
    request: String,
    status: u16,
    bytes: u64,
    referer: String,
    agent: String,
    more: BTreeMap<String, String>,
}

impl Combined {
    fn read(line: &str) -> Self {
        assert!(
            line.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            "{line:?}"
        );
        let (address, rest) = line.split_once(" - - [").expect("an address");
        let (date, rest) = rest.split_once("] \"").expect("a date");
        assert!(date.len() == 26 && date.ends_with(" +0000"), "{date}");
        let (request, rest) = rest.split_once("\" ").expect("a request");
        let (status, rest) = rest.split_once(' ').expect("a status");
        let (bytes, rest) = rest.split_once(" \"").expect("bytes");
        let (referer, rest) = rest.split_once("\" \"").expect("a referer");
        let (agent, mut rest) = rest.split_once("\" ").expect("an agent");
        let mut more = BTreeMap::new();
        while let Some((name, value)) = rest.split_once('=') {
            let (value, left) = match value.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').expect("the end of a value"),
                None => value.split_at(value.find(' ').unwrap_or(value.len())),
            };
            let twice = more.insert(name.to_owned(), value.to_owned());
            assert_eq!(twice, None, "{line}");
            rest = left.strip_prefix(' ').unwrap_or(left);
        }
        assert_eq!(rest, "", "{line}");
        Self {
            address: address.to_owned(),
            request: request.to_owned(),
            status: status.parse().expect("a status"),
            bytes: bytes.parse().expect("a number"),
            referer: referer.to_owned(),
            agent: agent.to_owned(),
            more,
        }
    }
}

/// The totals that the server ends with, by outcome.
fn totals(proxy: &Proxy) -> BTreeMap<String, u64> {
    let output = proxy.output_with("microcache stopped after ");
    let (_, rest) = output
        .split_once("microcache stopped after ")
        .expect("the end");
    let (_, rest) = rest.split_once(": ").expect("outcomes");
    let (outcomes, _) = rest.split_once(';').expect("more");
    let outcome = |of: &str| -> (String, u64) {
        let (times, outcome) = of.split_once(' ').expect("an outcome");
        (outcome.to_owned(), times.parse().expect("a number"))
    };
    outcomes.split(", ").map(outcome).collect()
}

fn site(origin: &Origin, gate: &Gate) {
    let page = || Reply::new(200).with("Cache-Control: max-age=1000");
    origin
        .on("/page")
        .reply(page().with("ETag: \"a\"").body("0123456789"));
    origin.on("/old").reply(Reply::ok(
        &["Cache-Control: max-age=0, stale-while-revalidate=100"],
        "old",
    ));
    origin
        .on("/checked")
        .answer(|seen| match seen.field("if-none-match") {
            Some(_) => Reply::new(304).with("ETag: \"b\""),
            None => Reply::ok(&["ETag: \"b\"", "Cache-Control: no-cache"], "checked"),
        });
    origin.on("/slow").reply(page().after(gate).body("slow"));
    origin.on("/form").reply(Reply::new(200).body("done"));
    origin.on("/left").reply(Reply::silence());
    origin.on("/down").reply(Reply::hang_up());
    origin
        .on("/broken")
        .reply(Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nbroken").close());
    origin.on("/socket").reply(Reply::raw(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello",
    ).close());
}

/// Has everything become of requests that can become of one. The method, target and status of each.
fn talk(proxy: &Proxy, origin: &Origin, gate: &Gate) -> Vec<(&'static str, &'static str, u16)> {
    let mut expected = Vec::new();
    let mut ask = |method: &'static str, target: &'static str, fields: &[&str], status: u16| {
        let answer = proxy.send(method, target, fields);
        assert_eq!(answer.status, status, "{method} {target}: {answer:?}");
        expected.push((method, target, status));
    };
    ask("GET", "/page", &[], 200);
    ask("GET", "/page", &[], 200);
    ask("HEAD", "/page", &[], 200);
    ask("GET", "/page", &["If-None-Match: \"a\""], 304);
    ask("GET", "/page", &["Range: bytes=2-4"], 206);
    ask("GET", "/page", &["Range: bytes=50-"], 416);
    ask("GET", "/old", &[], 200);
    ask("GET", "/old", &[], 200);
    ask("GET", "/checked", &[], 200);
    ask("GET", "/checked", &[], 200);
    ask("POST", "/form", &["Content-Length: 0"], 200);
    ask(
        "GET",
        "/form",
        &["Cookie: session=secret", "Authorization: Basic secret"],
        200,
    );
    ask("GET", "/none", &["Cache-Control: only-if-cached"], 504);
    ask("GET", "/down", &[], 502);
    ask("GET", "/broken", &[], 502);
    ask("TRACE", "/page", &["Max-Forwards: 0"], 200);
    // Waits for the same fetch.
    let first = proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    let second = proxy.ask("/slow");
    proxy.settle();
    gate.open();
    for mut client in [first, second] {
        assert_eq!(client.response().status, 200);
        expected.push(("GET", "/slow", 200));
    }
    expected.extend([("GET", "/settle", 504); 20]);
    // Leaves before there is an answer.
    let client = proxy.ask("/left");
    origin.wait_for("/left", 1);
    client.reset();
    expected.push(("GET", "/left", 499));
    // Several on one connection, at once.
    let mut client = proxy.connect();
    client.send(request("GET", "/page", &[]).repeat(3));
    for _ in 0..3 {
        assert_eq!(client.response().status, 200);
        expected.push(("GET", "/page", 200));
    }
    let mut client = proxy.ask_with("/socket", &["Connection: upgrade", "Upgrade: websocket"]);
    assert!(client.head().start.starts_with("HTTP/1.1 101"));
    assert_eq!(client.bytes(5), b"hello");
    assert!(client.is_closed());
    expected.push(("GET", "/socket", 101));
    // What cannot be read has no method and no target.
    assert_eq!(
        proxy.request("GET / HTTP/1.1\r\nHost : a\r\n\r\n").status,
        400
    );
    expected.push(("", "", 400));
    assert_eq!(proxy.get(&format!("/{}", "x".repeat(9000))).status, 414);
    expected.push(("", "", 414));
    expected
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all
}

#[test]
fn every_request_has_its_line_once_and_outcomes_add_up_to_the_totals() {
    let (origin, gate, folder) = (Origin::start(), Gate::default(), Folder::new());
    site(&origin, &gate);
    let path = folder.file("access.json");
    let flags = ["--access-log", &path, "--access-log-format", "json"];
    let mut proxy = Proxy::start(&origin, &flags);
    let expected = talk(&proxy, &origin, &gate);
    // The client that left is noticed in its own time.
    eventually("all lines", || {
        (lines_so_far(&path) == expected.len()).then_some(())
    });
    end(&mut proxy);
    let all = objects(&path);
    let reported = all.iter().map(|line| {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        let status = line["status"].as_u64().expect("a status") as u16;
        (text("method"), text("target"), status)
    });
    assert_eq!(sorted(reported.collect()), sorted(expected));
    let mut outcomes = BTreeMap::new();
    for line in &all {
        let outcome = line["outcome"].as_str().expect("an outcome").to_owned();
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    assert_eq!(outcomes.get("aborted"), Some(&1));
    assert_eq!(outcomes, totals(&proxy));
    for outcome in [
        "hit",
        "stale",
        "revalidated",
        "miss",
        "collapsed",
        "pass",
        "error",
    ] {
        assert!(outcomes.contains_key(outcome), "{outcome}: {outcomes:?}");
    }
    for line in &all {
        let millis = |name: &str| line[name].as_u64();
        assert!(millis("first_byte_ms") <= millis("total_ms"), "{line}");
        assert!(millis("total_ms").is_some(), "{line}");
        assert_eq!(line["client"], "127.0.0.1");
        let is_read = !line["method"].is_null();
        assert_eq!(line["route"] == "default", is_read, "{line}");
        assert_eq!(line["host"] == "example.com", is_read, "{line}");
    }
    // What went through the tunnel counts.
    let bytes = |status: u64| {
        let mut of = all.iter().filter(|line| line["status"] == status);
        of.next().expect("there is one")["bytes"].as_u64()
    };
    assert_eq!(
        (bytes(206), bytes(304), bytes(101)),
        (Some(3), Some(0), Some(5))
    );
    assert!(!fs::read_to_string(&path).expect("a log").contains("secret"));
}

fn lines_so_far(path: &str) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.matches('\n').count())
}

#[test]
fn text_is_the_combined_form_with_more_behind_it() {
    let (origin, gate, folder) = (Origin::start(), Gate::default(), Folder::new());
    site(&origin, &gate);
    let path = folder.file("access.log");
    let mut proxy = Proxy::start(&origin, &["--access-log", &path]);
    let expected = talk(&proxy, &origin, &gate);
    eventually("all lines", || {
        (lines_so_far(&path) == expected.len()).then_some(())
    });
    let fields = ["User-Agent: a \"browser\"", "Referer: http://b/?c"];
    proxy.get_with("/page?d", &fields);
    proxy.request("GET /page HTTP/1.0\r\nHost: example.com\r\n\r\n");
    end(&mut proxy);
    let mut all: Vec<_> = lines(&path)
        .iter()
        .map(|line| Combined::read(line))
        .collect();
    // Lines of different connections may overtake one another.
    let mut take = |request: &str| {
        let place = all.iter().position(|line| line.request == request);
        all.remove(place.expect("it has a line"))
    };
    take("GET /page HTTP/1.0");
    let last = take("GET /page?d HTTP/1.1");
    assert_eq!(last.agent, "a \\x22browser\\x22");
    assert_eq!(last.referer, "http://b/?c");
    let reported = all.iter().map(|line| {
        let request = match &*line.request {
            "-" => String::new(),
            request => request.replace(" HTTP/1.1", ""),
        };
        (request, line.status)
    });
    let expected = expected
        .into_iter()
        .map(|(method, target, status)| (format!("{method} {target}").trim().to_owned(), status));
    assert_eq!(sorted(reported.collect()), sorted(expected.collect()));
    let is_hit = |line: &&Combined| line.more["outcome"] == "hit" && line.bytes == 10;
    let hit = all.iter().find(is_hit).expect("a hit");
    assert_eq!(hit.address, "127.0.0.1");
    assert_eq!(hit.more["outcome"], "hit");
    assert!(hit.more["cache_status"].starts_with("microcache; hit; ttl="));
    assert_eq!(hit.more["host"], "example.com");
    assert_eq!(hit.more["route"], "default");
    assert!(hit.more.contains_key("first_byte_ms") && hit.more.contains_key("total_ms"));
}

#[test]
fn no_client_writes_a_line_of_its_own() {
    let (origin, folder) = (Origin::start(), Folder::new());
    origin.on("/").reply(Reply::new(200).body("x"));
    let (text, json) = (folder.file("text"), folder.file("json"));
    let mut proxies = [
        Proxy::start(&origin, &["--access-log", &text]),
        Proxy::start(
            &origin,
            &["--access-log", &json, "--access-log-format", "json"],
        ),
    ];
    let mut requested = 0;
    for byte in (1..=255_u8).filter(|byte| !b"\r\n".contains(byte)) {
        let mut agent = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: x".to_vec();
        agent.extend([byte, b'"', b'\\', byte]);
        agent.extend_from_slice(
            b"y\" - - [01/Jan/2000:00:00:00 +0000] \"GET /forged HTTP/1.1\"\r\n\r\n",
        );
        let mut target = b"GET /x".to_vec();
        target.extend([byte, byte]);
        target.extend_from_slice(b"\x1b[2J HTTP/1.1\r\nHost: a\r\n\r\n");
        requested += 2;
        for proxy in &proxies {
            for raw in [&agent, &target] {
                assert!(proxy.request(raw).status >= 200);
            }
        }
    }
    proxies.iter_mut().for_each(end);
    let all: Vec<_> = lines(&text)
        .iter()
        .map(|line| Combined::read(line))
        .collect();
    assert_eq!(all.len(), requested);
    assert!(all.iter().all(|line| !line.request.contains("forged")));
    let all = objects(&json);
    assert_eq!(all.len(), requested);
    let quoted = all.iter().filter(|line| {
        let agent = line["user_agent"].as_str().unwrap_or_default();
        agent.contains("\"\\") && agent.ends_with("/forged HTTP/1.1\"")
    });
    assert!(
        quoted.count() > 200,
        "what may stand in a field value is kept"
    );
}

#[test]
fn a_long_value_makes_no_long_line() {
    let (origin, folder) = (Origin::start(), Folder::new());
    origin.on("/").reply(Reply::new(200).body("x"));
    let path = folder.file("access.log");
    let flags = ["--access-log", &path, "--max-head-size", "256KiB"];
    let mut proxy = Proxy::start(&origin, &flags);
    let field = format!("User-Agent: {}", "x".repeat(100_000));
    proxy.get_with("/", &[&field]).assert_is(200, "x");
    end(&mut proxy);
    let line = Combined::read(&lines(&path)[0]);
    assert_eq!(line.agent.len(), 8192 + 3);
    assert!(line.agent.ends_with("x..."));
}

#[test]
fn a_sample_has_every_failure_and_its_share_of_the_rest() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let page = Reply::new(200).with("Cache-Control: max-age=1000");
    origin.on("/").reply(page.body("x"));
    origin.on("/down").reply(Reply::hang_up());
    let path = folder.file("access.json");
    let flags = [
        "--access-log",
        &path,
        "--access-log-format",
        "json",
        "--access-log-sample",
        "0.1",
    ];
    let mut proxy = Proxy::start(&origin, &flags);
    let mut client = proxy.connect();
    for _ in 0..4000 {
        assert_eq!(client.get("/").status, 200);
    }
    for _ in 0..20 {
        assert_eq!(proxy.get("/down").status, 502);
    }
    end(&mut proxy);
    let all = objects(&path);
    let (failures, rest): (Vec<_>, Vec<_>) = all.iter().partition(|line| line["status"] == 502);
    assert_eq!(failures.len(), 20);
    assert!(failures.iter().all(|line| line["sample"].is_null()));
    // Ten standard deviations: the chance to be outside is that of a fault.
    assert!((210..=590).contains(&rest.len()), "{}", rest.len());
    assert!(rest.iter().all(|line| line["sample"] == 0.1));
}

#[test]
fn queries_can_be_left_out() {
    let (origin, folder) = (Origin::start(), Folder::new());
    origin.on("/a?secret").reply(Reply::new(200).body("x"));
    let path = folder.file("access.log");
    let flags = ["--access-log", &path, "--access-log-query", "false"];
    let mut proxy = Proxy::start(&origin, &flags);
    let referer = ["Referer: http://b/c?secret"];
    proxy.get_with("/a?secret", &referer).assert_is(200, "x");
    end(&mut proxy);
    let line = Combined::read(&lines(&path)[0]);
    assert_eq!(line.request, "GET /a HTTP/1.1");
    assert_eq!(line.referer, "http://b/c");
    assert!(!fs::read_to_string(&path).expect("a log").contains("secret"));
}

#[test]
fn the_client_behind_a_trusted_proxy_is_logged() {
    let (origin, folder) = (Origin::start(), Folder::new());
    origin.on("/").reply(Reply::new(200).body("x"));
    for (trusted, expected) in [("127.0.0.1", Some("203.0.113.7")), ("192.0.2.1", None)] {
        let path = folder.file(trusted);
        let mut proxy = Proxy::start(
            &origin,
            &["--access-log", &path, "--trusted-proxies", trusted],
        );
        let field = ["X-Forwarded-For: 203.0.113.7"];
        proxy.get_with("/", &field).assert_is(200, "x");
        end(&mut proxy);
        let line = Combined::read(&lines(&path)[0]);
        assert_eq!(line.more.get("forwarded_for").map(String::as_str), expected);
    }
}

/// What a subscription's line says.
struct Subscribed {
    target: String,
    protocol: &'static str,
    status: u16,
    bytes: usize,
    detail: &'static str,
}

impl Subscribed {
    /// It has its line once, and this is what stands there.
    fn check(&self, all: &[Value], at_least: Duration) {
        let of_it = |line: &&Value| line["target"] == self.target && line["method"] != "PUT";
        let found: Vec<_> = all.iter().filter(of_it).collect();
        let [line] = found[..] else {
            panic!("{}: {all:?}", self.target);
        };
        assert_eq!(line["protocol"], self.protocol, "{line}");
        assert_eq!(line["status"], self.status, "{line}");
        assert_eq!(line["bytes"], self.bytes, "{line}");
        let detail = line["detail"].as_str().unwrap_or_default();
        assert_eq!((detail, &line["outcome"]), (self.detail, &"pass".into()));
        let total = line["total_ms"].as_u64().expect("a time");
        assert!(total >= at_least.as_millis() as u64, "{line}");
        assert!(line["first_byte_ms"].as_u64() <= Some(total), "{line}");
    }
}

/// A WebSocket that received a document.
fn subscribed(live: &Live, target: &str) -> (WebSocket, Subscribed) {
    let mut socket = WebSocket::open(&live.0, target, &[]);
    let (_, payload) = socket.frame();
    let reported = Subscribed {
        target: target.to_owned(),
        protocol: "HTTP/1.1",
        status: 101,
        // A length of two bytes behind the first two.
        bytes: 4 + payload.len(),
        detail: "upgrade",
    };
    (socket, reported)
}

/// The same by HTTP/2, on its only stream.
fn subscribed_by_http2(live: &Live, target: &str) -> (Http2, u32, Subscribed) {
    let mut client = Http2::connect(live.0.address());
    let stream = client.stream();
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", target),
        (":authority", "example.com"),
        ("sec-websocket-version", "13"),
    ];
    let block = http2::block(&fields);
    client.send(http2::frame(HEADERS, END_HEADERS, stream, &block));
    client.until(HEADERS);
    let reported = Subscribed {
        target: target.to_owned(),
        protocol: "HTTP/2.0",
        status: 200,
        bytes: client.until(DATA).payload.len(),
        detail: "upgrade",
    };
    (client, stream, reported)
}

#[test]
fn a_subscription_has_its_line_when_it_ends() {
    const FAREWELL: [u8; 2] = [3, 232];
    const OPEN: Duration = Duration::from_millis(60);
    let (kept, origin, folder) = (Kept::new(), Origin::start(), Folder::new());
    let path = folder.file("access.json");
    let flags = ["--access-log", &path, "--access-log-format", "json"];
    let mut live = kept.start(&origin, &flags);
    let value = "x".repeat(200);
    let document = format!("\"{value}\"");
    live.put("/live/z", &document);
    let put = live.put("/live/x", &document);
    let seen = put.field("etag").expect("a tag").trim_matches('"');

    let mut stream = live.0.ask_with("/live/x", &["Accept: text/event-stream"]);
    assert!(stream.head().start.contains(" 200 "));
    let mut text = String::new();
    while !(text.contains(&value) && text.ends_with("\n\n")) {
        text += &stream.chunk();
    }
    let streamed = Subscribed {
        target: "/live/x".to_owned(),
        protocol: "HTTP/1.1",
        status: 200,
        bytes: text.len(),
        detail: "event-stream",
    };
    let (mut polite, mut parted) = subscribed(&live, "/live/x?polite");
    let (gone, vanished) = subscribed(&live, "/live/x?gone");
    let (mut stays, mut cut_off) = subscribed(&live, "/live/z");
    let (mut client, id, mut ended) = subscribed_by_http2(&live, "/live/x?http2");
    let poll = format!("/.well-known/microcache/watch?url=/live/x&last_event_id={seen}");
    let mut polling = live.0.ask(&poll);

    std::thread::sleep(OPEN);
    let so_far = objects(&path);
    assert!(
        so_far.iter().all(|line| line["method"] == "PUT"),
        "{so_far:?}"
    );
    drop(stream);
    gone.leave().reset();
    polite.send(FIN | CLOSE, FAREWELL);
    assert_eq!(polite.close_code(), 1000);
    drop(polite);
    let farewell = frame(FIN | CLOSE, &FAREWELL);
    client.send(http2::frame(DATA, 0, id, &farewell));
    assert!(client.answer(id).ended);
    for farewelled in [&mut parted, &mut ended] {
        farewelled.bytes += 2 + FAREWELL.len();
    }
    // The lines of the documents, and of clients that have left.
    eventually("their lines", || (lines_so_far(&path) == 6).then_some(()));
    live.put("/live/x", "1");
    let polled = Subscribed {
        target: poll,
        protocol: "HTTP/1.1",
        status: 200,
        bytes: polling.response().body.len(),
        detail: "",
    };
    // One of them does not leave when the server does.
    end(&mut live.0);
    cut_off.bytes += 2 + stays.frame().1.len();
    let all = objects(&path);
    for one in [streamed, parted, vanished, cut_off, ended] {
        one.check(&all, OPEN / 2);
    }
    polled.check(&all, OPEN / 2);
}

#[test]
fn fields_are_chosen_and_say_which_server_was_asked() {
    const FIELDS: &str =
        "status,target,upstream,upstream_time_ms,request_id,request:X-Device,response:X-Version";
    for form in ["text", "json"] {
        let folder = Folder::new();
        let path = folder.path().join("access.log").display().to_string();
        let origin = Origin::start();
        let page = Reply::ok(&["Cache-Control: max-age=100", "X-Version: 7"], "page");
        origin.on("/page").reply(page);
        let flags = [
            "--access-log",
            &path,
            "--access-log-format",
            form,
            "--access-log-fields",
            FIELDS,
            "--trusted-proxies",
            "127.0.0.1",
        ];
        let mut proxy = Proxy::start(&origin, &flags);
        // On one connection, whose lines are in order.
        let mut client = proxy.connect();
        for _ in 0..2 {
            let fields = ["X-Request-ID: r1", "X-Device: tv"];
            client.send(request("GET", "/page", &fields));
            client.response().assert_is(200, "page");
        }
        end(&mut proxy);
        let server = origin.address();
        if form == "json" {
            let lines = objects(&path);
            let [miss, hit] = &lines[..] else {
                panic!("{lines:?}");
            };
            assert_eq!(miss["upstream"], server.to_string());
            assert!(miss["upstream_time_ms"].is_u64(), "{miss}");
            for line in [miss, hit] {
                assert_eq!(line["response:X-Version"], "7");
                assert_eq!(
                    (&line["request:X-Device"], &line["request_id"]),
                    (&"tv".into(), &"r1".into())
                );
            }
            assert_eq!(hit.as_object().map(serde_json::Map::len), Some(5), "{hit}");
        } else {
            let lines = lines(&path);
            let end = "request_id=\"r1\" request:X-Device=\"tv\" response:X-Version=\"7\"";
            let begin =
                format!("status=200 target=\"/page\" upstream=\"{server}\" upstream_time_ms=");
            assert!(
                lines[0].starts_with(&begin) && lines[0].ends_with(end),
                "{}",
                lines[0]
            );
            let hit = format!("status=200 target=\"/page\" upstream=- upstream_time_ms=- {end}");
            assert_eq!(lines[1..], [hit]);
        }
    }
}

#[test]
fn a_route_stays_out_of_the_log() {
    let folder = Folder::new();
    let path = folder.path().join("access.log").display().to_string();
    let origin = Origin::start();
    origin.on("/health").reply(Reply::new(500).body("bad"));
    origin.on("/page").reply(Reply::new(200).body("page"));
    let mut proxy = Proxy::with_config(&format!(
        "origin = {:?}\naccess_log = {path:?}\n[[routes]]\nmatch = {{ path = \"/health\" }}\naccess_log = false\n",
        origin.url()
    ));
    assert_eq!(proxy.get("/health").status, 500);
    assert_eq!(proxy.get("/page").status, 200);
    end(&mut proxy);
    let lines = lines(&path);
    assert!(
        lines.len() == 1 && lines[0].contains("GET /page"),
        "{lines:?}"
    );
}

/// Beyond a thousand names, routes share a number in metrics.
#[test]
fn the_last_of_many_routes_stays_out_of_the_log() {
    const ROUTES: usize = 1010;
    let folder = Folder::new();
    let path = folder.path().join("access.log").display().to_string();
    let origin = Origin::start();
    let routes: Vec<_> = (0..ROUTES)
        .map(|number| {
            let is_logged = number < ROUTES - 1;
            format!("[[routes]]\nname = \"r{number}\"\nmatch = {{ path = \"/{number}\" }}\naccess_log = {is_logged}\n")
        })
        .collect();
    let mut proxy = Proxy::with_config(&format!(
        "origin = {:?}\naccess_log = {path:?}\n{}",
        origin.url(),
        routes.concat()
    ));
    let targets = [ROUTES - 1, ROUTES - 2, 0].map(|number| format!("/{number}"));
    for target in &targets {
        origin
            .on(target)
            .reply(Reply::ok(&["Cache-Control: max-age=60"], "x"));
        for _ in 0..2 {
            assert_eq!(proxy.get(target).status, 200);
        }
    }
    end(&mut proxy);
    let lines = lines(&path);
    for (target, count) in targets.iter().zip([0, 2, 2]) {
        let of_target = lines
            .iter()
            .filter(|line| line.contains(&format!("GET {target} ")));
        assert_eq!(of_target.count(), count, "{target}: {lines:?}");
    }
}

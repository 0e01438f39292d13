//! Documents that are private: no way leads to them for who does not show that he may read them.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::push::{Kept, Live, SECRET, tag};
use crate::support::http2::Http2;
use crate::support::websocket::{CLOSE, FIN, UPGRADE, WebSocket};
use crate::support::{
    Events, Origin, Proxy, Reply, Response, Signal, config_file, eventually, request,
};

pub(crate) const KEY: &str = "a key of thirty-two characters, or more";
const READERS: &str = "a-secret-of-those-who-read";
const WATCH: &str = "/.well-known/microcache/watch?url=";
const STREAM: &str = "Accept: text/event-stream";
const PIPER: &str = "Sec-WebSocket-Protocol: piper-protocol";

/// A server whose documents under /live/p/ are private, with one of them and one that is not.
fn start(kept: &Kept, origin: &Origin, flags: &[&str]) -> Live {
    let key = config_file(KEY).display().to_string();
    let readers = config_file(READERS).display().to_string();
    let private = ["--push-private", "/live/p/", "--push-reader-key-file", &key];
    let more = ["--push-reader-token-file", &readers];
    let live = kept.start(origin, &[&private[..], &more, flags].concat());
    live.put("/live/p/x", "\"hidden\"");
    live.put("/live/y", "\"shown\"");
    live
}

pub(crate) fn signed(claims: &Value, key: &str) -> String {
    let key = EncodingKey::from_secret(key.as_bytes());
    encode(&Header::default(), claims, &key).expect("a token")
}

fn token(read: &[&str]) -> String {
    signed(&json!({"microcache": {"read": read}}), KEY)
}

/// One that ends in so many seconds.
fn short_token(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let exp = now.expect("after 1970").as_secs() + seconds;
    signed(&json!({"microcache": {"read": ["*"]}, "exp": exp}), KEY)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// The status of an answer that may have no end.
fn status(live: &Live, target: &str, fields: &[&str]) -> u16 {
    let head = live.0.ask_with(target, fields).head();
    head.start[9..12].parse().expect("a status")
}

/// All the ways to ask for what is at a path.
fn ways(path: &str) -> [(String, Vec<&'static str>); 6] {
    let watch = format!("{WATCH}{path}");
    [
        (path.to_owned(), vec![]),
        (path.to_owned(), vec![STREAM]),
        (path.to_owned(), UPGRADE.to_vec()),
        (watch.clone(), vec![STREAM]),
        (watch.clone(), vec![]),
        (watch, UPGRADE.to_vec()),
    ]
}

fn refused(answer: &Response, expected: u16) {
    assert_eq!(answer.status, expected, "{}", answer.text());
    assert!(!answer.text().contains("hidden"), "{}", answer.text());
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    let challenge = (expected == 401).then_some("Bearer");
    assert_eq!(answer.field("www-authenticate"), challenge);
}

#[test]
fn without_a_token_private_documents_are_unreadable() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = start(&kept, &origin, &[]);
    let others = bearer(&token(&["/live/p/y", "/live/q/*"]));
    let forged = bearer(&signed(
        &json!({"microcache": {"read": ["*"]}}),
        &KEY.replace('k', "c"),
    ));
    let wrong = bearer(&format!("{READERS}x"));
    for (target, how) in ways("/live/p/x") {
        for (shown, expected) in [
            (None, 401),
            (Some(&forged), 401),
            (Some(&wrong), 401),
            (Some(&others), 403),
        ] {
            let fields = [&how[..], &shown.map_or(vec![], |it| vec![it.as_str()])].concat();
            refused(&live.0.get_with(&target, &fields), expected);
        }
    }
    let head = live.0.send("HEAD", "/live/p/x", &[]);
    assert_eq!((head.status, head.field("etag")), (401, None));
    // Nor does it learn which documents exist.
    refused(&live.0.get("/live/p/none"), 401);
    refused(
        &live.0.get_with("/live/p/x", &["Cache-Control: no-store"]),
        401,
    );
    // A token has no place in a url that is written to logs.
    refused(
        &live.0.get(&format!("/live/p/x?authorization={READERS}")),
        401,
    );
    // Other fields of a browser do not matter for public documents.
    live.0
        .get_with("/live/y", &[&forged])
        .assert_is(200, "\"shown\"");
}

#[test]
fn with_a_token_private_documents_are_readable() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = start(&kept, &origin, &[]);
    let named = token(&["/live/p/{id}"]);
    let cookie = format!("Cookie: a=b; microcacheAuthorization={named}");
    for shown in [bearer(&named), bearer(READERS), bearer(SECRET), cookie] {
        for (target, how) in ways("/live/p/x") {
            let fields = [&how[..], &[&*shown]].concat();
            let expected = if how.len() > 1 { 101 } else { 200 };
            assert_eq!(
                status(&live, &target, &fields),
                expected,
                "{target} {shown}"
            );
        }
        let read = live.0.get_with("/live/p/x", &[&shown]);
        read.assert_is(200, "\"hidden\"");
        assert_eq!(read.field("cache-control"), Some("private, no-cache"));
        let known = format!("If-None-Match: {}", tag(&read));
        assert_eq!(live.0.get_with("/live/p/x", &[&shown, &known]).status, 304);
        assert_eq!(live.0.get_with("/live/p/x", &[&known]).status, 401);
        let past = live
            .0
            .get_with("/live/p/x", &[&shown, "Cache-Control: no-store"]);
        past.assert_is(200, "\"hidden\"");
        assert_eq!(past.field("cache-control"), Some("private, no-cache"));
    }
    // Browsers' event streams have no fields.
    let watch = format!("{WATCH}/live/p/x&authorization={named}");
    assert!(live.subscribe(&watch, &[]).data().contains("hidden"));
    live.0.get("/live/p/x").assert_is(
        401,
        r#"{"detail":"/live/p/x is private: a token is required","status":401}"#,
    );
}

#[test]
fn private_names_have_one_spelling() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = start(&kept, &origin, &[]);
    for path in [
        "/live/%70/x",
        "/live/p%2Fx",
        "/live/p%2fx",
        "/live/p/%78",
        "/live//p/x",
        "/live/./p/x",
        "/live/y/../p/x",
        "/live/q/%2E%2E/p/x",
        "/live/p/x/",
        "/live/p/x;a",
        "/live/p/x?a",
        "/%6Cive/p/x",
        "//live/p/x",
        "http://example.com/live/p/x",
    ] {
        // A slash that is coded makes it another document, of which nothing is private.
        let is_another = path.contains("%2F");
        let how: [&[&str]; 3] = [&[], &["Cache-Control: no-store"], &[STREAM]];
        for how in how.into_iter().take(if is_another { 2 } else { 3 }) {
            let answer = live.0.get_with(path, how);
            assert!(
                !answer.text().contains("hidden"),
                "{path}: {}",
                answer.text()
            );
            assert!(answer.status >= 400 || !path.contains("live/"), "{path}");
        }
        // As it comes, and as it is in a query.
        for url in [
            path.to_owned(),
            path.replace('%', "%25").replace('?', "%3F"),
        ] {
            let answer = live.0.get(&format!("{WATCH}{url}&wait=0"));
            assert!(
                !answer.text().contains("hidden"),
                "{url}: {}",
                answer.text()
            );
        }
    }
}

#[test]
fn patterns_that_overlap_private_documents_reveal_nothing() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = start(&kept, &origin, &[]);
    let few = bearer(&token(&["/live/p/x"]));
    for url in [
        "/live/*",
        "/live/*/x&url=/live/y",
        "/live/y&url=/live/%7Ba%7D/%7Bb%7D",
    ] {
        let target = format!("{WATCH}{url}");
        let (mut all, mut some) = (
            live.subscribe(&target, &[]),
            live.subscribe(&target, &[&few]),
        );
        assert!(all.data().contains("shown"), "{url}");
        let first = some.data() + &some.data();
        assert!(
            first.contains("shown") && first.contains("hidden"),
            "{url}: {first}"
        );
        live.put("/live/p/z/x", "\"for nobody\"");
        let change = live.put("/live/p/x", &format!("\"hidden {}\"", url.len()));
        live.put("/live/y", &format!("\"shown {}\"", url.len()));
        assert!(some.data().contains("hidden"), "{url}");
        assert!(some.data().contains("shown"), "{url}");
        let last = all.event();
        assert!(last.2.contains("shown"), "{url}: {last:?}");
        // Nor is what has happened since told to who comes back without a token.
        let before: u64 = tag(&change)
            .trim_matches('"')
            .rsplit('.')
            .next()
            .map_or(0, |it| it.parse().expect("a number"));
        let epoch = last.0.split('.').next().expect("an epoch");
        let since = format!("Last-Event-ID: {epoch}.{}", before - 2);
        let mut back = live.subscribe(&target, &[&since]);
        assert!(back.data().contains("shown"), "{url}");
        live.put("/live/y", "\"shown\"");
        live.put("/live/p/x", "\"hidden\"");
        let poll = live
            .0
            .get(&format!("{target}&last_event_id={epoch}.{}", before - 2));
        assert!(
            poll.text().contains("shown") && !poll.text().contains("hidden"),
            "{}",
            poll.text()
        );
    }
    // What lies there wholly is refused.
    refused(&live.0.get(&format!("{WATCH}/live/p/*")), 401);
    refused(&live.0.get(&format!("{WATCH}/live/p/%7Bid%7D")), 401);
    refused(
        &live.0.get_with(&format!("{WATCH}/live/*"), &[&bearer("x")]),
        401,
    );
}

#[test]
fn orders_on_a_socket_lead_nowhere_else() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = start(&kept, &origin, &[]);
    let error = |url: &str, status: u16, why: &str| {
        format!(r#"{{"event":"error","url":"{url}","status":{status},"why":"{why}"}}"#)
    };
    for target in ["/live/", "/.well-known/microcache/watch"] {
        let mut socket = WebSocket::open(&live.0, target, &[]);
        for order in ["subscribe", "get"] {
            socket.say(&format!(r#"{{"{order}":"/live/p/x"}}"#));
            assert_eq!(
                socket.text(),
                error(
                    "/live/p/x",
                    401,
                    "/live/p/x is private: a token is required"
                )
            );
        }
        socket.say(r#"{"subscribe":"/live/*"}"#);
        assert!(socket.text().contains("\"shown\""));
        assert!(socket.text().contains("\"subscribed\""));
        live.put("/live/p/x", "\"hidden, too\"");
        live.put("/live/p/x", "\"hidden\"");
        socket.say(r#"{"get":"/live/y"}"#);
        assert!(socket.text().contains("\"shown\""));
        let others = bearer(&token(&["/live/p/y"]));
        let mut socket = WebSocket::open(&live.0, target, &[&others]);
        socket.say(r#"{"subscribe":"/live/p/x"}"#);
        let why = "/live/p/x is private, and the token does not permit reading it";
        assert_eq!(socket.text(), error("/live/p/x", 403, why));
        let mut socket = WebSocket::open(&live.0, target, &[&bearer(READERS)]);
        socket.say(r#"{"subscribe":"/live/p/x"}"#);
        assert!(socket.text().contains("\"hidden\""));
    }
    let mut piper = WebSocket::open(&live.0, "/live/", &[PIPER]);
    for command in ["GET *", "SUBSCRIBE *"] {
        piper.say(command);
        assert_eq!(piper.text(), "\"shown\"");
    }
    piper.say("GET p/x");
    assert!(piper.text().contains("is private"));
    // Where nothing else is, one opens at the path of what is private, and begins with nothing.
    let mut piper = WebSocket::open(&live.0, "/live/p/", &[PIPER]);
    piper.say("SUBSCRIBE *");
    assert!(piper.text().contains("is private"));
}

#[test]
fn access_ends_with_its_token() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = start(&kept, &origin, &[]);
    let short = bearer(&short_token(3));
    let watch = format!("{WATCH}/live/*");
    let mut stream = live.subscribe("/live/p/x", &[&short]);
    let mut several = live.subscribe(&watch, &[&short]);
    let mut socket = WebSocket::open(&live.0, &watch, &[&short]);
    assert_eq!(stream.data(), "\"hidden\"");
    let reported = several.data() + &several.data();
    assert!(reported.contains("hidden"), "{reported}");
    // The last word to a poll is in time too: nothing comes, and it does not wait for more.
    let id = tag(&live.0.get("/live/y"));
    let poll = format!(
        "{WATCH}/live/p/x&last_event_id={}&wait=60",
        id.trim_matches('"')
    );
    let waited = live.0.get_with(&poll, &[&short]);
    assert!(
        waited.text().starts_with("{\"events\":[]"),
        "{}",
        waited.text()
    );
    assert_eq!(stream.next_or_end(), None);
    assert_eq!(several.next_or_end(), None);
    socket.text();
    socket.text();
    let (first, payload) = socket.frame();
    assert_eq!((first, &payload[..2]), (FIN | CLOSE, &[0x03, 0xf0][..]));
    assert_eq!(live.0.get_with("/live/p/x", &[&short]).status, 401);
    assert_eq!(status(&live, &watch, &[STREAM, &short]), 401);
}

#[test]
fn cookies_of_pages_of_other_sites_count_for_nothing_unless_they_are_named() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let sites = ["--push-allow-origins", "https://shop.example", "*"];
    let (any, named) = (["--push-allow-origins", "*"], &sites[..2]);
    let cookie = format!("Cookie: microcacheAuthorization={READERS}");
    let (shop, here) = ("Origin: https://shop.example", "Origin: http://example.com");
    let live = start(&kept, &origin, &any);
    for (target, how) in ways("/live/p/x") {
        let with = |field: &'static str| {
            let fields = [&how[..], &[&*cookie, field]].concat();
            status(&live, &target, &fields)
        };
        assert_eq!(with(shop), 401, "{target}");
        assert_eq!(with("Origin: null"), 401, "{target}");
        assert_eq!(with("Sec-Fetch-Site: cross-site"), 401, "{target}");
        assert!(
            with(here) < 300 && with("Sec-Fetch-Site: same-origin") < 300,
            "{target}"
        );
    }
    drop(live);
    let live = start(&kept, &origin, named);
    let read = live.0.get_with("/live/p/x", &[&cookie, shop]);
    read.assert_is(200, "\"hidden\"");
    assert_eq!(
        read.field("access-control-allow-origin"),
        Some("https://shop.example")
    );
    assert_eq!(read.field("access-control-allow-credentials"), Some("true"));
    assert_eq!(
        live.0
            .get_with("/live/p/x", &[&cookie, "Origin: https://evil.example"])
            .status,
        401
    );
}

#[test]
fn privacy_survives_restarts_and_keys_are_reloaded() {
    let (kept, origin) = (Kept::new(), Origin::start());
    drop(start(&kept, &origin, &[]));
    let live = kept.start(&origin, &["--push-private", "/live/p/"]);
    refused(&live.0.get("/live/p/x"), 401);
    live.0
        .get_with("/live/p/x", &[&bearer(SECRET)])
        .assert_is(200, "\"hidden\"");
    drop(live);
    let (key, secret) = (config_file(KEY), config_file(SECRET));
    let text = format!(
        "listen = \"127.0.0.1:0\"\norigin = \"http://{}\"\npush = [\"/live/\"]\npush_directory = \"none\"\n\
         push_private = [\"/live/p/\"]\npush_token_file = {secret:?}\npush_reader_key_file = {key:?}\n",
        origin.address()
    );
    let live = Live(Proxy::with_config(&text));
    live.put("/live/p/x", "\"hidden\"");
    let shown = bearer(&token(&["*"]));
    live.0
        .get_with("/live/p/x", &[&shown])
        .assert_is(200, "\"hidden\"");
    fs::write(&key, KEY.replace('k', "c")).expect("a file");
    live.0.signal(Signal::HUP);
    eventually("another key", || {
        let answer = live.0.get_with("/live/p/x", &[&shown]);
        (answer.status == 401).then_some(())
    });
}

#[test]
fn patterns_that_cannot_be_private_are_mistakes() {
    let refusal = |flags: &[&str]| {
        let all = [
            &[
                "http://localhost:1",
                "--push",
                "/live/",
                "--push-directory",
                "none",
            ],
            flags,
        ];
        Proxy::refusal(&all.concat()).1
    };
    let reported = refusal(&["--push-private", "/other/"]);
    assert!(
        reported.contains("there are no documents under /other/"),
        "{reported}"
    );
    let reported = refusal(&["--push-private", "/live/p"]);
    assert!(
        reported.contains("must begin and end with a slash"),
        "{reported}"
    );
}

/// Publishers get the usual responses.
#[test]
fn a_publisher_may_change_private_documents() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = start(&kept, &origin, &[]);
    assert_eq!(live.put("/live/p/new", "1").status, 201);
    let mut client = live.0.connect();
    let reader = bearer(READERS);
    client.send(request("PUT", "/live/p/new", &[&reader, "Content-Length: 1"]) + "2");
    assert_eq!(client.response().status, 401);
    assert_eq!(live.publish("DELETE", "/live/p/new", &[], "").status, 204);
    let shown = bearer(SECRET);
    let (head, _events) = Events::with_head(live.0.ask_with("/live/p/x", &[STREAM, &shown]));
    assert_eq!(head.field("cache-control"), Some("no-store"));
}

/// A server whose application at /may-read lets a session read documents, for two seconds.
fn start_with_application(origin: &Origin, options: &str) -> Live {
    origin.on("/may-read").answer(|seen| {
        let is = |cookie: &str| seen.field("cookie") == Some(cookie);
        if is("session=broken") {
            return Reply::ok(&["Microcache-Read: /live/p/x, /live/p/y"], "");
        }
        if is("session=away") {
            return Reply::new(500);
        }
        let fields: &[&str] = match seen.field("cookie") {
            Some("session=ann") => &[
                "Microcache-Read: /live/p/x /live/q/*",
                "Microcache-Read-TTL: 2",
            ],
            _ => &[],
        };
        Reply::ok(fields, "")
    });
    let secret = config_file(SECRET).display().to_string();
    let live = Live(Proxy::with_config(&format!(
        "origin = \"{origin}\"\npush = [\"/live/\"]\npush_private = [\"/live/p/\"]\npush_token_file = \"{secret}\"\n\
         push_directory = \"none\"\n{options}",
        origin = origin.url()
    )));
    live.put("/live/p/x", "\"hidden\"");
    live.put("/live/p/y", "\"hidden\"");
    live.put("/live/y", "\"shown\"");
    live
}

#[test]
fn the_application_decides_which_documents_a_session_reads() {
    let origin = Origin::start();
    let option = format!(
        "push_forward_auth = {{ url = \"{}/may-read\" }}",
        origin.url()
    );
    let live = start_with_application(&origin, &option);
    let ann = "Cookie: session=ann";
    for (target, how) in ways("/live/p/x") {
        let expected = if how.len() > 1 { 101 } else { 200 };
        let with = |more: &[&'static str]| [&how[..], more].concat();
        assert_eq!(status(&live, &target, &with(&[ann])), expected, "{target}");
        for others in [
            &["Cookie: session=bob"][..],
            &["Microcache-Read: *"],
            &[
                "Microcache-Read: *",
                "Microcache-Read-TTL: 9",
                "Connection: Microcache-Read",
            ],
        ] {
            refused(&live.0.get_with(&target, &with(others)), 401);
        }
        // A page of another site, and answers that are none.
        let foreign = live
            .0
            .get_with(&target, &with(&[ann, "Origin: http://evil.example"]));
        assert!([401, 403].contains(&foreign.status), "{target}");
        refused(
            &live.0.get_with(&target, &with(&["Cookie: session=broken"])),
            401,
        );
        assert_eq!(
            live.0
                .get_with(&target, &with(&["Cookie: session=away"]))
                .status,
            503
        );
    }
    for (target, how) in ways("/live/p/y") {
        refused(&live.0.get_with(&target, &[&how[..], &[ann]].concat()), 403);
    }
    // Sockets ask for documents later.
    for target in ["/live/", "/.well-known/microcache/watch"] {
        let mut socket = WebSocket::open(&live.0, target, &[ann]);
        socket.say(r#"{"get":"/live/p/x"}"#);
        assert!(socket.text().contains("\"hidden\""));
    }
    // A stream ends with the permission.
    let mut events = live.0.ask_with("/live/p/x", &[STREAM, ann]);
    assert!(events.response().text().contains("hidden"));
    // Publishers, tokens and public documents need no application.
    let asked = origin.requests().len();
    live.put("/live/p/x", "\"hidden\"");
    let publisher = bearer(SECRET);
    live.0
        .get_with("/live/p/x", &[&publisher])
        .assert_is(200, "\"hidden\"");
    live.0.get("/live/y").assert_is(200, "\"shown\"");
    assert_eq!(origin.requests().len(), asked);
}

#[test]
fn without_the_option_no_field_of_a_client_lets_it_read() {
    let origin = Origin::start();
    let live = start_with_application(&origin, "");
    let forged = "Microcache-Read: *";
    for (target, how) in ways("/live/p/x") {
        refused(
            &live.0.get_with(&target, &[&how[..], &[forged]].concat()),
            401,
        );
    }
    let mut client = Http2::connect(live.0.address());
    let stream = client.ask("GET", "/live/p/x", &[("microcache-read", "*")]);
    assert_eq!(client.answer(stream).status(), 401);
}

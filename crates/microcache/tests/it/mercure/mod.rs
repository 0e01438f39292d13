//! The Mercure hub, by its wire: who publishes, who is sent what, and what is refused.

mod active;
mod clients;
mod hostile;
mod kept;
mod nodes;
mod resumed;

use std::fs;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::log_access::{end, lines};
use crate::operators::Operator;
use crate::support::http2::{self, DATA, END_STREAM, HEADERS, Http2};
use crate::support::{
    Client, Events, Folder, Origin, Proxy, Response, Signal, eventually, request,
};

/// What the reference hub's own cases sign their token with.
const SECRET: &str = "!ChangeThisMercureHubJWTSecretKey!";
const HUB: &str = "/.well-known/mercure";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

/// A server with a hub, before an application.
struct Hub {
    proxy: Proxy,
    admin: SocketAddr,
    origin: Origin,
    folder: Folder,
    /// Another node, to which updates are published.
    publisher: Option<SocketAddr>,
}

impl Hub {
    fn start(flags: &[&str]) -> Self {
        Self::started_by(Proxy::operated, flags)
    }

    fn started_by(
        start: impl FnOnce(&Origin, &[&str]) -> (Proxy, SocketAddr),
        flags: &[&str],
    ) -> Self {
        let folder = Folder::new();
        let key = folder.write("key", format!("{SECRET}\n"));
        let origin = Origin::start();
        let all = [&["--mercure-publisher-key-file", &key], flags].concat();
        let (proxy, admin) = start(&origin, &all);
        Self {
            proxy,
            admin,
            origin,
            folder,
            publisher: None,
        }
    }

    /// A hub with anonymous subscribers.
    fn open(flags: &[&str]) -> Self {
        Self::start(&[&["--mercure-anonymous"], flags].concat())
    }

    fn publisher(&self) -> Client {
        Client::connect(self.publisher.unwrap_or_else(|| self.proxy.address()))
    }

    fn post(&self, fields: &[&str], form: &str) -> Response {
        let length = format!("Content-Length: {}", form.len());
        let all = [&[FORM, &length][..], fields].concat();
        let mut client = self.publisher();
        client.send(request("POST", HUB, &all) + form);
        client.response()
    }

    /// Publishes by a token for everything.
    fn publish(&self, form: &str) -> Response {
        self.post(&[&bearer(&json!({"publish": ["*"]}))], form)
    }

    /// The same, and it has to work. Gives the id.
    fn published(&self, form: &str) -> String {
        let answer = self.publish(form);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(
            answer.field("content-type"),
            Some("text/plain; charset=utf-8")
        );
        answer.text()
    }

    fn subscribe(&self, query: &str, fields: &[&str]) -> Events {
        Events::begin(self.proxy.ask_with(&format!("{HUB}?{query}"), fields))
    }

    fn get(&self, query: &str, fields: &[&str]) -> Response {
        self.proxy.get_with(&format!("{HUB}?{query}"), fields)
    }

    fn stats(&self) -> Value {
        Operator::at(self.admin).get("/v1/stats")["mercure"].clone()
    }
}

fn token(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    encode(&Header::default(), claims, &key).expect("a token")
}

/// The field with a token of 0.x that says this.
fn bearer(mercure: &Value) -> String {
    format!(
        "Authorization: Bearer {}",
        token(&json!({"mercure": mercure}))
    )
}

fn seconds_from_now(seconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_secs() + seconds
}

/// Publishes one after the other what this subscriber must not be sent, and what it has to be.
fn check(hub: &Hub, query: &str, fields: &[&str], others: &[&str], matched: &[&str]) {
    let mut events = hub.subscribe(query, fields);
    for form in others {
        hub.published(&format!("{form}&data=not+for+this+one"));
    }
    for (number, form) in matched.iter().enumerate() {
        hub.published(&format!("{form}&data={number}&id=id-{number}"));
    }
    for number in 0..matched.len() {
        let event = format!("id: id-{number}\ndata: {number}");
        assert_eq!(events.next(), event, "{query}");
    }
}

#[test]
fn updates_go_to_the_subscribers_of_their_topics() {
    check_topics(&Hub::open(&[]));
}

fn check_topics(hub: &Hub) {
    let book = "topic=https://example.com/books/1";
    let review = "topic=https://example.com/reviews/1";
    let books = "https://example.com/books/%7Bid%7D";
    check(
        hub,
        "topic=https://example.com/books/1",
        &[],
        &[review, "topic=https://example.com/books/12"],
        &[book],
    );
    check(
        hub,
        &format!("topic={books}"),
        &[],
        &[review],
        &[book, "topic=https://example.com/books/2"],
    );
    check(hub, "topic=*", &[], &[], &[book, review, "topic=anything"]);
    check(
        hub,
        "topic=foo&topic=bar",
        &[],
        &[book],
        &["topic=bar", "topic=foo"],
    );
    // One update comes once, however many of its topics are meant.
    check(
        hub,
        &format!("topic={books}&topic=foo"),
        &[],
        &[review],
        &[
            "topic=foo&topic=https://example.com/books/1",
            "topic=x&topic=foo",
        ],
    );
    // As 1.0 has it.
    check(hub, "match=foo", &[], &["topic=Foo"], &["topic=foo"]);
    check(
        hub,
        "match_exact=%7Bx%7D&match=y",
        &[],
        &["topic=1"],
        &["topic=%7Bx%7D", "topic=y"],
    );
    check(
        hub,
        "match_urlpattern=https://example.com/books/:id",
        &[],
        &[review],
        &[book],
    );
    check(
        hub,
        "match_urlpattern=/books/:id",
        &[],
        &[book],
        &["topic=/books/1"],
    );
    check(hub, "match=*", &[], &[], &[book, "topic=x"]);
    let stats = hub.stats();
    assert_eq!(
        (
            stats["slow_subscribers_dropped"].as_u64(),
            stats["refused"].as_u64()
        ),
        (Some(0), Some(0))
    );
    assert!(hub.origin.requests().is_empty());
}

#[test]
fn an_update_is_an_event_with_all_its_fields() {
    check_fields(&Hub::open(&[]));
}

fn check_fields(hub: &Hub) {
    let mut events = hub.subscribe("topic=a", &[]);
    let id = hub.published("topic=a&data=1%0A2%0D%0A3&type=news&retry=20&id=urn:x:1");
    assert_eq!(id, "urn:x:1");
    assert_eq!(
        events.next(),
        "id: urn:x:1\nevent: news\nretry: 20\ndata: 1\ndata: 2\ndata: 3"
    );
    let id = hub.published("topic=a");
    assert!(id.starts_with("urn:uuid:"), "{id}");
    assert_eq!(events.next(), format!("id: {id}\ndata: "));
    let charset = "content-type: application/x-www-form-urlencoded;charset=UTF-8";
    let fields = [charset, &bearer(&json!({"publish": ["a"]}))].map(str::to_owned);
    let form = "topic=a&id=%C3%A9&data=%C3%A9+%2B";
    let mut client = hub.publisher();
    let length = format!("Content-Length: {}", form.len());
    client.send(request("POST", HUB, &[&fields[0], &fields[1], &length]) + form);
    client.response().assert_is(200, "é");
    assert_eq!(events.next(), "id: é\ndata: é +");
}

#[test]
fn private_updates_go_to_authorized_subscribers() {
    check_private_updates(&Hub::open(&[]));
}

fn check_private_updates(hub: &Hub) {
    let may = |topics: &[&str]| bearer(&json!({"subscribe": topics}));
    let private = "topic=/books/1&private=on";
    let public = "topic=/books/2";
    let to = "topic=/books/%7Bid%7D";
    check(
        hub,
        to,
        &[],
        &[private, "topic=/books/2&private"],
        &[public],
    );
    check(hub, to, &[&may(&[])], &[private], &[public]);
    check(
        hub,
        to,
        &[&may(&["/books/1"])],
        &["topic=/books/2&private="],
        &[private, public],
    );
    check(
        hub,
        to,
        &[&may(&["*"])],
        &[],
        &[private, "topic=/books/2&private"],
    );
    // By another topic of the same update.
    let alternate = "topic=/books/1&topic=/users/dunglas/%3Ftopic%3Dx&private";
    check(
        hub,
        to,
        &[&may(&["/users/dunglas/{?topic}"])],
        &[private],
        &[alternate, public],
    );
    // The rights of a token are not those in the request.
    check(
        hub,
        "topic=/books/2",
        &[&may(&["*"])],
        &[private],
        &[public],
    );
    // As 1.0 has it.
    let detail = json!({"authorization_details": [{
        "type": "https://mercure.rocks/authorization-detail",
        "actions": ["subscribe"],
        "topics": [{"match": "/books/:id", "match_type": "urlpattern"}],
    }]});
    let by_1_0 = format!("Authorization: Bearer {}", token(&detail));
    check(
        hub,
        "match=/books/1",
        &[&by_1_0],
        &["topic=/users/1&private"],
        &[private],
    );
}

#[test]
fn a_token_is_accepted_in_header_query_or_cookie() {
    let hub = Hub::start(&[]);
    let good = token(&json!({"mercure": {"subscribe": ["*"]}}));
    let field = format!("Authorization: Bearer {good}");
    let bad_field = "Authorization: Bearer no";
    let cookie = format!("Cookie: a=b; mercureAuthorization={good}");
    let cookie_of_1_0 = format!("Cookie: __Secure-mercure_access_token={good}");
    let private = ["topic=a&private"];
    check(&hub, "topic=a", &[&field], &[], &private);
    check(&hub, "topic=a", &[&cookie], &[], &private);
    check(&hub, "topic=a", &[&cookie_of_1_0], &[], &private);
    check(
        &hub,
        &format!("topic=a&authorization={good}"),
        &[],
        &[],
        &private,
    );
    check(
        &hub,
        &format!("topic=a&authorization={good}"),
        &["Cookie: mercureAuthorization=no"],
        &[],
        &private,
    );
    check(&hub, "topic=a&authorization=no", &[&field], &[], &private);
    // Another way to log in to the same host is no token.
    check(
        &hub,
        "topic=a",
        &["Authorization: Basic YTpi", &cookie],
        &[],
        &private,
    );
    for (query, fields, error) in [
        ("topic=a", &[][..], "Bearer"),
        ("topic=a", &["Cookie: other=1"], "Bearer"),
        ("topic=a", &["Authorization: Basic YTpi"], "Bearer"),
        (
            "topic=a",
            &[bad_field, &cookie],
            "Bearer error=\"invalid_token\"",
        ),
        (
            "topic=a&authorization=no",
            &[&cookie],
            "Bearer error=\"invalid_token\"",
        ),
        (
            "topic=a",
            &["Cookie: mercureAuthorization=no"],
            "Bearer error=\"invalid_token\"",
        ),
    ] {
        let answer = hub.get(query, fields);
        assert_eq!(answer.status, 401, "{query} {fields:?}");
        assert_eq!(answer.field("www-authenticate"), Some(error));
    }
}

#[test]
fn a_publisher_needs_a_token_for_all_topics() {
    let hub = Hub::open(&[]);
    let may = |topics: &[&str]| bearer(&json!({"publish": topics}));
    let check = |fields: &[&str], form: &str, expected: u16, error: Option<&str>| {
        let answer = hub.post(fields, form);
        assert_eq!(answer.status, expected, "{form}: {}", answer.text());
        assert_eq!(answer.field("www-authenticate"), error, "{form}");
    };
    let (invalid, scope) = (
        Some("Bearer error=\"invalid_token\""),
        Some("Bearer error=\"insufficient_scope\""),
    );
    check(&[], "topic=a", 401, Some("Bearer"));
    check(&["Authorization: Bearer x.y.z"], "topic=a", 401, invalid);
    check(&[&may(&[])], "topic=a", 403, scope);
    check(
        &[&bearer(&json!({"subscribe": ["*"]}))],
        "topic=a",
        403,
        scope,
    );
    check(&[&may(&["a", "/x/{y}"])], "topic=a&topic=/x/1", 200, None);
    check(&[&may(&["a", "/x/{y}"])], "topic=a&topic=b", 403, scope);
    check(&[&may(&["*"])], "topic=b", 200, None);
    let expired = token(&json!({"exp": seconds_from_now(0) - 60, "mercure": {"publish": ["*"]}}));
    check(
        &[&format!("Authorization: Bearer {expired}")],
        "topic=a",
        401,
        invalid,
    );
    assert_eq!(hub.stats()["updates"], 2);
    assert_eq!(hub.stats()["refused"], 6);
}

#[test]
fn by_a_cookie_only_pages_of_this_site_publish() {
    let hub = Hub::open(&["--push-allow-origins", "https://shop.example"]);
    let cookie = format!(
        "Cookie: mercureAuthorization={}",
        token(&json!({"mercure": {"publish": ["*"]}}))
    );
    let here = format!("http://{}", hub.proxy.address());
    let host = format!("Host: {}", hub.proxy.address());
    for (fields, expected) in [
        (vec![], 403),
        (vec![format!("Origin: {here}")], 200),
        (vec![format!("Referer: {here}/page")], 200),
        (vec!["Origin: https://shop.example".to_owned()], 200),
        (vec!["Origin: https://evil.example".to_owned()], 403),
        (vec!["Origin: null".to_owned()], 403),
        (vec!["Referer: https://evil.example/".to_owned()], 403),
    ] {
        let length = "Content-Length: 7".to_owned();
        let mut all = vec![FORM, &cookie, &length];
        all.extend(fields.iter().map(String::as_str));
        let mut client = hub.proxy.connect();
        let head = all.join("\r\n");
        client.send(format!(
            "POST {HUB} HTTP/1.1\r\n{host}\r\n{head}\r\n\r\ntopic=a"
        ));
        assert_eq!(client.response().status, expected, "{fields:?}");
    }
    // A client with a token in a header is no page of another site.
    let by_field = bearer(&json!({"publish": ["*"]}));
    assert_eq!(
        hub.post(&[&by_field, "Origin: https://evil.example"], "topic=a")
            .status,
        200
    );
}

#[test]
fn other_sites_may_read_what_the_operator_allows() {
    let hub = Hub::open(&["--push-allow-origins", "https://shop.example"]);
    let requested = |origin: &str, method: &str| {
        let origin = format!("Origin: {origin}");
        let asks = format!("Access-Control-Request-Method: {method}");
        hub.proxy.send("OPTIONS", HUB, &[&origin, &asks])
    };
    let preflight = requested("https://shop.example", "POST");
    assert_eq!(preflight.status, 204);
    assert_eq!(
        preflight.field("access-control-allow-origin"),
        Some("https://shop.example")
    );
    assert_eq!(
        preflight.field("access-control-allow-credentials"),
        Some("true")
    );
    assert!(
        preflight
            .field("access-control-allow-headers")
            .is_some_and(|it| it.contains("Authorization"))
    );
    let stranger = requested("https://evil.example", "POST");
    assert_eq!(stranger.field("access-control-allow-origin"), None);
    assert_eq!(stranger.field("access-control-allow-credentials"), None);
    let (head, _) = Events::with_head(hub.proxy.ask_with(
        &format!("{HUB}?topic=a&lastEventID=earliest"),
        &["Origin: https://shop.example"],
    ));
    assert_eq!(
        head.field("access-control-allow-origin"),
        Some("https://shop.example")
    );
    assert_eq!(head.field("access-control-allow-credentials"), Some("true"));
    assert_eq!(head.field("vary"), Some("Origin"));
    let (head, _) = Events::with_head(
        hub.proxy
            .ask_with(&format!("{HUB}?topic=a"), &["Origin: https://evil.example"]),
    );
    assert_eq!(head.field("access-control-allow-origin"), None);
    let anybody = Hub::open(&["--push-allow-origins", "*"]);
    let (head, _) = Events::with_head(
        anybody
            .proxy
            .ask_with(&format!("{HUB}?topic=a"), &["Origin: https://evil.example"]),
    );
    assert_eq!(head.field("access-control-allow-origin"), Some("*"));
    assert_eq!(head.field("access-control-allow-credentials"), None);
}

#[test]
fn a_token_in_a_url_is_written_down_nowhere() {
    let folder = Folder::new();
    let log = folder.file("access");
    let mut hub = Hub::start(&["--access-log", &log]);
    let token = token(&json!({"mercure": {"subscribe": ["*"], "publish": ["*"]}}));
    drop(hub.subscribe(&format!("topic=a&authorization={token}"), &[]));
    hub.get(&format!("%61uthorization={token}"), &[]);
    let form = "Content-Length: 7";
    let mut client = hub.proxy.connect();
    let target = format!("{HUB}?authorization={token}");
    client.send(request("POST", &target, &[FORM, form]) + "topic=a");
    assert_eq!(client.response().status, 200);
    let seen = eventually("the hub among the urls", || {
        let top = Operator::at(hub.admin).get("/v1/top").to_string();
        top.contains(HUB).then_some(top)
    });
    assert!(!seen.contains(&token[..40]), "{seen}");
    end(&mut hub.proxy);
    let written = lines(&log).join("\n");
    assert!(
        written.contains(HUB) && !written.contains(&token[..40]),
        "{written}"
    );
    assert!(!hub.proxy.output().contains(&token[..40]));
}

#[test]
fn keys_are_read_again_by_a_reload() {
    let folder = Folder::new();
    let other = "another secret of so many characters";
    let publishers = folder.write("publishers", SECRET);
    let subscribers = folder.write("subscribers", other);
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated_by_file(&format!(
        "origin = \"{}\"\nmercure_publisher_key_file = \"{publishers}\"\nmercure_subscriber_key_file = \"{subscribers}\"\n",
        origin.url()
    ));
    let hub = Hub {
        proxy,
        admin,
        origin,
        folder,
        publisher: None,
    };
    let by = |secret: &str| {
        let claims = json!({"mercure": {"publish": ["*"], "subscribe": ["*"]}});
        let token = encode(
            &Header::default(),
            &claims,
            &EncodingKey::from_secret(secret.as_bytes()),
        );
        format!("Authorization: Bearer {}", token.expect("a token"))
    };
    assert_eq!(hub.get("topic=a", &[&by(SECRET)]).status, 401);
    let mut events = hub.subscribe("topic=a", &[&by(other)]);
    hub.published("topic=a&data=1&id=1");
    assert_eq!(events.next(), "id: 1\ndata: 1");
    fs::write(&publishers, other).expect("a file");
    hub.proxy.signal(Signal::HUP);
    eventually("the other key", || {
        (hub.post(&[&by(other)], "topic=a&data=2&id=2").status == 200).then_some(())
    });
    assert_eq!(hub.post(&[&by(SECRET)], "topic=a").status, 401);
    // Who subscribed before goes on, and what was published before is still there.
    assert_eq!(events.next(), "id: 2\ndata: 2");
    let mut later = hub.subscribe("topic=a&lastEventID=1", &[&by(other)]);
    assert_eq!(later.next(), "id: 2\ndata: 2");
}

#[test]
fn the_hub_is_there_by_http_2() {
    let hub = Hub::start(&[]);
    let shown = token(&json!({"mercure": {"publish": ["*"], "subscribe": ["secret"]}}));
    let authorization = format!("Bearer {shown}");
    let with_token = [("authorization", &*authorization)];
    let mut subscriber = Http2::connect(hub.proxy.address());
    // Two subscriptions on one connection, of which one may read what is private.
    let one = subscriber.ask("GET", &format!("{HUB}?topic=secret"), &with_token);
    assert_eq!(subscriber.until(HEADERS).stream, one);
    let greeting = subscriber.until(DATA).payload;
    assert!(greeting.starts_with(b"retry: "));
    let refused = subscriber.ask("GET", &format!("{HUB}?topic=secret"), &[]);
    let refused = subscriber.answer(refused);
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.field("www-authenticate"), Some("Bearer"));
    let mut publisher = Http2::connect(hub.proxy.address());
    let form = ("content-type", "application/x-www-form-urlencoded");
    let publish = |publisher: &mut Http2, fields: &[(&str, &str)]| {
        let stream = publisher.begin("POST", HUB, fields);
        let update = b"topic=secret&private=on&id=by-http-2&data=one%0Atwo";
        publisher.send(http2::frame(DATA, END_STREAM, stream, update));
        publisher.answer(stream)
    };
    assert_eq!(publish(&mut publisher, &[form]).status(), 401);
    let answer = publish(&mut publisher, &[with_token[0], form]);
    answer.assert_is(200, "by-http-2");
    let event = subscriber.until(DATA);
    assert_eq!(event.stream, one);
    let event = String::from_utf8(event.payload).expect("UTF-8");
    assert_eq!(event, "id: by-http-2\ndata: one\ndata: two\n\n");
    // A client that resumes with the other version gets the same.
    let fields = [
        &*format!("Authorization: {authorization}"),
        "Last-Event-ID: earliest",
    ];
    let mut back = hub.subscribe("topic=secret", &fields);
    assert_eq!(back.next() + "\n\n", event);
}

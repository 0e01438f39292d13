//! Subscription events, and their recipients.

use serde_json::{Value, json};

use super::*;
use crate::support::{config_file, eventually};

const SUBSCRIPTIONS: &str = "/.well-known/mercure/subscriptions";
/// What the reference hub's users ask for.
pub(super) const ALL: &str = "/.well-known/mercure/subscriptions{/topic}{/subscriber}";
pub(super) const ALL_CODED: &str =
    "topic=/.well-known/mercure/subscriptions%7B/topic%7D%7B/subscriber%7D";

fn hub_with_events(flags: &[&str]) -> Hub {
    Hub::open(&[&["--mercure-subscriptions"], flags].concat())
}

impl Hub {
    fn ask(&self, rest: &str, fields: &[&str]) -> Response {
        self.proxy
            .get_with(&format!("{SUBSCRIPTIONS}{rest}"), fields)
    }

    /// The response to a subscriber with all rights.
    fn query(&self, rest: &str) -> Value {
        let answer = self.ask(rest, &[&bearer(&json!({"subscribe": ["*"]}))]);
        assert_eq!(answer.status, 200, "{rest}: {}", answer.text());
        serde_json::from_str(&answer.text()).expect("JSON")
    }

    pub(super) fn list(&self, rest: &str) -> Vec<Value> {
        let reported = self.query(rest);
        assert_eq!(reported["type"], "Subscriptions");
        assert_eq!(reported["@context"], "https://mercure.rocks/");
        reported["subscriptions"]
            .as_array()
            .expect("a list")
            .clone()
    }
}

/// The id of the event, its type and what it says.
pub(super) fn event(events: &mut Events) -> (String, String, Value) {
    let (id, kind, data) = events.event();
    (id, kind, serde_json::from_str(&data).expect("JSON"))
}

#[test]
fn joining_and_leaving_are_published_as_events() {
    let hub = hub_with_events(&[]);
    let may = bearer(&json!({"subscribe": [ALL], "payload": {"user": "me"}}));
    let mut watcher = hub.subscribe(ALL_CODED, &[&may]);
    let (_, _, own) = event(&mut watcher);
    assert_eq!(
        (&own["topic"], &own["payload"]),
        (&json!(ALL), &json!({"user": "me"}))
    );
    let mut anybody = hub.subscribe(&format!("{ALL_CODED}&topic=*"), &[]);
    for _ in 0..2 {
        event(&mut watcher);
    }
    let payload = bearer(&json!({"payload": {"user": "https://example.com/users/7", "n": [1]}}));
    let one = hub.subscribe("topic=/books/%7Bid%7D&topic=a%20b", &[&payload]);
    let (id, kind, book) = event(&mut watcher);
    assert!(id.starts_with("urn:uuid:"));
    assert_eq!(kind, "");
    let subscriber = book["subscriber"].as_str().expect("an id");
    assert!(subscriber.starts_with("urn:uuid:"), "{subscriber}");
    let by = subscriber.replace(':', "%3A");
    let expected = |active: bool| {
        json!({
            "@context": "https://mercure.rocks/",
            "id": format!("{SUBSCRIPTIONS}/%2Fbooks%2F%7Bid%7D/{by}"),
            "type": "Subscription",
            "topic": "/books/{id}",
            "subscriber": subscriber,
            "active": active,
            "payload": {"user": "https://example.com/users/7", "n": [1]},
        })
    };
    assert_eq!(book, expected(true));
    let (_, _, other) = event(&mut watcher);
    assert_eq!(other["id"], format!("{SUBSCRIPTIONS}/a%20b/{by}"));
    drop(one);
    assert_eq!(event(&mut watcher).2, expected(false));
    assert_eq!(event(&mut watcher).2["active"], false);
    // No other subscriber got it, although its selector is `*`.
    hub.published("topic=c&id=c");
    assert_eq!(anybody.event().0, "c");
    // A returning subscriber gets the missed events.
    let seen = format!("Last-Event-ID: {id}");
    let mut back = hub.subscribe(ALL_CODED, &[&may, &seen]);
    assert_eq!(event(&mut back).2, other);
    assert_eq!(event(&mut back).2, expected(false));
}

#[test]
fn a_subscription_by_1_0_is_described_in_its_terms() {
    let hub = hub_with_events(&[]);
    let detail = |actions: Value, topics: Value, payload: Value| {
        json!({
            "type": "https://mercure.rocks/authorization-detail", "actions": actions, "topics": topics, "payload": payload,
        })
    };
    let subscribe = json!(["subscribe"]);
    let watch = json!([{"match": "/.well-known/mercure/subscriptions/:type/:match/:by", "match_type": "urlpattern"}]);
    let claims = json!({"authorization_details": [detail(subscribe.clone(), watch, json!({}))]});
    let may = format!("Authorization: Bearer {}", token(&claims));
    let requested = "match_urlpattern=/.well-known/mercure/subscriptions/:type/:match/:by";
    let mut watcher = hub.subscribe(requested, &[&may]);
    event(&mut watcher);
    let claims = json!({"authorization_details": [
        detail(json!(["publish"]), json!([{"match": "*"}]), json!({"n": 0})),
        detail(subscribe.clone(), json!([{"match": "/books/:id", "match_type": "urlpattern"}]), json!({"n": 1})),
        detail(subscribe, json!([{"match": "*"}]), json!({"n": 2})),
    ]});
    let by = format!("Authorization: Bearer {}", token(&claims));
    let _one = hub.subscribe("match_urlpattern=/books/:id&match=a&topic=b", &[&by]);
    let (_, kind, reported) = event(&mut watcher);
    assert_eq!(kind, "mercure");
    let subscriber = reported["subscriber"].as_str().expect("an id");
    let coded = subscriber.replace(':', "%3A");
    let path = format!("/urlpattern/%2Fbooks%2F%3Aid/{coded}");
    assert_eq!(reported["id"], format!("{SUBSCRIPTIONS}{path}"));
    assert_eq!(reported["type"], "subscription");
    assert_eq!(reported["match"], "/books/:id");
    assert_eq!(reported["match_type"], "urlpattern");
    assert_eq!(
        (&reported["payload"], &reported["topic"]),
        (&json!({"n": 1}), &Value::Null)
    );
    let (_, _, exact) = event(&mut watcher);
    assert_eq!(
        (&exact["match"], &exact["payload"]),
        (&json!("a"), &json!({"n": 2}))
    );
    let mut alone = hub.query(&path);
    assert_eq!(
        alone["lastEventID"].as_str().map(|it| &it[..9]),
        Some("urn:uuid:")
    );
    alone
        .as_object_mut()
        .expect("an object")
        .remove("lastEventID");
    assert_eq!(alone, reported);
    assert_eq!(hub.list("/exact/a").len(), 1);
    assert_eq!(hub.list("/urlpattern/%2Fbooks%2F%3Aid").len(), 1);
    assert_eq!(hub.list("/urlpattern/a").len(), 0);
    // What is asked for as in 0.x is called as in 0.x.
    assert_eq!(hub.list("/b").len(), 1);
    assert_eq!(hub.list("/a").len(), 0);
    assert_eq!(hub.list("").len(), 4);
}

#[test]
fn active_subscriptions_are_listed() {
    let hub = hub_with_events(&[]);
    let nothing = hub.query("");
    assert_eq!(
        nothing,
        json!({
            "@context": "https://mercure.rocks/", "id": SUBSCRIPTIONS, "type": "Subscriptions",
            "lastEventID": "earliest", "subscriptions": [],
        })
    );
    let id = hub.published("topic=a");
    assert_eq!(hub.query("")["lastEventID"], id);
    let _there: Vec<_> = (0..150)
        .map(|number| hub.subscribe(&format!("topic=/books/{number}&topic=shared"), &[]))
        .collect();
    let all = hub.list("");
    assert_eq!(all.len(), 300);
    assert_eq!(hub.list("/shared").len(), 150);
    assert_eq!(hub.list("/%2fbooks%2f17")[0]["topic"], "/books/17");
    assert!(hub.list("/books").is_empty());
}

#[test]
fn lists_are_fresh_or_confirmed() {
    let hub = hub_with_events(&[]);
    let may = bearer(&json!({"subscribe": [ALL]}));
    let one = hub.subscribe("topic=a", &[]);
    let answer = hub.ask("", &[&may]);
    assert_eq!(answer.field("content-type"), Some("application/ld+json"));
    assert_eq!(answer.field("cache-control"), Some("private, no-cache"));
    let tag = answer.field("etag").expect("an entity tag").to_owned();
    let known = format!("If-None-Match: \"other\", W/{tag}");
    let confirmed = hub.ask("", &[&may, &known]);
    assert_eq!((confirmed.status, confirmed.text()), (304, String::new()));
    assert_eq!(confirmed.field("etag"), Some(&*tag));
    let body: Value = serde_json::from_str(&answer.text()).expect("JSON");
    let last = body["lastEventID"].as_str().expect("an id");
    let link = format!("</.well-known/mercure>; rel=\"mercure\"; last-event-id=\"{last}\"");
    assert_eq!(answer.field("link"), Some(&*link));
    let path = body["subscriptions"][0]["id"].as_str().expect("a path");
    let found = hub.proxy.get_with(path, &[&may]);
    assert_eq!(found.field("content-type"), Some("application/ld+json"));
    // A client with the list continues from there.
    drop(one);
    let gone = eventually("an end", || {
        let gone = hub.proxy.get_with(path, &[&may]);
        (gone.status == 404).then_some(gone)
    });
    assert_eq!(gone.field("cache-control"), Some("no-store"));
    let mut since = hub.subscribe(&format!("{ALL_CODED}&lastEventID={last}"), &[&may]);
    let (_, _, ended) = event(&mut since);
    assert_eq!(
        (&ended["id"], &ended["active"]),
        (&json!(path), &json!(false))
    );
    assert_eq!(hub.ask("", &[&may, &known]).status, 200);
    let head = hub.proxy.send("HEAD", SUBSCRIPTIONS, &[&may]);
    assert_eq!((head.status, head.text()), (200, String::new()));
    assert_eq!(head.field("content-type"), Some("application/ld+json"));
}

#[test]
fn subscription_events_require_a_token_for_their_url() {
    let hub = hub_with_events(&[]);
    let _one = hub.subscribe("topic=/books/1", &[]);
    let path = hub.list("")[0]["id"].as_str().expect("a path").to_owned();
    let may = |topics: &[&str]| bearer(&json!({"subscribe": topics, "publish": ["*"]}));
    let of_books = "/%2Fbooks%2F1";
    let expected = [
        (SUBSCRIPTIONS.to_owned(), vec![SUBSCRIPTIONS, "*", ALL]),
        (format!("{SUBSCRIPTIONS}{of_books}"), vec!["*", ALL]),
        (path.clone(), vec!["*", ALL, &path]),
    ];
    let selectors = [SUBSCRIPTIONS, "*", ALL, &path, "/books/1", "{x}", ""];
    for (target, those) in &expected {
        for selector in selectors {
            let answer = hub.proxy.get_with(target, &[&may(&[selector])]);
            let is_told = those.contains(&selector);
            assert_eq!(
                answer.status,
                if is_told { 200 } else { 403 },
                "{target} {selector}"
            );
            let error = (!is_told).then_some("Bearer error=\"insufficient_scope\"");
            assert_eq!(answer.field("www-authenticate"), error);
        }
        let answer = hub.proxy.get_with(target, &[]);
        assert_eq!(
            (answer.status, answer.field("www-authenticate")),
            (401, Some("Bearer"))
        );
        let answer = hub.proxy.get_with(target, &["Authorization: Bearer x"]);
        assert_eq!(answer.status, 401);
    }
    // A url that is written in another way is the same one.
    let lower = path.replace("%2F", "%2f").replace("%3A", ":");
    assert_eq!(hub.proxy.get_with(&lower, &[&may(&[&path])]).status, 200);
    assert_eq!(hub.proxy.get_with(&lower, &[&may(&[&lower])]).status, 403);
    // The query is no part of it, and may have the token.
    let shown = token(&json!({"mercure": {"subscribe": [ALL]}}));
    assert_eq!(hub.ask(&format!("?authorization={shown}"), &[]).status, 200);
    let cookie = format!("Cookie: mercureAuthorization={shown}");
    assert_eq!(hub.ask("", &[&cookie]).status, 200);
    let expired = json!({"exp": seconds_from_now(0) - 60, "mercure": {"subscribe": ["*"]}});
    let expired = format!("Authorization: Bearer {}", token(&expired));
    assert_eq!(hub.ask("", &[&expired]).status, 401);
    // A token is read for subscribing, not for publishing.
    assert_eq!(
        hub.ask("", &[&bearer(&json!({"publish": ["*"]}))]).status,
        403
    );
}

#[test]
fn unknown_subscriptions_are_404_and_read_only() {
    let hub = hub_with_events(&[]);
    let may = bearer(&json!({"subscribe": ["*"]}));
    let _one = hub.subscribe("topic=a", &[]);
    for rest in [
        "/a/b",
        "/a/b/c",
        "/exact/a/urn:uuid:1",
        "/1/2/3/4",
        "/%FF",
        "/%4",
        "/exact/a/b/c",
    ] {
        assert_eq!(hub.ask(rest, &[&may]).status, 404, "{rest}");
    }
    for (method, expected) in [
        ("POST", 405),
        ("PUT", 405),
        ("DELETE", 405),
        ("OPTIONS", 204),
    ] {
        let answer = hub
            .proxy
            .send(method, SUBSCRIPTIONS, &["Content-Length: 0", &may]);
        assert_eq!(answer.status, expected, "{method}");
        assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"));
    }
    // HEAD is no subscription, and a payload is not endless.
    let before = hub.query("")["lastEventID"].clone();
    hub.proxy.send("HEAD", &format!("{HUB}?topic=a"), &[]);
    let long = bearer(&json!({"payload": "x".repeat(4096)}));
    let answer = hub.get("topic=a", &[&long]);
    assert_eq!(answer.status, 401);
    assert!(answer.text().contains("payload"), "{}", answer.text());
    assert_eq!(hub.query("")["lastEventID"], before);
    assert_eq!(hub.list("").len(), 1);
    assert!(hub.origin.requests().is_empty());
}

#[test]
fn subscription_events_are_off_by_default() {
    let hub = Hub::open(&[]);
    let may = bearer(&json!({"subscribe": ["*"]}));
    let mut watcher = hub.subscribe("topic=*", &[&may]);
    let long = bearer(&json!({"payload": "x".repeat(4096)}));
    drop(hub.subscribe("topic=a", &[&long]));
    hub.published("topic=b&id=b");
    assert_eq!(watcher.event().0, "b");
    // The path is the application's.
    hub.ask("", &[&may]);
    assert_eq!(hub.origin.requests().len(), 1);
}

/// By another configuration, while some subscribe.
#[test]
fn it_is_switched_on_and_off_by_a_reload() {
    let file = config_file("");
    let name = file.display().to_string();
    let hub = Hub::open(&["--config", &name]);
    let reload = |is_on: bool| {
        fs::write(&file, format!("mercure_subscriptions = {is_on}\n")).expect("a file");
        let answer = Operator::at(hub.admin).ask("POST", "/v1/reload", None);
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let may = bearer(&json!({"subscribe": ["*"]}));
    let mut early = hub.subscribe("topic=early", &[]);
    hub.ask("", &[&may]);
    assert_eq!(hub.origin.requests().len(), 1, "it is the application's");
    reload(true);
    assert_eq!(hub.list(""), [] as [Value; 0]);
    let mut watcher = hub.subscribe(ALL_CODED, &[&may]);
    assert_eq!(event(&mut watcher).2["topic"], ALL);
    // Earlier subscriptions cause no event, neither now nor at their end.
    drop(hub.subscribe("topic=a", &[]));
    for active in [true, false] {
        let (_, _, reported) = event(&mut watcher);
        assert_eq!(
            (&reported["topic"], &reported["active"]),
            (&json!("a"), &json!(active))
        );
    }
    let stays = hub.subscribe("topic=b", &[]);
    assert_eq!(event(&mut watcher).2["topic"], "b");
    assert_eq!(hub.list("").len(), 2);
    reload(false);
    hub.ask("", &[&may]);
    assert_eq!(
        hub.origin.requests().len(),
        2,
        "it is the application's again"
    );
    // New subscriptions cause no event now, and announced ones still get the event of their end.
    let unseen = hub.subscribe("topic=c", &[]);
    drop(stays);
    let (_, _, reported) = event(&mut watcher);
    assert_eq!(
        (&reported["topic"], &reported["active"]),
        (&json!("b"), &json!(false))
    );
    reload(true);
    let topics = |list: Vec<Value>| {
        list.iter()
            .map(|it| it["topic"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(topics(hub.list("")), [ALL]);
    drop(unseen);
    let late = hub.subscribe("topic=d", &[]);
    assert_eq!(event(&mut watcher).2["topic"], "d");
    assert_eq!(topics(hub.list("")), [ALL, "d"]);
    // Those who subscribe have gone on meanwhile.
    hub.published("topic=early&id=early");
    assert_eq!(early.event().0, "early");
    drop(late);
    fs::remove_file(&file).expect("a file");
}

//! Published documents, and the events of their subscribers.

use std::fs;

use serde_json::Value;

use crate::support::{
    Events, Folder, Origin, Proxy, Response, Signal, TierKind, TierServer, eventually, request,
};

pub(crate) const SECRET: &str = "a-secret-that-is-long-enough";

/// A folder with the secret of publishers, and the Redis that keeps the documents if it is not the folder.
pub(crate) struct Kept(Folder, Option<TierServer>);

impl Kept {
    pub(crate) fn new() -> Self {
        Self::beside(None)
    }

    /// The same with a Redis that keeps the documents.
    pub(crate) fn in_redis() -> Self {
        Self::beside(Some(TierServer::start(TierKind::Redis)))
    }

    fn beside(redis: Option<TierServer>) -> Self {
        let folder = Folder::new();
        folder.write("token", format!("{SECRET}\n"));
        Self(folder, redis)
    }

    /// The file with the secret.
    pub(crate) fn token(&self) -> String {
        self.0.file("token")
    }

    pub(crate) fn start(&self, origin: &Origin, flags: &[&str]) -> Live {
        let token = self.token();
        let documents = self.0.file("documents");
        let mut all = vec!["--push", "/live/", "--push-token-file", &token];
        let redis = self.1.as_ref().map(TierServer::address).unwrap_or_default();
        if self.1.is_some() {
            all.extend(["--push-redis", &redis]);
        } else if !flags
            .iter()
            .any(|it| matches!(*it, "--push-directory" | "--push-redis"))
        {
            all.extend(["--push-directory", &documents]);
        }
        all.extend(flags);
        Live(Proxy::start(origin, &all))
    }
}

/// Properties that do not depend on the storage of documents.
macro_rules! whoever_keeps_them {
    ($($name:ident,)*) => {
        mod by_itself {
            $(#[test]
            fn $name() {
                super::$name(&super::Kept::new());
            })*
        }

        mod in_redis {
            $(#[test]
            fn $name() {
                super::$name(&super::Kept::in_redis());
            })*
        }
    };
}

whoever_keeps_them! {
    a_document_is_a_hit_until_it_changes,
    changes_are_for_the_version_that_they_name,
    documents_are_patched,
    a_batch_happens_whole_or_not_at_all,
    invalid_documents_are_refused,
    a_subscriber_gets_the_current_value_and_then_every_change,
    many_are_watched_at_once,
    clients_without_event_streams_poll,
    an_unknown_last_event_id_is_reset,
    a_document_goes_when_it_has_had_its_time,
    acknowledged_changes_survive_a_kill,
    a_stalled_subscriber_costs_nothing_and_gets_the_latest,
}

/// A server with documents.
pub(crate) struct Live(pub(crate) Proxy);

impl Live {
    pub(crate) fn publish(
        &self,
        method: &str,
        target: &str,
        fields: &[&str],
        body: &str,
    ) -> Response {
        let authorization = format!("Authorization: Bearer {SECRET}");
        let length = format!("Content-Length: {}", body.len());
        let mut all = vec![&*authorization, &*length];
        all.extend(fields);
        let mut client = self.0.connect();
        client.send(request(method, target, &all));
        client.send(body);
        client.response()
    }

    pub(crate) fn put(&self, target: &str, body: &str) -> Response {
        self.publish("PUT", target, &["Content-Type: application/json"], body)
    }

    pub(crate) fn subscribe(&self, target: &str, fields: &[&str]) -> Events {
        let mut all = vec!["Accept: text/event-stream"];
        all.extend(fields);
        Events::begin(self.0.ask_with(target, &all))
    }
}

pub(crate) fn tag(response: &Response) -> String {
    response.field("etag").expect("an entity tag").to_owned()
}

fn a_document_is_a_hit_until_it_changes(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &[]);
    live.0.get("/live/x").assert_is(
        404,
        r#"{"detail":"there is no such document","status":404}"#,
    );
    let created = live.put("/live/x", r#"{"a":1}"#);
    assert_eq!(created.status, 201);
    let found = live.0.get("/live/x");
    found.assert_is(200, r#"{"a":1}"#);
    found.assert_hit();
    assert_eq!(found.field("content-type"), Some("application/json"));
    assert_eq!(found.field("cache-control"), Some("no-cache"));
    assert_eq!(tag(&found), tag(&created));
    // The same again is no change.
    let same = live.put("/live/x", r#"{"a":1}"#);
    assert_eq!((same.status, tag(&same)), (204, tag(&created)));
    let changed = live.put("/live/x", r#"{"a":2}"#);
    assert_eq!(changed.status, 204);
    assert_ne!(tag(&changed), tag(&created));
    live.0.get("/live/x").assert_is(200, r#"{"a":2}"#);
    // Everything that a hit has.
    live.0.get("/live/x?anything").assert_is(200, r#"{"a":2}"#);
    let condition = format!("If-None-Match: {}", tag(&changed));
    assert_eq!(live.0.get_with("/live/x", &[&condition]).status, 304);
    let part = live.0.get_with("/live/x", &["Range: bytes=1-3"]);
    part.assert_is(206, r#""a""#);
    let personal = ["Cookie: session=1", "Authorization: Basic eA=="];
    live.0.get_with("/live/x", &personal).assert_hit();
    // What is no business of caches is answered all the same.
    for not_cached in [
        "Cache-Control: no-store",
        "Upgrade: example/1\r\nConnection: upgrade",
    ] {
        let found = live.0.get_with("/live/x", &[not_cached]);
        found.assert_is(200, r#"{"a":2}"#);
        assert_eq!(tag(&found), tag(&changed), "{not_cached}");
    }
    assert_eq!(live.publish("DELETE", "/live/x", &[], "").status, 204);
    assert_eq!(live.0.get("/live/x").status, 404);
    assert_eq!(live.publish("DELETE", "/live/x", &[], "").status, 404);
    assert!(origin.seen("/live/x").is_empty(), "no origin is asked");
}

#[test]
fn publishing_requires_the_token() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    let wrong = format!("Authorization: Bearer {SECRET}r");
    for fields in [&["Content-Length: 1"][..], &["Content-Length: 1", &wrong]] {
        for method in ["PUT", "PATCH", "DELETE"] {
            let mut client = live.0.connect();
            client.send(request(method, "/live/x", fields));
            client.send("1");
            let refused = client.response();
            assert_eq!(refused.status, 401, "{method}");
            assert_eq!(refused.field("www-authenticate"), Some("Bearer"));
        }
    }
    assert_eq!(live.0.get("/live/x").status, 404);
    // Without a secret publishing is disabled.
    let flags = ["--push", "/live/", "--push-directory", "none"];
    let closed = Live(Proxy::start(&origin, &flags));
    assert_eq!(closed.put("/live/x", "1").status, 403);
}

fn changes_are_for_the_version_that_they_name(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &["--push-conditions"]);
    let json = "Content-Type: application/json";
    let put = |condition: &str, body: &str| {
        let fields: Vec<_> = [json, condition]
            .into_iter()
            .filter(|it| !it.is_empty())
            .collect();
        live.publish("PUT", "/live/x", &fields, body)
    };
    assert_eq!(put("", "1").status, 428);
    assert_eq!(put("If-Match: *", "1").status, 412);
    let created = put("If-None-Match: *", "1");
    assert_eq!(created.status, 201);
    assert_eq!(put("If-None-Match: *", "2").status, 412);
    let mine = format!("If-Match: {}", tag(&created));
    assert_eq!(put(&mine, "2").status, 204);
    assert_eq!(put(&mine, "3").status, 412, "it was changed meanwhile");
    live.0.get("/live/x").assert_is(200, "2");
}

fn documents_are_patched(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &["--push-max-document", "4KiB"]);
    let patch = |kind: &str, body: &str| {
        let kind = format!("Content-Type: {kind}");
        live.publish("PATCH", "/live/x", &[&kind], body)
    };
    let (merge, operations) = (
        "application/merge-patch+json",
        "application/json-patch+json",
    );
    assert_eq!(patch(merge, "{}").status, 404);
    live.put("/live/x", r#"{"a":1,"b":2}"#);
    assert_eq!(patch(merge, r#"{"a":null,"c":3}"#).status, 204);
    live.0.get("/live/x").assert_is(200, r#"{"b":2,"c":3}"#);
    let moved = r#"[{"op":"test","path":"/b","value":2},{"op":"move","from":"/b","path":"/d"}]"#;
    assert_eq!(patch(operations, moved).status, 204);
    live.0.get("/live/x").assert_is(200, r#"{"c":3,"d":2}"#);
    assert_eq!(patch(operations, moved).status, 422);
    assert_eq!(
        patch(operations, r#"[{"op":"test","path":"/c","value":4}]"#).status,
        409
    );
    assert_eq!(patch(merge, "{").status, 400);
    let unknown = patch("text/plain", "{}");
    assert_eq!(unknown.status, 415);
    assert!(
        unknown
            .field("accept-patch")
            .is_some_and(|it| it.contains(merge))
    );
    // A short patch makes no endless document.
    live.put("/live/x", r#"{"a":["x"]}"#);
    let double = [r#"{"op":"copy","from":"/a","path":"/a/-"}"#; 64].join(",");
    assert_eq!(patch(operations, &format!("[{double}]")).status, 413);
    live.0.get("/live/x").assert_is(200, r#"{"a":["x"]}"#);
    // And many of them no longer one than may be put.
    let long = "x".repeat(3000);
    let [first, second] = ["b", "c"].map(|name| format!(r#"{{"{name}":"{long}"}}"#));
    assert_eq!(patch(merge, &first).status, 204);
    assert_eq!(patch(merge, &second).status, 413);
    let added = format!(r#"[{{"op":"add","path":"/c","value":"{long}"}}]"#);
    assert_eq!(patch(operations, &added).status, 413);
    let whole = format!(r#"{{"a":["x"],"b":"{long}"}}"#);
    live.0.get("/live/x").assert_is(200, &whole);
}

fn a_batch_happens_whole_or_not_at_all(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &[]);
    let batch = |body: &str| {
        live.publish(
            "POST",
            "/live/batch",
            &["Content-Type: application/json"],
            body,
        )
    };
    let sent = batch(
        r#"[{"url":"/live/a","value":{"n":1}},{"url":"/live/b","text":"hello","type":"text/html"}]"#,
    );
    assert_eq!(sent.status, 200, "{}", sent.text());
    live.0.get("/live/a").assert_is(200, r#"{"n":1}"#);
    let html = live.0.get("/live/b");
    html.assert_is(200, "hello");
    assert_eq!(html.field("content-type"), Some("text/html"));
    let absent = batch(r#"[{"url":"/live/a","delete":true},{"url":"/live/c","delete":true}]"#);
    assert_eq!(absent.status, 404);
    live.0.get("/live/a").assert_is(200, r#"{"n":1}"#);
    for wrong in [
        "{}",
        r#"[{"url":"/elsewhere/a","value":1}]"#,
        r#"[{"url":"/live/../a","value":1}]"#,
        r#"[{"url":"/live/a"}]"#,
        r#"[{"url":"/live/a","value":1,"text":"1"}]"#,
        r#"[{"url":"/live/a","value":1,"type":"a\r\nb"}]"#,
    ] {
        assert_eq!(batch(wrong).status, 400, "{wrong}");
    }
    for ttl in ["0", "-1", "1.5", "4294967296", "999999999999999"] {
        let refused = batch(&format!(r#"[{{"url":"/live/a","value":1,"ttl":{ttl}}}]"#));
        assert_eq!(refused.status, 400, "{ttl}");
        let says = "/live/a: ttl must be a number of seconds from 1 to 4294967295";
        assert!(refused.text().contains(says), "{}", refused.text());
    }
}

fn invalid_documents_are_refused(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(
        &origin,
        &["--push-memory", "80KiB", "--push-max-document", "32KiB"],
    );
    assert_eq!(live.put("/live/x", "{").status, 400, "no JSON");
    assert_eq!(
        live.put("/live/%41", "1").status,
        400,
        "another way to write a name"
    );
    assert_eq!(live.put("/live/", "1").status, 400, "no name");
    let large = format!("\"{}\"", "x".repeat(32 * 1024));
    assert_eq!(live.put("/live/x", &large).status, 413);
    let packed = ["Content-Type: text/plain", "Content-Encoding: gzip"];
    assert_eq!(live.publish("PUT", "/live/x", &packed, "x").status, 415);
    // It could not be distinguished from a subscription.
    let stream = ["Content-Type: text/event-stream"];
    assert_eq!(live.publish("PUT", "/live/x", &stream, ":").status, 415);
    let kind = ["Content-Type: text/plain; of=\u{85}"];
    assert_eq!(live.publish("PUT", "/live/x", &kind, "x").status, 400);
    let part = ["Content-Type: text/plain", "Content-Range: bytes 0-0/9"];
    assert_eq!(live.publish("PUT", "/live/x", &part, "x").status, 400);
    for ttl in [
        "never",
        "0",
        "-1",
        "4294967296",
        "999999999999999",
        "99999999999999999999999",
    ] {
        let refused = live.publish("PUT", "/live/x", &[&format!("Push-TTL: {ttl}")], "x");
        assert_eq!(refused.status, 400, "{ttl}");
        let says = "Push-TTL must be a number of seconds from 1 to 4294967295";
        assert!(refused.text().contains(says), "{}", refused.text());
    }
    assert_eq!(
        live.0
            .send("POST", "/live/x", &["Content-Length: 0"])
            .status,
        405
    );
    // What is there stays, and what is not is not taken.
    let half = format!("\"{}\"", "x".repeat(30 * 1024));
    assert_eq!(live.put("/live/a", &half).status, 201);
    assert_eq!(live.put("/live/b", &half).status, 201);
    assert_eq!(live.put("/live/c", &half).status, 507);
    assert_eq!(live.0.get("/live/a").text(), half);
    assert_eq!(live.publish("DELETE", "/live/a", &[], "").status, 204);
    assert_eq!(live.put("/live/c", &half).status, 201);
}

fn a_subscriber_gets_the_current_value_and_then_every_change(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &[]);
    let created = live.put("/live/x", "1");
    let mut events = live.subscribe("/live/x", &[]);
    let (id, kind, data) = events.event();
    assert_eq!((kind.as_str(), data.as_str()), ("put", "1"));
    assert_eq!(format!("\"{id}\""), tag(&created));
    live.put("/live/x", "2");
    live.put("/live/other", "9");
    assert_eq!(events.data(), "2");
    live.put("/live/x", "2");
    assert_eq!(live.publish("DELETE", "/live/x", &[], "").status, 204);
    let (_, kind, data) = events.event();
    assert_eq!((kind.as_str(), data.as_str()), ("delete", ""));
    // Who comes before the document waits for it.
    let mut early = live.subscribe("/live/x", &[]);
    live.publish("PUT", "/live/x", &["Content-Type: text/plain"], "one\ntwo");
    assert_eq!(early.data(), "one\ntwo");
    assert_eq!(events.data(), "one\ntwo");
    // A returning subscriber gets the missed version.
    let seen = format!("Last-Event-ID: {id}");
    let mut back = live.subscribe("/live/x", &[&seen]);
    assert_eq!(back.data(), "one\ntwo");
}

fn many_are_watched_at_once(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &[]);
    live.put("/live/news/1", "1");
    live.put("/live/sport/1", "2");
    let watch = "/.well-known/microcache/watch?url=/live/news/*&url=/live/x&deltas=1";
    let mut events = live.subscribe(watch, &[]);
    let reported = |event: &str, url: &str, rest: &str| {
        format!(r#""event":"{event}","url":"{url}","type":"application/json",{rest}}}"#)
    };
    let mut expect = |end: String| {
        let data = events.data();
        assert!(data.ends_with(&end), "{data} {end}");
    };
    expect(reported("put", "/live/news/1", "\"value\":1"));
    live.put("/live/sport/2", "3");
    live.put("/live/x", r#"{"a":{"b":1,"c":"a long text that stays"}}"#);
    expect(reported(
        "put",
        "/live/x",
        r#""value":{"a":{"b":1,"c":"a long text that stays"}}"#,
    ));
    // Who has the version before gets what is different.
    let merge = ["Content-Type: application/merge-patch+json"];
    live.publish("PATCH", "/live/x", &merge, r#"{"a":{"b":2}}"#);
    expect(reported("patch", "/live/x", r#""patch":{"a":{"b":2}}"#));
    live.put("/live/news/2", "4");
    expect(reported("put", "/live/news/2", "\"value\":4"));
}

fn clients_without_event_streams_poll(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "1");
    let watch = "/.well-known/microcache/watch?url=/live/x";
    let first = live.0.get(watch).text();
    assert!(first.contains(r#""value":1"#), "{first}");
    let id = |reported: &str| {
        let (_, after) = reported.split_once("\"last_event_id\":\"").expect("an id");
        after.trim_end_matches("\"}").to_owned()
    };
    let again = format!("{watch}&last_event_id={}", id(&first));
    let nothing = live.0.get(&format!("{again}&wait=0")).text();
    assert!(nothing.starts_with(r#"{"events":[],"#), "{nothing}");
    let mut waiting = live.0.ask(&again);
    live.put("/live/x", "2");
    let second = waiting.response().text();
    assert!(second.contains(r#""value":2"#), "{second}");
    for wrong in ["", "?url=/other/x", "?url=live", "?url=/live/x&wait=1000"] {
        let target = format!("/.well-known/microcache/watch{wrong}");
        assert_eq!(live.0.get(&target).status, 400, "{wrong}");
    }
}

/// A client with the most subscriptions allowed keeps no other client from subscribing to the same, and is refused
/// beyond that.
#[test]
fn too_large_subscriptions_are_refused() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let flags = [
        "--push-max-subscribers",
        "130",
        "--trusted-proxies",
        "127.0.0.1",
    ];
    let live = kept.start(&origin, &flags);
    live.put("/live/x", "1");
    let watch = "/.well-known/microcache/watch?url=";
    let stars = |from: usize, count: usize| {
        let urls: Vec<_> = (from..from + count)
            .map(|n| format!("/live/{n}*"))
            .collect();
        format!("{watch}{}", urls.join("&url="))
    };
    assert_eq!(live.0.get(&stars(0, 9)).status, 400, "too many stars");
    let many: Vec<_> = (0..101).map(|n| format!("/live/{n}")).collect();
    let many = format!("{watch}{}", many.join("&url="));
    assert_eq!(live.0.get(&many).status, 400, "too many urls");
    let long = format!("{watch}/live/{}", "x".repeat(2000));
    assert_eq!(live.0.get(&long).status, 400, "too long");
    let subscribe = |n: usize| {
        let client = format!("X-Forwarded-For: 10.0.0.{}", n / 32);
        live.subscribe(&stars(n * 8, 8), &[&client])
    };
    let mut greedy: Vec<_> = (0..32).map(subscribe).collect();
    // One client does not take the place of all.
    let more = live
        .0
        .get_with(&stars(2000, 1), &["X-Forwarded-For: 10.0.0.0"]);
    assert_eq!((more.status, more.field("retry-after")), (503, Some("1")));
    assert!(
        more.text().contains("per client address"),
        "{}",
        more.text()
    );
    greedy.extend((32..128).map(subscribe));
    let another = live.0.get(&stars(2000, 1));
    assert_eq!(
        (another.status, another.field("retry-after")),
        (503, Some("1"))
    );
    // Documents by their names, and patterns that there are, need no more.
    let mut modest = live.subscribe("/live/x", &[]);
    assert_eq!(modest.data(), "1");
    let _same = live.subscribe(&stars(0, 8), &[]);
    let full = live.0.get_with("/live/x", &["Accept: text/event-stream"]);
    assert_eq!((full.status, full.field("retry-after")), (503, Some("1")));
    live.put("/live/x", "2");
    assert_eq!(modest.data(), "2");
    // There is room again when one has left.
    greedy.pop();
    eventually("room", || {
        let mut client = live.0.ask_with("/live/x", &["Accept: text/event-stream"]);
        (client.head().start == "HTTP/1.1 200 OK").then_some(())
    });
}

fn an_unknown_last_event_id_is_reset(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "1");
    for id in ["1.1", "nonsense", "ffffffffffffffff.18446744073709551615"] {
        let mut events = live.subscribe("/live/x", &[&format!("Last-Event-ID: {id}")]);
        assert_eq!(events.event().1, "reset", "{id}");
        assert_eq!(events.data(), "1");
    }
}

#[test]
fn a_history_delivers_change_by_change() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--push-history", "3"]);
    let first = live.put("/live/x", "1");
    let seen = format!("Last-Event-ID: {}", tag(&first).trim_matches('"'));
    for value in ["2", "3", "4"] {
        live.put("/live/x", value);
    }
    let mut back = live.subscribe("/live/x", &[&seen]);
    assert_eq!([back.data(), back.data(), back.data()], ["2", "3", "4"]);
    // Who knows nothing gets what there is.
    assert_eq!(live.subscribe("/live/x", &[]).data(), "4");
    live.put("/live/x", "5");
    let mut late = live.subscribe("/live/x", &[&seen]);
    assert_eq!(late.event().1, "gap");
    assert_eq!([late.data(), late.data(), late.data()], ["3", "4", "5"]);
}

#[test]
fn the_stored_versions_of_documents_are_read_at_once() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--push-history", "3"]);
    let read = |query: &str| {
        let answer = live
            .0
            .get(&format!("/.well-known/microcache/watch?{query}"));
        serde_json::from_str::<Value>(&answer.text()).expect("JSON")
    };
    let values = |answer: &Value| {
        let events = answer["events"].as_array().expect("events").iter();
        let named =
            events.map(|it| format!("{}={}", it["url"].as_str().expect("a URL"), it["value"]));
        named.collect::<Vec<_>>().join(" ")
    };
    for (url, value) in [("x", "1"), ("x", "2"), ("y", "3"), ("x", "4"), ("x", "5")] {
        live.put(&format!("/live/{url}"), value);
    }
    let two = read("url=/live/x&history=2");
    assert_eq!(values(&two), "/live/x=4 /live/x=5");
    assert_eq!(two["complete"], false);
    let all = read("url=/live/x&url=/live/y&url=/live/none&history=1000");
    assert_eq!(values(&all), "/live/x=2 /live/y=3 /live/x=4 /live/x=5");
    assert_eq!(read("url=/live/y&history=1")["complete"], true);
    // A subscription continues there.
    let after = all["last_event_id"].as_str().expect("an id");
    let mut back = live.subscribe("/live/x", &[&format!("Last-Event-ID: {after}")]);
    live.publish("DELETE", "/live/x", &[], "");
    assert_eq!(back.event().1, "delete");
    let last = read("url=/live/x&history=1");
    assert_eq!(last["events"][0]["event"], "delete");
    for wrong in [
        "url=/live/*",
        "url=/",
        "url=/live/x&history=0",
        "url=/live/x&history=1001",
    ] {
        let target = format!("/.well-known/microcache/watch?{wrong}&history=1");
        assert_eq!(live.0.get(&target).status, 400, "{wrong}");
    }
}

fn a_document_goes_when_it_has_had_its_time(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &[]);
    let mut events = live.subscribe("/live/x", &[]);
    let fields = ["Content-Type: application/json", "Push-TTL: 1"];
    assert_eq!(live.publish("PUT", "/live/x", &fields, "1").status, 201);
    assert_eq!(events.data(), "1");
    assert_eq!(events.event().1, "delete");
    assert_eq!(live.0.get("/live/x").status, 404);
}

fn acknowledged_changes_survive_a_kill(kept: &Kept) {
    let origin = Origin::start();
    let mut seen = String::new();
    for round in 0..8 {
        let mut live = kept.start(&origin, &[]);
        if round > 0 {
            let before = format!("{}", round - 1);
            live.0.get("/live/x").assert_is(200, &before);
            // What was seen before is known after it.
            let mut events = live.subscribe("/live/x", &[&format!("Last-Event-ID: {seen}")]);
            live.put("/live/y", &before);
            let put = live.put("/live/x", &format!("{round}"));
            let (id, kind, data) = events.event();
            assert_eq!((kind.as_str(), data), ("put", round.to_string()));
            assert_eq!(format!("\"{id}\""), tag(&put));
            seen = id;
        } else {
            tag(&live.put("/live/x", "0"))
                .trim_matches('"')
                .clone_into(&mut seen);
        }
        live.0.signal(Signal::KILL);
        live.0.wait();
    }
}

#[test]
fn a_torn_log_is_good_up_to_there() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let log = kept.0.file("documents/documents.log");
    {
        let mut live = kept.start(&origin, &[]);
        live.put("/live/x", "1");
        live.put("/live/y", "2");
        live.0.signal(Signal::KILL);
        live.0.wait();
    }
    let whole = fs::read(&log).expect("the log");
    fs::write(&log, &whole[..whole.len() - 3]).expect("a torn log");
    {
        let mut live = kept.start(&origin, &[]);
        live.0.output_with("documents.torn");
        let tail = fs::read(kept.0.file("documents/documents.torn")).expect("what was cut off");
        assert!(whole[..whole.len() - 3].ends_with(&tail) && !tail.is_empty());
        live.0.get("/live/x").assert_is(200, "1");
        assert_eq!(live.0.get("/live/y").status, 404);
        assert_eq!(live.put("/live/z", "3").status, 201);
        live.0.signal(Signal::KILL);
        live.0.wait();
    }
    let live = kept.start(&origin, &[]);
    live.0.get("/live/z").assert_is(200, "3");
    drop(live);
    fs::write(&log, "something else").expect("no log");
    let directory = kept.0.file("documents");
    let url = format!("http://{}", origin.address());
    let (status, output) =
        Proxy::refusal(&[&url, "--push", "/live/", "--push-directory", &directory]);
    assert_eq!(status, Some(1), "{output}");
    assert!(
        output.contains("documents.log is not a log of documents"),
        "{output}"
    );
}

/// The numbers of lost versions are used once more. A subscriber that has seen the lost ones must not mistake
/// the new ones for them.
#[test]
fn after_a_damage_nothing_is_called_as_something_else_was() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let log = kept.0.file("documents/documents.log");
    let [first, lost] = {
        let mut live = kept.start(&origin, &[]);
        let tags = ["1", "2"].map(|value| tag(&live.put("/live/x", value)));
        live.put("/live/x", "3");
        live.0.signal(Signal::KILL);
        live.0.wait();
        tags
    };
    let mut damaged = fs::read(&log).expect("the log");
    let third = damaged.windows(7).rposition(|it| it == b"/live/x");
    // Before its name are a checksum, a length and two numbers; before those the content of the second.
    let of_second = third.expect("it is there") - 33;
    damaged[of_second] ^= 1;
    fs::write(&log, &damaged).expect("a damaged log");
    let live = kept.start(&origin, &[]);
    assert!(kept.0.path().join("documents/documents.damaged").exists());
    let found = live.0.get("/live/x");
    found.assert_is(200, "1");
    assert_eq!(tag(&found), first, "it is what it was");
    assert_ne!(tag(&live.put("/live/x", "4")), lost);
    let seen = format!("Last-Event-ID: {}", lost.trim_matches('"'));
    let mut events = live.subscribe("/live/x", &[&seen]);
    assert_eq!(events.event().1, "reset");
}

/// As when a backup is put back, or the power fails with `push_sync = "never"`.
#[test]
fn a_directory_that_is_put_back_gives_no_version_out_twice() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let [documents, backup] = ["documents", "backup"].map(|name| kept.0.path().join(name));
    let flags = ["--push-history", "8"];
    let stop = |mut live: Live| {
        live.0.signal(Signal::TERM);
        live.0.wait();
    };
    let live = kept.start(&origin, &flags);
    let first = tag(&live.put("/live/x", "1"));
    fs::create_dir(&backup).expect("a directory");
    fs::copy(
        documents.join("documents.log"),
        backup.join("documents.log"),
    )
    .expect("a copy");
    let lost = ["2", "3"].map(|value| tag(&live.put("/live/x", value)));
    stop(live);
    fs::remove_dir_all(&documents).expect("removed");
    fs::rename(&backup, &documents).expect("put back");

    let live = kept.start(&origin, &flags);
    let has = |tag: &str| {
        live.0
            .get_with("/live/x", &[&format!("If-None-Match: {tag}")])
    };
    assert_eq!(has(&first).status, 304, "it is what it was");
    let others = ["other 2", "other 3"].map(|value| {
        let put = live.publish("PUT", "/live/x", &["Content-Type: text/plain"], value);
        tag(&put)
    });
    for lost in &lost {
        assert!(!others.contains(lost));
        has(lost).assert_is(200, "other 3");
        let condition = format!("If-Match: {lost}");
        let text = "Content-Type: text/plain";
        assert_eq!(
            live.publish("PUT", "/live/x", &[text, &condition], "lost")
                .status,
            412
        );
        let id = lost.trim_matches('"');
        let mut events = live.subscribe("/live/x", &[&format!("Last-Event-ID: {id}")]);
        assert_eq!(events.event().1, "reset");
        assert_eq!(events.event().2, "other 3");
        let watched = format!("/.well-known/microcache/watch?url=/live/x&version={id}");
        assert_eq!(live.subscribe(&watched, &[]).event().1, "reset");
    }
    // Who has seen what was in the copy goes on, over another start too.
    stop(live);
    let live = kept.start(&origin, &flags);
    assert_eq!(tag(&live.0.get("/live/x")), others[1]);
    for (seen, next) in [(&first, &others[0]), (&others[0], &others[1])] {
        let seen = format!("Last-Event-ID: {}", seen.trim_matches('"'));
        let (id, kind, _) = live.subscribe("/live/x", &[&seen]).event();
        assert_eq!((format!("\"{id}\""), kind.as_str()), (next.clone(), "put"));
    }
}

#[test]
fn one_process_at_a_time_has_a_directory() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let _first = kept.start(&origin, &[]);
    let directory = kept.0.file("documents");
    let url = format!("http://{}", origin.address());
    let flags = [&url, "--push", "/live/", "--push-directory", &directory];
    let (status, output) = Proxy::refusal(&flags);
    assert_eq!(status, Some(1), "{output}");
    assert!(
        output.contains("another process stores its documents"),
        "{output}"
    );
}

fn a_stalled_subscriber_costs_nothing_and_gets_the_latest(kept: &Kept) {
    let origin = Origin::start();
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "0");
    let mut stalled = live.subscribe("/live/x", &[]);
    let mut reading = live.subscribe("/live/x", &[]);
    assert_eq!(reading.data(), "0");
    // More than what the sockets between them hold.
    let page = |number: u32| format!("\"{number}:{}\"", "x".repeat(200_000));
    for number in 1..=100 {
        assert_eq!(live.put("/live/x", &page(number)).status, 204);
        if number % 10 == 0 {
            let last = page(number);
            while reading.data() != last {}
        }
    }
    assert_eq!(stalled.data(), "0");
    let mut reported = 0;
    while stalled.data() != page(100) {
        reported += 1;
    }
    assert!(
        reported < 99,
        "it was told {reported} versions that were out of date"
    );
}

#[test]
fn a_template_matches_its_expansions() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/news/1", "1");
    let watch = "/.well-known/microcache/watch?url=/live/news/%7Bid%7D";
    let mut events = live.subscribe(watch, &[]);
    assert!(events.data().contains("/live/news/1"));
    for (target, is_told) in [
        ("/live/news/1/comments", false),
        ("/live/new", false),
        ("/live/news/2", true),
        ("/live/news/a%20b", true),
    ] {
        live.put(target, "2");
        if is_told {
            assert!(events.data().contains(target), "{target}");
        }
    }
    for (url, status) in [
        ("/live/%7Ba%7D*", 400),
        ("/live/%7B", 400),
        (&*format!("/live/{}", "%7Ba%7D".repeat(17)), 400),
        // It names no documents.
        ("/other/%7Ba%7D", 400),
    ] {
        let answer = live
            .0
            .get(&format!("/.well-known/microcache/watch?url={url}"));
        assert_eq!(answer.status, status, "{url}: {}", answer.text());
    }
    let nine: Vec<_> = (0..9).map(|n| format!("url=/live/{n}/%7Ba%7D")).collect();
    let nine = format!("/.well-known/microcache/watch?{}", nine.join("&"));
    assert!(live.0.get(&nine).text().contains("at most 8 patterns"));
}

#[test]
fn concurrent_publications_are_bounded() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--push-max-document", "1KiB"]);
    let part = "x".repeat(1000);
    let head = |fields: &[&str]| {
        let authorization = format!("Authorization: Bearer {SECRET}");
        request("PUT", "/live/x", &[&[&*authorization][..], fields].concat())
    };
    // Sixteen of the largest may be on their way, and these do not come to an end.
    let mut slow = Vec::new();
    eventually("all of it to be there", || {
        let mut client = live.0.connect();
        client.send(head(&["Content-Length: 1001"]) + &part);
        slow.push(client);
        let another = live.publish("PUT", "/live/y", &[], &part);
        (another.status == 503).then(|| assert_eq!(another.field("retry-after"), Some("1")))
    });
    assert!(slow.len() >= 16, "{}", slow.len());
    // What is read is answered as ever, and what is small has its place.
    assert_eq!(live.0.get("/live/z").status, 404);
    assert_eq!(live.put("/live/z", "1").status, 201);
    drop(slow);
    eventually("room", || {
        let another = live.publish("PUT", "/live/y", &[], &part);
        (another.status < 300).then_some(())
    });
}

//! Changes between a request and the subscription that its response names are delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::push::{Kept, Live};
use crate::support::{Events, Origin, Proxy, Reply, Response};

const STREAM: &str = "Accept: text/event-stream";

/// The url that an answer names.
fn monitor(answer: &Response) -> String {
    let link = answer.field("link").expect("a link");
    let url = link.strip_prefix('<').and_then(|it| it.split_once(">; "));
    let (url, relation) = url.expect("a target");
    assert_eq!(relation, "rel=\"monitor\"");
    url.to_owned()
}

fn follow(proxy: &Proxy, url: &str, fields: &[&str]) -> Events {
    Events::begin(proxy.ask_with(url, &[&[STREAM], fields].concat()))
}

#[test]
fn updates_follow_from_the_version_that_was_read() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live: Live = kept.start(&origin, &[]);
    for path in ["/live/x", "/live/a%20b", "/live/a+b&c=d"] {
        live.put(path, "{\"n\":1,\"other\":\"more than the patch\"}");
        let read = live.0.get(path);
        let url = monitor(&read);
        assert_eq!(monitor(&live.0.send("HEAD", path, &[])), url);
        // It gets nothing that it has.
        let mut same = follow(&live.0, &url, &[]);
        let merge = ["Content-Type: application/merge-patch+json"];
        assert_eq!(live.publish("PATCH", path, &merge, "{\"n\":2}").status, 204);
        let reported = same.event();
        assert_eq!(reported.1, "put", "{path}");
        assert!(reported.2.contains("{\"n\":2,"), "{path}: {reported:?}");
        // It gets the changes of the meantime at once, as a delta if it wants that.
        assert_eq!(follow(&live.0, &url, &[]).event(), reported, "{path}");
        let (_, event, data) = follow(&live.0, &format!("{url}&deltas=1"), &[]).event();
        assert_eq!(event, "patch", "{path}");
        assert!(data.contains("\"patch\":{\"n\":2}"), "{path}: {data}");
        // Who has been told more than that says so.
        let mut back = follow(&live.0, &url, &[&format!("Last-Event-ID: {}", reported.0)]);
        live.put(path, "{\"n\":3}");
        assert!(back.data().contains("{\"n\":3}"), "{path}");
        // Of what is gone too, and not again of another one of the same name.
        live.publish("DELETE", path, &[], "");
        assert_eq!(follow(&live.0, &url, &[]).event().1, "delete", "{path}");
        live.put(path, "{\"n\":4}");
        assert!(
            follow(&live.0, &url, &[]).data().contains("{\"n\":4}"),
            "{path}"
        );
    }
    // Of several, each from its own version.
    let versions = ["/live/x", "/live/y"].map(|path| {
        live.put(path, "{\"n\":5}");
        let url = monitor(&live.0.get(path));
        url.split_once('?').expect("a query").1.to_owned()
    });
    live.put("/live/x", "{\"n\":6}");
    let both = format!(
        "/.well-known/microcache/watch?{}&{}",
        versions[1], versions[0]
    );
    let mut events = follow(&live.0, &both, &[]);
    assert!(events.data().contains("\"url\":\"/live/x\""));
    live.put("/live/y", "{\"n\":6}");
    assert!(events.data().contains("\"url\":\"/live/y\""));
    // A version that is none of ours is no knowledge.
    let mut unknown = follow(
        &live.0,
        "/.well-known/microcache/watch?url=/live/x&version=1.1",
        &[],
    );
    assert_eq!(unknown.event().1, "reset");
    assert!(unknown.data().contains("{\"n\":6}"));
    let (_, page) = (live.0.get("/live/none").status, live.0.get("/live/a%2A"));
    assert_eq!(page.field("link"), None);
}

#[test]
fn an_id_without_a_document_names_no_version() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "{\"n\":1}");
    let merge = ["Content-Type: application/merge-patch+json"];
    live.publish("PATCH", "/live/x", &merge, "{\"n\":2}");
    // A subscriber of other documents has an id of them, with the versions of that time.
    let id = live
        .put("/live/y", "1")
        .field("etag")
        .expect("a tag")
        .replace('"', "");
    live.publish("PATCH", "/live/x", &merge, "{\"n\":3}");
    let watch = "/.well-known/microcache/watch?url=/live/x&deltas=1";
    let (_, event, data) = follow(&live.0, watch, &[&format!("Last-Event-ID: {id}")]).event();
    assert_eq!(event, "put", "{data}");
    let poll = live.0.get(&format!("{watch}&last_event_id={id}"));
    assert!(poll.text().contains("\"event\":\"put\""), "{}", poll.text());
}

#[test]
fn a_page_names_its_entity_tag() {
    let origin = Origin::start();
    let answer = |tag: &str, body: &str| {
        let fields = ["Cache-Control: max-age=1000", tag];
        Reply::new(200).with_all(&fields).body(body)
    };
    let first = "ETag: W/\"first\"";
    origin.on("/news/?a=1&b=*x").reply(answer(first, "first"));
    let is_second = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&is_second);
    origin.on("/news/?a=1").answer(move |_| {
        if says.load(Ordering::SeqCst) {
            answer("ETag: \"second\"", "second")
        } else {
            answer(first, "first")
        }
    });
    origin.on("/untagged").reply(answer("X-A: b", "untagged"));
    origin
        .on("/private")
        .reply(Reply::new(200).with("Cache-Control: private").body("x"));
    origin.on("/error").reply(
        Reply::new(404)
            .with("Cache-Control: max-age=1000")
            .body("x"),
    );
    let (proxy, admin) = Proxy::operated(&origin, &["--watch", "stored"]);
    let url = monitor(&proxy.get("/news/?a=1"));
    assert_eq!(
        url,
        "/.well-known/microcache/watch?url=/news/%3Fa%3D1&etag=W/%22first%22"
    );
    let hit = proxy.get("/news/?a=1");
    hit.assert_hit();
    hit.assert_is(200, "first");
    assert_eq!(monitor(&hit), url);
    assert_eq!(monitor(&proxy.send("HEAD", "/news/?a=1", &[])), url);
    let known = proxy.get_with("/news/?a=1", &["If-None-Match: W/\"first\""]);
    assert_eq!((known.status, known.field("link")), (304, None));
    let untagged = monitor(&proxy.get("/untagged"));
    assert_eq!(untagged, "/.well-known/microcache/watch?url=/untagged");
    assert!(
        follow(&proxy, &untagged, &[])
            .data()
            .contains("\"event\":\"page\"")
    );
    for target in ["/private", "/error", "/news/?a=1&b=*x"] {
        assert_eq!(proxy.get(target).field("link"), None, "{target}");
    }
    // A subscriber with the current version gets the next one only.
    let mut watcher = follow(&proxy, &url, &[]);
    // It may have got more by its own `Last-Event-ID`: then it gets the version in any case.
    let again = follow(&proxy, &url, &["Last-Event-ID: -"]).data();
    assert!(again.contains("\"etag\":\"W/\\\"first\\\"\""), "{again}");
    let mut other = follow(&proxy, &url.replace("first", "zeroth"), &[]);
    assert!(other.data().contains("first"));
    // Two tabs with different versions both get it.
    let two = format!("{url}&url=/news/%3Fa=1");
    assert!(follow(&proxy, &two, &[]).data().contains("first"));
    assert!(
        follow(&proxy, &format!("{url}&url=/untagged"), &[])
            .data()
            .contains("/untagged")
    );
    is_second.store(true, Ordering::SeqCst);
    crate::operators::Operator::at(admin).purge(&serde_json::json!({"all": true}));
    assert_eq!(watcher.event().1, "purge");
    assert_eq!(
        monitor(&proxy.get("/news/?a=1")),
        url.replace("W/%22first", "%22second")
    );
    assert!(watcher.data().contains("second"));
}

#[test]
fn where_nothing_is_watched_nothing_is_named() {
    let origin = Origin::start();
    let page = || Reply::ok(&["Cache-Control: max-age=1000"], "x");
    origin.on("/page").reply(page());
    origin.on("/watched").reply(page());
    let proxy = Proxy::start(&origin, &[]);
    for _ in 0..2 {
        assert_eq!(proxy.get("/page").field("link"), None);
    }
    let text = format!(
        "listen = \"127.0.0.1:0\"\norigin = \"http://{}\"\n[[routes]]\nmatch = {{ path = \"/watched\" }}\nwatch = \"stored\"\n",
        origin.address()
    );
    let proxy = Proxy::with_config(&text);
    for _ in 0..2 {
        assert_eq!(proxy.get("/page").field("link"), None);
        assert!(proxy.get("/watched").field("link").is_some());
    }
}

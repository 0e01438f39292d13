//! Refused requests, which cost other clients nothing.

use serde_json::json;

use super::*;

#[test]
fn subscriptions_that_mean_nothing_are_refused() {
    let hub = Hub::open(&[]);
    let long = format!("topic={}", "x".repeat(1025));
    let many = "topic=x&".repeat(101);
    let variables = format!("topic={}", "%7Ba%7D".repeat(17));
    for (query, says) in [
        ("", "no topic to subscribe to"),
        ("lastEventID=1", "no topic to subscribe to"),
        ("Topic=a", "no topic to subscribe to"),
        ("topic=%FF", "UTF-8"),
        ("topic=a%0Ab", "control characters"),
        (&long, "longer than 1024 bytes"),
        (&many, "100 topics"),
        (&variables, "more than 16 variables"),
        ("match_urlpattern=/(", "URL pattern"),
        ("match_urlpattern=/(%5Cw%7B999%7D)%7B999%7D", "URL pattern"),
        ("match_regex=.*", "match_regex"),
        ("topic=a&Match=b", "Match"),
        ("topic=a&matched=b", "matched"),
    ] {
        let answer = hub.get(query, &[]);
        assert_eq!(answer.status, 400, "{query:.80}");
        assert!(
            answer.text().contains(says),
            "{query:.80}: {}",
            answer.text()
        );
    }
    assert_eq!(hub.stats()["subscribers"], 0);
    // A target of 64 KB is too long for any resource.
    let huge = format!("topic={}", "x".repeat(64 * 1024));
    assert!([400, 414, 431].contains(&hub.get(&huge, &[]).status));
}

#[test]
fn publications_that_could_be_taken_for_something_else_are_refused() {
    let hub = Hub::open(&["--push-max-document", "128KiB"]);
    let mut events = hub.subscribe("topic=*", &[]);
    let long = format!("topic={}", "x".repeat(64 * 1024));
    let many: Vec<_> = (0..101).map(|number| format!("topic={number}")).collect();
    let many = many.join("&");
    let large = format!("topic=a&data={}", "x".repeat(128 * 1024));
    for (form, expected) in [
        ("", 400),
        ("data=x", 400),
        ("topic=", 400),
        ("topic=*", 400),
        ("topic=%FF", 400),
        ("topic=a%0Ddata:+x", 400),
        ("topic=a&id=%23x", 400),
        ("topic=a&id=earliest", 400),
        ("topic=a&id=1%0Adata:+forged", 400),
        ("topic=a&type=x%0A%0Aid:+forged", 400),
        ("topic=a&type=%00", 400),
        ("topic=a&retry=1%0Aid:+forged", 400),
        ("topic=/.well-known/mercure/subscriptions/x/y", 400),
        (&long, 413),
        (&many, 413),
        (&large, 413),
    ] {
        let answer = hub.publish(form);
        assert_eq!(answer.status, expected, "{form:.80}: {}", answer.text());
    }
    let by = bearer(&json!({"publish": ["*"]}));
    let json = ["Content-Type: application/json", "Content-Length: 2", &by];
    let mut client = hub.proxy.connect();
    client.send(request("POST", HUB, &json) + "{}");
    assert_eq!(client.response().status, 415);
    for (method, expected) in [("PUT", 405), ("DELETE", 405), ("OPTIONS", 204)] {
        let answer = hub.proxy.send(method, HUB, &["Content-Length: 0"]);
        assert_eq!(answer.status, expected, "{method}");
        assert_eq!(answer.field("allow"), Some("GET, HEAD, POST, OPTIONS"));
    }
    // No subscriber got any of it.
    hub.published("topic=a&id=fine");
    assert_eq!(events.event().0, "fine");
    assert!(hub.origin.requests().is_empty());
}

#[test]
fn different_templates_are_bounded() {
    let hub = Hub::open(&[]);
    let mut known = Vec::new();
    for number in 0..1024 / 64 {
        let templates: Vec<_> = (0..64)
            .map(|one| format!("topic=/{number}/{one}/%7Bx%7D"))
            .collect();
        known.push(hub.subscribe(&templates.join("&"), &[]));
    }
    for number in 0..2000 {
        let answer = hub.get(&format!("topic=/more/{number}/%7Bx%7D"), &[]);
        assert_eq!(answer.status, 503);
        assert_eq!(answer.field("retry-after"), Some("1"));
    }
    // Other clients are served as before.
    hub.published("topic=/3/5/x&id=1");
    assert_eq!(known[3].event().0, "1");
    let mut exact = hub.subscribe("topic=/more/1/x&topic=/0/0/%7Bx%7D", &[]);
    hub.published("topic=/more/1/x&id=2");
    assert_eq!(exact.event().0, "2");
    let stats = hub.stats();
    assert_eq!(
        (
            &stats["subscribers"],
            &stats["topics"],
            &stats["subscriptions_rejected"]
        ),
        (&json!(17), &json!(1025), &json!(2000))
    );
    drop(known);
    crate::support::eventually("room for others", || {
        (hub.stats()["subscribers"] == 1).then_some(())
    });
    hub.subscribe("topic=/more/%7Bx%7D", &[]);
}

#[test]
fn subscribers_are_bounded() {
    let hub = Hub::open(&["--push-max-subscribers", "2"]);
    let _known = [hub.subscribe("topic=a", &[]), hub.subscribe("topic=a", &[])];
    let answer = hub.get("topic=a", &[]);
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("push_max_subscribers"));
}

#[test]
fn without_a_key_the_path_is_the_application_s() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    proxy.get(&format!("{HUB}?topic=a"));
    assert_eq!(origin.requests().len(), 1);
    let folder = Folder::new();
    let file = folder.write("key", "too short");
    let (code, reported) =
        Proxy::refusal(&["http://localhost:1", "--mercure-publisher-key-file", &file]);
    assert_ne!(code, Some(0));
    assert!(
        reported.contains("mercure_publisher_key_file") && reported.contains("32 bytes"),
        "{reported}"
    );
}

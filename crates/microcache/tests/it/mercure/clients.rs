//! Foreign clients: Symfony's component publishes, a library for JavaScript and a browser subscribe, and the reference
//! hub's own published cases are played by a browser.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::*;
use crate::support::{Browser, Reply, left_out};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mercure");
/// Where `make test` puts the library for JavaScript.
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/eventsource");

impl Hub {
    fn url(&self) -> String {
        format!("http://{}{HUB}", self.proxy.address())
    }
}

/// What Symfony's component has published, by its own words.
fn symfony(hub: &Hub) -> Option<Value> {
    if !Path::new("/usr/share/php/Symfony/Component/Mercure/Hub.php").exists() {
        left_out(
            "a Mercure hub with Symfony's component, which is not installed (php-symfony-mercure)",
        );
        return None;
    }
    let mut php = Command::new("php");
    let output = php
        .args([&format!("{HERE}/publish.php"), &hub.url(), SECRET])
        .output();
    let output = output.expect("php can be run");
    let reported = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let json = reported
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    Some(json.unwrap_or_else(|| panic!("{reported}{complaint}")))
}

#[test]
fn symfony_publishes() {
    let hub = Hub::open(&[]);
    let books = "topic=https://example.com/books/%7Bid%7D";
    let mut anybody = hub.subscribe(books, &[]);
    let may = bearer(&json!({"subscribe": ["https://example.com/users/7"]}));
    let mut reader = hub.subscribe(books, &[&may]);
    let Some(reported) = symfony(&hub) else {
        return;
    };
    let id = reported["ids"][0].as_str().expect("an id");
    assert!(id.starts_with("urn:uuid:"), "{reported}");
    assert_eq!(reported["ids"][1], "urn:test:2");
    assert_eq!(reported["ids"][2], 403, "{reported}");
    let first = format!("id: {id}\ndata: {{\"status\":\"OutOfStock\"}}");
    assert_eq!(anybody.next(), first);
    assert_eq!(reader.next(), first);
    assert_eq!(
        reader.next(),
        "id: urn:test:2\nevent: sold\nretry: 30\ndata: two\ndata: lines é +&="
    );
    hub.published("topic=https://example.com/books/3&id=3");
    assert_eq!(anybody.event().0, "3");
    // The cookie that it makes for a visitor's browser opens what is private.
    assert_eq!(reported["path"], HUB);
    let cookie = format!("Cookie: {}", reported["cookie"].as_str().expect("a cookie"));
    let mut visitor = hub.subscribe(&format!("{books}&lastEventID=earliest"), &[&cookie]);
    assert_eq!(
        (visitor.event().0, visitor.event().0),
        (id.to_owned(), "urn:test:2".to_owned())
    );
}

#[test]
fn a_javascript_library_subscribes_and_reconnects() {
    if !Path::new(LIBRARY).join("node_modules").exists() {
        left_out("a Mercure hub with a client for JavaScript, which is not installed (npm)");
        return;
    }
    let hub = Hub::start(&[]);
    let until = |seconds| {
        token(&json!({"exp": seconds_from_now(seconds), "mercure": {"subscribe": ["*"]}}))
    };
    let script = Path::new(LIBRARY).join("subscribe.mjs");
    let mut client = Command::new("node")
        .arg(script)
        .args([
            &hub.url(),
            "3",
            &format!("{},{}", until(8), until(600)),
            "/books/{id}",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("node can be run");
    let lines = BufReader::new(client.stdout.take().expect("it says something")).lines();
    let mut reported =
        lines.map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
    let mut next = || reported.next().expect("another line");
    assert_eq!(next(), json!({"status": 200, "seen": null, "after": null}));
    hub.published("topic=/books/1&id=1&data=one&private");
    assert_eq!(next(), json!({"type": "message", "data": "one", "id": "1"}));
    hub.published("topic=/books/2&id=2&data=%C3%A9%0D%0A2&type=sold&retry=50");
    assert_eq!(next(), json!({"type": "sold", "data": "é\n2", "id": "2"}));
    // The token ends, and the stream with it. The client comes back with what it has seen.
    assert_eq!(next(), json!({"status": 200, "seen": "2", "after": "2"}));
    hub.published("topic=/books/2&id=3&data=");
    assert_eq!(next(), json!({"type": "message", "data": "", "id": "3"}));
    assert!(client.wait().expect("it ends").success());
}

/// One of the reference hub's cases: its name, the topics that are published to, what is subscribed to, whether the
/// update is private, and whether it comes.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    bool,
    bool,
);

/// The table of `conformance-tests/mercure.spec.ts` as of 1.0. `*R` stands for a random string. Those of 0.x write
/// `{random}` where these have `:random`.
const CASES: &[Case] = &[
    ("raw string", &["*R0"], &["*R0"], false, true),
    (
        "multiple topic selectors",
        &["*R2"],
        &["foo", "*R2"],
        false,
        true,
    ),
    (
        "URI",
        &["https://example.net/foo/*R3"],
        &["https://example.net/foo/*R3"],
        false,
        true,
    ),
    (
        "URL pattern",
        &["https://example.net/foo/*R4"],
        &["https://example.net/foo/:random"],
        false,
        true,
    ),
    (
        "nonmatching raw string",
        &["will-not-match"],
        &["another-name"],
        false,
        false,
    ),
    (
        "nonmatching URI",
        &["https://example.net/foo/will-not-match"],
        &["https://example.net/foo/another-name"],
        false,
        false,
    ),
    (
        "nonmatching URL pattern",
        &["https://example.net/foo/will-not-match"],
        &["https://example.net/bar/:var"],
        false,
        false,
    ),
    ("private raw string", &["*R0"], &["*R0"], true, false),
    (
        "private URI",
        &["https://example.net/foo/*R3"],
        &["https://example.net/foo/*R3"],
        true,
        false,
    ),
    (
        "private URL pattern",
        &["https://example.net/foo/*R4"],
        &["https://example.net/foo/:random"],
        true,
        false,
    ),
];

/// Plays the cases one after the other, as the suite does, by the browser's own `EventSource` and fetch. That an update
/// does not come is known when one comes that was published after it.
const PLAYER: &str = r#"<!doctype html><script type="module">
for (const it of cases) {
  const url = new URL("/.well-known/mercure", location.origin);
  for (const selector of it.selectors) {
    const isPattern = /\/:[A-Za-z_]/.test(selector);
    if (it.is0x) url.searchParams.append("topic", selector.replace(/:(\w+)$/, "{$1}"));
    else url.searchParams.append(isPattern ? "match_urlpattern" : "match", selector);
  }
  url.searchParams.append("topic", "the-end");
  const update = new URLSearchParams();
  for (const topic of it.topics) update.append("topic", topic);
  update.set("id", `id-${JSON.stringify(it.topics)}`);
  update.set("data", `data for\n\n        ${it.name}`);
  if (it.isPrivate) update.set("private", "on");
  const source = new EventSource(url);
  await new Promise(resolve => source.onopen = resolve);
  let received = false;
  const ended = new Promise(resolve => source.onmessage = event => {
    if (event.data === "the-end") resolve();
    else received = event.type === "message" && event.lastEventId === update.get("id") && event.data === update.get("data");
  });
  const post = body => fetch(url.pathname, { method: "POST", headers: { Authorization: `Bearer ${token}` }, body });
  const answer = await post(update);
  const id = await answer.text();
  await post(new URLSearchParams({ topic: "the-end", data: "the-end" }));
  await ended;
  source.close();
  const told = { name: it.name, is0x: it.is0x, received, status: answer.status, type: answer.headers.get("Content-Type"), isOwnId: id === update.get("id") };
  await fetch("/told?" + encodeURIComponent(JSON.stringify(told)));
}
await fetch("/all-told");
</script>"#;

/// The token of the suite.
const PUBLISHED_TOKEN: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6ImF0K2p3dCJ9.eyJhdWQiOiJodHRwczovL2xvY2FsaG9zdC8ud2VsbC1rbm93bi9tZXJjdXJlIiwiaXNzIjoiaHR0cHM6Ly9s",
    "b2NhbGhvc3QiLCJhdXRob3JpemF0aW9uX2RldGFpbHMiOlt7InR5cGUiOiJodHRwczovL21lcmN1cmUucm9ja3MvYXV0aG9yaXphdGlvbi1kZXRhaWwiLCJhY3Rp",
    "b25zIjpbInB1Ymxpc2giXSwidG9waWNzIjpbeyJtYXRjaCI6IioifV19LHsidHlwZSI6Imh0dHBzOi8vbWVyY3VyZS5yb2Nrcy9hdXRob3JpemF0aW9uLWRldGFp",
    "bCIsImFjdGlvbnMiOlsic3Vic2NyaWJlIl0sInRvcGljcyI6W3sibWF0Y2giOiIqIn1dfV0sImV4cCI6NDEwMjQ0NDgwMH0.z_S8IP5WZsCK8h3pcq0PB5zvJE0",
    "OdTrGA70khAYJQy4",
);

#[test]
fn the_published_cases_of_the_reference_hub_are_played_by_a_browser() {
    let hub = Hub::open(&[]);
    let random = |texts: &[&str]| {
        texts
            .iter()
            .map(|it| it.replace("*R", "7f3c9a51e0"))
            .collect::<Vec<_>>()
    };
    let cases: Vec<_> = [false, true]
        .iter()
        .flat_map(|is_0x| {
            CASES.iter().map(move |(name, topics, selectors, is_private, _)| {
                json!({"name": name, "topics": random(topics), "selectors": random(selectors), "isPrivate": is_private, "is0x": is_0x})
            })
        })
        .collect();
    let script = format!(
        "<script>const token = {}, cases = {};</script>{PLAYER}",
        json!(PUBLISHED_TOKEN),
        json!(cases)
    );
    hub.origin
        .on("/")
        .answer(move |_| Reply::ok(&["Content-Type: text/html; charset=utf-8"], script.clone()));
    let url = format!("http://{}/", hub.proxy.address());
    let Some(_browser) = Browser::open(&url, &[], "the published cases of Mercure's reference hub")
    else {
        return;
    };
    hub.origin.wait_for("/all-told", 1);
    let reported: Vec<_> = hub
        .origin
        .requests()
        .into_iter()
        .filter_map(|seen| {
            let coded = seen.target.strip_prefix("/told?")?;
            let text = decoded(coded);
            Some(serde_json::from_str::<Value>(&text).expect("JSON"))
        })
        .collect();
    let expected: Vec<_> = [false, true].iter().flat_map(|is_0x| CASES.iter().map(move |(name, .., received)| json!({
        "name": name, "is0x": is_0x, "received": received, "status": 200, "type": "text/plain; charset=utf-8", "isOwnId": true,
    }))).collect();
    assert_eq!(reported, expected);
}

/// What stands percent-encoded in a query.
fn decoded(coded: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = coded.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|it| std::str::from_utf8(it).ok());
        if let Some(byte) = code.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

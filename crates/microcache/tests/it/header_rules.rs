//! Changes of header fields: what the application said decides about caching, what the operator said is sent.

use crate::support::http2::Http2;
use crate::support::{Origin, Proxy, Reply};

const SECURE: &str = r#"response_headers = { preset = "security", set = { X-Frame-Options = "DENY" }, add = { X-Host = "{scheme}://{host}" }, remove = ["X-Internal-*"] }"#;

fn proxy(origin: &Origin, lines: &str) -> Proxy {
    Proxy::with_config(&format!("origin = \"{}\"\n{lines}\n", origin.url()))
}

#[test]
fn hits_misses_passes_and_errors_are_changed_alike() {
    let origin = Origin::start();
    let proxy = proxy(&origin, SECURE);
    let told = [
        "Server: Apache",
        "X-Powered-By: PHP",
        "X-Internal-Node: 7",
        "x-frame-options: SAMEORIGIN",
        "Referrer-Policy: no-referrer",
    ];
    let page = |control: &str| {
        Reply::new(200)
            .with_all(&told)
            .with(&format!("Cache-Control: {control}"))
    };
    origin.on("/kept").reply(page("max-age=60").body("x"));
    origin.on("/own").reply(page("no-store").body("x"));
    origin.on("/broken").reply(Reply::hang_up());
    origin
        .on("/tagged")
        .reply(page("max-age=60").with("ETag: \"a\"").body("x"));
    let check = |target: &str, status: u16| {
        let response = proxy.get_with(target, &["If-None-Match: \"a\""]);
        assert_eq!(response.status, status, "{target}");
        let fields = |name| response.field(name).map(str::to_owned);
        for gone in ["server", "x-powered-by", "x-internal-node"] {
            assert_eq!(fields(gone), None, "{target} {gone}");
        }
        let frames = response.head.all("x-frame-options");
        assert_eq!(frames, ["DENY"], "{target}");
        assert_eq!(fields("x-content-type-options").as_deref(), Some("nosniff"));
        assert_eq!(fields("x-host").as_deref(), Some("http://example.com"));
        fields("referrer-policy")
    };
    for _ in 0..2 {
        assert_eq!(check("/kept", 200).as_deref(), Some("no-referrer"));
        assert_eq!(check("/own", 200).as_deref(), Some("no-referrer"));
        assert_eq!(check("/tagged", 304).as_deref(), Some("no-referrer"));
    }
    let supplied = check("/broken", 502);
    assert_eq!(supplied.as_deref(), Some("strict-origin-when-cross-origin"));
    assert_eq!(origin.count("/kept"), 1);
}

#[test]
fn http2_gets_the_same_fields() {
    let origin = Origin::start();
    let proxy = proxy(&origin, SECURE);
    origin.on("/").reply(Reply::ok(
        &["Cache-Control: max-age=60", "Server: Apache"],
        "x",
    ));
    let mut client = Http2::connect(proxy.address());
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!(answer.field("x-frame-options"), Some("DENY"));
        assert_eq!(answer.field("server"), None);
        assert_eq!(answer.text(), "x");
    }
}

#[test]
fn changes_may_depend_on_the_status() {
    let origin = Origin::start();
    let proxy = proxy(
        &origin,
        r#"response_headers = [{ status = "200-299", set = { X-Good = "1" } }, { status = "404", set = { X-Robots-Tag = "noindex" } }]"#,
    );
    origin.on("/").reply(Reply::new(200).body("x"));
    origin.on("/missing").reply(Reply::new(404).body("x"));
    let (good, missing) = (proxy.get("/"), proxy.get("/missing"));
    assert_eq!(
        (good.field("x-good"), good.field("x-robots-tag")),
        (Some("1"), None)
    );
    assert_eq!(
        (missing.field("x-good"), missing.field("x-robots-tag")),
        (None, Some("noindex"))
    );
}

#[test]
fn the_application_gets_the_operators_fields_only() {
    let origin = Origin::start();
    let proxy = proxy(
        &origin,
        r#"
trusted_proxies = "127.0.0.0/8"
request_headers = { set = { X-Real-IP = "{client_address}", X-Forwarded-Ssl = "off", X-Environment = "live" } }
"#,
    );
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: max-age=60").body("x"));
    let forged = [
        "X-Environment: test",
        "X-Real-IP: 6.6.6.6",
        "X-Forwarded-For: 192.0.2.7",
    ];
    assert!(!proxy.get_with("/", &forged).is_hit());
    assert!(proxy.get("/").is_hit(), "they are not part of the key");
    let seen = origin.wait_for("/", 1);
    assert_eq!(seen.field("x-environment"), Some("live"));
    assert_eq!(seen.field("x-real-ip"), Some("192.0.2.7"));
    assert_eq!(seen.field("x-forwarded-ssl"), Some("off"));
}

#[test]
fn browsers_get_a_lifetime_of_their_own() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "browser_ttl = \"5m\"\nimmutable = \"hashed\"");
    let page = |control: &str| Reply::new(200).with(&format!("Cache-Control: {control}"));
    origin
        .on("/")
        .reply(page("max-age=1, s-maxage=60").body("x"));
    origin
        .on("/app.3f9a1c7e.js")
        .reply(page("max-age=60").body("x"));
    origin
        .on("/private")
        .reply(page("private, max-age=60").body("x"));
    origin
        .on("/must")
        .reply(page("max-age=60, must-revalidate").body("x"));
    origin
        .on("/cookie")
        .reply(page("max-age=60").with("Set-Cookie: a=1").body("x"));
    origin.on("/passed").reply(page("max-age=60").body("x"));
    let control = |target: &str, fields: &[&str]| {
        let response = proxy.get_with(target, fields);
        let age: u64 = response
            .field("age")
            .map_or(0, |age| age.parse().expect("a number"));
        let control = response.field("cache-control").expect("a line").to_owned();
        control.replace(&format!("max-age={}", 300 + age), "max-age=N")
    };
    for _ in 0..2 {
        assert_eq!(control("/", &[]), "max-age=N");
        assert_eq!(control("/private", &[]), "private, max-age=60");
        assert_eq!(control("/must", &[]), "max-age=60, must-revalidate");
        assert_eq!(control("/cookie", &[]), "max-age=60");
        let personal = control("/passed", &["Cookie: session=1"]);
        assert_eq!(personal, "max-age=60", "it may be one client's own");
        assert!(control("/app.3f9a1c7e.js", &[]).ends_with(", immutable"));
    }
    assert_eq!(
        control("/", &["Authorization: Basic eDp5"]),
        "max-age=1, s-maxage=60"
    );
}

#[test]
fn browsers_store_nothing_where_the_operator_says_so() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "browser_ttl = \"no-store\"");
    let page = Reply::new(200).with("Cache-Control: public, s-maxage=60");
    origin.on("/").reply(page.clone().body("x"));
    origin
        .on("/cookie")
        .reply(page.with("Set-Cookie: a=1").body("x"));
    let missing = Reply::new(404).with("Cache-Control: max-age=60");
    origin.on("/missing").reply(missing.body("x"));
    for fields in [
        &[][..],
        &["Cookie: session=1"],
        &["Authorization: Basic eDp5"],
    ] {
        for target in ["/", "/cookie", "/missing"] {
            let response = proxy.get_with(target, fields);
            let control = response.field("cache-control");
            assert_eq!(control, Some("no-store"), "{target} {fields:?}");
        }
    }
}

#[test]
fn each_request_has_an_identifier_in_its_fields() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::ok(
        &["Cache-Control: max-age=1000", "X-Request-ID: stored"],
        "page",
    ));
    let proxy = proxy(
        &origin,
        r#"
        trusted_proxies = ["127.0.0.4"]
        request_headers = { set = { X-Request-ID = "{request_id}" } }
        response_headers = { set = { X-Request-ID = "{request_id}" }, remove = ["cache-status"] }
        "#,
    );
    let own = ["X-Request-ID: of-the-client"];
    let id = |client: &str| {
        let response = proxy.get_from(client, "/", &own);
        assert_eq!(response.field("cache-status"), None);
        let ids = response.head.all("x-request-id");
        assert_eq!(ids.len(), 1, "{ids:?}");
        ids[0].to_owned()
    };
    let first = id("127.0.0.1");
    assert!(
        first.len() == 32 && first.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{first}"
    );
    let sent = &origin.seen("/")[0];
    assert_eq!(sent.field("x-request-id"), Some(&*first));
    assert_ne!(id("127.0.0.1"), first);
    assert_eq!(id("127.0.0.4"), "of-the-client");
    let mut http2 = Http2::connect(proxy.address());
    let answer = http2.get("/");
    assert_eq!(answer.field("cache-status"), None);
    assert!(
        answer
            .field("x-request-id")
            .is_some_and(|id| id.len() == 32 && id != first)
    );
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn surrogate_control_is_for_surrogates() {
    const CONTROL: &str = "Surrogate-Control: max-age=1000, content=\"ESI/1.0\"";
    let origin = Origin::start();
    let fields = [CONTROL, "Cache-Control: no-store"];
    origin.on("/").reply(Reply::ok(&fields, "page"));
    let lines = "trusted_proxies = [\"127.0.0.4\"]";
    let surrogate = proxy(
        &origin,
        &format!("{lines}\ntargeted = [\"Surrogate-Control\"]"),
    );
    let capability = ["Surrogate-Capability: cdn=\"Surrogate/1.0\""];
    let control = |client: &str, fields: &[&str]| {
        let response = surrogate.get_from(client, "/", fields);
        response.field("surrogate-control").map(str::to_owned)
    };
    for _ in 0..2 {
        assert_eq!(control("127.0.0.1", &[]), None);
        assert_eq!(control("127.0.0.1", &capability), None);
        assert_eq!(control("127.0.0.4", &[]), None);
        let passed = control("127.0.0.4", &capability);
        assert_eq!(passed.as_deref(), Some("max-age=1000, content=\"ESI/1.0\""));
    }
    assert_eq!(origin.count("/"), 1);
    // Elsewhere it is a field like any other.
    let other = proxy(&origin, lines);
    for count in 2..4 {
        assert!(other.get("/").field("surrogate-control").is_some());
        assert_eq!(origin.count("/"), count);
    }
}

//! Access rules of routes, for every way to a response.

use super::*;

/// Returns a session of a client at this address, with these lines in the configuration.
fn session_of(lines: &str, address: &str) -> Session {
    let shared = Arc::new(World::with(lines).shared);
    Session::new(shared, caller(address), Scheme::Http)
}

fn caller(address: &str) -> Caller {
    let proxy = "10.0.0.9".parse().expect("an address");
    match address.parse() {
        Ok(address) => Caller::at(address),
        Err(_) => Caller::through(proxy, None),
    }
}

async fn status(session: &mut Session, method: &str, target: &str, fields: &str) -> u16 {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let received = received(session, &method, target, fields).await;
    *received.last().expect("a response")
}

const OFFICE: &str = r#"
    trusted_proxies = "10.0.0.0/8"
    purge_from = "198.51.100.9"
    routes = [
        { name = "office", match = { path = "/office/*" }, allow = "192.0.2.0/24", deny = "192.0.2.66" },
        { name = "closed", match = { path = "/closed/*" }, deny = "all" },
    ]
"#;

#[tokio::test]
async fn a_route_admits_clients_by_address() {
    for (address, fields, expected) in [
        ("192.0.2.1", "", 200),
        ("192.0.2.66", "", 403),
        ("198.51.100.1", "", 403),
        ("::ffff:192.0.2.1", "", 200),
        ("unknown", "", 403),
        // Only a trusted proxy names its client, and only the last one it does not trust itself counts.
        ("198.51.100.1", "X-Forwarded-For: 192.0.2.1\r\n", 403),
        ("192.0.2.1", "X-Forwarded-For: 198.51.100.1\r\n", 200),
        ("10.0.0.1", "X-Forwarded-For: 192.0.2.1\r\n", 200),
        (
            "10.0.0.1",
            "X-Forwarded-For: 192.0.2.1, 198.51.100.1\r\n",
            403,
        ),
        (
            "10.0.0.1",
            "X-Forwarded-For: 198.51.100.1, 192.0.2.1\r\n",
            200,
        ),
        ("10.0.0.1", "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\n", 200),
        ("10.0.0.1", "X_Forwarded_For: 192.0.2.1\r\n", 403),
        ("10.0.0.1", "Forwarded: for=192.0.2.1\r\n", 403),
        ("10.0.0.1", "X-Real-IP: 192.0.2.1\r\n", 403),
        ("10.0.0.1", "", 403),
    ] {
        let mut session = session_of(OFFICE, address);
        let office = status(&mut session, "GET", "/office/a", fields).await;
        assert_eq!(office, expected, "{address} {fields}");
        assert_eq!(status(&mut session, "GET", "/closed/a", fields).await, 403);
        assert_eq!(status(&mut session, "GET", "/", fields).await, 200);
    }
}

#[tokio::test]
async fn no_request_for_a_stored_page_avoids_the_rules() {
    let world = World::with(OFFICE);
    let (shared, origin) = (Arc::new(world.shared), world.origin);
    let session = |address| Session::new(Arc::clone(&shared), caller(address), Scheme::Http);
    assert_eq!(
        status(&mut session("192.0.2.1"), "GET", "/office/a", "").await,
        200
    );
    let mut stranger = session("198.51.100.1");
    for (method, target, fields, expected) in [
        ("GET", "/office/a", "", 403),
        ("HEAD", "/office/a", "", 403),
        ("OPTIONS", "/office/a", "", 403),
        ("POST", "/office/a", "", 403),
        ("GET", "/office/a", "Range: bytes=0-0\r\n", 403),
        ("GET", "/office/a", "If-None-Match: *\r\n", 403),
        ("GET", "/office/a", "Cache-Control: only-if-cached\r\n", 403),
        ("GET", "/office/a", "Cookie: a=b\r\n", 403),
        ("GET", "/office/a?x", "", 403),
        ("GET", "/x/..%2foffice/a", "", 400),
        ("GET", "/%6fffice/a", "", 400),
        ("GET", "//office/a", "", 400),
        ("GET", "/office/..;/a", "", 400),
        // Purges have a list of their own.
        ("PURGE", "/office/a", "", 403),
        ("BAN", "/office/a", "", 403),
    ] {
        let received = status(&mut stranger, method, target, fields).await;
        assert_eq!(received, expected, "{method} {target} {fields}");
    }
    assert_eq!(
        origin.requests.lock().len(),
        1,
        "none has reached the application"
    );
    let mut office = session("192.0.2.2");
    assert_eq!(status(&mut office, "GET", "/office/a", "").await, 200);
    assert_eq!(status(&mut office, "HEAD", "/office/a", "").await, 200);
    assert_eq!(origin.requests.lock().len(), 1, "they are hits");
    let denied = shared.metrics.snapshot().of(Outcome::Limited);
    assert_eq!(denied, 9);
}

#[tokio::test]
async fn routes_inherit_the_rules_of_the_top_unless_they_have_some() {
    let mut session = session_of(
        r#"
        deny = "192.0.2.1"
        routes = [
            { match = { path = "/open/*" }, allow = "all" },
            { match = { path = "/own/*" }, deny = "192.0.2.2" },
            { match = { path = "/inherits/*" }, ttl = "1h" },
        ]
        "#,
        "192.0.2.1",
    );
    for (target, expected) in [
        ("/", 403),
        ("/open/a", 200),
        ("/own/a", 200),
        ("/inherits/a", 403),
    ] {
        assert_eq!(
            status(&mut session, "GET", target, "").await,
            expected,
            "{target}"
        );
    }
}

//! Access rules of routes, for every way to a response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use microcache_testkit::Folder;

use super::*;
use crate::config::Source;

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

/// Returns the shared state and the origin of a site with these users and passwords, and these lines.
fn site_of(users: &[(&str, &str)], lines: &str) -> (Arc<Shared>, Arc<Echo>) {
    let folder = Folder::new();
    let hash = |password: &str| bcrypt::hash(password, 4).expect("a hash");
    let users = users
        .iter()
        .map(|(user, password)| format!("{user}:{}", hash(password)));
    let users = folder.write("users", users.collect::<Vec<_>>().join("\n"));
    let lines = lines.replace(
        "USERS",
        &format!("{{ file = {users:?}, realm = \"Staging\" }}"),
    );
    let source = Source {
        file: Some(folder.write("microcache.toml", lines).into()),
        urls: vec!["http://localhost:3000".to_owned()],
        ..Source::default()
    };
    let world = World::of(source.read().expect("the configuration is right"));
    (Arc::new(world.shared), world.origin)
}

fn basic(user: &str, password: &str) -> String {
    let token = STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {token}\r\n")
}

/// Returns the final response.
pub(super) async fn response(
    session: &mut Session,
    method: &Method,
    target: &str,
    fields: &str,
) -> Response {
    let now = session.shared.engine.clock.now();
    let request = Request {
        fields: Fields::new(fields.as_bytes()),
        ..request(session, method, target)
    };
    let unanswered = match reply(session, &request, now) {
        (_, Reply::Now(response)) => return response,
        (_, Reply::Deferred(unanswered)) => unanswered,
    };
    let (mut answering, _) = session.ask(unanswered, Version::HTTP_11, None);
    loop {
        if let RequestEvent::Answer(mut answered) = answering.next().await {
            // Read to its end, so that it is stored.
            while let Some(Ok(_)) = answered.response.body.frame().await {}
            return answered.response;
        }
    }
}

#[tokio::test]
async fn users_with_passwords_share_what_is_stored() {
    let (shared, origin) = site_of(
        &[("ann", "secret"), ("bob", "hunter2")],
        "basic_auth = USERS",
    );
    let mut session = Session::new(shared, caller("192.0.2.1"), Scheme::Http);
    let (ann, bob) = (basic("ann", "secret"), basic("bob", "hunter2"));
    let get = Method::GET;
    let unknown = response(&mut session, &get, "/", "").await;
    let challenge = unknown.fields().get("www-authenticate");
    assert_eq!(
        challenge,
        Some(&b"Basic realm=\"Staging\", charset=\"UTF-8\""[..])
    );
    assert_eq!(unknown.status, 401);
    for wrong in [
        basic("ann", "hunter2"),
        basic("eve", "secret"),
        basic("ann", ""),
        basic("", ""),
        format!("{ann}{bob}"),
        "Authorization: Bearer secret\r\n".to_owned(),
        "Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n".to_owned(),
        "Authorization_: Basic YW5uOnNlY3JldA==\r\n".to_owned(),
    ] {
        assert_eq!(
            response(&mut session, &get, "/", &wrong).await.status,
            401,
            "{wrong}"
        );
    }
    assert_eq!(origin.requests.lock().len(), 0);
    let first = response(&mut session, &get, "/", &ann).await;
    assert_eq!((first.status, first.outcome), (200, Outcome::Miss));
    // The first request of another user waits for the password, and is a hit all the same.
    for _ in 0..2 {
        let hit = response(&mut session, &get, "/", &bob).await;
        assert_eq!((hit.status, hit.outcome), (200, Outcome::Hit));
        let said = hit.fields().get("cache-control");
        assert_eq!(said, Some(&b"private, max-age=100"[..]));
    }
    for (method, fields) in [
        ("GET", "Range: bytes=0-0\r\n"),
        ("GET", "If-None-Match: *\r\n"),
        ("HEAD", ""),
        ("OPTIONS", ""),
        ("POST", ""),
        ("DELETE", ""),
    ] {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let received = response(&mut session, &method, "/", fields).await;
        assert_eq!(received.status, 401, "{method} {fields}");
    }
    assert_eq!(origin.requests.lock().len(), 1);
    // A cookie is personal as everywhere.
    let personal = format!("{ann}Cookie: session=1\r\n");
    let passed = response(&mut session, &get, "/other", &personal).await;
    assert_eq!((passed.status, passed.cache_status.stored), (200, false));
}

#[tokio::test]
async fn the_application_receives_what_was_sent_while_the_password_was_verified() {
    let (shared, origin) = site_of(&[("ann", "secret")], "basic_auth = USERS");
    let mut session = Session::new(shared, caller("192.0.2.1"), Scheme::Http);
    let fields = basic("ann", "secret");
    let post = Request {
        fields: Fields::new(fields.as_bytes()),
        has_body: true,
        ..request(&session, &Method::POST, "/form")
    };
    let now = session.shared.engine.clock.now();
    let (_, Reply::Deferred(unanswered)) = reply(&session, &post, now) else {
        panic!("the password is not known yet");
    };
    let announced = AnnouncedContent {
        length: Some(3),
        expects_continue: false,
    };
    let (mut answering, content) = session.ask(unanswered, Version::HTTP_11, Some(announced));
    let mut content = content.expect("it was announced");
    let sending = async {
        assert!(content.ready().await);
        content.send(Frame::Data(Bytes::from_static(b"abc")), false);
        assert!(content.ready().await);
        content.end();
    };
    let answer = async {
        loop {
            if let RequestEvent::Answer(answered) = answering.next().await {
                return answered.response;
            }
        }
    };
    let ((), response) = tokio::join!(sending, answer);
    assert_eq!((response.status, response.length), (200, Some(3)));
    assert_eq!(*origin.requests.lock(), ["POST http://a/form"]);
}

#[tokio::test]
async fn a_route_has_its_own_users_or_none() {
    let lines = r#"
        basic_auth = USERS
        push = "/live/"
        push_directory = "none"
        routes = [
            { name = "open", match = { path = "/open/*" }, basic_auth = "off" },
            { name = "any", match = { path = "/any/*", cookie = "beta" }, basic_auth = "off" },
        ]
    "#;
    let (shared, origin) = site_of(&[("ann", "secret")], lines);
    let mut session = Session::new(shared, caller("192.0.2.1"), Scheme::Http);
    let ann = basic("ann", "secret");
    for (target, fields, expected) in [
        ("/open/a", "", 200),
        ("/", "", 401),
        ("/", &*ann, 200),
        ("/live/a", "", 401),
        ("/.well-known/microcache/watch?url=/", "", 401),
        ("/x/..%2fopen/a", &*ann, 400),
        ("/open/..%2fa", "", 400),
        // What is stored behind the password is found by no other route.
        ("/any/a", &*ann, 200),
        ("/any/a", "", 401),
    ] {
        assert_eq!(
            status(&mut session, "GET", target, fields).await,
            expected,
            "{target}"
        );
    }
    let before = origin.requests.lock().len();
    let beta = "Cookie: beta=1; _ga=1\r\n";
    assert_eq!(status(&mut session, "GET", "/any/a", beta).await, 200);
    assert_eq!(origin.requests.lock().len(), before + 1);
}

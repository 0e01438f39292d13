//! Routes that ask an authentication server.

use super::*;
use crate::config::Route;

/// The application, which records the fields that concern users.
#[derive(Default)]
struct Application {
    requests: Mutex<Vec<String>>,
}

impl Origin for Application {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let fields = request.fields.fields();
        let shown = ["Remote-User", "Remote_User", "Cookie"].map(|name| {
            let values: Vec<_> = fields.all(name).collect();
            String::from_utf8_lossy(&values.join(&b"+"[..])).into_owned()
        });
        let target = String::from_utf8_lossy(&request.target).into_owned();
        self.requests
            .lock()
            .push(format!("{} {target} {}", request.method, shown.join("|")));
        let vary = target.contains("vary");
        Box::pin(async move {
            let mut fields = FieldsBuf::new();
            fields.push("Cache-Control", "public, max-age=100");
            if vary {
                fields.push("Vary", "Remote-User");
            }
            Ok(whole(200, fields, "page"))
        })
    }
}

fn whole(status: u16, fields: FieldsBuf, body: &'static str) -> OriginResponse {
    OriginResponse {
        status,
        fields,
        length: Some(body.len() as u64),
        body: Body::Full(Bytes::from_static(body.as_bytes())),
        tunnel: None,
        waited: 0,
    }
}

/// The authentication server: it decides by the value of the cookie `sid`.
#[derive(Default)]
struct AuthServer {
    asked: Mutex<Vec<String>>,
}

impl Origin for AuthServer {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let fields = request.fields.fields();
        let cookie = String::from_utf8_lossy(fields.get("cookie").unwrap_or_default()).into_owned();
        let uri = String::from_utf8_lossy(fields.get("x-forwarded-uri").unwrap_or_default());
        let method = fields.get("x-forwarded-method").unwrap_or_default();
        let method = String::from_utf8_lossy(method);
        self.asked.lock().push(format!("{method} {uri} {cookie}"));
        let sid = cookie.split("; ").find_map(|one| one.strip_prefix("sid="));
        let sid = sid.unwrap_or_default().to_owned();
        Box::pin(async move {
            let mut fields = FieldsBuf::new();
            match &*sid {
                "" => {
                    fields.push("Location", "https://login.example/");
                    fields.push("Set-Cookie", "state=1");
                    fields.push("X-Secret", "inner");
                    Ok(whole(302, fields, "log in"))
                }
                "guest" => {
                    fields.push("WWW-Authenticate", "Bearer");
                    Ok(whole(401, fields, ""))
                }
                "eve" => Ok(whole(403, fields, "not you")),
                "broken" => Ok(whole(500, fields, "")),
                "odd" => Ok(whole(304, fields, "")),
                "down" => Err(OriginError::Down),
                "slow" => std::future::pending().await,
                user => {
                    fields.push("Remote-User", user);
                    if user == "new" {
                        fields.push("Set-Cookie", "sid=renewed");
                    }
                    Ok(whole(200, fields, "ignored"))
                }
            }
        })
    }
}

struct Site {
    shared: Arc<Shared>,
    application: Arc<Application>,
    server: Arc<AuthServer>,
}

impl Site {
    /// Returns a site with these options of `forward_auth`, and these lines.
    fn of(options: &str, lines: &str) -> Self {
        let auth = "url = \"http://127.0.0.1:9091/verify\", copy_headers = [\"Remote-User\"]";
        let text = format!("forward_auth = {{ {options}{auth} }}\n{lines}");
        let config = Config::read(Input {
            file: Some(("microcache.toml", &text)),
            urls: &["http://localhost:3000".to_owned()],
            ..Input::default()
        });
        let config = config.expect("the configuration is right");
        assert_eq!(config.upstreams[1].name, "auth 127.0.0.1:9091");
        assert!(config.routes.iter().all(Route::controls_access) || !lines.is_empty());
        let (application, server) = <(Arc<Application>, Arc<AuthServer>)>::default();
        let origins = [
            Arc::clone(&application) as Arc<dyn Origin>,
            Arc::clone(&server) as Arc<dyn Origin>,
        ];
        let world = World::behind(config, Arc::default(), &origins);
        Self {
            shared: Arc::new(world.shared),
            application,
            server,
        }
    }

    fn session(&self, address: &str) -> Session {
        let caller = Caller::at(address.parse().expect("an address"));
        Session::new(Arc::clone(&self.shared), caller, Scheme::Http)
    }

    /// Returns status, outcome and fields of the response to a GET.
    async fn get(&self, target: &str, fields: &str) -> (u16, Outcome, String) {
        let mut session = self.session("192.0.2.1");
        let method = Method::GET;
        let response = access::response(&mut session, &method, target, fields).await;
        let fields = String::from_utf8_lossy(response.fields().as_block()).into_owned();
        (response.status, response.outcome, fields)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.server.asked.lock())
    }

    fn forwarded(&self) -> Vec<String> {
        std::mem::take(&mut self.application.requests.lock())
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_decides_about_every_request() {
    let site = Site::of("session_cookie = \"sid\", ", "");
    assert_eq!(site.get("/", "Cookie: sid=ann\r\n").await.1, Outcome::Miss);
    // A hit waits for the decision too.
    let (status, outcome, fields) = site.get("/", "Cookie: sid=bob\r\n").await;
    assert_eq!((status, outcome), (200, Outcome::Hit));
    let said = "Cache-Control: private, max-age=100\r\n";
    assert!(fields.contains(said), "{fields}");
    assert_eq!(site.asked(), ["GET / sid=ann", "GET / sid=bob"]);
    // Nothing of the users has reached the application: they share the page.
    assert_eq!(site.forwarded(), ["GET / ||"]);
    let (status, _, fields) = site.get("/", "").await;
    assert_eq!(status, 302);
    assert!(
        fields.contains("Location: https://login.example/\r\nSet-Cookie: state=1\r\n"),
        "{fields}"
    );
    assert!(
        !fields.contains("X-Secret") && fields.contains("no-store"),
        "{fields}"
    );
    for (sid, expected) in [
        ("guest", 401),
        ("eve", 403),
        ("broken", 503),
        ("odd", 503),
        ("down", 503),
        ("slow", 503),
    ] {
        let fields = format!("Cookie: sid={sid}\r\n");
        assert_eq!(site.get("/", &fields).await.0, expected, "{sid}");
    }
    // A cookie of the server goes to its client, and is not stored.
    let (status, outcome, fields) = site.get("/", "Cookie: sid=new\r\n").await;
    assert_eq!((status, outcome), (200, Outcome::Hit));
    assert!(fields.contains("Set-Cookie: sid=renewed\r\n"), "{fields}");
    assert!(
        !site
            .get("/", "Cookie: sid=ann\r\n")
            .await
            .2
            .contains("Set-Cookie")
    );
    assert!(site.forwarded().is_empty());
}

#[tokio::test]
async fn personal_requests_carry_the_users_fields_and_shared_ones_do_not() {
    let site = Site::of(
        "session_cookie = \"sid\", ",
        "trusted_proxies = \"192.0.2.0/24\"",
    );
    let forged = "Cookie: sid=ann; cart=1\r\nRemote-User: root\r\nRemote_User: root\r\nremote-user: root\r\n";
    let (status, outcome, _) = site.get("/cart", forged).await;
    assert_eq!((status, outcome), (200, Outcome::Pass));
    assert_eq!(site.forwarded(), ["GET /cart ann||cart=1"]);
    let mut session = site.session("192.0.2.1");
    let method = Method::POST;
    let response = access::response(&mut session, &method, "/post", forged).await;
    assert_eq!(response.status, 200);
    assert_eq!(site.forwarded(), ["POST /post ann||cart=1"]);
    let forged = "Cookie: sid=ann\r\nRemote-User: root\r\nRemote_User: root\r\n";
    for target in ["/page", "/vary", "/vary"] {
        let (status, ..) = site.get(target, forged).await;
        assert_eq!(status, 200, "{target}");
    }
    for request in site.forwarded() {
        assert!(!request.contains("root"), "{request}");
        // The page that all receive was made for none of them.
        assert!(
            request.starts_with("GET /vary") || request == "GET /page ||",
            "{request}"
        );
    }
    assert_eq!(
        site.get("/page", "Cookie: sid=bob\r\n").await.1,
        Outcome::Hit
    );
}

#[tokio::test]
async fn a_cookie_is_personal_unless_it_is_the_servers() {
    let site = Site::of("", "");
    for _ in 0..2 {
        assert_eq!(site.get("/", "Cookie: sid=ann\r\n").await.0, 200);
    }
    let forwarded = site.forwarded();
    assert_eq!(forwarded[0], "GET / ann||sid=ann");
    assert!(!forwarded.iter().any(|it| it.contains("bob")));
}

#[tokio::test(start_paused = true)]
async fn an_admission_is_kept_for_its_very_request_only() {
    let site = Site::of("session_cookie = \"sid\", cache = \"5s\", ", "");
    let ann = "Cookie: sid=ann\r\n";
    for _ in 0..3 {
        assert_eq!(site.get("/", ann).await.0, 200);
    }
    assert_eq!(site.asked(), ["GET / sid=ann"]);
    for (target, fields, expected) in [
        ("/a", ann, 200),
        ("/?a", ann, 200),
        ("/", "Cookie: sid=ann; a=b\r\n", 200),
        ("/", "Cookie: sid=ann\r\nAuthorization: Bearer x\r\n", 200),
        ("/", "Cookie: sid=eve\r\n", 403),
        ("/", "", 302),
        ("/", "", 302),
    ] {
        assert_eq!(
            site.get(target, fields).await.0,
            expected,
            "{target} {fields}"
        );
        assert_eq!(site.asked().len(), 1, "{target} {fields}");
    }
    let mut other = site.session("192.0.2.2");
    access::response(&mut other, &Method::GET, "/", ann).await;
    access::response(&mut other, &Method::HEAD, "/", ann).await;
    assert_eq!(site.asked(), ["GET / sid=ann", "HEAD / sid=ann"]);
    // A kept admission sets the fields of personal requests as well.
    site.forwarded();
    for _ in 0..2 {
        site.get("/cart", "Cookie: sid=ann; cart=1\r\n").await;
    }
    assert_eq!(site.asked().len(), 1);
    assert_eq!(site.forwarded()[..1], ["GET /cart ann||cart=1"]);
}

#[tokio::test]
async fn a_request_that_comes_back_asks_no_further() {
    let site = Site::of("", "");
    let via = format!("Via: {}\r\n", site.shared.pseudonym.via());
    assert_eq!(site.get("/", &via).await.0, 502);
    assert!(site.asked().is_empty());
}

#[tokio::test]
async fn no_reading_of_a_path_avoids_the_server() {
    let lines =
        r#"routes = [{ name = "open", match = { path = "/open/*" }, forward_auth = "off" }]"#;
    let site = Site::of("session_cookie = \"sid\", ", lines);
    assert_eq!(site.get("/open/a", "").await.0, 200);
    assert!(site.asked().is_empty());
    for target in ["/open/..%2fa", "/x/..%2fopen/a", "/%6fpen/a"] {
        assert_eq!(
            site.get(target, "Cookie: sid=ann\r\n").await.0,
            400,
            "{target}"
        );
    }
    assert_eq!(site.get("/a", "").await.0, 302);
}

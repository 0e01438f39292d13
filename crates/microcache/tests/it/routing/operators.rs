//! Routes as operators see them: reloads of their files, explanations, and thousands of them.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::operators::Operator;
use crate::support::{Folder, Origin, Proxy, Reply};

/// `ann` with the passwords `secret` and `other`, at the lowest cost.
const SECRET: &str = "ann:$2y$04$kVn0HdV6A7qd/c5p.RucC.4yPLFfO2IFR9pLACu1HEfLvKPMxWvpe\n";
const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==";

#[test]
fn a_reload_reads_the_files_of_routes_again() {
    let (origin, folder) = (Origin::start(), Folder::new());
    origin.on("/page").reply(Reply::new(200).body("page"));
    let list = folder.write("redirects.txt", "/old /first\n");
    let missing = folder.write("404.html", "first");
    let robots = folder.write("robots.txt", "first");
    let users = folder.write("users", SECRET);
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let (proxy, admin) = Proxy::operated_by_file(&format!(
        r#"
origin = "{}"
redirects = "{list}"
error_pages = {{ 404 = "{missing}" }}
[[routes]]
match = {{ path = "/robots.txt" }}
respond = {{ file = "{robots}" }}
[[routes]]
match = {{ path = "/none" }}
respond = {{ status = 404 }}
[[routes]]
match = {{ path = "/page" }}
basic_auth = {{ file = "{users}" }}
"#,
        origin.url()
    ));
    let operator = Operator::at(admin);
    let mut open = proxy.connect();
    let mut look = || {
        let location = open.get("/old").field("location").map(str::to_owned);
        let texts = [open.get("/none").text(), open.get("/robots.txt").text()];
        (location, texts, proxy.get_with("/page", &[ANN]).status)
    };
    let all = |text: &str, status| {
        let texts = [text.to_owned(), text.to_owned()];
        (Some(format!("/{text}")), texts, status)
    };
    assert_eq!(look(), all("first", 200));
    fs::write(&list, "/old /second\n").expect("written");
    fs::write(&missing, "second").expect("written");
    fs::write(&robots, "second").expect("written");
    // Another user's hash: a password that was right before is no longer.
    fs::write(&users, SECRET.replace("ann:", "bob:")).expect("written");
    assert_eq!(look(), all("first", 200), "before the reload");
    operator.ask("POST", "/v1/reload", None);
    assert_eq!(look(), all("second", 401));
    // One file that cannot be used keeps all of them.
    fs::write(&list, "/old /third\n").expect("written");
    fs::write(&missing, "third").expect("written");
    fs::write(&users, "ann:secret\n").expect("written");
    let refused = operator.ask("POST", "/v1/reload", None);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused.text().contains("users, line 1"),
        "{}",
        refused.text()
    );
    fs::remove_file(&robots).expect("it is there");
    assert_eq!(operator.ask("POST", "/v1/reload", None).status, 422);
    assert_eq!(look(), all("second", 401));
}

#[test]
fn a_route_is_explained_in_the_order_of_its_decisions() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let list = folder.write("redirects.txt", "/old /new 301\n");
    let users = folder.write("users", SECRET);
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let (_proxy, admin) = Proxy::operated_by_file(&format!(
        r#"
origin = "{}"
redirects = "{list}"
[[routes]]
match = {{ path = "/blog/*" }}
redirect = {{ to = "/news/{{1}}", status = 308 }}
[[routes]]
match = {{ path = "/gone" }}
respond = {{ status = 410, body = "Gone." }}
[[routes]]
match = {{ path = "/closed" }}
deny = "all"
basic_auth = {{ file = "{users}" }}
respond = {{ status = 410 }}
[[routes]]
match = {{ path = "/staff" }}
basic_auth = {{ file = "{users}" }}
respond = {{ status = 204 }}
[[routes]]
name = "api"
match = {{ path = "/api/*", method = "GET" }}
strip_prefix = "/api"
"#,
        origin.url()
    ));
    let operator = Operator::at(admin);
    let explain = |target: &str, fields: &[&str]| -> Value {
        let url = format!("http://example.com{target}");
        operator.post("/v1/explain", &json!({"url": url, "headers": fields}))
    };
    for (target, fields, said) in [
        ("/blog/a?b=c", &[][..], &["308", "/news/a?b=c"][..]),
        ("/old", &[], &["301", "/new"]),
        ("/gone", &[], &["410"]),
        ("/closed", &[ANN], &["access-denied"]),
        ("/staff", &[], &["authentication-required"]),
        ("/staff", &[ANN], &["204"]),
        ("/api/x", &[], &["the origin is asked for `/x`", "\"api\""]),
        ("/x/..%2fclosed", &[], &["ambiguous-path"]),
    ] {
        let reported = explain(target, fields).to_string();
        for text in said {
            assert!(reported.contains(text), "{target}, {text}: {reported}");
        }
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn ten_thousand_routes_are_served() {
    const COUNT: usize = 10_000;
    let origin = Origin::start();
    let mut text = format!("origin = \"{}\"\n", origin.url());
    for number in 0..COUNT {
        let condition = match number % 3 {
            0 => format!("path = \"/{number}/*\""),
            1 => format!("host = \"h{number}.example\", path = \"*.p{number}\""),
            _ => format!("path = \"/{number}\", method = \"GET\""),
        };
        write!(text, "[[routes]]\nmatch = {{ {condition} }}\nresponse_headers = {{ set = {{ X-Route = \"{number}\" }} }}\nttl = \"1h\"\n").expect("text");
    }
    let (proxy, admin) = Proxy::operated_by_file(&text);
    for (target, host, route) in [
        ("/0/a", "example.com", Some("0")),
        ("/9999/a", "example.com", Some("9999")),
        ("/a.p9997", "h9997.example", Some("9997")),
        ("/a.p9997", "h9998.example", None),
        ("/9998", "example.com", Some("9998")),
        ("/9998/a", "example.com", None),
        ("/x", "example.com", None),
    ] {
        origin.on(target).reply(Reply::new(200).body("page"));
        let ask = || proxy.request(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let response = ask();
        assert_eq!(
            (response.status, response.field("x-route")),
            (200, route),
            "{target}"
        );
        assert!(route.is_none() || ask().is_hit(), "{target}");
    }
    let reloaded = Operator::at(admin).ask("POST", "/v1/reload", None);
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    assert_eq!(proxy.get("/9999/a").field("x-route"), Some("9999"));
}

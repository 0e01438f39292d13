//! What operators reach: purges, statistics, entries, health; and who may.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{
    Client, Folder, Origin, Proxy, Reply, Response, config_file, eventually, request,
};

/// The interface for operators of one proxy.
pub(crate) struct Operator {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<&'static str>,
}

impl Operator {
    pub(crate) const fn at(address: SocketAddr) -> Self {
        Self {
            address,
            token: None,
        }
    }

    pub(crate) fn ask(&self, method: &str, target: &str, body: Option<&str>) -> Response {
        let mut lines = vec![format!("Host: {}", self.address)];
        if let Some(token) = self.token {
            lines.push(format!("Authorization: Bearer {token}"));
        }
        if let Some(body) = body {
            lines.push("Content-Type: application/json".to_owned());
            lines.push(format!("Content-Length: {}", body.len()));
        }
        let head = format!(
            "{method} {target} HTTP/1.1\r\n{}\r\n\r\n",
            lines.join("\r\n")
        );
        let mut client = Client::connect(self.address);
        client.send(head + body.unwrap_or_default());
        client.response()
    }

    pub(crate) fn get(&self, target: &str) -> Value {
        let response = self.ask("GET", target, None);
        assert_eq!(response.status, 200, "{target}: {}", response.text());
        serde_json::from_str(&response.text()).expect("JSON")
    }

    pub(crate) fn post(&self, target: &str, body: &Value) -> Value {
        let response = self.ask("POST", target, Some(&body.to_string()));
        let is_accepted = [200, 202].contains(&response.status);
        assert!(is_accepted, "{body}: {}", response.text());
        serde_json::from_str(&response.text()).expect("JSON")
    }

    pub(crate) fn purge(&self, named: &Value) {
        self.post("/v1/purges", named);
    }
}

/// An origin whose every page says how often it was asked for, and has a tag.
fn counting() -> Origin {
    let origin = Origin::start();
    for target in ["/", "/blog/1", "/blog/2", "/shop?b=2&a=1"] {
        let mut times = 0;
        origin.on(target).answer(move |_| {
            times += 1;
            let tag = if times == 1 {
                "Cache-Tag: first, page"
            } else {
                "Cache-Tag: page"
            };
            Reply::ok(
                &[
                    "Cache-Control: max-age=600, stale-while-revalidate=600",
                    tag,
                ],
                times.to_string(),
            )
        });
    }
    origin
}

/// The url of a page, as the clients of these tests name its host.
fn url(target: &str) -> String {
    format!("http://example.com{target}")
}

#[test]
fn a_purge_makes_its_scope_be_fetched_again_and_nothing_else() {
    let targets = ["/", "/blog/1", "/blog/2", "/shop?b=2&a=1"];
    let origin = counting();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    let mut versions = [1; 4];
    let mut check = |named: &Value, purged: [bool; 4]| {
        operator.purge(named);
        for ((target, version), is_purged) in targets.iter().zip(&mut versions).zip(purged) {
            *version += i32::from(is_purged);
            proxy.get(target).assert_is(200, &version.to_string());
        }
    };
    for target in targets {
        proxy.get(target).assert_is(200, "1");
    }
    check(&json!({"url": url("/blog/1")}), [false, true, false, false]);
    // A TLS terminator in front of the cache makes it know the URL by another scheme.
    let secure = "https://example.com/blog/2";
    check(
        &json!({"url": [secure, url("/")]}),
        [true, false, true, false],
    );
    check(&json!({"url": url("/blog")}), [false; 4]);
    check(
        &json!({"url": url("/shop?b=2&a=1")}),
        [false, false, false, true],
    );
    check(&json!({"url": url("/shop")}), [false; 4]);
    check(
        &json!({"prefix": url("/blog/")}),
        [false, true, true, false],
    );
    check(
        &json!({"prefix": url("/shop?b")}),
        [false, false, false, true],
    );
    check(
        &json!({"glob": url("/*o*&a=*")}),
        [false, false, false, true],
    );
    check(&json!({"glob": url("/*/2")}), [false, false, true, false]);
    check(&json!({"host": "EXAMPLE.com:80"}), [true; 4]);
    check(&json!({"host": "example.org"}), [false; 4]);
    check(&json!({"tag": "first"}), [false; 4]);
    check(&json!({"tag": ["nobody", "page"]}), [true; 4]);
    check(&json!({"all": true}), [true; 4]);
}

#[test]
fn a_purge_by_url_ignores_parameters_outside_of_the_key() {
    let origin = counting();
    let file = config_file("key = { query = { ignore = [\"utm_*\"] } }");
    let path = file.to_str().expect("a path");
    let (proxy, admin) = Proxy::operated(&origin, &["--config", path]);
    proxy.get("/blog/1?utm_source=x").assert_is(200, "1");
    proxy.get("/blog/1").assert_hit();
    let operator = Operator::at(admin);
    operator.purge(&json!({"url": url("/blog/1?utm_medium=mail")}));
    proxy.get("/blog/1").assert_is(200, "2");
}

#[test]
fn a_purge_reports_the_number_of_its_entries() {
    let origin = counting();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    for target in ["/", "/blog/1", "/blog/2"] {
        proxy.get(target).assert_is(200, "1");
    }
    let operator = Operator::at(admin);
    for (named, entries) in [
        (json!({"prefix": url("/blog/"), "soft": true}), 2),
        (json!({"tag": "page"}), 3),
        (json!({"tag": "nobody"}), 0),
    ] {
        let answer = operator.ask("POST", "/v1/purges", Some(&named.to_string()));
        let answer: Value = serde_json::from_str(&answer.text()).expect("JSON");
        let id = answer["purges"][0]["id"].as_str().expect("an id");
        let path = format!("/v1/purges/{id}");
        eventually("memory is swept", || {
            (operator.get(&path)["swept"] == true).then_some(())
        });
        assert_eq!(operator.get(&path)["entries"], entries, "{named}");
    }
}

#[test]
fn a_soft_purge_serves_stale_during_the_refresh() {
    let origin = counting();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    proxy.get("/").assert_is(200, "1");
    operator.purge(&json!({"tag": "page", "soft": true}));
    let stale = proxy.get("/");
    stale.assert_is(200, "1");
    assert!(stale.cache().ttl() <= Some(0), "{stale:?}");
    eventually("the new page", || {
        (proxy.get("/").text() == "2").then_some(())
    });
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn purges_that_may_still_have_something_to_do_are_listed() {
    let origin = counting();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    operator.purge(&json!({"tag": "x"}));
    operator.purge(&json!({"prefix": url("/blog/"), "soft": true}));
    let listed = operator.get("/v1/purges");
    assert_eq!(listed["total"], 2);
    assert_eq!(listed["purges"][0]["prefix"], "example.com/blog/");
    assert_eq!(listed["purges"][0]["soft"], true);
    assert_eq!(listed["purges"][1]["tag"], "x");
}

#[test]
fn every_request_is_in_the_statistics_and_in_the_metrics_once() {
    let origin = counting();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    for _ in 0..3 {
        proxy.get("/");
    }
    proxy.send("POST", "/", &["Content-Length: 0"]);
    proxy.connect().send("nonsense\r\n\r\n");
    let stats = eventually("five requests", || {
        let stats = operator.get("/v1/stats");
        (stats["requests"]["total"] == 5).then_some(stats)
    });
    let requests = &stats["requests"];
    for (outcome, count) in [("hit", 2), ("miss", 1), ("pass", 1), ("error", 1)] {
        assert_eq!(requests[outcome], count, "{outcome}: {requests}");
    }
    assert_eq!(stats["origin"]["requests"], 2);
    assert_eq!(stats["upstreams"][0]["servers"][0]["requests"], 2);
    let metrics = operator.ask("GET", "/metrics", None);
    assert_eq!(
        metrics.field("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let text = metrics.text();
    for sample in [
        "microcache_requests_total{outcome=\"hit\"} 2",
        "microcache_requests_total{outcome=\"pass\"} 1",
        "microcache_origin_requests_total 2",
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample}:\n{text}");
    }
}

#[test]
fn stored_entries_are_listed_page_by_page() {
    let origin = counting();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    for target in ["/", "/blog/1", "/blog/2"] {
        proxy.get(target);
    }
    proxy.get("/blog/2").assert_hit();
    let mut listed = Vec::new();
    let mut after = String::new();
    loop {
        let page = operator.get(&format!("/v1/entries?limit=1{after}"));
        let entry = page["entries"][0].clone();
        assert_eq!(
            (&entry["status"], page["entries"].as_array().map(Vec::len)),
            (&json!(200), Some(1))
        );
        listed.push(entry["url"].as_str().expect("a url").to_owned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    listed.sort();
    assert_eq!(listed, ["/", "/blog/1", "/blog/2"].map(url));
    let count = |query: &str| {
        let page = operator.get(&format!("/v1/entries?{query}"));
        page["entries"].as_array().expect("a list").len()
    };
    assert_eq!(count(&format!("prefix={}", url("/blog/"))), 2);
    assert_eq!(count("tag=page"), 3);
    assert_eq!(count("tag=nobody"), 0);
    assert_eq!(count("min_hits=1"), 1);
    operator.purge(&json!({"tag": "page"}));
    assert_eq!(count("tag=page"), 0);
}

#[test]
fn requests_from_pages_of_other_sites_are_refused() {
    let origin = counting();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    proxy.get("/").assert_is(200, "1");
    let body = r#"{"all": true}"#;
    for line in [
        "Origin: http://example.org",
        "Host: example.org",
        "Sec-Fetch-Site: cross-site",
    ] {
        let host = format!("Host: {admin}");
        let mut lines = vec!["Content-Type: application/json", "Content-Length: 13", line];
        if !line.starts_with("Host") {
            lines.push(&host);
        }
        let mut client = Client::connect(admin);
        let head = format!("POST /v1/purges HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"));
        client.send(head + body);
        let response = client.response();
        assert_eq!(response.status, 403, "{line}: {}", response.text());
    }
    // Browsers send requests of forms without a preflight.
    let mut client = Client::connect(admin);
    client.send(format!(
        "POST /v1/purges HTTP/1.1\r\nHost: {admin}\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n{body}"
    ));
    assert_eq!(client.response().status, 415);
    proxy.get("/").assert_hit();
}

#[test]
fn with_a_token_requests_without_it_learn_nothing() {
    let secret = "correct-horse-battery";
    let folder = Folder::new();
    let path = folder.write("token", format!("{secret}\nand what follows\n"));
    let origin = counting();
    let (proxy, admin) = Proxy::operated(&origin, &["--admin-token-file", &path]);
    proxy.get("/").assert_is(200, "1");
    let as_one_with = |token| Operator {
        address: admin,
        token,
    };
    let body = r#"{"all": true}"#;
    for wrong in [
        None,
        Some("correct-horse-batter"),
        Some("correct-horse-battery2"),
        Some("and what follows"),
    ] {
        let stranger = as_one_with(wrong);
        for (method, target, body) in [
            ("POST", "/v1/purges", Some(body)),
            ("GET", "/v1/purges", None),
            ("GET", "/v1/stats", None),
            ("GET", "/v1/entries", None),
            ("GET", "/v1/explain?url=http://a/", None),
            ("POST", "/v1/explain", Some(body)),
            ("GET", "/metrics", None),
            ("POST", "/v1/drain", None),
            ("POST", "/v1/maintenance", Some("{}")),
            ("DELETE", "/v1/maintenance", None),
            ("POST", "/v1/reload", None),
            ("POST", "/v1/upgrade", None),
        ] {
            let response = stranger.ask(method, target, body);
            assert_eq!(
                response.status,
                401,
                "{method} {target}: {}",
                response.text()
            );
            assert_eq!(response.field("www-authenticate"), Some("Bearer"));
        }
    }
    for target in ["/v1/health", "/v1/ready"] {
        assert_eq!(as_one_with(None).ask("GET", target, None).status, 200);
    }
    proxy.get("/").assert_hit();
    let operator = as_one_with(Some(secret));
    assert_eq!(operator.get("/v1/stats")["admin"]["refused"], 48);
    operator.purge(&json!({"all": true}));
    proxy.get("/").assert_is(200, "2");
}

/// More connections than the interface has room for, each of which sends this and reads nothing.
fn besieged(admin: SocketAddr, sends: &str) -> Vec<Client> {
    let besiegers = (0..300).map(|_| {
        let mut client = Client::connect_narrow(admin);
        // It may have had to give way already.
        let _ = client.try_send(sends);
        client
    });
    besiegers.collect()
}

/// What keeps a connection busy, or seems to.
const SIEGES: [&str; 5] = [
    "",
    "GET /v1/stats HTTP/1.1\r\nHo",
    "POST /v1/purges HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
    "GET /assets/dashboard.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "GET /v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
];

fn slow_connections_lock_out_no_operator(operator: &Operator) {
    for sends in SIEGES {
        let besiegers = besieged(operator.address, &sends.repeat(64));
        for _ in 0..8 {
            assert_eq!(operator.ask("GET", "/v1/health", None).status, 200);
            assert_eq!(operator.get("/v1/ready")["ready"], true);
            operator.get("/v1/stats");
            operator.purge(&json!({"all": true}));
        }
        drop(besiegers);
    }
}

#[test]
fn clients_that_read_nothing_keep_no_operator_and_no_probe_out() {
    let origin = counting();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    slow_connections_lock_out_no_operator(&Operator::at(admin));
}

#[test]
fn nor_do_clients_without_the_secret() {
    let secret = "correct-horse-battery";
    let folder = Folder::new();
    let path = folder.write("token", secret);
    let origin = counting();
    let (_proxy, admin) = Proxy::operated(&origin, &["--admin-token-file", &path]);
    let token = Some(secret);
    slow_connections_lock_out_no_operator(&Operator {
        address: admin,
        token,
    });
}

#[test]
fn the_command_line_finds_address_and_secret_in_the_configuration() {
    let secret = "correct-horse-battery";
    let folder = Folder::new();
    let path = folder.write("token", secret);
    let origin = counting();
    let (_proxy, admin) = Proxy::operated(&origin, &["--admin-token-file", &path]);
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
            .args(arguments)
            .output()
            .expect("the binary can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    // A mistake elsewhere is no reason not to purge.
    let config = config_file(&format!(
        "admin = \"{admin}\"\nadmin_token_file = \"{path}\"\nmemory = 7\n"
    ));
    let config = config.display().to_string();
    let (code, said) = run(&["purge", "--all", "--config", &config]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    // The secret goes to the server that the configuration names, and to no other.
    let address = admin.to_string();
    let flags = ["stats", "--config", &config, "--admin", &address];
    let (code, said) = run(&flags);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("admin_token_file"), "{said}");
    let (code, said) = run(&["stats", "--config", "/nowhere"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("cannot read /nowhere"), "{said}");
}

#[test]
fn a_secret_that_is_missing_is_found_by_the_check() {
    let config =
        config_file("origin = \"http://localhost:3000\"\nadmin_token_file = \"/nowhere\"\n");
    let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .arg("check")
        .arg(&config)
        .output()
        .expect("the binary can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("/nowhere"), "{said}");
    assert!(said.contains(":2:"), "{said}");
}

#[test]
fn invalid_requests_are_refused_with_field_and_hint_and_change_nothing() {
    let origin = counting();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    proxy.get("/").assert_is(200, "1");
    let long = format!("http://a/{}", "x".repeat(64 * 1024));
    let many = vec!["x"; 257];
    let of_a_body = [
        (json!({"url": "/relative"}).to_string(), 400),
        (json!({"all": true, "url": "x"}).to_string(), 400),
        (json!({"tag": "x".repeat(1025)}).to_string(), 400),
        (json!({"tag": many}).to_string(), 400),
        (json!({"everthing": true}).to_string(), 400),
        (json!({}).to_string(), 400),
        ("{\"everything\": true".to_owned(), 400),
        (String::new(), 400),
        (json!({"tag": "x".repeat(300_000)}).to_string(), 413),
    ];
    for (body, status) in of_a_body {
        let response = operator.ask("POST", "/v1/purges", Some(&body));
        let reported = response.text();
        assert_eq!(
            response.status,
            status,
            "{}: {reported}",
            &body[..body.len().min(80)]
        );
        let reported: Value = serde_json::from_str(&reported).expect("JSON");
        assert!(
            reported["hint"]
                .as_str()
                .is_some_and(|remedy| !remedy.is_empty()),
            "{reported}"
        );
        assert!(
            reported["detail"]
                .as_str()
                .is_some_and(|detail| detail.len() < 500),
            "{reported}"
        );
    }
    // A url may be as long as it likes, if it is one.
    operator.purge(&json!({"url": long}));
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "order=up",
        "after=12",
        "tag=a&host=b",
        "x=1",
    ] {
        let response = operator.ask("GET", &format!("/v1/entries?{query}"), None);
        assert_eq!(response.status, 400, "{query}: {}", response.text());
    }
    assert_eq!(operator.ask("GET", "/v2", None).status, 404);
    assert_eq!(operator.ask("DELETE", "/v1/purges", None).status, 405);
    proxy.get("/").assert_hit();
}

#[test]
fn drain_finishes_requests_and_ends() {
    let origin = counting();
    let (mut proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    assert_eq!(operator.get("/v1/ready")["ready"], true);
    assert_eq!(operator.ask("POST", "/v1/drain", None).status, 202);
    assert!(proxy.wait().success());
    proxy.output_with("finishing the requests in progress");
}

#[test]
fn the_interface_is_no_part_of_the_listener_for_visitors() {
    let origin = Origin::start();
    origin
        .on("/v1/stats")
        .reply(Reply::new(200).body("the application's"));
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    proxy.get("/v1/stats").assert_is(200, "the application's");
    let mut client = Client::connect(admin);
    client.send(request("GET", "/v1/stats", &[]));
    assert_eq!(client.response().status, 403, "by another name");
}

/// Holds an answer against what the description says of it.
fn check_described(description: &Value, operation: &Value, response: &Response) {
    let status = response.status.to_string();
    let mut answer = &operation["responses"][&status];
    if let Some(shared) = answer["$ref"].as_str() {
        answer = description.pointer(&shared[1..]).expect("a response");
    }
    let kind = response.field("content-type").expect("a type");
    let kind = kind.split(';').next().expect("a type");
    let schema = &answer["content"][kind]["schema"];
    assert!(
        schema.is_object(),
        "{status} {kind} is not described: {operation}"
    );
    if kind.starts_with("text/") {
        return;
    }
    let reported: Value = serde_json::from_str(&response.text()).expect("JSON");
    check_schema(description, schema, &reported, &status);
}

/// Holds a value against a schema, as far as the description makes use of what schemas can say.
pub(crate) fn check_schema(description: &Value, schema: &Value, value: &Value, place: &str) {
    let rules = schema.as_object().expect("a schema");
    for (rule, wanted) in rules {
        let holds = match (rule.as_str(), wanted) {
            ("description" | "default" | "pattern", _) => true,
            ("$ref", Value::String(name)) => {
                let schema = description.pointer(&name[1..]).expect("a schema");
                check_schema(description, schema, value, place);
                true
            }
            ("type", Value::String(kind)) => is_of(kind, value),
            ("type", Value::Array(kinds)) => {
                let mut kinds = kinds.iter().filter_map(Value::as_str);
                kinds.any(|kind| is_of(kind, value))
            }
            ("const", wanted) => value == wanted,
            ("enum", Value::Array(values)) => values.contains(value),
            ("minimum", wanted) => value.is_null() || value.as_f64() >= wanted.as_f64(),
            ("maxLength", wanted) => {
                let length = value.as_str().map(|text| text.chars().count() as u64);
                length <= wanted.as_u64()
            }
            ("maxItems", wanted) => {
                value.as_array().map(|list| list.len() as u64) <= wanted.as_u64()
            }
            ("items", schema) => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    check_schema(description, schema, item, &format!("{place}/{number}"));
                }
                true
            }
            ("properties", Value::Object(properties)) => {
                for (name, schema) in properties {
                    if let Some(of) = value.get(name) {
                        check_schema(description, schema, of, &format!("{place}/{name}"));
                    }
                }
                true
            }
            ("required", Value::Array(names)) => {
                let mut names = names.iter().filter_map(Value::as_str);
                // Only objects can lack something.
                !value.is_object() || names.all(|name| value.get(name).is_some())
            }
            ("additionalProperties", Value::Bool(false)) => {
                let described = schema["properties"].as_object().expect("properties");
                let mut names = value.as_object().into_iter().flat_map(|value| value.keys());
                names.all(|name| described.contains_key(name))
            }
            (rule, wanted) => panic!("{place}: what is {rule} {wanted}?"),
        };
        assert!(holds, "{place}: {rule} {wanted}: {value}");
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        kind => panic!("what is {kind}?"),
    }
}

#[test]
fn everything_that_is_described_is_there_and_is_as_it_is_described() {
    let origin = counting();
    let folder = Folder::absent();
    let disk = format!("{},10MiB", folder.as_str());
    let file = config_file("ttl = \"1s\"\n");
    let config = file.display().to_string();
    let (proxy, admin) = Proxy::operated(&origin, &["--disk", &disk, "--config", &config]);
    proxy.get("/");
    let operator = Operator::at(admin);
    let description = operator.get("/v1/openapi.json");
    let paths = description["paths"].as_object().expect("paths");
    let mut requested = 0;
    // Two of them end the server, one never ends, one is asked for below, and one in `warming`.
    let apart = [
        "/v1/drain",
        "/v1/upgrade",
        "/v1/stream",
        "/v1/purges/{id}",
        "/v1/warm/{id}",
    ];
    let is_apart = |path: &str| apart.contains(&path);
    for (path, methods) in paths.iter().filter(|(path, _)| !is_apart(path)) {
        for (method, operation) in methods.as_object().expect("methods") {
            let all = json!({"url": url("/"), "prefix": url("/x"), "glob": url("/*x"), "host": "a", "tag": "b", "all": true});
            let page = json!({"url": url("/"), "method": "HEAD", "headers": ["Cookie: a=b"], "from": "::1", "fetch": true});
            let (target, body) = match path.as_str() {
                "/v1/explain" => (format!("{path}?url={}&method=GET", url("/")), page),
                "/v1/maintenance" => (
                    path.clone(),
                    json!({"allow": ["192.0.2.0/24"], "retry_after": 5}),
                ),
                "/v1/warm" => (path.clone(), json!({"urls": [url("/")]})),
                _ => (path.clone(), all),
            };
            let body = (method == "post").then(|| body.to_string());
            let response = operator.ask(&method.to_uppercase(), &target, body.as_deref());
            assert!(response.status < 300, "{method} {path}: {response:?}");
            check_described(&description, operation, &response);
            requested += 1;
        }
    }
    let purges = &paths["/v1/purges"];
    let refused = operator.ask("POST", "/v1/purges", Some("{}"));
    check_described(&description, &purges["post"], &refused);
    let bare = format!(r#"{{"url": "{}", "headers": []}}"#, url("/"));
    let of_variant = operator.ask("POST", "/v1/purges", Some(&bare));
    assert_eq!(of_variant.status, 200, "{of_variant:?}");
    check_described(&description, &purges["post"], &of_variant);
    let soft = operator.ask("POST", "/v1/purges", Some(r#"{"tag": "a", "soft": true}"#));
    check_described(&description, &purges["post"], &soft);
    let soft: Value = serde_json::from_str(&soft.text()).expect("JSON");
    let id = soft["purges"][0]["id"].as_str().expect("an id");
    for (id, status) in [(id, 200), ("0123456789abcdef", 404), ("no-number", 404)] {
        let one = operator.ask("GET", &format!("/v1/purges/{id}"), None);
        assert_eq!(one.status, status, "{one:?}");
        check_described(&description, &paths["/v1/purges/{id}"]["get"], &one);
    }
    check_described(
        &description,
        &purges["get"],
        &operator.ask("GET", "/v1/purges", None),
    );
    for parameter in paths["/v1/entries"]["get"]["parameters"]
        .as_array()
        .expect("parameters")
    {
        let name = parameter["name"].as_str().expect("a name");
        let value = match name {
            "url" | "prefix" | "glob" => "http://a/",
            "order" => "size",
            "tier" => "disk",
            "after" => continue,
            _ => "1",
        };
        let target = format!("/v1/entries?{name}={value}");
        let response = operator.ask("GET", &target, None);
        assert_eq!(response.status, 200, "{target}: {response:?}");
        check_described(&description, &paths["/v1/entries"]["get"], &response);
    }
    std::fs::write(&file, "ttl = 5\n").expect("written");
    let refused = operator.ask("POST", "/v1/reload", None);
    assert_eq!(refused.status, 422);
    check_described(&description, &paths["/v1/reload"]["post"], &refused);
    let drained = operator.ask("POST", "/v1/drain", None);
    check_described(&description, &paths["/v1/drain"]["post"], &drained);
    assert_eq!(requested, 20);
}

//! Another configuration for a server that runs: what comes into force, what stays, and what is refused.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::operators::Operator;
use crate::support::{
    Client, Folder, Gate, Origin, Proxy, Reply, Response, Signal, TierKind, TierServer,
    config_file, eventually, request,
};
use crate::tiers::{disk_in, end};

/// A running server whose file can be written anew.
pub(crate) struct Server {
    pub(crate) proxy: Proxy,
    admin: SocketAddr,
    file: PathBuf,
}

impl Server {
    pub(crate) fn start(origin: &Origin, text: &str) -> Self {
        let file = config_file(text);
        let name = file.display().to_string();
        let (proxy, admin) = Proxy::operated(origin, &["--config", &name]);
        Self { proxy, admin, file }
    }

    fn write(&self, text: &str) {
        fs::write(&self.file, text).expect("the file can be written");
    }

    fn ask(&self, method: &str, target: &str) -> Response {
        let mut client = Client::connect(self.admin);
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.admin);
        client.send(head);
        client.response()
    }

    /// Writes the file and has it read. Says what has changed.
    pub(crate) fn reload(&self, text: &str) -> Vec<String> {
        self.write(text);
        let response = self.ask("POST", "/v1/reload");
        assert_eq!(response.status, 200, "{}", response.text());
        let reported = json(&response);
        let changed = reported["changed"].as_array().expect("a list").iter();
        changed
            .map(|name| name.as_str().expect("a name").to_owned())
            .collect()
    }

    /// The same for a file that is refused. Gives the answer.
    fn refused(&self, text: &str) -> Value {
        self.write(text);
        let response = self.ask("POST", "/v1/reload");
        assert_eq!(response.status, 422, "{}", response.text());
        json(&response)
    }

    fn command(&self) -> Output {
        let admin = self.admin.to_string();
        Command::new(env!("CARGO_BIN_EXE_microcache"))
            .args(["reload", "--admin", &admin])
            .output()
            .expect("the binary can be run")
    }

    fn wait_for_line(&self, line: &str) {
        eventually(line, || self.proxy.output().contains(line).then_some(()));
    }
}

fn json(response: &Response) -> Value {
    serde_json::from_str(&response.text()).expect("JSON")
}

/// An origin whose pages say how often they were asked for, and nothing of caching.
fn counting(targets: &[&str]) -> Origin {
    let origin = Origin::start();
    for target in targets {
        let mut times = 0;
        origin.on(target).answer(move |_| {
            times += 1;
            Reply::new(200).body(times.to_string())
        });
    }
    origin
}

#[test]
fn an_open_connection_continues_under_the_new_rules_and_the_cache_stays() {
    let origin = counting(&["/", "/x"]);
    let server = Server::start(&origin, "ttl = \"10m\"\n");
    let mut client = server.proxy.connect();
    client.get("/").assert_is(200, "1");
    client.get("/x").assert_is(200, "1");
    client.get("/x").assert_hit();
    client.send(request("PURGE", "/none", &[]));
    let passed = client.response().text();
    assert_eq!(passed, "no script for /none", "it goes to the application");

    let text = "ttl = \"10m\"\npurge_from = \"127.0.0.1\"\n[[routes]]\nmatch = { path = \"/x\" }\npass = true\n";
    assert_eq!(server.reload(text), ["purge_from", "routes"]);
    client.get("/x").assert_forwarded("bypass");
    client.get("/").assert_hit();
    client.send(request("PURGE", "/", &[]));
    assert_eq!(client.response().status, 200);
    client.get("/").assert_is(200, "2");

    // What passed is not forgotten, and neither is what was stored before.
    assert_eq!(server.reload("ttl = \"10m\"\n"), ["purge_from", "routes"]);
    client.get("/x").assert_hit();
    client.get("/x").assert_is(200, "1");
    assert_eq!(server.reload("ttl = \"10m\"\n"), [""; 0]);
}

/// An option that gives all visitors the page of one, a request of that visitor, and the page.
const LOOSE: [(&str, &str, &[&str]); 5] = [
    ("ignore_cookies = \"user\"", "/", &["Cookie: user=bob"]),
    ("remove_headers = \"X-None\"", "/", &[]),
    ("ignore_vary = \"X-User\"", "/vary", &["X-User: bob"]),
    ("set_cookie = \"store\"", "/cookie", &[]),
    (
        "key = { query = { ignore = \"user\", forward = \"whole\" } }",
        "/?user=bob",
        &[],
    ),
];

/// An origin whose pages say how often they were asked for, and that they may be kept for an hour.
fn keeping() -> Origin {
    let origin = Origin::start();
    for (target, line) in [
        ("/", "X-Page: plain"),
        ("/?user=bob", "X-Page: of the query"),
        ("/vary", "Vary: X-User"),
        ("/cookie", "Set-Cookie: user=bob"),
    ] {
        let mut times = 0;
        origin.on(target).answer(move |_| {
            times += 1;
            let lasting = "Cache-Control: public, max-age=3600";
            Reply::ok(&[lasting, line], times.to_string())
        });
    }
    origin
}

#[test]
fn entries_of_wider_rules_are_not_found_under_narrower_ones() {
    for (loose, requested, fields) in LOOSE {
        let (origin, folder) = (keeping(), Folder::absent());
        let disk = format!("disk = \"{}\"\n", disk_in(&folder));
        let with = |text: &str| format!("{disk}{text}\n");
        let server = Server::start(&origin, &with(loose));
        server.proxy.get_with(requested, fields).assert_is(200, "1");
        let target = requested.split('?').next().expect("a path");
        let shared = server.proxy.get(target);
        shared.assert_hit();
        shared.assert_is(200, "1");

        server.reload(&with(&format!(
            "{loose}\nttl = \"5s\"\nstale_if_error = \"1h\""
        )));
        server.proxy.get(target).assert_hit();

        server.reload(&with("ttl = \"5s\""));
        let before = origin.requests().len();
        let now = server.proxy.get(target);
        assert!(!now.is_hit(), "{loose}: {now:?}");
        assert_eq!(origin.requests().len(), before + 1, "{loose}");
    }
}

#[test]
fn neither_is_it_found_on_the_disk_after_a_restart() {
    for (loose, requested, fields) in LOOSE {
        let (origin, folder) = (keeping(), Folder::absent());
        let start = |text: &str| {
            let text = format!("disk = \"{}\"\n{text}\n", disk_in(&folder));
            Server::start(&origin, &text)
        };
        let target = requested.split('?').next().expect("a path");
        let server = start(loose);
        server.proxy.get_with(requested, fields).assert_is(200, "1");
        end(server.proxy);
        let server = start(&format!("{loose}\nttl = \"5s\""));
        server.proxy.get(target).assert_hit();
        end(server.proxy);
        let server = start("");
        let now = server.proxy.get(target);
        assert!(!now.is_hit(), "{loose}: {now:?}");
    }
}

#[test]
fn a_purge_by_url_and_a_post_reach_entries_of_a_sealed_route() {
    let origin = keeping();
    let server = Server::start(
        &origin,
        "ignore_cookies = \"user\"\npurge_from = \"127.0.0.1\"\n",
    );
    server.proxy.get("/").assert_is(200, "1");
    server.proxy.get("/").assert_hit();
    assert_eq!(server.proxy.send("PURGE", "/", &[]).status, 200);
    server.proxy.get("/").assert_is(200, "2");
    server.proxy.send("POST", "/", &["Content-Length: 0"]);
    let after = server.proxy.get("/");
    assert!(!after.is_hit(), "{after:?}");
}

#[test]
fn bounds_on_clients_change() {
    let origin = counting(&["/"]);
    let server = Server::start(&origin, "");
    let mut client = server.proxy.connect();
    client.get("/").assert_is(200, "1");
    let changed = server.reload("max_connections = 2\nmax_target_size = \"1KiB\"\n");
    assert_eq!(changed, ["max_connections", "max_target_size"]);
    let long = format!("/?{}", "x".repeat(2000));
    assert_eq!(client.get(&long).status, 414);
    let stats = json(&server.ask("GET", "/v1/stats"));
    assert_eq!(stats["connections"]["max"], 2);
}

#[test]
fn a_file_with_mistakes_is_refused_whole_with_all_of_them() {
    let origin = counting(&["/"]);
    let server = Server::start(&origin, "ttl = \"10m\"\n");
    server.proxy.get("/").assert_is(200, "1");
    let bad = "ttl = \"1x\"\nmax_target_size = \"1KiB\"\ncolour = \"blue\"\nredis = \"redis://me:secret@h\"\n[[routes]]\nmatch = 5\n";
    let problem = server.refused(bad);
    let mistakes = problem["mistakes"].as_array().expect("mistakes");
    let lines: Vec<_> = mistakes.iter().map(|one| one["line"].as_u64()).collect();
    assert_eq!(lines, [Some(1), Some(3), Some(6)], "{problem}");
    let detail = problem["detail"].as_str().expect("text");
    assert!(
        detail.contains(".toml:3:1: unknown option `colour`"),
        "{detail}"
    );
    server
        .wait_for_line("configuration not reloaded (requested), the current one stays in force: ");
    let line = server.proxy.output();
    assert!(
        line.contains(":1:7: expected a number and a unit"),
        "{line}"
    );
    let reported = server.command();
    assert_eq!(reported.status.code(), Some(2));
    let reported = String::from_utf8_lossy(&reported.stderr).into_owned();
    assert!(reported.contains("3 | colour = \"blue\"\n"), "{reported}");
    // The old one is in force, in every part of it.
    let long = format!("/?{}", "x".repeat(2000));
    assert_ne!(server.proxy.get(&long).status, 414);
    server.proxy.get("/").assert_hit();
    let config = json(&server.ask("GET", "/v1/config"));
    assert_eq!(config["generation"], 0);
    // A file that is gone changes nothing either.
    fs::remove_file(&server.file).expect("removed");
    let response = server.ask("POST", "/v1/reload");
    assert_eq!(response.status, 422);
    assert!(
        response.text().contains("cannot read"),
        "{}",
        response.text()
    );
}

#[test]
fn a_password_of_redis_is_changed_without_a_restart() {
    let user = ["--user", "cache", "on", ">one", "~*", "&*", "+@all"];
    let redis = TierServer::start_with(TierKind::Redis, &user);
    let with = |password: &str, more: &str| {
        let address = format!("redis://cache:{password}@127.0.0.1:{}", redis.port());
        format!("redis = \"{address}\"\npush = \"/live/\"\npush_redis = \"{address}\"\n{more}")
    };
    let origin = counting(&["/"]);
    let server = Server::start(&origin, &with("one", ""));
    server.proxy.get("/");
    let problem = server.refused(&with("two", "")).to_string();
    assert!(
        problem.contains("invalid username or password"),
        "{problem}"
    );
    let problem = server
        .refused(&with("two", "redis_timeout = \"1s\"\n"))
        .to_string();
    assert!(
        problem.contains("`redis` cannot be changed by a reload"),
        "{problem}"
    );
    redis.say("ACL SETUSER cache >two");
    assert_eq!(server.reload(&with("two", "")), ["redis", "push_redis"]);
    redis.say("ACL SETUSER cache <one");
    redis.say("CLIENT KILL USER cache");
    let documents = || json(&server.ask("GET", "/v1/stats"))["push"]["redis"].clone();
    eventually("the documents are read again", || {
        let documents = documents();
        (documents["outages"] != 0 && documents["connected"] == true).then_some(())
    });
    // No purge is lost, neither before nor after.
    let purges = || json(&server.ask("GET", "/v1/stats"))["purges"].clone();
    eventually("the log is read again", || {
        purges()["last_error"].is_null().then_some(())
    });
    assert_eq!(
        (&purges()["lost"], &purges()["unpublished"]),
        (&json!(0), &json!(0))
    );
    server.proxy.get("/").assert_hit();
}

#[test]
fn options_that_need_a_restart_are_named_and_nothing_changes() {
    let origin = counting(&["/"]);
    let server = Server::start(&origin, "memory = \"64MiB\"\n");
    let problem = server.refused(
        "ttl = \"5s\"\nmemory = \"128MiB\"\ndisk = \"/nowhere,1GiB\"\nlog_level = \"debug\"\nmax_object = \"16MiB\"\n",
    );
    let mistakes = problem["mistakes"].as_array().expect("mistakes");
    let reported: Vec<_> = mistakes
        .iter()
        .filter_map(|one| one["message"].as_str())
        .collect();
    for (reported, name) in reported
        .iter()
        .zip(["memory", "disk", "log_level", "max_object"])
    {
        let begins = format!("`{name}` cannot ");
        assert!(reported.starts_with(&begins), "{reported}");
    }
    assert_eq!(reported.len(), 4, "{reported:?}");
    assert!(
        reported[0].contains("it is \"64MiB\", and would be \"128MiB\""),
        "{reported:?}"
    );
    assert!(
        mistakes[0]["hint"]
            .as_str()
            .expect("text")
            .contains("microcache upgrade")
    );
    let config = json(&server.ask("GET", "/v1/config"));
    assert_eq!(option(&config["options"], "ttl")["value"], "1s");
    // The same size in other words is no change.
    assert_eq!(server.reload("memory = \"65536KiB\"\n"), ["memory"]);
}

fn option<'a>(options: &'a Value, name: &str) -> &'a Value {
    let mut options = options.as_array().expect("options").iter();
    options.find(|one| one["name"] == name).expect(name)
}

#[test]
fn the_active_configuration_is_listed_with_sources_and_without_secrets() {
    let origin = counting(&["/"]);
    let text = "ttl = \"5s\"\n[upstreams.other]\nservers = \"http://127.0.0.1:9\"\nmax_queue = 7\n[[routes]]\nname = \"rest\"\nupstream = \"origin\"\nstale_if_error = \"1h\"\n";
    let server = Server::start(&origin, text);
    let config = json(&server.ask("GET", "/v1/config"));
    let check = |options: &Value, name: &str, value: &Value, source: &str, line: Option<u64>| {
        let setting = option(options, name);
        assert_eq!(&setting["value"], value, "{name}");
        assert_eq!(setting["source"], source, "{name}");
        assert_eq!(setting["line"].as_u64(), line, "{name}");
    };
    let top = &config["options"];
    check(top, "ttl", &"5s".into(), "file", Some(1));
    check(top, "stale_if_error", &"1d".into(), "default", None);
    check(
        top,
        "listen",
        &vec!["127.0.0.1:0"].into(),
        "command-line",
        None,
    );
    check(top, "max_connections", &Value::Null, "default", None);
    assert_eq!(
        option(top, "max_connections")["default"],
        "as many as file descriptors allow"
    );
    let (own, other) = (&config["upstreams"][0], &config["upstreams"][1]);
    assert_eq!(
        (&own["name"], &other["name"]),
        (&"origin".into(), &"other".into())
    );
    check(
        &own["options"],
        "origin",
        &vec![origin.url()].into(),
        "command-line",
        None,
    );
    check(&own["options"], "max_queue", &1024.into(), "default", None);
    check(&other["options"], "max_queue", &7.into(), "file", Some(4));
    let route = &config["routes"][0];
    assert_eq!(route["name"], "rest");
    check(&route["options"], "ttl", &"5s".into(), "file", Some(1));
    check(
        &route["options"],
        "stale_if_error",
        &"1h".into(),
        "file",
        Some(8),
    );

    // Nothing answers there, and it starts all the same.
    let (_proxy, admin) = Proxy::operated(&origin, &["--redis", "redis://me:secret@127.0.0.1:9"]);
    let mut client = Client::connect(admin);
    client.send(format!("GET /v1/config HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    let reported = client.response().text();
    assert!(!reported.contains("secret"), "{reported}");
    assert!(
        reported.contains("redis://*********@127.0.0.1:9"),
        "{reported}"
    );
}

#[test]
fn a_signal_and_a_changed_file_reload_too() {
    let origin = counting(&["/"]);
    let server = Server::start(&origin, "");
    server.write("ttl = \"10m\"\nreload_on_change = true\n");
    server.proxy.signal(Signal::HUP);
    server.wait_for_line("configuration reloaded (SIGHUP); changed: reload_on_change, ttl");
    server.proxy.get("/").assert_is(200, "1");
    server.proxy.get("/").assert_hit();
    server.write("ttl = \"11m\"\nreload_on_change = true\n");
    server.wait_for_line("configuration reloaded (a file has changed); changed: ttl");
    server.write("ttl = 5\n");
    server.wait_for_line(
        "configuration not reloaded (a file has changed), the current one stays in force: ",
    );
    server.write("ttl = \"12m\"\n");
    eventually("the file to be read", || {
        let config = json(&server.ask("GET", "/v1/config"));
        (option(&config["options"], "ttl")["value"] == "12m").then_some(())
    });
    let reported = server.command();
    assert_eq!(
        String::from_utf8_lossy(&reported.stdout),
        "reloaded; nothing changed\n"
    );
    assert!(reported.status.success());
}

#[test]
fn included_files_are_watched_and_their_mistakes_name_them() {
    let origin = counting(&["/"]);
    let folder = Folder::new();
    let pattern = folder.path().join("*.toml").display().to_string();
    let main = format!("include = [{pattern:?}]\nreload_on_change = true\n");
    let server = Server::start(&origin, &main);
    let part = folder.path().join("a.toml");
    fs::write(&part, "\nttl = \"10m\"\n").expect("written");
    server.wait_for_line("configuration reloaded (a file has changed); changed: ttl");
    let config = json(&server.ask("GET", "/v1/config"));
    let ttl = option(&config["options"], "ttl");
    let name = part.display().to_string();
    assert_eq!((&ttl["file"], &ttl["line"]), (&json!(name), &json!(2)));
    let problem = server.refused(&format!("{main}ttl = \"1m\"\n"));
    let mistake = &problem["mistakes"][0];
    assert_eq!(mistake["location"], format!("{name}:2:1"));
    assert_eq!(mistake["message"], "`ttl` is set twice");
    let here = format!("remove it here or at {}:3:1", server.file.display());
    assert_eq!(mistake["hint"], here);
    server.write(&main);
    fs::remove_file(&part).expect("removed");
    eventually("the file to be missed", || {
        let config = json(&server.ask("GET", "/v1/config"));
        (option(&config["options"], "ttl")["source"] == "default").then_some(())
    });
}

#[test]
fn a_server_without_a_file_cannot_reload() {
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let mut client = Client::connect(admin);
    client.send(format!("POST /v1/reload HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    let response = client.response();
    assert_eq!(response.status, 409);
    assert!(response.text().contains("without a configuration file"));
    drop(proxy);
}

#[test]
fn tunnels_streams_and_requests_under_way_outlive_the_group_they_went_to() {
    const SWITCHING: &str =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (origin, old) = (Origin::start(), Origin::start());
    let groups = format!("[upstreams.old]\nservers = \"{}\"\n", old.url());
    let route = "[[routes]]\nmatch = { path = \"/old/*\" }\nupstream = \"old\"\n";
    let server = Server::start(&origin, &format!("{groups}{route}"));
    let (gate, event) = (Gate::default(), Gate::default());
    old.on("/old/ws").reply(Reply::raw(SWITCHING).echo());
    old.on("/old/events").reply(
        Reply::new(200)
            .with_all(&[
                "Content-Type: text/event-stream",
                "Transfer-Encoding: chunked",
            ])
            .chunk(":1\n\n")
            .pause(&event)
            .chunk(":2\n\n")
            .hold(),
    );
    old.on("/old/slow")
        .reply(Reply::new(200).body("slow").after(&gate));
    let mut tunnel = server
        .proxy
        .ask_with("/old/ws", &["Connection: Upgrade", "Upgrade: websocket"]);
    tunnel.head();
    let mut stream = server.proxy.ask("/old/events");
    stream.head();
    assert_eq!(stream.chunk(), ":1\n\n");
    let mut slow = server.proxy.ask("/old/slow");
    let mut joins = server.proxy.ask("/old/slow");
    old.wait_for("/old/slow", 1);

    for _ in 0..3 {
        server.reload("ttl = \"2s\"\n");
        server.reload("ttl = \"3s\"\n");
    }
    origin.on("/old/slow").reply(Reply::new(200).body("new"));
    tunnel.send("hello");
    assert_eq!(tunnel.bytes(5), b"hello");
    event.open();
    assert_eq!(stream.chunk(), ":2\n\n");
    gate.open();
    slow.response().assert_is(200, "slow");
    joins.response().assert_is(200, "slow");
    assert_eq!(old.count("/old/slow"), 1);
    tunnel.send("again");
    assert_eq!(tunnel.bytes(5), b"again");
    // The connection on which it was answered goes on, to where requests go now.
    assert_eq!(slow.get("/old/other").text(), "no script for /old/other");
    assert_eq!(
        (old.count("/old/other"), origin.count("/old/other")),
        (0, 1)
    );
}

#[test]
fn an_unchanged_group_keeps_its_connections_and_its_health() {
    let origin = counting(&["/", "/a", "/b"]);
    let server = Server::start(
        &origin,
        "pass = true\npool_idle_timeout = \"1h\"\nthreads = 1\n",
    );
    server.proxy.get("/").assert_is(200, "1");
    let same = "pass = true\npool_idle_timeout = \"1h\"\nthreads = 1\nstale_wait = \"1s\"\n";
    assert_eq!(server.reload(same), ["stale_wait"]);
    server.proxy.get("/a").assert_is(200, "1");
    assert_eq!(origin.connections(), 1);
    // Another one takes its place, and nothing is kept open for the old one.
    let other = format!("{same}max_queue = 5\n");
    assert_eq!(server.reload(&other), ["max_queue", "upstreams.origin"]);
    origin.wait_for_close(0);
    server.proxy.get("/b").assert_is(200, "1");
    assert_eq!(origin.connections(), 2);
    let stats = json(&server.ask("GET", "/v1/stats"));
    let servers = &stats["upstreams"][0]["servers"][0];
    assert_eq!(servers["requests"], 3, "{stats}");
}

#[test]
fn counts_of_a_group_move_to_its_replacement() {
    let origin = Origin::start();
    let server = Server::start(&origin, "max_concurrent = 1\n");
    let gate = Gate::default();
    origin
        .on("/1")
        .reply(Reply::new(200).body("1").after(&gate));
    origin.on("/2").reply(Reply::new(200).body("2"));
    origin.on("/3").reply(Reply::new(200).body("3"));
    let mut first = server.proxy.ask("/1");
    origin.wait_for("/1", 1);
    server.reload("max_concurrent = 1\nconnect_timeout = \"4s\"\n");
    let mut second = server.proxy.ask("/2");
    server.proxy.settle();
    assert_eq!(origin.count("/2"), 0, "the application has one at a time");
    // With more of them, who waits need not wait any longer.
    server.reload("max_concurrent = 2\n");
    second.response().assert_is(200, "2");
    server.proxy.get("/3").assert_is(200, "3");
    gate.open();
    first.response().assert_is(200, "1");
}

const BR: &str = "Accept-Encoding: br";

/// The coding in which a page comes out of memory.
fn coding_of(server: &Server, target: &str) -> Option<String> {
    let response = server.proxy.get_with(target, &[BR]);
    response.assert_hit();
    response.field("content-encoding").map(str::to_owned)
}

/// Whether it is explained to come in one.
fn is_explained_as_encoded(server: &Server, target: &str) -> bool {
    let requested = json!({"url": format!("http://example.com{target}"), "headers": [BR]});
    let reported = Operator::at(server.admin).post("/v1/explain", &requested)["steps"].to_string();
    reported.contains("sent as `br`")
}

#[test]
fn stored_responses_are_compressed_by_the_current_rules() {
    let origin = Origin::start();
    let html = Reply::new(200)
        .with("Content-Type: text/html")
        .with("Cache-Control: max-age=1000");
    let text = "a line of a page\n".repeat(500);
    let personal = html.clone().with("Vary: X-Session-Token");
    origin.on("/personal").reply(personal.body(&text));
    origin.on("/large").reply(html.body(&text));
    let targets = ["/personal", "/large"];
    let loose = "compress = [\"br\"]\ncompress_personal = true\n";
    let strict = "compress = [\"br\"]\ncompress_max = \"4KiB\"\n";
    let server = Server::start(&origin, loose);
    for target in targets {
        server.proxy.get(target);
        eventually(target, || coding_of(&server, target).map(drop));
    }
    server.reload(strict);
    for target in targets {
        assert_eq!(coding_of(&server, target), None, "{target}");
        assert!(!is_explained_as_encoded(&server, target), "{target}");
    }
    // What was made of them is still there.
    server.reload(loose);
    for target in targets {
        assert!(is_explained_as_encoded(&server, target), "{target}");
        assert_eq!(coding_of(&server, target).as_deref(), Some("br"));
    }
    let requested = targets.map(|target| origin.count(target));
    assert_eq!(requested, [1, 1]);
}

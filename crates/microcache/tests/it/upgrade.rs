//! Another process in the place of one that runs: what it is handed, and that nothing is lost.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustls::HandshakeKind;
use serde_json::Value;

use crate::support::{
    CertificateFile, Client, Folder, Gate, Origin, Proxy, Reply, Response, Signal, TierKind,
    TierServer, WAIT_TIMEOUT, config_file, eventually, request, signal, trusting,
};

const FRESH: &str = "Cache-Control: max-age=1000";

/// A server that is replaced by others.
struct Line {
    proxy: Proxy,
    admin: SocketAddr,
    /// The processes there have been, the first one first.
    processes: Vec<u32>,
}

impl Line {
    fn start(origin: &Origin, flags: &[&str]) -> Self {
        let (proxy, admin) = Proxy::operated(origin, flags);
        let processes = vec![proxy.pid()];
        Self {
            proxy,
            admin,
            processes,
        }
    }

    fn ask(&self, method: &str, target: &str, body: &str) -> Response {
        let mut client = Client::connect(self.admin);
        let (host, length) = (self.admin, body.len());
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        client.response()
    }

    fn upgrade(&mut self) {
        let response = self.ask("POST", "/v1/upgrade", "");
        assert_eq!(response.status, 200, "{}", response.text());
        let reported: Value = serde_json::from_str(&response.text()).expect("JSON");
        self.processes.push(pid_in(&reported).expect("a number"));
    }

    /// Waits for the end of all but the latest.
    fn wait_for_others(&mut self) {
        if self.processes.len() > 1 {
            assert!(self.proxy.wait().success());
        }
        let others = &self.processes[..self.processes.len() - 1];
        for &process in others {
            eventually("the end of a process", || has_ended(process).then_some(()));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        for &process in &self.processes[1..] {
            while !has_ended(process) {
                signal(process, Signal::KILL);
            }
        }
    }
}

/// The process that an answer names.
fn pid_in(answer: &Value) -> Option<u32> {
    answer["pid"].as_u64()?.try_into().ok()
}

/// Returns `true` if a process is gone, or only waits for its parent to notice.
fn has_ended(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

fn page(origin: &Origin, target: &'static str) {
    let mut times = 0;
    origin.on(target).answer(move |_| {
        times += 1;
        Reply::new(200).with(FRESH).body(times.to_string())
    });
}

/// A load from a process of its own, until it is stopped.
struct Load(Option<Child>);

impl Load {
    fn start(address: SocketAddr, flags: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_microcache"))
            .args([
                "bench", "-c", "8", "-t", "1", "-d", "10m", "--format", "json",
            ])
            .args(flags)
            .arg(format!("http://{address}/"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary can be run");
        Self(Some(child))
    }

    /// What it has seen.
    fn report(mut self) -> Value {
        let child = self.0.take().expect("it runs");
        signal(child.id(), Signal::INT);
        let output = child.wait_with_output().expect("it ends");
        serde_json::from_slice(&output.stdout).expect("the report is JSON")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[test]
fn no_request_fails_while_it_is_reloaded_and_replaced_under_load() {
    const UPGRADES: usize = 5;
    const RELOADS: usize = 20;
    let origin = Origin::start();
    page(&origin, "/");
    let file = config_file("ttl = \"1s\"\n");
    let name = file.display().to_string();
    let mut line = Line::start(&origin, &["--config", &name, "--threads", "2"]);
    line.proxy.get("/").assert_is(200, "1");
    let address = line.proxy.address();
    let kept = Load::start(address, &[]);
    let new = Load::start(address, &["-H", "Connection: close"]);
    eventually("some load", || {
        let stats = line.ask("GET", "/v1/stats", "").text();
        let stats: Value = serde_json::from_str(&stats).expect("JSON");
        (stats["requests"]["total"].as_u64() > Some(100)).then_some(())
    });
    for upgrade in 0..=UPGRADES {
        for reload in 0..RELOADS {
            let text = format!("ttl = \"{}s\"\nmax_queue = {}\n", 1 + reload, 100 + reload);
            fs::write(&file, text).expect("written");
            assert_eq!(line.ask("POST", "/v1/reload", "").status, 200);
        }
        if upgrade < UPGRADES {
            line.upgrade();
        }
    }
    for report in [kept.report(), new.report()] {
        assert_eq!(report["errors"], 0, "{report:#}");
        let requests = report["requests"].as_u64().expect("a number");
        assert_eq!(
            report["statuses"]["200"].as_u64(),
            Some(requests),
            "{report:#}"
        );
        assert!(requests > 100, "{report:#}");
    }
    line.wait_for_others();
    assert_eq!(line.proxy.get("/").status, 200);
}

#[test]
fn the_disk_is_handed_over_and_purges_survive() {
    let origin = Origin::start();
    for target in ["/", "/purged"] {
        page(&origin, target);
    }
    let folder = Folder::absent();
    let disk = format!("{},10MiB", folder.as_str());
    let mut line = Line::start(&origin, &["--disk", &disk]);
    line.proxy.get("/").assert_is(200, "1");
    line.proxy.get("/purged").assert_is(200, "1");
    let purge = r#"{"url": "http://example.com/purged"}"#;
    assert_eq!(line.ask("POST", "/v1/purges", purge).status, 200);
    // What the one before answers until it has ended, it does not keep on the disk.
    line.upgrade();
    line.wait_for_others();
    line.proxy.get("/").assert_hit();
    line.proxy.get("/purged").assert_is(200, "2");
    let purge = r#"{"url": "http://example.com/"}"#;
    assert_eq!(line.ask("POST", "/v1/purges", purge).status, 200);
    // After a restart, what was asked for in the millisecond of a purge counts as purged.
    thread::sleep(Duration::from_millis(2));
    line.proxy.get("/").assert_is(200, "2");
    line.upgrade();
    line.wait_for_others();
    line.proxy.get("/").assert_is(200, "2");
    line.proxy.get("/purged").assert_is(200, "2");
}

#[test]
fn maintenance_mode_is_handed_over() {
    let origin = Origin::start();
    page(&origin, "/");
    let mut line = Line::start(&origin, &[]);
    let mode = r#"{"allow": ["127.0.0.2", "2001:db8::/32"], "retry_after": 7}"#;
    assert_eq!(line.ask("POST", "/v1/maintenance", mode).status, 200);
    let before = line.ask("GET", "/v1/maintenance", "").text();
    for _ in 0..2 {
        line.upgrade();
        line.wait_for_others();
        assert_eq!(line.ask("GET", "/v1/maintenance", "").text(), before);
        assert_eq!(line.proxy.get("/").status, 503);
        assert_eq!(line.proxy.get_from("127.0.0.2", "/", &[]).status, 200);
    }
    assert_eq!(line.ask("DELETE", "/v1/maintenance", "").status, 200);
    line.upgrade();
    line.wait_for_others();
    assert_eq!(line.proxy.get("/").status, 200);
}

#[test]
fn documents_are_handed_over_and_watchers_continue() {
    let folder = Folder::absent();
    documents_go_along(["--push-directory", folder.as_str()]);
}

/// Both processes are nodes of several for a while.
#[test]
fn documents_in_redis_stay_where_they_are() {
    let redis = TierServer::start(TierKind::Redis);
    documents_go_along(["--push-redis", &redis.address()]);
}

fn documents_go_along(keeper: [&str; 2]) {
    const SECRET: &str = "a-secret-that-is-long-enough";
    let origin = Origin::start();
    let folder = Folder::new();
    let token = folder.write("token", SECRET);
    let flags = ["--push", "/live/", "--push-token-file", &token];
    let flags = [&flags[..], &keeper].concat();
    let mut line = Line::start(&origin, &flags);
    // What comes to the process before the last is to be sent again, and was not done.
    let put = |line: &Line, body: &str| {
        let authorization = format!("Authorization: Bearer {SECRET}");
        let length = format!("Content-Length: {}", body.len());
        eventually("a document", || {
            let mut client = line.proxy.connect();
            client.send(request("PUT", "/live/x", &[&authorization, &length]));
            client.send(body);
            let response = client.response();
            if response.status == 503 {
                assert_eq!(response.field("retry-after"), Some("1"));
                return None;
            }
            let tag = response.field("etag").expect("an entity tag");
            Some(tag.trim_matches('"').to_owned())
        })
    };
    let seen = put(&line, "1");
    line.upgrade();
    line.proxy.get("/live/x").assert_is(200, "1");
    put(&line, "2");
    line.proxy.get("/live/x").assert_is(200, "2");
    let seen = format!("Last-Event-ID: {seen}");
    let mut back = line
        .proxy
        .ask_with("/live/x", &["Accept: text/event-stream", &seen]);
    back.head();
    let mut events = String::new();
    while !events.ends_with("event: put\ndata: 2\n\n") {
        events += &back.chunk();
    }
    assert!(!events.contains("reset"), "{events}");
    drop(back);
    line.wait_for_others();
}

#[test]
fn a_process_that_cannot_serve_changes_nothing() {
    let origin = Origin::start();
    page(&origin, "/");
    page(&origin, "/other");
    let folder = Folder::absent();
    let file = config_file("");
    let name = file.display().to_string();
    let disk = format!("{},10MiB", folder.as_str());
    let mut line = Line::start(&origin, &["--config", &name, "--disk", &disk]);
    line.proxy.get("/").assert_is(200, "1");
    let refused = |line: &Line, text: &str, why: &str| {
        fs::write(&file, text).expect("written");
        let response = line.ask("POST", "/v1/upgrade", "");
        assert_eq!(response.status, 422);
        assert!(response.text().contains(why), "{}", response.text());
    };
    refused(&line, "colour = 1\n", "unknown option `colour`");
    // It has the disk by then, and the one before takes it back.
    refused(
        &line,
        "redis = \"redis://127.0.0.1:9\"\nredis_ca = \"/nowhere\"\n",
        "/nowhere",
    );
    line.proxy.get("/").assert_hit();
    line.proxy.get("/other").assert_is(200, "1");
    let purge = r#"{"url": "http://example.com/"}"#;
    let purged = line.ask("POST", "/v1/purges", purge);
    assert_eq!(purged.status, 200);
    assert!(
        !purged.text().contains("persist_error"),
        "{}",
        purged.text()
    );
    fs::write(&file, "").expect("written");
    line.upgrade();
    line.proxy.get("/other").assert_hit();
    line.proxy.get("/").assert_is(200, "2");
    line.wait_for_others();
}

#[test]
fn requests_in_progress_end_in_the_process_that_began_them() {
    const SWITCHING: &str =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let origin = Origin::start();
    page(&origin, "/");
    let gate = Gate::default();
    origin.on("/ws").reply(Reply::raw(SWITCHING).echo());
    origin
        .on("/slow")
        .reply(Reply::new(200).body("slow").after(&gate));
    let begun = Reply::new(200).with("Content-Length: 2").send("a");
    origin.on("/begun").reply(begun.pause(&gate).send("b"));
    let file = config_file("threads = 3\ndrain_stream_timeout = \"1h\"\ndrain_timeout = \"1h\"\n");
    let name = file.display().to_string();
    let mut line = Line::start(&origin, &["--config", &name]);
    let mut tunnel = line
        .proxy
        .ask_with("/ws", &["Connection: Upgrade", "Upgrade: websocket"]);
    tunnel.head();
    let mut kept: Vec<_> = (0..8).map(|_| line.proxy.connect()).collect();
    for client in &mut kept {
        assert_eq!(client.get("/").status, 200);
    }
    let mut slow = line.proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    let mut begun = line.proxy.ask("/begun");
    assert_eq!(begun.head().field("connection"), None);
    // Fewer threads than sockets: each still has a thread that accepts.
    fs::write(&file, "threads = 1\n").expect("written");
    line.upgrade();
    for _ in 0..20 {
        assert_eq!(line.proxy.get("/").status, 200);
    }
    for client in &mut kept {
        client.send(request("GET", "/", &[]));
        let response = client.response();
        assert_eq!(response.status, 200);
        assert_eq!(response.field("connection"), Some("close"));
        assert!(client.is_closed());
    }
    gate.open();
    slow.response().assert_is(200, "slow");
    assert_eq!(begun.bytes(2), b"ab");
    begun.send(request("GET", "/", &[]));
    let response = begun.response();
    assert_eq!(response.status, 200);
    assert_eq!(response.field("connection"), Some("close"));
    tunnel.send("hello");
    assert_eq!(tunnel.bytes(5), b"hello");
    assert!(line.proxy.is_running(), "the tunnel is its");
    drop(tunnel);
    line.wait_for_others();
    // The signal does the same.
    let process = line.processes[1];
    signal(process, Signal::USR2);
    let next = eventually("the next one", || {
        let stats: Value = serde_json::from_str(&line.ask("GET", "/v1/stats", "").text()).ok()?;
        pid_in(&stats).filter(|&pid| pid != process)
    });
    line.processes.push(next);
    assert_eq!(line.proxy.get("/").status, 200);
}

#[test]
fn a_purge_is_answered_at_once_and_holds_in_the_process_before_as_well() {
    let origin = Origin::start();
    page(&origin, "/");
    let gate = Gate::default();
    origin
        .on("/slow")
        .reply(Reply::new(200).body("slow").after(&gate));
    let file = config_file("drain_timeout = \"1h\"\n");
    let name = file.display().to_string();
    let mut line = Line::start(&origin, &["--config", &name]);
    let mut kept: Vec<_> = (0..4).map(|_| line.proxy.connect()).collect();
    for client in &mut kept {
        client.get("/").assert_is(200, "1");
    }
    let mut slow = line.proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    line.upgrade();
    let long = format!(r#"{{"url": "http://example.com/{}"}}"#, "x".repeat(5000));
    for purge in [
        r#"{"url": "http://example.com/"}"#,
        r#"{"tag": "x"}"#,
        &long,
    ] {
        assert_eq!(line.ask("POST", "/v1/purges", purge).status, 200);
    }
    assert!(line.proxy.is_running(), "it has a request under way");
    for client in &mut kept {
        client.get("/").assert_is(200, "2");
    }
    gate.open();
    slow.response().assert_is(200, "slow");
    line.wait_for_others();
}

/// Becomes the program, with a socket that listens as systemd would hand it over, and in whose queue a
/// client may wait already.
const ACTIVATION: &str = r#"
import os, socket, sys
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
address = "%s:%d" % listener.getsockname()
arguments = sys.argv[1:]
arguments[arguments.index("--listen") + 1] = address
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(arguments[0], arguments)
"#;

#[test]
fn it_serves_on_a_socket_that_is_handed_over_at_the_start() {
    let origin = Origin::start();
    page(&origin, "/");
    let wrapper = ["python3", "-c", ACTIVATION];
    let mut proxy = Proxy::through(&wrapper, &origin, &["--threads", "2"]);
    for _ in 0..8 {
        proxy.get("/").assert_is(200, "1");
    }
    proxy.terminate();
    assert!(proxy.wait().success());
}

#[test]
fn the_service_manager_is_notified() {
    let origin = Origin::start();
    let folder = Folder::new();
    let path = folder.file("socket");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager
        .set_read_timeout(Some(WAIT_TIMEOUT))
        .expect("a timeout");
    let reported = || {
        let mut text = [0; 256];
        let length = manager.recv(&mut text).expect("a message");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let socket = format!("NOTIFY_SOCKET={path}");
    let file = config_file("");
    let name = file.display().to_string();
    let mut proxy = Proxy::through(&["env", &socket], &origin, &["--config", &name]);
    assert_eq!(reported(), "READY=1");
    proxy.signal(Signal::HUP);
    let reloading = reported();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(
        since.is_some_and(|micros| micros.parse::<u64>().is_ok()),
        "{reloading}"
    );
    assert_eq!(reported(), "READY=1");
    proxy.signal(Signal::USR2);
    // The other one says that it is ready, and this one who that is, in either order.
    let mut both = [reported(), reported()];
    both.sort();
    assert_eq!(both[1], "READY=1");
    let process = both[0].strip_prefix("MAINPID=").expect("which it is");
    let process: u32 = process.parse().expect("a number");
    assert!(proxy.wait().success());
    signal(process, Signal::TERM);
    assert_eq!(reported(), "STOPPING=1");
    eventually("its end", || has_ended(process).then_some(()));
}

#[test]
fn sessions_of_tls_are_taken_up_by_the_next_process() {
    let origin = Origin::start();
    page(&origin, "/");
    let certificate = CertificateFile::new(&["example.com"]);
    let flags = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let mut line = Line::start(&origin, &flags);
    let (address, config) = (line.proxy.tls_address(), trusting(&[&certificate]));
    let kind = || {
        let client = Client::connect_by_tls(address, &config, "example.com");
        let mut client = client.expect("a session");
        client.get("/");
        client.session().conn.handshake_kind()
    };
    assert_eq!(kind(), Some(HandshakeKind::Full));
    line.upgrade();
    line.wait_for_others();
    assert_eq!(kind(), Some(HandshakeKind::Resumed));
}

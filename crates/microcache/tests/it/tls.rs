//! TLS with clients: what HTTP is without it, it is on top of it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustls::{ClientConfig, HandshakeKind, ProtocolVersion};

use crate::support::{
    CertificateFile, Client, Folder, Gate, Origin, Proxy, Reply, Signal, config_file, eventually,
    free_port, is_installed, request, trusting,
};

const FRESH: &str = "Cache-Control: max-age=1000";
const HOST: &str = "example.com";

/// A proxy that speaks TLS, and who trusts it.
struct Site {
    proxy: Proxy,
    certificate: CertificateFile,
    config: Arc<ClientConfig>,
}

impl Site {
    fn start(origin: &Origin, flags: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", origin, flags)
    }

    fn start_at(address: &str, origin: &Origin, flags: &[&str]) -> Self {
        let certificate = CertificateFile::new(&[HOST]);
        let tls = ["--tls", certificate.name(), "--tls-listen", address];
        let proxy = Proxy::start(origin, &[&tls, flags].concat());
        Self {
            config: trusting(&[&certificate]),
            proxy,
            certificate,
        }
    }

    fn connect(&self) -> Client {
        self.connect_with(&self.config)
    }

    fn connect_with(&self, config: &Arc<ClientConfig>) -> Client {
        Client::connect_by_tls(self.proxy.tls_address(), config, HOST).expect("a session")
    }
}

fn page(origin: &Origin, target: &str, body: &[u8]) {
    origin
        .on(target)
        .reply(Reply::new(200).with(FRESH).body(body));
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n / 3 + n / 1000) as u8).collect()
}

#[test]
fn misses_become_hits_and_schemes_have_separate_entries() {
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let site = Site::start(&origin, &[]);
    let mut client = site.connect();
    client.get("/").assert_is(200, "page");
    client.get("/").assert_hit();
    site.connect().get("/").assert_hit();
    let seen = &origin.seen("/")[0];
    assert_eq!(seen.field("x-forwarded-proto"), Some("https"));
    assert!(
        seen.field("forwarded")
            .expect("a field")
            .contains("proto=https")
    );
    // The same page without TLS may be a redirect.
    site.proxy.get("/").assert_is(200, "page");
    assert_eq!(origin.count("/"), 2);
    site.proxy.get("/").assert_hit();
    let conn = &client.session().conn;
    assert_eq!(conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
}

#[test]
fn bodies_of_every_size_are_whole_from_the_origin_from_memory_and_from_disk() {
    let origin = Origin::start();
    let folder = Folder::absent();
    let disk = format!("{},1GiB", folder.as_str());
    let site = Site::start(&origin, &["--disk", &disk, "--memory", "16MiB"]);
    // The last ones are too large for memory.
    for length in [0, 1, 8_192, 16_384, 57_000, 672_864, 3_000_000, 5_000_001] {
        let target = format!("/{length}");
        let expected = bytes(length);
        page(&origin, &target, &expected);
        let mut client = site.connect();
        assert!(
            client.get(&target).body == expected,
            "{length} from the origin"
        );
        eventually("a hit", || {
            site.connect().get(&target).is_hit().then_some(())
        });
        let hit = client.get(&target);
        hit.assert_hit();
        assert!(hit.body == expected, "{length} from the cache");
        client.send(request("HEAD", &target, &[]));
        assert_eq!(
            client.response_to_head().field("content-length"),
            Some(&*length.to_string())
        );
        if length > 100 {
            client.send(request("GET", &target, &["Range: bytes=50-99"]));
            let part = client.response();
            assert_eq!((part.status, &part.body[..]), (206, &expected[50..100]));
        }
    }
}

#[test]
fn a_client_that_takes_its_time_gets_all_of_a_large_hit() {
    let origin = Origin::start();
    let expected = bytes(900_000);
    page(&origin, "/", &expected);
    let site = Site::start(&origin, &[]);
    site.connect().get("/");
    let mut clients: Vec<_> = (0..4).map(|_| site.connect()).collect();
    for client in &mut clients {
        client.send([request("GET", "/", &[]), request("GET", "/", &[])].concat());
    }
    // No client has read anything while the others were answered.
    site.connect().get("/").assert_hit();
    for client in &mut clients {
        assert!(client.response().body == expected);
        assert!(client.response().body == expected);
    }
}

#[test]
fn uploads_arrive_whole() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::new(200).body("taken"));
    let site = Site::start(&origin, &[]);
    let body = bytes(1_000_000);
    let mut client = site.connect();
    client.send(request(
        "POST",
        "/",
        &[&format!("Content-Length: {}", body.len())],
    ));
    client.send(&body);
    client.response().assert_is(200, "taken");
    assert!(origin.seen("/")[0].body() == body);
    client.send(request(
        "POST",
        "/",
        &["Transfer-Encoding: chunked", "Expect: 100-continue"],
    ));
    assert!(client.head().start.starts_with("HTTP/1.1 100"));
    client.send("5\r\nhello\r\n0\r\n\r\n");
    client.response().assert_is(200, "taken");
    assert_eq!(origin.wait_for("/", 2).body(), b"hello");
}

#[test]
fn many_requests_at_once_are_answered_in_order() {
    let origin = Origin::start();
    for number in 0..20 {
        page(
            &origin,
            &format!("/{number}"),
            format!("page {number}").as_bytes(),
        );
        page(
            &origin,
            &format!("/large/{number}"),
            &bytes(30_000 + number),
        );
    }
    let site = Site::start(&origin, &[]);
    for _ in 0..2 {
        let mut client = site.connect();
        let mut sent = String::new();
        for number in 0..20 {
            sent += &request("GET", &format!("/{number}"), &[]);
            sent += &request("GET", &format!("/large/{number}"), &[]);
        }
        client.send(sent);
        for number in 0..20 {
            client.response().assert_is(200, &format!("page {number}"));
            assert!(client.response().body == bytes(30_000 + number));
        }
    }
}

#[test]
fn a_websocket_becomes_a_tunnel() {
    let origin = Origin::start();
    origin.on("/ws").reply(
        Reply::raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly")
            .echo(),
    );
    let site = Site::start(&origin, &[]);
    let mut client = site.connect();
    client.send(request(
        "GET",
        "/ws",
        &["Connection: Upgrade", "Upgrade: websocket"],
    ));
    assert!(client.head().start.starts_with("HTTP/1.1 101"));
    assert_eq!(client.bytes(5), b"early");
    for length in [1, 100, 20_000, 300_000] {
        let message = bytes(length);
        client.send(&message);
        assert!(client.bytes(length) == message, "{length}");
    }
    drop(client);
    origin.wait_for_close(origin.seen("/ws")[0].connection);
}

#[test]
fn a_client_that_has_closed_its_side_is_answered() {
    let origin = Origin::start();
    let gate = Gate::default();
    origin
        .on("/")
        .reply(Reply::new(200).body("late").after(&gate));
    let site = Site::start(&origin, &[]);
    let mut client = site.connect();
    client.send(request("GET", "/", &[]));
    let tls = client.session();
    tls.conn.send_close_notify();
    tls.conn.complete_io(&mut tls.sock).expect("sent");
    origin.wait_for("/", 1);
    gate.open();
    client.response().assert_is(200, "late");
    assert!(client.is_closed());
}

#[test]
fn a_slow_handshake_times_out_and_delays_no_other() {
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let site = Site::start(&origin, &["--client-head-timeout", "300ms"]);
    let mut silent = Client::connect(site.proxy.tls_address());
    let mut slow = Client::connect(site.proxy.tls_address());
    // The beginning of a hello.
    slow.send([22, 3, 1, 2, 0, 1, 0]);
    site.connect().get("/").assert_is(200, "page");
    assert!(silent.is_closed());
    assert!(slow.is_closed());
}

#[test]
fn plain_http_gets_a_hint_and_garbage_is_refused() {
    let origin = Origin::start();
    let site = Site::start(&origin, &[]);
    let mut plain = Client::connect(site.proxy.tls_address());
    plain.send(request("GET", "/", &[]));
    let answer = plain.response();
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("https://"), "{}", answer.text());
    assert!(plain.is_closed());
    for garbage in [
        &[0x80; 300][..],
        &[0; 300],
        &[22, 3, 1, 0, 5, 9, 9, 9, 9, 9],
    ] {
        let mut socket = TcpStream::connect(site.proxy.tls_address()).expect("it listens");
        socket.write_all(garbage).expect("sent");
        let mut reported = Vec::new();
        socket.read_to_end(&mut reported).expect("an end");
        // An alert, if it looks like TLS at all, and nothing else.
        assert!(
            matches!(reported[..], [] | [21, _, _, _, _, _, _]),
            "{reported:?}"
        );
    }
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn a_session_is_taken_up_again_also_after_a_reload() {
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let site = Site::start(&origin, &[]);
    let kind = || {
        let mut client = site.connect();
        client.get("/");
        client.session().conn.handshake_kind()
    };
    assert_eq!(kind(), Some(HandshakeKind::Full));
    assert_eq!(kind(), Some(HandshakeKind::Resumed));
    site.proxy.signal(Signal::HUP);
    eventually("the reload", || {
        site.proxy
            .output()
            .contains("configuration reloaded")
            .then_some(())
    });
    assert_eq!(kind(), Some(HandshakeKind::Resumed));
}

#[test]
fn a_fleet_with_the_same_secrets_takes_up_each_others_sessions() {
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let secrets = config_file("0123456789abcdef0123456789abcdef\n");
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let flags = ["--tls-ticket-keys", secrets.to_str().expect("a path")];
    let site = Site::start(&origin, &flags);
    let tls = [
        "--tls",
        site.certificate.name(),
        "--tls-listen",
        "127.0.0.1:0",
    ];
    let others = [
        (
            Proxy::start(&origin, &[&tls[..], &flags].concat()),
            HandshakeKind::Resumed,
        ),
        (Proxy::start(&origin, &tls), HandshakeKind::Full),
    ];
    site.connect().get("/");
    for (other, expected) in others {
        let client = Client::connect_by_tls(other.tls_address(), &site.config, HOST);
        let mut client = client.expect("a session");
        assert_eq!(client.session().conn.handshake_kind(), Some(expected));
        client.get("/");
    }
}

#[test]
fn certificates_change_under_load_without_a_lost_connection() {
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let site = Site::start(&origin, &[]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut client = site.connect();
            let mut answered = 0;
            while !stop.load(Ordering::Relaxed) {
                client.get("/").assert_is(200, "page");
                answered += 1;
            }
            answered
        });
        let mut idle = site.connect();
        for time in 1..=3 {
            site.certificate.renew(&[HOST], 2100);
            site.proxy.signal(Signal::HUP);
            eventually("the reload", || {
                let output = site.proxy.output();
                (output.matches("configuration reloaded").count() == time).then_some(())
            });
            let renewed = trusting(&[&site.certificate]);
            site.connect_with(&renewed).get("/").assert_is(200, "page");
        }
        // What cannot be used changes nothing.
        site.certificate.renew(&[HOST], 2001);
        site.proxy.signal(Signal::HUP);
        let reported = format!(
            "the certificate in {} expired on 2001-01-01",
            site.certificate.name()
        );
        eventually("the refusal", || {
            site.proxy.output().contains(&reported).then_some(())
        });
        assert!(
            site.proxy
                .output()
                .contains("the current one stays in force")
        );
        idle.get("/").assert_hit();
        stop.store(true, Ordering::Relaxed);
        assert!(busy.join().expect("no request is lost") > 0);
    });
    // Who trusts the first one only is shown the third.
    let error = Client::connect_by_tls(site.proxy.tls_address(), &trusting_first(&site), HOST);
    assert!(error.is_err());
    site.connect().get("/").assert_hit();
}

/// Trusts what was trusted first, and remembers no session.
fn trusting_first(site: &Site) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&site.config);
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

#[test]
fn a_renewed_certificate_is_loaded_by_itself() {
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let site = Site::start(&origin, &["--reload-on-change"]);
    let mut before = site.connect();
    before.get("/").assert_is(200, "page");
    site.certificate.renew(&[HOST], 2099);
    let renewed = trusting(&[&site.certificate]);
    eventually("the new one to be shown", || {
        Client::connect_by_tls(site.proxy.tls_address(), &renewed, HOST).ok()
    });
    before.get("/").assert_hit();
}

#[test]
fn clients_are_shown_the_certificate_for_the_host_that_they_name() {
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let first = CertificateFile::new(&["first.example"]);
    let many = CertificateFile::new(&["a.example", "*.b.example"]);
    let config = format!(
        "origin = \"{}\"\ntls_listen = \"127.0.0.1:0\"\n\
         tls = [\"{}\", {{ certificate = \"{1}\" }}, {{ certificate = \"{}\", key = \"{2}\" }}]\n",
        origin.url(),
        first.name(),
        many.name()
    );
    let proxy = Proxy::with_config(&config);
    for (host, shown) in [
        ("first.example", Some(&first)),
        ("a.example", Some(&many)),
        ("x.b.example", Some(&many)),
        ("b.example", None),
        ("x.y.b.example", None),
    ] {
        let client = Client::connect_by_tls(proxy.tls_address(), &trusting(&[&first, &many]), host);
        match (client, shown) {
            (Ok(mut client), Some(shown)) => {
                let certificates = client.session().conn.peer_certificates();
                assert_eq!(certificates.expect("some")[0], shown.der(), "{host}");
            }
            // The default is for another host.
            (Err(error), None) => assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}"),
            (shown, _) => panic!("{host}: {:?}", shown.map(|_| "a session")),
        }
    }
}

#[test]
fn plain_http_is_redirected_except_behind_a_trusted_terminator() {
    let origin = Origin::start();
    page(&origin, "/a?b", b"page");
    let flags = [
        "--redirect-http",
        "--trusted-proxies",
        "127.0.0.2",
        "--purge-from",
        "127.0.0.1",
    ];
    let port = free_port();
    let site = Site::start_at(&format!("127.0.0.1:{port}"), &origin, &flags);
    let answer = site.proxy.get("/a?b");
    assert_eq!(answer.status, 308);
    assert_eq!(
        answer.field("location"),
        Some(&*format!("https://example.com:{port}/a?b"))
    );
    let upload = "POST / HTTP/1.1\r\nHost: [::1]:8080\r\nContent-Length: 0\r\n\r\n";
    let location = format!("https://[::1]:{port}/");
    assert_eq!(
        site.proxy.request(upload).field("location"),
        Some(&*location)
    );
    assert_eq!(site.proxy.request("GET / HTTP/1.0\r\n\r\n").status, 400);
    assert_eq!(origin.requests().len(), 0);
    let trusted = site
        .proxy
        .get_from("127.0.0.2", "/a?b", &["X-Forwarded-Proto: https"]);
    trusted.assert_is(200, "page");
    let plain = site
        .proxy
        .get_from("127.0.0.2", "/a?b", &["X-Forwarded-Proto: http"]);
    assert_eq!(plain.status, 308);
    // Purges as applications send them, of what came by TLS.
    site.connect().get("/a?b").assert_is(200, "page");
    site.connect().get("/a?b").assert_hit();
    assert_eq!(site.proxy.send("PURGE", "/a?b", &[]).status, 200);
    site.connect().get("/a?b").assert_is(200, "page");
    assert_eq!(origin.count("/a?b"), 3);
}

#[test]
fn strict_transport_security_is_sent_over_tls_and_the_applications_value_wins() {
    let origin = Origin::start();
    page(&origin, "/", b"page");
    page(&origin, "/large", &bytes(100_000));
    let own = Reply::new(200)
        .with(FRESH)
        .with("Strict-Transport-Security: max-age=0");
    origin.on("/own").reply(own.body("own"));
    let policy = "max-age=1000; includeSubDomains";
    let site = Site::start(&origin, &["--strict-transport-security", policy]);
    for _ in 0..2 {
        let mut client = site.connect();
        for (target, expected) in [("/", policy), ("/large", policy), ("/own", "max-age=0")] {
            let answer = client.get(target);
            assert_eq!(
                answer.head.all("strict-transport-security"),
                [expected],
                "{target}"
            );
        }
        assert_eq!(site.proxy.get("/").field("strict-transport-security"), None);
    }
}

#[test]
fn at_the_end_connections_get_close_notify_and_nothing_is_cut() {
    let origin = Origin::start();
    let gate = Gate::default();
    page(&origin, "/", b"page");
    origin
        .on("/slow")
        .reply(Reply::new(200).body("late").after(&gate));
    let mut site = Site::start(&origin, &[]);
    let mut idle = site.connect();
    idle.get("/");
    let mut busy = site.connect();
    busy.send(request("GET", "/slow", &[]));
    origin.wait_for("/slow", 1);
    site.proxy.terminate();
    // An end without a farewell would be another error, of the client's library.
    let error = idle.try_response().expect_err("it is closed");
    assert_eq!(error.to_string(), "closed without a response");
    gate.open();
    busy.response().assert_is(200, "late");
    assert!(site.proxy.wait().success());
}

#[test]
fn unusable_files_are_refused_at_the_start_with_a_remedy() {
    let (good, other) = (CertificateFile::new(&[HOST]), CertificateFile::new(&[HOST]));
    let old = CertificateFile::new(&[HOST]);
    old.renew(&[HOST], 2001);
    let foreign = format!("{},{}", good.name(), other.name());
    let origin = "http://127.0.0.1:9";
    for (flags, reported) in [
        (&["--tls", old.name()][..], "expired on 2001-01-01"),
        (&["--tls", &foreign], "does not match the certificate in"),
        (
            &["--tls", "/absent.pem,/absent.key"],
            "cannot read /absent.pem: No such file",
        ),
        (&["--tls", "a.pem,b.pem,c.pem,"], "CERTIFICATE,KEY"),
        (
            &["--tls-listen", "127.0.0.1:0"],
            "has no effect without a certificate",
        ),
        (&["--redirect-http"], "has no effect without a certificate"),
        (
            &[
                "--tls",
                good.name(),
                "--strict-transport-security",
                "forever",
            ],
            "max-age=31536000",
        ),
        (
            &["--tls", good.name(), "--tls-ticket-keys", "/absent"],
            "cannot read /absent",
        ),
    ] {
        let (code, said) = Proxy::refusal(&[flags, &[origin]].concat());
        assert_eq!(code, Some(2), "{flags:?}: {said}");
        assert!(said.contains(reported), "{flags:?}: {said}");
    }
}

#[test]
fn a_key_readable_by_all_users_is_warned_of() {
    let origin = Origin::start();
    let certificate = CertificateFile::new(&[HOST]);
    let everybody = fs::Permissions::from_mode(0o644);
    fs::set_permissions(certificate.path(), everybody).expect("it is ours");
    let flags = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let proxy = Proxy::start(&origin, &flags);
    let reported = format!(
        "{} is readable by every user of this machine",
        certificate.name()
    );
    eventually("the warning", || {
        proxy.output().contains(&reported).then_some(())
    });
}

/// Runs a command, with this on its standard input. Gives what it wrote, and whether it was content.
fn run(command: &mut Command, input: &str) -> (String, bool) {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be run");
    let mut stdin = child.stdin.take().expect("an input");
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    let mut reported = String::from_utf8_lossy(&output.stdout).into_owned();
    reported += &String::from_utf8_lossy(&output.stderr);
    (reported, output.status.success())
}

fn is_there(program: &str) -> bool {
    is_installed(program, "TLS with another client")
}

#[test]
fn curl_is_served_on_one_connection() {
    if !is_there("curl") {
        return;
    }
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let site = Site::start(&origin, &[]);
    let address = site.proxy.tls_address();
    for version in ["--tlsv1.3", "--tls-max=1.2"] {
        let url = format!("https://{HOST}:{}/", address.port());
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "--http1.1",
            "--cacert",
            site.certificate.name(),
            "-w",
            "%{num_connects};",
        ])
        .args(["--resolve", &format!("{HOST}:{}:127.0.0.1", address.port())])
        .args(if version == "--tlsv1.3" {
            vec![version]
        } else {
            vec!["--tls-max", "1.2"]
        })
        .args([&url, &url]);
        let (reported, content) = run(&mut curl, "");
        assert!(content, "{version}: {reported}");
        assert_eq!(reported, "page1;page0;", "{version}");
    }
}

#[test]
fn openssl_negotiates_safe_parameters_only() {
    if !is_there("openssl") {
        return;
    }
    let origin = Origin::start();
    page(&origin, "/", b"page");
    let site = Site::start(&origin, &[]);
    let address = site.proxy.tls_address().to_string();
    let get = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let talk = |flags: &[&str], input: &str| {
        let mut client = Command::new("openssl");
        client
            .args(["s_client", "-connect", &address, "-servername", HOST])
            .args(flags);
        run(&mut client, input)
    };
    for (flags, agreed) in [
        (&["-tls1_3"][..], true),
        (&["-tls1_3", "-groups", "P-256"], true),
        (
            &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
            true,
        ),
        (&["-tls1_2"], true),
        (
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
            true,
        ),
        (&["-alpn", "http/1.1"], true),
        (&["-alpn", "spdy/1"], false),
        (&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], false),
        (&["-tls1", "-cipher", "ALL:@SECLEVEL=0"], false),
        (
            &[
                "-tls1_2",
                "-cipher",
                "ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0",
            ],
            false,
        ),
        (
            &["-tls1_2", "-cipher", "AES128-GCM-SHA256:@SECLEVEL=0"],
            false,
        ),
    ] {
        let (reported, _) = talk(&[flags, &["-ign_eof"]].concat(), &get);
        assert_eq!(
            reported.contains("HTTP/1.1 200 OK"),
            agreed,
            "{flags:?}: {reported}"
        );
    }
    // A line that begins with R has the client ask for another handshake on the same connection.
    let (reported, _) = talk(&["-tls1_2", "-legacy_renegotiation"], "R\n");
    assert!(reported.contains("no renegotiation"), "{reported}");
}

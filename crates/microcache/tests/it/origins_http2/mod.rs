//! HTTP/2 with origins, as users see it: by TLS where it is agreed on, without TLS where it is known.

mod mirror;
mod server;

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::thread;

use self::server::Server;
use crate::support::{
    CertificateFile, Folder, Origin, Process, Proxy, Reply, eventually, free_port, left_out,
    request,
};

const HTTP2: &str = "--origin-http2";

/// One thread that serves, so that there is one connection.
const ONE: [&str; 2] = ["--threads", "1"];

#[test]
fn misses_at_once_share_a_connection_and_hits_need_none() {
    let own = CertificateFile::new(&["localhost"]);
    let server = Server::by_tls(&own, &["h2", "http/1.1"]);
    let flags = [HTTP2, "--origin-ca", own.name(), ONE[0], ONE[1]];
    let proxy = Proxy::before_url(&server.url(), &flags);
    // None of them is answered before all are there.
    let targets: Vec<_> = (0..40).map(|number| format!("/gate/{number}")).collect();
    let mut clients: Vec<_> = targets.iter().map(|target| proxy.ask(target)).collect();
    eventually("all of them at the origin", || {
        (server.requests().len() == 40).then_some(())
    });
    server.open();
    for (client, target) in clients.iter_mut().zip(&targets) {
        client
            .response()
            .assert_is(200, &format!("https example.com {target}"));
    }
    for target in &targets {
        proxy.get(target).assert_hit();
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 40));
}

#[test]
fn clients_of_one_page_share_an_origin_request() {
    let server = Server::plain();
    let proxy = Proxy::before_url(&server.url(), &[HTTP2, "--threads", "2"]);
    let mut clients: Vec<_> = (0..50).map(|_| proxy.ask("/gate/page")).collect();
    proxy.settle();
    server.open();
    for client in &mut clients {
        client
            .response()
            .assert_is(200, "http example.com /gate/page");
    }
    assert_eq!(server.requests(), ["GET /gate/page"]);
}

#[test]
fn an_upload_and_a_download_go_through_as_they_are() {
    let server = Server::plain();
    let proxy = Proxy::before_url(&server.url(), &[HTTP2]);
    let mut client = proxy.connect();
    client.send(request("POST", "/echo", &["Content-Length: 3000000"]));
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    client.send(&content);
    let answer = client.response();
    assert_eq!((answer.status, answer.body == content), (200, true));
    client.send(request("POST", "/echo", &["Transfer-Encoding: chunked"]));
    client.send("5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n");
    let answer = client.response();
    answer.assert_is(200, "hello");
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "5".to_owned())]);
    assert_eq!(server.connections(), 1);
}

#[test]
fn an_answer_that_breaks_off_is_never_whole() {
    let server = Server::plain();
    let proxy = Proxy::before_url(&server.url(), &[HTTP2]);
    let mut client = proxy.ask("/break");
    client.head();
    assert_eq!(client.chunk(), "begin");
    server.open();
    assert!(client.is_closed(), "without a word that it is over");
    // Nothing of it was stored.
    let again = proxy.connect().try_get("/break");
    assert!(again.is_err() || again.is_ok_and(|answer| answer.status == 502));
    assert_eq!(server.requests().len(), 2);
    eventually("the reason", || {
        let reported = proxy.output();
        reported
            .contains("a response was truncated: ")
            .then_some(())
    });
    proxy.get("/page").assert_is(200, "http example.com /page");
}

#[test]
fn a_websocket_uses_http1_to_the_same_server() {
    let own = CertificateFile::new(&["localhost"]);
    let server = Server::by_tls(&own, &["h2", "http/1.1"]);
    let proxy = Proxy::before_url(&server.url(), &[HTTP2, "--origin-ca", own.name()]);
    proxy.get("/page").assert_is(200, "https example.com /page");
    let mut client = proxy.connect();
    client.send(request(
        "GET",
        "/socket",
        &["Connection: Upgrade", "Upgrade: websocket"],
    ));
    assert!(client.head().start.starts_with("HTTP/1.1 101"));
    client.send("ping");
    assert_eq!(client.bytes(4), b"ping");
}

#[test]
fn a_server_without_http2_gets_http1_and_is_logged_once() {
    let own = CertificateFile::new(&["localhost"]);
    for protocols in [&["http/1.1"][..], &[]] {
        let server = Server::by_tls(&own, protocols);
        let flags = [HTTP2, "--origin-ca", own.name(), ONE[0], ONE[1]];
        let proxy = Proxy::before_url(&server.url(), &flags);
        for number in 0..5 {
            let answer = proxy.get(&format!("/{number}"));
            answer.assert_is(200, "by HTTP/1.1");
        }
        assert_eq!(server.connections(), 1, "it is used again");
        let reported = eventually("the notice", || {
            let reported = proxy.output();
            reported
                .contains("the server does not offer HTTP/2")
                .then_some(reported)
        });
        assert_eq!(
            reported.matches("the server does not offer HTTP/2").count(),
            1,
            "{reported}"
        );
    }
}

#[test]
fn a_server_without_prior_knowledge_fails() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::new(200).body("ok"));
    let proxy = Proxy::start(&origin, &[HTTP2]);
    let answer = proxy.get("/");
    assert_eq!(answer.status, 502);
    assert_eq!(answer.cache().get("detail"), Some("origin-unreachable"));
    eventually("the reason", || {
        let reported = proxy.output();
        reported
            .contains("cannot connect: no HTTP/2 session: ")
            .then_some(())
    });
}

/// A server by other authors.
struct Nghttpd {
    process: Process,
    port: u16,
}

impl Nghttpd {
    /// Nothing if it is not there.
    fn start(directory: &Folder, tls: Option<&CertificateFile>) -> Option<Self> {
        let port = free_port();
        let mut command = Command::new("/usr/sbin/nghttpd");
        command.args(["-v", "-a", "127.0.0.1", "-d", directory.as_str()]);
        let at = port.to_string();
        match tls {
            None => command.args(["--no-tls", &at]),
            Some(file) => command.args([&*at, file.name(), file.name()]),
        };
        let Some(mut process) = Process::start(command.stdin(Stdio::null())) else {
            left_out("HTTP/2 to nghttpd, which is not installed");
            return None;
        };
        process.ready("nghttpd", |output| output.contains("listen").then_some(()));
        Some(Self { process, port })
    }

    /// How many connections it has had.
    fn connections(&self) -> usize {
        let output = self.process.output();
        let id_in = |line: &str| {
            let (_, rest) = line.split_once("[id=")?;
            Some(rest.split_once(']')?.0.to_owned())
        };
        let ids: HashSet<_> = output.lines().filter_map(id_in).collect();
        ids.len()
    }
}

#[test]
fn nghttpd_is_used_on_one_connection() {
    let directory = Folder::new();
    let large = "x".repeat(672_864);
    for number in 0..30 {
        directory.write(&number.to_string(), &large);
    }
    let own = CertificateFile::new(&["localhost"]);
    for tls in [None, Some(&own)] {
        let Some(server) = Nghttpd::start(&directory, tls) else {
            return;
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{}", server.port);
        let flags = [HTTP2, "--origin-ca", own.name(), ONE[0], ONE[1]];
        let proxy = Proxy::before_url(&url, &flags);
        let reading: Vec<_> = (0..30)
            .map(|number| {
                let mut client = proxy.ask(&format!("/{number}"));
                thread::spawn(move || client.response())
            })
            .collect();
        for reading in reading {
            let answer = reading.join().expect("an answer");
            assert_eq!((answer.status, answer.body.len()), (200, large.len()));
        }
        assert_eq!(proxy.get("/absent").status, 404);
        assert_eq!(server.connections(), 1);
    }
}

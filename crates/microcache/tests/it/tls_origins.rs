//! TLS with origins: trusted certificates, our own certificate, and the data sent.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::support::{CertificateFile, Proxy, listen, request};

/// A server that speaks TLS, and says what it was sent.
struct SecureOrigin {
    address: SocketAddr,
    visits: Arc<Mutex<Vec<Visit>>>,
}

/// One connection.
#[derive(Clone, Debug, Default)]
struct Visit {
    /// The name that was asked for.
    name: Option<String>,
    /// Whether the client has shown a certificate.
    has_certificate: bool,
    /// The heads of its requests, and how long their bodies were.
    requests: Vec<(String, usize)>,
}

impl SecureOrigin {
    /// With this certificate. Clients have to show one of these, if there are any.
    fn start(own: &CertificateFile, clients: &[&CertificateFile]) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = if clients.is_empty() {
            builder.with_no_client_auth()
        } else {
            let mut roots = RootCertStore::empty();
            for client in clients {
                roots.add(client.der()).expect("a root");
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        };
        let key = PrivateKeyDer::from_pem_file(own.path()).expect("a key");
        let config = builder
            .with_single_cert(vec![own.der()], key)
            .expect("a configuration");
        let (config, visits) = (Arc::new(config), Arc::default());
        let seen = Arc::clone(&visits);
        let address = listen(move |socket| {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let visits = Arc::clone(&seen);
            thread::spawn(move || serve(StreamOwned::new(session, socket), &visits));
        });
        Self { address, visits }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.address.port())
    }

    fn visits(&self) -> Vec<Visit> {
        self.visits.lock().expect("nobody panics").clone()
    }
}

/// Answers a request for a number with so many bytes.
fn serve(
    mut stream: StreamOwned<ServerConnection, std::net::TcpStream>,
    visits: &Mutex<Vec<Visit>>,
) {
    if stream.conn.complete_io(&mut stream.sock).is_err() {
        return;
    }
    let number = {
        let mut visits = visits.lock().expect("nobody panics");
        visits.push(Visit {
            name: stream.conn.server_name().map(str::to_owned),
            has_certificate: stream.conn.peer_certificates().is_some(),
            requests: Vec::new(),
        });
        visits.len() - 1
    };
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let field = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        let length = field("Content-Length:").map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("a body");
        let wanted = head
            .split(['/', ' '])
            .nth(2)
            .and_then(|number| number.parse().ok());
        let answer = vec![b'x'; wanted.unwrap_or(2)];
        visits.lock().expect("nobody panics")[number]
            .requests
            .push((head, length));
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        let sent = stream
            .get_mut()
            .write_all(&[head.as_bytes(), &answer].concat());
        if sent.and_then(|()| stream.get_mut().flush()).is_err() {
            return;
        }
    }
}

#[test]
fn an_origin_is_requested_by_tls_and_its_connection_reused() {
    let own = CertificateFile::new(&["localhost"]);
    let origin = SecureOrigin::start(&own, &[]);
    let flags = ["--origin-ca", own.name(), "--threads", "1"];
    let proxy = Proxy::before_url(&origin.url("localhost"), &flags);
    for length in [0, 1, 20_000, 16_384, 1_000_000, 3] {
        let answer = proxy.get(&format!("/{length}"));
        assert_eq!((answer.status, answer.body.len()), (200, length));
    }
    let mut client = proxy.connect();
    client.send(request("POST", "/5", &["Content-Length: 700000"]));
    client.send(vec![b'y'; 700_000]);
    client.response().assert_is(200, "xxxxx");
    let visits = origin.visits();
    assert_eq!(visits.len(), 1, "{visits:?}");
    assert_eq!(visits[0].name.as_deref(), Some("localhost"));
    let (head, length) = visits[0].requests.last().expect("some");
    assert_eq!(*length, 700_000);
    assert!(head.contains("\r\nHost: example.com\r\n"), "{head}");
}

#[test]
fn an_untrusted_origin_gets_no_request() {
    let own = CertificateFile::new(&["localhost"]);
    let other = CertificateFile::new(&["localhost"]);
    let origin = SecureOrigin::start(&own, &[]);
    let (named, address) = (origin.url("localhost"), origin.url("127.0.0.1"));
    for (url, flags, reported) in [
        // The issuer is unknown to the system, or the name is another one.
        (
            &named,
            ["--origin-ca", other.name()],
            "no TLS session: invalid peer certificate",
        ),
        // It is for another name.
        (
            &address,
            ["--origin-ca", own.name()],
            "no TLS session: invalid peer certificate",
        ),
    ] {
        let proxy = Proxy::before_url(url, &flags);
        assert_eq!(proxy.get("/").status, 502);
        proxy.output_with(reported);
    }
    let flags = ["--origin-ca", own.name(), "--origin-name", "localhost"];
    let proxy = Proxy::before_url(&address, &flags);
    proxy.get("/").assert_is(200, "xx");
    // Who has not gone through with the handshake has not been here.
    assert_eq!(origin.visits().len(), 1);
}

/// `openssl req -x509` makes certificates of authorities, and servers are given them.
#[test]
fn a_self_signed_origin_is_trusted_if_its_certificate_is_configured() {
    let own = CertificateFile::of_an_authority(&["localhost"]);
    let other = CertificateFile::of_an_authority(&["localhost"]);
    let origin = SecureOrigin::start(&own, &[]);
    let flags = ["--origin-ca", own.name()];
    let proxy = Proxy::before_url(&origin.url("localhost"), &flags);
    proxy.get("/").assert_is(200, "xx");
    // Not for another name, and not because another one is named.
    let proxy = Proxy::before_url(&origin.url("127.0.0.1"), &flags);
    assert_eq!(proxy.get("/").status, 502);
    let proxy = Proxy::before_url(&origin.url("localhost"), &["--origin-ca", other.name()]);
    assert_eq!(proxy.get("/").status, 502);
    assert_eq!(origin.visits().len(), 1);
}

#[test]
fn an_origin_that_requires_a_client_certificate_gets_it() {
    let (own, ours) = (
        CertificateFile::new(&["localhost"]),
        CertificateFile::new(&["us"]),
    );
    let origin = SecureOrigin::start(&own, &[&ours]);
    let flags = ["--origin-ca", own.name()];
    let proxy = Proxy::before_url(&origin.url("localhost"), &flags);
    assert_eq!(proxy.get("/").status, 502);
    let flags = [&flags[..], &["--origin-certificate", ours.name()]].concat();
    let proxy = Proxy::before_url(&origin.url("localhost"), &flags);
    proxy.get("/").assert_is(200, "xx");
    assert!(origin.visits().last().expect("one").has_certificate);
}

#[test]
fn an_origin_gets_its_configured_host() {
    let own = CertificateFile::new(&["localhost"]);
    let origin = SecureOrigin::start(&own, &[]);
    let flags = ["--origin-ca", own.name(), "--origin-host", "app.internal"];
    let proxy = Proxy::before_url(&origin.url("localhost"), &flags);
    proxy.get("/").assert_is(200, "xx");
    let (head, _) = &origin.visits()[0].requests[0];
    assert!(head.contains("\r\nHost: app.internal\r\n"), "{head}");
    assert!(
        head.contains("\r\nX-Forwarded-Host: example.com\r\n"),
        "{head}"
    );
}

#[test]
fn an_unusable_ca_file_is_refused_at_the_start() {
    let (good, empty) = (
        CertificateFile::new(&["localhost"]),
        CertificateFile::new(&["a"]),
    );
    empty.write("");
    let old = CertificateFile::new(&["us"]);
    old.renew(&["us"], 2001);
    for (flags, reported) in [
        (&["--origin-ca", "/absent"][..], "cannot read /absent"),
        (&["--origin-ca", empty.name()], "contains no certificate"),
        (
            &[
                "--origin-ca",
                good.name(),
                "--origin-certificate",
                old.name(),
            ],
            "expired on 2001-01-01",
        ),
        (&["--origin-name", "a b"], "write a host name"),
        (&["--origin-host", "a/b"], "write HOST or HOST:PORT"),
    ] {
        let (code, said) = Proxy::refusal(&[flags, &["https://localhost:9"]].concat());
        assert_eq!(code, Some(2), "{flags:?}: {said}");
        assert!(said.contains(reported), "{flags:?}: {said}");
    }
    let _ = fs::remove_file(empty.path());
}

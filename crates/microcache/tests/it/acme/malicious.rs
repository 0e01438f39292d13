//! An authority that speaks the protocol with malicious intent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{HOST, OTHER, site, start};
use crate::support::{CertificateFile, Folder, Signal, eventually, listen};

/// What it says instead of the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    OtherName,
    OtherKey,
    Expired,
    NoCertificate,
    Endless,
    NoJson,
    PlainUrls,
    ManyNames,
    TooOften,
    Page,
}

struct MaliciousAuthority {
    address: SocketAddr,
    orders: Arc<AtomicUsize>,
}

impl MaliciousAuthority {
    fn start(own: &CertificateFile, fault: Fault) -> Self {
        let key = PrivateKeyDer::from_pem_file(own.path()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![own.der()], key)
            .expect("a configuration");
        let (config, orders) = (Arc::new(config), Arc::<AtomicUsize>::default());
        let (counted, finalized) = (Arc::clone(&orders), AtomicUsize::new(0));
        let address = listen(move |socket| {
            let address = socket.local_addr().expect("it has one");
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let stream = StreamOwned::new(session, socket);
            answer(stream, address, fault, (&counted, &finalized));
        });
        Self { address, orders }
    }
}

/// Reads one request, and answers it, with the fault if it concerns it.
fn answer(
    stream: StreamOwned<ServerConnection, TcpStream>,
    address: SocketAddr,
    fault: Fault,
    (orders, finalized): (&AtomicUsize, &AtomicUsize),
) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let lower = head.to_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length = length.map_or(0, |length| length.trim().parse().expect("a length"));
    let mut content = vec![0; length];
    stream.read_exact(&mut content).expect("content");
    let target = head.split(' ').nth(1).expect("a target");
    let scheme = if fault == Fault::PlainUrls {
        "http"
    } else {
        "https"
    };
    let url = |path: &str| format!("{scheme}://localhost:{}{path}", address.port());
    let order = |status: &str| {
        let names = if fault == Fault::ManyNames { 5000 } else { 0 };
        serde_json::json!({
            "status": status, "finalize": url("/finalize"), "certificate": url("/certificate"),
            "identifiers": [{"type": "dns", "value": HOST}],
            "authorizations": vec![url("/authorization"); names],
        })
        .to_string()
    };
    let (mut status, mut kind) = (200, "application/json");
    let body = match target {
        "/dir" if fault == Fault::NoJson => "{\"newNonce\": ".to_owned(),
        "/dir" => serde_json::json!({
            "newNonce": url("/nonce"), "newAccount": url("/account"), "newOrder": url("/order"),
        })
        .to_string(),
        "/order" => {
            orders.fetch_add(1, Ordering::SeqCst);
            match fault {
                Fault::TooOften => {
                    (status, kind) = (429, "application/problem+json");
                    let limited = "urn:ietf:params:acme:error:rateLimited";
                    serde_json::json!({"type": limited, "detail": "too many"}).to_string()
                }
                Fault::Page => {
                    (status, kind) = (503, "text/html");
                    "<h1>maintenance</h1>".to_owned()
                }
                _ => order("ready"),
            }
        }
        "/orders/1" if finalized.load(Ordering::SeqCst) == 0 => order("ready"),
        "/finalize" | "/orders/1" => {
            finalized.fetch_add(1, Ordering::SeqCst);
            order("valid")
        }
        "/certificate" => certificate(fault),
        _ => "{}".to_owned(),
    };
    let fields = format!(
        "Content-Type: {kind}\r\nReplay-Nonce: n\r\nLocation: {}\r\nRetry-After: 7200\r\n",
        url("/orders/1")
    );
    let length = body.len();
    let stream = stream.get_mut();
    // A client that has read enough closes.
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\n{fields}Content-Length: {length}\r\n\r\n{}",
        if head.starts_with("HEAD") { "" } else { &body }
    );
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

fn certificate(fault: Fault) -> String {
    let name = if fault == Fault::OtherName {
        OTHER
    } else {
        HOST
    };
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2000, 1, 1);
    let until = if fault == Fault::Expired { 2001 } else { 2100 };
    params.not_after = date_time_ymd(until, 1, 1);
    let made = params.self_signed(&KeyPair::generate().expect("a key"));
    match fault {
        Fault::NoCertificate => "no certificate".to_owned(),
        Fault::Endless => "x".repeat(1_000_000),
        _ => made.expect("a certificate").pem(),
    }
}

#[test]
fn a_malicious_authority_is_reported_without_its_text() {
    for (fault, reported) in [
        (
            Fault::OtherName,
            "the issued certificate: the certificate is for \"blog.example\"",
        ),
        (
            Fault::OtherKey,
            "the issued certificate: the certificate is for another key",
        ),
        (
            Fault::Expired,
            "the issued certificate: the certificate expired on 2001-01-01",
        ),
        (
            Fault::NoCertificate,
            "the issued certificate: it contains no certificate",
        ),
        (Fault::Endless, "issuing: https://localhost:"),
        (Fault::NoJson, "the account: its answer cannot be parsed"),
        (Fault::PlainUrls, "not an https:// URL"),
        (
            Fault::ManyNames,
            "it demands the validation of several names",
        ),
        (Fault::TooOften, "the order: too many (rateLimited)"),
        (
            Fault::Page,
            "status 503 Service Unavailable: <h1>maintenance</h1>",
        ),
    ] {
        let own = CertificateFile::new(&["localhost"]);
        let authority = MaliciousAuthority::start(&own, fault);
        let (origin, folder) = (site(), Folder::absent());
        let storage = folder.path();
        let directory = format!("https://localhost:{}/dir", authority.address.port());
        let storage = storage.to_str().expect("a path");
        let flags = [
            ["--tls-listen", "127.0.0.1:0"],
            ["--acme", HOST],
            ["--acme-directory", &directory],
            ["--acme-root", own.name()],
            ["--acme-storage", storage],
        ];
        let flags = flags.concat().into_iter().map(str::to_owned);
        let proxy = start(&origin, &flags.collect::<Vec<_>>());
        proxy.output_with(reported);
        proxy.get("/").assert_is(200, "page");
        let kept = std::fs::read_dir(super::kept(storage.as_ref())).expect("it was made");
        let names = kept.map(|entry| entry.expect("an entry").file_name());
        let has_certificate = names.into_iter().any(|name| name == *format!("{HOST}.pem"));
        assert!(!has_certificate, "{fault:?}");
        // Who was asked too often is left alone, whatever the operator does.
        if fault == Fault::TooOften {
            let orders = authority.orders.load(Ordering::SeqCst);
            proxy.signal(Signal::HUP);
            eventually("a reload", || {
                proxy
                    .output()
                    .contains("configuration reloaded")
                    .then_some(())
            });
            assert_eq!(authority.orders.load(Ordering::SeqCst), orders);
        }
    }
}

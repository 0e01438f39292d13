//! Sessions with a real client of the same library, every byte in the test's hands.

use std::fs;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use microcache_testkit::Folder;
use rcgen::{
    CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
    date_time_ymd,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
};

use super::*;

/// 2026-01-01
const NOW: i64 = 1_767_225_600;

/// Writes a file, and returns its path.
fn written(folder: &Folder, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    folder.write(name, content).into()
}

fn certificate(files: &Folder, names: &[&str], key: &KeyPair) -> Arc<Certificate> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = CertificateParams::new(names.clone()).unwrap();
    let made = made.self_signed(key).unwrap();
    let both = format!("{}{}", made.pem(), key.serialize_pem());
    let name = format!("{}.pem", names.join("-").replace('*', "any"));
    let files = CertificateFiles {
        certificate: written(files, &name, both),
        ..CertificateFiles::default()
    };
    Arc::new(files.load(&provider(), NOW).unwrap())
}

fn server(files: &Folder, names: &[&str]) -> Arc<ServerConfig> {
    let one = certificate(files, names, &KeyPair::generate().unwrap());
    let certificates = Arc::new(Certificates::new(&[one], None));
    for_clients(certificates, Tickets::of_this_process(), None, false).unwrap()
}

/// Believes everything: what is shown is for the test to judge.
#[derive(Debug)]
struct Credulous(Vec<SignatureScheme>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

fn client(version: &'static SupportedProtocolVersion, schemes: &[SignatureScheme]) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous(schemes.to_vec())))
        .with_no_client_auth()
}

const ALL: &[SignatureScheme] = &[
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ED25519,
];

fn connect(config: &Arc<ClientConfig>, host: &str) -> ClientConnection {
    let host = ServerName::try_from(host.to_owned()).unwrap();
    ClientConnection::new(Arc::clone(config), host).unwrap()
}

/// Gives the session what the client sends, so many bytes at a time, and the client what it says.
fn exchange(
    client: &mut ClientConnection,
    session: &mut TlsSession,
    step: usize,
) -> Result<Vec<u8>, Error> {
    let mut heard = Vec::new();
    loop {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        for piece in sent.chunks(step) {
            let mut records = vec![0; 64 * 1024];
            let kept = session.put_kept(&mut records).unwrap();
            records[kept..kept + piece.len()].copy_from_slice(piece);
            session.receive(&mut records[..kept + piece.len()], |plain| {
                heard.extend_from_slice(plain);
            })?;
        }
        let said = session.outgoing.split();
        tell(client, &said)?;
        if !client.wants_write() {
            return Ok(heard);
        }
    }
}

/// Gives what was in them.
fn tell(client: &mut ClientConnection, mut records: &[u8]) -> Result<Vec<u8>, Error> {
    let mut heard = Vec::new();
    while !records.is_empty() {
        client.read_tls(&mut records).unwrap();
        client.process_new_packets()?;
        heard.extend(read(client));
    }
    Ok(heard)
}

fn read(client: &mut ClientConnection) -> Vec<u8> {
    let mut read = Vec::new();
    match client.reader().read_to_end(&mut read) {
        Ok(_) => read,
        Err(error) if error.kind() == ErrorKind::WouldBlock => read,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn data_arrives_in_both_directions_in_pieces_of_any_size() {
    let files = Folder::new();
    let server = server(&files, &["a.example"]);
    for version in [&TLS12, &TLS13] {
        for step in [1, 7, 1000, 32 * 1024] {
            let config = Arc::new(client(version, ALL));
            let mut client = connect(&config, "a.example");
            let mut session = TlsSession::new(Arc::clone(&server)).unwrap();
            exchange(&mut client, &mut session, step).unwrap();
            assert!(!session.is_handshaking() && !client.is_handshaking());
            assert!(session.certificate().unwrap().covers("a.example"));
            let said: Vec<u8> = (0..40_000_u32).map(|n| n as u8).collect();
            client.writer().write_all(&said).unwrap();
            let heard = exchange(&mut client, &mut session, step).unwrap();
            assert!(heard == said, "{version:?} in steps of {step}");
        }
    }
}

#[test]
fn pieces_are_sent_in_few_records_and_in_order() {
    let files = Folder::new();
    let server = server(&files, &["a.example"]);
    let config = Arc::new(client(&TLS13, ALL));
    let mut client = connect(&config, "a.example");
    let mut session = TlsSession::new(server).unwrap();
    exchange(&mut client, &mut session, 4096).unwrap();
    let mut out = RecordBuffer::new();
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n / 7) as u8).collect();
    for (lengths, records) in [
        (&[100][..], 1),
        (&[100, 1000, 5, 2], 1),
        (&[300, 16_084], 1),
        (&[300, 16_085], 2),
        (&[16_384, 2], 2),
        (&[20_000, 2, 0, 2], 2),
        (&[0, 65_536], 4),
        (&[300, 65_236], 4),
        (&[300, 199_700], 4),
        (&[1, 199_999], 4),
    ] {
        let mut pieces = Vec::new();
        let mut at = 0;
        for length in lengths {
            pieces.push(IoSlice::new(&bytes[at..at + length]));
            at += length;
        }
        let taken = session.encrypt(&pieces, &mut out).unwrap();
        assert_eq!(taken, at.min(64 * 1024), "{lengths:?}");
        let sealed = out.filled().len() - taken;
        assert_eq!(sealed, records * 22, "{lengths:?} in {records} records");
        let heard = tell(&mut client, out.filled()).unwrap();
        assert!(heard == bytes[..taken], "{lengths:?}");
    }
}

#[test]
fn a_ticket_makes_the_next_handshake_a_short_one_in_both_versions() {
    let files = Folder::new();
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(client(version, ALL));
        let mut kinds = Vec::new();
        for _ in 0..2 {
            // Another configuration each time, as after a reload.
            let server = server(&files, &["a.example"]);
            let mut client = connect(&config, "a.example");
            let mut session = TlsSession::new(server).unwrap();
            exchange(&mut client, &mut session, 4096).unwrap();
            kinds.push(client.handshake_kind().unwrap());
            let mut out = RecordBuffer::new();
            session.encrypt(&[IoSlice::new(b"x")], &mut out).unwrap();
            assert_eq!(tell(&mut client, out.filled()).unwrap(), b"x");
            assert!(
                session.certificate().is_some(),
                "also where it is not shown again"
            );
        }
        assert_eq!(
            kinds,
            [HandshakeKind::Full, HandshakeKind::Resumed],
            "{version:?}"
        );
    }
}

#[test]
fn close_notify_is_sent_and_received() {
    let files = Folder::new();
    let mut session = TlsSession::new(server(&files, &["a.example"])).unwrap();
    session.say_goodbye().unwrap();
    assert!(session.outgoing.is_empty(), "nobody has been greeted");
    let mut session = TlsSession::new(server(&files, &["a.example"])).unwrap();
    let config = Arc::new(client(&TLS13, ALL));
    let mut client = connect(&config, "a.example");
    exchange(&mut client, &mut session, 4096).unwrap();
    client.send_close_notify();
    exchange(&mut client, &mut session, 4096).unwrap();
    assert!(session.has_ended());
    // A client that has sent close_notify is still answered.
    let mut out = RecordBuffer::new();
    session.encrypt(&[IoSlice::new(b"x")], &mut out).unwrap();
    assert_eq!(tell(&mut client, out.filled()).unwrap(), b"x");
    for _ in 0..2 {
        session.say_goodbye().unwrap();
    }
    let alert = session.outgoing.split();
    tell(&mut client, &alert).unwrap();
    assert!(client.process_new_packets().unwrap().peer_has_closed());
}

#[test]
fn keys_change_between_requests_and_the_last_request_comes_with_the_end() {
    let files = Folder::new();
    let config = Arc::new(client(&TLS13, ALL));
    for step in [1, 32 * 1024] {
        let mut session = TlsSession::new(server(&files, &["a.example"])).unwrap();
        let mut client = connect(&config, "a.example");
        exchange(&mut client, &mut session, step).unwrap();
        let mut out = RecordBuffer::new();
        for round in [b"a", b"b"] {
            client.writer().write_all(b"1").unwrap();
            client.refresh_traffic_keys().unwrap();
            client.writer().write_all(b"2").unwrap();
            assert_eq!(exchange(&mut client, &mut session, step).unwrap(), b"12");
            session.encrypt(&[IoSlice::new(round)], &mut out).unwrap();
            assert_eq!(tell(&mut client, out.filled()).unwrap(), round);
        }
        client.writer().write_all(b"3").unwrap();
        client.send_close_notify();
        assert_eq!(exchange(&mut client, &mut session, step).unwrap(), b"3");
        assert!(session.has_ended());
    }
}

#[test]
fn a_client_without_tls_gets_an_alert_and_nothing_else() {
    let files = Folder::new();
    let server = server(&files, &["a.example"]);
    let hello = || {
        let config = Arc::new(client(&TLS13, ALL));
        let mut bytes = Vec::new();
        connect(&config, "a.example").write_tls(&mut bytes).unwrap();
        bytes
    };
    for at in 0..hello().len().min(300) {
        let mut session = TlsSession::new(Arc::clone(&server)).unwrap();
        let mut bytes = hello();
        bytes[at] ^= 0x5a;
        // Some of it means nothing, or something else that is allowed.
        let refused = session.receive(&mut bytes, |_| {}).is_err();
        if refused {
            assert!(
                session
                    .encrypt(&[IoSlice::new(b"x")], &mut RecordBuffer::new())
                    .is_err()
            );
            assert!(session.say_goodbye().is_ok());
        }
    }
    let mut session = TlsSession::new(server).unwrap();
    assert!(session.receive(&mut [0x80; 500], |_| {}).is_err());
    assert_eq!(session.outgoing.first(), Some(&21), "an alert");
}

#[test]
fn a_handshake_that_has_no_end_is_not_kept() {
    let files = Folder::new();
    let mut session = TlsSession::new(server(&files, &["a.example"])).unwrap();
    // A hello of 60,000 bytes, of which they never come to an end.
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0, 0xea, 0x60]);
    record.resize(5 + 0x4000, 0);
    let mut buffer = vec![0; 32 * 1024];
    let refused = (0..4).any(|_| {
        let Ok(kept) = session.put_kept(&mut buffer) else {
            return true;
        };
        let room = record.len().min(buffer.len() - kept);
        buffer[kept..kept + room].copy_from_slice(&record[..room]);
        session.receive(&mut buffer[..kept + room], |_| {}).is_err()
    });
    assert!(refused);
}

#[test]
fn clients_are_shown_the_certificate_for_the_host_that_they_name_and_can_use() {
    let files = Folder::new();
    let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let p256 = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let all = [
        certificate(&files, &["default.example"], &p256()),
        certificate(&files, &["a.example", "b.example"], &ed25519),
        certificate(&files, &["a.example"], &p256()),
        certificate(&files, &["*.a.example"], &p256()),
        certificate(&files, &["x.a.example"], &p256()),
    ];
    let certificates = Arc::new(Certificates::new(&all, None));
    let server = for_clients(certificates, Tickets::of_this_process(), None, false).unwrap();
    let p256_only = &[SignatureScheme::ECDSA_NISTP256_SHA256][..];
    for (host, schemes, expected) in [
        ("a.example", ALL, Some(1)),
        ("A.Example", ALL, Some(1)),
        ("a.example", p256_only, Some(2)),
        ("b.example", ALL, Some(1)),
        ("b.example", p256_only, None),
        ("y.a.example", ALL, Some(3)),
        ("x.a.example", ALL, Some(4)),
        ("x.y.a.example", ALL, Some(0)),
        ("c.example", ALL, Some(0)),
        ("example", ALL, Some(0)),
        ("127.0.0.1", ALL, Some(0)),
    ] {
        let config = Arc::new(client(&TLS13, schemes));
        let mut client = connect(&config, host);
        let mut session = TlsSession::new(Arc::clone(&server)).unwrap();
        let agreed = exchange(&mut client, &mut session, 4096);
        let shown = session.certificate().filter(|_| agreed.is_ok());
        let shown = shown.map(|one| {
            all.iter()
                .position(|other| Arc::ptr_eq(one, other))
                .unwrap()
        });
        assert_eq!(shown, expected, "{host}");
    }
    assert!(all[3].covers("y.a.example") && !all[3].covers("a.example"));
    assert!(!all[3].covers("x.y.a.example") && all[1].covers("b.example"));
}

/// The certificate of a name and its key, as an authority and we would have them.
fn issued(names: &[&str], key: &KeyPair, until: i32) -> String {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = date_time_ymd(2025, 1, 2);
    params.not_after = date_time_ymd(until, 1, 1);
    let made = params.self_signed(key).unwrap();
    format!("{}{}", made.pem(), key.serialize_pem())
}

#[test]
fn issued_certificates_come_after_files_and_before_wildcards() {
    let files = Folder::new();
    let key = || KeyPair::generate().unwrap();
    let file = certificate(&files, &["a.example"], &key());
    let many = certificate(&files, &["*.example"], &key());
    let table = Arc::<IssuedCertificates>::default();
    for name in ["a.example", "b.example", "gone.example"] {
        let issue = IssuedCertificate::read(&issued(&[name], &key(), 2030), name, NOW).unwrap();
        table.show(name, &issue);
    }
    let names = ["none", "a", "b"].map(|name| format!("{name}.example"));
    let wanted = Some((Arc::clone(&table), names.to_vec()));
    let serve = |all: &[Arc<Certificate>]| {
        let certificates = Arc::new(Certificates::new(all, wanted.clone()));
        for_clients(certificates, Tickets::of_this_process(), None, true).unwrap()
    };
    let both = serve(&[Arc::clone(&file), many.clone()]);
    let alone = serve(&[]);
    let own = |name: &str| table.certificate(name).unwrap();
    for (server, host, expected) in [
        (&both, "a.example", Some(file.clone())),
        (&both, "B.example", Some(own("b.example"))),
        (&both, "none.example", Some(many.clone())),
        (&both, "other", Some(file)),
        (&alone, "b.example", Some(own("b.example"))),
        (&alone, "other", Some(own("a.example"))),
        // It is not wanted any more.
        (&both, "gone.example", Some(many)),
        (&alone, "gone.example", Some(own("a.example"))),
    ] {
        let config = Arc::new(client(&TLS13, ALL));
        let mut client = connect(&config, host);
        let mut session = TlsSession::new(Arc::clone(server)).unwrap();
        exchange(&mut client, &mut session, 4096).unwrap();
        let shown = session.certificate().unwrap();
        let expected: Arc<Certificate> = expected.unwrap();
        assert!(Arc::ptr_eq(shown, &expected), "{host}");
    }
    table.keep_only(&[]);
    let config = Arc::new(client(&TLS13, ALL));
    let mut session = TlsSession::new(alone).unwrap();
    let refused = exchange(&mut connect(&config, "b.example"), &mut session, 4096);
    assert!(refused.is_err(), "there is none at all");
}

#[test]
fn challenges_are_answered_while_pending_and_for_their_name_only() {
    let table = Arc::<IssuedCertificates>::default();
    let key = KeyPair::generate().unwrap();
    let good = issued(&["a.example"], &key, 2030);
    table.show(
        "a.example",
        &IssuedCertificate::read(&good, "a.example", NOW).unwrap(),
    );
    let wanted = Some((Arc::clone(&table), vec!["a.example".to_owned()]));
    let certificates = Arc::new(Certificates::new(&[], wanted));
    let server = for_clients(certificates, Tickets::of_this_process(), None, true).unwrap();
    let shake = |host: &str, offers: &[&[u8]]| {
        let mut config = client(&TLS13, ALL);
        config.alpn_protocols = offers.iter().map(|&offer| offer.to_vec()).collect();
        let mut client = connect(&Arc::new(config), host);
        let mut session = TlsSession::new(Arc::clone(&server)).unwrap();
        let agreed = exchange(&mut client, &mut session, 4096);
        agreed.ok().map(|_| session.is_challenge())
    };
    let alone: &[&[u8]] = &[CHALLENGE];
    assert_eq!(shake("a.example", alone), None);
    let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(&[7; 32])];
    let shown = params.self_signed(&key).unwrap().der().to_vec();
    let under_way = table.answer_handshake("a.example", shown, key.serialize_der());
    assert_eq!(shake("A.example", alone), Some(true));
    assert_eq!(shake("b.example", alone), None);
    assert_eq!(shake("a.example", &[b"http/1.1"]), Some(false));
    assert_eq!(shake("a.example", &[CHALLENGE, b"h2"]), Some(false));
    assert_eq!(shake("a.example", &[CHALLENGE, b"other"]), None);
    drop(under_way);
    assert_eq!(shake("a.example", alone), None);
    let target = b"/.well-known/acme-challenge/token";
    assert_eq!(table.answer_at(target), None);
    let under_way = table.answer("token", "token.print");
    assert_eq!(table.answer_at(target).as_deref(), Some("token.print"));
    for other in [
        &b"/.well-known/acme-challenge/"[..],
        b"/.well-known/acme-challenge/token/",
        b"/.well-known/acme-challenge/token?x",
        b"/.well-known/acme-challenge/TOKEN",
        b"/.well-known/acme-challenge/\xff",
        b"/token",
    ] {
        assert_eq!(table.answer_at(other), None);
    }
    drop(under_way);
    assert_eq!(table.answer_at(target), None);
}

#[test]
fn an_issued_certificate_is_checked_against_its_order() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let good = issued(&["a.example", "b.example"], &key, 2030);
    let read = IssuedCertificate::read(&good, "a.example", NOW).unwrap();
    assert_eq!(
        (read.not_before, read.not_after),
        (1_735_776_000, 1_893_456_000)
    );
    let why =
        |pem: &str, name: &str, now: i64| IssuedCertificate::read(pem, name, now).err().unwrap();
    let reason = why(&good, "c.example", NOW);
    assert_eq!(reason, "the certificate is for \"a.example, b.example\"");
    let reason = why(&good, "a.example", read.not_after);
    assert_eq!(reason, "the certificate expired on 2030-01-01");
    let reason = why(&good, "a.example", read.not_before - 1);
    assert!(
        reason.contains("is not valid before 2025-01-02"),
        "{reason}"
    );
    let chain = good.split_once("-----BEGIN PRIVATE").unwrap().0;
    assert_eq!(why(chain, "a.example", NOW), "it contains no private key");
    let mixed = format!("{chain}{}", other.serialize_pem());
    assert_eq!(
        why(&mixed, "a.example", NOW),
        "the certificate is for another key"
    );
    assert_eq!(why("", "a.example", NOW), "it contains no certificate");
    let many = chain.repeat(11);
    assert!(why(&many, "a.example", NOW).contains("more than 10"));
}

#[test]
fn keys_of_customers_are_read_in_both_alphabets() {
    let files = Folder::new();
    let read = |text: &str| read_eab_key(&written(&files, "key", text)).ok();
    assert_eq!(read("-_8=\n").as_deref(), Some(&[0xfb, 0xff][..]));
    assert_eq!(read("+/8").as_deref(), Some(&[0xfb, 0xff][..]));
    assert_eq!(read("aGVsbG8"), Some(b"hello".to_vec()));
    assert_eq!(read("a b"), None);
    assert_eq!(read(""), None);
}

#[test]
fn files_that_cannot_be_used_say_so_with_a_remedy() {
    let files = Folder::new();
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let made = |from: i32, to: i32| {
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 2);
        params.not_after = date_time_ymd(to, 3, 4);
        params.self_signed(&key).unwrap()
    };
    let good = written(&files, "good.pem", made(2025, 2027).pem());
    let own = written(&files, "own.key", key.serialize_pem());
    let foreign = written(&files, "foreign.key", other.serialize_pem());
    let old = written(&files, "old.pem", made(2020, 2021).pem());
    let young = written(&files, "young.pem", made(2030, 2031).pem());
    let der = written(&files, "der.pem", made(2025, 2027).der());
    let cut = written(&files, "cut.pem", &made(2025, 2027).pem()[..200]);
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = written(&files, "encrypted.key", encrypted);
    let empty = written(&files, "empty.pem", "");
    let large = written(&files, "large.pem", vec![b'x'; 1024 * 1024 + 1]);
    let absent = files.path().join("absent.pem");
    let check = |certificate: &Path, key: Option<&Path>, what: &str, remedy: &str| {
        let files = CertificateFiles {
            certificate: certificate.to_owned(),
            key: key.map(Path::to_owned),
            ocsp: None,
        };
        let fault = files.load(&provider(), NOW).expect_err(what);
        assert!(fault.what.contains(what), "{fault:?}");
        assert!(fault.remedy.contains(remedy), "{fault:?}");
        let named = [certificate, files.key_file()];
        let named = named.map(|file| file.display().to_string());
        assert!(
            named.iter().any(|name| fault.what.contains(name)),
            "{fault:?}"
        );
    };
    check(
        &good,
        Some(&foreign),
        "does not match the certificate",
        "was requested",
    );
    check(&good, None, "contains no private key", "CERTIFICATE,KEY");
    check(
        &good,
        Some(&good),
        "contains no private key",
        "BEGIN PRIVATE KEY",
    );
    check(
        &good,
        Some(&encrypted),
        "protected by a password",
        "openssl pkey",
    );
    check(&good, Some(&absent), "cannot read", "may read");
    check(&old, Some(&own), "expired on 2021-03-04", "renew");
    check(
        &young,
        Some(&own),
        "is not valid before 2030-01-02",
        "clock",
    );
    check(&der, Some(&own), "is in DER form", "openssl x509");
    check(&cut, Some(&own), "cannot be read", "copy");
    check(
        &empty,
        Some(&own),
        "contains no certificate",
        "BEGIN CERTIFICATE",
    );
    check(
        &own,
        Some(&own),
        "contains no certificate",
        "BEGIN CERTIFICATE",
    );
    check(&large, Some(&own), "larger than 1 MiB", "only");
    check(&absent, Some(&own), "cannot read", "may read");
    let mut fine = CertificateFiles {
        certificate: good,
        key: Some(own),
        ocsp: Some(empty),
    };
    let fault = fine.load(&provider(), NOW).expect_err("no response");
    assert!(fault.what.contains("no OCSP response"), "{fault:?}");
    fine.ocsp = Some(written(&files, "ocsp.der", [0x30, 0]));
    let loaded = fine.load(&provider(), NOW).unwrap();
    assert_eq!(loaded.key.ocsp.as_deref(), Some(&[0x30, 0][..]));
}

#[test]
fn shared_secrets_are_long_and_not_readable_by_all() {
    let files = Folder::new();
    let long = "x".repeat(32);
    let file = written(&files, "good", format!("{long}\n\n  {long}y \r\n"));
    let read = read_secrets(&file).unwrap();
    assert_eq!(
        read,
        [long.clone().into_bytes(), format!("{long}y").into_bytes()]
    );
    let fault = read_secrets(&written(&files, "short", format!("{long}\nshort"))).unwrap_err();
    assert!(fault.what.contains("secret 2 in"), "{fault:?}");
    let fault = read_secrets(&written(&files, "empty", "\n")).unwrap_err();
    assert!(fault.what.contains("contains no secret"), "{fault:?}");
    for (mode, is_exposed) in [(0o600, false), (0o640, false), (0o644, true)] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(exposed(&file).is_some(), is_exposed, "{mode:o}");
    }
}

//! The PROXY protocol: trusted peers, and the resulting client addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::limits::refused;
use crate::support::http2::{self, Http2};
use crate::support::{
    CertificateFile, Client, Origin, Process, Proxy, Reply, eventually, free_port, left_out,
    request, trusting,
};

const FROM_HERE: [&str; 2] = ["--proxy-protocol", "127.0.0.1"];
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Without any allowed peer.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// An origin that answers with the client address in the request.
fn telling() -> Origin {
    let origin = Origin::start();
    origin.on("/").answer(|seen| {
        let said = |name| seen.field(name).unwrap_or("nothing").to_owned();
        let forwarding_line = format!("{}; {}", said("x-forwarded-for"), said("forwarded"));
        Reply::new(200)
            .with("Cache-Control: no-store")
            .body(forwarding_line)
    });
    origin
}

fn line(address: &str) -> Vec<u8> {
    format!("PROXY TCP4 {address} 10.0.0.1 4711 80\r\n").into_bytes()
}

/// A header of version 2.
fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = (rest.len() as u16).to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}

fn v4(address: [u8; 4]) -> Vec<u8> {
    let rest = [&address[..], &[10, 0, 0, 1, 0, 1, 0, 80]].concat();
    header(0x21, 0x11, &rest)
}

fn forwarding_line(address: &str) -> String {
    format!("{address}; for={address};host=\"example.com\";proto=http")
}

#[test]
fn the_announced_address_is_the_client() {
    let origin = telling();
    let proxy = Proxy::start(&origin, &FROM_HERE);
    let v6 = {
        let address: std::net::Ipv6Addr = "2001:db8::7".parse().expect("an address");
        header(0x21, 0x21, &[&address.octets()[..], &[0; 20]].concat())
    };
    let noise = {
        let rest = [
            &[192, 0, 2, 8][..],
            &[0; 8],
            b"\x04\0\x02xy",
            b"\x01\0\x02h2",
        ]
        .concat();
        header(0x21, 0x11, &rest)
    };
    for (introduction, expected) in [
        (line("192.0.2.7"), forwarding_line("192.0.2.7")),
        (v4([192, 0, 2, 7]), forwarding_line("192.0.2.7")),
        (noise, forwarding_line("192.0.2.8")),
        (
            v6,
            "2001:db8::7; for=\"[2001:db8::7]\";host=\"example.com\";proto=http".to_owned(),
        ),
        (b"PROXY UNKNOWN\r\n".to_vec(), forwarding_line("unknown")),
        (header(0x21, 0x31, &[b'/'; 216]), forwarding_line("unknown")),
        (header(0x21, 0x00, b""), forwarding_line("unknown")),
        (header(0x20, 0x00, b""), forwarding_line("127.0.0.1")),
    ] {
        let bytes = [&introduction[..], request("GET", "/", &[]).as_bytes()].concat();
        let mut client = proxy.connect();
        client.send(&bytes);
        client.response().assert_is(200, &expected);
        // It is said once for all requests.
        client.get("/").assert_is(200, &expected);
        // Byte by byte.
        let mut client = proxy.connect();
        bytes.chunks(1).for_each(|byte| client.send(byte));
        client.response().assert_is(200, &expected);
    }
    // What clients say of themselves counts no more than elsewhere.
    let mut client = proxy.connect();
    let forged = request("GET", "/", &["X-Forwarded-For: 6.6.6.6"]);
    client.send([&line("192.0.2.7")[..], forged.as_bytes()].concat());
    client
        .response()
        .assert_is(200, &forwarding_line("192.0.2.7"));
}

#[test]
fn the_proxy_header_precedes_tls_and_http2() {
    let origin = telling();
    let certificate = CertificateFile::new(&["localhost"]);
    let tls = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let proxy = Proxy::start(&origin, &[&FROM_HERE[..], &tls].concat());
    let mut client = Http2::silent(proxy.address());
    client.send(line("192.0.2.7"));
    let settings = http2::frame(http2::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
    client.send([http2::PREFACE, &settings].concat());
    client
        .get("/")
        .assert_is(200, &forwarding_line("192.0.2.7"));
    let config = trusting(&[&certificate]);
    for pieces in [1, 7, 100] {
        let socket = std::net::TcpStream::connect(proxy.tls_address()).expect("it listens");
        for piece in v4([192, 0, 2, 9]).chunks(pieces) {
            std::io::Write::write_all(&mut &socket, piece).expect("it is taken");
        }
        let host = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::clone(&config), host).expect("a session");
        let mut stream = StreamOwned::new(session, socket);
        let requested = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, requested.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).expect("an answer");
        let expected = "192.0.2.9; for=192.0.2.9;host=\"localhost\";proto=https";
        assert!(answer.ends_with(expected), "{answer}");
    }
}

#[test]
fn unauthorized_proxy_headers_close_the_connection() {
    let origin = telling();
    let certificate = CertificateFile::new(&["localhost"]);
    let flags = [
        &FROM_HERE[..],
        &["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"],
    ];
    let (proxy, admin) = Proxy::operated(&origin, &flags.concat());
    let mut count = 0;
    for introduction in [line("192.0.2.7"), v4([192, 0, 2, 7])] {
        for address in [proxy.address(), proxy.tls_address()] {
            let mut client = Client::connect_from(STRANGER, address);
            client.try_send(&introduction);
            client.try_send(request("GET", "/", &[]));
            assert!(client.is_closed(), "nothing is said");
            count += 1;
            assert_eq!(refused(admin, "proxy-untrusted"), count);
        }
    }
    // One who may says it once: what he passes on does not say it again.
    for again in [line("127.0.0.1"), v4([127, 0, 0, 1])] {
        let mut client = proxy.connect();
        client.send([&line("192.0.2.7")[..], &again].concat());
        client.try_send(request("GET", "/", &[]));
        assert!(client.is_closed());
    }
    assert_eq!(refused(admin, "proxy-untrusted"), count + 2);
    // Without it a stranger is a client like any other, and who has to say it is none.
    let mut stranger = Client::connect_from(STRANGER, proxy.address());
    stranger
        .get("/")
        .assert_is(200, &forwarding_line("127.0.0.2"));
    assert_eq!(origin.count("/"), 1);
    for wrong in [
        request("GET", "/", &[]).into_bytes(),
        b"PROXY TCP4 nonsense\r\n".to_vec(),
        [b"PROXY ".to_vec(), vec![b'x'; 200]].concat(),
        header(0x21, 0x11, b"short"),
        header(0x21, 0x11, &[0; 9000]),
        header(0x31, 0x11, &[0; 12]),
    ] {
        let mut client = proxy.connect();
        client.try_send(&wrong);
        assert!(client.is_closed());
    }
    assert_eq!(refused(admin, "proxy-malformed"), 6);
    assert_eq!(origin.count("/"), 1);
    proxy.output_with("127.0.0.2 sends a PROXY header, but is not in");
    proxy.output_with("127.0.0.1 is in `proxy_protocol`, but sent no valid PROXY header: ");
}

#[test]
fn a_missing_proxy_header_times_out() {
    let origin = telling();
    let flags = [&FROM_HERE[..], &["--client-head-timeout", "200ms"]].concat();
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    let mut late: Vec<_> = [&b""[..], b"P", b"PROXY TCP4 192.0.2.7", SIGNATURE]
        .iter()
        .map(|beginning| {
            let mut client = proxy.connect();
            client.send(beginning);
            client
        })
        .collect();
    assert!(late.iter_mut().all(Client::is_closed));
    assert_eq!(refused(admin, "proxy-timeout"), 4);
    // A load balancer that checks the port leaves without a word, which is not logged.
    drop(proxy.connect());
    let mut client = proxy.connect();
    client.send([line("192.0.2.7"), request("GET", "/", &[]).into_bytes()].concat());
    client
        .response()
        .assert_is(200, &forwarding_line("192.0.2.7"));
    assert_eq!(refused(admin, "proxy-malformed"), 0);
}

#[test]
fn a_listed_proxy_makes_no_client_trusted_or_allowed_to_purge() {
    let origin = telling();
    let all = [
        "--trusted-proxies",
        "127.0.0.1,192.0.2.1",
        "--purge-from",
        "127.0.0.1,192.0.2.0/24",
    ];
    let proxy = Proxy::start(&origin, &[&FROM_HERE[..], &all].concat());
    let answer = |introduction: &[u8], request: String| {
        let mut client = proxy.connect();
        client.send([introduction, request.as_bytes()].concat());
        client.response()
    };
    let forged = || request("GET", "/", &["X-Forwarded-For: 6.6.6.6"]);
    let purge = || request("PURGE", "/", &[]);
    let unknown = b"PROXY UNKNOWN\r\n";
    answer(&line("198.51.100.7"), forged()).assert_is(200, &forwarding_line("198.51.100.7"));
    answer(unknown, forged()).assert_is(200, &forwarding_line("unknown"));
    assert_eq!(answer(&line("198.51.100.7"), purge()).status, 403);
    assert_eq!(answer(unknown, purge()).status, 403);
    // Those who are named are judged by their own addresses.
    let believed = answer(&line("192.0.2.1"), forged()).text();
    assert!(believed.starts_with("6.6.6.6, 192.0.2.1; "), "{believed}");
    assert_eq!(answer(&line("192.0.2.9"), purge()).status, 200);
    // A proxy that may not purge cannot have it done in the name of one who may.
    let only = ["--purge-from", "192.0.2.0/24"];
    let proxy = Proxy::start(&origin, &[&FROM_HERE[..], &only].concat());
    let mut client = proxy.connect();
    client.send([line("192.0.2.9"), purge().into_bytes()].concat());
    assert_eq!(client.response().status, 403);
}

#[test]
fn connections_count_for_the_announced_address() {
    let origin = telling();
    origin.on("/wait").reply(Reply::silence());
    let flags = [&FROM_HERE[..], &["--max-connections-per-address", "3"]].concat();
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    let from = |address: &str, target: &str| {
        let mut client = proxy.connect();
        client.send(
            [
                line(address),
                request("GET", target, &["Cookie: session=1"]).into_bytes(),
            ]
            .concat(),
        );
        client
    };
    let busy: Vec<_> = (0..3)
        .map(|number| {
            let client = from("192.0.2.7", "/wait");
            origin.wait_for("/wait", number + 1);
            client
        })
        .collect();
    assert!(from("192.0.2.7", "/").is_closed());
    assert_eq!(refused(admin, "address"), 1);
    for last in 8..20 {
        let address = format!("192.0.2.{last}");
        from(&address, "/")
            .response()
            .assert_is(200, &forwarding_line(&address));
    }
    busy.into_iter().for_each(Client::reset);
    eventually("a place", || from("192.0.2.7", "/").try_response().ok());
}

#[test]
fn ten_thousand_addresses_leave_nothing_behind() {
    let origin = telling();
    let (proxy, admin) = Proxy::operated(&origin, &FROM_HERE);
    let ask = |number: u32| {
        let mut client = proxy.connect();
        let [_, a, b, c] = number.to_be_bytes();
        client.send(
            [
                v4([11, a, b, c]),
                request("GET", "/none", &["Connection: close"]).into_bytes(),
            ]
            .concat(),
        );
        client.response();
    };
    (0..1000).for_each(ask);
    let before = proxy.resident();
    (1000..11_000).for_each(ask);
    assert!(proxy.resident() < before + (8 << 20));
    assert_eq!(refused(admin, "address"), 0);
}

#[test]
fn curl_and_haproxy_say_it_as_it_is_read() {
    let origin = telling();
    let proxy = Proxy::start(&origin, &FROM_HERE);
    let url = format!("http://{}/", proxy.address());
    let output = Command::new("curl")
        .args(["-sS", "--haproxy-protocol", "-H", "Host: example.com", &url])
        .output();
    match output {
        Ok(output) => assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            forwarding_line("127.0.0.1"),
            "{output:?}"
        ),
        Err(_) => left_out("the PROXY protocol by curl, which is not installed"),
    }
    for (version, extra) in [
        ("send-proxy", ""),
        ("send-proxy-v2", " proxy-v2-options crc32c,unique-id"),
    ] {
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let text = format!(
            "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
             frontend f\n bind {listen}\n unique-id-format %pid\n default_backend b\nbackend b\n server s {} {version}{extra}\n",
            proxy.address()
        );
        let file = crate::support::config_file(&text);
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file);
        let Some(mut haproxy) = Process::start(&mut command) else {
            left_out("the PROXY protocol by HAProxy, which is not installed");
            return;
        };
        haproxy.listens(listen.port());
        let mut client = Client::connect_from(STRANGER, listen);
        let answer = client.try_get("/").expect("an answer");
        answer.assert_is(200, &forwarding_line("127.0.0.2"));
    }
}

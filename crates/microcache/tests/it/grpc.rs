//! gRPC, by a client and a service of another implementation (python3-grpcio): a call through here is what it is without.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::support::{Process, Proxy, has_python_module};

const PYTHON: &str = "/usr/bin/python3";
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc");

struct Service {
    _process: Process,
    port: u16,
}

impl Service {
    fn start() -> Option<Self> {
        if !has_python_module("grpc", "gRPC") {
            return None;
        }
        let mut command = Command::new(PYTHON);
        command.current_dir(PROGRAMS).args(["-B", "server.py"]);
        let mut process = Process::start(command.stdin(Stdio::piped()))?;
        let port = process.ready("its port", |output| {
            output.lines().find_map(|line| line.parse().ok())
        });
        Some(Self {
            _process: process,
            port,
        })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// What comes of each kind of call at this address. With a pause, neither side of a conversation says anything for so many
/// seconds.
fn calls(address: SocketAddr, pause: &[&str]) -> String {
    let output = Command::new(PYTHON)
        .current_dir(PROGRAMS)
        .args(["-B", "client.py", &address.to_string()])
        .args(pause)
        .stdin(Stdio::null())
        .output()
        .expect("it can be run");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_call_through_the_proxy_equals_a_direct_one() {
    let Some(service) = Service::start() else {
        return;
    };
    let direct = calls(([127, 0, 0, 1], service.port).into(), &[]);
    assert!(direct.contains("error (<StatusCode.NOT_FOUND"), "{direct}");
    assert_eq!(direct.lines().count(), 22, "{direct}");
    let proxy = Proxy::before_url(&service.url(), &["--origin-http2"]);
    assert_eq!(calls(proxy.address(), &[]), direct);
}

#[test]
fn conversations_hold_no_place_and_may_be_silent() {
    let Some(service) = Service::start() else {
        return;
    };
    let direct = calls(([127, 0, 0, 1], service.port).into(), &[]);
    let flags = [
        "--origin-http2",
        "--max-concurrent",
        "2",
        "--max-uploads",
        "1",
        "--client-body-timeout",
        "4s",
        "--between-bytes-timeout",
        "4s",
        "--threads",
        "1",
    ];
    let proxy = Proxy::before_url(&service.url(), &flags);
    assert_eq!(calls(proxy.address(), &["9"]), direct);
}

//! The real binary, started for one test and killed at its end.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Client, Origin, Process, Response, Signal};

const BINARY: &str = env!("CARGO_BIN_EXE_microcache");

/// It listens wherever there is room, and to no operators.
const ADDRESSES: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "off"];

/// A running proxy.
pub(crate) struct Proxy {
    process: Process,
    address: SocketAddr,
}

impl Proxy {
    /// `microcache --listen 127.0.0.1:0 <flags> <origin>`.
    pub(crate) fn start(origin: &Origin, flags: &[&str]) -> Self {
        Self::before(&[origin], flags)
    }

    /// The same, with an interface for operators, whose address comes with it.
    pub(crate) fn operated(origin: &Origin, flags: &[&str]) -> (Self, SocketAddr) {
        Self::operated_with(&[flags, &[&origin.url()]].concat())
    }

    /// The same with a configuration that names the origins.
    pub(crate) fn operated_by_file(text: &str) -> (Self, SocketAddr) {
        let file = config_file(text);
        Self::operated_with(&["--config", file.to_str().expect("a path")])
    }

    /// The same as `operated`, by way of a command that becomes what its last arguments say.
    pub(crate) fn operated_through(
        wrapper: &[&str],
        origin: &Origin,
        flags: &[&str],
    ) -> (Self, SocketAddr) {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(BINARY);
        Self::operated_by(command, &[flags, &[&origin.url()]].concat())
    }

    fn operated_with(arguments: &[&str]) -> (Self, SocketAddr) {
        Self::operated_by(Command::new(BINARY), arguments)
    }

    fn operated_by(mut command: Command, arguments: &[&str]) -> (Self, SocketAddr) {
        command
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(arguments);
        let mut proxy = Self::spawn(command);
        let admin = proxy.ready("the interface for operators", |output| {
            let (_, rest) = output.split_once("  admin   http://")?;
            rest.split_once(' ')?.0.parse().ok()
        });
        (proxy, admin)
    }

    /// The same before several origins, which form one group.
    pub(crate) fn before(origins: &[&Origin], flags: &[&str]) -> Self {
        let urls: Vec<_> = origins.iter().map(|origin| origin.url()).collect();
        let mut command = Command::new(BINARY);
        command.args(ADDRESSES).args(flags).args(urls);
        Self::spawn(command)
    }

    /// The same before an origin of another kind.
    pub(crate) fn before_url(url: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(ADDRESSES).args(flags).arg(url);
        Self::spawn(command)
    }

    /// `microcache --config FILE`, listening wherever there is room.
    pub(crate) fn with_config(text: &str) -> Self {
        let mut command = Command::new(BINARY);
        command
            .args(ADDRESSES)
            .arg("--config")
            .arg(config_file(text));
        Self::spawn(command)
    }

    /// `microcache --config FILE`, with a file that may change, and that says where it listens.
    pub(crate) fn by_file(file: &Path) -> Self {
        let mut command = Command::new(BINARY);
        command.arg("--config").arg(file);
        Self::spawn(command)
    }

    /// The same as `start`, allowed so many file descriptors.
    pub(crate) fn with_descriptors(limit: u32, origin: &Origin, flags: &[&str]) -> Self {
        let limit = limit.to_string();
        let limited = ["sh", "-c", "ulimit -n \"$0\" && exec \"$@\"", &limit];
        Self::through(&limited, origin, flags)
    }

    /// The same as `start`, by way of a command that becomes what its last arguments say.
    pub(crate) fn through(wrapper: &[&str], origin: &Origin, flags: &[&str]) -> Self {
        let mut command = Command::new(wrapper[0]);
        command
            .args(&wrapper[1..])
            .arg(BINARY)
            .args(ADDRESSES)
            .args(flags)
            .arg(origin.url());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let process = Process::start(command.stdin(Stdio::null()));
        let mut process = process.expect("the binary can be run");
        let address = process.ready("the proxy to listen", listening);
        Self { process, address }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends a GET on a connection of its own that has little room for the answer, and takes no
    /// more than its head.
    pub(crate) fn ask_and_stall(&self, target: &str) -> Client {
        let mut client = Client::connect_narrow(self.address);
        client.send(request("GET", target, &[]));
        client.head();
        client
    }

    /// A GET on a connection of its own, with no other field than `Host`.
    pub(crate) fn get(&self, target: &str) -> Response {
        self.connect().get(target)
    }

    /// A GET with more field lines.
    pub(crate) fn get_with(&self, target: &str, fields: &[&str]) -> Response {
        self.send("GET", target, fields)
    }

    /// The same from this address of the machine.
    pub(crate) fn get_from(&self, client: &str, target: &str, fields: &[&str]) -> Response {
        let client = client.parse().expect("an address");
        let mut client = Client::connect_from(client, self.address);
        client.send(request("GET", target, fields));
        client.response()
    }

    /// A request without a body, on a connection of its own.
    pub(crate) fn send(&self, method: &str, target: &str, fields: &[&str]) -> Response {
        let mut client = self.connect();
        client.send(request(method, target, fields));
        if method == "HEAD" {
            client.response_to_head()
        } else {
            client.response()
        }
    }

    /// Sends a GET on a connection of its own, without waiting for the answer.
    pub(crate) fn ask(&self, target: &str) -> Client {
        self.ask_with(target, &[])
    }

    /// The same with more field lines.
    pub(crate) fn ask_with(&self, target: &str, fields: &[&str]) -> Client {
        let mut client = self.connect();
        client.send(request("GET", target, fields));
        client
    }

    /// Gives whatever was sent before the time to be noticed: answers that need no origin come
    /// after it, on the same threads.
    pub(crate) fn settle(&self) {
        for _ in 0..20 {
            assert_eq!(
                self.get_with("/settle", &["Cache-Control: only-if-cached"])
                    .status,
                504
            );
        }
    }

    /// The response to exactly these bytes, on a connection of its own.
    pub(crate) fn request(&self, raw: impl AsRef<[u8]>) -> Response {
        let mut client = self.connect();
        client.send(raw);
        client.response()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is reached by TLS.
    pub(crate) fn tls_address(&self) -> SocketAddr {
        let output = self.output();
        listening_by(&output, "https").expect("it speaks TLS")
    }

    /// The end of one that cannot start: its exit code, and what it wrote.
    pub(crate) fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(BINARY);
        let output = command.args(ADDRESSES).args(arguments).output();
        let output = output.expect("the binary can be run");
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), reported)
    }

    /// Bytes of memory that are really in use.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .expect("VmRSS");
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }
}

impl Deref for Proxy {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Proxy {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The bytes of a request without a body.
pub(crate) fn request(method: &str, target: &str, fields: &[&str]) -> String {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: example.com\r\n");
    for line in fields {
        write!(text, "{line}\r\n").unwrap();
    }
    text.push_str("\r\n");
    text
}

pub(crate) fn config_file(text: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::SeqCst);
    let name = format!("{}-{number}.toml", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

fn listening(output: &str) -> Option<SocketAddr> {
    listening_by(output, "http")
}

fn listening_by(output: &str, scheme: &str) -> Option<SocketAddr> {
    let (_, rest) = output.split_once(&format!("listening on {scheme}://"))?;
    // In JSON, what ends the line is written `\n`.
    let end = rest.find(|char: char| char.is_whitespace() || char == '\\');
    rest[..end?].parse().ok()
}

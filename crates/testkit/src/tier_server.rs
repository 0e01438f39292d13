//! Servers of the shared tiers, memcached and Redis, as real processes on loopback.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use crate::{Folder, Process, free_port};

/// Kind of a shared tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierKind {
    /// memcached.
    Memcached,
    /// Redis, or the program that the variable `REDIS_SERVER` names.
    Redis,
}

impl TierKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Memcached, Self::Redis];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// Program, which is also the name of its package.
    fn program(self) -> String {
        match self {
            Self::Memcached => "memcached".to_owned(),
            Self::Redis => env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned()),
        }
    }
}

/// Running server, which stores nothing beyond its end; killed on drop.
pub struct TierServer {
    process: Process,
    kind: TierKind,
    port: u16,
    folder: Folder,
    arguments: Vec<String>,
}

impl TierServer {
    /// Starts memcached.
    pub fn memcached() -> Self {
        Self::start(TierKind::Memcached)
    }

    /// Starts Redis.
    pub fn redis() -> Self {
        Self::start(TierKind::Redis)
    }

    /// Starts a server at a free port.
    pub fn start(kind: TierKind) -> Self {
        Self::start_with(kind, &[])
    }

    /// Starts a server with more arguments.
    pub fn start_with(kind: TierKind, arguments: &[&str]) -> Self {
        Self::start_at(free_port(), kind, arguments)
    }

    /// Starts Redis as a member of a cluster, with further arguments. The port of the bus would be 10,000 above the other, where an outgoing
    /// connection may be.
    pub fn cluster_member(arguments: &[&str]) -> Self {
        let bus = free_port().to_string();
        let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        Self::start_with(TierKind::Redis, &[&cluster, arguments].concat())
    }

    /// Starts a sentinel alone in watching the Redis at this port, which it calls `mymaster`.
    pub fn sentinel(master: u16, settings: &[&str]) -> Self {
        let (folder, port) = (Folder::new(), free_port());
        let monitor = format!("sentinel monitor mymaster 127.0.0.1 {master} 1");
        let port_line = format!("port {port}");
        let lines = [&[&*port_line, "bind 127.0.0.1", &monitor], settings].concat();
        let file = folder.write("sentinel.conf", lines.join("\n"));
        let program = TierKind::Redis.program();
        let mut command = Command::new(&program);
        command.args([&file, "--sentinel", "--dir", folder.as_str()]);
        let started = Process::start(&mut command);
        let mut process = started.unwrap_or_else(|| panic!("install the package {program}"));
        process.ready(&program, |output| {
            output.contains("+monitor master").then_some(())
        });
        Self {
            process,
            kind: TierKind::Redis,
            port,
            folder,
            arguments: Vec::new(),
        }
    }

    /// Port of the cluster's bus.
    pub fn bus(&self) -> String {
        let nodes = self.say("CLUSTER NODES");
        let (_, after) = nodes.split_once('@').expect("an address with its bus");
        after.chars().take_while(char::is_ascii_digit).collect()
    }

    /// Starts a server at this port.
    pub fn start_at(port: u16, kind: TierKind, arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let arguments: Vec<String> = arguments
            .iter()
            .map(|&argument| argument.to_owned())
            .collect();
        let process = spawn(kind, port, &folder, &arguments);
        Self {
            process,
            kind,
            port,
            folder,
            arguments,
        }
    }

    /// Kind of its tier.
    pub const fn kind(&self) -> TierKind {
        self.kind
    }

    /// Port of loopback.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Folder in which Redis writes.
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Address, as the options of the command line have it.
    pub fn address(&self) -> String {
        match self.kind {
            TierKind::Memcached => format!("127.0.0.1:{}", self.port),
            TierKind::Redis => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// Option of the command line with its value.
    pub fn flags(&self) -> [String; 2] {
        [format!("--{}", self.kind.name()), self.address()]
    }

    /// Suspends the server: it accepts connections and answers nothing.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// Resumes a suspended server.
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a killed server again at the same address, with what it has written to its folder.
    pub fn restart(&mut self) {
        self.process = spawn(self.kind, self.port, &self.folder, &self.arguments);
    }

    /// Sends a command to Redis, and returns the line or the text of the reply.
    pub fn say(&self, command: &str) -> String {
        assert_eq!(self.kind, TierKind::Redis);
        let mut stream = self.connect();
        write!(stream, "{command}\r\n").expect("it reads");
        let mut reply = BufReader::new(stream);
        let mut line = String::new();
        reply.read_line(&mut line).expect("a line");
        assert!(!line.starts_with('-'), "{command}: {line}");
        if let Some(length) = line.strip_prefix('$') {
            let mut text = vec![0; length.trim().parse().expect("a length")];
            reply.read_exact(&mut text).expect("the whole text");
            return String::from_utf8(text).expect("text");
        }
        line.trim_end()[1..].to_owned()
    }

    /// Sends a command to memcached, with the ends of its lines, and returns the reply.
    pub fn command(&self, command: &str) -> Vec<u8> {
        self.exchange(command.as_bytes())
    }

    /// Stores a value in memcached.
    pub fn set(&self, key: &str, value: &[u8]) {
        let line = format!("ms {key} {}\r\n", value.len());
        let stored = self.exchange(&[line.as_bytes(), value, b"\r\n"].concat());
        assert_eq!(stored, b"HD\r\n");
    }

    /// Returns true if memcached has something under this key.
    pub fn has(&self, key: &str) -> bool {
        self.command(&format!("mg {key}\r\n")) == b"HD\r\n"
    }

    /// Value that memcached has under this key.
    pub fn value(&self, key: &str) -> Vec<u8> {
        let answer = self.command(&format!("mg {key} v\r\n"));
        let line = answer.iter().position(|&b| b == b'\n').expect("a line");
        answer[line + 1..answer.len() - 2].to_vec()
    }

    /// Number that memcached counts under this name.
    pub fn statistic(&self, name: &str) -> usize {
        let text = String::from_utf8(self.command("stats\r\n")).expect("text");
        let beginning = format!("STAT {name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&beginning));
        value.expect("a statistic").parse().expect("a number")
    }

    fn exchange(&self, command: &[u8]) -> Vec<u8> {
        assert_eq!(self.kind, TierKind::Memcached);
        let mut stream = self.connect();
        stream.write_all(command).expect("it reads");
        stream.write_all(b"quit\r\n").expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        answer
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens")
    }
}

fn spawn(kind: TierKind, port: u16, folder: &Folder, arguments: &[String]) -> Process {
    let program = kind.program();
    let mut command = Command::new(&program);
    let port_text = port.to_string();
    match kind {
        TierKind::Memcached => {
            command.args(["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-t", "1"]);
            command.args(["-m", "64", "-p", &port_text]);
        }
        TierKind::Redis => {
            command.args(["--bind", "127.0.0.1", "--port", &port_text]);
            command.args(["--save", "", "--appendonly", "no"]);
            command.args(["--dir", folder.as_str()]);
        }
    }
    let started = Process::start(command.args(arguments));
    let mut process = started.unwrap_or_else(|| panic!("install the package {program}"));
    match kind {
        TierKind::Memcached => process.listens(port),
        TierKind::Redis => process.ready(&program, |output| {
            output.contains("eady to accept connections").then_some(())
        }),
    }
    process
}

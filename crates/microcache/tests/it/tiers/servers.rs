//! Real memcached and Redis processes on loopback.

use std::env;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::support::{eventually, until_frozen};

/// A server that is killed at the end of the test.
pub(crate) struct Server {
    child: Child,
    port: u16,
    kind: Kind,
}

/// A tier that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memcached,
    Redis,
}

/// The items of the log of purges that lie in memcached while nobody purges, and the keys of the one in Redis.
pub(crate) const LOG_ITEMS: usize = 2;
pub(crate) const LOG_KEYS: usize = 1;

/// Both, for what has to hold with either.
pub(crate) const BOTH: [Kind; 2] = [Kind::Memcached, Kind::Redis];

impl Kind {
    /// How reports call the tier.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// What to run, which is also the name of its package. Redis may be another that speaks like it.
    fn program(self) -> String {
        match self {
            Self::Memcached => "memcached".to_owned(),
            Self::Redis => env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned()),
        }
    }

    fn command(self, port: u16) -> Command {
        let port = port.to_string();
        let mut command = Command::new(self.program());
        match self {
            Self::Memcached => {
                command.args(["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-t", "1"]);
                command.args(["-m", "64", "-p", &port]);
            }
            Self::Redis => {
                command.args(["--bind", "127.0.0.1", "--port", &port]);
                command.args(["--save", "", "--appendonly", "no"]);
                command.args(["--dir", env!("CARGO_TARGET_TMPDIR")]);
            }
        }
        command
    }
}

impl Server {
    pub(crate) fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[])
    }

    pub(crate) fn start_with(kind: Kind, arguments: &[&str]) -> Self {
        // Whoever else looks for a port may take it first; then there is another one.
        for _ in 0..10 {
            let port = free_port();
            if let Some(child) = spawn(kind, port, arguments) {
                return Self { child, port, kind };
            }
        }
        panic!("{} does not start", kind.program());
    }

    /// What `--memcached` or `--redis` gets.
    pub(crate) fn address(&self) -> String {
        match self.kind {
            Kind::Memcached => format!("127.0.0.1:{}", self.port),
            Kind::Redis => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// What Redis says to one command: a line, or the text that a line gives the length of.
    pub(crate) fn say(&self, command: &str) -> String {
        assert_eq!(self.kind, Kind::Redis);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
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

    /// What memcached counts under this name.
    pub(crate) fn statistic(&self, name: &str) -> usize {
        assert_eq!(self.kind, Kind::Memcached);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        stream.write_all(b"stats\r\nquit\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let beginning = format!("STAT {name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&beginning));
        value.expect("a statistic").parse().expect("a number")
    }

    /// Whether memcached has something under this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        assert_eq!(self.kind, Kind::Memcached);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        let question = format!("mg {key}\r\nquit\r\n");
        stream.write_all(question.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text == "HD\r\n"
    }

    /// The flag and its value.
    pub(crate) fn flags(&self) -> [String; 2] {
        [format!("--{}", self.kind.name()), self.address()]
    }

    /// It accepts connections, and answers nothing.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
        until_frozen(self.child.id());
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Starts it anew at the same address, empty.
    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same, with these arguments.
    pub(crate) fn restart_with(&mut self, arguments: &[&str]) {
        self.child = spawn(self.kind, self.port, arguments).expect("the port is still free");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A port that nobody has at the moment.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// `None` if the port is taken.
fn spawn(kind: Kind, port: u16, arguments: &[&str]) -> Option<Child> {
    let spawned = kind
        .command(port)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("{0} is missing: install the package {0}", kind.program())
        }
        Err(error) => panic!("{}: {error}", kind.program()),
    };
    eventually("the server to listen", || {
        if child.try_wait().expect("a child").is_some() {
            return Some(false);
        }
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        connected.is_ok().then_some(true)
    })
    .then_some(child)
}

/// A server that answers every line with another one that means nothing.
pub(crate) fn babbling() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut answers = stream.try_clone().expect("a socket");
                let mut lines = BufReader::new(stream);
                let mut line = Vec::new();
                while matches!(
                    lines.by_ref().take(4096).read_until(b'\n', &mut line),
                    Ok(1..)
                ) {
                    line.clear();
                    if answers
                        .write_all(b"220 mail.example.com ESMTP\r\n")
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    address
}

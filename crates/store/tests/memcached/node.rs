//! Memcached process on loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_store::memcached::ServerAddress;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Time limit for the server to start.
const STARTING: Duration = Duration::from_secs(20);

pub(crate) struct Node {
    child: Child,
    port: u16,
    arguments: Vec<String>,
}

impl Node {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        // The port may be taken in between; then another one is tried.
        for _ in 0..10 {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let port = listener.local_addr().expect("an address").port();
            drop(listener);
            if let Some(child) = spawn(port, &arguments) {
                return Self {
                    child,
                    port,
                    arguments,
                };
            }
        }
        panic!("memcached does not start");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> ServerAddress {
        format!("127.0.0.1:{}", self.port)
            .parse()
            .expect("an address")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Restarts it at the same address, empty.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.port, &self.arguments).expect("the port is still free");
    }

    /// Suspends the process, which still accepts connections (SIGSTOP).
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        // The signal takes effect asynchronously.
        let stopped = waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        stopped.expect("it stops");
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Sends a raw command and returns the response.
    pub(crate) fn command(&self, command: &str) -> Vec<u8> {
        self.send(command.as_bytes())
    }

    pub(crate) fn set(&self, key: &str, value: &[u8]) {
        let command = [
            format!("ms {key} {}\r\n", value.len()).as_bytes(),
            value,
            b"\r\n",
        ]
        .concat();
        assert_eq!(self.send(&command), b"HD\r\n");
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.command(&format!("mg {key}\r\n")) == b"HD\r\n"
    }

    pub(crate) fn value(&self, key: &str) -> Bytes {
        let answer = self.command(&format!("mg {key} v\r\n"));
        let line = answer.iter().position(|&b| b == b'\n').expect("a line");
        Bytes::copy_from_slice(&answer[line + 1..answer.len() - 2])
    }

    fn send(&self, command: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it is up");
        stream.write_all(command).expect("it reads");
        stream.write_all(b"quit\r\n").expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        answer
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns `None` if the port is taken.
fn spawn(port: u16, arguments: &[String]) -> Option<Child> {
    let spawned = Command::new("memcached")
        .args([
            "-l",
            "127.0.0.1",
            "-U",
            "0",
            "-u",
            "nobody",
            "-t",
            "1",
            "-m",
            "64",
        ])
        .args(["-p", &port.to_string()])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("memcached is missing: install the package memcached")
        }
        Err(error) => panic!("memcached: {error}"),
    };
    let begun = Instant::now();
    while begun.elapsed() < STARTING {
        if child.try_wait().expect("a child").is_some() {
            return None;
        }
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Some(child);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("memcached does not listen");
}

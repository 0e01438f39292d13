//! Server process on loopback, killed at the end of its test.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redis::{Cmd, FromRedisValue};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Temporary directory, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("microcache-redis-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new folder");
        Self(path)
    }

    /// Path of a file in the directory.
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.0.join(name).into_os_string();
        path.into_string().expect("text")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    _folder: Folder,
    arguments: Vec<String>,
}

impl Server {
    /// Starts a server without persistence, with further arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        for _ in 0..10 {
            if let Some(server) = Self::start_at(free_port(), arguments) {
                return server;
            }
        }
        panic!("{} does not start", program());
    }

    /// Returns `None` if the port has been taken in the meantime.
    pub(crate) fn start_at(port: u16, arguments: &[&str]) -> Option<Self> {
        let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
        let mut command = Command::new(program());
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        let folder = Folder::new();
        command.args([
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            &folder.file(""),
        ]);
        command
            .args(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!("{0}: {error} (install it: apt-get install {0})", program())
        });
        let ready = wait_until_ready(child.stdout.take().expect("piped"));
        let server = Self {
            child,
            port,
            _folder: folder,
            arguments,
        };
        ready.then_some(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts a killed server at the same address.
    pub(crate) fn restart(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let again = Self::start_at(self.port, &arguments).expect("its port is free");
        *self = again;
    }

    /// Suspends the process (SIGSTOP).
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        // The signal takes effect asynchronously.
        let stopped = waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        stopped.expect("it stops");
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), signal).expect("it runs");
    }

    /// Sends a command to the server, bypassing the tier.
    pub(crate) fn say<T: FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut cmd = Cmd::new();
        words.by_ref().for_each(|word| {
            cmd.arg(word);
        });
        self.send(&cmd)
    }

    pub(crate) fn send<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let client = redis::Client::open(self.url()).expect("an address");
        let mut connection = client.get_connection().expect("it runs");
        let reply = command.query(&mut connection);
        reply.unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Executable of Redis, or of a compatible server.
fn program() -> String {
    env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Returns a currently unused port.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

/// Returns `false` if the server exits instead. Keeps draining its output, so that it never blocks.
fn wait_until_ready(stdout: ChildStdout) -> bool {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.contains("Ready to accept connections")
                || line.contains("ready to accept connections at")
            {
                let _ = sender.send(());
            }
        }
    });
    receiver.recv_timeout(Duration::from_secs(20)).is_ok()
}

//! A server that counts what it is asked, and answers as a test wants.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Nothing a test waits for takes longer.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// One request.
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// One answer.
pub(crate) struct Reply {
    bytes: Vec<u8>,
    delay: Duration,
    closes: bool,
    is_held: bool,
}

impl Reply {
    /// With these further fields. `SEEN` in the body becomes the number of requests so far.
    pub(crate) fn ok(fields: &str, body: &str) -> Self {
        Self::raw(
            format!(
                "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .as_bytes(),
        )
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::raw(format!("HTTP/1.1 {status} It\r\nContent-Length: 0\r\n\r\n").as_bytes())
    }

    pub(crate) fn raw(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            delay: Duration::ZERO,
            closes: false,
            is_held: false,
        }
    }

    /// None, for as long as the client waits.
    pub(crate) fn never() -> Self {
        Self {
            is_held: true,
            ..Self::raw(b"")
        }
    }

    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    pub(crate) fn and_close(mut self) -> Self {
        self.closes = true;
        self
    }

    pub(crate) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// A server; gone at the end of the test.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Box<dyn Fn(&Request) -> Reply + Send + Sync>,
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    by_path: BTreeMap<String, u64>,
    requests: u64,
    connections: Vec<TcpStream>,
    dead: bool,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            seen: Mutex::default(),
            changed: Condvar::new(),
        });
        let server = Self {
            address,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || accept(&listener, &shared));
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests in all, the counter's left out.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.seen().requests
    }

    pub(crate) fn requests_for(&self, path: &str) -> u64 {
        self.shared.seen().by_path.get(path).copied().unwrap_or(0)
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.seen().connections.len()
    }

    pub(crate) fn wait_for_requests(&self, count: u64) {
        let seen = self.shared.seen();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(seen, TIME_LIMIT, |seen| seen.requests < count);
        let (seen, late) = waited.expect("no test has panicked");
        assert!(!late.timed_out(), "{} requests came", seen.requests);
    }

    /// Resets every connection, and accepts no more.
    pub(crate) fn die(&self) {
        let mut seen = self.shared.seen();
        seen.dead = true;
        for connection in &seen.connections {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(seen);
        // The listener is let go when it has accepted one more.
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.die();
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no test has panicked")
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for connection in listener.incoming() {
        let mut seen = shared.seen();
        if seen.dead {
            return;
        }
        let connection = connection.expect("it accepts");
        let kept = connection.try_clone().expect("there are descriptors");
        seen.connections.push(kept);
        let shared = Arc::clone(shared);
        thread::spawn(move || serve(connection, &shared));
    }
}

fn serve(mut connection: TcpStream, shared: &Shared) {
    let _ = connection.set_nodelay(true);
    let reading = connection.try_clone().expect("there are descriptors");
    let mut reader = BufReader::new(reading);
    while let Some(request) = read(&mut reader) {
        let seen = shared.count(&request);
        let reply = (shared.answer)(&request);
        if reply.is_held {
            // The client sends nothing more, and ends the wait when it closes.
            let _ = reader.read(&mut [0]);
            return;
        }
        thread::sleep(reply.delay);
        let bytes = with_count(reply.bytes, seen);
        let closes = reply.closes || request.head.contains("Connection: close\r\n");
        if connection.write_all(&bytes).is_err() || closes {
            let _ = connection.shutdown(Shutdown::Both);
            return;
        }
    }
}

impl Shared {
    fn count(&self, request: &Request) -> u64 {
        let mut seen = self.seen();
        if request.path() != "/count" {
            seen.requests += 1;
            *seen.by_path.entry(request.path().to_owned()).or_default() += 1;
            self.changed.notify_all();
        }
        seen.requests
    }
}

/// `SEEN` is as long as the number that takes its place.
fn with_count(bytes: Vec<u8>, seen: u64) -> Vec<u8> {
    match bytes.windows(4).position(|window| window == b"SEEN") {
        Some(at) => {
            let number = format!("{seen:4}");
            [&bytes[..at], number.as_bytes(), &bytes[at + 4..]].concat()
        }
        None => bytes,
    }
}

/// The next request; `None` when the client has gone.
fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { head, body })
}

//! Who publishes: one document after the other at an even pace, on a connection of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

use super::Shared;
use super::document::Mark;
use super::report::StreamFaults;
use super::settings::Publish;
use crate::load::error::LoadError;
use crate::load::http1::response::{Read, Reader};
use crate::load::http1::{connect_fault, fault};
use crate::load::outcome::Fault;
use crate::load::plan::Endpoint;
use crate::load::tally::Latency;
use crate::load::target::{AGENT, with_given};

/// Bytes of an answer that are read at once.
const BUFFER: usize = 16 * 1024;
/// How long it sleeps before it looks whether somebody wants the end.
const NAP: Duration = Duration::from_millis(50);

/// Who publishes.
pub(super) struct Publisher<'a> {
    shared: &'a Shared<'a>,
    publish: &'a Publish,
    endpoint: Endpoint,
    /// The head of each publication, up to the length of its body.
    head: String,
    connection: Option<Connection>,
    buffer: Vec<u8>,
}

/// What came of publishing.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// How long each answer took, from when the publication was due.
    pub(super) answered: Latency,
    /// Answers that refuse, by status.
    pub(super) refused: BTreeMap<u16, u64>,
    pub(super) failed: StreamFaults,
    /// Publications that were due and were not sent until the end.
    pub(super) unsent: u64,
}

/// Why a publication was not accepted.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Status(u16),
    Fault(Fault),
}

enum Connection {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl<'a> Publisher<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, publish: &'a Publish, endpoint: Endpoint) -> Self {
        Self {
            shared,
            publish,
            endpoint,
            head: head(shared, publish),
            connection: None,
            buffer: vec![0; BUFFER],
        }
    }

    /// Publishes once, so that what is wrong is told once.
    pub(super) fn try_out(&mut self) -> Result<(), LoadError> {
        self.send(&mut 0, Duration::ZERO)
            .map_err(|refusal| LoadError::Publish {
                method: self.publish.method.clone(),
                url: self.publish.url.to_string(),
                why: remedy(refusal),
            })
    }

    /// Publishes as often as is wanted, until the end, or until somebody wants it.
    pub(super) fn run(&mut self, begin: Instant, end: Option<Instant>) -> Published {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut published = Published::default();
        let counted = begin + self.shared.settings.warmup;
        let is_over = |at: Instant| end.is_some_and(|end| at >= end);
        let mut left = self.shared.settings.requests;
        let mut number = 1;
        let mut due = begin;
        while left != Some(0) && !is_over(due) && self.sleep_until(due) {
            left = left.map(|left| left - 1);
            if is_over(Instant::now()) {
                published.unsent += 1;
                due += self.publish.every;
                continue;
            }
            let since = due.saturating_duration_since(self.shared.run.begin);
            match self.send(&mut number, since) {
                Ok(()) => {
                    self.shared.newest.store(number, Ordering::Relaxed);
                    // The next one bears the same number again if this one is refused.
                    number += 1;
                    if due >= counted {
                        published.answered.record(due.elapsed());
                    }
                }
                Err(Refusal::Status(status)) => {
                    *published.refused.entry(status).or_default() += 1;
                }
                Err(Refusal::Fault(fault)) => published.failed.add(fault),
            }
            due += self.publish.every;
        }
        published
    }

    /// `false` when somebody wants the end.
    fn sleep_until(&self, due: Instant) -> bool {
        loop {
            if self.shared.settings.stop.is_wanted() || self.shared.is_over() {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(NAP));
        }
    }

    /// Publishes. What fails on a connection that has been used before is tried again on another one: a server may close those at any time.
    /// Whether it has come through is not known then, so that what is tried again has another number.
    fn send(&mut self, number: &mut u64, due: Duration) -> Result<(), Refusal> {
        let mut is_used = self.connection.is_some();
        loop {
            let mark = Mark {
                number: *number,
                due,
            };
            let body = self.publish.document.write(&self.shared.run, mark);
            let request = format!("{}Content-Length: {}\r\n\r\n{body}", self.head, body.len());
            self.shared.sent.store(*number, Ordering::Release);
            match self.exchange(request.as_bytes()) {
                Ok(200..=299) => return Ok(()),
                Ok(status) => return Err(Refusal::Status(status)),
                Err(fault) => {
                    self.doubt(number);
                    if !is_used {
                        return Err(Refusal::Fault(fault));
                    }
                    is_used = false;
                }
            }
        }
    }

    /// The first one is published before there are streams.
    fn doubt(&self, number: &mut u64) {
        if *number > 0 {
            let mut doubtful = self.shared.doubtful.lock().expect("nobody panics with it");
            doubtful.push(*number);
            *number += 1;
        }
    }

    fn exchange(&mut self, request: &[u8]) -> Result<u16, Fault> {
        let timeout = self.shared.settings.timeout;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.endpoint, timeout).map_err(|why| connect_fault(&why))?,
        };
        connection.write_all(request).map_err(|why| late(&why))?;
        let mut reader = Reader::default();
        reader.expect(false);
        loop {
            let read = connection
                .read(&mut self.buffer)
                .map_err(|why| late(&why))?;
            if read == 0 {
                let head = reader.close().ok_or(Fault::ClosedEarly)?;
                return Ok(head.status);
            }
            let read = reader.read_content(&self.buffer[..read], &mut |_| ());
            if let Read::All(head, _) = read.map_err(|_| Fault::Malformed)? {
                self.connection = head.keeps_alive.then_some(connection);
                return Ok(head.status);
            }
        }
    }
}

impl Connection {
    fn open(endpoint: &Endpoint, timeout: Duration) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&endpoint.address, timeout)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))?;
        let Some(tls) = &endpoint.tls else {
            return Ok(Self::Plain(socket));
        };
        let session = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone())
            .map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

fn late(error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Fault::TimedOut,
        _ => fault(error),
    }
}

/// Everything before the length.
fn head(shared: &Shared<'_>, publish: &Publish) -> String {
    let mut path = Vec::new();
    publish.url.write_path(0, &mut path);
    let path = String::from_utf8_lossy(&path);
    let mut head = format!("{} {path} HTTP/1.1\r\n", publish.method);
    let usual = vec![
        ("Host", publish.url.server.authority()),
        ("User-Agent", AGENT.to_owned()),
        ("Content-Type", "application/json".to_owned()),
    ];
    for (name, value) in with_given(usual, &shared.settings.headers) {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head
}

/// What to do about a publication that is not accepted.
fn remedy(refusal: Refusal) -> String {
    let status = match refusal {
        Refusal::Fault(fault) => return fault.to_string(),
        Refusal::Status(status) => status,
    };
    let remedy = match status {
        401 | 403 => "; give what allows it, such as -H 'Authorization: Bearer SECRET'",
        404 | 405 => "; say where publications go with --publish-url and --publish-method",
        413 => "; make it smaller with --publish-size",
        415 => "; say what it is with -H 'Content-Type: TYPE'",
        _ => "",
    };
    format!("the answer's status is {status}{remedy}")
}

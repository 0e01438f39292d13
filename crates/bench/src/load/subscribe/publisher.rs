//! Publisher: sends one document after the other at a fixed interval, on its own connection.

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

use super::context::RunContext;
use super::document::PublicationMarker;
use super::settings::PublishSettings;
use super::stream_tally::StreamFaults;
use crate::load::error::LoadError;
use crate::load::http1::response::{ParseProgress, ResponseParser};
use crate::load::outcome::RequestFault;
use crate::load::plan::ServerEndpoint;
use crate::load::tally::Latency;
use crate::load::target::{AGENT, with_overrides};

/// Size of the receive buffer, in bytes.
const BUFFER: usize = 16 * 1024;
/// Maximum sleep between two checks of the stop flags.
const NAP: Duration = Duration::from_millis(50);

/// Publisher of a run.
pub(super) struct Publisher<'a> {
    shared: &'a RunContext<'a>,
    publish: &'a PublishSettings,
    endpoint: ServerEndpoint,
    /// Head of each request, up to the value of Content-Length.
    head: String,
    connection: Option<PublisherConnection>,
    buffer: Vec<u8>,
}

/// Results of publishing.
#[derive(Debug, Default)]
pub(super) struct PublishTally {
    /// Latency of accepted publications, from their scheduled time to the response.
    pub(super) answered: Latency,
    /// Rejected publications, by status.
    pub(super) refused: BTreeMap<u16, u64>,
    pub(super) failed: StreamFaults,
    /// Publications that were due but not sent before the end of the run.
    pub(super) unsent: u64,
}

/// Reason why a publication was not accepted.
#[derive(Clone, Copy, Debug)]
enum PublishFailure {
    Status(u16),
    Fault(RequestFault),
}

enum PublisherConnection {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl<'a> Publisher<'a> {
    pub(super) fn new(
        shared: &'a RunContext<'a>,
        publish: &'a PublishSettings,
        endpoint: ServerEndpoint,
    ) -> Self {
        Self {
            shared,
            publish,
            endpoint,
            head: head(shared, publish),
            connection: None,
            buffer: vec![0; BUFFER],
        }
    }

    /// Publishes once, to report a configuration error early.
    ///
    /// # Errors
    ///
    /// [`LoadError::Publish`] with a remedy for common statuses.
    pub(super) fn check(&mut self) -> Result<(), LoadError> {
        self.send(&mut 0, Duration::ZERO)
            .map_err(|refusal| LoadError::Publish {
                method: self.publish.method.clone(),
                url: self.publish.url.to_string(),
                why: remedy(refusal),
            })
    }

    /// Publishes until the end of the run, or until it is stopped.
    pub(super) fn run(&mut self, begin: Instant, end: Option<Instant>) -> PublishTally {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut published = PublishTally::default();
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
                    // A rejected number is reused.
                    number += 1;
                    if due >= counted {
                        published.answered.record(due.elapsed());
                    }
                }
                Err(PublishFailure::Status(status)) => {
                    *published.refused.entry(status).or_default() += 1;
                }
                Err(PublishFailure::Fault(fault)) => published.failed.add(fault),
            }
            due += self.publish.every;
        }
        published
    }

    /// Sleeps until `due`. Returns `false` if the run is stopped.
    fn sleep_until(&self, due: Instant) -> bool {
        loop {
            if self.shared.settings.stop.is_set() || self.shared.is_over() {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(NAP));
        }
    }

    /// Publishes one document. A failure on a reused connection is retried on a new one, since the server
    /// may have closed it. Whether the first attempt was published is unknown, so the retry takes another
    /// number.
    fn send(&mut self, number: &mut u64, due: Duration) -> Result<(), PublishFailure> {
        let mut is_used = self.connection.is_some();
        loop {
            let mark = PublicationMarker {
                number: *number,
                due,
            };
            let body = self.publish.document.write(&self.shared.run, mark);
            let request = format!("{}Content-Length: {}\r\n\r\n{body}", self.head, body.len());
            self.shared.sent.store(*number, Ordering::Release);
            match self.exchange(request.as_bytes()) {
                Ok(200..=299) => return Ok(()),
                Ok(status) => return Err(PublishFailure::Status(status)),
                Err(fault) => {
                    self.mark_doubtful(number);
                    if !is_used {
                        return Err(PublishFailure::Fault(fault));
                    }
                    is_used = false;
                }
            }
        }
    }

    /// Gives up a number whose outcome is unknown. The number 0 of the initial check is exempt: no stream is
    /// open yet.
    fn mark_doubtful(&self, number: &mut u64) {
        if *number > 0 {
            let mut doubtful = self
                .shared
                .doubtful
                .lock()
                .expect("no thread panics while holding it");
            doubtful.push(*number);
            *number += 1;
        }
    }

    fn exchange(&mut self, request: &[u8]) -> Result<u16, RequestFault> {
        let timeout = self.shared.settings.timeout;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => PublisherConnection::open(&self.endpoint, timeout)
                .map_err(|why| RequestFault::of_connect(&why))?,
        };
        connection.write_all(request).map_err(io_fault)?;
        let mut reader = ResponseParser::default();
        reader.expect(false);
        loop {
            let read = connection.read(&mut self.buffer).map_err(io_fault)?;
            if read == 0 {
                let head = reader.close().ok_or(RequestFault::ClosedEarly)?;
                return Ok(head.status);
            }
            let read = reader.read_content(&self.buffer[..read], &mut |_| ());
            if let ParseProgress::Complete(head, _) = read.map_err(|_| RequestFault::Malformed)? {
                self.connection = head.keeps_alive.then_some(connection);
                return Ok(head.status);
            }
        }
    }
}

impl PublisherConnection {
    fn open(endpoint: &ServerEndpoint, timeout: Duration) -> io::Result<Self> {
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

fn io_fault(error: io::Error) -> RequestFault {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => RequestFault::TimedOut,
        _ => error.into(),
    }
}

/// Returns the request head up to the value of Content-Length.
fn head(shared: &RunContext<'_>, publish: &PublishSettings) -> String {
    let mut path = Vec::new();
    publish.url.write_path(0, &mut path);
    let path = String::from_utf8_lossy(&path);
    let mut head = format!("{} {path} HTTP/1.1\r\n", publish.method);
    let usual = vec![
        ("Host", publish.url.server.authority()),
        ("User-Agent", AGENT.to_owned()),
        ("Content-Type", "application/json".to_owned()),
    ];
    for (name, value) in with_overrides(usual, &shared.settings.headers) {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head
}

/// Describes why a publication was not accepted, with a remedy.
fn remedy(refusal: PublishFailure) -> String {
    let status = match refusal {
        PublishFailure::Fault(fault) => return fault.to_string(),
        PublishFailure::Status(status) => status,
    };
    let remedy = match status {
        401 | 403 => "; add credentials, such as -H 'Authorization: Bearer SECRET'",
        404 | 405 => "; set --publish-url and --publish-method",
        413 => "; reduce --publish-size",
        415 => "; set the media type with -H 'Content-Type: TYPE'",
        _ => "",
    };
    format!("the response has status {status}{remedy}")
}

//! The scripted origin: answers as scripted, and records its requests.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::reply::Step;
use super::wire::{Framing, Head, Wire};
use super::{Reply, eventually};

/// As much of a request's body as is kept; the rest is only counted.
const KEPT: usize = 1 << 20;
/// Every target without an answer of its own.
pub(crate) const ANY: &str = "*";

/// An HTTP server in the test's own process.
pub(crate) struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// The answers for one target, given one after the other; the last one is repeated.
pub(crate) struct Script<'a> {
    origin: &'a Origin,
    target: &'a str,
}

/// A request that reached the origin.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) head: Head,
    /// Which of the origin's connections it came on, counted from 0.
    pub(crate) connection: usize,
    body: Arc<Mutex<BodySeen>>,
}

#[derive(Default)]
struct BodySeen {
    kept: Vec<u8>,
    length: u64,
    trailers: Vec<(String, String)>,
    complete: bool,
}

type Answer = Box<dyn FnMut(&Seen) -> Reply + Send>;

#[derive(Default)]
struct Shared {
    scripts: Mutex<HashMap<String, VecDeque<Reply>>>,
    answers: Mutex<HashMap<String, Answer>>,
    seen: Mutex<Vec<Seen>>,
    open: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    sent: Mutex<u64>,
    closed: Mutex<Vec<usize>>,
    stopped: AtomicBool,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Self {
            address: listener.local_addr().unwrap(),
            shared: Arc::default(),
        };
        let shared = Arc::clone(&origin.shared);
        thread::spawn(move || shared.accept(&listener));
        origin
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What to do when that target is asked for.
    pub(crate) fn on<'a>(&'a self, target: &'a str) -> Script<'a> {
        Script {
            origin: self,
            target,
        }
    }

    /// Every request so far, in the order in which they came.
    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// The requests for one target.
    pub(crate) fn seen(&self, target: &str) -> Vec<Seen> {
        self.requests()
            .into_iter()
            .filter(|seen| seen.target == target)
            .collect()
    }

    pub(crate) fn count(&self, target: &str) -> usize {
        self.seen(target).len()
    }

    /// Waits for the n-th request (counted from 1) for the target.
    pub(crate) fn wait_for(&self, target: &str, nth: usize) -> Seen {
        eventually(&format!("request {nth} for {target} at the origin"), || {
            self.seen(target).into_iter().nth(nth - 1)
        })
    }

    /// How many connections were ever made to it.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Waits until the other side has closed the connection of that number.
    pub(crate) fn wait_for_close(&self, connection: usize) {
        eventually(
            &format!("connection {connection} to the origin to be closed"),
            || {
                self.shared
                    .closed
                    .lock()
                    .unwrap()
                    .contains(&connection)
                    .then_some(())
            },
        );
    }

    /// How many bytes of floods it got rid of.
    pub(crate) fn flooded(&self) -> u64 {
        *self.shared.sent.lock().unwrap()
    }

    /// Goes away: refuses new connections and drops the open ones.
    pub(crate) fn stop(&self) {
        if !self.shared.stopped.swap(true, Ordering::SeqCst) {
            // Wakes the accepting thread, which then drops the listener.
            drop(TcpStream::connect(self.address));
            for stream in self.shared.open.lock().unwrap().drain(..) {
                drop(stream.shutdown(Shutdown::Both));
            }
            eventually("the origin to stop", || {
                TcpStream::connect(self.address).err()
            });
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Script<'_> {
    /// Adds an answer.
    pub(crate) fn reply(self, reply: impl Into<Reply>) -> Self {
        let mut scripts = self.origin.shared.scripts.lock().unwrap();
        scripts
            .entry(self.target.to_owned())
            .or_default()
            .push_back(reply.into());
        drop(scripts);
        self
    }

    /// Answers each request as the function says.
    pub(crate) fn answer(self, answer: impl FnMut(&Seen) -> Reply + Send + 'static) {
        let mut answers = self.origin.shared.answers.lock().unwrap();
        answers.insert(self.target.to_owned(), Box::new(answer));
    }
}

impl Seen {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// The request's body, once all of it has come.
    pub(crate) fn body(&self) -> Vec<u8> {
        eventually("the end of the request's body", || {
            let body = self.body.lock().unwrap();
            body.complete.then(|| body.kept.clone())
        })
    }

    /// Whether the body came to its end.
    pub(crate) fn is_complete(&self) -> bool {
        self.body.lock().unwrap().complete
    }

    /// How much of the body has come so far.
    pub(crate) fn body_length(&self) -> u64 {
        self.body.lock().unwrap().length
    }

    /// The request's trailer fields, once all of it has come.
    pub(crate) fn trailers(&self) -> Vec<(String, String)> {
        self.body();
        self.body.lock().unwrap().trailers.clone()
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let number = self.connections.fetch_add(1, Ordering::SeqCst);
            self.open.lock().unwrap().extend(stream.try_clone());
            let shared = Arc::clone(&self);
            thread::spawn(move || {
                // An error is the proxy's closing, or else the test's own assertions will say so.
                drop(Wire::new(stream).and_then(|mut wire| shared.serve(&mut wire, number)));
                shared.closed.lock().unwrap().push(number);
            });
        }
    }

    fn serve(&self, wire: &mut Wire, connection: usize) -> io::Result<()> {
        loop {
            let head = match wire.head() {
                Ok(Some(head)) => head,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                closed => return closed.map(drop),
            };
            let seen = Seen::new(head, connection);
            self.seen.lock().unwrap().push(seen.clone());
            for step in self.reply_to(&seen).into_steps() {
                if self.perform(step, &seen, wire)? == Next::Close {
                    return wire.stream().shutdown(Shutdown::Both);
                }
            }
        }
    }

    fn reply_to(&self, seen: &Seen) -> Reply {
        let mut answers = self.answers.lock().unwrap();
        let named = answers.contains_key(&seen.target);
        let target = if named { &seen.target } else { ANY };
        if let Some(answer) = answers.get_mut(target) {
            return answer(seen);
        }
        drop(answers);
        let mut scripts = self.scripts.lock().unwrap();
        match scripts.get_mut(&seen.target) {
            Some(replies) if replies.len() > 1 => replies.pop_front(),
            Some(replies) => replies.front().cloned(),
            None => None,
        }
        .unwrap_or_else(|| Reply::new(500).body(format!("no script for {}", seen.target)))
    }

    fn perform(&self, step: Step, seen: &Seen, wire: &mut Wire) -> io::Result<Next> {
        match step {
            Step::ReadBody => seen.read_body(wire)?,
            Step::Drip(bytes) => bytes.iter().try_for_each(|&byte| wire.send(&[byte]))?,
            Step::Body(_) if seen.method == "HEAD" => {}
            Step::Send(bytes) | Step::Body(bytes) => wire.send(&bytes)?,
            Step::Flood(length) => self.flood(length, wire)?,
            Step::Wait(gate) => gate.wait(),
            Step::Echo => loop {
                match wire.some()? {
                    bytes if bytes.is_empty() => return Ok(Next::Close),
                    bytes => wire.send(&bytes)?,
                }
            },
            Step::Hold => loop {
                match wire.some() {
                    Ok(bytes) if bytes.is_empty() => return Ok(Next::Close),
                    Err(error) if error.kind() != io::ErrorKind::TimedOut => return Err(error),
                    _ => {}
                }
            },
            Step::Close => return Ok(Next::Close),
        }
        Ok(Next::Continue)
    }

    fn flood(&self, length: u64, wire: &Wire) -> io::Result<()> {
        let piece = [b'x'; 16_384];
        // A flood meets back-pressure on purpose: it may stand still for as long as the test likes.
        wire.stream().set_write_timeout(None)?;
        let mut left = length;
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            wire.stream().write_all(&piece[..n])?;
            left -= n as u64;
            *self.sent.lock().unwrap() += n as u64;
        }
        Ok(())
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    Close,
}

impl Seen {
    fn new(head: Head, connection: usize) -> Self {
        let mut words = head.start.split(' ').map(str::to_owned);
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        Self {
            method,
            target,
            head,
            connection,
            body: Arc::default(),
        }
    }

    fn read_body(&self, wire: &mut Wire) -> io::Result<()> {
        if self.head.field("expect").is_some() {
            wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let framing = self.head.framing()?.unwrap_or(Framing::None);
        let trailers = wire.body(framing, |piece| {
            let mut body = self.body.lock().unwrap();
            body.length += piece.len() as u64;
            let room = KEPT.saturating_sub(body.kept.len()).min(piece.len());
            body.kept.extend_from_slice(&piece[..room]);
        })?;
        let mut body = self.body.lock().unwrap();
        body.trailers = trailers;
        body.complete = true;
        Ok(())
    }
}

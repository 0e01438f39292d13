//! The event loop of one thread: opens its streams, reads what comes, and counts.

use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{ClockId, clock_gettime};

use super::Shared;
use super::order::{Disorder, Numbers, Order};
use super::reader::{Found, Reader, Step};
use super::report::StreamTally;
use super::settings::Kind;
use super::websocket;
use crate::load::error::LoadError;
use crate::load::http1::transport::Transport;
use crate::load::http1::{connect_fault, fault};
use crate::load::outcome::Fault;
use crate::load::tally::Latency;
use crate::load::target::{AGENT, with_given};

/// Bytes that are read at once.
const BUFFER: usize = 64 * 1024;
/// Events of the system that are taken at once.
const EVENTS: usize = 512;
/// How often time-outs and the end are looked for.
const ROUND: Duration = Duration::from_millis(20);
/// Streams of a thread that are being opened at a time.
const AT_A_TIME: usize = 128;
/// What the kernel keeps for a stream that does not read, or twice as much.
const STALLED_WINDOW: usize = 16384;

/// One thread's streams.
pub(super) struct Streams<'a> {
    shared: &'a Shared<'a>,
    all: Vec<Stream>,
    request: Vec<u8>,
    epoll: OwnedFd,
    buffer: Vec<u8>,
    found: Found<'a>,
    /// The next stream to open.
    next: usize,
    opening: usize,
    /// The thread's CPU time when all were open.
    cpu: Option<Duration>,
    /// Events since the last round.
    fresh: u64,
    seen: Seen,
}

/// One stream, or the place of one.
struct Stream {
    transport: Option<Transport>,
    phase: Phase,
    begun: Instant,
    reader: Reader,
    /// What of the request there was no room for.
    unsent: Vec<u8>,
    order: Order,
    saw: Numbers,
    stalls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no socket, not yet or not any more.
    Closed,
    Connecting,
    Handshaking,
    /// The stream is asked for.
    Asking,
    Open,
    /// It is open, and nobody reads.
    Stalled,
}

/// What a thread has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) streams: StreamTally,
    /// How long it took to open a stream.
    pub(super) opening: Latency,
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// How long publications took to arrive, each on each stream.
    pub(super) delivered: Latency,
    /// Where each publication has arrived, by its number.
    pub(super) reached: Vec<Reached>,
    pub(super) disorder: Disorder,
    /// The CPU time of the busiest thread since all streams were open.
    pub(super) busiest: Duration,
}

/// Where a publication has arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    pub(super) streams: u64,
    /// How long the last of them waited for it.
    pub(super) last: Duration,
}

impl Seen {
    pub(super) fn add(&mut self, other: Self) {
        self.streams.add(&other.streams);
        self.opening.add(&other.opening);
        self.events += other.events;
        self.bytes += other.bytes;
        self.delivered.add(&other.delivered);
        let length = self.reached.len().max(other.reached.len());
        self.reached.resize(length, Reached::default());
        for (mine, theirs) in self.reached.iter_mut().zip(other.reached) {
            mine.streams += theirs.streams;
            mine.last = mine.last.max(theirs.last);
        }
        self.disorder.add(other.disorder);
        self.busiest = self.busiest.max(other.busiest);
    }
}

impl<'a> Streams<'a> {
    /// So many streams of a thread.
    pub(super) fn new(
        shared: &'a Shared<'a>,
        thread: usize,
        threads: usize,
        count: usize,
    ) -> Result<Self, LoadError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|why| LoadError::System {
                what: "a set of events",
                why: why.into(),
            })?;
        let stream = |index| Stream {
            transport: None,
            phase: Phase::Closed,
            begun: shared.run.begin,
            reader: Reader::new(shared.subscribe.kind),
            unsent: Vec::new(),
            order: Order::default(),
            saw: Numbers::default(),
            stalls: shared.subscribe.stalls(index * threads + thread),
        };
        Ok(Self {
            shared,
            all: (0..count).map(stream).collect(),
            request: request(shared),
            epoll,
            buffer: vec![0; BUFFER],
            found: Found::new(&shared.run),
            next: 0,
            opening: 0,
            cpu: None,
            fresh: 0,
            seen: Seen::default(),
        })
    }

    /// Opens the streams, and reads until the run is over.
    pub(super) fn run(mut self) -> Result<Seen, LoadError> {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut events = Vec::with_capacity(EVENTS);
        let mut next_round = Instant::now() + ROUND;
        let mut over_since = None;
        loop {
            self.open_more();
            self.wait(&mut events, next_round)?;
            for event in events.drain(..) {
                self.on_event(event.data.u64() as usize, event.flags);
            }
            let now = Instant::now();
            if now < next_round {
                continue;
            }
            next_round = now + ROUND;
            self.time_out(now);
            self.tell();
            if self.shared.is_over() || self.shared.settings.stop.is_wanted() {
                let since = *over_since.get_or_insert(now);
                if self.has_everything() || now >= since + self.shared.settings.patience {
                    return Ok(self.end());
                }
            }
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, next_round: Instant) -> Result<(), LoadError> {
        let left = next_round.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(LoadError::System {
                what: "waiting for events",
                why: why.into(),
            }),
        }
    }

    fn open_more(&mut self) {
        while self.opening < AT_A_TIME && self.next < self.all.len() {
            let index = self.next;
            self.next += 1;
            self.opening += 1;
            self.open(index);
        }
    }

    fn open(&mut self, index: usize) {
        let to = &self.shared.endpoint;
        let stream = &mut self.all[index];
        stream.begun = Instant::now();
        stream.phase = Phase::Connecting;
        let window = stream.stalls.then_some(STALLED_WINDOW);
        let opened = Transport::open(to.address, to.tls.as_ref(), window)
            .and_then(|transport| transport.told_to(&self.epoll, index as u64));
        match opened {
            Ok(transport) => stream.transport = Some(transport),
            Err(error) => self.fail(index, connect_fault(&error)),
        }
    }

    fn on_event(&mut self, index: usize, flags: EventFlags) {
        let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match self.all[index].phase {
            Phase::Closed => return,
            Phase::Connecting => self.on_connected(index, flags),
            Phase::Handshaking => self.shake_hands(index),
            Phase::Asking | Phase::Open => {
                if !self.all[index].unsent.is_empty() {
                    self.send_on(index);
                }
                return self.receive(index, ends);
            }
            Phase::Stalled if ends => {
                self.seen.streams.stalled_ended += 1;
                self.all[index].close();
            }
            Phase::Stalled => {}
        }
        if ends && self.all[index].phase == Phase::Asking {
            self.receive(index, ends);
        }
    }

    fn on_connected(&mut self, index: usize, flags: EventFlags) {
        let Some(transport) = &self.all[index].transport else {
            return;
        };
        if let Err(error) = transport.take_error() {
            return self.fail(index, connect_fault(&error));
        }
        if flags.contains(EventFlags::OUT) {
            self.all[index].phase = Phase::Handshaking;
            self.shake_hands(index);
        }
    }

    fn shake_hands(&mut self, index: usize) {
        let stream = &mut self.all[index];
        let Some(transport) = &mut stream.transport else {
            return;
        };
        match transport.shake_hands() {
            Ok(false) => {}
            Ok(true) => {
                stream.phase = Phase::Asking;
                stream.unsent.clone_from(&self.request);
                self.send_on(index);
            }
            Err(_) => self.fail(index, Fault::Tls),
        }
    }

    fn send_on(&mut self, index: usize) {
        let stream = &mut self.all[index];
        let Some(transport) = &mut stream.transport else {
            return;
        };
        match transport.send_on(&mut stream.unsent) {
            // There are thousands of streams, which send nothing more.
            Ok(()) if stream.unsent.is_empty() => stream.unsent = Vec::new(),
            Ok(()) => {}
            Err(error) => self.fail(index, fault(&error)),
        }
    }

    /// Reads until nothing is there. `ends` says that the server has said its last.
    fn receive(&mut self, index: usize, ends: bool) {
        loop {
            let stream = &mut self.all[index];
            let Some(transport) = &mut stream.transport else {
                return;
            };
            let read = match transport.read(&mut self.buffer) {
                Ok(0) => return self.on_closed(index),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.fail(index, fault(&error)),
            };
            let is_drained = !ends && transport.is_drained(read, self.buffer.len());
            let now = Instant::now();
            self.seen.bytes += read as u64;
            let step = stream.reader.read(&self.buffer[..read], &mut self.found);
            if stream.phase == Phase::Open || matches!(step, Step::Open | Step::Ended) {
                self.arrived(index, now);
            }
            if !self.goes_on(index, step) {
                // What was to be said here is for nobody else.
                self.found.replies.clear();
                return;
            }
            if !self.found.replies.is_empty() {
                self.all[index].unsent.append(&mut self.found.replies);
                self.send_on(index);
            }
            if is_drained {
                return;
            }
        }
    }

    /// Counts what has arrived on an open stream.
    fn arrived(&mut self, index: usize, now: Instant) {
        let stream = &mut self.all[index];
        if stream.phase == Phase::Asking {
            stream.phase = Phase::Open;
            self.opening -= 1;
            self.shared.settled.fetch_add(1, Ordering::Relaxed);
            self.shared.opened.fetch_add(1, Ordering::Relaxed);
            self.seen.streams.opened += 1;
            self.seen
                .opening
                .record(now.saturating_duration_since(stream.begun));
        }
        self.fresh += self.found.events;
        if stream.stalls {
            return;
        }
        let counts_from = self.shared.counts_from.load(Ordering::Relaxed);
        for mark in &self.found.marks {
            // The first one was published before the streams were there; what is beyond the last was sent by nobody.
            if mark.number == 0 || mark.number > self.shared.sent.load(Ordering::Acquire) {
                continue;
            }
            stream.order.saw(mark.number);
            let is_new = stream.saw.add(mark.number);
            if (mark.due.as_nanos() as u64) < counts_from {
                continue;
            }
            let took = now.saturating_duration_since(self.shared.run.begin + mark.due);
            self.seen.delivered.record(took);
            let number = mark.number as usize;
            if self.seen.reached.len() <= number {
                self.seen.reached.resize(number + 1, Reached::default());
            }
            let reached = &mut self.seen.reached[number];
            if is_new {
                reached.streams += 1;
                reached.last = reached.last.max(took);
            }
        }
    }

    /// Whether there is more to read after this.
    fn goes_on(&mut self, index: usize, step: Step) -> bool {
        let streams = &mut self.seen.streams;
        match step {
            Step::Open if self.all[index].stalls && self.found.events > 0 => {
                self.stall(index);
                return false;
            }
            Step::Opening | Step::Open => return true,
            Step::Ended => {
                streams.ended += 1;
                self.leave(index);
                return false;
            }
            Step::Refused(status) => *streams.statuses.entry(status).or_default() += 1,
            Step::NoEvents => streams.without_events += 1,
            Step::Malformed => {
                self.fail(index, Fault::Malformed);
                return false;
            }
        }
        self.settle(index);
        false
    }

    /// Reads no more, and only hears whether the server ends it.
    fn stall(&mut self, index: usize) {
        let stream = &mut self.all[index];
        let Some(transport) = &stream.transport else {
            return;
        };
        let flags = EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(index as u64);
        if let Err(why) = epoll::modify(&self.epoll, transport, data, flags) {
            return self.fail(index, fault(&why.into()));
        }
        stream.phase = Phase::Stalled;
        self.seen.streams.stalled += 1;
    }

    fn on_closed(&mut self, index: usize) {
        let stream = &self.all[index];
        match stream.reader.close() {
            Some(Step::Ended) if stream.phase == Phase::Open => {
                self.seen.streams.ended += 1;
                self.leave(index);
            }
            _ => self.fail(index, Fault::ClosedEarly),
        }
    }

    fn fail(&mut self, index: usize, fault: Fault) {
        if self.all[index].phase == Phase::Open {
            self.seen.streams.broken.add(fault);
            self.leave(index);
        } else {
            self.seen.streams.failed.add(fault);
            self.settle(index);
        }
    }

    /// A stream that was never open.
    fn settle(&mut self, index: usize) {
        self.all[index].close();
        self.opening -= 1;
        self.shared.settled.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream that was open. What it did not see after its end is not missing; that it has ended is.
    fn leave(&mut self, index: usize) {
        let disorder = self.disorder(&self.all[index], 0);
        self.seen.disorder.add(disorder);
        let stream = &mut self.all[index];
        stream.close();
        // Publications are complete that all streams have seen which are there at the end.
        for number in std::mem::take(&mut stream.saw).each() {
            if let Some(reached) = self.seen.reached.get_mut(number as usize) {
                reached.streams = reached.streams.saturating_sub(1);
            }
        }
    }

    /// What is wrong with what a stream has seen, if this was the last publication.
    fn disorder(&self, stream: &Stream, last: u64) -> Disorder {
        let mut disorder = stream.order.disorder(last);
        let newest = stream.order.newest();
        let doubtful = self.shared.doubtful.lock().expect("nobody panics with it");
        let unseen = doubtful
            .iter()
            .copied()
            .filter(|number| !stream.saw.has(*number));
        disorder.forgive(newest, unseen.filter(|number| *number <= newest.max(last)));
        disorder
    }

    fn time_out(&mut self, now: Instant) {
        if self.opening == 0 {
            return;
        }
        for index in 0..self.next {
            let stream = &self.all[index];
            let is_opening = matches!(
                stream.phase,
                Phase::Connecting | Phase::Handshaking | Phase::Asking
            );
            if is_opening && now >= stream.begun + self.shared.settings.timeout {
                self.fail(index, Fault::TimedOut);
            }
        }
    }

    fn tell(&mut self) {
        self.seen.events += self.fresh;
        self.shared.events.fetch_add(self.fresh, Ordering::Relaxed);
        self.fresh = 0;
        let settled = self.shared.settled.load(Ordering::Relaxed);
        if self.cpu.is_none() && settled >= self.shared.subscribe.streams {
            self.cpu = Some(cpu());
        }
    }

    fn healthy(&self) -> impl Iterator<Item = &Stream> {
        self.all
            .iter()
            .filter(|stream| stream.phase == Phase::Open && !stream.stalls)
    }

    /// Whether every publication has arrived, or a newer one.
    fn has_everything(&self) -> bool {
        let newest = self.shared.newest.load(Ordering::Relaxed);
        self.opening == 0
            && self
                .healthy()
                .all(|stream| stream.order.has_reached(newest))
    }

    fn end(mut self) -> Seen {
        self.tell();
        let newest = self.shared.newest.load(Ordering::Relaxed);
        let mut disorder = Disorder::default();
        for stream in self.healthy() {
            disorder.add(self.disorder(stream, newest));
        }
        let healthy = self.healthy().count();
        self.seen.streams.healthy += healthy as u64;
        self.seen.disorder.add(disorder);
        self.seen.busiest = cpu().saturating_sub(self.cpu.unwrap_or_else(cpu));
        self.seen
    }
}

impl Stream {
    fn close(&mut self) {
        self.transport = None;
        self.phase = Phase::Closed;
        self.unsent = Vec::new();
    }
}

/// What is asked for each stream.
fn request(shared: &Shared<'_>) -> Vec<u8> {
    let url = &shared.settings.targets[0].url;
    let mut request = b"GET ".to_vec();
    url.write_path(0, &mut request);
    request.extend_from_slice(b" HTTP/1.1\r\n");
    let mut usual = vec![
        ("Host", url.server.authority()),
        ("User-Agent", AGENT.to_owned()),
    ];
    match shared.subscribe.kind {
        Kind::Events => usual.push(("Accept", "text/event-stream".to_owned())),
        Kind::WebSocket => {
            usual.extend(websocket::FIELDS.map(|(name, value)| (name, value.to_owned())));
        }
    }
    for (name, value) in with_given(usual, &shared.settings.headers) {
        request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// The CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.cast_unsigned(),
        time.tv_nsec.cast_unsigned() as u32,
    )
}

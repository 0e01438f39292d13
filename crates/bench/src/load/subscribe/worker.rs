//! Event loop of one thread: opens its streams, parses events and records deliveries.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::Event;
use rustix::time::{ClockId, clock_gettime};

use super::context::RunContext;
use super::order::{DeliveryOrder, NumberSet, OrderCounts};
use super::parse_output::{ParseOutput, StreamStatus};
use super::parser::StreamParser;
use super::settings::StreamKind;
use super::stream_tally::StreamTally;
use super::websocket;
use crate::load::error::LoadError;
use crate::load::outcome::RequestFault;
use crate::load::reactor::{EVENTS, Reactor};
use crate::load::tally::Latency;
use crate::load::target::{AGENT, with_overrides};
use crate::load::transport::{Transport, TransportStep};

/// Streams of a thread that are opened concurrently.
const AT_A_TIME: usize = 128;
/// Receive buffer of a stalled stream, in bytes; the kernel may double it.
const STALLED_WINDOW: usize = 16384;

/// Streams of one thread.
pub(super) struct StreamWorker<'a> {
    shared: &'a RunContext<'a>,
    all: Vec<StreamState>,
    request: Vec<u8>,
    reactor: Reactor,
    found: ParseOutput<'a>,
    /// Index of the next stream to open.
    next: usize,
    opening: usize,
    /// CPU time of the thread when all streams were open.
    cpu: Option<Duration>,
    /// Events received since the last round.
    fresh: u64,
    results: StreamResults,
}

/// One stream, open or not.
struct StreamState {
    transport: Transport,
    phase: StreamPhase,
    begun: Instant,
    reader: StreamParser,
    order: DeliveryOrder,
    saw: NumberSet,
    stalls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamPhase {
    /// No socket, either not yet or no longer.
    Closed,
    /// Response head incomplete.
    Opening,
    Open,
    /// Open, but deliberately not read.
    Stalled,
}

/// Results of one thread.
#[derive(Debug, Default)]
pub(super) struct StreamResults {
    pub(super) streams: StreamTally,
    /// Time to open a stream.
    pub(super) opening: Latency,
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// Delivery latency, for each publication and stream.
    pub(super) delivered: Latency,
    /// Reach of each publication, indexed by its number.
    pub(super) reached: Vec<PublicationReach>,
    pub(super) disorder: OrderCounts,
    /// CPU time of the busiest thread since all streams were open.
    pub(super) busiest: Duration,
}

/// Reach of a publication.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PublicationReach {
    pub(super) streams: u64,
    /// Greatest delivery latency.
    pub(super) last: Duration,
}

impl StreamResults {
    pub(super) fn add(&mut self, other: Self) {
        self.streams.add(&other.streams);
        self.opening.add(&other.opening);
        self.events += other.events;
        self.bytes += other.bytes;
        self.delivered.add(&other.delivered);
        let length = self.reached.len().max(other.reached.len());
        self.reached.resize(length, PublicationReach::default());
        for (mine, theirs) in self.reached.iter_mut().zip(other.reached) {
            mine.streams += theirs.streams;
            mine.last = mine.last.max(theirs.last);
        }
        self.disorder.add(other.disorder);
        self.busiest = self.busiest.max(other.busiest);
    }
}

impl<'a> StreamWorker<'a> {
    /// Creates `count` streams of thread `thread` of `threads`.
    ///
    /// # Errors
    ///
    /// [`LoadError::System`] if epoll fails.
    pub(super) fn new(
        shared: &'a RunContext<'a>,
        thread: usize,
        threads: usize,
        count: usize,
    ) -> Result<Self, LoadError> {
        let stream = |index| StreamState {
            transport: Transport::new(index),
            phase: StreamPhase::Closed,
            begun: shared.run.begin,
            reader: StreamParser::new(shared.subscribe.kind),
            order: DeliveryOrder::default(),
            saw: NumberSet::default(),
            stalls: shared.subscribe.stalls(index * threads + thread),
        };
        Ok(Self {
            shared,
            all: (0..count).map(stream).collect(),
            request: request(shared),
            reactor: Reactor::new()?,
            found: ParseOutput::new(&shared.run),
            next: 0,
            opening: 0,
            cpu: None,
            fresh: 0,
            results: StreamResults::default(),
        })
    }

    /// Opens the streams and reads until the run is over.
    pub(super) fn run(mut self) -> Result<StreamResults, LoadError> {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut events = Vec::with_capacity(EVENTS);
        let mut over_since = None;
        loop {
            self.open_more();
            self.reactor.wait(&mut events, None)?;
            for event in events.drain(..) {
                self.on_event(event);
            }
            let now = Instant::now();
            if !self.reactor.begins_round(now) {
                continue;
            }
            self.time_out(now);
            self.publish_counts();
            if self.shared.is_over() || self.shared.settings.stop.is_set() {
                let since = *over_since.get_or_insert(now);
                if self.has_everything() || now >= since + self.shared.settings.grace_period {
                    return Ok(self.end());
                }
            }
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
        let stream = &mut self.all[index];
        stream.begun = Instant::now();
        stream.phase = StreamPhase::Opening;
        let window = stream.stalls.then_some(STALLED_WINDOW);
        let to = &self.shared.endpoint;
        if let Err(fault) = stream.transport.open(&self.reactor, to, window) {
            self.fail(index, fault);
        }
    }

    fn on_event(&mut self, event: Event) {
        let index = Transport::index_of(event);
        let stream = &mut self.all[index];
        match stream.transport.on_event(event) {
            Ok(TransportStep::Pending) => {}
            Ok(TransportStep::Opened) => match stream.transport.send(&self.request) {
                Ok(()) if stream.transport.is_ending() => self.receive(index),
                Ok(()) => {}
                Err(fault) => self.fail(index, fault),
            },
            Ok(TransportStep::Readable) if stream.phase == StreamPhase::Stalled => {
                if stream.transport.is_ending() {
                    self.results.streams.stalled_ended += 1;
                    stream.close();
                }
            }
            Ok(TransportStep::Readable) => self.receive(index),
            Err(fault) => self.fail(index, fault),
        }
    }

    /// Reads until the socket is empty.
    fn receive(&mut self, index: usize) {
        loop {
            let stream = &mut self.all[index];
            let bytes = match stream.transport.read(self.reactor.buffer()) {
                Ok(None) => return,
                Ok(Some([])) => return self.on_closed(index),
                Ok(Some(bytes)) => bytes,
                Err(fault) => return self.fail(index, fault),
            };
            let now = Instant::now();
            self.results.bytes += bytes.len() as u64;
            let step = stream.reader.read(bytes, &mut self.found);
            if stream.phase == StreamPhase::Open
                || matches!(step, StreamStatus::Open | StreamStatus::Ended)
            {
                self.arrived(index, now);
            }
            if !self.goes_on(index, step) {
                // Replies to a closed stream are dropped.
                self.found.replies.clear();
                return;
            }
            if !self.found.replies.is_empty() {
                let sent = self.all[index].transport.send(&self.found.replies);
                self.found.replies.clear();
                if let Err(fault) = sent {
                    return self.fail(index, fault);
                }
            }
        }
    }

    /// Records the deliveries in `found`.
    fn arrived(&mut self, index: usize, now: Instant) {
        let stream = &mut self.all[index];
        if stream.phase == StreamPhase::Opening {
            stream.phase = StreamPhase::Open;
            self.opening -= 1;
            self.shared.settled.fetch_add(1, Ordering::Relaxed);
            self.shared.opened.fetch_add(1, Ordering::Relaxed);
            self.results.streams.opened += 1;
            self.results
                .opening
                .record(now.saturating_duration_since(stream.begun));
        }
        self.fresh += self.found.events;
        if stream.stalls {
            return;
        }
        let counts_from = self.shared.counts_from.load(Ordering::Relaxed);
        for mark in &self.found.marks {
            // Number 0 was published before the streams were open; numbers not yet sent are forged.
            if mark.number == 0 || mark.number > self.shared.sent.load(Ordering::Acquire) {
                continue;
            }
            stream.order.record(mark.number);
            let is_new = stream.saw.add(mark.number);
            if (mark.due.as_nanos() as u64) < counts_from {
                continue;
            }
            let took = now.saturating_duration_since(self.shared.run.begin + mark.due);
            self.results.delivered.record(took);
            let number = mark.number as usize;
            if self.results.reached.len() <= number {
                self.results
                    .reached
                    .resize(number + 1, PublicationReach::default());
            }
            let reached = &mut self.results.reached[number];
            if is_new {
                reached.streams += 1;
                reached.last = reached.last.max(took);
            }
        }
    }

    /// Handles a parser state. Returns whether the stream is to be read further.
    fn goes_on(&mut self, index: usize, step: StreamStatus) -> bool {
        let streams = &mut self.results.streams;
        match step {
            StreamStatus::Open if self.all[index].stalls && self.found.events > 0 => {
                self.stall(index);
                return false;
            }
            StreamStatus::Opening | StreamStatus::Open => return true,
            StreamStatus::Ended => {
                streams.ended += 1;
                self.leave(index);
                return false;
            }
            StreamStatus::Refused(status) => *streams.statuses.entry(status).or_default() += 1,
            StreamStatus::NoEvents => streams.without_events += 1,
            StreamStatus::Malformed => {
                self.fail(index, RequestFault::Malformed);
                return false;
            }
        }
        self.settle(index);
        false
    }

    /// Stops reading; only the end of the connection is still reported by epoll.
    fn stall(&mut self, index: usize) {
        let stream = &mut self.all[index];
        if let Err(fault) = stream.transport.stall(&self.reactor) {
            return self.fail(index, fault);
        }
        stream.phase = StreamPhase::Stalled;
        self.results.streams.stalled += 1;
    }

    fn on_closed(&mut self, index: usize) {
        let stream = &self.all[index];
        match stream.reader.close() {
            Some(StreamStatus::Ended) if stream.phase == StreamPhase::Open => {
                self.results.streams.ended += 1;
                self.leave(index);
            }
            _ => self.fail(index, RequestFault::ClosedEarly),
        }
    }

    fn fail(&mut self, index: usize, fault: RequestFault) {
        if self.all[index].phase == StreamPhase::Open {
            self.results.streams.broken.add(fault);
            self.leave(index);
        } else {
            self.results.streams.failed.add(fault);
            self.settle(index);
        }
    }

    /// Closes a stream that was never open.
    fn settle(&mut self, index: usize) {
        self.all[index].close();
        self.opening -= 1;
        self.shared.settled.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes a stream that was open. Later publications do not count as lost on it.
    fn leave(&mut self, index: usize) {
        let disorder = self.disorder(&self.all[index], 0);
        self.results.disorder.add(disorder);
        let stream = &mut self.all[index];
        stream.close();
        // A publication is complete when every stream that is still open has received it.
        for number in std::mem::take(&mut stream.saw).each() {
            if let Some(reached) = self.results.reached.get_mut(number as usize) {
                reached.streams = reached.streams.saturating_sub(1);
            }
        }
    }

    /// Returns the order counts of a stream, with `last` as the number of the final publication.
    fn disorder(&self, stream: &StreamState, last: u64) -> OrderCounts {
        let mut disorder = stream.order.disorder(last);
        let newest = stream.order.newest();
        let doubtful = self
            .shared
            .doubtful
            .lock()
            .expect("no thread panics while holding it");
        let unseen = doubtful
            .iter()
            .copied()
            .filter(|number| !stream.saw.has(*number));
        disorder.exclude(newest, unseen.filter(|number| *number <= newest.max(last)));
        disorder
    }

    fn time_out(&mut self, now: Instant) {
        if self.opening == 0 {
            return;
        }
        for index in 0..self.next {
            let stream = &self.all[index];
            let is_opening = stream.phase == StreamPhase::Opening;
            if is_opening && now >= stream.begun + self.shared.settings.timeout {
                self.fail(index, RequestFault::TimedOut);
            }
        }
    }

    fn publish_counts(&mut self) {
        self.results.events += self.fresh;
        self.shared.events.fetch_add(self.fresh, Ordering::Relaxed);
        self.fresh = 0;
        let settled = self.shared.settled.load(Ordering::Relaxed);
        if self.cpu.is_none() && settled >= self.shared.subscribe.streams {
            self.cpu = Some(cpu());
        }
    }

    fn healthy(&self) -> impl Iterator<Item = &StreamState> {
        self.all
            .iter()
            .filter(|stream| stream.phase == StreamPhase::Open && !stream.stalls)
    }

    /// Returns whether every healthy stream has received the newest publication or none is missing.
    fn has_everything(&self) -> bool {
        let newest = self.shared.newest.load(Ordering::Relaxed);
        self.opening == 0
            && self
                .healthy()
                .all(|stream| stream.order.has_reached(newest))
    }

    fn end(mut self) -> StreamResults {
        self.publish_counts();
        let newest = self.shared.newest.load(Ordering::Relaxed);
        let mut disorder = OrderCounts::default();
        for stream in self.healthy() {
            disorder.add(self.disorder(stream, newest));
        }
        let healthy = self.healthy().count();
        self.results.streams.healthy += healthy as u64;
        self.results.disorder.add(disorder);
        self.results.busiest = cpu().saturating_sub(self.cpu.unwrap_or_else(cpu));
        self.results
    }
}

impl StreamState {
    fn close(&mut self) {
        self.transport.close();
        self.phase = StreamPhase::Closed;
    }
}

/// Returns the request that opens a stream.
fn request(shared: &RunContext<'_>) -> Vec<u8> {
    let url = &shared.settings.targets[0].url;
    let mut request = b"GET ".to_vec();
    url.write_path(0, &mut request);
    request.extend_from_slice(b" HTTP/1.1\r\n");
    let mut usual = vec![
        ("Host", url.server.authority()),
        ("User-Agent", AGENT.to_owned()),
    ];
    match shared.subscribe.kind {
        StreamKind::Events => usual.push(("Accept", "text/event-stream".to_owned())),
        StreamKind::WebSocket => {
            usual.extend(websocket::FIELDS.map(|(name, value)| (name, value.to_owned())));
        }
    }
    for (name, value) in with_overrides(usual, &shared.settings.headers) {
        request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// CPU time of the calling thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.cast_unsigned(),
        time.tv_nsec.cast_unsigned() as u32,
    )
}

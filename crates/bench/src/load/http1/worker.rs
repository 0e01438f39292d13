//! Event loop of one thread: connects, sends, receives, records, and starts the next request.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::connection::{ConnectionPhase, Http1Connection};
use super::request::Http1Request;
use super::response::{ParseProgress, ResponseSummary};
use super::socket::ClientSocket;
use crate::load::error::LoadError;
use crate::load::outcome::RequestFault;
use crate::load::plan::{LoadPlan, ThreadOutcome, ThreadShare};
use crate::load::recorder::{Recorder, ResponseTimes};
use crate::load::request_source::RequestSource;
use crate::load::settings::RequestPace;
use crate::load::timer::OneShotTimer;

/// Size of the receive buffer, in bytes.
const BUFFER: usize = 64 * 1024;
/// Maximum of events per `epoll_wait`.
const EVENTS: usize = 512;
/// Interval at which timeouts and the end of the run are checked.
const ROUND: Duration = Duration::from_millis(20);

/// Event data of the timer; that of connections is smaller.
const TIMER: u64 = u64::MAX;

/// Event loop of one thread.
pub(in crate::load) struct Http1Worker {
    plan: Arc<LoadPlan>,
    requests: Vec<Http1Request>,
    source: RequestSource,
    recorder: Recorder,
    epoll: OwnedFd,
    /// Fires when the next request of an open loop is due.
    timer: OneShotTimer,
    connections: Vec<Http1Connection>,
    /// Requests in flight.
    busy: u64,
    /// Open loop: connections without a request, least recently used first.
    idle: VecDeque<usize>,
    /// Connections in think time or back-off, by wake-up time.
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl Http1Worker {
    pub(in crate::load) fn new(
        plan: &Arc<LoadPlan>,
        share: ThreadShare,
        recorder: Recorder,
    ) -> Result<Self, LoadError> {
        let refused = |why| LoadError::System {
            what: "an epoll instance",
            why,
        };
        let timer = OneShotTimer::new().map_err(refused)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .and_then(|epoll| {
                let flags = EventFlags::IN | EventFlags::ET;
                epoll::add(&epoll, &timer, EventData::new_u64(TIMER), flags)?;
                Ok(epoll)
            })
            .map_err(|why| refused(why.into()))?;
        let settings = &plan.settings;
        let requests = settings.targets.iter();
        Ok(Self {
            plan: Arc::clone(plan),
            requests: requests.map(|t| Http1Request::new(t, settings)).collect(),
            source: RequestSource::new(plan, share),
            recorder,
            epoll,
            timer,
            connections: (0..share.connections)
                .map(|_| Http1Connection::new(plan.begin))
                .collect(),
            busy: 0,
            idle: VecDeque::new(),
            wakes: BinaryHeap::new(),
            buffer: vec![0; BUFFER],
            scratch: Vec::new(),
        })
    }

    /// Runs the thread's share of the load.
    ///
    /// # Errors
    ///
    /// [`LoadError::System`] if a system call fails.
    pub(in crate::load) fn run(mut self) -> Result<ThreadOutcome, LoadError> {
        self.start();
        let mut events = Vec::with_capacity(EVENTS);
        let mut next_round = Instant::now() + ROUND;
        loop {
            self.wait(&mut events, next_round)?;
            for event in events.drain(..) {
                self.on_event(event.data.u64(), event.flags);
            }
            let now = Instant::now();
            self.wake(now);
            self.send_due(now);
            let backlog = self.source.backlog(now);
            self.recorder.turn(now, backlog);
            if now >= next_round {
                next_round = now + ROUND;
                self.time_out(now);
                self.source.check_end(now);
            }
            if self.source.is_over(now, self.busy) {
                let outcome = self.source.outcome(self.busy);
                self.recorder.end(backlog);
                return Ok(outcome);
            }
        }
    }

    fn start(&mut self) {
        let now = Instant::now();
        for index in 0..self.connections.len() {
            match self.plan.settings.pace {
                RequestPace::Closed => self.start_request(index, now, now),
                RequestPace::Rate(_) => self.idle.push_back(index),
                // Staggered start: users do not all arrive at the same moment.
                RequestPace::Think(..) => {
                    let first = self.source.first_think_time();
                    self.wakes.push(Reverse((now + first, index)));
                }
            }
        }
    }

    fn wait(
        &mut self,
        events: &mut Vec<epoll::Event>,
        next_round: Instant,
    ) -> Result<(), LoadError> {
        let mut until = next_round.min(self.recorder.slice_end());
        if let Some(Reverse((at, _))) = self.wakes.peek() {
            until = until.min(*at);
        }
        let refused = |why| LoadError::System {
            what: "waiting for events",
            why,
        };
        if let Some(due) = self.source.next_due().filter(|_| !self.idle.is_empty()) {
            self.timer.set(due).map_err(refused)?;
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(refused(why.into())),
        }
    }

    fn on_event(&mut self, data: u64, flags: EventFlags) {
        let (generation, index) = ((data >> 32) as u32, (data & 0xffff_ffff) as usize);
        let Some(connection) = self.connections.get(index) else {
            return; // The timer; due requests are sent after all events.
        };
        if connection.generation != generation {
            return;
        }
        // Edge-triggered: there is no second event for the end of the stream, so it must be read now.
        let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match connection.phase {
            ConnectionPhase::Closed => {}
            ConnectionPhase::Connecting => self.on_connected(index, flags),
            ConnectionPhase::Handshaking => self.shake_hands(index),
            ConnectionPhase::AwaitingResponse => {
                if !connection.unsent.is_empty() || flags.contains(EventFlags::OUT) {
                    self.send_on(index);
                }
                return self.receive(index, ends);
            }
            ConnectionPhase::Idle => self.look_at_idle(index),
        }
        if ends && self.connections[index].phase == ConnectionPhase::AwaitingResponse {
            self.receive(index, ends);
        }
    }

    /// Starts a request that was scheduled for `start`.
    fn start_request(&mut self, index: usize, start: Instant, now: Instant) {
        let Some(choice) = self.source.take(start) else {
            return;
        };
        self.busy += 1;
        let endpoint = self.plan.endpoint_of[choice.target];
        let connection = &mut self.connections[index];
        connection.choice = choice;
        connection.start = start;
        connection.deadline = now + self.plan.settings.timeout;
        if connection.phase == ConnectionPhase::Idle && connection.endpoint == endpoint {
            self.send(index);
        } else {
            self.open(index, endpoint, now);
        }
    }

    fn open(&mut self, index: usize, endpoint: usize, now: Instant) {
        let to = &self.plan.endpoints[endpoint];
        let connection = &mut self.connections[index];
        connection.close();
        connection.endpoint = endpoint;
        connection.opened = now;
        connection.phase = ConnectionPhase::Connecting;
        let data = u64::from(connection.generation) << 32 | index as u64;
        let opened = ClientSocket::open(to.address, to.tls.as_ref(), None)
            .and_then(|transport| transport.register(&self.epoll, data));
        match opened {
            Ok(transport) => connection.transport = Some(transport),
            Err(error) => self.fail(index, connect_fault(&error)),
        }
    }

    fn on_connected(&mut self, index: usize, flags: EventFlags) {
        let Some(transport) = &self.connections[index].transport else {
            return;
        };
        if let Err(error) = transport.take_error() {
            return self.fail(index, connect_fault(&error));
        }
        if flags.contains(EventFlags::OUT) {
            self.connections[index].phase = ConnectionPhase::Handshaking;
            self.shake_hands(index);
        }
    }

    fn shake_hands(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        match transport.shake_hands() {
            Ok(false) => {}
            Ok(true) => {
                let took = connection.opened.elapsed();
                self.recorder.connected(connection.start, took);
                self.send(index);
            }
            Err(_) => self.fail(index, RequestFault::Tls),
        }
    }

    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let request = &self.requests[connection.choice.target];
        connection.phase = ConnectionPhase::AwaitingResponse;
        connection.reader.expect(request.is_head);
        self.scratch.clear();
        request.write(connection.choice.index, &mut self.scratch);
        let Some(transport) = &mut connection.transport else {
            return;
        };
        match transport.write(&self.scratch) {
            Ok(sent) => connection.unsent.extend_from_slice(&self.scratch[sent..]),
            Err(error) => self.fail(index, fault(&error)),
        }
    }

    fn send_on(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        if let Err(error) = transport.send_on(&mut connection.unsent) {
            self.fail(index, fault(&error));
        }
    }

    /// Reads until the socket is empty or the response complete. `ends`: the server has closed its side of
    /// the connection.
    fn receive(&mut self, index: usize, ends: bool) {
        loop {
            let connection = &mut self.connections[index];
            let Some(transport) = &mut connection.transport else {
                return;
            };
            let read = match transport.read(&mut self.buffer) {
                Ok(0) => return self.on_closed(index),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.fail(index, fault(&error)),
            };
            let drained = !ends && transport.is_drained(read, self.buffer.len());
            let now = Instant::now();
            self.recorder.received(connection.start, read);
            if connection.reader.has_nothing() {
                connection.first_byte = now;
            }
            match connection.reader.read(&self.buffer[..read]) {
                Ok(ParseProgress::Partial) if drained => return,
                Ok(ParseProgress::Partial) => {}
                Ok(ParseProgress::Complete(mut head, own)) if own == read => {
                    head.keeps_alive &= !ends;
                    return self.complete(index, head, now);
                }
                // Bytes after the response belong to no request.
                Ok(ParseProgress::Complete(..)) | Err(_) => {
                    return self.fail(index, RequestFault::Malformed);
                }
            }
        }
    }

    fn on_closed(&mut self, index: usize) {
        match self.connections[index].reader.close() {
            Some(head) => self.complete(index, head, Instant::now()),
            None => self.fail(index, RequestFault::ClosedEarly),
        }
    }

    /// Reads from an idle connection: either the server has closed it, or sent bytes that belong to no
    /// request. Both close it.
    fn look_at_idle(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        match transport.read(&mut self.buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => connection.close(),
        }
    }

    fn complete(&mut self, index: usize, head: ResponseSummary, now: Instant) {
        self.busy -= 1;
        let connection = &mut self.connections[index];
        let moments = ResponseTimes {
            start: connection.start,
            first_byte: connection.first_byte,
            end: now,
        };
        self.recorder.answered(head.status, head.outcome, moments);
        self.source.succeeded();
        connection.backoff.succeeded();
        // An answer that came before the whole request was sent leaves the connection between two messages.
        let is_clean = connection.unsent.is_empty();
        if head.keeps_alive && self.plan.settings.keep_alive && is_clean {
            connection.phase = ConnectionPhase::Idle;
        } else {
            connection.close();
        }
        match self.plan.settings.pace {
            RequestPace::Closed => self.start_request(index, now, now),
            RequestPace::Rate(_) => self.idle.push_back(index),
            RequestPace::Think(..) => {
                let pause = self.source.think_time();
                self.wakes.push(Reverse((now + pause, index)));
            }
        }
    }

    fn fail(&mut self, index: usize, fault: RequestFault) {
        self.busy -= 1;
        let now = Instant::now();
        let connection = &mut self.connections[index];
        connection.close();
        let backoff = connection.backoff.failed();
        self.recorder.failed(fault, connection.start, now);
        self.source.failed(now);
        let pause = match self.plan.settings.pace {
            RequestPace::Closed | RequestPace::Rate(_) => backoff,
            RequestPace::Think(..) => backoff.max(self.source.think_time()),
        };
        self.wakes.push(Reverse((now + pause, index)));
    }

    /// Resumes connections whose think time or back-off is over.
    fn wake(&mut self, now: Instant) {
        while let Some(Reverse((at, index))) = self.wakes.peek().copied() {
            if at > now {
                return;
            }
            self.wakes.pop();
            match self.plan.settings.pace {
                RequestPace::Closed | RequestPace::Think(..) => self.start_request(index, now, now),
                RequestPace::Rate(_) => self.idle.push_back(index),
            }
        }
    }

    /// Open loop: assigns due requests to free connections.
    fn send_due(&mut self, now: Instant) {
        while !self.idle.is_empty() {
            let Some(start) = self.source.take_due(now) else {
                return;
            };
            if let Some(index) = self.idle.pop_front() {
                self.start_request(index, start, now);
            }
        }
    }

    fn time_out(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if connection.phase.is_busy() && connection.deadline <= now {
                self.fail(index, RequestFault::TimedOut);
            }
        }
    }
}

pub(in crate::load) fn connect_fault(error: &std::io::Error) -> RequestFault {
    match error.kind() {
        ErrorKind::ConnectionRefused => RequestFault::Refused,
        _ => RequestFault::Connect,
    }
}

pub(in crate::load) fn fault(error: &std::io::Error) -> RequestFault {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            RequestFault::Reset
        }
        // Reported by rustls for bytes that are not TLS.
        ErrorKind::InvalidData => RequestFault::Tls,
        _ => RequestFault::ClosedEarly,
    }
}

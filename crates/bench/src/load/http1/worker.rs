//! The event loop of one thread: connects, sends, reads, records, and decides what comes next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::connection::{Connection, Phase};
use super::request::Request;
use super::response::{Head, Read};
use super::transport::Transport;
use crate::load::error::LoadError;
use crate::load::outcome::Fault;
use crate::load::plan::{Ended, Plan, Share};
use crate::load::recorder::{Moments, Recorder};
use crate::load::settings::Pace;
use crate::load::source::Source;
use crate::load::timer::Timer;

/// Bytes that are read at once.
const BUFFER: usize = 64 * 1024;
/// Events that are taken at once.
const EVENTS: usize = 512;
/// How often time-outs and the end are looked for.
const ROUND: Duration = Duration::from_millis(20);

/// What the timer's events are marked with; connections are marked with less.
const TIMER: u64 = u64::MAX;

/// One thread's connections.
pub(in crate::load) struct Worker {
    plan: Arc<Plan>,
    requests: Vec<Request>,
    source: Source,
    recorder: Recorder,
    epoll: OwnedFd,
    /// For the next request of an open loop.
    timer: Timer,
    connections: Vec<Connection>,
    /// Requests under way.
    busy: u64,
    /// In an open loop: the connections without a request, the one that has been idle longest first.
    idle: VecDeque<usize>,
    /// Connections that rest or think, by when they go on.
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl Worker {
    pub(in crate::load) fn new(
        plan: &Arc<Plan>,
        share: Share,
        recorder: Recorder,
    ) -> Result<Self, LoadError> {
        let refused = |why| LoadError::System {
            what: "a set of events",
            why,
        };
        let timer = Timer::new().map_err(refused)?;
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
            requests: requests.map(|t| Request::new(t, settings)).collect(),
            source: Source::new(plan, share),
            recorder,
            epoll,
            timer,
            connections: (0..share.connections)
                .map(|_| Connection::new(plan.begin))
                .collect(),
            busy: 0,
            idle: VecDeque::new(),
            wakes: BinaryHeap::new(),
            buffer: vec![0; BUFFER],
            scratch: Vec::new(),
        })
    }

    /// Makes the thread's share of the load.
    pub(in crate::load) fn run(mut self) -> Result<Ended, LoadError> {
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
            self.send_what_is_due(now);
            let backlog = self.source.backlog(now);
            self.recorder.turn(now, backlog);
            if now >= next_round {
                next_round = now + ROUND;
                self.time_out(now);
                self.source.look_for_end(now);
            }
            if self.source.is_over(now, self.busy) {
                let ended = self.source.ended(self.busy);
                self.recorder.end(backlog);
                return Ok(ended);
            }
        }
    }

    fn start(&mut self) {
        let now = Instant::now();
        for index in 0..self.connections.len() {
            match self.plan.settings.pace {
                Pace::Closed => self.ask(index, now, now),
                Pace::Rate(_) => self.idle.push_back(index),
                // Users do not all come at the same moment.
                Pace::Think(..) => {
                    let first = self.source.first_thought();
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
            return; // The timer: what it is for is looked at after all events.
        };
        if connection.generation != generation {
            return;
        }
        // This is told once: whoever stops reading before the end does not hear of it again.
        let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match connection.phase {
            Phase::Closed => {}
            Phase::Connecting => self.on_connected(index, flags),
            Phase::Handshaking => self.shake_hands(index),
            Phase::Asking => {
                if !connection.unsent.is_empty() || flags.contains(EventFlags::OUT) {
                    self.send_on(index);
                }
                return self.receive(index, ends);
            }
            Phase::Idle => self.look_at_idle(index),
        }
        if ends && self.connections[index].phase == Phase::Asking {
            self.receive(index, ends);
        }
    }

    /// Begins a request that was to start at `start`.
    fn ask(&mut self, index: usize, start: Instant, now: Instant) {
        let Some(chosen) = self.source.take(start) else {
            return;
        };
        self.busy += 1;
        let endpoint = self.plan.endpoint_of[chosen.target];
        let connection = &mut self.connections[index];
        connection.chosen = chosen;
        connection.start = start;
        connection.deadline = now + self.plan.settings.timeout;
        if connection.phase == Phase::Idle && connection.endpoint == endpoint {
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
        connection.phase = Phase::Connecting;
        let data = u64::from(connection.generation) << 32 | index as u64;
        let opened = Transport::open(to.address, to.tls.as_ref(), None)
            .and_then(|transport| transport.told_to(&self.epoll, data));
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
            self.connections[index].phase = Phase::Handshaking;
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
            Err(_) => self.fail(index, Fault::Tls),
        }
    }

    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let request = &self.requests[connection.chosen.target];
        connection.phase = Phase::Asking;
        connection.reader.expect(request.is_head);
        self.scratch.clear();
        request.write(connection.chosen.index, &mut self.scratch);
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

    /// Reads until nothing is there, or the answer is complete. `ends` says that the server has said its last.
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
                Ok(Read::Some) if drained => return,
                Ok(Read::Some) => {}
                Ok(Read::All(mut head, own)) if own == read => {
                    head.keeps_alive &= !ends;
                    return self.complete(index, head, now);
                }
                // Bytes behind the answer belong to no request.
                Ok(Read::All(..)) | Err(_) => return self.fail(index, Fault::Malformed),
            }
        }
    }

    fn on_closed(&mut self, index: usize) {
        match self.connections[index].reader.close() {
            Some(head) => self.complete(index, head, Instant::now()),
            None => self.fail(index, Fault::ClosedEarly),
        }
    }

    /// A server may close a connection on which nothing is under way; what it says on it belongs to no request.
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

    fn complete(&mut self, index: usize, head: Head, now: Instant) {
        self.busy -= 1;
        let connection = &mut self.connections[index];
        let moments = Moments {
            start: connection.start,
            first_byte: connection.first_byte,
            end: now,
        };
        self.recorder.answered(head.status, head.outcome, moments);
        self.source.succeeded();
        connection.rest.succeeded();
        // An answer that came before the whole request was sent leaves the connection between two messages.
        let is_clean = connection.unsent.is_empty();
        if head.keeps_alive && self.plan.settings.keep_alive && is_clean {
            connection.phase = Phase::Idle;
        } else {
            connection.close();
        }
        match self.plan.settings.pace {
            Pace::Closed => self.ask(index, now, now),
            Pace::Rate(_) => self.idle.push_back(index),
            Pace::Think(..) => {
                let thought = self.source.thought();
                self.wakes.push(Reverse((now + thought, index)));
            }
        }
    }

    fn fail(&mut self, index: usize, fault: Fault) {
        self.busy -= 1;
        let now = Instant::now();
        let connection = &mut self.connections[index];
        connection.close();
        let rest = connection.rest.failed();
        self.recorder.failed(fault, connection.start, now);
        self.source.failed(now);
        let rest = match self.plan.settings.pace {
            Pace::Closed | Pace::Rate(_) => rest,
            Pace::Think(..) => rest.max(self.source.thought()),
        };
        self.wakes.push(Reverse((now + rest, index)));
    }

    /// Goes on with connections that have rested or thought for long enough.
    fn wake(&mut self, now: Instant) {
        while let Some(Reverse((at, index))) = self.wakes.peek().copied() {
            if at > now {
                return;
            }
            self.wakes.pop();
            match self.plan.settings.pace {
                Pace::Closed | Pace::Think(..) => self.ask(index, now, now),
                Pace::Rate(_) => self.idle.push_back(index),
            }
        }
    }

    /// In an open loop: gives what is due to connections that are free.
    fn send_what_is_due(&mut self, now: Instant) {
        while !self.idle.is_empty() {
            let Some(start) = self.source.take_due(now) else {
                return;
            };
            if let Some(index) = self.idle.pop_front() {
                self.ask(index, start, now);
            }
        }
    }

    fn time_out(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if connection.phase.is_busy() && connection.deadline <= now {
                self.fail(index, Fault::TimedOut);
            }
        }
    }
}

pub(in crate::load) fn connect_fault(error: &std::io::Error) -> Fault {
    match error.kind() {
        ErrorKind::ConnectionRefused => Fault::Refused,
        _ => Fault::Connect,
    }
}

pub(in crate::load) fn fault(error: &std::io::Error) -> Fault {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            Fault::Reset
        }
        // What TLS says of bytes that are none of its own.
        ErrorKind::InvalidData => Fault::Tls,
        _ => Fault::ClosedEarly,
    }
}

//! Event loop of one thread: connects, sends, receives, records, and starts the next request.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::Event;

use super::connection::Http1Connection;
use super::request::Http1Request;
use super::response::{ParseProgress, ResponseSummary};
use crate::load::error::LoadError;
use crate::load::outcome::RequestFault;
use crate::load::plan::{LoadPlan, ThreadOutcome, ThreadShare};
use crate::load::reactor::{EVENTS, Reactor};
use crate::load::recorder::{Recorder, ResponseTimes};
use crate::load::request_source::RequestSource;
use crate::load::settings::RequestPace;
use crate::load::timer::OneShotTimer;
use crate::load::transport::{Transport, TransportStep};

/// Id of the timer among the event loop's descriptors; that of connections is smaller.
const TIMER: u64 = u64::MAX;

/// Event loop of one thread.
pub(in crate::load) struct Http1Worker {
    plan: Arc<LoadPlan>,
    requests: Vec<Http1Request>,
    source: RequestSource,
    recorder: Recorder,
    reactor: Reactor,
    /// Fires when the next request of an open loop is due.
    timer: OneShotTimer,
    connections: Vec<Http1Connection>,
    /// Requests in flight.
    busy: u64,
    /// Open loop: connections without a request, least recently used first.
    idle: VecDeque<usize>,
    /// Connections in think time or back-off, by wake-up time.
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    scratch: Vec<u8>,
}

impl Http1Worker {
    pub(in crate::load) fn new(
        plan: &Arc<LoadPlan>,
        share: ThreadShare,
        recorder: Recorder,
    ) -> Result<Self, LoadError> {
        let reactor = Reactor::new()?;
        let timer = OneShotTimer::new()
            .and_then(|timer| reactor.watch(&timer, TIMER).map(|()| timer))
            .map_err(|why| LoadError::system("a timer", why))?;
        let settings = &plan.settings;
        let requests = settings.targets.iter();
        Ok(Self {
            plan: Arc::clone(plan),
            requests: requests.map(|t| Http1Request::new(t, settings)).collect(),
            source: RequestSource::new(plan, share),
            recorder,
            reactor,
            timer,
            connections: (0..share.connections)
                .map(|index| Http1Connection::new(index, plan.begin))
                .collect(),
            busy: 0,
            idle: VecDeque::new(),
            wakes: BinaryHeap::new(),
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
        loop {
            self.arm_timer()?;
            self.reactor.wait(&mut events, Some(self.next_wake()))?;
            for event in events.drain(..) {
                self.on_event(event);
            }
            let now = Instant::now();
            self.wake(now);
            self.send_due(now);
            let backlog = self.source.backlog(now);
            self.recorder.turn(now, backlog);
            if self.reactor.begins_round(now) {
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

    /// Sets the timer to the next due request of an open loop.
    fn arm_timer(&mut self) -> Result<(), LoadError> {
        match self.source.next_due().filter(|_| !self.idle.is_empty()) {
            Some(due) => self
                .timer
                .set(due)
                .map_err(|why| LoadError::system("a timer", why)),
            None => Ok(()),
        }
    }

    fn next_wake(&self) -> Instant {
        let slice_end = self.recorder.slice_end();
        match self.wakes.peek() {
            Some(Reverse((at, _))) => slice_end.min(*at),
            None => slice_end,
        }
    }

    fn on_event(&mut self, event: Event) {
        let index = Transport::index_of(event);
        let Some(connection) = self.connections.get_mut(index) else {
            return; // The timer; due requests are sent after all events.
        };
        match connection.transport.on_event(event) {
            Ok(TransportStep::Pending) => {}
            Ok(TransportStep::Opened) => {
                let took = connection.opened.elapsed();
                self.recorder.connected(connection.start, took);
                self.send(index);
                if self.connections[index].transport.is_ending() {
                    self.receive(index);
                }
            }
            Ok(TransportStep::Readable) if connection.is_busy => self.receive(index),
            Ok(TransportStep::Readable) => self.look_at_idle(index),
            Err(fault) if connection.is_busy => self.fail(index, fault),
            Err(_) => connection.transport.close(),
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
        connection.is_busy = true;
        if connection.transport.is_open() && connection.endpoint == endpoint {
            return self.send(index);
        }
        connection.endpoint = endpoint;
        connection.opened = now;
        let to = &self.plan.endpoints[endpoint];
        if let Err(fault) = connection.transport.open(&self.reactor, to, None) {
            self.fail(index, fault);
        }
    }

    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let request = &self.requests[connection.choice.target];
        connection.reader.expect(request.is_head);
        self.scratch.clear();
        request.write(connection.choice.index, &mut self.scratch);
        if let Err(fault) = connection.transport.send(&self.scratch) {
            self.fail(index, fault);
        }
    }

    /// Reads until the socket is empty or the response complete.
    fn receive(&mut self, index: usize) {
        loop {
            let connection = &mut self.connections[index];
            let bytes = match connection.transport.read(self.reactor.buffer()) {
                Ok(None) => return,
                Ok(Some([])) => return self.on_closed(index),
                Ok(Some(bytes)) => bytes,
                Err(fault) => return self.fail(index, fault),
            };
            let now = Instant::now();
            self.recorder.received(connection.start, bytes.len());
            if connection.reader.has_nothing() {
                connection.first_byte = now;
            }
            match connection.reader.read(bytes) {
                Ok(ParseProgress::Partial) => {}
                Ok(ParseProgress::Complete(head, own)) if own == bytes.len() => {
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
        let transport = &mut self.connections[index].transport;
        if !matches!(transport.read(self.reactor.buffer()), Ok(None)) {
            transport.close();
        }
    }

    fn complete(&mut self, index: usize, head: ResponseSummary, now: Instant) {
        self.busy -= 1;
        let connection = &mut self.connections[index];
        connection.is_busy = false;
        let moments = ResponseTimes {
            start: connection.start,
            first_byte: connection.first_byte,
            end: now,
        };
        self.recorder.answered(head.status, head.outcome, moments);
        self.source.succeeded();
        connection.backoff.succeeded();
        // An answer that came before the whole request was sent leaves the connection between two messages.
        let is_reusable = connection.transport.is_reusable();
        if !(head.keeps_alive && self.plan.settings.keep_alive && is_reusable) {
            connection.transport.close();
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
        connection.is_busy = false;
        connection.transport.close();
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
            if connection.is_busy && connection.deadline <= now {
                self.fail(index, RequestFault::TimedOut);
            }
        }
    }
}

//! One connection: what is read, what is waited for and what is sent take turns in one poll, until
//! nothing moves any more. Hits are answered in the poll that read them, and leave in one write.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use microcache_engine::RouteId;
use microcache_policy::Time;

use super::abuse::{Budgets, LEAST_TAKEN};
use super::flow::{Given, INITIAL, Window};
use super::frame::{self, HEADER, MAX_PAYLOAD};
use super::hpack::{Decoder, Encoder};
use super::out::Out;
use super::reason::{Fault, Reason};
use super::settings::{Settings, id};
use super::stream::Stall;
use super::streams::Streams;
use super::timing::Alarm;
use super::waiting::Waiting;
use super::write;
use crate::connection::{Activity, Transport};
use crate::metrics;
use crate::session::Session;
use crate::tls::Certificate;

/// What a client's connection begins with (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What all requests of a connection may send that nobody has taken yet. Each of them may send
/// [`INITIAL`] of it.
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Read at a time.
const READ_SIZE: usize = 32 * 1024;

thread_local! {
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A client's connection.
pub(crate) struct Connection<'a> {
    pub(super) stream: &'a mut Transport,
    pub(super) session: &'a mut Session,
    /// The certificate that the connection is bound to: requests for hosts that it is not for are misdirected.
    pub(super) certificate: Option<Arc<Certificate>>,
    /// For those who want to close idle connections.
    pub(super) activity: &'a Activity,
    /// What was read and not yet used; mostly nothing.
    pub(super) input: BytesMut,
    pub(super) begun: Begun,
    pub(super) out: Out,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    /// What the client wants.
    pub(super) theirs: Settings,
    /// What may be sent on all streams together.
    pub(super) window: Window,
    pub(super) stall: Stall,
    /// What may be received.
    pub(super) given: Given,
    pub(super) streams: Streams,
    pub(super) block: Option<Block>,
    pub(super) budgets: Budgets,
    /// Streams that the client may have open at a time, as it was told.
    pub(super) max_streams: usize,
    /// Requests that it has had.
    pub(super) requests: u64,
    pub(super) waiting: Waiting,
    /// What is held of bodies that are read for this connection alone, in bytes.
    pub(super) held: usize,
    /// Some stream could not read more of its body because of it.
    pub(super) is_hungry: bool,
    pub(super) leaving: Leaving,
    pub(super) alarm: Alarm,
    pub(super) now: Time,
    /// The last time that there was a stream, or the connection began.
    pub(super) quiet: Time,
    /// Since when a frame or a field block is incomplete.
    pub(super) partial: Option<Time>,
    /// Since when the socket takes nothing.
    pub(super) blocked: Option<Time>,
    /// The route of a hit whose time is wanted.
    pub(super) timed: Option<RouteId>,
}

/// How far the beginning of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// The preface is still to come.
    No,
    /// SETTINGS are.
    Preface,
    Yes,
}

/// A field block of which more is to come.
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) ends: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// How a connection comes to its end (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It does not.
    No,
    /// The client was told to open no more streams; what it opened before it knew is still taken.
    Announced(Time),
    /// It was told which stream was the last.
    Last,
    /// Nothing more is done but to send what is there.
    Over,
}

/// How the work of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client is gone.
    Gone,
    /// It was told to go.
    Told,
}

impl<'a> Connection<'a> {
    /// Goes on with a connection on which the preface is expected, or lies in `input`.
    pub(crate) fn new(
        stream: &'a mut Transport,
        session: &'a mut Session,
        activity: &'a Activity,
        input: BytesMut,
    ) -> Self {
        let now = session.shared.engine.clock.now();
        let write = session.shared.timeouts.write;
        let http2 = session.shared.http2;
        let certificate = match stream {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => tls.certificate_for_host(),
        };
        let mut connection = Self {
            stream,
            certificate,
            session,
            activity,
            input,
            begun: Begun::No,
            out: Out::default(),
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            theirs: Settings::default(),
            window: Window::new(INITIAL),
            stall: Stall::new(write, LEAST_TAKEN),
            given: Given::new(CONNECTION_WINDOW),
            streams: Streams::default(),
            block: None,
            budgets: Budgets::new(http2.resets),
            max_streams: http2.streams,
            requests: 0,
            waiting: Waiting::default(),
            held: 0,
            is_hungry: false,
            leaving: Leaving::No,
            alarm: Alarm::new(),
            now,
            quiet: now,
            partial: Some(now),
            blocked: None,
            timed: None,
        };
        connection.greet();
        connection
    }

    /// Says what is wanted of the client.
    fn greet(&mut self) {
        let out = &mut self.out.bytes;
        let settings = [
            (id::MAX_CONCURRENT_STREAMS, self.max_streams as u32),
            (
                id::MAX_HEADER_LIST_SIZE,
                self.session.shared.head_limits.head as u32,
            ),
            (id::ENABLE_CONNECT_PROTOCOL, 1),
            (id::NO_RFC7540_PRIORITIES, 1),
        ];
        write::settings(out, &settings);
        write::window_update(out, 0, CONNECTION_WINDOW - INITIAL);
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(mut self) -> Ended {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        self.session.catch_up();
        self.now = self.session.shared.engine.clock.now();
        self.out.borrow();
        let polled = self.poll_all(cx);
        self.out.give_back();
        polled
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            self.notice_drain();
            let mut moved = self.take_steps(cx);
            match self.poll_input(cx) {
                Ok(taken) => moved |= taken,
                Err(_gone) => return Poll::Ready(Ended::Gone),
            }
            moved |= self.send_content(cx);
            match self.out.poll_flush(self.stream, cx) {
                Poll::Ready(Ok(sent)) => {
                    moved |= sent;
                    self.blocked = None;
                    if self.is_over() {
                        return Poll::Ready(Ended::Told);
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Ended::Gone),
                Poll::Pending => {
                    self.blocked.get_or_insert(self.now);
                }
            }
            if moved {
                continue;
            }
            match self.poll_deadlines(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(Ended::Gone),
            }
        }
    }

    /// Takes what was waited for. Says whether there was anything.
    fn take_steps(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while !self.out.is_full()
            && let Poll::Ready((stream, step)) = self.waiting.poll_next(cx)
        {
            moved = true;
            self.take_step(cx, stream, step);
        }
        moved
    }

    /// Reads what there is, unless too much waits to be sent. Says whether there was anything; an error
    /// is the client's leaving.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> std::io::Result<bool> {
        if self.leaving == Leaving::Over || self.out.is_full() {
            return Ok(false);
        }
        if !self.input.is_empty() {
            let input = std::mem::take(&mut self.input);
            let used = self.take_input(cx, &input);
            self.keep(input, used);
            if used > 0 {
                return Ok(true);
            }
        }
        let mut scratch = INPUT.take();
        scratch.resize(READ_SIZE, 0);
        let read = match self.stream.poll_recv(cx, &mut scratch) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => Err(std::io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(length)) if self.input.is_empty() => {
                let used = self.take_input(cx, &scratch[..length]);
                self.input.extend_from_slice(&scratch[used..length]);
                Ok(true)
            }
            Poll::Ready(Ok(length)) => {
                self.input.extend_from_slice(&scratch[..length]);
                Ok(true)
            }
        };
        INPUT.set(scratch);
        read
    }

    fn keep(&mut self, mut input: BytesMut, used: usize) {
        input.advance(used);
        // An idle connection owns no buffer.
        self.input = if input.is_empty() {
            BytesMut::new()
        } else {
            input
        };
    }

    /// Takes frames off the front of `input`, as long as there is room for what they lead to. Says
    /// how much was used.
    fn take_input(&mut self, cx: &mut Context<'_>, input: &[u8]) -> usize {
        let began = metrics::is_next().then(Instant::now);
        let last = self.streams.last();
        let mut used = 0;
        if self.begun == Begun::No {
            match self.take_preface(input) {
                Some(length) => used = length,
                None => return 0,
            }
        }
        while !self.out.is_full() && self.leaving != Leaving::Over {
            let (taken, length) = match frame::read(&input[used..]) {
                Ok(None) => break,
                Ok(Some((frame, length))) => (self.take_frame(cx, frame), length),
                Err(bad) => (self.check_order(None).and(Err(bad.fault)), bad.length),
            };
            if let Err(fault) = taken {
                self.fail(fault);
            }
            used = used.saturating_add(length).min(input.len());
        }
        let incomplete = used < input.len() || self.block.is_some();
        self.partial = match self.partial {
            Some(since) if incomplete && used == 0 => Some(since),
            _ => incomplete.then_some(self.now),
        };
        if let (Some(began), Some(route)) = (began, self.timed.take()) {
            self.session.shared.metrics.hit_took(route, began.elapsed());
        }
        if self.streams.last() > last && self.streams.is_empty() {
            self.quiet = self.now;
            if !self.activity.answered(self.now) {
                // Its place was given to another one.
                self.leave(Reason::NoError, "");
            }
        }
        used
    }

    fn take_preface(&mut self, input: &[u8]) -> Option<usize> {
        if input.starts_with(PREFACE) {
            self.begun = Begun::Preface;
            return Some(PREFACE.len());
        }
        if !PREFACE.starts_with(input) {
            self.leave(Reason::Protocol, "not the preface of HTTP/2");
        }
        None
    }

    /// Ends what broke a rule.
    pub(super) fn fail(&mut self, fault: Fault) {
        match fault {
            Fault::Connection(reason, what) => self.leave(reason, what),
            Fault::Stream(stream, reason, _) => {
                let what = "too many streams that had to be reset";
                self.reset(stream, reason);
                if let Err(calm) = self.budgets.stream_errors.spend(self.now, what) {
                    self.fail(calm);
                }
            }
        }
    }

    /// Gives a stream up, and says so.
    pub(super) fn reset(&mut self, stream: u32, reason: Reason) {
        write::reset(&mut self.out.bytes, stream, reason);
        self.streams.cut_short(stream);
        self.forget(stream);
    }
}

/// No frame that is taken is longer than what is read at a time.
const _: () = assert!(HEADER + MAX_PAYLOAD <= READ_SIZE);

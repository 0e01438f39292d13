//! One HTTP/2 connection: reading, awaited events and writing take turns in one poll until there is no
//! progress. Hits are answered in the poll that read them, and leave in one write.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use microcache_engine::RouteId;
use microcache_policy::Time;

use super::deadline_timer::DeadlineTimer;
use super::flood_limits::{FloodLimits, LEAST_TAKEN};
use super::flow::{INITIAL, ReceiveWindow, Window};
use super::frame::{self, HEADER, MAX_PAYLOAD};
use super::hpack::{Decoder, Encoder};
use super::out::OutputBuffer;
use super::reason::{ErrorCode, ProtocolError};
use super::settings::{Settings, id};
use super::stream::WriteTimeout;
use super::stream_events::PendingEvents;
use super::streams::Http2Streams;
use super::write;
use crate::admission::Activity;
use crate::connection::ClientTransport;
use crate::metrics;
use crate::session::Session;
use crate::tls::Certificate;

/// Connection preface of a client (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Receive window of the connection in bytes, shared by all requests; each stream has [`INITIAL`].
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Bytes read at a time.
const READ_SIZE: usize = 32 * 1024;

thread_local! {
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// HTTP/2 connection of a client.
pub(crate) struct Http2ServerConnection<'a> {
    pub(super) stream: &'a mut ClientTransport,
    pub(super) session: &'a mut Session,
    /// Certificate presented to the client: requests for hosts that it does not cover are misdirected.
    pub(super) certificate: Option<Arc<Certificate>>,
    /// Shared with the connection limits, which close idle connections.
    pub(super) activity: &'a Activity,
    /// Input that is not consumed yet; usually none.
    pub(super) input: BytesMut,
    pub(super) preface: PrefaceState,
    pub(super) out: OutputBuffer,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    /// SETTINGS of the client.
    pub(super) theirs: Settings,
    /// Send window of the connection.
    pub(super) window: Window,
    pub(super) stall: WriteTimeout,
    /// Receive window of the connection.
    pub(super) receive_window: ReceiveWindow,
    pub(super) streams: Http2Streams,
    pub(super) block: Option<PartialBlock>,
    pub(super) flood_limits: FloodLimits,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS` sent to the client.
    pub(super) max_streams: usize,
    /// Number of requests so far.
    pub(super) requests: u64,
    pub(super) pending_events: PendingEvents,
    /// Memory in bytes of bodies that are read for this connection alone.
    pub(super) held: usize,
    /// A stream waits for this memory before it reads more of its body.
    pub(super) is_hungry: bool,
    pub(super) shutdown: ShutdownState,
    pub(super) alarm: DeadlineTimer,
    pub(super) now: Time,
    /// Last time with an open stream, or the start of the connection.
    pub(super) quiet: Time,
    /// Time since when a frame or a field block is incomplete.
    pub(super) partial: Option<Time>,
    /// Time since when the socket takes nothing.
    pub(super) blocked: Option<Time>,
    /// Route to record the hit latency for, if sampled.
    pub(super) timed: Option<RouteId>,
}

/// Progress of the connection preface (RFC 9113 §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefaceState {
    /// The preface is expected.
    AwaitingPreface,
    /// The first SETTINGS frame is expected.
    AwaitingSettings,
    Complete,
}

/// Incomplete field block.
pub(super) struct PartialBlock {
    pub(super) stream: u32,
    pub(super) ends: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// Progress of the shutdown (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownState {
    /// Not shutting down.
    No,
    /// GOAWAY without a stream limit was sent; streams that the client has opened before it arrives are
    /// accepted.
    Announced(Time),
    /// GOAWAY with the last accepted stream was sent.
    Last,
    /// Pending output is sent, then the connection closes.
    Over,
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client has left.
    Gone,
    /// GOAWAY was sent.
    GoAway,
}

impl<'a> Http2ServerConnection<'a> {
    /// Connection whose preface is expected, or is in `input`.
    pub(crate) fn new(
        stream: &'a mut ClientTransport,
        session: &'a mut Session,
        activity: &'a Activity,
        input: BytesMut,
    ) -> Self {
        let now = session.shared.engine.clock.now();
        let write = session.shared.timeouts.write;
        let http2 = session.shared.http2;
        let certificate = match stream {
            ClientTransport::Plain(_) => None,
            ClientTransport::Tls(tls) => tls.certificate_for_host(),
        };
        let mut connection = Self {
            stream,
            certificate,
            session,
            activity,
            input,
            preface: PrefaceState::AwaitingPreface,
            out: OutputBuffer::default(),
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            theirs: Settings::default(),
            window: Window::new(INITIAL),
            stall: WriteTimeout::new(write, LEAST_TAKEN),
            receive_window: ReceiveWindow::new(CONNECTION_WINDOW),
            streams: Http2Streams::default(),
            block: None,
            flood_limits: FloodLimits::new(http2.resets),
            max_streams: http2.streams,
            requests: 0,
            pending_events: PendingEvents::default(),
            held: 0,
            is_hungry: false,
            shutdown: ShutdownState::No,
            alarm: DeadlineTimer::new(),
            now,
            quiet: now,
            partial: Some(now),
            blocked: None,
            timed: None,
        };
        connection.greet();
        connection
    }

    /// Sends the server's SETTINGS.
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
    pub(crate) async fn serve(mut self) -> CloseReason {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        self.session.catch_up();
        self.now = self.session.shared.engine.clock.now();
        self.out.borrow();
        let polled = self.poll_all(cx);
        self.out.give_back();
        polled
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        loop {
            self.notice_drain();
            let mut moved = self.handle_stream_events(cx);
            match self.poll_input(cx) {
                Ok(taken) => moved |= taken,
                Err(_gone) => return Poll::Ready(CloseReason::Gone),
            }
            moved |= self.send_content(cx);
            match self.out.poll_flush(self.stream, cx) {
                Poll::Ready(Ok(sent)) => {
                    moved |= sent;
                    self.blocked = None;
                    if self.is_over() {
                        return Poll::Ready(CloseReason::GoAway);
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(CloseReason::Gone),
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
                Poll::Ready(false) => return Poll::Ready(CloseReason::Gone),
            }
        }
    }

    /// Handles awaited events. Returns `true` if there were any.
    fn handle_stream_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while !self.out.is_full()
            && let Poll::Ready((stream, step)) = self.pending_events.poll_next(cx)
        {
            moved = true;
            self.handle_stream_event(cx, stream, step);
        }
        moved
    }

    /// Reads available input unless too much output is pending. Returns `true` if there was any; an error means
    /// that the client has left.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> std::io::Result<bool> {
        if self.shutdown == ShutdownState::Over || self.out.is_full() {
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

    /// Keeps the part of `input` that was not consumed.
    fn keep(&mut self, mut input: BytesMut, used: usize) {
        input.advance(used);
        // An idle connection owns no buffer.
        self.input = if input.is_empty() {
            BytesMut::new()
        } else {
            input
        };
    }

    /// Handles frames off the front of `input` as long as there is room for the resulting output. Returns the
    /// number of bytes consumed.
    fn take_input(&mut self, cx: &mut Context<'_>, input: &[u8]) -> usize {
        let began = metrics::is_next().then(Instant::now);
        let last = self.streams.last();
        let mut used = 0;
        if self.preface == PrefaceState::AwaitingPreface {
            match self.take_preface(input) {
                Some(length) => used = length,
                None => return 0,
            }
        }
        while !self.out.is_full() && self.shutdown != ShutdownState::Over {
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
                // The connection was dismissed in favour of another one.
                self.leave(ErrorCode::NoError, "");
            }
        }
        used
    }

    fn take_preface(&mut self, input: &[u8]) -> Option<usize> {
        if input.starts_with(PREFACE) {
            self.preface = PrefaceState::AwaitingSettings;
            return Some(PREFACE.len());
        }
        if !PREFACE.starts_with(input) {
            self.leave(ErrorCode::Protocol, "not the HTTP/2 preface");
        }
        None
    }

    /// Ends the stream or connection that violated the protocol.
    pub(super) fn fail(&mut self, fault: ProtocolError) {
        match fault {
            ProtocolError::Connection(reason, what) => self.leave(reason, what),
            ProtocolError::Stream(stream, reason, _) => {
                let what = "too many streams reset because of errors";
                self.reset(stream, reason);
                if let Err(flood) = self.flood_limits.stream_errors.spend(self.now, what) {
                    self.fail(flood);
                }
            }
        }
    }

    /// Resets a stream with `RST_STREAM`.
    pub(super) fn reset(&mut self, stream: u32, reason: ErrorCode) {
        write::reset(&mut self.out.bytes, stream, reason);
        self.streams.cut_short(stream);
        self.forget(stream);
    }
}

/// An accepted frame fits into one read.
const _: () = assert!(HEADER + MAX_PAYLOAD <= READ_SIZE);

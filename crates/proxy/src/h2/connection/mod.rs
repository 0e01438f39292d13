//! One HTTP/2 connection: reading, awaited events and writing take turns in one poll until there is no
//! progress. Hits are answered in the poll that read them, and leave in one write.
//!
//! No part of a connection has access to another, except that [`Http2Streams`] and [`Shutdown`] write to the
//! [`Outbound`]. They meet here, through their methods.

mod deadlines;
mod receive;
mod requests;

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::BytesMut;
use microcache_engine::RouteId;
use microcache_policy::Time;

use super::deadline_timer::DeadlineTimer;
use super::flood_limits::FloodLimits;
use super::flow::INITIAL;
use super::frame::{HEADER, MAX_PAYLOAD};
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::reason::{ErrorCode, ProtocolError};
use super::settings::id;
use super::shutdown::Shutdown;
use super::streams::{CONNECTION_WINDOW, Http2Streams, PollContext};
use super::write;
use crate::admission::Activity;
use crate::connection::ClientTransport;
use crate::metrics::{self, Refusal};
use crate::session::Session;
use crate::tls::Certificate;

/// Bytes read at a time.
const READ_SIZE: usize = 32 * 1024;

/// An accepted frame fits into one read.
const _: () = assert!(HEADER + MAX_PAYLOAD <= READ_SIZE);

thread_local! {
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// HTTP/2 connection of a client.
pub(crate) struct Http2ServerConnection<'a> {
    transport: &'a mut ClientTransport,
    session: &'a mut Session,
    /// Certificate presented to the client: requests for hosts that it does not cover are misdirected.
    certificate: Option<Arc<Certificate>>,
    /// Host of the last request that the certificate covers.
    covered_host: Option<Vec<u8>>,
    inbound: Inbound,
    outbound: Outbound,
    streams: Http2Streams<'a>,
    shutdown: Shutdown,
    flood_limits: FloodLimits,
    timer: DeadlineTimer,
    now: Time,
    /// Route to record the hit latency for, if sampled.
    timed: Option<RouteId>,
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
        transport: &'a mut ClientTransport,
        session: &'a mut Session,
        activity: &'a Activity,
        input: BytesMut,
    ) -> Self {
        let now = session.shared.engine.clock.now();
        let write = session.shared.timeouts.write;
        let http2 = session.shared.http2;
        let certificate = match transport {
            ClientTransport::Plain(_) => None,
            ClientTransport::Tls(tls) => tls.certificate_for_host(),
        };
        let mut connection = Self {
            transport,
            certificate,
            covered_host: None,
            session,
            inbound: Inbound::new(input, now),
            outbound: Outbound::new(write),
            streams: Http2Streams::new(activity, http2.streams, now),
            shutdown: Shutdown::new(),
            flood_limits: FloodLimits::new(http2.resets),
            timer: DeadlineTimer::new(),
            now,
            timed: None,
        };
        connection.greet();
        connection
    }

    /// Sends the server's SETTINGS.
    fn greet(&mut self) {
        let shared = &self.session.shared;
        let settings = [
            (id::MAX_CONCURRENT_STREAMS, shared.http2.streams as u32),
            (id::MAX_HEADER_LIST_SIZE, shared.head_limits.head as u32),
            (id::ENABLE_CONNECT_PROTOCOL, 1),
            (id::NO_RFC7540_PRIORITIES, 1),
        ];
        self.outbound.settings(&settings);
        let larger = CONNECTION_WINDOW - INITIAL;
        self.outbound.window_update(0, larger);
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(mut self) -> CloseReason {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        self.session.catch_up();
        self.now = self.session.shared.engine.clock.now();
        self.outbound.borrow_buffer();
        let polled = self.poll_all(cx);
        self.outbound.give_back_buffer();
        polled
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        loop {
            let server = &self.session.shared.lifecycle;
            self.shutdown
                .notice_drain(server, self.now, &mut self.outbound);
            let mut moved = self.handle_events(cx);
            match self.poll_input(cx) {
                Ok(taken) => moved |= taken,
                Err(_gone) => return Poll::Ready(CloseReason::Gone),
            }
            moved |= self.send_content(cx);
            match self.outbound.poll_flush(self.transport, cx, self.now) {
                Poll::Ready(Ok(sent)) => {
                    moved |= sent;
                    if self.shutdown.is_over(self.streams.is_empty()) {
                        return Poll::Ready(CloseReason::GoAway);
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(CloseReason::Gone),
                Poll::Pending => {}
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
    fn handle_events(&mut self, cx: &mut Context<'_>) -> bool {
        let (streams, mut poll) = self.split(cx);
        streams.handle_events(&mut poll)
    }

    /// Sends content of responses. Returns `true` if any was sent.
    fn send_content(&mut self, cx: &mut Context<'_>) -> bool {
        let (streams, mut poll) = self.split(cx);
        streams.send_content(&mut poll)
    }

    /// Returns the streams apart from the rest of the connection that they use.
    fn split<'p, 'w>(
        &'p mut self,
        cx: &'p mut Context<'w>,
    ) -> (&'p mut Http2Streams<'a>, PollContext<'p, 'w>) {
        let poll = PollContext {
            cx,
            now: self.now,
            session: self.session,
            out: &mut self.outbound,
        };
        (&mut self.streams, poll)
    }

    /// Reads available input unless too much output is pending. Returns `true` if there was any; an error means
    /// that the client has left.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.shutdown.is_closing() || self.outbound.is_full() {
            return Ok(false);
        }
        if let Some(rest) = self.inbound.take_rest() {
            let used = self.take_input(cx, &rest);
            self.inbound.keep(rest, used);
            if used > 0 {
                return Ok(true);
            }
        }
        let mut scratch = INPUT.take();
        scratch.resize(READ_SIZE, 0);
        let read = match self.transport.poll_recv(cx, &mut scratch) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(length)) if self.inbound.has_rest() => {
                self.inbound.append(&scratch[..length]);
                Ok(true)
            }
            Poll::Ready(Ok(length)) => {
                let used = self.take_input(cx, &scratch[..length]);
                self.inbound.append(&scratch[used..length]);
                Ok(true)
            }
        };
        INPUT.set(scratch);
        read
    }

    /// Handles frames off the front of `input` as long as there is room for the resulting output. Returns the
    /// number of bytes consumed.
    fn take_input(&mut self, cx: &mut Context<'_>, input: &[u8]) -> usize {
        let began = metrics::is_next().then(Instant::now);
        let last = self.streams.last();
        let mut used = match self.inbound.take_preface(input) {
            Ok(Some(length)) => length,
            Ok(None) => return 0,
            Err(fault) => {
                self.fail(fault);
                return 0;
            }
        };
        while !self.outbound.is_full()
            && !self.shutdown.is_closing()
            && let Some((frame, length)) = self.inbound.next_frame(&input[used..])
        {
            if let Err(fault) = frame.and_then(|frame| self.take_frame(cx, frame)) {
                self.fail(fault);
            }
            used = used.saturating_add(length).min(input.len());
        }
        self.inbound.consumed(used, input.len(), self.now);
        if let (Some(began), Some(route)) = (began, self.timed.take()) {
            self.session.shared.metrics.hit_took(route, began.elapsed());
        }
        if self.streams.last() > last
            && self.streams.is_empty()
            && !self.streams.answered_at_once(self.now)
        {
            // The connection limits have closed this idle connection to admit another one.
            self.leave(ErrorCode::NoError, "");
        }
        used
    }

    /// Ends the stream or connection that violated the protocol.
    fn fail(&mut self, fault: ProtocolError) {
        match fault {
            ProtocolError::Connection(reason, what) => self.leave(reason, what),
            ProtocolError::Stream(stream, reason, _) => {
                let what = "too many streams reset because of errors";
                self.streams
                    .reset(stream, reason, self.now, &mut self.outbound);
                if let Err(flood) = self.flood_limits.stream_errors.spend(self.now, what) {
                    self.fail(flood);
                }
            }
        }
    }

    /// Sends GOAWAY and closes after the pending output.
    fn leave(&mut self, reason: ErrorCode, what: &'static str) {
        if self.shutdown.is_closing() {
            return;
        }
        if reason == ErrorCode::EnhanceYourCalm {
            self.session.report_refused(Refusal::Http2, what);
        }
        let last = self.streams.last();
        self.shutdown.close(reason, what, last, &mut self.outbound);
        for id in self.streams.ids() {
            self.streams.forget(id, self.now, &mut self.outbound);
        }
    }
}

impl Drop for Http2ServerConnection<'_> {
    /// Sends GOAWAY, as far as that is possible without waiting, on a connection that is closed from outside:
    /// dismissed, or idle when the server stops. The client then knows which requests it may retry.
    fn drop(&mut self) {
        let is_between_frames = self.outbound.is_empty();
        if self.shutdown.accepts_streams() && is_between_frames {
            let mut bytes = Vec::new();
            write::go_away(&mut bytes, self.streams.last(), ErrorCode::NoError, "");
            let mut cx = Context::from_waker(Waker::noop());
            let _ = self.transport.poll_send(&mut cx, &[IoSlice::new(&bytes)]);
        }
    }
}

//! Timeouts of a connection and its streams.

use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;

use super::connection::{Http2ServerConnection, ShutdownState};
use super::reason::{ErrorCode, ProtocolError};
use super::stream::{ContentSink, Http2Stream, SendingResponse};

/// Milliseconds without progress after which the body's source is informed of a slow client.
const HELD_UP: u64 = 2000;

impl Http2ServerConnection<'_> {
    /// Ready when a deadline has passed; `true` if the connection continues.
    pub(super) fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.note_stalls();
        loop {
            let Some(deadline) = self.deadline() else {
                return Poll::Pending;
            };
            if self.alarm.poll(cx, deadline, self.now).is_pending() {
                return Poll::Pending;
            }
            self.now = self.session.shared.engine.clock.now();
            if self.now >= deadline {
                return Poll::Ready(self.is_late());
            }
        }
    }

    /// Starts the write timeout of streams that a closed window blocks.
    fn note_stalls(&mut self) {
        let (now, connection_open) = (self.now, self.window.open() > 0);
        let mut stalled = false;
        for (_, stream) in self.streams.iter() {
            let is_open = stream.window.open() > 0;
            let Some(sending) = stream.sending() else {
                continue;
            };
            if sending.piece.is_empty() {
                continue;
            }
            if !is_open {
                sending.stall.begin(now);
            }
            stalled |= is_open && !connection_open;
        }
        if stalled {
            self.stall.begin(now);
        }
    }

    /// Returns the earliest deadline.
    fn deadline(&mut self) -> Option<Time> {
        let timeouts = self.session.shared.timeouts;
        let after = |since: Option<Time>, span: Duration| {
            since.map(|since| since.plus(span.as_millis() as u64))
        };
        if self.shutdown == ShutdownState::Over {
            return after(self.blocked, timeouts.write);
        }
        let body = timeouts.body.max(timeouts.head);
        let partial = if self.block.is_some() || self.streams.is_empty() {
            timeouts.head
        } else {
            body
        };
        let quiet = self.streams.is_empty().then_some(self.quiet);
        let of_connection = [
            self.last_call_at(),
            self.stall.deadline(),
            after(self.blocked, timeouts.write),
            after(self.partial, partial),
            after(quiet, timeouts.idle),
        ];
        let first = of_connection.into_iter().flatten().min();
        let of_streams = self
            .streams
            .iter()
            .filter_map(|(_, stream)| deadline(stream));
        first.into_iter().chain(of_streams).min()
    }

    /// Handles passed deadlines. Returns `true` if the connection continues.
    fn is_late(&mut self) -> bool {
        let (now, timeouts) = (self.now, self.session.shared.timeouts);
        let is_late = |since: Option<Time>, span: Duration| {
            since.is_some_and(|since| now >= since.plus(span.as_millis() as u64))
        };
        if is_late(self.blocked, timeouts.write) {
            return false;
        }
        if self.stall.deadline().is_some_and(|it| now >= it) {
            self.leave(
                ErrorCode::EnhanceYourCalm,
                "the connection's flow-control window stays closed",
            );
            return true;
        }
        if self.last_call_at().is_some_and(|it| now >= it) {
            self.last_call();
        }
        let in_block = self.block.is_some() || self.streams.is_empty();
        if is_late(self.partial, timeouts.body.max(timeouts.head))
            || in_block && is_late(self.partial, timeouts.head)
        {
            self.leave(ErrorCode::EnhanceYourCalm, "an incomplete frame timed out");
            return true;
        }
        if self.streams.is_empty() && is_late(Some(self.quiet), timeouts.idle) {
            self.leave(ErrorCode::NoError, "");
            return true;
        }
        self.late_streams();
        true
    }

    fn late_streams(&mut self) {
        let now = self.now;
        for id in self.streams.ids() {
            let Some(stream) = self.streams.get(id) else {
                continue;
            };
            if content_deadline(stream).is_some_and(|it| now >= it) {
                self.content_is_late(id);
                continue;
            }
            let Some(sending) = stream.sending() else {
                continue;
            };
            if held_up_at(sending).is_some_and(|it| now >= it) {
                sending.is_held_up = true;
                sending
                    .body
                    .iter_mut()
                    .for_each(microcache_engine::Body::notify_slow_reader);
            }
            let deadlines = [sending.stall.deadline(), sending.deadline];
            if deadlines.into_iter().flatten().any(|it| now >= it) {
                let what = "a flow-control window stays closed";
                self.fail(ProtocolError::Stream(id, ErrorCode::Cancel, what));
            }
        }
    }

    /// Restarts the idle timeout of a tunnel.
    pub(super) fn moved_in_tunnel(&mut self, id: u32) {
        let deadline = self.tunnel_deadline();
        if let Some(sending) = self.streams.get(id).and_then(|it| it.sending())
            && sending.is_tunnel
        {
            sending.deadline = Some(deadline);
        }
    }

    /// Returns the idle deadline of a tunnel.
    pub(super) fn tunnel_deadline(&self) -> Time {
        let span = self.session.shared.timeouts.tunnel;
        self.now.plus(span.as_millis() as u64)
    }
}

/// Returns the deadline of a stream.
fn deadline(stream: &mut Http2Stream) -> Option<Time> {
    let content = content_deadline(stream);
    let Some(sending) = stream.sending() else {
        return content;
    };
    let of_sending = [
        held_up_at(sending),
        sending.stall.deadline(),
        sending.deadline,
    ];
    of_sending.into_iter().flatten().chain(content).min()
}

fn held_up_at(sending: &SendingResponse) -> Option<Time> {
    let since = sending.stall.since().filter(|_| !sending.is_held_up)?;
    sending.body.as_ref().map(|_| since.plus(HELD_UP))
}

/// Returns the read deadline of request content; `None` while the window is closed.
fn content_deadline(stream: &Http2Stream) -> Option<Time> {
    let content = stream.content.as_ref()?;
    let ContentSink::Request(sender) = content.sender.as_ref()? else {
        return None;
    };
    let left = || sender.allowance.left().as_millis() as u64;
    Some(
        content
            .awaited_since?
            .plus(content.silence.unwrap_or_else(left)),
    )
}

//! Timeouts of a connection.

use std::task::{Context, Poll};

use microcache_policy::Time;

use super::Http2ServerConnection;
use crate::h2::reason::ErrorCode;

impl Http2ServerConnection<'_> {
    /// Ready when a deadline has passed; `true` if the connection continues.
    pub(super) fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let connection_open = self.outbound.window() > 0;
        if self.streams.note_stalls(self.now, connection_open) {
            self.outbound.window_blocks(self.now);
        } else if !connection_open {
            self.outbound.window_blocks_nothing();
        }
        loop {
            let Some(deadline) = self.deadline() else {
                return Poll::Pending;
            };
            if self.timer.poll(cx, deadline, self.now).is_pending() {
                return Poll::Pending;
            }
            self.now = self.session.shared.engine.clock.now();
            if self.now >= deadline {
                return Poll::Ready(self.is_late());
            }
        }
    }

    /// Returns the earliest deadline.
    fn deadline(&mut self) -> Option<Time> {
        let of_socket = self.socket_deadline();
        if self.shutdown.is_closing() {
            return of_socket;
        }
        let others = [
            self.shutdown.last_call_at(),
            self.outbound.window_deadline(),
            self.input_deadline(),
            self.idle_deadline(),
            self.streams.deadline(),
        ];
        // A flattened iterator costs five times as much.
        others
            .iter()
            .fold(of_socket, |first, &other| match (first, other) {
                (Some(first), Some(other)) => Some(first.min(other)),
                _ => first.or(other),
            })
    }

    /// Handles passed deadlines. Returns `true` if the connection continues.
    fn is_late(&mut self) -> bool {
        let now = self.now;
        let is_late = |deadline: Option<Time>| deadline.is_some_and(|it| now >= it);
        if is_late(self.socket_deadline()) {
            return false;
        }
        if is_late(self.outbound.window_deadline()) {
            let what = "the connection's flow-control window stays closed";
            self.leave(ErrorCode::EnhanceYourCalm, what);
            return true;
        }
        if is_late(self.shutdown.last_call_at()) {
            let last = self.streams.last();
            self.shutdown.last_call(last, &mut self.outbound);
        }
        if is_late(self.input_deadline()) {
            self.leave(ErrorCode::EnhanceYourCalm, "an incomplete frame timed out");
            return true;
        }
        if is_late(self.idle_deadline()) {
            self.leave(ErrorCode::NoError, "");
            return true;
        }
        for id in self.streams.ids() {
            let checked = self.streams.check_deadlines(id, now, &mut self.outbound);
            if let Err(fault) = checked {
                self.fail(fault);
            }
        }
        true
    }

    fn socket_deadline(&self) -> Option<Time> {
        let write = self.session.shared.timeouts.write;
        self.outbound.socket_deadline(write)
    }

    fn input_deadline(&self) -> Option<Time> {
        let timeouts = &self.session.shared.timeouts;
        self.inbound.deadline(timeouts, !self.streams.is_empty())
    }

    fn idle_deadline(&self) -> Option<Time> {
        let idle = self.session.shared.timeouts.idle.as_millis() as u64;
        self.streams.idle_since().map(|since| since.plus(idle))
    }
}

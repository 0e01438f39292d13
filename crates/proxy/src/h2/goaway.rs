//! GOAWAY: the shutdown of a connection (RFC 9113 §6.8).

use std::io::IoSlice;
use std::task::{Context, Waker};

use super::connection::{Http2ServerConnection, ShutdownState};
use super::reason::ErrorCode;
use super::write;
use crate::admission::FIRST_REQUEST;
use crate::metrics::Refusal;

/// Payload of the PING whose ACK shows that the client has received the first GOAWAY.
const LAST_CALL: [u8; 8] = *b"lastcall";
/// Largest stream identifier, for a GOAWAY that refuses none.
const ANY: u32 = (1 << 31) - 1;

impl Http2ServerConnection<'_> {
    /// Sends GOAWAY and closes after the pending output.
    pub(super) fn leave(&mut self, reason: ErrorCode, what: &'static str) {
        if self.shutdown == ShutdownState::Over {
            return;
        }
        if reason == ErrorCode::EnhanceYourCalm {
            self.session.report_refused(Refusal::Http2, what);
        }
        let last = self.streams.last();
        write::go_away(&mut self.out.bytes, last, reason, what);
        self.shutdown = ShutdownState::Over;
        for id in self.streams.ids() {
            self.forget(id);
        }
    }

    /// Begins a graceful shutdown when the server drains: GOAWAY without a stream limit first, and the last
    /// accepted stream later, so that no request in flight is lost (RFC 9113 §6.8). While the listener is open,
    /// a new connection has a request first: clients send none on one that begins with GOAWAY.
    pub(super) fn notice_drain(&mut self) {
        let lifecycle = &self.session.shared.lifecycle;
        let is_due =
            lifecycle.draining_since().is_some() || lifecycle.is_leaving() && self.requests > 0;
        if self.shutdown == ShutdownState::No && is_due {
            write::go_away(&mut self.out.bytes, ANY, ErrorCode::NoError, "");
            write::ping(&mut self.out.bytes, LAST_CALL);
            self.shutdown = ShutdownState::Announced(self.now);
        }
    }

    /// Handles a PING with ACK.
    pub(super) fn answered_ping(&mut self, opaque: [u8; 8]) {
        if opaque == LAST_CALL && matches!(self.shutdown, ShutdownState::Announced(_)) {
            self.last_call();
        }
    }

    /// Sends the final GOAWAY: no more streams are accepted.
    pub(super) fn last_call(&mut self) {
        let last = self.streams.last();
        write::go_away(&mut self.out.bytes, last, ErrorCode::NoError, "");
        self.shutdown = ShutdownState::Last;
    }

    /// Returns the time at which the final GOAWAY is due.
    pub(super) fn last_call_at(&self) -> Option<microcache_policy::Time> {
        match self.shutdown {
            ShutdownState::Announced(at) => Some(at.plus(FIRST_REQUEST.as_millis() as u64)),
            _ => None,
        }
    }

    /// Returns `true` once the connection can be closed.
    pub(super) fn is_over(&self) -> bool {
        match self.shutdown {
            ShutdownState::No | ShutdownState::Announced(_) => false,
            ShutdownState::Last => self.streams.is_empty(),
            ShutdownState::Over => true,
        }
    }
}

impl Drop for Http2ServerConnection<'_> {
    /// Sends GOAWAY, as far as that is possible without waiting, on a connection that is closed from outside:
    /// dismissed, or idle when the server stops. The client then knows which requests it may retry.
    fn drop(&mut self) {
        let is_between_frames = self.out.len() == 0;
        if matches!(
            self.shutdown,
            ShutdownState::No | ShutdownState::Announced(_)
        ) && is_between_frames
        {
            let mut bytes = Vec::new();
            write::go_away(&mut bytes, self.streams.last(), ErrorCode::NoError, "");
            let mut cx = Context::from_waker(Waker::noop());
            let _ = self.stream.poll_send(&mut cx, &[IoSlice::new(&bytes)]);
        }
    }
}

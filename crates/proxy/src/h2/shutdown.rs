//! GOAWAY: the shutdown of a connection (RFC 9113 §6.8). Each step is taken together with the frame that announces
//! it.

use microcache_policy::Time;

use super::outbound::Outbound;
use super::reason::ErrorCode;
use crate::admission::FIRST_REQUEST;
use crate::lifecycle::Lifecycle;

/// Payload of the PING whose ACK shows that the client has received the first GOAWAY.
const LAST_CALL: [u8; 8] = *b"lastcall";
/// Largest stream identifier, for a GOAWAY that refuses none.
const ANY: u32 = (1 << 31) - 1;

/// Shutdown of a connection, and the number of requests that it depends on.
pub(super) struct Shutdown {
    state: ShutdownState,
    /// Number of requests so far.
    requests: u64,
}

/// Progress of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownState {
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

impl Shutdown {
    pub(super) const fn new() -> Self {
        Self {
            state: ShutdownState::No,
            requests: 0,
        }
    }

    /// Returns `true` if the connection closes as soon as its pending output is sent.
    pub(super) fn is_closing(&self) -> bool {
        self.state == ShutdownState::Over
    }

    /// Returns `true` once the connection can be closed.
    pub(super) const fn is_over(&self, without_streams: bool) -> bool {
        match self.state {
            ShutdownState::No | ShutdownState::Announced(_) => false,
            ShutdownState::Last => without_streams,
            ShutdownState::Over => true,
        }
    }

    /// Returns `true` until a GOAWAY with the last accepted stream was sent.
    pub(super) const fn accepts_streams(&self) -> bool {
        matches!(self.state, ShutdownState::No | ShutdownState::Announced(_))
    }

    /// Begins a graceful shutdown when the server drains: GOAWAY without a stream limit first, and the last
    /// accepted stream later, so that no request in flight is lost (RFC 9113 §6.8). While the listener is open,
    /// a new connection has a request first: clients send none on one that begins with GOAWAY.
    pub(super) fn notice_drain(&mut self, server: &Lifecycle, now: Time, out: &mut Outbound) {
        let is_due = server.draining_since().is_some() || server.is_leaving() && self.requests > 0;
        if self.state == ShutdownState::No && is_due {
            out.go_away(ANY, ErrorCode::NoError, "");
            out.ping(LAST_CALL);
            self.state = ShutdownState::Announced(now);
        }
    }

    /// Counts a request on the stream `last`. Sends the final GOAWAY if the connection has had `most` of them.
    pub(super) fn count_request(&mut self, most: u64, last: u32, out: &mut Outbound) {
        self.requests += 1;
        if self.requests >= most {
            self.last_call(last, out);
        }
    }

    /// Handles a PING with ACK.
    pub(super) fn answered_ping(&mut self, opaque: [u8; 8], last: u32, out: &mut Outbound) {
        if opaque == LAST_CALL && matches!(self.state, ShutdownState::Announced(_)) {
            self.last_call(last, out);
        }
    }

    /// Returns the time at which the final GOAWAY is due.
    pub(super) fn last_call_at(&self) -> Option<Time> {
        match self.state {
            ShutdownState::Announced(at) => Some(at.plus(FIRST_REQUEST.as_millis() as u64)),
            _ => None,
        }
    }

    /// Sends the final GOAWAY: no streams behind `last` are accepted.
    pub(super) fn last_call(&mut self, last: u32, out: &mut Outbound) {
        out.go_away(last, ErrorCode::NoError, "");
        self.state = ShutdownState::Last;
    }

    /// Sends GOAWAY with a reason: the connection closes after the pending output.
    pub(super) fn close(
        &mut self,
        reason: ErrorCode,
        what: &'static str,
        last: u32,
        out: &mut Outbound,
    ) {
        out.go_away(last, reason, what);
        self.state = ShutdownState::Over;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_drain_names_the_last_stream_only_when_the_client_knows_of_it() {
        let (server, now) = (Lifecycle::default(), Time::from_millis(5));
        let mut out = Outbound::new(Duration::from_secs(1));
        let mut shutdown = Shutdown::new();
        server.leave();
        shutdown.notice_drain(&server, now, &mut out);
        // It has not had a request yet.
        assert!(out.is_empty() && shutdown.last_call_at().is_none());
        shutdown.count_request(u64::MAX, 1, &mut out);
        shutdown.notice_drain(&server, now, &mut out);
        assert!(!out.is_empty() && shutdown.accepts_streams());
        assert!(shutdown.last_call_at().is_some() && !shutdown.is_over(true));
        shutdown.answered_ping(*b"another.", 1, &mut out);
        assert!(shutdown.accepts_streams());
        shutdown.answered_ping(LAST_CALL, 1, &mut out);
        assert!(!shutdown.accepts_streams() && shutdown.last_call_at().is_none());
        assert!(!shutdown.is_over(false) && shutdown.is_over(true));
        shutdown.close(ErrorCode::NoError, "", 1, &mut out);
        assert!(shutdown.is_closing() && shutdown.is_over(false));
    }

    #[test]
    fn the_last_request_of_a_connection_ends_it() {
        let mut out = Outbound::new(Duration::from_secs(1));
        let mut shutdown = Shutdown::new();
        shutdown.count_request(2, 1, &mut out);
        assert!(shutdown.accepts_streams() && out.is_empty());
        shutdown.count_request(2, 3, &mut out);
        assert!(!shutdown.accepts_streams() && !out.is_empty());
    }
}

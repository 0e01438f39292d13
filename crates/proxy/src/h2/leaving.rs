//! How a connection comes to its end, and who is told.

use std::io::IoSlice;
use std::task::{Context, Waker};

use super::connection::{Connection, Leaving};
use super::reason::Reason;
use super::write;
use crate::connections::FIRST_REQUEST;
use crate::metrics::Refusal;

/// The answer to it shows that the client has read what was sent before.
const LAST_CALL: [u8; 8] = *b"lastcall";
/// Streams of every number may still be opened.
const ANY: u32 = (1 << 31) - 1;

impl Connection<'_> {
    /// Tells the client to go at once.
    pub(super) fn leave(&mut self, reason: Reason, what: &'static str) {
        if self.leaving == Leaving::Over {
            return;
        }
        if reason == Reason::EnhanceYourCalm {
            self.session.tell_refused(Refusal::Http2, what);
        }
        let last = self.streams.last();
        write::go_away(&mut self.out.bytes, last, reason, what);
        self.leaving = Leaving::Over;
        for id in self.streams.ids() {
            self.forget(id);
        }
    }

    /// When the server is told to stop, the client is told first, and only then which stream was its
    /// last: none that is on its way is lost (RFC 9113 §6.8). As long as connections are accepted, a new
    /// one has a request first: clients send none on a connection that begins with GOAWAY.
    pub(super) fn notice_drain(&mut self) {
        let lifecycle = &self.session.shared.lifecycle;
        let is_due =
            lifecycle.draining_since().is_some() || lifecycle.is_leaving() && self.requests > 0;
        if self.leaving == Leaving::No && is_due {
            write::go_away(&mut self.out.bytes, ANY, Reason::NoError, "");
            write::ping(&mut self.out.bytes, LAST_CALL);
            self.leaving = Leaving::Announced(self.now);
        }
    }

    /// A PING was answered.
    pub(super) fn answered_ping(&mut self, opaque: [u8; 8]) {
        if opaque == LAST_CALL && matches!(self.leaving, Leaving::Announced(_)) {
            self.last_call();
        }
    }

    /// No more streams are taken.
    pub(super) fn last_call(&mut self) {
        let last = self.streams.last();
        write::go_away(&mut self.out.bytes, last, Reason::NoError, "");
        self.leaving = Leaving::Last;
    }

    /// How long a client that was told to go may still open streams.
    pub(super) fn last_call_at(&self) -> Option<microcache_policy::Time> {
        match self.leaving {
            Leaving::Announced(at) => Some(at.plus(FIRST_REQUEST.as_millis() as u64)),
            _ => None,
        }
    }

    /// Nothing more is to be done.
    pub(super) fn is_over(&self) -> bool {
        match self.leaving {
            Leaving::No | Leaving::Announced(_) => false,
            Leaving::Last => self.streams.is_empty(),
            Leaving::Over => true,
        }
    }
}

impl Drop for Connection<'_> {
    /// A connection whose place is wanted, or that is idle when the server stops, is ended from
    /// outside. The client is told then, as far as that can be done at once, so that it knows what it
    /// may send again.
    fn drop(&mut self) {
        let is_between_frames = self.out.len() == 0;
        if matches!(self.leaving, Leaving::No | Leaving::Announced(_)) && is_between_frames {
            let mut bytes = Vec::new();
            write::go_away(&mut bytes, self.streams.last(), Reason::NoError, "");
            let mut cx = Context::from_waker(Waker::noop());
            let _ = self.stream.poll_send(&mut cx, &[IoSlice::new(&bytes)]);
        }
    }
}

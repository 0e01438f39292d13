//! One connection: what it is doing, and since when.

use std::time::Instant;

use super::response::Reader;
use super::transport::Transport;
use crate::load::choice::Chosen;
use crate::load::rest::Rest;

/// One connection, or the place of one.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) transport: Option<Transport>,
    pub(super) phase: Phase,
    /// Tells the events of this socket from those of the one before.
    pub(super) generation: u32,
    /// Whom the socket leads to.
    pub(super) endpoint: usize,
    pub(super) opened: Instant,
    /// What is asked for.
    pub(super) chosen: Chosen,
    /// When the present request was to start.
    pub(super) start: Instant,
    pub(super) first_byte: Instant,
    pub(super) deadline: Instant,
    pub(super) reader: Reader,
    /// What of the request there was no room for.
    pub(super) unsent: Vec<u8>,
    pub(super) rest: Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is no socket.
    Closed,
    /// The present request waits for the connection.
    Connecting,
    /// The present request waits for TLS.
    Handshaking,
    /// The present request is under way.
    Asking,
    /// The socket is open, and there is no request.
    Idle,
}

impl Phase {
    /// Whether a request is under way.
    pub(super) fn is_busy(self) -> bool {
        matches!(self, Self::Connecting | Self::Handshaking | Self::Asking)
    }
}

impl Connection {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            transport: None,
            phase: Phase::Closed,
            generation: 0,
            endpoint: 0,
            opened: now,
            chosen: Chosen {
                target: 0,
                index: 0,
            },
            start: now,
            first_byte: now,
            deadline: now,
            reader: Reader::default(),
            unsent: Vec::new(),
            rest: Rest::default(),
        }
    }

    pub(super) fn close(&mut self) {
        self.transport = None;
        self.phase = Phase::Closed;
        self.generation = self.generation.wrapping_add(1);
        self.unsent.clear();
    }
}

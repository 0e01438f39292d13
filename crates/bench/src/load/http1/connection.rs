//! HTTP/1.1 connection state.

use std::time::Instant;

use super::response::ResponseParser;
use super::socket::ClientSocket;
use crate::load::backoff::Backoff;
use crate::load::url_selector::UrlChoice;

/// State of one connection, open or not.
#[derive(Debug)]
pub(super) struct Http1Connection {
    pub(super) transport: Option<ClientSocket>,
    pub(super) phase: ConnectionPhase,
    /// Distinguishes epoll events of this socket from those of its predecessor.
    pub(super) generation: u32,
    /// Index of the server that the socket is connected to.
    pub(super) endpoint: usize,
    pub(super) opened: Instant,
    /// URL of the current request.
    pub(super) choice: UrlChoice,
    /// Scheduled start of the current request.
    pub(super) start: Instant,
    pub(super) first_byte: Instant,
    pub(super) deadline: Instant,
    pub(super) reader: ResponseParser,
    /// Request bytes that did not fit into the socket's send buffer.
    pub(super) unsent: Vec<u8>,
    pub(super) backoff: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// No socket.
    Closed,
    /// TCP connect in progress for the current request.
    Connecting,
    /// TLS handshake in progress for the current request.
    Handshaking,
    /// Request sent, response in progress.
    AwaitingResponse,
    /// Open keep-alive connection without a request.
    Idle,
}

impl ConnectionPhase {
    /// Returns whether a request is in flight.
    pub(super) fn is_busy(self) -> bool {
        matches!(
            self,
            Self::Connecting | Self::Handshaking | Self::AwaitingResponse
        )
    }
}

impl Http1Connection {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            transport: None,
            phase: ConnectionPhase::Closed,
            generation: 0,
            endpoint: 0,
            opened: now,
            choice: UrlChoice {
                target: 0,
                index: 0,
            },
            start: now,
            first_byte: now,
            deadline: now,
            reader: ResponseParser::default(),
            unsent: Vec::new(),
            backoff: Backoff::default(),
        }
    }

    pub(super) fn close(&mut self) {
        self.transport = None;
        self.phase = ConnectionPhase::Closed;
        self.generation = self.generation.wrapping_add(1);
        self.unsent.clear();
    }
}

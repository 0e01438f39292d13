//! HTTP/1.1 connection state.

use std::time::Instant;

use super::response::ResponseParser;
use crate::load::backoff::Backoff;
use crate::load::transport::Transport;
use crate::load::url_selector::UrlChoice;

/// State of one connection, open or not.
#[derive(Debug)]
pub(super) struct Http1Connection {
    pub(super) transport: Transport,
    /// `true` while a request is in flight.
    pub(super) is_busy: bool,
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
    pub(super) backoff: Backoff,
}

impl Http1Connection {
    pub(super) fn new(index: usize, now: Instant) -> Self {
        Self {
            transport: Transport::new(index),
            is_busy: false,
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
            backoff: Backoff::default(),
        }
    }
}

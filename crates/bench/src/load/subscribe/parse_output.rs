//! State of a stream and result of parsing, common to both protocols.

use super::document::{PublicationMarker, RunIdentity};

/// State of a stream after parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamStatus {
    /// The response head is incomplete.
    Opening,
    Open,
    /// The server has ended the stream properly.
    Ended,
    /// The server has answered with another status.
    Refused(u16),
    /// The response is not an event stream.
    NoEvents,
    /// Protocol violation.
    Malformed,
}

/// Result of parsing received bytes.
#[derive(Debug)]
pub(super) struct ParseOutput<'a> {
    run: &'a RunIdentity,
    pub(super) events: u64,
    /// Markers of this run found in the events.
    pub(super) marks: Vec<PublicationMarker>,
    /// Bytes to send to the server.
    pub(super) replies: Vec<u8>,
}

impl<'a> ParseOutput<'a> {
    pub(super) fn new(run: &'a RunIdentity) -> Self {
        Self {
            run,
            events: 0,
            marks: Vec::new(),
            replies: Vec::new(),
        }
    }

    pub(super) fn event(&mut self, data: &[u8]) {
        self.events += 1;
        self.marks.extend(self.run.find(data));
    }
}

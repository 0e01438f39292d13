//! Protocol parsers of a stream: server-sent events or WebSocket.

use super::events::EventParser;
use super::parse_output::{ParseOutput, StreamStatus};
use super::settings::StreamKind;
use super::websocket::WebSocketParser;
use crate::load::http1::response::{self, ParseProgress, ResponseSummary};

/// Parser of one stream.
#[derive(Debug)]
pub(super) enum StreamParser {
    /// Server-sent events.
    Events(EventStreamParser),
    /// WebSocket messages.
    WebSocket(WebSocketParser),
}

impl StreamParser {
    pub(super) fn new(kind: StreamKind) -> Self {
        match kind {
            StreamKind::Events => {
                let mut http = response::ResponseParser::default();
                http.expect(false);
                Self::Events(EventStreamParser {
                    http,
                    events: EventParser::default(),
                })
            }
            StreamKind::WebSocket => Self::WebSocket(WebSocketParser::default()),
        }
    }

    /// Parses received bytes. `found` counts only if the stream is open now or was before.
    pub(super) fn read(&mut self, bytes: &[u8], found: &mut ParseOutput<'_>) -> StreamStatus {
        found.events = 0;
        found.marks.clear();
        match self {
            Self::Events(reader) => reader.read(bytes, found),
            Self::WebSocket(reader) => reader.read(bytes, found),
        }
    }

    /// Returns the state after the connection was closed; `None` if the stream is incomplete.
    pub(super) fn close(&self) -> Option<StreamStatus> {
        match self {
            Self::Events(reader) => reader.http.close().map(|_| StreamStatus::Ended),
            Self::WebSocket(_) => None,
        }
    }
}

/// Parser of an event stream in an HTTP response.
#[derive(Debug)]
pub(super) struct EventStreamParser {
    http: response::ResponseParser,
    events: EventParser,
}

impl EventStreamParser {
    fn read(&mut self, bytes: &[u8], found: &mut ParseOutput<'_>) -> StreamStatus {
        let (http, events) = (&mut self.http, &mut self.events);
        let mut is_too_long = false;
        let read = http.read_content(bytes, &mut |content| {
            let read = events.read(content, &mut |data| found.event(data));
            is_too_long |= read.is_err();
        });
        let of_head = |head: ResponseSummary, step| match head {
            ResponseSummary { status: 200, .. } if is_too_long => StreamStatus::Malformed,
            ResponseSummary {
                status: 200,
                is_event_stream: true,
                ..
            } => step,
            ResponseSummary { status: 200, .. } => StreamStatus::NoEvents,
            head => StreamStatus::Refused(head.status),
        };
        match read {
            Err(response::MalformedResponse) => StreamStatus::Malformed,
            Ok(ParseProgress::Complete(head, _)) => of_head(head, StreamStatus::Ended),
            Ok(ParseProgress::Partial) => self.http.head().map_or(StreamStatus::Opening, |head| {
                of_head(head, StreamStatus::Open)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::subscribe::document::RunIdentity;

    /// State of a stream after these bytes, and its number of events.
    fn check(bytes: &str, step: StreamStatus, events: u64) {
        let run = RunIdentity::begin();
        for size in [1, 7, bytes.len()] {
            let mut found = ParseOutput::new(&run);
            let mut reader = StreamParser::new(StreamKind::Events);
            let mut seen = 0;
            let mut last = StreamStatus::Opening;
            for piece in bytes.as_bytes().chunks(size) {
                last = reader.read(piece, &mut found);
                seen += found.events;
                if !matches!(last, StreamStatus::Opening | StreamStatus::Open) {
                    break;
                }
            }
            assert_eq!(last, step, "{bytes:?} in steps of {size}");
            if matches!(step, StreamStatus::Open | StreamStatus::Ended) {
                assert_eq!(seen, events, "{bytes:?} in steps of {size}");
            }
        }
    }

    #[test]
    fn a_response_is_a_stream_or_is_not() {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n";
        let two = "9\r\ndata: a\n\n\r\n10\r\ndata: b\n\ndata: c\r\n3\r\n\n: \r\n";
        check(head, StreamStatus::Opening, 0);
        check(&format!("{head}\r\n"), StreamStatus::Open, 0);
        check(&format!("{head}\r\n{two}"), StreamStatus::Open, 2);
        check(&format!("{head}\r\n{two}0\r\n\r\n"), StreamStatus::Ended, 2);
        check(
            &format!("{head}\r\nnonsense\r\n"),
            StreamStatus::Malformed,
            0,
        );
        check("SSH-2.0-x\r\n", StreamStatus::Malformed, 0);
        check(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\ndata: a\n\n",
            StreamStatus::NoEvents,
            0,
        );
        check(
            "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n",
            StreamStatus::Refused(404),
            0,
        );
        check(
            "HTTP/1.1 204 No Content\r\n\r\n",
            StreamStatus::Refused(204),
            0,
        );
    }

    #[test]
    fn a_stream_may_end_with_the_connection() {
        let run = RunIdentity::begin();
        let mut reader = StreamParser::new(StreamKind::Events);
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n";
        assert_eq!(
            reader.read(head, &mut ParseOutput::new(&run)),
            StreamStatus::Open
        );
        assert_eq!(reader.close(), Some(StreamStatus::Ended));
        let cut = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut reader = StreamParser::new(StreamKind::Events);
        assert_eq!(
            reader.read(cut, &mut ParseOutput::new(&run)),
            StreamStatus::Open
        );
        assert_eq!(reader.close(), None);
    }
}

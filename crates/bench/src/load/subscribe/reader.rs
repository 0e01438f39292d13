//! What comes on one stream, by what is spoken on it.

use super::document::{Mark, Run};
use super::events::Events;
use super::settings::Kind;
use super::websocket::WebSocketReader;
use crate::load::http1::response::{self, Head, Read};

/// Reads one stream.
#[derive(Debug)]
pub(super) enum Reader {
    /// Server-sent events.
    Events(EventReader),
    /// Messages.
    WebSocket(WebSocketReader),
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The head has not come yet.
    Opening,
    Open,
    /// The server has said that this was all.
    Ended,
    /// It is an answer, and no stream.
    Refused(u16),
    /// There is an answer, and it is no event stream.
    NoEvents,
    /// It is not what is spoken here.
    Malformed,
}

/// What was found in what has come.
#[derive(Debug)]
pub(super) struct Found<'a> {
    run: &'a Run,
    pub(super) events: u64,
    /// Those of the events that are publications of this run.
    pub(super) marks: Vec<Mark>,
    /// What is to be said to the server.
    pub(super) replies: Vec<u8>,
}

impl<'a> Found<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
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

impl Reader {
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Events => {
                let mut http = response::Reader::default();
                http.expect(false);
                Self::Events(EventReader {
                    http,
                    events: Events::default(),
                })
            }
            Kind::WebSocket => Self::WebSocket(WebSocketReader::default()),
        }
    }

    /// Reads what has come. What is found counts only if the stream is open, or was open before.
    pub(super) fn read(&mut self, bytes: &[u8], found: &mut Found<'_>) -> Step {
        found.events = 0;
        found.marks.clear();
        match self {
            Self::Events(reader) => reader.read(bytes, found),
            Self::WebSocket(reader) => reader.read(bytes, found),
        }
    }

    /// What it means that the connection is closed; `None` where something is missing.
    pub(super) fn close(&self) -> Option<Step> {
        match self {
            Self::Events(reader) => reader.http.close().map(|_| Step::Ended),
            Self::WebSocket(_) => None,
        }
    }
}

/// Reads the events in a response.
#[derive(Debug)]
pub(super) struct EventReader {
    http: response::Reader,
    events: Events,
}

impl EventReader {
    fn read(&mut self, bytes: &[u8], found: &mut Found<'_>) -> Step {
        let (http, events) = (&mut self.http, &mut self.events);
        let mut is_too_long = false;
        let read = http.read_content(bytes, &mut |content| {
            let read = events.read(content, &mut |data| found.event(data));
            is_too_long |= read.is_err();
        });
        let of_head = |head: Head, step| match head {
            Head { status: 200, .. } if is_too_long => Step::Malformed,
            Head {
                status: 200,
                is_event_stream: true,
                ..
            } => step,
            Head { status: 200, .. } => Step::NoEvents,
            head => Step::Refused(head.status),
        };
        match read {
            Err(response::Malformed) => Step::Malformed,
            Ok(Read::All(head, _)) => of_head(head, Step::Ended),
            Ok(Read::Some) => self
                .http
                .head()
                .map_or(Step::Opening, |head| of_head(head, Step::Open)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a stream is after these bytes, and how many events it has had.
    fn check(bytes: &str, step: Step, events: u64) {
        let run = Run::begin();
        for size in [1, 7, bytes.len()] {
            let mut found = Found::new(&run);
            let mut reader = Reader::new(Kind::Events);
            let mut seen = 0;
            let mut last = Step::Opening;
            for piece in bytes.as_bytes().chunks(size) {
                last = reader.read(piece, &mut found);
                seen += found.events;
                if !matches!(last, Step::Opening | Step::Open) {
                    break;
                }
            }
            assert_eq!(last, step, "{bytes:?} in steps of {size}");
            if matches!(step, Step::Open | Step::Ended) {
                assert_eq!(seen, events, "{bytes:?} in steps of {size}");
            }
        }
    }

    #[test]
    fn what_comes_is_a_stream_or_is_not() {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n";
        let two = "9\r\ndata: a\n\n\r\n10\r\ndata: b\n\ndata: c\r\n3\r\n\n: \r\n";
        check(head, Step::Opening, 0);
        check(&format!("{head}\r\n"), Step::Open, 0);
        check(&format!("{head}\r\n{two}"), Step::Open, 2);
        check(&format!("{head}\r\n{two}0\r\n\r\n"), Step::Ended, 2);
        check(&format!("{head}\r\nnonsense\r\n"), Step::Malformed, 0);
        check("SSH-2.0-x\r\n", Step::Malformed, 0);
        check(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\ndata: a\n\n",
            Step::NoEvents,
            0,
        );
        check(
            "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n",
            Step::Refused(404),
            0,
        );
        check("HTTP/1.1 204 No Content\r\n\r\n", Step::Refused(204), 0);
    }

    #[test]
    fn a_stream_may_end_with_the_connection() {
        let run = Run::begin();
        let mut reader = Reader::new(Kind::Events);
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n";
        assert_eq!(reader.read(head, &mut Found::new(&run)), Step::Open);
        assert_eq!(reader.close(), Some(Step::Ended));
        let cut = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut reader = Reader::new(Kind::Events);
        assert_eq!(reader.read(cut, &mut Found::new(&run)), Step::Open);
        assert_eq!(reader.close(), None);
    }
}

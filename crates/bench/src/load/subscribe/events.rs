//! Server-sent event parser (HTML standard §9.2.6), limited to the end and the data of each event.

use memchr::memchr2;

/// Maximum size of an event, in bytes.
const LONGEST: usize = 16 * 1024 * 1024;
/// Buffer capacity retained between two events, in bytes.
const KEPT: usize = 4096;

/// Incremental parser of one event stream.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    /// Incomplete line.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// `true` if the last byte was CR; a following LF belongs to the same line end.
    is_behind_return: bool,
}

/// Event that exceeds the size limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventTooLong;

impl EventParser {
    /// Parses received bytes and passes the data of each complete event to `event`.
    ///
    /// # Errors
    ///
    /// [`EventTooLong`] if the event exceeds the size limit.
    pub(super) fn read(
        &mut self,
        mut bytes: &[u8],
        event: &mut impl FnMut(&[u8]),
    ) -> Result<(), EventTooLong> {
        if self.is_behind_return && !bytes.is_empty() {
            self.is_behind_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(at) = memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = (&bytes[..at], &bytes[at + 1..]);
            if self.line.is_empty() {
                self.take(line, event);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take(&whole, event);
            }
            bytes = match (bytes[at], rest) {
                (b'\r', [b'\n', behind @ ..]) => behind,
                (b'\r', []) => {
                    self.is_behind_return = true;
                    rest
                }
                _ => rest,
            };
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() + self.data.len() > LONGEST {
            return Err(EventTooLong);
        }
        Ok(())
    }

    /// Processes a line without its line end.
    fn take(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        if line.is_empty() {
            // An event without data is not dispatched.
            if self.has_data {
                event(&self.data);
            }
            self.has_data = false;
            self.data.clear();
            self.data.shrink_to(KEPT);
            return;
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            // A comment or another field.
            _ => return,
        };
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a stream in pieces of every size.
    fn check(stream: &str, expected: &[&str]) {
        for step in 1..=stream.len() {
            let mut events = EventParser::default();
            let mut found = Vec::new();
            for piece in stream.as_bytes().chunks(step) {
                let mut keep = |data: &[u8]| found.push(String::from_utf8_lossy(data).into_owned());
                assert_eq!(events.read(piece, &mut keep), Ok(()));
            }
            assert_eq!(found, expected, "{stream:?} in steps of {step}");
        }
    }

    #[test]
    fn events_end_with_an_empty_line() {
        check("data: a\n\n", &["a"]);
        check("data: a\n", &[]);
        check(
            "retry: 5\nid: 1\nevent: put\ndata: a\n\ndata:b\n\n",
            &["a", "b"],
        );
        check("data: a\ndata:  b\ndata\ndata:\n\n", &["a\n b\n\n"]);
    }

    #[test]
    fn lines_end_in_three_ways() {
        check("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]);
        check("data: a\r\n\n", &["a"]);
        check("data: a\r\r\ndata: b\n\n", &["a", "b"]);
    }

    #[test]
    fn an_event_without_data_is_ignored() {
        check(
            ": a comment\n\n\nevent: x\n\ndatum: y\n\ndata: z\n\n",
            &["z"],
        );
        check("data\n\n", &[""]);
    }

    #[test]
    fn an_unterminated_event_is_ignored() {
        let mut events = EventParser::default();
        let piece = vec![b'x'; 1024 * 1024];
        let refused = (0..20).any(|_| events.read(&piece, &mut |_| ()) == Err(EventTooLong));
        assert!(refused);
    }
}

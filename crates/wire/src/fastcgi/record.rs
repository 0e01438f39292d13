//! Streaming decoder of the records of an answer.

use bytes::{Buf, Bytes, BytesMut};

use super::{HEADER, REQUEST_ID, VERSION, kind};

/// Length of the content of the record that ends a request.
const END_CONTENT: usize = 8;

/// The next part of an application's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// Bytes of the response.
    Output(Bytes),
    /// Bytes for the log.
    ErrorOutput(Bytes),
    /// The request has ended.
    End,
    /// More bytes are needed.
    NeedMore,
}

/// Decoder of the answer to one request, fed by a buffer that may end anywhere.
#[derive(Clone, Debug, Default)]
pub struct RecordDecoder {
    state: State,
    /// The stream of the response has ended.
    has_output_ended: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Header,
    /// Content of one of the streams, and the padding behind it.
    Content {
        stream: Stream,
        left: usize,
        padding: usize,
    },
    /// Content of the record that ends the request.
    End {
        padding: usize,
    },
    /// Padding before the next record, or before the end.
    Padding {
        left: usize,
        ends: bool,
    },
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Output,
    ErrorOutput,
}

impl RecordDecoder {
    /// Takes the next part off the front of `buf`. After [`AnswerPart::End`] nothing more is taken.
    ///
    /// Fails with the reason if the bytes violate the protocol, or if the application refuses the request.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<AnswerPart, &'static str> {
        loop {
            match self.state {
                State::Header => {
                    let Some(header) = buf.first_chunk() else {
                        return Ok(AnswerPart::NeedMore);
                    };
                    self.state = self.begin(*header)?;
                    buf.advance(HEADER);
                }
                State::Content {
                    left: 0, padding, ..
                } => {
                    self.state = State::Padding {
                        left: padding,
                        ends: false,
                    };
                }
                State::Content { .. } if buf.is_empty() => return Ok(AnswerPart::NeedMore),
                State::Content {
                    stream,
                    left,
                    padding,
                } => {
                    let content = buf.split_to(left.min(buf.len())).freeze();
                    self.state = State::Content {
                        stream,
                        left: left - content.len(),
                        padding,
                    };
                    return Ok(match stream {
                        Stream::Output => AnswerPart::Output(content),
                        Stream::ErrorOutput => AnswerPart::ErrorOutput(content),
                    });
                }
                State::End { padding } => {
                    let Some(content) = buf.first_chunk() else {
                        return Ok(AnswerPart::NeedMore);
                    };
                    check_end(*content)?;
                    buf.advance(END_CONTENT);
                    self.state = State::Padding {
                        left: padding,
                        ends: true,
                    };
                }
                State::Padding { left: 0, ends } => {
                    self.state = if ends { State::Ended } else { State::Header };
                }
                State::Padding { .. } if buf.is_empty() => return Ok(AnswerPart::NeedMore),
                State::Padding { left, ends } => {
                    let skipped = left.min(buf.len());
                    buf.advance(skipped);
                    self.state = State::Padding {
                        left: left - skipped,
                        ends,
                    };
                }
                State::Ended => return Ok(AnswerPart::End),
            }
        }
    }

    /// Returns `true` once the request has ended.
    pub const fn is_end(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Bytes until the end of the record, for the size of the next read.
    pub const fn expected(&self) -> u64 {
        match self.state {
            State::Content { left, padding, .. } => (left + padding) as u64,
            _ => 0,
        }
    }

    fn begin(&mut self, header: [u8; HEADER]) -> Result<State, &'static str> {
        let [version, kind, id_1, id_0, length_1, length_0, padding, _] = header;
        if version != VERSION {
            return Err("not a FastCGI record");
        }
        if u16::from_be_bytes([id_1, id_0]) != REQUEST_ID {
            return Err("a FastCGI record of another request");
        }
        let left = usize::from(u16::from_be_bytes([length_1, length_0]));
        let padding = usize::from(padding);
        let stream = match kind {
            kind::STDOUT => {
                if self.has_output_ended && left > 0 {
                    return Err("FastCGI output after its end");
                }
                self.has_output_ended |= left == 0;
                Stream::Output
            }
            kind::STDERR => Stream::ErrorOutput,
            kind::END_REQUEST if left == END_CONTENT => return Ok(State::End { padding }),
            kind::END_REQUEST => return Err("a FastCGI end of another length"),
            _ => return Err("a FastCGI record of an unexpected type"),
        };
        Ok(State::Content {
            stream,
            left,
            padding,
        })
    }
}

/// Refuses the end of a request that was not processed. The exit status of the application does not matter: it has no
/// meaning in HTTP.
fn check_end(content: [u8; END_CONTENT]) -> Result<(), &'static str> {
    match content[4] {
        0 => Ok(()),
        1 => Err("the FastCGI application takes one request per connection"),
        2 => Err("the FastCGI application is overloaded"),
        3 => Err("the FastCGI application is not a responder"),
        _ => Err("an unknown FastCGI protocol status"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The end of a request that was processed.
    const END: &[u8] = b"\x01\x03\x00\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let [high, low] = (content.len() as u16).to_be_bytes();
        let header = [1, kind, 0, 1, high, low, padding, 0];
        [&header[..], content, &vec![b'p'; padding.into()]].concat()
    }

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Read {
        output: Vec<u8>,
        errors: Vec<u8>,
        has_ended: bool,
        left: Vec<u8>,
    }

    /// Decodes the bytes in pieces of `step`.
    fn read(raw: &[u8], step: usize) -> Result<Read, &'static str> {
        let (mut decoder, mut buf, mut read) =
            (RecordDecoder::default(), BytesMut::new(), Read::default());
        let mut pieces = raw.chunks(step.max(1));
        loop {
            match decoder.decode(&mut buf)? {
                AnswerPart::Output(bytes) => read.output.extend_from_slice(&bytes),
                AnswerPart::ErrorOutput(bytes) => read.errors.extend_from_slice(&bytes),
                AnswerPart::NeedMore => match pieces.next() {
                    Some(piece) => buf.extend_from_slice(piece),
                    None => return Ok(read),
                },
                AnswerPart::End => {
                    assert!(decoder.is_end());
                    read.has_ended = true;
                    read.left = buf.to_vec();
                    pieces.for_each(|piece| read.left.extend_from_slice(piece));
                    return Ok(read);
                }
            }
        }
    }

    #[test]
    fn streams_are_separated_wherever_the_bytes_are_split() {
        let raw = [
            record(6, b"ab", 6),
            record(7, b"oops", 0),
            record(6, b"", 3),
            record(7, b"", 0),
            END.to_vec(),
            b"next".to_vec(),
        ]
        .concat();
        let expected = Read {
            output: b"ab".to_vec(),
            errors: b"oops".to_vec(),
            has_ended: true,
            left: b"next".to_vec(),
        };
        for step in 1..=raw.len() {
            assert_eq!(
                read(&raw, step).as_ref(),
                Ok(&expected),
                "in pieces of {step}"
            );
        }
    }

    #[test]
    fn an_answer_without_an_end_is_incomplete() {
        let raw = [record(6, b"ab", 1), END.to_vec()].concat();
        for length in 0..raw.len() {
            assert!(!read(&raw[..length], 1).unwrap().has_ended, "{length}");
        }
    }

    #[test]
    fn violations_are_refused() {
        let end = |status: u8| record(3, &[0, 0, 0, 0, status, 0, 0, 0], 0);
        let mut old = record(6, b"a", 0);
        old[0] = 0;
        let mut foreign = record(6, b"a", 0);
        foreign[3] = 2;
        for (raw, reason) in [
            (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "not a FastCGI record"),
            (old, "not a FastCGI record"),
            (foreign, "another request"),
            (record(1, b"", 0), "unexpected type"),
            (record(5, b"", 0), "unexpected type"),
            (record(11, &[0; 8], 0), "unexpected type"),
            (
                [record(6, b"", 0), record(6, b"a", 0)].concat(),
                "after its end",
            ),
            (record(3, &[0; 7], 0), "another length"),
            (record(3, &[0; 9], 0), "another length"),
            (end(1), "one request per connection"),
            (end(2), "overloaded"),
            (end(3), "not a responder"),
            (end(4), "unknown"),
        ] {
            let refused = read(&raw, raw.len()).unwrap_err();
            assert!(refused.contains(reason), "{reason}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(raw: Vec<u8>, step in 1_usize..9) {
            prop_assert_eq!(read(&raw, step), read(&raw, raw.len()));
        }

        #[test]
        fn records_are_read_back(
            records in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(any::<u8>(), 1..300), any::<u8>()),
                0..6,
            ),
            step in 1_usize..400,
        ) {
            let (mut raw, mut expected) = (Vec::new(), Read { has_ended: true, ..Read::default() });
            for (is_output, content, padding) in &records {
                raw.extend(record(if *is_output { 6 } else { 7 }, content, *padding));
                let stream = if *is_output { &mut expected.output } else { &mut expected.errors };
                stream.extend_from_slice(content);
            }
            raw.extend_from_slice(END);
            prop_assert_eq!(read(&raw, step), Ok(expected));
        }
    }
}

//! A client of HTTP/2 that writes every frame itself. It allows the proxy no dynamic table, so each field block stands
//! alone; the tests with curl, nghttp, Python and Chromium decode them by other code.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use microcache_wire::h2::hpack::{Decoder, Scratch};

use super::WAIT_TIMEOUT;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A frame as it came.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// One connection.
pub(crate) struct Http2 {
    socket: TcpStream,
    unread: Vec<u8>,
    next: u32,
}

/// What came on one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Every field section in its order: 1xx, the head, trailers.
    pub(crate) heads: Vec<Vec<(String, String)>>,
    pub(crate) body: Vec<u8>,
    /// Why the stream was reset, if it was.
    pub(crate) reset: Option<u32>,
    pub(crate) ended: bool,
}

impl Answer {
    fn final_head(&self) -> &[(String, String)] {
        let is_final = |head: &&Vec<(String, String)>| {
            head.first()
                .is_some_and(|(name, value)| name == ":status" && !value.starts_with('1'))
        };
        self.heads.iter().find(is_final).map_or(&[], |head| head)
    }

    pub(crate) fn status(&self) -> u16 {
        self.field(":status")
            .and_then(|it| it.parse().ok())
            .unwrap_or(0)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.final_head().iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn is_hit(&self) -> bool {
        self.field("cache-status")
            .is_some_and(|it| it.contains("; hit"))
    }

    #[track_caller]
    pub(crate) fn assert_is(&self, status: u16, body: &str) {
        let seen = (self.status(), self.text());
        assert_eq!(seen, (status, body.to_owned()), "{self:?}");
        assert!(self.ended || self.reset == Some(0), "{self:?}");
    }
}

/// A frame with this payload.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A field block of literals.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            write_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn write_length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        return block.push(length as u8);
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(rest as u8 | 128);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// A request's head, of which the client has the pseudo-header fields first.
pub(crate) fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [
        (":method", method),
        (":scheme", "http"),
        (":path", target),
        (":authority", "example.com"),
    ];
    block(&[&pseudo, fields].concat())
}

impl Http2 {
    /// A connection whose streams each begin with this window.
    pub(crate) fn connect_with_window(address: SocketAddr, window: u32) -> Self {
        let mut client = Self::silent(address);
        let settings = [(1u16, 0u32), (4, window)];
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        client.send([PREFACE, &frame(SETTINGS, 0, 0, &payload)].concat());
        client
    }

    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with_window(address, 1 << 24)
    }

    /// One on which nothing was said.
    pub(crate) fn silent(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("the proxy accepts connections");
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(WAIT_TIMEOUT)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self {
            socket,
            unread: Vec::new(),
            next: 1,
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket
            .write_all(bytes.as_ref())
            .expect("the proxy takes what is sent");
    }

    /// The same, unless the proxy has had enough.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(bytes.as_ref()).is_ok()
    }

    /// A new stream's number.
    pub(crate) fn stream(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    /// Sends a request without content. Says on which stream.
    pub(crate) fn ask(&mut self, method: &str, target: &str, fields: &[(&str, &str)]) -> u32 {
        let stream = self.stream();
        let flags = END_STREAM | END_HEADERS;
        self.send(frame(HEADERS, flags, stream, &head(method, target, fields)));
        stream
    }

    /// Sends the head of a request whose content follows.
    pub(crate) fn begin(&mut self, method: &str, target: &str, fields: &[(&str, &str)]) -> u32 {
        let stream = self.stream();
        self.send(frame(
            HEADERS,
            END_HEADERS,
            stream,
            &head(method, target, fields),
        ));
        stream
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        let stream = self.ask("GET", target, &[]);
        self.answer(stream)
    }

    /// The next frame; nothing at the end.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some((header, rest)) = self.unread.split_first_chunk::<9>() {
                let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
                assert!(length <= 16_384, "longer than was allowed");
                if let Some(payload) = rest.get(..length) {
                    let number = header[5..].try_into().unwrap();
                    let frame = Frame {
                        kind: header[3],
                        flags: header[4],
                        stream: u32::from_be_bytes(number),
                        payload: payload.to_vec(),
                    };
                    self.unread.drain(..9 + length);
                    return Some(frame);
                }
            }
            let mut buffer = [0; 16_384];
            match self.socket.read(&mut buffer) {
                Ok(0) => {
                    assert!(self.unread.is_empty(), "closed within a frame");
                    return None;
                }
                Ok(length) => self.unread.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no frame: {error}"),
            }
        }
    }

    /// Reads until this stream is over, and opens windows again as content comes.
    pub(crate) fn answer(&mut self, stream: u32) -> Answer {
        self.answers(&[stream]).remove(&stream).unwrap_or_default()
    }

    /// The same of several streams.
    pub(crate) fn answers(&mut self, streams: &[u32]) -> BTreeMap<u32, Answer> {
        let mut answers: BTreeMap<u32, Answer> = BTreeMap::new();
        let is_over = |answers: &BTreeMap<u32, Answer>, stream: &u32| {
            let answer = answers.get(stream);
            answer.is_some_and(|answer| answer.ended || answer.reset.is_some())
        };
        while !streams.iter().all(|stream| is_over(&answers, stream)) {
            let frame = self
                .frame()
                .unwrap_or_else(|| panic!("closed after {answers:?}"));
            self.take(&frame, answers.entry(frame.stream).or_default());
        }
        answers
    }

    fn take(&mut self, frame: &Frame, answer: &mut Answer) {
        match frame.kind {
            HEADERS => {
                assert!(frame.flags & END_HEADERS != 0, "no head here is that long");
                answer.heads.push(fields(&frame.payload));
            }
            DATA => {
                answer.body.extend_from_slice(&frame.payload);
                if !frame.payload.is_empty() {
                    self.open(0, frame.payload.len() as u32);
                }
            }
            RESET => answer.reset = Some(code(&frame.payload)),
            GO_AWAY if code(&frame.payload[4..]) != 0 => panic!("{frame:?}"),
            _ => {}
        }
        answer.ended |= matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0;
    }

    /// Opens a window.
    pub(crate) fn open(&mut self, stream: u32, by: u32) {
        self.try_send(frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes()));
    }

    /// Reads on to a frame of this kind.
    pub(crate) fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().expect("a frame before the end");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads to the end of the connection. Says with which code the proxy has said goodbye, if it has.
    pub(crate) fn end(&mut self) -> Option<u32> {
        let mut last = None;
        while let Some(frame) = self.frame() {
            if frame.kind == GO_AWAY {
                last = Some(code(&frame.payload[4..]));
            }
        }
        last
    }
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().expect("four bytes"))
}

/// The fields of a block that refers to no earlier one: the client allows no dynamic table.
fn fields(block: &[u8]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let decoded = Decoder::default().decode(block, &mut Scratch::default(), |name, value| {
        let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(!name.contains(char::is_uppercase), "{name}");
        fields.push((name, value));
    });
    decoded.expect("a valid block");
    fields
}

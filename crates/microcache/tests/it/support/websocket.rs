//! A client of WebSocket that writes every frame itself.

use super::{Client, Proxy, request};

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
/// The last frame of a message.
pub(crate) const FIN: u8 = 0x80;

/// The key of the standard's example, and what shows that it was read.
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// What asks for one.
pub(crate) const UPGRADE: [&str; 4] = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    KEY,
];

/// A frame as a client sends it.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length @ 126..65536 => {
            bytes.push(0xfe);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0xff);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
    bytes
}

/// A frame as it came: its first byte and its payload.
pub(crate) type Frame = (u8, Vec<u8>);

/// One connection.
pub(crate) struct WebSocket(Client);

impl WebSocket {
    /// Opens one at this target.
    pub(crate) fn open(proxy: &Proxy, target: &str, fields: &[&str]) -> Self {
        Self::open_on(proxy.connect(), target, fields)
    }

    /// The same on this connection.
    pub(crate) fn open_on(mut client: Client, target: &str, fields: &[&str]) -> Self {
        client.send(request("GET", target, &[&UPGRADE, fields].concat()));
        Self::agreed(client)
    }

    /// Of a client that has asked for one.
    pub(crate) fn agreed(mut client: Client) -> Self {
        let head = client.head();
        assert_eq!(head.start, "HTTP/1.1 101 Switching Protocols", "{head:?}");
        assert_eq!(head.field("sec-websocket-accept"), Some(ACCEPT));
        assert_eq!(head.field("upgrade"), Some("websocket"));
        assert_eq!(head.field("connection"), Some("upgrade"));
        Self(client)
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.0
    }

    /// Leaves without a word.
    pub(crate) fn leave(self) -> Client {
        self.0
    }

    pub(crate) fn send(&mut self, first: u8, payload: impl AsRef<[u8]>) {
        self.0.send(frame(first, payload.as_ref()));
    }

    /// Sends a text.
    pub(crate) fn say(&mut self, text: &str) {
        self.send(FIN | TEXT, text);
    }

    /// The next frame, of which a server masks none.
    pub(crate) fn frame(&mut self) -> Frame {
        let [first, length] = self.0.bytes(2)[..] else {
            unreachable!("two bytes");
        };
        let number = |bytes: Vec<u8>| {
            let bytes = bytes.iter().map(|&byte| usize::from(byte));
            bytes.fold(0, |number, byte| number << 8 | byte)
        };
        let length = match length {
            126 => number(self.0.bytes(2)),
            127 => number(self.0.bytes(8)),
            length => usize::from(length),
        };
        (first, self.0.bytes(length))
    }

    /// The next text.
    pub(crate) fn text(&mut self) -> String {
        let mut text = Vec::new();
        let mut expected = TEXT;
        loop {
            let (first, payload) = self.frame();
            assert_eq!(first & !FIN, expected, "{first} {payload:?}");
            text.extend_from_slice(&payload);
            if first & FIN != 0 {
                return String::from_utf8(text).expect("UTF-8");
            }
            expected = 0;
        }
    }

    /// Why the server ends it, which it does with the next frame and no other word behind it.
    pub(crate) fn close_code(&mut self) -> u16 {
        let (first, payload) = self.frame();
        assert_eq!(
            first,
            FIN | CLOSE,
            "{:?}",
            String::from_utf8_lossy(&payload)
        );
        assert!(self.0.is_closed(), "something comes behind it");
        match payload[..] {
            [] => 1005,
            [high, low, ..] => u16::from_be_bytes([high, low]),
            [_] => panic!("half a code"),
        }
    }
}

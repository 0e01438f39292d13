//! A server's end of a connection with HTTP/2, frame by frame.

use super::*;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GOAWAY: u8 = 7;
const PING: u8 = 6;
const ACK: u8 = 1;
/// Of a frame of DATA or HEADERS.
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) struct Frames {
    stream: TcpStream,
}

#[derive(Debug)]
pub(super) struct Read {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frames {
    /// Accepts, and says that it speaks HTTP/2.
    pub(super) async fn accept(origin: &Origin) -> Self {
        let mut accepted = Self::silent(origin).await;
        accepted.send(SETTINGS, 0, 0, &[]).await;
        accepted
    }

    /// Accepts, and says nothing.
    pub(super) async fn silent(origin: &Origin) -> Self {
        let mut stream = origin.accept().await.stream;
        let mut preface = [0; 24];
        within(stream.read_exact(&mut preface)).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Self { stream }
    }

    /// The next frame; nothing if the proxy has closed.
    pub(super) async fn read(&mut self) -> Option<Read> {
        let mut head = [0; 9];
        within(self.stream.read_exact(&mut head)).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        within(self.stream.read_exact(&mut payload)).await.ok()?;
        Some(Read {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// The next frame of this kind.
    pub(super) async fn until(&mut self, kind: u8) -> Read {
        loop {
            let read = self.read().await.expect("it should not have closed");
            if read.kind == kind {
                return read;
            }
        }
    }

    /// The stream of the next request.
    pub(super) async fn request(&mut self) -> u32 {
        self.until(HEADERS).await.stream
    }

    /// The same. Nothing was reset before.
    pub(super) async fn request_and_no_reset(&mut self) -> u32 {
        loop {
            let read = self.read().await.expect("it should not have closed");
            assert_ne!(read.kind, RST_STREAM);
            if read.kind == HEADERS {
                return read.stream;
            }
        }
    }

    pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    pub(super) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let frame = Self::frame(kind, flags, stream, payload);
        self.write(&frame).await;
    }

    pub(super) async fn write(&mut self, frames: &[u8]) {
        within(self.stream.write_all(frames)).await.unwrap();
    }

    /// Closes without a word.
    pub(super) async fn close(&mut self) {
        within(self.stream.shutdown()).await.unwrap();
    }

    /// Waits until the proxy has taken what was sent before.
    pub(super) async fn settle(&mut self) {
        self.send(PING, 0, 0, &[0; 8]).await;
        while self.until(PING).await.flags & ACK == 0 {}
    }

    /// A whole answer.
    pub(super) async fn answer(&mut self, stream: u32, body: &str) {
        let head = block(&[(":status", "200")]);
        self.send(HEADERS, END_HEADERS, stream, &head).await;
        self.send(DATA, END_STREAM, stream, body.as_bytes()).await;
    }

    /// Returns true if the proxy sends GOAWAY and closes.
    pub(super) async fn is_left(&mut self) -> bool {
        while let Some(read) = self.read().await {
            if read.kind == HEADERS {
                return false;
            }
        }
        true
    }
}

/// A field block, with every name and value as it stands (RFC 7541 §6.2.2).
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "longer ones take more bytes to say so");
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A payload of GOAWAY: streams up to this one are answered.
pub(super) fn goaway(last: u32, code: u32) -> Vec<u8> {
    [last.to_be_bytes(), code.to_be_bytes()].concat()
}

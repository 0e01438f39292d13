//! HTTP/1 on a socket, read strictly enough to notice when a message is not what it says.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use rustls::{ClientConnection, StreamOwned};

use super::WAIT_TIMEOUT;

/// A start line and field lines. Bytes above 127 are kept as the characters of the same number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) start: String,
    pub(crate) fields: Vec<(String, String)>,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// One end of a connection, with what was received and not yet read.
pub(super) struct Wire {
    stream: Stream,
    unread: Vec<u8>,
}

/// What carries the bytes.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            // An end without a farewell is an error here.
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Head {
    /// The first field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Every field of that name, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// Names in order, as they were written.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.fields.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// What the framing fields say; the caller knows about methods and statuses.
    pub(super) fn framing(&self) -> io::Result<Option<Framing>> {
        match (
            self.all("content-length")[..].as_ref(),
            self.all("transfer-encoding")[..].as_ref(),
        ) {
            ([], []) => Ok(None),
            ([], ["chunked"]) => Ok(Some(Framing::Chunked)),
            ([length], []) => match length.parse() {
                Ok(length) => Ok(Some(Framing::Length(length))),
                Err(_) => Err(malformed(&format!("Content-Length: {length}"))),
            },
            _ => Err(malformed(&format!("ambiguous framing: {self:?}"))),
        }
    }

    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let fields = lines.map(field_line).collect::<io::Result<_>>()?;
        Ok(Self { start, fields })
    }
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
        stream.set_write_timeout(Some(WAIT_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: Stream::Plain(stream),
            unread: Vec::new(),
        })
    }

    /// The same with TLS on it.
    pub(super) fn secure(mut self, session: ClientConnection) -> Self {
        if let Stream::Plain(socket) = self.stream {
            self.stream = Stream::Tls(Box::new(StreamOwned::new(session, socket)));
        }
        self
    }

    /// The client's side of TLS.
    pub(super) fn session(&mut self) -> &mut StreamOwned<ClientConnection, TcpStream> {
        match &mut self.stream {
            Stream::Tls(stream) => stream,
            Stream::Plain(_) => panic!("TLS is not spoken here"),
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// The next head; nothing when the other side closed before its first byte.
    pub(super) fn head(&mut self) -> io::Result<Option<Head>> {
        let end = loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                break end;
            }
            if self.receive()? == 0 {
                return if self.unread.is_empty() {
                    Ok(None)
                } else {
                    Err(cut_off())
                };
            }
        };
        let head = Head::parse(&self.unread[..end])?;
        self.unread.drain(..end + 4);
        Ok(Some(head))
    }

    /// Reads a body to its end, handing over the pieces as they come; returns the trailers.
    pub(super) fn body(
        &mut self,
        framing: Framing,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<Vec<(String, String)>> {
        match framing {
            Framing::None => {}
            Framing::Length(length) => self.exactly(length, &mut take)?,
            Framing::UntilClose => loop {
                take(&std::mem::take(&mut self.unread));
                if self.receive()? == 0 {
                    break;
                }
            },
            Framing::Chunked => return self.chunks(&mut take),
        }
        Ok(Vec::new())
    }

    /// Whatever has come, at least one byte; nothing at the end.
    pub(super) fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.unread.is_empty() {
            self.receive()?;
        }
        Ok(std::mem::take(&mut self.unread))
    }

    /// The size of the next chunk, and nothing more.
    pub(super) fn chunk_size(&mut self) -> io::Result<u64> {
        let line = self.line()?;
        let size = line.split(';').next().unwrap_or_default();
        u64::from_str_radix(size, 16).map_err(|_| malformed(&format!("chunk size {line:?}")))
    }

    /// The line break after a chunk's data.
    pub(super) fn chunk_end(&mut self) -> io::Result<()> {
        if self.line()?.is_empty() {
            Ok(())
        } else {
            Err(malformed("chunk longer than its size"))
        }
    }

    pub(super) fn exactly(
        &mut self,
        mut length: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        while length > 0 {
            if self.unread.is_empty() && self.receive()? == 0 {
                return Err(cut_off());
            }
            let n = usize::try_from(length)
                .unwrap_or(usize::MAX)
                .min(self.unread.len());
            take(&self.unread[..n]);
            self.unread.drain(..n);
            length -= n as u64;
        }
        Ok(())
    }

    fn chunks(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<Vec<(String, String)>> {
        loop {
            match self.chunk_size()? {
                0 => break,
                size => self.exactly(size, take)?,
            }
            self.chunk_end()?;
        }
        let mut trailers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(trailers);
            }
            trailers.push(field_line(&line)?);
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let line = self.unread[..end]
                    .iter()
                    .map(|&byte| char::from(byte))
                    .collect();
                self.unread.drain(..end + 2);
                return Ok(line);
            }
            if self.receive()? == 0 {
                return Err(cut_off());
            }
        }
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 16_384];
        let n = self
            .stream
            .read(&mut buffer)
            .map_err(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => io::Error::new(
                    ErrorKind::TimedOut,
                    format!("nothing came for {WAIT_TIMEOUT:?}"),
                ),
                _ => error,
            })?;
        self.unread.extend_from_slice(&buffer[..n]);
        Ok(n)
    }
}

pub(super) fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("malformed: {what}"))
}

fn cut_off() -> io::Error {
    io::Error::new(
        ErrorKind::UnexpectedEof,
        "closed in the middle of a message",
    )
}

fn field_line(line: &str) -> io::Result<(String, String)> {
    match line.split_once(':') {
        Some((name, value)) => Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned())),
        None => Err(malformed(&format!("field line {line:?}"))),
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

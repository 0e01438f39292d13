//! Non-blocking socket, with or without TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum segment size on Ethernet, in bytes.
const ETHERNET: u32 = 1460;

/// Non-blocking socket, with or without TLS.
#[derive(Debug)]
pub(super) enum ClientSocket {
    Plain(TcpStream),
    Tls(Box<TlsSocket>),
}

#[derive(Debug)]
pub(super) struct TlsSocket {
    socket: TcpStream,
    session: ClientConnection,
}

/// TLS parameters of a server.
#[derive(Clone, Debug)]
pub(crate) struct TlsEndpoint {
    pub(crate) config: Arc<rustls::ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl ClientSocket {
    /// Starts a non-blocking connect.
    ///
    /// With `window`, sets the receive buffer to that many bytes and the MSS to that of Ethernet: with the
    /// large segments of the loopback interface, the kernel would buffer megabytes of unread data.
    pub(super) fn open(
        address: SocketAddr,
        tls: Option<&TlsEndpoint>,
        window: Option<usize>,
    ) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        socket.set_tcp_nodelay(true)?;
        if let Some(window) = window {
            socket.set_recv_buffer_size(window)?;
            socket.set_tcp_mss(ETHERNET)?;
        }
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let socket = TcpStream::from(socket);
        let Some(tls) = tls else {
            return Ok(Self::Plain(socket));
        };
        let session = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone())
            .map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(TlsSocket { socket, session })))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.socket,
        }
    }

    /// Returns the error of a failed connect.
    pub(super) fn take_error(&self) -> io::Result<()> {
        match self.socket().take_error()? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Continues the handshake. Returns `true` once it is complete, and at once without TLS.
    pub(super) fn handshake(&mut self) -> io::Result<bool> {
        let Self::Tls(tls) = self else {
            return Ok(true);
        };
        while tls.session.is_handshaking() {
            match tls.session.complete_io(&mut tls.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads available bytes; 0 means end of stream, [`ErrorKind::WouldBlock`] no data yet.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(tls) => {
                let read = rustls::Stream::new(&mut tls.session, &mut tls.socket).read(buffer);
                match read {
                    // Many servers omit close_notify; a truncated response is detected by its framing.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                    read => read,
                }
            }
        }
    }

    /// Returns whether a read of `read` bytes into a buffer of `room` bytes has emptied the socket, so that
    /// later data raises a new event.
    pub(super) fn is_drained(&self, read: usize, room: usize) -> bool {
        matches!(self, Self::Plain(_)) && read < room
    }

    /// Writes until the send buffer is full. Returns the number of bytes written.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => write_until_full(socket, bytes),
            Self::Tls(tls) => {
                let mut stream = rustls::Stream::new(&mut tls.session, &mut tls.socket);
                write_until_full(&mut stream, bytes)
            }
        }
    }

    /// Flushes buffered TLS records, then writes from `unsent` until the send buffer is full; the unwritten
    /// bytes stay in it.
    pub(super) fn send_on(&mut self, unsent: &mut Vec<u8>) -> io::Result<()> {
        self.flush()?;
        let sent = self.write(unsent)?;
        unsent.drain(..sent);
        Ok(())
    }

    /// Writes buffered TLS records to the socket.
    fn flush(&mut self) -> io::Result<()> {
        let Self::Tls(tls) = self else {
            return Ok(());
        };
        while tls.session.wants_write() {
            match tls.session.write_tls(&mut tls.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

fn write_until_full(out: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(n) => written += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

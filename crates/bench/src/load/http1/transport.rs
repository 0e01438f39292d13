//! A socket, with TLS on it or not. Nothing in here waits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, Socket, Type};

/// The bytes of a segment on an Ethernet.
const ETHERNET: u32 = 1460;

/// A socket, with TLS on it or not.
#[derive(Debug)]
pub(in crate::load) enum Transport {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

#[derive(Debug)]
pub(in crate::load) struct Tls {
    socket: TcpStream,
    session: ClientConnection,
}

/// What TLS needs to know about a server.
#[derive(Clone, Debug)]
pub(crate) struct TlsTo {
    pub(crate) config: Arc<rustls::ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl Transport {
    /// Begins to connect. With a `window`, the kernel is asked to keep no more than that of what comes in, and the server's to send
    /// segments as they are on an Ethernet: for those of the loopback, it would keep megabytes of what is not taken.
    pub(in crate::load) fn open(
        address: SocketAddr,
        tls: Option<&TlsTo>,
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
        Ok(Self::Tls(Box::new(Tls { socket, session })))
    }

    /// The same, and `epoll` tells by `data` what happens to it. Edge-triggered, and for everything at once: no call per
    /// request tells the kernel what to wait for.
    pub(in crate::load) fn told_to(self, epoll: impl AsFd, data: u64) -> io::Result<Self> {
        let all = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(epoll, &self, EventData::new_u64(data), all)?;
        Ok(self)
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.socket,
        }
    }

    /// Why connecting failed, if it did.
    pub(in crate::load) fn take_error(&self) -> io::Result<()> {
        match self.socket().take_error()? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Goes on with the handshake; `true` when it is done, or when there is none.
    pub(in crate::load) fn shake_hands(&mut self) -> io::Result<bool> {
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

    /// Reads what is there; zero is the end, and [`ErrorKind::WouldBlock`] means that nothing is there.
    pub(in crate::load) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(tls) => {
                let read = rustls::Stream::new(&mut tls.session, &mut tls.socket).read(buffer);
                match read {
                    // Many servers close without a word; an answer that lacks something is noticed by its framing.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                    read => read,
                }
            }
        }
    }

    /// Whether a read of so many bytes into so much room has left nothing behind. The next bytes then raise a new event.
    pub(in crate::load) fn is_drained(&self, read: usize, room: usize) -> bool {
        matches!(self, Self::Plain(_)) && read < room
    }

    /// Writes as much as there is room for.
    pub(in crate::load) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => write_all_there_is_room_for(socket, bytes),
            Self::Tls(tls) => {
                let mut stream = rustls::Stream::new(&mut tls.session, &mut tls.socket);
                write_all_there_is_room_for(&mut stream, bytes)
            }
        }
    }

    /// Writes of these bytes, and of what TLS has kept back, as much as there is room for, and leaves the rest of them.
    pub(in crate::load) fn send_on(&mut self, unsent: &mut Vec<u8>) -> io::Result<()> {
        self.flush()?;
        let sent = self.write(unsent)?;
        unsent.drain(..sent);
        Ok(())
    }

    /// Sends what TLS has kept back for want of room.
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

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

fn write_all_there_is_room_for(out: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
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

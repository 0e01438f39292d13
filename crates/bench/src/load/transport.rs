//! Connection of an event loop, from connecting to closing.

use std::io::ErrorKind;

use rustix::event::epoll::{Event, EventFlags};

use super::outcome::RequestFault;
use super::plan::ServerEndpoint;
use super::reactor::Reactor;
use super::socket::ClientSocket;

/// Connection of an event loop, open or not.
#[derive(Debug)]
pub(super) struct Transport {
    /// Index of the connection, and above it the number of its socket: an event of an earlier one is ignored.
    id: u64,
    socket: Option<ClientSocket>,
    phase: TransportPhase,
    /// `true` once the server has closed its side.
    is_ending: bool,
    /// `true` if the socket is empty until its next event.
    is_drained: bool,
    /// Bytes that did not fit into the socket's send buffer.
    unsent: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportPhase {
    Connecting,
    /// TLS handshake in progress.
    Handshaking,
    Open,
}

/// Consequence of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransportStep {
    /// None yet.
    Pending,
    /// The connection is open now.
    Opened,
    /// The connection may be read.
    Readable,
}

/// Bits of an id that are the index.
const INDEX_BITS: u32 = 32;

impl Transport {
    pub(super) const fn new(index: usize) -> Self {
        Self {
            id: index as u64,
            socket: None,
            phase: TransportPhase::Connecting,
            is_ending: false,
            is_drained: false,
            unsent: Vec::new(),
        }
    }

    /// Index of the connection that an event is for.
    pub(super) fn index_of(event: Event) -> usize {
        event.data.u64() as u32 as usize
    }

    /// Starts a connect, on a new socket. For `window`, see [`ClientSocket::open`].
    pub(super) fn open(
        &mut self,
        reactor: &Reactor,
        to: &ServerEndpoint,
        window: Option<usize>,
    ) -> Result<(), RequestFault> {
        self.close();
        let opened = ClientSocket::open(to.address, to.tls.as_ref(), window)
            .and_then(|socket| reactor.watch(&socket, self.id).map(|()| socket));
        self.socket = Some(opened.map_err(|error| RequestFault::of_connect(&error))?);
        Ok(())
    }

    pub(super) fn close(&mut self) {
        *self = Self {
            id: self.id.wrapping_add(1 << INDEX_BITS),
            ..Self::new(0)
        };
    }

    pub(super) const fn is_open(&self) -> bool {
        self.socket.is_some() && matches!(self.phase, TransportPhase::Open)
    }

    /// Returns whether the server has closed its side.
    pub(super) const fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Returns whether another request may follow: nothing is unsent, and the server has not closed its side.
    pub(super) const fn is_reusable(&self) -> bool {
        !self.is_ending && self.unsent.is_empty()
    }

    /// Connects or sends on.
    pub(super) fn on_event(&mut self, event: Event) -> Result<TransportStep, RequestFault> {
        let (id, flags) = (event.data.u64(), event.flags);
        let Some(socket) = self.socket.as_mut().filter(|_| id == self.id) else {
            return Ok(TransportStep::Pending);
        };
        self.is_ending |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.is_drained = false;
        let is_writable = flags.contains(EventFlags::OUT);
        if self.phase == TransportPhase::Connecting {
            let error = socket.take_error();
            error.map_err(|error| RequestFault::of_connect(&error))?;
            if !is_writable {
                return Ok(TransportStep::Pending);
            }
            self.phase = TransportPhase::Handshaking;
        }
        if self.phase == TransportPhase::Handshaking {
            if !socket.handshake().map_err(|_| RequestFault::Tls)? {
                return Ok(TransportStep::Pending);
            }
            self.phase = TransportPhase::Open;
            return Ok(TransportStep::Opened);
        }
        if is_writable {
            socket.send_on(&mut self.unsent)?;
        }
        Ok(TransportStep::Readable)
    }

    /// Sends `bytes` behind those that are unsent; what does not fit is sent by [`on_event`](Self::on_event).
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), RequestFault> {
        let mut sent = 0;
        if let Some(socket) = self.socket.as_mut().filter(|_| self.unsent.is_empty()) {
            sent = socket.write(bytes)?;
        }
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Reads into `buffer`; returns nothing at the end of the stream, `None` if no data is there yet.
    pub(super) fn read<'b>(
        &mut self,
        buffer: &'b mut [u8],
    ) -> Result<Option<&'b [u8]>, RequestFault> {
        let Some(socket) = self.socket.as_mut().filter(|_| !self.is_drained) else {
            return Ok(None);
        };
        loop {
            match socket.read(buffer) {
                Ok(read) => {
                    // Edge-triggered: the end of the stream raises no second event, so it must be read now.
                    self.is_drained = !self.is_ending && socket.is_drained(read, buffer.len());
                    return Ok(Some(&buffer[..read]));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Raises no events from now on, except for the end of the connection.
    pub(super) fn stall(&self, reactor: &Reactor) -> Result<(), RequestFault> {
        if let Some(socket) = &self.socket {
            reactor.watch_end(socket, self.id)?;
        }
        Ok(())
    }
}

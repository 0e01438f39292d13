//! The place of one connection, which several lanes share.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use super::Thread;
use super::counted::{Counted, Stream};
use crate::load::outcome::Fault;

/// Of one stream, and of the connection: enough for a body to flow without waiting for leave.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 24;

/// The place of one connection.
pub(super) struct Slot {
    /// The connection to each endpoint.
    open: Mutex<Vec<Option<SendRequest<Bytes>>>>,
    bytes: Rc<Cell<usize>>,
}

impl Slot {
    pub(super) fn new(thread: &Thread) -> Self {
        Self {
            open: Mutex::new(vec![None; thread.plan.endpoints.len()]),
            bytes: Rc::clone(&thread.bytes),
        }
    }

    /// The connection to an endpoint, which is opened if there is none that can be used. Lanes that come meanwhile wait.
    pub(super) async fn connection(
        &self,
        thread: &Thread,
        endpoint: usize,
        start: Instant,
    ) -> Result<SendRequest<Bytes>, Fault> {
        let mut open = self.open.lock().await;
        if let Some(known) = open[endpoint].take()
            && let Ok(ready) = known.ready().await
        {
            open[endpoint] = Some(ready.clone());
            return Ok(ready);
        }
        let begun = Instant::now();
        let opened = self.connect(thread, endpoint).await?;
        let mut recorder = thread.recorder.borrow_mut();
        recorder.connected(start, begun.elapsed());
        open[endpoint] = Some(opened.clone());
        Ok(opened)
    }

    async fn connect(&self, thread: &Thread, endpoint: usize) -> Result<SendRequest<Bytes>, Fault> {
        let to = &thread.plan.endpoints[endpoint];
        let socket = TcpStream::connect(to.address)
            .await
            .map_err(|why| connect_fault(&why))?;
        socket.set_nodelay(true).map_err(|_| Fault::Connect)?;
        let stream = match &to.tls {
            None => Stream::Plain(socket),
            Some(tls) => {
                let connector = TlsConnector::from(tls.config.clone());
                let stream = connector.connect(tls.name.clone(), socket).await;
                Stream::Tls(Box::new(stream.map_err(|_| Fault::Tls)?))
            }
        };
        let counted = Counted {
            stream,
            bytes: Rc::clone(&self.bytes),
        };
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .enable_push(false)
            .handshake::<_, Bytes>(counted)
            .await
            .map_err(|why| fault(&why))?;
        // What goes wrong on the connection is told to every request that is on it.
        tokio::task::spawn_local(async move { drop(connection.await) });
        send.ready().await.map_err(|why| fault(&why))
    }
}

fn connect_fault(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Fault::Refused,
        _ => Fault::Connect,
    }
}

/// Why HTTP/2 gave no answer.
pub(super) fn fault(error: &h2::Error) -> Fault {
    if let Some(error) = error.get_io() {
        return match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Fault::Reset,
            _ => Fault::ClosedEarly,
        };
    }
    if error.is_remote() {
        return if error.is_go_away() {
            Fault::ClosedEarly
        } else {
            Fault::Reset
        };
    }
    Fault::Malformed
}

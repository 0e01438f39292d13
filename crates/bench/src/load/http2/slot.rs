//! Connection slot, shared by the lanes that multiplex requests on it.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use super::context::ThreadContext;
use super::counting_stream::{ClientStream, CountingStream};
use crate::load::outcome::RequestFault;

/// Flow-control window of a stream and of the connection, in bytes: large enough that no response stalls on
/// `WINDOW_UPDATE`.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 24;

/// Connection slot.
pub(super) struct ConnectionSlot {
    /// Current connection to each endpoint.
    open: Mutex<Vec<Option<SendRequest<Bytes>>>>,
    bytes: Rc<Cell<usize>>,
}

impl ConnectionSlot {
    pub(super) fn new(thread: &ThreadContext) -> Self {
        Self {
            open: Mutex::new(vec![None; thread.plan.endpoints.len()]),
            bytes: Rc::clone(&thread.bytes),
        }
    }

    /// Returns a usable connection to `endpoint`, connecting first if there is none. Other lanes of the slot
    /// wait meanwhile.
    pub(super) async fn connection(
        &self,
        thread: &ThreadContext,
        endpoint: usize,
        start: Instant,
    ) -> Result<SendRequest<Bytes>, RequestFault> {
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

    async fn connect(
        &self,
        thread: &ThreadContext,
        endpoint: usize,
    ) -> Result<SendRequest<Bytes>, RequestFault> {
        let to = &thread.plan.endpoints[endpoint];
        let socket = TcpStream::connect(to.address)
            .await
            .map_err(|why| RequestFault::of_connect(&why))?;
        socket
            .set_nodelay(true)
            .map_err(|_| RequestFault::Connect)?;
        let stream = match &to.tls {
            None => ClientStream::Plain(socket),
            Some(tls) => {
                let connector = TlsConnector::from(tls.config.clone());
                let stream = connector.connect(tls.name.clone(), socket).await;
                ClientStream::Tls(Box::new(stream.map_err(|_| RequestFault::Tls)?))
            }
        };
        let counted = CountingStream {
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
        // Connection errors are reported by each request on the connection.
        tokio::task::spawn_local(async move { drop(connection.await) });
        send.ready().await.map_err(|why| fault(&why))
    }
}

/// Maps an HTTP/2 error to a fault.
pub(super) fn fault(error: &h2::Error) -> RequestFault {
    if let Some(error) = error.get_io() {
        return match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => RequestFault::Reset,
            _ => RequestFault::ClosedEarly,
        };
    }
    if error.is_remote() {
        return if error.is_go_away() {
            RequestFault::ClosedEarly
        } else {
            RequestFault::Reset
        };
    }
    RequestFault::Malformed
}

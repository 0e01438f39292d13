//! Reads the PROXY header off a socket, without consuming bytes behind it.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use microcache_wire::proxy_protocol::{self, BadProxyHeader, LONGEST, ProxySource};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::plain::PlainSocket;
use crate::session::Caller;

/// Reasons for a missing client address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyHeaderError {
    /// The connection does not begin with a valid header.
    #[error("{0}")]
    Malformed(#[from] BadProxyHeader),
    /// The header did not arrive in time.
    #[error("timed out (client_head_timeout)")]
    Late,
    /// The connection failed or was closed.
    #[error("{0}")]
    Gone(#[from] io::Error),
}

/// Reads the header that the proxy at this address sends, and returns its client.
pub(crate) async fn read_proxy_header(
    socket: &mut PlainSocket,
    proxy: IpAddr,
    time_limit: Duration,
) -> Result<Caller, ProxyHeaderError> {
    let read = timeout(time_limit, read(socket.watched()?)).await;
    Ok(match read.map_err(|_| ProxyHeaderError::Late)?? {
        ProxySource::Client(address) => Caller::through(proxy, Some(address)),
        ProxySource::Unknown => Caller::through(proxy, None),
        ProxySource::Proxy => Caller::at(proxy),
    })
}

/// Bytes are peeked at, and consumed only once they are known to belong to the header.
async fn read(socket: &mut TcpStream) -> Result<ProxySource, ProxyHeaderError> {
    let mut header = vec![0; LONGEST];
    let mut taken = 0;
    loop {
        let seen = socket.peek(&mut header[taken..]).await?;
        if seen == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let found = proxy_protocol::read(&header[..taken + seen])?;
        let end = found.map_or(taken + seen, |(_, length)| length);
        let own = header.get_mut(taken..end).unwrap_or_default();
        socket.read_exact(own).await?;
        if let Some((source, _)) = found {
            return Ok(source);
        }
        taken = end;
    }
}

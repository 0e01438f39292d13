//! What a proxy that passes bytes on says first: read off a socket, and nothing of what is behind it.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::proxy_protocol::{self, LONGEST, Malformed, Source};
use crate::session::Caller;

/// Why nobody knows whose a connection is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotIntroduced {
    /// It begins with something else.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// It does not begin.
    #[error("nothing came in time (client_head_timeout)")]
    Late,
    /// It is over.
    #[error("{0}")]
    Gone(#[from] io::Error),
}

/// Whom a proxy at this address has connected for.
pub(crate) async fn introduced(
    socket: &mut TcpStream,
    proxy: IpAddr,
    patience: Duration,
) -> Result<Caller, NotIntroduced> {
    let read = timeout(patience, read(socket)).await;
    Ok(match read.map_err(|_| NotIntroduced::Late)?? {
        Source::Client(address) => Caller::through(proxy, Some(address)),
        Source::Unknown => Caller::through(proxy, None),
        Source::Proxy => Caller::at(proxy),
    })
}

/// Bytes are looked at where they wait, and taken from there once it is known that they belong to the header.
async fn read(socket: &mut TcpStream) -> Result<Source, NotIntroduced> {
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

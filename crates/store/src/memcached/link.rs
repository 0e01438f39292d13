//! Connections to servers.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, split};
use tokio::net::TcpStream;

use crate::tier::BoxFuture;

/// Reading half of a connection.
pub(super) type LinkReader = Box<dyn AsyncRead + Send + Unpin>;
/// Writing half of a connection.
pub(super) type LinkWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens a simulated connection to a host and port.
pub type SimulatedConnect =
    dyn Fn(&str, u16) -> BoxFuture<'static, io::Result<DuplexStream>> + Send + Sync;

/// Network between this process and the servers.
#[derive(Clone, Default)]
pub enum ServerLink {
    /// TCP.
    #[default]
    Tcp,
    /// Network of a simulation.
    Simulated(Arc<SimulatedConnect>),
}

impl ServerLink {
    /// Connects to a server, resolving its name each time.
    pub(super) async fn connect(
        &self,
        host: &str,
        port: u16,
    ) -> io::Result<(LinkReader, LinkWriter)> {
        match self {
            Self::Tcp => {
                let stream = TcpStream::connect((host, port)).await?;
                stream.set_nodelay(true)?;
                let (reader, writer) = stream.into_split();
                Ok((Box::new(reader), Box::new(writer)))
            }
            Self::Simulated(connect) => {
                let (reader, writer) = split(connect(host, port).await?);
                Ok((Box::new(reader), Box::new(writer)))
            }
        }
    }
}

impl fmt::Debug for ServerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "Tcp",
            Self::Simulated(_) => "Simulated",
        })
    }
}

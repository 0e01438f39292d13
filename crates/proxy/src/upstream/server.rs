//! One server of a group, and how connections to it are opened.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use microcache_engine::origin::OriginError;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::connection::OriginConnection;
use super::endpoint::OriginEndpoint;
use super::fastcgi::server::FastCgiServer;
use super::http2::{self, ConnectionRequirements, Http2Connections, StreamSlot};
use super::pool::Pool;
use super::server_address::ServerAddress;
use super::settings::{GroupSettings, OriginProtocol, ServerSettings};
use super::transport::OriginTransport;
use super::unix_socket;
use crate::observe::Notices;
use crate::tls::OriginTls;

/// One server of a group.
#[derive(Debug)]
pub(super) struct OriginServer {
    pub(super) settings: ServerSettings,
    pub(super) endpoint: OriginEndpoint,
    /// `Host` sent to the server, if it is not the client's.
    pub(super) host: Option<String>,
    tls: Option<ServerTls>,
    /// Idle connections of HTTP/1 or FastCGI.
    pub(super) idle: Pool,
    /// HTTP/2 connections, if enabled.
    pub(super) http2: Option<Http2Connections>,
    /// Scripts and log, if it speaks FastCGI.
    pub(super) fastcgi: Option<FastCgiServer>,
}

/// TLS client configuration for a server.
#[derive(Debug)]
struct ServerTls {
    /// Offers HTTP/1 only (ALPN).
    http1: Arc<ClientConfig>,
    /// Offers HTTP/2 as well.
    any: Arc<ClientConfig>,
    /// Expected name of the server's certificate.
    name: ServerName<'static>,
}

/// A new connection, by the negotiated protocol.
pub(super) enum NewConnection {
    Http1(OriginConnection),
    Http2(Arc<http2::Http2Connection>),
}

/// A connection or stream for a request to a server with HTTP/2 enabled.
pub(super) enum RequestChannel {
    /// The server negotiated HTTP/1.
    Http1(OriginConnection),
    Http2(StreamSlot),
}

/// Failure to get a response from a server.
pub(super) struct ServerFailure {
    pub(super) error: OriginError,
    /// Another request failed to open a connection that this one waited for.
    pub(super) is_shared: bool,
}

impl From<OriginError> for ServerFailure {
    fn from(error: OriginError) -> Self {
        Self {
            error,
            is_shared: false,
        }
    }
}

impl OriginServer {
    /// A server of a group with these settings.
    pub(super) fn new(group: &GroupSettings, server: &ServerSettings, notices: &Notices) -> Self {
        let is_fastcgi = server.protocol == OriginProtocol::FastCgi;
        Self {
            settings: server.clone(),
            endpoint: OriginEndpoint::at(&server.address),
            host: group.host.clone(),
            tls: ServerTls::with(&group.tls, server),
            idle: Pool::new(group.max_idle, group.idle_timeout),
            http2: (group.http2 && !is_fastcgi)
                .then(|| Http2Connections::new(group, server, notices.clone())),
            fastcgi: is_fastcgi.then(|| FastCgiServer::new(&group.php, &server.address, notices)),
        }
    }

    /// Number of idle connections.
    pub(super) fn unused(&self) -> usize {
        self.idle.len() + self.http2.as_ref().map_or(0, Http2Connections::idle)
    }

    /// Opens an HTTP/1 connection within `limit`.
    pub(super) async fn connect(&self, limit: Duration) -> Result<OriginConnection, OriginError> {
        let deadline = Instant::now() + limit;
        let transport = self.reach(false, limit, deadline).await?;
        Ok(OriginConnection::new(transport))
    }

    /// Opens a connection, with HTTP/2 if it is enabled: negotiated by ALPN with TLS, and by prior knowledge
    /// without (RFC 9113 §3.3).
    pub(super) async fn open(&self, limit: Duration) -> Result<NewConnection, OriginError> {
        let deadline = Instant::now() + limit;
        let is_wanted = self.http2.is_some();
        let transport = self.reach(is_wanted, limit, deadline).await?;
        if !is_wanted || transport.has_declined_http2() {
            return Ok(NewConnection::Http1(OriginConnection::new(transport)));
        }
        match timeout_at(deadline, http2::Http2Connection::open(transport)).await {
            Ok(Ok(connection)) => Ok(NewConnection::Http2(connection)),
            Ok(Err(error)) => Err(unreached(format!("no HTTP/2 session: {error}"))),
            Err(_) => Err(late(limit)),
        }
    }

    /// Reserves a stream on an HTTP/2 connection. If none has room, one request opens another connection and
    /// the others wait for it: they get streams on it, or fail with it.
    pub(super) async fn acquire(
        &self,
        http2: &Http2Connections,
        wanted: &ConnectionRequirements,
        limit: Duration,
    ) -> Result<RequestChannel, ServerFailure> {
        let began = Instant::now();
        let bundle = http2.bundle();
        if let Some(slot) = bundle.take(wanted).await {
            return Ok(RequestChannel::Http2(slot));
        }
        if !http2.are_worth_waiting_for() {
            return Ok(http2.taken_up(self.open(limit).await?)?);
        }
        let shared = |error| ServerFailure {
            error,
            is_shared: true,
        };
        let opening = timeout_at(began + limit, bundle.opening()).await;
        let mut opening = opening.map_err(|_| shared(late(limit)))?;
        if let Some(slot) = bundle.take(wanted).await {
            return Ok(RequestChannel::Http2(slot));
        }
        if let Some(error) = opening.failed_since(began) {
            return Err(shared(error));
        }
        if !http2.are_worth_waiting_for() {
            drop(opening);
            return Ok(http2.taken_up(self.open(limit).await?)?);
        }
        let opened = self.open(limit).await;
        let way = opened.and_then(|opened| http2.taken_up(opened));
        if let Err(error) = &way {
            opening.has_failed(error);
        }
        Ok(way?)
    }

    async fn reach(
        &self,
        offers_http2: bool,
        limit: Duration,
        deadline: Instant,
    ) -> Result<OriginTransport, OriginError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => late(limit),
            _ => unreached(error.to_string()),
        };
        let socket = match &self.endpoint {
            OriginEndpoint::Host(addresses) => addresses.connect(limit).await.map_err(failed)?,
            OriginEndpoint::Socket(path) => {
                // Boxed: its refusals are long, and must not enlarge the future of other connections.
                let socket = Box::pin(unix_socket::connect(path, limit)).await;
                return Ok(OriginTransport::Unix(socket.map_err(failed)?));
            }
        };
        if self.settings.protocol != OriginProtocol::Https {
            return Ok(OriginTransport::Plain(socket));
        }
        let Some(tls) = &self.tls else {
            return Err(unreached("TLS is not set up".to_owned()));
        };
        let config = if offers_http2 { &tls.any } else { &tls.http1 };
        let connector = TlsConnector::from(Arc::clone(config));
        match timeout_at(deadline, connector.connect(tls.name.clone(), socket)).await {
            Ok(Ok(session)) => Ok(OriginTransport::Tls(Box::new(session))),
            Ok(Err(error)) => Err(unreached(format!("no TLS session: {error}"))),
            Err(_) => Err(late(limit)),
        }
    }
}

impl ServerTls {
    fn with(tls: &OriginTls, server: &ServerSettings) -> Option<Self> {
        let is_wanted = server.protocol == OriginProtocol::Https;
        let ready = tls.ready.as_ref().filter(|_| is_wanted)?;
        let name = match (&tls.name, &server.address) {
            (Some(name), _) => name.clone(),
            (None, ServerAddress::Tcp { host, .. }) => host.clone(),
            (None, ServerAddress::Unix(_)) => return None,
        };
        Some(Self {
            http1: Arc::clone(&ready.config),
            any: Arc::new(ready.offering_http2()),
            name: ServerName::try_from(name).ok()?,
        })
    }
}

fn unreached(why: String) -> OriginError {
    OriginError::Connect(why.into())
}

fn late(limit: Duration) -> OriginError {
    unreached(format!("no answer within {limit:?}"))
}

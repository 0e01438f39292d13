//! Server addresses, and connecting to them.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError, TlsCertificates,
};
use tokio::time::timeout;

use super::settings::RedisSettings;
use crate::reconnection::AttemptFailure;

/// Reasons why the tier cannot start: invalid settings or a rejected connection, but never an unreachable
/// server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisStartError {
    /// Invalid URL.
    #[error("{url}: {why}")]
    Url {
        /// URL without user and password.
        url: String,
        /// Cause.
        why: String,
    },
    /// Wrong number of URLs: exactly one without a cluster.
    #[error("exactly one URL is required without a cluster, found {0}")]
    Addresses(usize),
    /// No host can be resolved.
    #[error("cannot resolve {host}: {why}")]
    Unresolvable {
        /// Host name.
        host: String,
        /// Error of the resolver.
        why: String,
    },
    /// The server responds, but cannot be used.
    #[error("{address}: {why}")]
    Refused {
        /// Host and port.
        address: String,
        /// Cause.
        why: String,
    },
    /// The runtime has been shut down.
    #[error("the runtime has been shut down")]
    Ended,
}

/// Reasons why a server is out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectError {
    /// No server listens: connecting is retried soon.
    Refused(String),
    /// Transient: connecting is retried.
    Unreachable(String),
    /// Permanent: requires a change of configuration.
    Rejected(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Unreachable(why) | Self::Rejected(why) => f.write_str(why),
        }
    }
}

impl ConnectError {
    /// Classifies an error of connecting.
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::AuthenticationFailed => {
                Self::Rejected("invalid username or password".to_owned())
            }
            ErrorKind::Parse => Self::Rejected("not a Redis server".to_owned()),
            ErrorKind::Io if is_tls(error) => Self::Rejected(format!("TLS: {}", one_line(error))),
            ErrorKind::Io if error.is_connection_refusal() => Self::Refused(one_line(error)),
            ErrorKind::Io => Self::Unreachable(one_line(error)),
            // The server is starting, isolated from its cluster, or has too many clients.
            _ if error.code().is_some_and(|code| TRANSIENT.contains(&code))
                || one_line(error).contains("max number of clients") =>
            {
                Self::Unreachable(one_line(error))
            }
            _ if error.code() == Some("NOAUTH") => Self::Rejected("password required".to_owned()),
            _ => Self::Rejected(one_line(error)),
        }
    }

    pub(super) fn late() -> Self {
        Self::Unreachable("response timeout".to_owned())
    }

    /// Returns what a failed attempt to connect says about the next one.
    pub(super) const fn as_failure(&self) -> AttemptFailure {
        match self {
            Self::Refused(_) => AttemptFailure::Refused,
            Self::Unreachable(_) => AttemptFailure::Unusable,
            Self::Rejected(_) => AttemptFailure::Rejected,
        }
    }
}

const TRANSIENT: [&str; 5] = ["LOADING", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "TRYAGAIN"];

/// The library has no error kind for TLS failures, and wraps the cause in an `Arc`.
fn is_tls(error: &RedisError) -> bool {
    let cause = error.source();
    let cause = cause.and_then(|cause| cause.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidData)
}

/// Formats an error as a single line of bounded length.
pub(super) fn one_line(error: &RedisError) -> String {
    const MOST: usize = 200;
    let text = error.to_string();
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST)
        .collect()
}

/// Address of a server, with credentials.
#[derive(Clone)]
pub(super) struct RedisAddress {
    info: ConnectionInfo,
    /// User and password for connections from now on, common to all servers found by way of this one.
    login: Arc<RwLock<RedisConnectionInfo>>,
}

impl RedisAddress {
    pub(super) fn parse(url: &str, settings: &RedisSettings) -> Result<Self, String> {
        const FORMS: &str = "expected redis://user:password@host:port/database, \
                             rediss://…, redis-sentinel://… or unix:///path";
        if redis::parse_redis_url(url).is_none() {
            return Err(FORMS.to_owned());
        }
        let explain = |error: RedisError| one_line(&error);
        let mut info = url.into_connection_info().map_err(explain)?;
        let user = info.redis_settings().clone();
        if user.username().is_some() && user.password().is_none() {
            return Err("the user has no password".to_owned());
        }
        if settings.cluster && user.db() != 0 {
            return Err("a cluster does not support database numbers".to_owned());
        }
        if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err("#insecure is not supported".to_owned());
        }
        let secured = settings.authorities.is_some() || settings.certificate.is_some();
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            let client = Client::build_with_tls(info, certificates(settings)).map_err(explain)?;
            info = client.get_connection_info().clone();
        } else if secured {
            return Err("certificates require rediss://".to_owned());
        }
        let user = user
            .set_protocol(ProtocolVersion::RESP2)
            .set_skip_set_lib_name();
        let tcp = TcpSettings::default().set_nodelay(true);
        let login = Arc::new(RwLock::new(user.clone()));
        let info = info.set_redis_settings(user).set_tcp_settings(tcp);
        Ok(Self { info, login })
    }

    /// Returns the address of another server of the same cluster, or with the same sentinels.
    pub(super) fn of_peer(&self, host: String, port: u16) -> Self {
        let mut addr = self.info.addr().clone();
        match &mut addr {
            ConnectionAddr::TcpTls {
                host: to, port: at, ..
            } => (*to, *at) = (host, port),
            _ => addr = ConnectionAddr::Tcp(host, port),
        }
        Self {
            info: self.info.clone().set_addr(addr),
            login: Arc::clone(&self.login),
        }
    }

    /// Host and port, or the path of a socket.
    pub(super) fn name(&self) -> String {
        self.info.addr().to_string()
    }

    /// Host and port, unless it is a socket.
    pub(super) fn host(&self) -> Option<(&str, u16)> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host, *port))
            }
            _ => None,
        }
    }

    /// Uses the user and password of another address of the same server for connections from now on.
    pub(super) fn log_in_as(&self, other: &Self) {
        *self.login.write() = other.login.read().clone();
    }

    fn client(&self) -> Result<Client, RedisError> {
        let login = self.login.read().clone();
        Client::open(self.info.clone().set_redis_settings(login))
    }

    pub(super) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// Opens a connection for the messages of these channels.
    pub(super) async fn subscribe(
        &self,
        channels: &[&String],
    ) -> Result<(PubSubSink, PubSubStream), RedisError> {
        let mut connection = self.client()?.get_async_pubsub().await?;
        connection.subscribe(channels).await?;
        Ok(connection.split())
    }

    /// Checks that the host can be resolved.
    pub(super) async fn resolve(&self) -> Result<(), RedisStartError> {
        let Some((host, port)) = self.host() else {
            return Ok(());
        };
        let found = tokio::net::lookup_host((host, port)).await;
        found
            .map(drop)
            .map_err(|error| RedisStartError::Unresolvable {
                host: host.to_owned(),
                why: error.to_string(),
            })
    }

    /// Opens a connection and checks that the server responds.
    pub(super) async fn open(
        &self,
        settings: &RedisSettings,
    ) -> Result<MultiplexedConnection, ConnectError> {
        let connect = async {
            let client = self.client()?;
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None)
                .set_pipeline_buffer_size(settings.max_in_flight);
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connection.await?;
            match redis::cmd("PING").exec_async(&mut connection).await {
                // MISCONF: the server cannot write to its disk, but reads succeed.
                Err(error) if error.code() != Some("MISCONF") => Err(error),
                _ => Ok(connection),
            }
        };
        match timeout(settings.connect_deadline, connect).await {
            Ok(connected) => connected.map_err(|error| ConnectError::of(&error)),
            Err(_) => Err(ConnectError::late()),
        }
    }
}

fn certificates(settings: &RedisSettings) -> TlsCertificates {
    let client_tls = settings
        .certificate
        .as_ref()
        .map(|certificate| ClientTlsConfig {
            client_cert: certificate.chain.clone(),
            client_key: certificate.key.clone(),
        });
    TlsCertificates {
        client_tls,
        root_cert: settings.authorities.clone(),
    }
}

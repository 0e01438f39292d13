//! Accepted connections, before the PROXY header and the limits per address are applied.

use std::net::IpAddr;
use std::sync::Arc;

use microcache_policy::{Network, Scheme, Time};

use crate::admission::{Activity, ConnectionPermit, ThreadConnections};
use crate::connection::{
    ClientTransport, Connection, PlainSocket, ProxyHeaderError, read_proxy_header,
};
use crate::metrics::Refusal;
use crate::session::{Caller, Session};
use crate::shared::Shared;

/// Starts serving an accepted connection.
pub(super) fn serve(
    stream: PlainSocket,
    (peer, scheme): (IpAddr, Scheme),
    permit: ConnectionPermit,
    shared: &Arc<Shared>,
    connections: &Arc<ThreadConnections>,
) {
    let now = shared.engine.clock.now();
    let activity = Arc::new(Activity::new(now, Network::of(peer)));
    let known = Arc::clone(&activity);
    let accepted = AcceptedConnection {
        stream,
        scheme,
        activity,
        permit,
    };
    if shared.expects_proxy_header(peer) {
        let shared = Arc::clone(shared);
        connections.spawn(known, async move {
            if let Some(connection) = Box::pin(accepted.behind_proxy(peer, shared)).await {
                connection.serve().await;
            }
        });
    } else if let Some(connection) = accepted.connection(Caller::at(peer), shared, now) {
        connections.spawn(known, connection.serve());
    }
}

/// Starts serving a connection that may have to wait for its permit, after the listener has stopped.
pub(super) fn serve_late(
    stream: PlainSocket,
    (peer, scheme): (IpAddr, Scheme),
    shared: &Arc<Shared>,
    connections: &Arc<ThreadConnections>,
) {
    let activity = Arc::new(Activity::awaiting_permit(Network::of(peer)));
    let (shared, known) = (Arc::clone(shared), Arc::clone(&activity));
    connections.spawn(known, async move {
        let clock = shared.engine.clock;
        let Some(permit) = shared.connection_limits.admit(&clock).await else {
            return;
        };
        let now = clock.now();
        activity.admitted(now);
        let accepted = AcceptedConnection {
            stream,
            scheme,
            activity,
            permit,
        };
        let connection = if shared.expects_proxy_header(peer) {
            Box::pin(accepted.behind_proxy(peer, shared)).await
        } else {
            accepted.connection(Caller::at(peer), &shared, now)
        };
        if let Some(connection) = connection {
            connection.serve().await;
        }
    });
}

/// An accepted connection with a permit.
struct AcceptedConnection {
    stream: PlainSocket,
    scheme: Scheme,
    activity: Arc<Activity>,
    permit: ConnectionPermit,
}

impl AcceptedConnection {
    /// Reads the PROXY header of the proxy at this address, and returns its client's connection.
    async fn behind_proxy(mut self, proxy: IpAddr, shared: Arc<Shared>) -> Option<Connection> {
        let time_limit = shared.timeouts.head;
        let why = match read_proxy_header(&mut self.stream, proxy, time_limit).await {
            Ok(caller) => return self.connection(caller, &shared, shared.engine.clock.now()),
            // Health checks of some proxies connect and close.
            Err(ProxyHeaderError::Gone(_)) => return None,
            Err(why) => why,
        };
        let limit = match why {
            ProxyHeaderError::Late => Refusal::ProxyLate,
            _ => Refusal::ProxyMalformed,
        };
        shared.refused(limit, || {
            format!("{proxy} is in `proxy_protocol`, but sent no valid PROXY header: {why}; the connection was closed")
        });
        None
    }

    /// Returns the connection of this client; `None` if it exceeds the limit per address.
    fn connection(self, caller: Caller, shared: &Arc<Shared>, now: Time) -> Option<Connection> {
        let network = caller.network();
        let session = Session::new(Arc::clone(shared), caller, self.scheme);
        // A trusted proxy carries the connections of all its clients, and is not limited.
        let address =
            (!session.is_trusted()).then(|| shared.connection_limits.admit_address(network, now));
        if matches!(address, Some(None)) {
            let most = shared.connection_limits.per_address();
            shared.refused(Refusal::Address, || {
                format!(
                    "{network} has {most} connections and none of them is idle: a new connection was closed \
                     (max_connections_per_address)"
                )
            });
            return None;
        }
        self.activity.set_network(network);
        let transport = transport_of(self.stream, self.scheme, shared)?;
        let permit = self.permit.of(address.flatten());
        Some(Connection::new(
            transport,
            session,
            self.activity,
            permit,
            now,
        ))
    }
}

/// Wraps the socket in its transport. `None` for TLS without settings, which no valid configuration has.
fn transport_of(stream: PlainSocket, scheme: Scheme, shared: &Shared) -> Option<ClientTransport> {
    match scheme {
        Scheme::Http => Some(ClientTransport::Plain(stream)),
        Scheme::Https => ClientTransport::tls(stream, Arc::clone(shared.tls.as_ref()?)).ok(),
    }
}

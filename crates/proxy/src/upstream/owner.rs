//! Ownership of connections to a server. Most are shared: after an exchange they return to the pool. With
//! connection-based authentication (NTLM, Negotiate) a connection is reserved for the client that signed in
//! on it, or closed.

use std::sync::Arc;
use std::time::Instant;

use microcache_engine::ClientConnection;
use microcache_engine::origin::OriginRequest;
use microcache_policy::{Fields, Network, signs_in};

use super::connection::OriginConnection;
use super::reservations::{Reservation, Reservations};
use super::server::OriginServer;

/// A connection that is reserved for one client connection. Credentials are bound to it, so a request of that
/// client is sent on no other.
pub(super) struct ReservedConnection {
    pub(super) server: Arc<OriginServer>,
    pub(super) connection: OriginConnection,
    pub(super) reservation: Reservation,
}

/// The client of a request, and whether the request signs in.
pub(super) struct ClientAuth {
    client: Option<Arc<ClientConnection>>,
    /// Address of the client, if the request signs in.
    network: Option<Network>,
    /// The request authenticates the connection, so it is sent on a new one.
    pub(super) signs_in: bool,
}

/// Owner of a connection after an exchange.
pub(super) enum Owner {
    Shared,
    /// Reserved for this client, in the group of this name.
    Client(Arc<ClientConnection>, Box<str>, Reservation),
    Discarded,
}

impl ReservedConnection {
    /// Takes the connection that this group reserves for the client of the request. If the server has closed
    /// it, the client must sign in again, as without a proxy.
    pub(super) fn of(request: &OriginRequest, group: &str) -> Option<Self> {
        let kept = request.client.as_ref()?.take(group)?;
        let mut own = kept.downcast::<Self>().ok()?;
        own.connection.is_quiet().then_some(*own)
    }
}

impl ClientAuth {
    /// Takes the client of a request, and reads the credentials in its fields.
    pub(super) fn of(request: &mut OriginRequest, fields: Fields<'_>) -> Self {
        let signs_in = signs_in(fields);
        let network = signs_in.then(|| request.clients.network());
        Self {
            client: request.client.take(),
            network: network.flatten(),
            signs_in,
        }
    }

    /// Decides the owner of the connection after the response. It is reserved only if the client signed in
    /// and the server took part (`challenged`).
    pub(super) fn owner(
        self,
        challenged: bool,
        group: &str,
        reservations: &Arc<Reservations>,
    ) -> Owner {
        if !(self.signs_in || challenged) {
            return Owner::Shared;
        }
        match (self.client, self.network) {
            (Some(client), Some(network)) if challenged => reservations
                .try_take(network)
                .map_or(Owner::Discarded, |reservation| {
                    Owner::Client(client, group.into(), reservation)
                }),
            _ => Owner::Discarded,
        }
    }
}

impl Owner {
    /// Returns a connection to its owner, idle from now on.
    pub(super) fn take(
        self,
        server: Arc<OriginServer>,
        mut connection: OriginConnection,
        now: Instant,
    ) {
        match self {
            Self::Shared => server.idle.put(connection, now),
            Self::Client(client, group, reservation) => {
                connection.rest();
                let own = ReservedConnection {
                    server,
                    connection,
                    reservation,
                };
                client.keep(&group, Box::new(own));
            }
            Self::Discarded => {}
        }
    }
}

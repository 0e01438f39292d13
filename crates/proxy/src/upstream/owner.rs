//! Ownership of connections to a server. Most are shared: after an exchange they return to the pool. With
//! connection-based authentication (NTLM, Negotiate) a connection is reserved for the client that signed in
//! on it, or closed.

use std::sync::Arc;

use microcache_engine::ClientConnection;
use microcache_engine::origin::OriginRequest;
use microcache_policy::{Fields, signs_in};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::OriginConnection;
use super::server::OriginServer;

/// A connection that is reserved for one client connection. Credentials are bound to it, so a request of that
/// client is sent on no other.
pub(super) struct ReservedConnection {
    pub(super) server: Arc<OriginServer>,
    pub(super) connection: OriginConnection,
    /// Permit of the limit `max_signed_in`.
    pub(super) reservation: OwnedSemaphorePermit,
}

/// The client of a request, and whether the request signs in.
pub(super) struct ClientAuth {
    client: Option<Arc<ClientConnection>>,
    /// The request authenticates the connection, so it is sent on a new one.
    pub(super) signs_in: bool,
}

/// Owner of a connection after an exchange.
pub(super) enum Owner {
    Shared,
    /// Reserved for this client, in the group of this name.
    Client(Arc<ClientConnection>, Box<str>, OwnedSemaphorePermit),
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
    /// Reads the client and the credentials of a request.
    pub(super) fn of(client: Option<Arc<ClientConnection>>, fields: Fields<'_>) -> Self {
        Self {
            client,
            signs_in: signs_in(fields),
        }
    }

    /// Decides the owner of the connection after the response. It is reserved only if the client signed in
    /// and the server took part (`challenged`).
    pub(super) fn owner(
        self,
        challenged: bool,
        group: &str,
        reservations: &Arc<Semaphore>,
    ) -> Owner {
        if !(self.signs_in || challenged) {
            return Owner::Shared;
        }
        let client = self.client.filter(|_| self.signs_in && challenged);
        let reservation = client.and_then(|client| {
            let reservation = Arc::clone(reservations).try_acquire_owned().ok()?;
            Some(Owner::Client(client, group.into(), reservation))
        });
        reservation.unwrap_or(Owner::Discarded)
    }
}

impl Owner {
    /// Returns an idle connection to its owner.
    pub(super) fn take(self, server: Arc<OriginServer>, mut connection: OriginConnection) {
        match self {
            Self::Shared => server.idle.put(connection),
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

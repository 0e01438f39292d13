//! Whose a connection to a server is. Mostly everybody's: after an exchange the next request may have
//! it. But where signing in is a matter of the connection (NTLM, Negotiate), it is the client's who
//! signed in, or nobody's any more.

use std::sync::Arc;

use microcache_engine::ClientConnection;
use microcache_engine::origin::OriginRequest;
use microcache_policy::{Fields, signs_in};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::Connection;
use super::server::Server;

/// A connection that is kept for one client, with that client's connection. No other is as good for
/// what he sends: there it would not be his.
pub(super) struct KeptConnection {
    pub(super) server: Arc<Server>,
    pub(super) connection: Connection,
    /// One of the connections that may be kept so.
    pub(super) seat: OwnedSemaphorePermit,
}

/// Who asks, as far as that decides whose the connection is afterwards.
pub(super) struct Asker {
    client: Option<Arc<ClientConnection>>,
    /// The request signs in. It meets no connection that others have used.
    pub(super) signs_in: bool,
}

/// Who may use a connection after an exchange.
pub(super) enum Owner {
    Everyone,
    /// This client, in the group of this name.
    Client(Arc<ClientConnection>, Box<str>, OwnedSemaphorePermit),
    Nobody,
}

impl KeptConnection {
    /// The connection that this group keeps for the client that sends this request. One that has
    /// ended meanwhile is forgotten: then he is a stranger to the server again, as he would be
    /// without a proxy.
    pub(super) fn of(request: &OriginRequest, group: &str) -> Option<Self> {
        let kept = request.client.as_ref()?.take(group)?;
        let mut own = kept.downcast::<Self>().ok()?;
        own.connection.is_quiet().then_some(*own)
    }
}

impl Asker {
    /// Who sends a request with these fields.
    pub(super) fn of(client: Option<Arc<ClientConnection>>, fields: Fields<'_>) -> Self {
        Self {
            client,
            signs_in: signs_in(fields),
        }
    }

    /// Whose the connection is, now that the server has challenged the client or not. Only where it
    /// has, it knows its users by their connections, and has them kept.
    pub(super) fn owner(self, challenged: bool, group: &str, seats: &Arc<Semaphore>) -> Owner {
        if !(self.signs_in || challenged) {
            return Owner::Everyone;
        }
        let client = self.client.filter(|_| self.signs_in && challenged);
        let seat = client.and_then(|client| {
            let seat = Arc::clone(seats).try_acquire_owned().ok()?;
            Some(Owner::Client(client, group.into(), seat))
        });
        seat.unwrap_or(Owner::Nobody)
    }
}

impl Owner {
    /// Gives a connection that is between two exchanges to its owner.
    pub(super) fn take(self, server: Arc<Server>, mut connection: Connection) {
        match self {
            Self::Everyone => server.idle.put(connection),
            Self::Client(client, group, seat) => {
                connection.rest();
                let own = KeptConnection {
                    server,
                    connection,
                    seat,
                };
                client.keep(&group, Box::new(own));
            }
            Self::Nobody => {}
        }
    }
}

//! A connection that was accepted, until it is known whose it is and that he may have it.

use std::net::IpAddr;
use std::sync::Arc;

use microcache_policy::Scheme;
use tokio::net::TcpStream;

use crate::connection::{Activity, Connection, NotIntroduced, Transport, introduced};
use crate::connections::Connections;
use crate::metrics::Refusal;
use crate::room::Place;
use crate::session::{Caller, Session};
use crate::shared::Shared;
use microcache_policy::Network;

/// Serves a connection from now on.
pub(crate) fn serve(
    stream: TcpStream,
    (peer, scheme): (IpAddr, Scheme),
    place: Place,
    shared: &Arc<Shared>,
    connections: &Arc<Connections>,
) {
    let now = shared.engine.clock.now();
    let activity = Arc::new(Activity::new(now, Network::of(peer)));
    let known = Arc::clone(&activity);
    let newcomer = Newcomer {
        stream,
        scheme,
        activity,
        place,
    };
    if shared.expects_introduction(peer) {
        let shared = Arc::clone(shared);
        connections.spawn(known, async move {
            if let Some(connection) = Box::pin(newcomer.introduced(peer, shared)).await {
                connection.serve().await;
            }
        });
    } else if let Some(connection) = newcomer.connection(Caller::at(peer), shared) {
        connections.spawn(known, connection.serve());
    }
}

/// For a connection that may have to wait for its place while nothing more is accepted.
pub(crate) fn serve_late(
    stream: TcpStream,
    (peer, scheme): (IpAddr, Scheme),
    shared: &Arc<Shared>,
    connections: &Arc<Connections>,
) {
    let activity = Arc::new(Activity::standing(Network::of(peer)));
    let (shared, known) = (Arc::clone(shared), Arc::clone(&activity));
    connections.spawn(known, async move {
        let clock = shared.engine.clock;
        let Some(place) = shared.room.place(&clock).await else {
            return;
        };
        activity.seated(clock.now());
        let newcomer = Newcomer {
            stream,
            scheme,
            activity,
            place,
        };
        let connection = if shared.expects_introduction(peer) {
            Box::pin(newcomer.introduced(peer, shared)).await
        } else {
            newcomer.connection(Caller::at(peer), &shared)
        };
        if let Some(connection) = connection {
            connection.serve().await;
        }
    });
}

/// A connection that was accepted, and has a place.
struct Newcomer {
    stream: TcpStream,
    scheme: Scheme,
    activity: Arc<Activity>,
    place: Place,
}

impl Newcomer {
    /// The connection of whom the proxy at this address names first.
    async fn introduced(mut self, proxy: IpAddr, shared: Arc<Shared>) -> Option<Connection> {
        let patience = shared.timeouts.head;
        let why = match introduced(&mut self.stream, proxy, patience).await {
            Ok(caller) => return self.connection(caller, &shared),
            // Health checks of some proxies look no further than that.
            Err(NotIntroduced::Gone(_)) => return None,
            Err(why) => why,
        };
        let limit = match why {
            NotIntroduced::Late => Refusal::ProxyLate,
            _ => Refusal::ProxyMalformed,
        };
        shared.refused(limit, || {
            format!("{proxy} is in `proxy_protocol`, and does not begin with it: {why}; the connection was closed")
        });
        None
    }

    /// The connection of this client, if he may have one more.
    fn connection(self, caller: Caller, shared: &Arc<Shared>) -> Option<Connection> {
        let now = shared.engine.clock.now();
        // A proxy of the operator's has the connections of all its clients.
        let is_counted = !caller.is_in(&shared.trusted_proxies);
        let network = caller.network();
        let guest = is_counted.then(|| shared.room.guest(network, now));
        if matches!(guest, Some(None)) {
            let most = shared.room.per_address();
            shared.refused(Refusal::Address, || {
                format!(
                    "{network} has {most} connections, none of which waits for a request: one more was closed \
                     (max_connections_per_address)"
                )
            });
            return None;
        }
        self.activity.belongs_to(network);
        let transport = carried(self.stream, self.scheme, shared)?;
        let session = Session::new(Arc::clone(shared), caller, self.scheme);
        let place = self.place.of(guest.flatten());
        Some(Connection::new(transport, session, self.activity, place))
    }
}

/// What carries a connection. Nothing does where TLS is to be spoken and cannot be, which no configuration allows.
fn carried(stream: TcpStream, scheme: Scheme, shared: &Shared) -> Option<Transport> {
    match scheme {
        Scheme::Http => Some(Transport::Plain(stream)),
        Scheme::Https => Transport::tls(stream, Arc::clone(shared.tls.as_ref()?)).ok(),
    }
}

//! HTTP/2 connections to one server: a few per runtime, since a socket is bound to the one it was opened on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use microcache_engine::origin::OriginError;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::MutexGuard;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::connection::{ConnectionRequirements, Http2Connection, MAX_STREAMS, StreamSlot};
use crate::observe::{Kind, Notices};
use crate::upstream::server::{NewConnection, RequestChannel};
use crate::upstream::settings::{GroupSettings, ServerSettings};

/// Stream limit from which requests wait for a connection that is being opened. Below it, every request opens
/// its own, as with HTTP/1.
const WORTH_WAITING_FOR: usize = 8;

/// HTTP/2 connections to one server.
#[derive(Debug)]
pub(in crate::upstream) struct Http2Connections {
    /// Name of the server in the log.
    name: String,
    notices: Notices,
    /// Idle timeout; `None` keeps no idle connection.
    keep: Option<Duration>,
    bundles: Mutex<Vec<(Id, Arc<RuntimeConnections>)>>,
    /// No connection is kept any more.
    is_closed: AtomicBool,
    /// The last connection negotiated HTTP/1.
    was_declined: AtomicBool,
    /// Stream limit of the last connection.
    room: AtomicUsize,
}

/// The connections of one runtime.
#[derive(Debug, Default)]
pub(in crate::upstream) struct RuntimeConnections {
    /// The oldest first: while it has room, the others become idle and are closed.
    connections: Mutex<Vec<Arc<Http2Connection>>>,
    /// Held while a connection is being opened.
    opening: tokio::sync::Mutex<Opening>,
}

/// Time and error of the last failed attempt to open a connection.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Opening(Option<(Instant, OriginError)>);

impl Http2Connections {
    /// Starts without connections.
    pub(in crate::upstream) fn new(
        group: &GroupSettings,
        server: &ServerSettings,
        notices: Notices,
    ) -> Self {
        Self {
            name: format!("origin {}", server.address),
            notices,
            keep: (group.max_idle > 0).then_some(group.idle_timeout),
            bundles: Mutex::default(),
            is_closed: AtomicBool::new(false),
            was_declined: AtomicBool::new(false),
            room: AtomicUsize::new(MAX_STREAMS),
        }
    }

    /// The connections of the current runtime.
    pub(in crate::upstream) fn bundle(&self) -> Arc<RuntimeConnections> {
        let runtime = Handle::current().id();
        let mut bundles = self.bundles.lock();
        let known = bundles.iter().find(|(id, _)| *id == runtime);
        if let Some((_, bundle)) = known {
            return Arc::clone(bundle);
        }
        let bundle = Arc::<RuntimeConnections>::default();
        bundles.push((runtime, Arc::clone(&bundle)));
        bundle
    }

    /// Returns true if the server last negotiated HTTP/1.
    pub(in crate::upstream) fn has_been_declined(&self) -> bool {
        self.was_declined.load(Ordering::Relaxed)
    }

    /// Returns true if a connection that is being opened will have room for many requests.
    pub(in crate::upstream) fn are_worth_waiting_for(&self) -> bool {
        self.keep.is_some() && self.room.load(Ordering::Relaxed) >= WORTH_WAITING_FOR
    }

    /// Adds a new connection for all requests, and reserves its first stream.
    pub(in crate::upstream) fn taken_up(
        &self,
        opened: NewConnection,
    ) -> Result<RequestChannel, OriginError> {
        match opened {
            NewConnection::Http1(connection) => {
                self.room.store(1, Ordering::Relaxed);
                if !self.was_declined.swap(true, Ordering::Relaxed) {
                    let line = format!(
                        "{}: the server does not offer HTTP/2 by ALPN (`origin_http2`); HTTP/1.1 is used",
                        self.name
                    );
                    self.notices.say(Kind::NoHttp2, &self.name, line);
                }
                Ok(RequestChannel::Http1(connection))
            }
            NewConnection::Http2(connection) => {
                self.room.store(connection.room(), Ordering::Relaxed);
                self.was_declined.store(false, Ordering::Relaxed);
                let slot = connection.first_slot()?;
                if self.keep.is_some() && !self.is_closed.load(Ordering::Relaxed) {
                    self.bundle().put(connection);
                }
                Ok(RequestChannel::Http2(slot))
            }
        }
    }

    /// Number of idle connections.
    pub(in crate::upstream) fn idle(&self) -> usize {
        let bundles = self.bundles.lock();
        let of = |bundle: &RuntimeConnections| {
            let connections = bundle.connections.lock();
            connections.iter().filter(|one| one.is_idle()).count()
        };
        bundles.iter().map(|(_, bundle)| of(bundle)).sum()
    }

    /// Closes connections whose idle timeout has passed.
    pub(in crate::upstream) fn sweep(&self) {
        let now = Instant::now();
        let keep = self.keep.unwrap_or_default();
        for (_, bundle) in &*self.bundles.lock() {
            let mut connections = bundle.connections.lock();
            connections.retain(|one| !one.is_done_with(keep, now));
        }
    }

    /// Drops all connections; each closes after its last stream.
    pub(in crate::upstream) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.bundles.lock().clear();
    }
}

impl RuntimeConnections {
    /// Reserves a stream on one of them.
    pub(in crate::upstream) async fn take(
        &self,
        wanted: &ConnectionRequirements,
    ) -> Option<StreamSlot> {
        loop {
            let slot = {
                let now = Instant::now();
                let connections = self.connections.lock();
                connections.iter().find_map(|one| one.join(wanted, now))?
            };
            if !slot.is_unproven {
                return Some(slot);
            }
            // Frames that arrived while it was idle, such as GOAWAY, are read before anything is sent.
            yield_now().await;
            if slot.is_good() {
                return Some(slot);
            }
            slot.give_up_connection();
        }
    }

    /// Adds a connection and drops idle ones: none of them was usable, or there would be no new one.
    fn put(&self, connection: Arc<Http2Connection>) {
        let mut connections = self.connections.lock();
        connections.retain(|one| !one.is_done_with(Duration::ZERO, Instant::now()));
        connections.push(connection);
    }

    /// Waits for the right to open a connection.
    pub(in crate::upstream) async fn opening(&self) -> MutexGuard<'_, Opening> {
        self.opening.lock().await
    }
}

impl Opening {
    /// Returns the error of an attempt that failed after this moment.
    pub(in crate::upstream) fn failed_since(&self, moment: Instant) -> Option<OriginError> {
        let (at, error) = self.0.as_ref()?;
        (*at >= moment).then(|| error.clone())
    }

    /// Records a failed attempt.
    pub(in crate::upstream) fn has_failed(&mut self, error: &OriginError) {
        self.0 = Some((Instant::now(), error.clone()));
    }
}

//! The connections with HTTP/2 to one server: a few for each runtime, since a socket belongs to the one it was opened on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use microcache_engine::origin::OriginError;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::MutexGuard;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::connection::{Connection, MAX_STREAMS, Slot};
use crate::notices::{Kind, Notices};
use crate::upstream::server::{Opened, Way};
use crate::upstream::settings::{GroupSettings, ServerSettings};

/// A connection that takes fewer streams at a time is not waited for while somebody else opens it: everybody opens one, as with
/// HTTP/1.
const WORTH_WAITING_FOR: usize = 8;

/// The connections with HTTP/2 to one server.
#[derive(Debug)]
pub(in crate::upstream) struct Connections {
    /// How the log calls the server.
    name: String,
    notices: Notices,
    /// How long an unused one is kept; not at all if none is to be.
    keep: Option<Duration>,
    bundles: Mutex<Vec<(Id, Arc<Bundle>)>>,
    /// Nothing is kept any more.
    is_closed: AtomicBool,
    /// The last one that was opened speaks HTTP/1.
    was_declined: AtomicBool,
    /// So many requests at a time the last one takes.
    room: AtomicUsize,
}

/// Those of one runtime.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Bundle {
    /// The oldest first: while it has room, the others become idle and are closed.
    connections: Mutex<Vec<Arc<Connection>>>,
    /// Whoever opens one holds this.
    opening: tokio::sync::Mutex<Opening>,
}

/// How opening a connection went last, if it failed.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Opening(Option<(Instant, OriginError)>);

/// What a connection has to be like to take a request.
#[derive(Debug)]
pub(in crate::upstream) struct Wanted {
    /// If nothing was heard on it since it was idle, it was so no longer.
    pub(in crate::upstream) idle: Duration,
    /// It is newer than this: on an older one the request was turned away.
    pub(in crate::upstream) opened_after: Option<Instant>,
}

impl Wanted {
    /// Any at all.
    pub(super) const ANY: Self = Self {
        idle: Duration::MAX,
        opened_after: None,
    };
}

impl Connections {
    /// There are none yet.
    pub(in crate::upstream) fn new(
        group: &GroupSettings,
        server: &ServerSettings,
        notices: Notices,
    ) -> Self {
        Self {
            name: format!("origin {}:{}", server.host, server.port),
            notices,
            keep: (group.max_idle > 0).then_some(group.idle_timeout),
            bundles: Mutex::default(),
            is_closed: AtomicBool::new(false),
            was_declined: AtomicBool::new(false),
            room: AtomicUsize::new(MAX_STREAMS),
        }
    }

    /// Those of the current runtime.
    pub(in crate::upstream) fn bundle(&self) -> Arc<Bundle> {
        let runtime = Handle::current().id();
        let mut bundles = self.bundles.lock();
        let known = bundles.iter().find(|(id, _)| *id == runtime);
        if let Some((_, bundle)) = known {
            return Arc::clone(bundle);
        }
        let bundle = Arc::<Bundle>::default();
        bundles.push((runtime, Arc::clone(&bundle)));
        bundle
    }

    /// Whether the server agreed on HTTP/1 last.
    pub(in crate::upstream) fn has_been_declined(&self) -> bool {
        self.was_declined.load(Ordering::Relaxed)
    }

    /// Whether one that somebody else is opening will have places for many.
    pub(in crate::upstream) fn are_worth_waiting_for(&self) -> bool {
        self.keep.is_some() && self.room.load(Ordering::Relaxed) >= WORTH_WAITING_FOR
    }

    /// A new connection, with the first place on it, is there for others too.
    pub(in crate::upstream) fn taken_up(&self, opened: Opened) -> Result<Way, OriginError> {
        match opened {
            Opened::Http1(connection) => {
                self.room.store(1, Ordering::Relaxed);
                if !self.was_declined.swap(true, Ordering::Relaxed) {
                    let line = format!(
                        "{}: it does not offer HTTP/2 (ALPN), which `origin_http2` asks for; HTTP/1.1 is spoken with it",
                        self.name
                    );
                    self.notices.say(Kind::NoHttp2, &self.name, line);
                }
                Ok(Way::Http1(connection))
            }
            Opened::Http2(connection) => {
                self.room.store(connection.room(), Ordering::Relaxed);
                self.was_declined.store(false, Ordering::Relaxed);
                let slot = connection.first_slot()?;
                if self.keep.is_some() && !self.is_closed.load(Ordering::Relaxed) {
                    self.bundle().put(connection);
                }
                Ok(Way::Http2(slot))
            }
        }
    }

    /// How many there are that nobody is on.
    pub(in crate::upstream) fn idle(&self) -> usize {
        let bundles = self.bundles.lock();
        let of = |bundle: &Bundle| {
            let connections = bundle.connections.lock();
            connections.iter().filter(|one| one.is_idle()).count()
        };
        bundles.iter().map(|(_, bundle)| of(bundle)).sum()
    }

    /// Lets go of those that have been unused for too long.
    pub(in crate::upstream) fn sweep(&self) {
        let now = Instant::now();
        let keep = self.keep.unwrap_or_default();
        for (_, bundle) in &*self.bundles.lock() {
            let mut connections = bundle.connections.lock();
            connections.retain(|one| !one.is_done_with(keep, now));
        }
    }

    /// Lets go of all of them; they are closed when nobody is on them any more.
    pub(in crate::upstream) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.bundles.lock().clear();
    }
}

impl Bundle {
    /// A place on one of them.
    pub(in crate::upstream) async fn take(&self, wanted: &Wanted) -> Option<Slot> {
        loop {
            let slot = {
                let now = Instant::now();
                let connections = self.connections.lock();
                connections.iter().find_map(|one| one.join(wanted, now))?
            };
            if !slot.is_unproven {
                return Some(slot);
            }
            // What the server has said while nobody was on it, such as that it closes, is read before anything is sent.
            yield_now().await;
            if slot.is_good() {
                return Some(slot);
            }
            slot.give_up_connection();
        }
    }

    /// Keeps a new one. Those that are unused give way to it: it would not be needed if they were good for anything.
    fn put(&self, connection: Arc<Connection>) {
        let mut connections = self.connections.lock();
        connections.retain(|one| !one.is_done_with(Duration::ZERO, Instant::now()));
        connections.push(connection);
    }

    /// Waits for whoever is opening one.
    pub(in crate::upstream) async fn opening(&self) -> MutexGuard<'_, Opening> {
        self.opening.lock().await
    }
}

impl Opening {
    /// How it failed, if it did so after this moment.
    pub(in crate::upstream) fn failed_since(&self, moment: Instant) -> Option<OriginError> {
        let (at, error) = self.0.as_ref()?;
        (*at >= moment).then(|| error.clone())
    }

    /// It has failed like this.
    pub(in crate::upstream) fn has_failed(&mut self, error: &OriginError) {
        self.0 = Some((Instant::now(), error.clone()));
    }
}

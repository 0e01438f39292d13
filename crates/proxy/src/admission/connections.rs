//! Open connections of one thread: their activity, closing idle ones, and draining.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::{Network, Time};
use microcache_store::poll_clock;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use slab::Slab;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::activity::{Activity, ConnectionState};

/// Time that a connection without a first request, or whose last response did not close it, stays open once the
/// server stops: a request may be in flight.
pub(crate) const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Open connections of one thread.
#[derive(Default)]
pub(crate) struct ThreadConnections {
    open: Mutex<Slab<OpenConnection>>,
    /// Notified when the last one has closed.
    empty: Notify,
}

struct OpenConnection {
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// An idle connection.
pub(crate) struct IdleClient {
    /// Network of the client.
    pub(crate) network: Network,
    /// Time since when it is idle.
    pub(crate) since: Time,
    /// `true` after the first response.
    pub(crate) answered: bool,
    task: AbortHandle,
    activity: Arc<Activity>,
}

impl IdleClient {
    /// Closes the connection unless a request has arrived. Returns `true` if it was closed.
    pub(crate) fn close(&self) -> bool {
        let dismissed = self.activity.dismiss();
        if dismissed {
            self.task.abort();
        }
        dismissed
    }
}

impl ThreadConnections {
    /// Spawns the task of a connection.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        activity: Arc<Activity>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut open = self.open.lock();
        let vacant = open.vacant_entry();
        let leave = Unregister {
            connections: Arc::clone(self),
            at: vacant.key(),
        };
        let task = tokio::spawn(RegisteredTask { work, leave });
        vacant.insert(OpenConnection {
            task: task.abort_handle(),
            activity,
        });
    }

    /// Calls `see` with the network of each connection, and with those that are idle.
    pub(crate) fn for_each(&self, mut see: impl FnMut(Network, Option<IdleClient>)) {
        for (_, seat) in self.open.lock().iter() {
            let network = seat.activity.network();
            let idle = match seat.activity.state() {
                ConnectionState::Idle { since, answered } => Some(IdleClient {
                    network,
                    since,
                    answered,
                    task: seat.task.clone(),
                    activity: Arc::clone(&seat.activity),
                }),
                ConnectionState::Busy | ConnectionState::Endless => None,
            };
            see(network, idle);
        }
    }

    /// Closes connections idle since before `stopped` at once; those without a first request, tunnels and event
    /// streams a little later. Returns when all have ended. Connections that become idle later close by
    /// themselves, after one more request at most.
    ///
    /// When another process has replaced this one, idle connections are closed with their next response
    /// instead, so that none loses a request in flight.
    pub(crate) async fn drain(&self, streams: Duration, stopped: Time, is_replaced: bool) {
        let start = Instant::now();
        let ending = async {
            let silent = async {
                if !is_replaced {
                    self.close_answered(stopped);
                    sleep_until(start + FIRST_REQUEST).await;
                    self.close(
                        |doing| matches!(doing, ConnectionState::Idle { since, .. } if since <= stopped),
                    );
                }
            };
            let endless = async {
                sleep_until(start + streams).await;
                self.close(|doing| doing == ConnectionState::Endless);
            };
            tokio::join!(silent, endless);
            pending::<()>().await;
        };
        tokio::select! {
            () = ending => {}
            () = self.all_gone() => {}
        }
    }

    /// Closes connections that have had a response and are idle since before this time.
    pub(crate) fn close_answered(&self, stopped: Time) {
        self.close(
            |doing| matches!(doing, ConnectionState::Idle { answered: true, since } if since < stopped),
        );
    }

    fn close(&self, which: impl Fn(ConnectionState) -> bool) {
        let open = self.open.lock();
        let seats = open.iter().map(|(_, seat)| seat);
        let chosen = seats.filter(|seat| which(seat.activity.state()));
        let tasks: Vec<_> = chosen.map(|seat| seat.task.clone()).collect();
        drop(open);
        tasks.iter().for_each(AbortHandle::abort);
    }

    async fn all_gone(&self) {
        loop {
            let emptied = self.empty.notified();
            if self.open.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }
}

pin_project! {
    /// Task of a connection, which unregisters itself when done. An `async` block would reserve space for the
    /// work twice: for the captured value and for the polled one.
    struct RegisteredTask<Work> {
        #[pin]
        work: Work,
        leave: Unregister,
    }
}

impl<Work: Future<Output = ()>> Future for RegisteredTask<Work> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        poll_clock::run(|| self.project().work.poll(cx))
    }
}

struct Unregister {
    connections: Arc<ThreadConnections>,
    at: usize,
}

impl Drop for Unregister {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.remove(self.at);
        if open.is_empty() {
            self.connections.empty.notify_one();
        }
    }
}

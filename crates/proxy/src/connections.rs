//! The connections of one thread: who they are, and how they end when the server does.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use slab::Slab;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::connection::{Activity, Doing};
use microcache_policy::Network;

/// How long a connection that has never had a request, or whose last answer did not close it, is waited for
/// once the server stops: a request may be on its way.
pub(crate) const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// The connections of one thread.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<Slab<Seat>>,
    /// Woken when the last one has left.
    empty: Notify,
}

struct Seat {
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// A connection that waits for a request.
pub(crate) struct Idle {
    /// Who is at the other end.
    pub(crate) network: Network,
    /// Since when it waits.
    pub(crate) since: Time,
    /// Whether it has had a request before.
    pub(crate) answered: bool,
    task: AbortHandle,
    activity: Arc<Activity>,
}

impl Idle {
    /// Closes it, unless a request has come meanwhile.
    pub(crate) fn close(&self) -> bool {
        let dismissed = self.activity.dismiss();
        if dismissed {
            self.task.abort();
        }
        dismissed
    }
}

impl Connections {
    /// Does the work of a connection from now on.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        activity: Arc<Activity>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut open = self.open.lock();
        let vacant = open.vacant_entry();
        let leave = Leave {
            connections: Arc::clone(self),
            at: vacant.key(),
        };
        let task = tokio::spawn(Seated { work, leave });
        vacant.insert(Seat {
            task: task.abort_handle(),
            activity,
        });
    }

    /// Calls `see` with whose each is, and with those that wait for a request.
    pub(crate) fn each(&self, mut see: impl FnMut(Network, Option<Idle>)) {
        for (_, seat) in self.open.lock().iter() {
            let network = seat.activity.network();
            let idle = match seat.activity.doing() {
                Doing::Idle { since, answered } => Some(Idle {
                    network,
                    since,
                    answered,
                    task: seat.task.clone(),
                    activity: Arc::clone(&seat.activity),
                }),
                Doing::Busy | Doing::Endless => None,
            };
            see(network, idle);
        }
    }

    /// Ends those that have waited for another request since before `stopped`, at once; those that never had
    /// one, tunnels and event streams a little later. Returns when all have ended. Those that begin to wait
    /// later end by themselves: they may have one more request.
    ///
    /// Once another process has taken this one's place nothing is urgent: those that wait are closed with their next
    /// answer, so that none loses a request that is on its way.
    pub(crate) async fn drain(&self, streams: Duration, stopped: Time, is_replaced: bool) {
        let start = Instant::now();
        let ending = async {
            let silent = async {
                if !is_replaced {
                    self.close_answered(stopped);
                    sleep_until(start + FIRST_REQUEST).await;
                    self.close(
                        |doing| matches!(doing, Doing::Idle { since, .. } if since <= stopped),
                    );
                }
            };
            let endless = async {
                sleep_until(start + streams).await;
                self.close(|doing| doing == Doing::Endless);
            };
            tokio::join!(silent, endless);
            pending::<()>().await;
        };
        tokio::select! {
            () = ending => {}
            () = self.all_gone() => {}
        }
    }

    /// Ends those that have had an answer and wait for another request since before this time.
    pub(crate) fn close_answered(&self, stopped: Time) {
        self.close(
            |doing| matches!(doing, Doing::Idle { answered: true, since } if since < stopped),
        );
    }

    fn close(&self, which: impl Fn(Doing) -> bool) {
        let open = self.open.lock();
        let seats = open.iter().map(|(_, seat)| seat);
        let chosen = seats.filter(|seat| which(seat.activity.doing()));
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
    /// The work of a connection, which leaves when it is done. An `async` block would have room for the work twice:
    /// where it is kept until the block begins, and where it is polled.
    struct Seated<Work> {
        #[pin]
        work: Work,
        leave: Leave,
    }
}

impl<Work: Future<Output = ()>> Future for Seated<Work> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().work.poll(cx)
    }
}

struct Leave {
    connections: Arc<Connections>,
    at: usize,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.remove(self.at);
        if open.is_empty() {
            self.connections.empty.notify_one();
        }
    }
}

//! Connection limits of the interface, and eviction of idle connections.
//!
//! A connection is idle unless an authorized request is in progress on it. Since the limit of requests is below
//! the limit of connections, an idle one can always be evicted: clients without the secret cannot lock out
//! health checks and operators.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::problem::Problem;

/// Maximum number of connections; beyond it, the longest idle one is closed.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// Maximum number of concurrent requests, except dashboard assets and health checks.
pub(crate) const MAX_REQUESTS: usize = 224;

/// Marks a connection that is not idle.
const BUSY: u64 = u64::MAX;

/// Table of open connections.
pub(crate) struct AdminConnections {
    open: Mutex<HashMap<u64, ConnectionEntry>>,
    /// Sequence number of events.
    events: AtomicU64,
    requests: Arc<Semaphore>,
}

struct ConnectionEntry {
    task: AbortHandle,
    activity: IdleSince,
}

/// Start of the idle time of a connection, if it is idle.
#[derive(Clone)]
pub(crate) struct IdleSince(Arc<AtomicU64>);

/// Request in progress.
pub(crate) struct RequestGuard {
    connections: Arc<AdminConnections>,
    activity: IdleSince,
    _place: OwnedSemaphorePermit,
}

/// Response body; the request stays in progress until all of it has been sent.
struct GuardedBody {
    body: Body,
    _request: RequestGuard,
}

impl Default for AdminConnections {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            events: AtomicU64::default(),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
        }
    }
}

impl AdminConnections {
    /// Runs the future of a new connection, which is created from its activity.
    pub(crate) fn spawn<Work>(self: &Arc<Self>, work: impl FnOnce(IdleSince) -> Work)
    where
        Work: Future<Output = ()> + Send + 'static,
    {
        let number = self.next_event();
        let activity = IdleSince(Arc::new(AtomicU64::new(number)));
        let mut open = self.lock();
        if open.len() >= MAX_CONNECTIONS {
            let waits = |(&number, seat): (&u64, &ConnectionEntry)| {
                let since = seat.activity.0.load(Ordering::Relaxed);
                (since != BUSY).then_some((since, number))
            };
            let longest = open.iter().filter_map(waits).min();
            if let Some(seat) = longest.and_then(|(_, number)| open.remove(&number)) {
                seat.task.abort();
            }
        }
        let work = work(activity.clone());
        let leaving = RemoveOnDrop {
            connections: Arc::clone(self),
            number,
        };
        let task = tokio::spawn(async move {
            let _leaving = leaving;
            work.await;
        });
        let task = task.abort_handle();
        open.insert(number, ConnectionEntry { task, activity });
    }

    /// Starts an authorized request.
    pub(crate) fn begin(self: &Arc<Self>, activity: &IdleSince) -> Result<RequestGuard, Problem> {
        let place = Arc::clone(&self.requests).try_acquire_owned();
        let place = place.map_err(|_| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{MAX_REQUESTS} requests to this interface are in progress"),
                "retry later; connections of slow readers are closed",
            )
        })?;
        activity.0.store(BUSY, Ordering::Relaxed);
        Ok(RequestGuard {
            connections: Arc::clone(self),
            activity: activity.clone(),
            _place: place,
        })
    }

    fn next_event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, ConnectionEntry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a connection from the table when it ends.
struct RemoveOnDrop {
    connections: Arc<AdminConnections>,
    number: u64,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
    }
}

impl RequestGuard {
    /// Wraps the response body, whose end completes the request.
    pub(crate) fn ends_with(self, body: Body) -> Body {
        Body::new(GuardedBody {
            body,
            _request: self,
        })
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let now = self.connections.next_event();
        self.activity.0.store(now, Ordering::Relaxed);
    }
}

impl hyper::body::Body for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::yield_now;

    use super::*;

    fn open(connections: &Arc<AdminConnections>) -> IdleSince {
        let mut made = None;
        connections.spawn(|activity| {
            made = Some(activity);
            pending()
        });
        made.expect("a connection")
    }

    fn is_open(connections: &AdminConnections, activity: &IdleSince) -> bool {
        let open = connections.lock();
        open.values()
            .any(|seat| Arc::ptr_eq(&seat.activity.0, &activity.0))
    }

    #[tokio::test]
    async fn the_longest_waiting_connection_is_closed_and_no_request_is() {
        let connections = Arc::new(AdminConnections::default());
        let all: Vec<_> = (0..MAX_CONNECTIONS).map(|_| open(&connections)).collect();
        let first = connections.begin(&all[0]).expect("room");
        // The second has been idle since its request; the third has been idle longest.
        drop(connections.begin(&all[1]).expect("room"));
        open(&connections);
        let gone = |at: usize| !is_open(&connections, &all[at]);
        assert_eq!([0, 1, 2, 3].map(gone), [false, false, true, false]);
        drop(first);
        for _ in 3..MAX_CONNECTIONS {
            open(&connections);
        }
        assert_eq!([0, 1, 3, 255].map(gone), [false, false, true, true]);
        yield_now().await;
        assert_eq!(connections.lock().len(), MAX_CONNECTIONS);
    }

    #[tokio::test]
    async fn requests_that_are_under_way_never_take_all_connections() {
        let connections = Arc::new(AdminConnections::default());
        let all: Vec<_> = (0..MAX_CONNECTIONS).map(|_| open(&connections)).collect();
        let begun: Vec<_> = all.iter().map(|one| connections.begin(one)).collect();
        assert_eq!(begun.iter().flatten().count(), MAX_REQUESTS);
        let late: Vec<_> = (0..1000).map(|_| open(&connections)).collect();
        assert!(is_open(&connections, &late[999]));
        assert!(
            all[..MAX_REQUESTS]
                .iter()
                .all(|one| is_open(&connections, one))
        );
        drop(begun);
        assert!(connections.begin(&late[999]).is_ok());
    }
}

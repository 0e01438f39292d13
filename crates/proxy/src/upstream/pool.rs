//! Pool of idle connections to one server. A socket belongs to the runtime it was opened on, so each runtime
//! gets back only its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

use super::connection::OriginConnection;

/// Rest after which the state of a connection is asked of its socket in any case.
const SHORT_REST: Duration = Duration::from_secs(1);

/// A pool of idle connections.
#[derive(Debug)]
pub(super) struct Pool {
    max: AtomicUsize,
    keep: Duration,
    pooled: Mutex<IdleByRuntime>,
}

#[derive(Debug, Default)]
struct IdleByRuntime {
    count: usize,
    /// Connections of each runtime, the most recently used last. That one is reused first, so that surplus ones
    /// reach their idle timeout.
    by_runtime: Vec<(Id, Vec<IdleConnection>)>,
}

impl IdleByRuntime {
    /// Returns the connections of a runtime. There is one per serving thread, so a search is quicker than hashing.
    fn of(&mut self, runtime: Id) -> &mut Vec<IdleConnection> {
        let known = self.by_runtime.iter().position(|(id, _)| *id == runtime);
        let at = known.unwrap_or_else(|| {
            self.by_runtime.push((runtime, Vec::new()));
            self.by_runtime.len() - 1
        });
        &mut self.by_runtime[at].1
    }

    /// Takes the connection that has been idle for longest, on any runtime: if it had to be one of its own, a thread
    /// that finds the pool full of the others' connections would keep none.
    fn take_oldest(&mut self) -> Option<IdleConnection> {
        let lists = self.by_runtime.iter_mut().map(|(_, idle)| idle);
        let oldest = lists
            .filter(|idle| !idle.is_empty())
            .min_by_key(|idle| idle[0].since)?;
        Some(oldest.remove(0))
    }
}

#[derive(Debug)]
struct IdleConnection {
    since: Instant,
    connection: OriginConnection,
}

impl Pool {
    /// Keeps at most `max` idle connections, each for `keep`.
    pub(super) fn new(max: usize, keep: Duration) -> Self {
        Self {
            max: AtomicUsize::new(max),
            keep,
            pooled: Mutex::default(),
        }
    }

    /// Takes the most recent connection of this runtime that has been idle for at most `limit` and is open.
    /// A `repeatable` request is sent again if the connection turns out to be closed.
    pub(super) fn take(
        &self,
        limit: Duration,
        repeatable: bool,
        now: Instant,
    ) -> Option<OriginConnection> {
        let runtime = Handle::current().id();
        let limit = limit.min(self.keep);
        loop {
            let mut rest = Duration::ZERO;
            let mut connection = {
                let mut pooled = self.pooled.lock();
                let own = pooled.of(runtime);
                let idle = own.pop_if(|idle| {
                    rest = now.duration_since(idle.since);
                    rest <= limit
                })?;
                pooled.count -= 1;
                idle.connection
            };
            let asks_socket = !repeatable || rest > SHORT_REST || connection.may_send_more;
            let is_quiet = if asks_socket {
                connection.is_quiet()
            } else {
                connection.seems_quiet()
            };
            if is_quiet {
                return Some(connection);
            }
        }
    }

    /// Returns a connection after an exchange that ends now.
    pub(super) fn put(&self, mut connection: OriginConnection, now: Instant) {
        connection.rest();
        let idle = IdleConnection {
            since: now,
            connection,
        };
        let runtime = idle.connection.runtime;
        let mut pooled = self.pooled.lock();
        pooled.of(runtime).push(idle);
        // The oldest is closed. If the new one were, a pool full of stale connections would keep every
        // fresh one out until the next sweep, and each request would open its own.
        let surplus = if pooled.count < self.max.load(Ordering::Relaxed) {
            pooled.count += 1;
            None
        } else {
            pooled.take_oldest()
        };
        drop(pooled);
        drop(surplus);
    }

    /// Closes all connections, and keeps none from now on.
    pub(super) fn close(&self) {
        let all = {
            let mut pooled = self.pooled.lock();
            self.max.store(0, Ordering::Relaxed);
            std::mem::take(&mut *pooled)
        };
        // Closing takes system calls, so it happens here, without the lock.
        drop(all);
    }

    /// Closes connections whose idle timeout has passed.
    pub(super) fn sweep(&self) {
        let mut pooled = self.pooled.lock();
        let mut old = Vec::new();
        pooled.by_runtime.retain_mut(|(_, of_runtime)| {
            let fresh = of_runtime.partition_point(|idle| idle.since.elapsed() > self.keep);
            old.extend(of_runtime.drain(..fresh));
            !of_runtime.is_empty()
        });
        pooled.count -= old.len();
        drop(pooled);
        // Closing takes system calls, so it happens here, without the lock.
        drop(old);
    }

    /// Number of idle connections.
    pub(super) fn len(&self) -> usize {
        self.pooled.lock().count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::transport::OriginTransport;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::{Builder, Runtime};

    #[test]
    fn a_thread_keeps_a_connection_although_another_one_fills_the_pool() {
        let runtime = || Builder::new_current_thread().enable_all().build();
        let (first, second): (Runtime, Runtime) = (runtime().unwrap(), runtime().unwrap());
        let listener = first.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let open = |runtime: &Runtime| {
            runtime.block_on(async {
                let stream = TcpStream::connect(address).await.unwrap();
                OriginConnection::new(OriginTransport::Plain(stream))
            })
        };
        let pool = Pool::new(2, Duration::MAX);
        let take = |runtime: &Runtime| {
            runtime.block_on(async { pool.take(Duration::MAX, true, Instant::now()) })
        };
        for runtime in [&first, &first, &second] {
            pool.put(open(runtime), Instant::now());
        }
        assert_eq!(pool.len(), 2);
        assert!(take(&second).is_some());
        assert!(take(&first).is_some());
        assert_eq!(pool.len(), 0);
    }
}

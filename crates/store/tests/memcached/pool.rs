//! Pool with its tasks on a separate thread, as in the proxy.

use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use microcache_store::memcached::ServerAddress;
use microcache_store::{Memcached, MemcachedSettings, TierError};
use microcache_testkit::TierServer;
use tokio::sync::oneshot;

use crate::shared_records::Looked;
pub(crate) use crate::shared_records::{entry, id, mine};

pub(crate) const LONG: Duration = Duration::from_mins(10);
pub(crate) const HOLD: Duration = Duration::from_secs(30);

/// Generous timeouts for a busy machine.
pub(crate) fn patient() -> MemcachedSettings {
    MemcachedSettings {
        deadline: Duration::from_secs(20),
        ..quick()
    }
}

/// Servers are lost and retried quickly.
pub(crate) fn quick() -> MemcachedSettings {
    MemcachedSettings {
        deadline: Duration::from_millis(250),
        retry_after: Duration::from_millis(50),
        retry_after_max: Duration::from_millis(200),
        check_every: Duration::from_millis(200),
        ..MemcachedSettings::default()
    }
}

pub(crate) fn address_of(node: &TierServer) -> ServerAddress {
    node.address().parse().expect("an address")
}

pub(crate) struct Pool {
    memcached: Option<Arc<Memcached>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new<'a>(
        nodes: impl IntoIterator<Item = &'a TierServer>,
        settings: MemcachedSettings,
    ) -> Self {
        let addresses = nodes.into_iter().map(address_of);
        Self::at(addresses.collect(), settings)
    }

    pub(crate) fn at(servers: Vec<ServerAddress>, settings: MemcachedSettings) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let settings = MemcachedSettings {
            servers,
            ..settings
        };
        let memcached = Memcached::start(settings, runtime.handle()).expect("a pool");
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let _ = runtime.block_on(stopped);
        });
        Self {
            memcached: Some(memcached),
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Deref for Pool {
    type Target = Memcached;

    fn deref(&self) -> &Memcached {
        self.memcached.as_ref().expect("it runs")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.memcached.take();
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Head and body of a hit; `None` without a usable server.
pub(crate) fn found(got: Result<impl Looked, TierError>) -> Option<(Vec<u8>, Vec<u8>)> {
    got.ok()?.parts()
}

pub(crate) fn is_missing(got: &Result<impl Looked, TierError>) -> bool {
    matches!(got, Ok(got) if got.entry().is_none())
}

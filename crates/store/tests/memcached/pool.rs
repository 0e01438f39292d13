//! A pool as the proxy has it: its tasks run on a thread of their own.

use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_store::memcached::ServerAddress;
use microcache_store::{
    Claim, Content, Entry, EntryId, Got, Memcached, MemcachedSettings, TierError, Token,
};
use tokio::sync::oneshot;

use crate::node::Node;

pub(crate) const LONG: Duration = Duration::from_mins(10);
pub(crate) const HOLD: Duration = Duration::from_secs(30);

/// Nothing is late, however busy the machine is.
pub(crate) fn patient() -> MemcachedSettings {
    MemcachedSettings {
        deadline: Duration::from_secs(20),
        ..quick()
    }
}

/// Servers are lost soon and tried again soon.
pub(crate) fn quick() -> MemcachedSettings {
    MemcachedSettings {
        deadline: Duration::from_millis(250),
        retry_after: Duration::from_millis(50),
        retry_after_max: Duration::from_millis(200),
        check_every: Duration::from_millis(200),
        ..MemcachedSettings::default()
    }
}

pub(crate) struct Pool {
    memcached: Option<Arc<Memcached>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new<'a>(
        nodes: impl IntoIterator<Item = &'a Node>,
        settings: MemcachedSettings,
    ) -> Self {
        let addresses = nodes.into_iter().map(Node::address);
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

pub(crate) fn id(number: usize) -> EntryId {
    EntryId::of(format!("key {number}").as_bytes())
}

pub(crate) fn entry(head: &[u8], body: &[u8]) -> Entry {
    Entry {
        head: Bytes::copy_from_slice(head),
        body: Content::Bytes(Bytes::copy_from_slice(body)),
    }
}

/// What a look came to, of whoever would bring what is missing or not.
pub(crate) trait Looked {
    fn entry(&self) -> Option<&Entry>;
}

impl Looked for Option<Entry> {
    fn entry(&self) -> Option<&Entry> {
        self.as_ref()
    }
}

impl Looked for Got {
    fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::Missing(_) => None,
        }
    }
}

/// Head and body of what was found.
pub(crate) fn found(got: Result<impl Looked, TierError>) -> Option<(Vec<u8>, Vec<u8>)> {
    let got = got.ok()?;
    let entry = got.entry()?;
    let body = entry.body.bytes().expect("in memory");
    Some((entry.head.to_vec(), body.to_vec()))
}

/// The claim of whoever found nothing and is to bring it.
pub(crate) fn mine(got: Result<Got, TierError>) -> Token {
    match got {
        Ok(Got::Missing(Claim::Mine(token))) => token,
        other => panic!("not mine: {other:?}"),
    }
}

pub(crate) fn is_missing(got: &Result<impl Looked, TierError>) -> bool {
    matches!(got, Ok(got) if got.entry().is_none())
}

/// Waits until something is so that nobody tells.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

//! A subscription to the changes of a cache.

use microcache_engine::cache::{
    CacheChange, ChangeKind, Notice, Scope, Subject, WatchTarget, Watcher,
};
use microcache_policy::key::{join_query, url_of};

use crate::cache::Cache;

/// A change in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The kind of change.
    pub kind: EventKind,
    /// The url that changed, or a description of the purge.
    pub subject: String,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A response was stored.
    Stored,
    /// The server has confirmed a stored response.
    Renewed,
    /// Responses were purged.
    Purged,
    /// Events were lost because the subscriber was too slow: its view is out of date.
    Missed,
}

/// A subscription to the changes of a cache. It buffers 256 events; a slower subscriber gets [`EventKind::Missed`]. It
/// keeps the cache alive.
#[derive(Debug)]
pub struct Events {
    watcher: Watcher,
    _cache: Cache,
}

impl Events {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Event {
        match self.watcher.next().await {
            Notice::Changed(change) => Event::of(change),
            Notice::Missed(_) => Event {
                kind: EventKind::Missed,
                subject: String::new(),
            },
        }
    }
}

impl Event {
    fn of(change: CacheChange) -> Self {
        Self {
            kind: match change.kind {
                ChangeKind::Stored => EventKind::Stored,
                ChangeKind::Renewed => EventKind::Renewed,
                ChangeKind::Purged | ChangeKind::Expired => EventKind::Purged,
            },
            subject: match change.subject {
                Subject::Key { key, .. } => url(&key),
                Subject::Scope(scope) => scope.to_string(),
            },
        }
    }
}

fn url(key: &[u8]) -> String {
    let Some((scheme, host, path, query)) = url_of(key) else {
        return String::new();
    };
    let (scheme, host) = (scheme.as_str(), String::from_utf8_lossy(host));
    let target = join_query(path, query);
    format!("{scheme}://{host}{}", String::from_utf8_lossy(&target))
}

impl Cache {
    /// Subscribes to all future changes. `None` if there are too many subscribers.
    pub fn events(&self) -> Option<Events> {
        let everything = WatchTarget::Scope(Scope::Everything);
        let watcher = self.shared.engine.cache.watch(everything).ok()?;
        Some(Events {
            watcher,
            _cache: self.clone(),
        })
    }
}

//! What changes in the cache, for whoever wants to know.

use microcache_engine::cache::{Change, ChangeKind, Notice, Scope, Subject, Watched, Watcher};
use microcache_policy::key::{join_query, url_of};

use crate::cache::Cache;

/// Something has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What has happened.
    pub kind: EventKind,
    /// To what: a url, or what a purge has named, in words.
    pub subject: String,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A response was stored.
    Stored,
    /// The server has confirmed what was stored.
    Renewed,
    /// It is gone.
    Purged,
    /// More has happened than is held for one who listens: what he knows is out of date.
    Missed,
}

/// The changes from now on. At most 256 wait to be read; who is slower is told that some were missed. It holds on to
/// the cache.
#[derive(Debug)]
pub struct Events {
    watcher: Watcher,
    _cache: Cache,
}

impl Events {
    /// Waits for the next one.
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
    fn of(change: Change) -> Self {
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
    /// Tells of everything that is stored, renewed and purged from now on. `None` if too many listen already.
    pub fn events(&self) -> Option<Events> {
        let everything = Watched::Scope(Scope::Everything);
        let watcher = self.shared.engine.cache.watch(everything).ok()?;
        Some(Events {
            watcher,
            _cache: self.clone(),
        })
    }
}

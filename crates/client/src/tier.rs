//! Where responses lie beside memory.

#[cfg(feature = "disk")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "disk")]
use microcache_store::disk::{Disk, DiskSettings};
#[cfg(feature = "memcached")]
use microcache_store::memcached::{Memcached, MemcachedSettings};
#[cfg(feature = "redis")]
use microcache_store::redis::{Redis, RedisSettings};
use microcache_store::{AnyTier, TierLimits, Tiers};
#[cfg(feature = "disk")]
use microcache_store::{Directory, DirectorySettings};
use tokio::runtime::Handle;

use crate::{BuildError, Cache, clock};

/// How often it is looked whether all fetches have ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A place behind memory.
#[derive(Clone, Debug)]
pub struct Tier {
    place: Place,
    timeout: Duration,
}

#[derive(Clone)]
enum Place {
    #[cfg(feature = "disk")]
    Disk { directory: PathBuf, capacity: u64 },
    #[cfg(feature = "disk")]
    Directory { directory: PathBuf, capacity: u64 },
    #[cfg(feature = "memcached")]
    Memcached(Vec<String>),
    #[cfg(feature = "redis")]
    Redis { urls: Vec<String>, cluster: bool },
}

impl Tier {
    /// A directory, which takes so many bytes. It is made if it is missing, and outlives the process. One process
    /// at a time may use it: a second one gets an error from [`Builder::build`](crate::Builder::build).
    ///
    /// It is for one long process with many objects: what is there is known in memory, and large bodies stay in
    /// their files. Several processes, or many short ones, share a [`Tier::directory`].
    #[cfg(feature = "disk")]
    pub fn disk(directory: impl Into<PathBuf>, capacity: u64) -> Self {
        Self::of(Place::Disk {
            directory: directory.into(),
            capacity,
        })
    }

    /// A directory, which takes so many bytes, and which all processes of one user may use at the same time: of
    /// those that want the same url one asks the server, and the others wait for what it brings. It is made if it
    /// is missing. A private cache may use it without a [`partition`](crate::Builder::partition): nobody but its
    /// user can read it, and one that belongs to another user is refused.
    ///
    /// A response lies in one file. A body larger than memory takes ([`Builder::max_object`](crate::Builder::max_object))
    /// is written there while it arrives, and read from there: up to a quarter of the directory, and 1 GiB. What is stale stays as long as there is room, up to 30 days: it may be
    /// confirmed by the server, or be all there is for who is offline. A process should await
    /// [`Cache::settled`] before it ends.
    #[cfg(feature = "disk")]
    pub fn directory(directory: impl Into<PathBuf>, capacity: u64) -> Self {
        Self::of(Place::Directory {
            directory: directory.into(),
            capacity,
        })
    }

    /// A pool of memcached servers: `host:port`, and `host:port:weight` where one has room for more than others.
    #[cfg(feature = "memcached")]
    pub fn memcached(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::of(Place::Memcached(
            servers.into_iter().map(Into::into).collect(),
        ))
    }

    /// Redis or Valkey: `redis://user:password@host:port/database`, `rediss://…` for TLS.
    #[cfg(feature = "redis")]
    pub fn redis(url: impl Into<String>) -> Self {
        Self::of(Place::Redis {
            urls: vec![url.into()],
            cluster: false,
        })
    }

    /// A cluster of them, by the urls of some of its servers.
    #[cfg(feature = "redis")]
    pub fn redis_cluster(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::of(Place::Redis {
            urls: urls.into_iter().map(Into::into).collect(),
            cluster: true,
        })
    }

    /// How long a request waits for it before the server is asked. 50 ms unless said; 250 ms for a
    /// disk, and 2 s for a directory, which may lie on one that is slow.
    #[must_use]
    pub const fn timeout(mut self, most: Duration) -> Self {
        self.timeout = most;
        self
    }

    fn of(place: Place) -> Self {
        let timeout = match &place {
            #[cfg(feature = "disk")]
            Place::Disk { .. } => Duration::from_millis(250),
            #[cfg(feature = "disk")]
            Place::Directory { .. } => Duration::from_secs(2),
            #[cfg(any(feature = "memcached", feature = "redis"))]
            _ => Duration::from_millis(50),
        };
        Self { place, timeout }
    }

    /// Whether others than its user may read what it has.
    pub(crate) const fn is_shared(&self) -> bool {
        match self.place {
            #[cfg(feature = "disk")]
            Place::Disk { .. } | Place::Directory { .. } => false,
            #[cfg(any(feature = "memcached", feature = "redis"))]
            _ => true,
        }
    }

    const fn name(&self) -> &'static str {
        match self.place {
            #[cfg(feature = "disk")]
            Place::Disk { .. } => "disk",
            #[cfg(feature = "disk")]
            Place::Directory { .. } => "directory",
            #[cfg(feature = "memcached")]
            Place::Memcached(_) => "memcached",
            #[cfg(feature = "redis")]
            Place::Redis { .. } => "redis",
        }
    }

    #[cfg_attr(
        not(any(feature = "redis", feature = "disk")),
        expect(clippy::unused_async, reason = "the others open at once")
    )]
    async fn open(&self, object: u64, handle: &Handle) -> Result<AnyTier, crate::BoxError> {
        Ok(match &self.place {
            #[cfg(feature = "disk")]
            Place::Disk {
                directory,
                capacity,
            } => {
                let settings = DiskSettings {
                    read_deadline: self.timeout,
                    ..DiskSettings::new(directory, *capacity)
                };
                AnyTier::Local(Disk::open(settings, handle)?)
            }
            #[cfg(feature = "disk")]
            Place::Directory {
                directory,
                capacity,
            } => {
                let settings = DirectorySettings {
                    read_deadline: self.timeout,
                    // What memory keeps is read into it.
                    in_memory: object,
                    ..DirectorySettings::new(directory, *capacity)
                };
                // It may lie on a disk that hangs.
                let runtime = handle.clone();
                let opened = handle.spawn_blocking(move || Directory::open(settings, &runtime));
                let opened = tokio::time::timeout(self.timeout, opened).await;
                let silent = || format!("{} does not answer", directory.display());
                AnyTier::Shared(opened.map_err(|_| silent())???)
            }
            #[cfg(feature = "memcached")]
            Place::Memcached(servers) => {
                let servers: Result<Vec<_>, _> = servers.iter().map(|one| one.parse()).collect();
                let settings = MemcachedSettings {
                    servers: servers?,
                    deadline: self.timeout,
                    ..MemcachedSettings::default()
                };
                AnyTier::Shared(Memcached::start(settings, handle)?)
            }
            #[cfg(feature = "redis")]
            Place::Redis { urls, cluster } => {
                let settings = RedisSettings {
                    urls: urls.clone(),
                    cluster: *cluster,
                    deadline: self.timeout,
                    ..RedisSettings::default()
                };
                AnyTier::Shared(Redis::start(settings, handle).await?)
            }
        })
    }
}

/// A url may have a password in it.
impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            #[cfg(feature = "disk")]
            Self::Disk { directory, .. } => f.debug_tuple("Disk").field(directory).finish(),
            #[cfg(feature = "disk")]
            Self::Directory { directory, .. } => {
                f.debug_tuple("Directory").field(directory).finish()
            }
            #[cfg(feature = "memcached")]
            Self::Memcached(servers) => f.debug_tuple("Memcached").field(servers).finish(),
            #[cfg(feature = "redis")]
            Self::Redis { urls, .. } => write!(f, "Redis({} urls)", urls.len()),
        }
    }
}

impl Cache {
    /// Waits until all fetches have ended, and the tiers have done what they were asked for so far: what was stored
    /// is there for the next process then, and what was purged is not. How long a process waits for that before it
    /// ends is for it to say.
    pub async fn settled(&self) {
        let cache = Arc::clone(&self.shared.engine.cache);
        let settled = async move {
            // A body may have come to its end, and not be stored yet.
            while cache.fetches() > 0 {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            cache.settle().await;
        };
        if clock::is_here().is_ok() {
            return settled.await;
        }
        // The runtime that it was built on has timers. If that has ended, so has everything.
        let _ = self.shared.runtime.spawn(settled).await;
    }

    /// Why tiers are not, or not fully, in service, such as a full disk: one line each.
    pub fn troubles(&self) -> Vec<String> {
        let reports = self.shared.engine.cache.tier_reports();
        let troubles = reports.into_iter().flat_map(|it| it.stats.degraded);
        troubles.collect()
    }
}

/// Opens them, the nearest first, behind a memory that keeps objects of this size.
pub(crate) async fn open(
    tiers: &[Tier],
    object: u64,
    handle: &Handle,
) -> Result<Tiers, BuildError> {
    let mut opened = Vec::with_capacity(tiers.len());
    for tier in tiers {
        let one = tier
            .open(object, handle)
            .await
            .map_err(|source| BuildError::Tier {
                tier: tier.name(),
                source,
            })?;
        opened.push(one);
    }
    let limits = TierLimits::default();
    // What memory has of a body when it turns out too large for it goes there at once.
    let spool_queue = limits.spool_queue.max(object.saturating_mul(4));
    let limits = TierLimits {
        spool_queue,
        ..limits
    };
    Ok(Tiers::new(opened, limits, handle))
}

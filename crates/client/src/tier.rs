//! Tiers behind memory.

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

use crate::{BuildError, Cache, runtime};

/// The interval of checks for the end of all fetches.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A cache tier behind memory.
#[derive(Clone, Debug)]
pub struct Tier {
    place: TierKind,
    timeout: Duration,
}

#[derive(Clone)]
enum TierKind {
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
    /// A directory for one process at a time, with a capacity in bytes: a second process gets an error from
    /// [`Builder::build`](crate::Builder::build). It is created if missing, and outlives the process.
    ///
    /// It suits one long-running process with many objects: the index is kept in memory, and large bodies stay in their
    /// files. Several processes, or many short-lived ones, share a [`Tier::directory`].
    #[cfg(feature = "disk")]
    pub fn disk(directory: impl Into<PathBuf>, capacity: u64) -> Self {
        Self::of(TierKind::Disk {
            directory: directory.into(),
            capacity,
        })
    }

    /// A directory for all processes of one user, with a capacity in bytes. Concurrent fetches of a url are coalesced
    /// across these processes. It is created if missing. A private cache may use it without a
    /// [`partition`](crate::Builder::partition): it is readable by its user alone, and the directory of another user is
    /// rejected.
    ///
    /// A response is one file. A body larger than the limit of memory
    /// ([`Builder::max_object`](crate::Builder::max_object)) is written to it while it is received, and read from it:
    /// up to a quarter of the directory, and 1 GiB. Stale responses are kept while there is room, up to 30 days, for
    /// revalidation and offline use. A process should await [`Cache::settled`] before it ends.
    #[cfg(feature = "disk")]
    pub fn directory(directory: impl Into<PathBuf>, capacity: u64) -> Self {
        Self::of(TierKind::Directory {
            directory: directory.into(),
            capacity,
        })
    }

    /// A pool of memcached servers: `host:port`, or `host:port:weight` for servers of different sizes.
    #[cfg(feature = "memcached")]
    pub fn memcached(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::of(TierKind::Memcached(
            servers.into_iter().map(Into::into).collect(),
        ))
    }

    /// Redis or Valkey: `redis://user:password@host:port/database`, `rediss://…` for TLS.
    #[cfg(feature = "redis")]
    pub fn redis(url: impl Into<String>) -> Self {
        Self::of(TierKind::Redis {
            urls: vec![url.into()],
            cluster: false,
        })
    }

    /// A Redis cluster, by the urls of some of its servers.
    #[cfg(feature = "redis")]
    pub fn redis_cluster(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::of(TierKind::Redis {
            urls: urls.into_iter().map(Into::into).collect(),
            cluster: true,
        })
    }

    /// Sets the timeout of look-ups, after which a request goes to the server. Default: 50 ms; 250 ms for a disk, and 2
    /// s for a directory, which may be on a slow network file system. Writes may take at least as long.
    #[must_use]
    pub const fn timeout(mut self, most: Duration) -> Self {
        self.timeout = most;
        self
    }

    fn of(place: TierKind) -> Self {
        let timeout = match &place {
            #[cfg(feature = "disk")]
            TierKind::Disk { .. } => Duration::from_millis(250),
            #[cfg(feature = "disk")]
            TierKind::Directory { .. } => Duration::from_secs(2),
            #[cfg(any(feature = "memcached", feature = "redis"))]
            _ => Duration::from_millis(50),
        };
        Self { place, timeout }
    }

    /// Returns true if other users may read it.
    pub(crate) const fn is_shared(&self) -> bool {
        match self.place {
            #[cfg(feature = "disk")]
            TierKind::Disk { .. } | TierKind::Directory { .. } => false,
            #[cfg(any(feature = "memcached", feature = "redis"))]
            _ => true,
        }
    }

    const fn name(&self) -> &'static str {
        match self.place {
            #[cfg(feature = "disk")]
            TierKind::Disk { .. } => "disk",
            #[cfg(feature = "disk")]
            TierKind::Directory { .. } => "directory",
            #[cfg(feature = "memcached")]
            TierKind::Memcached(_) => "memcached",
            #[cfg(feature = "redis")]
            TierKind::Redis { .. } => "redis",
        }
    }

    #[cfg_attr(
        not(any(feature = "redis", feature = "disk")),
        expect(clippy::unused_async, reason = "the others open at once")
    )]
    async fn open(&self, object: u64, handle: &Handle) -> Result<AnyTier, crate::BoxError> {
        Ok(match &self.place {
            #[cfg(feature = "disk")]
            TierKind::Disk {
                directory,
                capacity,
            } => {
                let defaults = DiskSettings::new(directory, *capacity);
                let settings = DiskSettings {
                    read_deadline: self.timeout,
                    write_deadline: defaults.write_deadline.max(self.timeout),
                    ..defaults
                };
                AnyTier::Local(Disk::open(settings, handle)?)
            }
            #[cfg(feature = "disk")]
            TierKind::Directory {
                directory,
                capacity,
            } => {
                let defaults = DirectorySettings::new(directory, *capacity);
                let settings = DirectorySettings {
                    read_deadline: self.timeout,
                    write_deadline: defaults.write_deadline.max(self.timeout),
                    // Objects of this size are read into memory.
                    in_memory: object,
                    ..defaults
                };
                // Opened on another thread, since the disk may hang.
                let runtime = handle.clone();
                let opened = handle.spawn_blocking(move || Directory::open(settings, &runtime));
                let opened = tokio::time::timeout(self.timeout, opened).await;
                let silent = || format!("{} does not answer", directory.display());
                AnyTier::Shared(opened.map_err(|_| silent())???)
            }
            #[cfg(feature = "memcached")]
            TierKind::Memcached(servers) => {
                let servers: Result<Vec<_>, _> = servers.iter().map(|one| one.parse()).collect();
                let settings = MemcachedSettings {
                    servers: servers?,
                    deadline: self.timeout,
                    ..MemcachedSettings::default()
                };
                AnyTier::Shared(Memcached::start(settings, handle)?)
            }
            #[cfg(feature = "redis")]
            TierKind::Redis { urls, cluster } => {
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

/// Hides passwords in urls.
impl std::fmt::Debug for TierKind {
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
    /// Waits until all fetches have ended and the tiers have completed their queues: the next process then finds the
    /// stored responses, and purges apply. It has no timeout of its own.
    pub async fn settled(&self) {
        let cache = Arc::clone(&self.shared.engine.cache);
        let settled = async move {
            // A complete body may not be stored yet.
            while cache.fetches() > 0 {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            cache.settle().await;
        };
        if runtime::check().is_ok() {
            return settled.await;
        }
        // Runs on the runtime of the cache, which has timers. If that has ended, so have all fetches.
        let _ = self.shared.runtime.spawn(settled).await;
    }

    /// The errors that degrade tiers, such as a full disk: one line each.
    pub fn troubles(&self) -> Vec<String> {
        let reports = self.shared.engine.cache.tier_reports();
        let troubles = reports.into_iter().flat_map(|it| it.stats.degraded);
        troubles.collect()
    }
}

/// Opens the tiers, the nearest first, behind a memory that keeps objects up to this size.
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
    // The part of a body in memory is queued at once when it exceeds the limit of memory.
    let spool_queue = limits.spool_queue.max(object.saturating_mul(4));
    let limits = TierLimits {
        spool_queue,
        ..limits
    };
    Ok(Tiers::new(opened, limits, handle))
}

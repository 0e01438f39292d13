//! The configuration of a cache.

use std::sync::Arc;
use std::time::Duration;

use microcache_engine::flight::FlightLimits;
use microcache_engine::{Clients, Engine, Settings};
use microcache_policy::{Millis, Reload, Rules};
use microcache_store::{MemoryLimits, Tiers};
use tokio::runtime::Handle;

use crate::cache::{Cache, CacheInner, only_route};
use crate::request::{KEY_FIELD, millis};
use crate::runtime::{self, RuntimeError};
#[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
use crate::tier::{self, Tier};

/// Default memory, in bytes.
const MEMORY: u64 = 64 << 20;
/// Minimum memory, in bytes: the index needs some of it.
const LEAST_MEMORY: u64 = 64 << 10;
/// Minimum of the bytes buffered for slow readers of bodies that are being received.
const LEAST_FILLING: u64 = 1 << 20;
const MOST_FILLING: u64 = 64 << 20;
/// Maximum number of variants of a url. The least recently used one is evicted.
const VARIANTS: usize = 16;
/// Maximum number of concurrent fetches and coalesced requests. Requests above it go to the server themselves.
const FETCHES: usize = 64 * 1024;

/// Configures a [`Cache`]. Every setter replaces the previous value.
#[derive(Debug)]
pub struct Builder {
    rules: Rules,
    memory: u64,
    max_object: Option<u64>,
    fill_timeout: Millis,
    wait_timeout: Millis,
    slow_reader_timeout: Millis,
    #[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
    tiers: Vec<Tier>,
}

/// The error of [`Builder::build`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The memory is too small to store anything.
    #[error("memory: {given} bytes are too few for a cache: set at least {LEAST_MEMORY}")]
    Memory {
        /// The given memory, in bytes.
        given: u64,
    },
    /// The heuristic is above 100 percent.
    #[error("heuristic: {0} percent is invalid: set at most 100")]
    Heuristic(u8),
    /// A private cache would expose its user's responses to others that share a tier.
    #[error(
        "a private cache with a shared tier needs an owner: set `partition`, or make the cache `shared`"
    )]
    NoPartition,
    /// A shared cache cannot have a partition.
    #[error(
        "partition: not supported in a shared cache; make it `private`, or add the partition to the `key` of requests"
    )]
    PartitionOfShared,
    /// There is no tokio runtime, which tiers need.
    #[error("a cache must be built inside a tokio runtime: await `build` there")]
    NoRuntime,
    /// The runtime has no timers, which timeouts need.
    #[error("the tokio runtime has no timers: call `enable_time` or `enable_all` on its `Builder`")]
    NoTimers,
    /// A tier cannot be used.
    #[error("{tier}: {source}")]
    Tier {
        /// The name of the tier.
        tier: &'static str,
        /// The cause.
        source: crate::BoxError,
    },
}

impl Cache {
    /// A private cache for one user (RFC 9111 §1), the usual choice in a client. It stores responses marked `private`,
    /// and separates them by `Authorization`; cookies do not separate users.
    pub fn private() -> Builder {
        Builder::private()
    }

    /// A shared cache, for services that fetch on behalf of many users. Responses marked `private`, and those to
    /// requests with credentials, are stored only if the server marks them as shareable.
    pub fn shared() -> Builder {
        Builder::shared()
    }
}

impl Builder {
    pub(crate) fn private() -> Self {
        Self::with(Rules::private())
    }

    pub(crate) fn shared() -> Self {
        Self::with(Rules {
            // The caller is the user itself: it may reload, and accept stale responses.
            reload: Reload::Honour,
            obeys_client: true,
            ..Rules::default()
        })
    }

    fn with(mut rules: Rules) -> Self {
        rules.key.headers = vec![KEY_FIELD.to_owned()];
        Self {
            rules,
            memory: MEMORY,
            max_object: None,
            fill_timeout: 60_000,
            wait_timeout: 10_000,
            slow_reader_timeout: 30_000,
            #[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
            tiers: Vec::new(),
        }
    }

    /// Sets the memory of the cache in bytes, index included. Default: 64 MiB.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the maximum size in bytes of a body that is kept in memory. Default: an eighth of the memory.
    #[must_use]
    pub const fn max_object(mut self, bytes: u64) -> Self {
        self.max_object = Some(bytes);
        self
    }

    /// Adds a tier behind memory. The nearest comes first.
    #[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
    #[must_use]
    pub fn tier(mut self, tier: Tier) -> Self {
        self.tiers.push(tier);
        self
    }

    /// Sets the window for serving a stale response during its revalidation, for responses without a
    /// `stale-while-revalidate`. Default: zero in a private cache, 10 s in a shared one.
    #[must_use]
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.rules.stale_while_revalidate = millis(window);
        self
    }

    /// Sets the window for serving a stale response when the server fails, for responses without a `stale-if-error`.
    /// Default: zero in a private cache, one day in a shared one.
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.rules.stale_if_error = millis(window);
        self
    }

    /// Sets the heuristic freshness of responses without a lifetime, in percent of the time since their last
    /// modification (RFC 9111 §4.2.2). 0 turns it off. Default: 10 in a private cache, off in a shared one.
    #[must_use]
    pub const fn heuristic(mut self, percent: u8) -> Self {
        self.rules.heuristic = if percent == 0 { None } else { Some(percent) };
        self
    }

    /// Sets the freshness lifetime of responses without an explicit or heuristic one. Default: zero in a private cache,
    /// 1 s in a shared one.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rules.ttl = millis(ttl);
        self
    }

    /// Sets the partition of a private cache that shares a tier with others. It is part of every key.
    #[must_use]
    pub fn partition(mut self, whose: impl Into<Vec<u8>>) -> Self {
        self.rules.key.partition = whose.into();
        self
    }

    /// Sets the maximum time in which a body must arrive to be stored. Default: one minute.
    #[must_use]
    pub fn fill_timeout(mut self, most: Duration) -> Self {
        self.fill_timeout = millis(most);
        self
    }

    /// Sets the maximum time for which a request waits for a coalesced fetch before it goes to the server itself.
    /// Default: 10 s. It should be shorter than the timeouts around the cache, so that one hanging connection does not
    /// fail the requests behind it.
    #[must_use]
    pub fn wait_timeout(mut self, most: Duration) -> Self {
        self.wait_timeout = millis(most);
        self
    }

    /// Sets the maximum time for which a slow reader may block other readers of a body that is too large to be stored.
    /// They share one fetch, which is at most 1 MiB ahead of the slowest reader. If the others are blocked for this
    /// time, and a reader has taken less than 128 KiB meanwhile, its body ends with an error. Default: 30 s;
    /// [`Duration::MAX`] turns it off. A sole reader is never cut off.
    #[must_use]
    pub fn slow_reader_timeout(mut self, most: Duration) -> Self {
        self.slow_reader_timeout = millis(most);
        self
    }

    /// Opens the tiers and builds the cache. Fails with a [`BuildError`] if a setting is invalid, a tier cannot be
    /// opened, or the runtime has no timers.
    pub async fn build(self) -> Result<Cache, BuildError> {
        let is_private = self.rules.kind == microcache_policy::CacheKind::Private;
        runtime::check().map_err(|missing| match missing {
            RuntimeError::NoRuntime => BuildError::NoRuntime,
            RuntimeError::NoTimers => BuildError::NoTimers,
        })?;
        let handle = Handle::current();
        if self.memory < LEAST_MEMORY {
            return Err(BuildError::Memory { given: self.memory });
        }
        if let Some(percent) = self.rules.heuristic.filter(|&percent| percent > 100) {
            return Err(BuildError::Heuristic(percent));
        }
        if !is_private && !self.rules.key.partition.is_empty() {
            return Err(BuildError::PartitionOfShared);
        }
        let settings = self.settings();
        let tiers = self.open_tiers(is_private, &handle).await?;
        // Each layer has a route of its own.
        let engine = Engine::new(settings, Vec::new(), Arc::new(only_route), tiers);
        let shared = CacheInner::start(engine, settings, self.rules, &handle).await;
        Ok(Cache::new(Arc::new(shared)))
    }

    fn object(&self) -> u64 {
        self.max_object.unwrap_or(self.memory / 8)
    }

    fn settings(&self) -> Settings {
        Settings {
            clients: Clients::Program,
            memory: MemoryLimits {
                capacity: self.memory,
                object: self.object(),
                variants: VARIANTS,
            },
            fill_memory: (self.memory / 4).clamp(LEAST_FILLING, MOST_FILLING),
            slow_reader_timeout: self.slow_reader_timeout,
            fill_timeout: self.fill_timeout,
            flights: FlightLimits::of_one(FETCHES, FETCHES),
            hit_for_miss: 2_000,
            remember_too_large: 60_000,
            refresh_pause: 1_000,
            stale_wait: 0,
            wait_timeout: self.wait_timeout,
            compress_queue: 0,
        }
    }

    #[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
    async fn open_tiers(&self, is_private: bool, handle: &Handle) -> Result<Tiers, BuildError> {
        let has_shared = self.tiers.iter().any(Tier::is_shared);
        if is_private && has_shared && self.rules.key.partition.is_empty() {
            return Err(BuildError::NoPartition);
        }
        tier::open(&self.tiers, self.object(), handle).await
    }

    #[cfg(not(any(feature = "disk", feature = "memcached", feature = "redis")))]
    #[expect(clippy::unused_async, reason = "there are none to open")]
    async fn open_tiers(&self, _is_private: bool, _handle: &Handle) -> Result<Tiers, BuildError> {
        Ok(Tiers::default())
    }
}

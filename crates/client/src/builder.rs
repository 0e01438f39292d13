//! What a cache is made of.

use std::sync::Arc;
use std::time::Duration;

use microcache_engine::flight::FlightLimits;
use microcache_engine::{Clients, Engine, Settings};
use microcache_policy::{Millis, Reload, Rules};
use microcache_store::{MemoryLimits, Tiers};
use tokio::runtime::Handle;

use crate::cache::{Cache, Shared, only_route};
use crate::clock::{self, Missing};
use crate::request::{KEY_FIELD, millis};
#[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
use crate::tier::{self, Tier};

/// What memory takes where nobody says otherwise.
const MEMORY: u64 = 64 << 20;
/// The least that is of use: a table for keys needs some of it.
const LEAST_MEMORY: u64 = 64 << 10;
/// Bytes of bodies under way that are held for those who read them slowly.
const LEAST_FILLING: u64 = 1 << 20;
const MOST_FILLING: u64 = 64 << 20;
/// Responses to one url that are told apart by `Vary`. The one that was used least recently leaves for a new one.
const VARIANTS: usize = 16;
/// Fetches, and those who wait for somebody else's, at a time. One more goes by itself.
const FETCHES: usize = 64 * 1024;

/// What a cache is to be like. Every setter replaces what was set before.
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

/// Why a cache was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is too little memory to keep anything.
    #[error("memory: {given} bytes are too few for a cache: give it {LEAST_MEMORY} at least")]
    Memory {
        /// What was given.
        given: u64,
    },
    /// A percentage is none.
    #[error(
        "heuristic: {0} percent of a time that has passed are more than all of it: give 100 at most"
    )]
    Heuristic(u8),
    /// Who shares a tier with a private cache would be given what is its user's.
    #[error(
        "a private cache shares a tier with others: name whose it is by `partition`, or make it `shared`"
    )]
    NoPartition,
    /// A partition was named where everybody shares.
    #[error(
        "partition: a shared cache has none; make it `private`, or put the partition into the `key` of requests"
    )]
    PartitionOfShared,
    /// There is no runtime to keep the tiers going.
    #[error("a cache is built inside a tokio runtime: await `build` there")]
    NoRuntime,
    /// The runtime has no timers, and nobody can wait for a time there.
    #[error(
        "the tokio runtime has no timers: call `enable_time` or `enable_all` on the `Builder` that makes it"
    )]
    NoTimers,
    /// A tier cannot be used.
    #[error("{tier}: {source}")]
    Tier {
        /// Which.
        tier: &'static str,
        /// Why.
        source: crate::BoxError,
    },
}

impl Builder {
    pub(crate) fn private() -> Self {
        Self::with(Rules::private())
    }

    pub(crate) fn shared() -> Self {
        Self::with(Rules {
            // Who asks is the program itself: it may reload, and take what is stale.
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

    /// What memory may take, in bytes, with all that is needed to find it again. 64 MiB unless said.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// The largest body that is kept in memory. An eighth of all memory unless said.
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

    /// How long a stale response is used while it is refreshed, where the response does not say so
    /// (`stale-while-revalidate`). Nothing in a private cache unless said; 10 s in a shared one.
    #[must_use]
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.rules.stale_while_revalidate = millis(window);
        self
    }

    /// How long a stale response is used when the server fails, where the response does not say so
    /// (`stale-if-error`). Nothing in a private cache unless said; a day in a shared one.
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.rules.stale_if_error = millis(window);
        self
    }

    /// How long a response is fresh that says nothing of it: so many percent of the time since it was modified
    /// (RFC 9111 §4.2.2). 10 in a private cache unless said, 0 is never; not used in a shared one unless said.
    #[must_use]
    pub const fn heuristic(mut self, percent: u8) -> Self {
        self.rules.heuristic = if percent == 0 { None } else { Some(percent) };
        self
    }

    /// How long a response is fresh that says nothing of it, and of which nothing can be guessed. Nothing in a
    /// private cache unless said; 1 s in a shared one.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rules.ttl = millis(ttl);
        self
    }

    /// Whose cache it is, where several private ones share a tier. It is part of every key.
    #[must_use]
    pub fn partition(mut self, whose: impl Into<Vec<u8>>) -> Self {
        self.rules.key.partition = whose.into();
        self
    }

    /// How long a body may take to arrive and still be stored. One minute unless said.
    #[must_use]
    pub fn fill_timeout(mut self, most: Duration) -> Self {
        self.fill_timeout = millis(most);
        self
    }

    /// How long a request waits for somebody else's fetch of the same, before it goes to the server by itself. Ten
    /// seconds unless said. Make it shorter than the time-outs that you have around the cache: then one connection
    /// that hangs does not fail those who come after it.
    #[must_use]
    pub fn wait_timeout(mut self, most: Duration) -> Self {
        self.wait_timeout = millis(most);
        self
    }

    /// How long one who reads slowly may hold up others who share a body that is too large to be kept. They all read
    /// what one fetch brings, and it can be no more than 1 MiB ahead of the slowest: when others have had to wait for
    /// so long, and one of them has taken less than 128 KiB meanwhile, his body ends with an error and theirs goes on.
    /// 30 s unless said; [`Duration::MAX`] is never. Who reads a body alone is never hurried.
    #[must_use]
    pub fn slow_reader_timeout(mut self, most: Duration) -> Self {
        self.slow_reader_timeout = millis(most);
        self
    }

    /// Opens the tiers and makes the cache.
    pub async fn build(self) -> Result<Cache, BuildError> {
        let is_private = self.rules.kind == microcache_policy::CacheKind::Private;
        clock::is_here().map_err(|missing| match missing {
            Missing::Runtime => BuildError::NoRuntime,
            Missing::Timers => BuildError::NoTimers,
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
        // Layers bring routes of their own.
        let engine = Engine::new(settings, Vec::new(), Box::new(only_route), tiers);
        let shared = Shared::start(engine, settings, self.rules, &handle).await;
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

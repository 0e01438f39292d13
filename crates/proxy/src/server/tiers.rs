//! The tiers behind memory, started as the configuration says.

use microcache_store::disk::{Disk, DiskError, DiskSettings};
use microcache_store::memcached::{
    ApplicationPages, InvalidSettings, Memcached, MemcachedSettings,
};
use microcache_store::redis::{Redis, RedisSettings, RedisStartError};
use microcache_store::{AnyTier, TierLimits, Tiers};
use tokio::runtime::Handle;

use crate::admission::descriptors;
use crate::config::Config;
use crate::observe::{Kind, Notices};

/// Part of the write queue for one body. A body found too large for memory is queued at once with all that
/// has arrived, and may occupy half of the queue.
const LARGEST_IN_QUEUE: u64 = 4;

/// Reason for which a tier does not start. A server that is out of reach is none.
#[derive(Debug, thiserror::Error)]
pub enum TierStartError {
    /// The disk.
    #[error("disk: {0}")]
    Disk(#[from] DiskError),
    /// The memcached pool.
    #[error("memcached: {0}")]
    Memcached(#[from] InvalidSettings),
    /// Redis.
    #[error("redis: {0}")]
    Redis(#[from] RedisStartError),
    /// The previous process did not release the directory.
    #[error("disk: {0}")]
    Handover(std::io::Error),
    /// A configured file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the system.
        error: std::io::Error,
    },
}

/// Starts the tiers, the nearest first. Their background tasks run on `background`.
pub(super) async fn start(
    config: &Config,
    background: &Handle,
    notices: &Notices,
) -> Result<Tiers, TierStartError> {
    let limits = limits(config);
    let config = &config.tiers;
    let mut tiers: Vec<AnyTier> = Vec::new();
    if let Some((directory, capacity)) = &config.disk {
        let usual = DiskSettings::new(directory, *capacity);
        let settings = DiskSettings {
            max_object: config.disk_max_object.unwrap_or(usual.max_object),
            max_files: config.disk_max_files,
            inline: config.disk_lift,
            open_files: descriptors::for_files(),
            ..usual
        };
        let disk = Disk::open(settings, background)?;
        if let Some(size) = disk.file_system_too_small() {
            let (directory, size) = (directory.display(), size >> 20);
            let line = format!(
                "disk: {directory} is on a file system of {size} MiB, less than the configured {} MiB: lower the \
                 capacity, or nothing can be stored once the file system is full",
                capacity >> 20
            );
            notices.say(Kind::DiskTooSmall, "disk", line);
        }
        tiers.push(AnyTier::Local(disk));
    }
    if !config.memcached.is_empty() {
        let settings = MemcachedSettings {
            servers: config.memcached.clone(),
            deadline: config.memcached_timeout,
            max_object: config.memcached_max_object,
            pages: config.memcached_pages.clone().map(|key| ApplicationPages {
                key,
                default_type: config.memcached_pages_type.clone(),
            }),
            ..MemcachedSettings::default()
        };
        tiers.push(AnyTier::Shared(Memcached::start(settings, background)?));
    }
    if !config.redis.is_empty() {
        let authorities = match &config.redis_ca {
            None => None,
            Some(path) => Some(std::fs::read(path).map_err(|error| TierStartError::File {
                path: path.display().to_string(),
                error,
            })?),
        };
        let settings = RedisSettings {
            urls: config.redis.clone(),
            cluster: config.redis_cluster,
            authorities,
            deadline: config.redis_timeout,
            max_object: config.redis_max_object,
            ..RedisSettings::default()
        };
        tiers.push(AnyTier::Shared(Redis::start(settings, background).await?));
    }
    Ok(Tiers::new(tiers, limits, background))
}

fn limits(config: &Config) -> TierLimits {
    let usual = TierLimits::default();
    let of_largest = || LARGEST_IN_QUEUE * config.largest_in_memory();
    TierLimits {
        claim: config.tiers.claim_timeout,
        queue: config.tiers.queue,
        spool_queue: config
            .tiers
            .disk_queue
            .unwrap_or_else(|| of_largest().max(usual.spool_queue)),
    }
}

//! Connections of a node to Redis.

use std::time::Duration;

use microcache_store::redis::{DedicatedConnection, RedisSettings, RedisStartError};

use crate::settings::FleetSettings;

/// Limit of concurrent write requests.
pub(super) const MAX_CONCURRENT: usize = 1024;
/// Deadline of a Redis reply.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Deadline of a read of the stream, which Redis may block.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Target of log messages for the operator.
pub(super) const TARGET: &str = "microcache";

impl FleetSettings {
    /// Returns the settings of one pipelined connection.
    fn redis(&self) -> RedisSettings {
        RedisSettings {
            urls: self.urls.clone(),
            cluster: self.cluster,
            authorities: self.authorities.clone(),
            connections: 1,
            max_failures: 1,
            max_in_flight: MAX_CONCURRENT,
            // A ping may wait for a blocking read.
            write_deadline: READ_TIMEOUT,
            retry_after: Duration::from_millis(500),
            ..RedisSettings::default()
        }
    }
}

/// A connection to Redis, with the keys of the documents.
pub(super) struct FleetConnection {
    pub(super) line: DedicatedConnection,
    pub(super) documents: String,
    pub(super) changes: String,
    /// Key of the earlier versions.
    pub(super) history: String,
}

impl FleetConnection {
    /// Starts three of them, with one user and password.
    pub(super) async fn start_three(
        settings: &FleetSettings,
    ) -> Result<[Self; 3], RedisStartError> {
        const NAME: &[u8] = b"documents that are pushed";
        let lines = DedicatedConnection::start_three(settings.redis(), NAME).await?;
        Ok(lines.map(|line| Self {
            documents: line.key("mcd1"),
            changes: line.key("mcd1c"),
            history: line.key("mcd1h"),
            line,
        }))
    }

    pub(super) fn keys(&self) -> [String; 3] {
        let keys = [&self.documents, &self.changes, &self.history];
        keys.map(String::clone)
    }
}

/// Returns the additional time to transfer this many bytes.
pub(super) const fn transfer_time(bytes: u64) -> Duration {
    const EACH_SECOND: u64 = 16 * 1024 * 1024;
    Duration::from_secs(bytes / EACH_SECOND)
}

//! Connections of a node to Redis.

use std::time::Duration;

use bytes::Bytes;
use microcache_store::redis::{
    DedicatedConnection, NoReply, RedisSettings, RedisStartError, cmd, from_redis_value,
};

use crate::settings::FleetSettings;

/// Limit of concurrent write requests.
pub(crate) const MAX_CONCURRENT: usize = 1024;
/// Deadline of a Redis reply.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Deadline of a read of the stream, which Redis may block.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which Redis blocks a read if nothing changes (`XREAD BLOCK`).
pub(crate) const BLOCK: Duration = Duration::from_secs(1);
/// Pause after a failure.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// Target of log messages for the operator.
pub(crate) const TARGET: &str = "microcache";
/// Initial and maximal `COUNT` of a scan; it is adapted to the size of the values.
const MIN_COUNT: usize = 16;
const MAX_COUNT: usize = 1000;
/// Target size of a scan reply, in bytes.
const PAGE_BYTES: usize = 1024 * 1024;

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

/// A connection to Redis, with the keys of the documents and of the Mercure hub.
pub(crate) struct FleetConnection {
    pub(crate) line: DedicatedConnection,
    pub(crate) documents: String,
    pub(crate) changes: String,
    /// Key of the earlier versions.
    pub(crate) history: String,
    /// Keys of the hub's updates, its presence events, its subscriptions, and the nodes that have some.
    pub(crate) hub: [String; 4],
}

impl FleetConnection {
    /// Starts three of them, with one user and password.
    pub(crate) async fn start_three(
        settings: &FleetSettings,
    ) -> Result<[Self; 3], RedisStartError> {
        const NAME: &[u8] = b"documents that are pushed";
        let lines = DedicatedConnection::start_three(settings.redis(), NAME).await?;
        Ok(lines.map(|line| Self {
            documents: line.key("mcd1"),
            changes: line.key("mcd1c"),
            history: line.key("mcd1h"),
            hub: ["mcd1u", "mcd1p", "mcd1s", "mcd1n"].map(|key| line.key(key)),
            line,
        }))
    }

    pub(crate) fn keys(&self) -> [String; 3] {
        let keys = [&self.documents, &self.changes, &self.history];
        keys.map(String::clone)
    }

    /// Iterates over a hash (`HSCAN`), with a deadline for each reply.
    pub(crate) async fn scan(
        &self,
        key: &str,
        time_limit: Duration,
        mut add: impl FnMut(&[u8], Bytes),
    ) -> Result<(), NoReply> {
        let (mut cursor, mut count) = (0_u64, MIN_COUNT);
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(key).arg(cursor);
            scan.arg("COUNT").arg(count);
            let reply = self.line.request(&scan, time_limit).await?;
            let (next, fields): (u64, Vec<Vec<u8>>) =
                from_redis_value(reply).map_err(|_| NoReply::Unreadable)?;
            let (mut bytes, mut found) = (0, 0);
            let mut fields = fields.into_iter();
            while let (Some(name), Some(record)) = (fields.next(), fields.next()) {
                found += 1;
                bytes += record.len();
                add(&name, record.into());
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
            let each = (bytes / found.max(1)).max(1);
            count = (PAGE_BYTES / each).clamp(1, MAX_COUNT);
        }
    }
}

/// Returns the additional time to transfer this many bytes.
pub(crate) const fn transfer_time(bytes: u64) -> Duration {
    const EACH_SECOND: u64 = 16 * 1024 * 1024;
    Duration::from_secs(bytes / EACH_SECOND)
}

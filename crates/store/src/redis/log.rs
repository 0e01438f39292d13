//! The log that processes share: a stream under a key of its own.
//!
//! Positions are the server's time in microseconds, or one more than the last where that is more, so that
//! they grow and none is given twice, whatever is lost. Whoever reads on asks for the record it has read last as well: if that
//! is not there, the log is another one, or was shortened too far, and something is missing. That
//! also shows when a replica has taken the place of a master before it had everything.
//!
//! It is read every now and then, and nobody waits on a subscription: that would need a connection of its
//! own to each server, and the same reading in case a message is lost.

use bytes::Bytes;
use redis::Value;
use tokio::time::Instant;

use super::Connected;
use super::node::Fault;
use super::record::log_key;
use crate::tier::{EntryId, LogPage, TierError};

/// So many records the log keeps, about.
const LENGTH: u64 = 64 * 1024;
/// So many are read at once.
const PAGE: usize = 512;

/// Adds records. Arguments: how many to keep, what a new log begins with, the records.
const APPEND: &str = "\
    local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1] \
    local position = last and tonumber(string.match(last[1], '^%d+')) or 0 \
    local now = redis.call('TIME') \
    local function add(record) \
      position = math.max(position + 1, now[1] * 1000000 + now[2]) \
      redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], string.format('%.0f-0', position), 'r', record) \
    end \
    if not last then add(ARGV[2]) end \
    for i = 3, #ARGV do add(ARGV[i]) end \
    return 1";

/// It has a place among the servers of a cluster as records have.
fn log_id() -> EntryId {
    EntryId::of(b"the log that processes share")
}

impl Connected {
    pub(super) async fn append_to_log(
        &self,
        records: &[Bytes],
        beginning: &Bytes,
    ) -> Result<(), TierError> {
        let mut append = redis::cmd("EVAL");
        append.arg(APPEND).arg(1).arg(log_key(log_id()));
        append.arg(LENGTH).arg(&beginning[..]);
        for record in records {
            append.arg(&record[..]);
        }
        self.ask_log(&append).await.map(drop)
    }

    pub(super) async fn read_log(
        &self,
        after: u64,
        beginning: &Bytes,
    ) -> Result<LogPage, TierError> {
        if after > 0 {
            let mut records = self.log_from(Some(after)).await?;
            if records.first().is_some_and(|(first, _)| *first == after) {
                let has_more = records.len() > PAGE;
                records.remove(0);
                return Ok(LogPage {
                    records,
                    is_gapless: true,
                    has_more,
                    is_held_up: false,
                });
            }
        }
        let mut records = self.log_from(None).await?;
        if records.is_empty() {
            self.append_to_log(&[], beginning).await?;
            records = self.log_from(None).await?;
        }
        let has_more = records.len() > PAGE;
        Ok(LogPage {
            records,
            is_gapless: false,
            has_more,
            is_held_up: false,
        })
    }

    /// The records from a position on, it included, or from the oldest on.
    async fn log_from(&self, position: Option<u64>) -> Result<Vec<(u64, Bytes)>, TierError> {
        let mut range = redis::cmd("XRANGE");
        range.arg(log_key(log_id()));
        match position {
            Some(position) => range.arg(format!("{position}-0")),
            None => range.arg("-"),
        };
        range.arg("+").arg("COUNT").arg(PAGE + 1);
        let Value::Array(entries) = self.ask_log(&range).await? else {
            return Err(unreadable());
        };
        entries
            .into_iter()
            .map(|entry| record(entry).ok_or_else(unreadable))
            .collect()
    }

    /// A removal of everything that is still to be delivered leaves the log where it is, so it is not
    /// waited for.
    async fn ask_log(&self, command: &redis::Cmd) -> Result<Value, TierError> {
        let deadline = Instant::now() + self.settings.write_deadline;
        let place = self.in_flight.try_acquire().map_err(|_| Fault::Full);
        let _place = place.map_err(TierError::from)?;
        let reply = self.servers.send(log_id(), command, deadline).await;
        reply.map_err(TierError::from)
    }
}

fn unreadable() -> TierError {
    TierError::Failed("the log of purges is something else: delete its key".to_owned())
}

/// An entry of the stream: its id, and its one field.
fn record(entry: Value) -> Option<(u64, Bytes)> {
    let (id, [_, record]): (String, [Vec<u8>; 2]) = redis::from_redis_value(entry).ok()?;
    let position = id.strip_suffix("-0")?.parse().ok()?;
    Some((position, Bytes::from(record)))
}

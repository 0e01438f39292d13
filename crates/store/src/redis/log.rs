//! Shared purge log: a stream with its own key.
//!
//! The id of an entry is `LOG-COUNT`: a random number chosen when the log was started, and the server's time
//! in milliseconds, or the previous count plus one if that is greater. Positions thus increase within a log,
//! none is reused after a failover to a lagging replica, and positions of two logs are unordered. A reader
//! requests its last record again: if it is missing, the log was replaced or trimmed, and a gap is reported.
//!
//! A foreign entry would block readers, or, with an id beyond ours, writers. It is replaced by a new log,
//! which readers treat as a lost one.
//!
//! What is appended is announced, so that readers look at once ([`crate::announcements`]). They poll the log as well:
//! an announcement may be lost.

use bytes::Bytes;
use redis::Value;

use super::RedisInner;
use super::node::CommandError;
use super::record::{log_id, log_key};
use crate::tier::{LogPage, TierError, count_in_log, log_number, log_of, new_log, position};

/// Approximate length of the log, in records.
const LENGTH: u64 = 64 * 1024;
/// Maximum of records per read.
const PAGE: usize = 512;
/// Attempts to replace an unreadable log.
const ATTEMPTS: usize = 3;

/// Common part of the scripts: `begin` starts a new log, and `announce` reports records. Arguments: length of
/// the log, number of a new log, its first record, and the channel for announcements.
const BEGIN: &str = "\
    local function add(log, count, record) \
      local id = log .. '-' .. string.format('%.0f', count) \
      return redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], id, 'r', record) \
    end \
    local function begin() \
      redis.call('DEL', KEYS[1]) \
      add(ARGV[2], 1, ARGV[3]) \
      return ARGV[2], 1 \
    end \
    local function announce() \
      redis.pcall('PUBLISH', ARGV[4], '') \
      return 1 \
    end ";

/// Appends the further arguments as records. A stream that does not end with a valid entry is replaced. A
/// server at its `maxmemory` lets only scripts that have written go on writing: hence the first command, on a
/// key that does not exist, and that a server whose slot moves may refuse. A refused record would look like one that the
/// stream cannot take.
const APPEND: &str = "\
    redis.pcall('DEL', KEYS[1] .. ':none') \
    local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1] \
    local log, count \
    if last then \
      log, count = string.match(last[1], '^(%d+)-(%d+)$') \
      count = tonumber(count) \
      local is_ours = #last[2] == 2 and last[2][1] == 'r' and \
        tonumber(log) > 0 and tonumber(log) < 2^22 and count > 0 and count < 2^42 - 2^16 \
      if not is_ours then last = nil end \
    end \
    if not last then log, count = begin() end \
    local time = redis.call('TIME') \
    local now = time[1] * 1000 + math.floor(time[2] / 1000) \
    for i = 5, #ARGV do \
      count = count + 1 \
      if now > count and now < 2^42 - 2^16 then count = now end \
      local added = add(log, count, ARGV[i]) \
      if type(added) == 'table' and added.err then \
        log, count = begin() \
        count = count + 1 \
        add(log, count, ARGV[i]) \
      end \
    end \
    return announce()";

/// Starts a new log if this unreadable entry still exists.
const REPLACE: &str = "\
    if #redis.call('XRANGE', KEYS[1], ARGV[5], ARGV[5]) > 0 then begin() end \
    return announce()";

/// Entries read from the stream.
enum LogEntries {
    Readable(Vec<(u64, Bytes)>),
    /// A foreign entry, with its id.
    Odd(String),
}

impl RedisInner {
    pub(super) async fn append_to_log(
        &self,
        records: &[Bytes],
        beginning: &Bytes,
    ) -> Result<(), TierError> {
        let mut append = self.log_script(APPEND, beginning);
        for record in records {
            append.arg(&record[..]);
        }
        self.request_log(&append).await.map(drop)
    }

    pub(super) async fn read_log(
        &self,
        after: u64,
        beginning: &Bytes,
    ) -> Result<LogPage, TierError> {
        if after > 0
            && let LogEntries::Readable(mut records) = self.log_from(Some(after)).await?
            && records.first().is_some_and(|(first, _)| *first == after)
        {
            let has_more = records.len() > PAGE;
            records.remove(0);
            return Ok(LogPage {
                records,
                is_gapless: true,
                has_more,
                ..LogPage::default()
            });
        }
        let (mut was_unreadable, mut is_missing) = (false, false);
        // Another process may repair or damage the log concurrently.
        for _ in 0..ATTEMPTS {
            match self.log_from(None).await? {
                LogEntries::Readable(records) if records.is_empty() => {
                    is_missing = true;
                    self.append_to_log(&[], beginning).await?;
                }
                LogEntries::Readable(records) => {
                    return Ok(LogPage {
                        has_more: records.len() > PAGE,
                        records,
                        was_unreadable,
                        ..LogPage::default()
                    });
                }
                LogEntries::Odd(id) => {
                    (was_unreadable, is_missing) = (true, false);
                    let mut replace = self.log_script(REPLACE, beginning);
                    replace.arg(id);
                    self.request_log(&replace).await?;
                }
            }
        }
        Err(if is_missing { evicted() } else { unreadable() })
    }

    /// Reads the records from a position, inclusive, or from the oldest one.
    async fn log_from(&self, position: Option<u64>) -> Result<LogEntries, TierError> {
        let mut range = redis::cmd("XRANGE");
        range.arg(log_key(log_id()));
        match position {
            Some(position) => range.arg(entry_id(position)),
            None => range.arg("-"),
        };
        range.arg("+").arg("COUNT").arg(PAGE + 1);
        let Value::Array(entries) = self.request_log(&range).await? else {
            return Err(unreadable());
        };
        let mut records: Vec<(u64, Bytes)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let (id, fields): (String, Vec<Vec<u8>>) =
                redis::from_redis_value(entry).map_err(|_| unreadable())?;
            let log = records.first().map(|(first, _)| log_of(*first));
            let position = position_of(&id).filter(|it| log.is_none_or(|log| log_of(*it) == log));
            match (position, <[Vec<u8>; 2]>::try_from(fields)) {
                (Some(position), Ok([name, record])) if name == b"r" => {
                    records.push((position, record.into()));
                }
                _ => return Ok(LogEntries::Odd(id)),
            }
        }
        Ok(LogEntries::Readable(records))
    }

    fn log_script(&self, text: &str, beginning: &Bytes) -> redis::Cmd {
        let mut script = redis::cmd("EVAL");
        script.arg([BEGIN, text].concat());
        script.arg(1).arg(log_key(log_id()));
        script.arg(LENGTH).arg(log_number(new_log()));
        script.arg(&beginning[..]);
        script.arg(self.announcements.log_channel());
        script
    }

    /// Sends a command for the log. The log survives a pending removal of all records, so it does not wait
    /// for that.
    pub(super) async fn request_log(&self, command: &redis::Cmd) -> Result<Value, TierError> {
        let deadline = self.settings.background_deadline();
        let place = self.in_flight.try_acquire().map_err(|_| CommandError::Full);
        let _place = place.map_err(TierError::from)?;
        let reply = self.servers.send_following(log_id(), command, deadline);
        reply.await.map_err(TierError::from)
    }
}

fn unreadable() -> TierError {
    TierError::Failed("the purge log is unreadable: delete its key".to_owned())
}

fn evicted() -> TierError {
    let why =
        "the purge log is gone as soon as it is written: raise maxmemory, the server needs more";
    TierError::Failed(why.to_owned())
}

/// Stream id of a position.
fn entry_id(position: u64) -> String {
    format!("{}-{}", log_number(position), count_in_log(position))
}

/// Position of a stream id; `None` if it is foreign.
fn position_of(id: &str) -> Option<u64> {
    let (log, count) = id.split_once('-')?;
    let (log, count) = (log.parse().ok()?, count.parse().ok()?);
    position(log, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_an_id_and_an_odd_id_has_no_position() {
        let position = new_log() + 1_800_000_000_000;
        assert_eq!(position_of(&entry_id(position)), Some(position));
        for odd in [
            "",
            "5",
            "0-1",
            "5-0",
            "1800000000000-0",
            "18446744073709551614-0",
            "5-18446744073709551614",
            "4194304-1",
            "5-4398046511104",
        ] {
            assert_eq!(position_of(odd), None, "{odd}");
        }
    }
}

//! The log that processes share: a stream under a key of its own.
//!
//! The id of an entry is `LOG-COUNT`: a number that was chosen at random when the log began, and the server's time in
//! milliseconds, or one more than the last where that is more. So positions grow in a log, none is given twice when a replica has
//! taken the place of a master before it had everything, and no clock says what came before what of two logs. Whoever reads
//! on asks for the record it has read last as well: if that is not there, the log is another one, or was shortened too far, and
//! something is missing.
//!
//! An entry that is not ours would keep readers from what comes after it, or, with an id beyond ours, writers from adding
//! anything. Whoever meets one begins another log in its place: for all who read it, that is a log that was lost.
//!
//! It is read every now and then, and nobody waits on a subscription: that would need a connection of its
//! own to each server, and the same reading in case a message is lost.

use bytes::Bytes;
use redis::Value;
use tokio::time::Instant;

use super::Connected;
use super::node::Fault;
use super::record::log_key;
use crate::tier::{
    EntryId, LogPage, TierError, count_in_log, log_number, log_of, new_log, position,
};

/// So many records the log keeps, about.
const LENGTH: u64 = 64 * 1024;
/// So many are read at once.
const PAGE: usize = 512;
/// So often a log is begun in a row where there is none that can be read.
const ATTEMPTS: usize = 3;

/// Begins a log: `begin(log)` puts another one in place of what is there. Arguments of all scripts here: how many records to keep,
/// the number of a log that begins, what it begins with.
const BEGIN: &str = "\
    local function add(log, count, record) \
      local id = log .. '-' .. string.format('%.0f', count) \
      return redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], id, 'r', record) \
    end \
    local function begin() \
      redis.call('DEL', KEYS[1]) \
      add(ARGV[2], 1, ARGV[3]) \
      return ARGV[2], 1 \
    end ";

/// Adds records, which are the other arguments. A stream that does not end as one of ours does is none.
const APPEND: &str = "\
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
    for i = 4, #ARGV do \
      count = count + 1 \
      if now > count and now < 2^42 - 2^16 then count = now end \
      local added = add(log, count, ARGV[i]) \
      if type(added) == 'table' and added.err then \
        log, count = begin() \
        count = count + 1 \
        add(log, count, ARGV[i]) \
      end \
    end \
    return 1";

/// Begins another log if this entry, which cannot be read, is still there.
const REPLACE: &str = "\
    if #redis.call('XRANGE', KEYS[1], ARGV[4], ARGV[4]) > 0 then begin() end \
    return 1";

/// It has a place among the servers of a cluster as records have.
fn log_id() -> EntryId {
    EntryId::of(b"the log that processes share")
}

/// What was read of the stream.
enum Entries {
    Readable(Vec<(u64, Bytes)>),
    /// One of them is not ours: its id.
    Odd(String),
}

impl Connected {
    pub(super) async fn append_to_log(
        &self,
        records: &[Bytes],
        beginning: &Bytes,
    ) -> Result<(), TierError> {
        let mut append = script(APPEND, beginning);
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
        if after > 0
            && let Entries::Readable(mut records) = self.log_from(Some(after)).await?
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
        let mut was_unreadable = false;
        // Somebody else may do the same meanwhile, or spoil it again.
        for _ in 0..ATTEMPTS {
            match self.log_from(None).await? {
                Entries::Readable(records) if records.is_empty() => {
                    self.append_to_log(&[], beginning).await?;
                }
                Entries::Readable(records) => {
                    return Ok(LogPage {
                        has_more: records.len() > PAGE,
                        records,
                        was_unreadable,
                        ..LogPage::default()
                    });
                }
                Entries::Odd(id) => {
                    was_unreadable = true;
                    let mut replace = script(REPLACE, beginning);
                    replace.arg(id);
                    self.ask_log(&replace).await?;
                }
            }
        }
        Err(unreadable())
    }

    /// The records from a position on, it included, or from the oldest on.
    async fn log_from(&self, position: Option<u64>) -> Result<Entries, TierError> {
        let mut range = redis::cmd("XRANGE");
        range.arg(log_key(log_id()));
        match position {
            Some(position) => range.arg(entry_id(position)),
            None => range.arg("-"),
        };
        range.arg("+").arg("COUNT").arg(PAGE + 1);
        let Value::Array(entries) = self.ask_log(&range).await? else {
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
                _ => return Ok(Entries::Odd(id)),
            }
        }
        Ok(Entries::Readable(records))
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

fn script(text: &str, beginning: &Bytes) -> redis::Cmd {
    let mut script = redis::cmd("EVAL");
    script
        .arg([BEGIN, text].concat())
        .arg(1)
        .arg(log_key(log_id()));
    script.arg(LENGTH).arg(log_number(new_log()));
    script.arg(&beginning[..]);
    script
}

/// The id that the record at a position has in the stream.
fn entry_id(position: u64) -> String {
    format!("{}-{}", log_number(position), count_in_log(position))
}

/// The position of the record that has such an id; `None` if it is none of ours.
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

//! Shared purge log: a counter item, and one item per record.
//!
//! Appending increments the counter and stores the records under the numbers passed. A reader compares the
//! counter and checks that the last record it has read still exists; otherwise others may be lost, too. A
//! record missing because its writer died in between is replaced by a reader with the beginning of a new
//! log; `add` lets only one of the two succeed, so that all readers see the same. A missing or invalid
//! counter starts a new log.
//!
//! There are two independent copies, on the first two servers of the ring for the log's key, regardless of
//! their health: all processes must agree on their location. A loss in one copy is covered by the other
//! (`crates/engine/src/cache/fleet.rs`). A pool of one server has one copy.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::keys::{LOGS, log_record};
use super::protocol::{MetaRequest, MetaResponse, SetOptions};
use super::ring::KetamaRing;
use super::server::{ConnectionLane, PoolServer};
use crate::tier::{LogPage, TierError, log_number, log_of, new_log};

/// Maximum of records per read and append.
const PAGE: u64 = 512;
/// Records of the first read of a log that is unknown.
const FIRST_BLOCK: u64 = 32;
/// Distance from the newest record up to which a reader continues; beyond it, a gap is reported.
const LENGTH: u64 = 16 * 1024;
/// Lifetime of a record, in seconds.
const KEPT: u64 = 7 * 86_400;
/// Time limit for a counted record to be stored.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// Lane of all log requests, to keep them in order.
const LANE: ConnectionLane = ConnectionLane(0);
/// Timeout of a request with many items, as a multiple of the deadline.
const DEADLINES: u32 = 4;

/// Copy of the log.
#[derive(Debug)]
pub(super) struct LogCopy {
    /// Index of its server.
    server: usize,
    name: &'static str,
    hole: Mutex<Option<MissingRecord>>,
}

/// Position that was counted but has no record.
#[derive(Clone, Copy, Debug)]
struct MissingRecord {
    position: u64,
    since: Instant,
}

/// Copy of the log with its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogCopyHandle<'a> {
    copy: &'a LogCopy,
    server: &'a PoolServer,
}

/// Assigns the copies to the first servers of the ring for the log's key, one each.
pub(super) fn copies(ring: &KetamaRing) -> Vec<LogCopy> {
    let place = LOGS[0].as_bytes();
    let mut copies: Vec<LogCopy> = Vec::new();
    for name in LOGS {
        let is_new = |server| copies.iter().all(|copy| copy.server != server);
        if let Some(server) = ring.find(place, is_new) {
            copies.push(LogCopy {
                server,
                name,
                hole: Mutex::default(),
            });
        }
    }
    copies
}

impl LogCopy {
    /// Returns whether the copy is on the server with this index.
    pub(super) fn is_on(&self, server: usize) -> bool {
        self.server == server
    }

    /// Returns a handle to the copy, given the servers of the pool.
    pub(super) fn on<'a>(&'a self, servers: &'a [PoolServer]) -> LogCopyHandle<'a> {
        LogCopyHandle {
            copy: self,
            server: &servers[self.server],
        }
    }
}

impl LogCopyHandle<'_> {
    pub(super) async fn append(
        self,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> Result<(), TierError> {
        let by = records.len() as u64;
        let last = loop {
            let increment = MetaRequest::default().increment(self.copy.name, by, None);
            let counted = self.server.request(LANE, increment).await?;
            match newest_in(&counted)? {
                Some(last) => break last,
                None => self.begin(&beginning).await?,
            }
        };
        let mut request = MetaRequest::default();
        for (position, record) in (last - by + 1..).zip(records) {
            request = self.add(request, position, record);
        }
        let answers = self.server.send(LANE, request, DEADLINES)?.await?;
        let is_there = |answer: &MetaResponse| matches!(answer, MetaResponse::Done(_));
        match answers.iter().find(|answer| !is_there(answer)) {
            None => Ok(()),
            Some(MetaResponse::NotStored) => Err(TierError::Failed(
                "a reader has closed the position before the record was stored".into(),
            )),
            Some(other) => Err(other.to_unexpected_error()),
        }
    }

    pub(super) async fn read(self, after: u64, beginning: Bytes) -> Result<LogPage, TierError> {
        let mut was_unreadable = false;
        let (newest, is_there) = loop {
            // The touch extends the lifetime of the last record read, as proof that nothing in between was
            // lost.
            let look = MetaRequest::default().get(self.copy.name, None);
            let look = look.touch(&log_record(self.copy.name, after), KEPT);
            let answers = self.server.send(LANE, look, 1)?.await?;
            let [newest, last] = &answers[..] else {
                return Err(TierError::Down);
            };
            match (newest, newest_in(newest)) {
                (_, Ok(Some(newest))) => break (newest, matches!(last, MetaResponse::Done(_))),
                (_, Ok(None)) => self.begin(&beginning).await?,
                (MetaResponse::Done(item), Err(error)) if !was_unreadable => {
                    was_unreadable = true;
                    let remove = MetaRequest::default().delete(self.copy.name, Some(item.number));
                    let removed = self.server.request(LANE, remove).await?;
                    if let MetaResponse::Refused(_) = removed {
                        return Err(error);
                    }
                }
                (_, Err(error)) => return Err(error),
            }
        };
        let is_gapless = is_there
            && log_of(after) == log_of(newest)
            && after <= newest
            && newest - after <= LENGTH;
        let (first, mut records) = if is_gapless {
            let last = newest.min(after.saturating_add(PAGE));
            (after + 1, self.records(after + 1, last).await?)
        } else {
            self.newest_whole(newest).await?
        };
        let last = (first - 1).saturating_add(records.len() as u64);
        let whole = records.iter().position(Option::is_none);
        if let Some(hole) = whole {
            records.truncate(hole);
            self.fill_missing(first + hole as u64, beginning).await?;
        }
        Ok(LogPage {
            has_more: whole.is_none() && last < newest,
            is_held_up: whole.is_some(),
            records: (first..).zip(records.into_iter().flatten()).collect(),
            is_gapless,
            was_unreadable,
        })
    }

    /// Stores the beginning of a new log at a position whose record has been missing for too long.
    async fn fill_missing(self, position: u64, beginning: Bytes) -> Result<(), TierError> {
        let now = Instant::now();
        let is_old = {
            let mut hole = self.copy.hole.lock();
            let known = hole.filter(|known| known.position == position);
            let known = known.unwrap_or(MissingRecord {
                position,
                since: now,
            });
            *hole = Some(known);
            now.duration_since(known.since) >= TIME_LIMIT
        };
        if is_old {
            let request = self.add(MetaRequest::default(), position, beginning);
            self.server.request(LANE, request).await?;
        }
        Ok(())
    }

    /// Starts a log if there is none.
    async fn begin(self, beginning: &Bytes) -> Result<(), TierError> {
        let increment = MetaRequest::default().increment(self.copy.name, 1, Some(new_log() + 1));
        let counted = self.server.request(LANE, increment).await?;
        let position = newest_in(&counted)?.ok_or(TierError::Down)?;
        let request = self.add(MetaRequest::default(), position, beginning.clone());
        self.server.request(LANE, request).await.map(drop)
    }

    fn add(self, request: MetaRequest, position: u64, record: Bytes) -> MetaRequest {
        let how = SetOptions {
            expires: KEPT,
            only_new: true,
            ..SetOptions::default()
        };
        request.set(&log_record(self.copy.name, position), [record], how)
    }

    /// Reads the records after the last missing one within [`LENGTH`], up to the newest, which may not be stored yet.
    /// Returns the position of the first. Blocks grow, since most logs are short.
    async fn newest_whole(self, newest: u64) -> Result<(u64, Vec<Option<Bytes>>), TierError> {
        let (mut first, mut block) = (newest, FIRST_BLOCK);
        let mut whole = self.records(newest, newest).await?;
        while first > newest.saturating_sub(LENGTH) {
            let from = first.saturating_sub(block).max(1);
            let mut records = self.records(from, first - 1).await?;
            let missing = records.iter().rposition(Option::is_none);
            whole.splice(..0, records.drain(missing.map_or(0, |at| at + 1)..));
            first = from + records.len() as u64;
            if missing.is_some() {
                break;
            }
            block = (block * 2).min(PAGE);
        }
        Ok((first, whole))
    }

    /// Reads the records at these positions; `None` for missing ones.
    async fn records(self, first: u64, last: u64) -> Result<Vec<Option<Bytes>>, TierError> {
        if last < first {
            return Ok(Vec::new());
        }
        let mut request = MetaRequest::default();
        for position in first..=last {
            request = request.get(&log_record(self.copy.name, position), None);
        }
        let answers = self.server.send(LANE, request, DEADLINES)?.await?;
        let value = |answer: MetaResponse| match answer {
            MetaResponse::Done(item) => Ok(Some(item.value)),
            MetaResponse::Missing => Ok(None),
            other => Err(other.to_unexpected_error()),
        };
        answers.into_iter().map(value).collect()
    }
}

/// Value of the counter; `None` if there is none.
fn newest_in(answer: &MetaResponse) -> Result<Option<u64>, TierError> {
    match answer {
        MetaResponse::Done(item) => {
            let text = str::from_utf8(&item.value).ok();
            let number = text.and_then(|text| text.trim_end().parse().ok());
            let foreign =
                || TierError::Failed("the purge log counter has an invalid value".to_owned());
            let number = number.filter(|number| log_number(*number) > 0);
            number.map(Some).ok_or_else(foreign)
        }
        MetaResponse::Missing => Ok(None),
        other => Err(other.to_unexpected_error()),
    }
}

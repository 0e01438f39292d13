//! The log that processes share: an item that counts, and an item for each record.
//!
//! To append is to count on, and then to store the records under the numbers that were passed. Whoever reads
//! looks at the counter, and at the record it has read last: if that is gone, so may be others. Then it
//! fetches what is new. A record that does not come, because its writer died
//! between the two, is taken by a reader for the beginning of a new log, and stored as that: only one of
//! the two can add it, so that all see the same. A counter that is gone, or is none, begins anew as another log's.
//!
//! There are two copies, on the first two servers that the ring names for it, in service or not: if processes did not
//! agree on where they are, they would miss each other's records. They know nothing of each other: each is
//! a log by itself, and what one of them has lost, the other may have (`crates/engine/src/cache/fleet.rs`).
//! In a pool of one server there is one.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Memcached;
use super::keys::{LOGS, log_record};
use super::protocol::{MetaResponse, Request, Storing};
use super::ring::Ring;
use super::server::{Lane, Server};
use crate::tier::{LogPage, TierError, log_number, log_of, new_log};

/// So many records are read at once, and may be added at once.
const PAGE: u64 = 512;
/// Who is further behind does not read on: something counts as missing.
const LENGTH: u64 = 16 * 1024;
/// After so many seconds a record is forgotten.
const KEPT: u64 = 7 * 86_400;
/// How long a record may take to be stored after it was counted.
const PATIENCE: Duration = Duration::from_secs(1);
/// All requests about the log go one way.
const LANE: Lane = Lane(0);
/// What many items together may take, in deadlines of one.
const DEADLINES: u32 = 4;

/// A copy of the log.
#[derive(Debug)]
pub(super) struct LogCopy {
    /// The server that has it.
    server: usize,
    name: &'static str,
    hole: Mutex<Option<Hole>>,
}

/// A record that has been counted and is not there.
#[derive(Clone, Copy, Debug)]
struct Hole {
    position: u64,
    since: Instant,
}

/// The same with its server at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogAt<'a> {
    copy: &'a LogCopy,
    server: &'a Server,
}

/// Where the copies are: on the first servers after the log's place on the ring, one on each.
pub(super) fn copies(ring: &Ring) -> Vec<LogCopy> {
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

impl Memcached {
    pub(super) fn log_copy(&self, copy: usize) -> Result<LogAt<'_>, TierError> {
        let copy = self.log.get(copy).ok_or(TierError::Down)?;
        Ok(LogAt {
            copy,
            server: &self.servers[copy.server],
        })
    }
}

impl LogAt<'_> {
    pub(super) async fn append(
        self,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> Result<(), TierError> {
        let by = records.len() as u64;
        let last = loop {
            let count = Request::default().count(self.copy.name, by, None);
            let counted = self.server.ask(LANE, count).await?;
            match newest_in(&counted)? {
                Some(last) => break last,
                None => self.begin(&beginning).await?,
            }
        };
        let mut request = Request::default();
        for (position, record) in (last - by + 1..).zip(records) {
            request = self.add(request, position, record);
        }
        let answers = self.server.send(LANE, request, DEADLINES)?.await?;
        let is_there = |answer: &MetaResponse| matches!(answer, MetaResponse::Done(_));
        match answers.iter().find(|answer| !is_there(answer)) {
            None => Ok(()),
            Some(MetaResponse::NotStored) => Err(TierError::Failed(
                "a reader was faster than a writer".into(),
            )),
            Some(other) => Err(other.is_unexpected()),
        }
    }

    pub(super) async fn read(self, after: u64, beginning: Bytes) -> Result<LogPage, TierError> {
        let mut was_unreadable = false;
        let (newest, is_there) = loop {
            // What was read last stays there for as long as somebody reads on from it.
            let look = Request::default().get(self.copy.name, None);
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
                    let remove = Request::default().delete(self.copy.name, Some(item.number));
                    let removed = self.server.ask(LANE, remove).await?;
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
        let first = if is_gapless {
            after + 1
        } else {
            self.oldest(newest).await?
        };
        let last = newest.min(first.saturating_add(PAGE - 1));
        let mut records = self.records(first, last).await?;
        let whole = records.iter().position(Option::is_none);
        if let Some(hole) = whole {
            records.truncate(hole);
            self.mend_hole(first + hole as u64, beginning).await?;
        }
        Ok(LogPage {
            has_more: whole.is_none() && last < newest,
            is_held_up: whole.is_some(),
            records: (first..).zip(records.into_iter().flatten()).collect(),
            is_gapless,
            was_unreadable,
        })
    }

    /// Puts a beginning where a record should be, if it has not come for long enough.
    async fn mend_hole(self, position: u64, beginning: Bytes) -> Result<(), TierError> {
        let now = Instant::now();
        let is_old = {
            let mut hole = self.copy.hole.lock();
            let known = hole.filter(|known| known.position == position);
            let known = known.unwrap_or(Hole {
                position,
                since: now,
            });
            *hole = Some(known);
            now.duration_since(known.since) >= PATIENCE
        };
        if is_old {
            let request = self.add(Request::default(), position, beginning);
            self.server.ask(LANE, request).await?;
        }
        Ok(())
    }

    /// Begins a log where there is none.
    async fn begin(self, beginning: &Bytes) -> Result<(), TierError> {
        let count = Request::default().count(self.copy.name, 1, Some(new_log() + 1));
        let counted = self.server.ask(LANE, count).await?;
        let position = newest_in(&counted)?.ok_or(TierError::Down)?;
        let request = self.add(Request::default(), position, beginning.clone());
        self.server.ask(LANE, request).await.map(drop)
    }

    fn add(self, request: Request, position: u64, record: Bytes) -> Request {
        let how = Storing {
            expires: KEPT,
            only_new: true,
            ..Storing::default()
        };
        request.set(&log_record(self.copy.name, position), [record], how)
    }

    /// Where to begin to read: after the last record that is missing, of so many.
    async fn oldest(self, newest: u64) -> Result<u64, TierError> {
        let mut first = newest;
        while first > newest.saturating_sub(LENGTH) {
            let from = first.saturating_sub(PAGE).max(1);
            let records = self.records(from, first - 1).await?;
            if let Some(missing) = records.iter().rposition(Option::is_none) {
                return Ok(from + missing as u64 + 1);
            }
            first = from;
        }
        Ok(first)
    }

    /// The records at these positions, as far as they are there.
    async fn records(self, first: u64, last: u64) -> Result<Vec<Option<Bytes>>, TierError> {
        if last < first {
            return Ok(Vec::new());
        }
        let mut request = Request::default();
        for position in first..=last {
            request = request.get(&log_record(self.copy.name, position), None);
        }
        let answers = self.server.send(LANE, request, DEADLINES)?.await?;
        let value = |answer: MetaResponse| match answer {
            MetaResponse::Done(item) => Ok(Some(item.value)),
            MetaResponse::Missing => Ok(None),
            other => Err(other.is_unexpected()),
        };
        answers.into_iter().map(value).collect()
    }
}

/// What the counter says; `None` if there is none.
fn newest_in(answer: &MetaResponse) -> Result<Option<u64>, TierError> {
    match answer {
        MetaResponse::Done(item) => {
            let text = str::from_utf8(&item.value).ok();
            let number = text.and_then(|text| text.trim_end().parse().ok());
            let foreign = || TierError::Failed("the log of purges is something else".to_owned());
            let number = number.filter(|number| log_number(*number) > 0);
            number.map(Some).ok_or_else(foreign)
        }
        MetaResponse::Missing => Ok(None),
        other => Err(other.is_unexpected()),
    }
}

//! The log that processes share: an item that counts, and an item for each record.
//!
//! To append is to count on, and then to store the records under the numbers that were passed. Whoever reads
//! looks at the counter, and at the record it has read last: if that is gone, so may be others. Then it
//! fetches what is new. A record that does not come, because its writer died
//! between the two, is taken by a reader for the beginning of a new log, and stored as that: only one of
//! the two can add it, so that all see the same. A counter that is gone begins anew with the time in
//! microseconds, which is more than it ever was.
//!
//! All of it lies on the one server that the ring names for it, in service or not: if processes did not
//! agree on where it is, they would miss each other's records.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::time::Instant;

use super::Memcached;
use super::keys::{LOG, log_record};
use super::protocol::{MetaResponse, Request, Storing};
use super::server::{Lane, Server};
use crate::tier::{LogPage, TierError};

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

/// A record that has been counted and is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    position: u64,
    since: Instant,
}

impl Memcached {
    pub(super) async fn append_to_shared_log(
        &self,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> Result<(), TierError> {
        let server = self.log_server()?;
        let by = records.len() as u64;
        let last = loop {
            let count = Request::default().count(LOG, by, None);
            match number_of(&server.ask(LANE, count).await?)? {
                Some(last) => break last,
                None => begin_log(server, &beginning).await?,
            }
        };
        let mut request = Request::default();
        for (position, record) in (last - by + 1..).zip(records) {
            request = add(request, position, record);
        }
        let answers = server.send(LANE, request, DEADLINES)?.await?;
        let is_there = |answer: &MetaResponse| matches!(answer, MetaResponse::Done(_));
        match answers.iter().find(|answer| !is_there(answer)) {
            None => Ok(()),
            Some(MetaResponse::NotStored) => Err(TierError::Failed(
                "a reader was faster than a writer".into(),
            )),
            Some(other) => Err(other.is_unexpected()),
        }
    }

    pub(super) async fn read_shared_log(
        &self,
        after: u64,
        beginning: Bytes,
    ) -> Result<LogPage, TierError> {
        let server = self.log_server()?;
        let (newest, is_there) = loop {
            // What was read last stays there for as long as somebody reads on from it.
            let look = Request::default().get(LOG, None);
            let look = look.touch(&log_record(after), KEPT);
            let answers = server.send(LANE, look, 1)?.await?;
            let [newest, last] = &answers[..] else {
                return Err(TierError::Down);
            };
            match number_of(newest)? {
                Some(newest) => break (newest, matches!(last, MetaResponse::Done(_))),
                None => begin_log(server, &beginning).await?,
            }
        };
        let is_gapless = is_there && after <= newest && newest - after <= LENGTH;
        let first = if is_gapless {
            after + 1
        } else {
            oldest(server, newest).await?
        };
        let last = newest.min(first.saturating_add(PAGE - 1));
        let mut records = read(server, first, last).await?;
        let whole = records.iter().position(Option::is_none);
        if let Some(hole) = whole {
            records.truncate(hole);
            self.mend_hole(server, first + hole as u64, beginning)
                .await?;
        }
        Ok(LogPage {
            has_more: whole.is_none() && last < newest,
            records: (first..).zip(records.into_iter().flatten()).collect(),
            is_gapless,
        })
    }

    /// Puts a beginning where a record should be, if it has not come for long enough.
    async fn mend_hole(
        &self,
        server: &Server,
        position: u64,
        beginning: Bytes,
    ) -> Result<(), TierError> {
        let now = Instant::now();
        let is_old = {
            let mut hole = self.hole.lock();
            let known = hole.filter(|known| known.position == position);
            let known = known.unwrap_or(Hole {
                position,
                since: now,
            });
            *hole = Some(known);
            now.duration_since(known.since) >= PATIENCE
        };
        if is_old {
            let request = add(Request::default(), position, beginning);
            server.ask(LANE, request).await?;
        }
        Ok(())
    }

    fn log_server(&self) -> Result<&Server, TierError> {
        let index = self.ring.find(LOG.as_bytes(), |_| true);
        Ok(&self.servers[index.ok_or(TierError::Down)?])
    }
}

/// Begins a log where there is none.
async fn begin_log(server: &Server, beginning: &Bytes) -> Result<(), TierError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_micros() as u64;
    let count = Request::default().count(LOG, 1, Some(now));
    let position = number_of(&server.ask(LANE, count).await?)?;
    let position = position.ok_or(TierError::Down)?;
    let request = add(Request::default(), position, beginning.clone());
    server.ask(LANE, request).await.map(drop)
}

fn add(request: Request, position: u64, record: Bytes) -> Request {
    let how = Storing {
        expires: KEPT,
        only_new: true,
        ..Storing::default()
    };
    request.set(&log_record(position), [record], how)
}

/// Where to begin to read: after the last record that is missing, of so many.
async fn oldest(server: &Server, newest: u64) -> Result<u64, TierError> {
    let mut first = newest;
    while first > newest.saturating_sub(LENGTH) {
        let from = first.saturating_sub(PAGE).max(1);
        let records = read(server, from, first - 1).await?;
        if let Some(missing) = records.iter().rposition(Option::is_none) {
            return Ok(from + missing as u64 + 1);
        }
        first = from;
    }
    Ok(first)
}

/// The records at these positions, as far as they are there.
async fn read(server: &Server, first: u64, last: u64) -> Result<Vec<Option<Bytes>>, TierError> {
    if last < first {
        return Ok(Vec::new());
    }
    let mut request = Request::default();
    for position in first..=last {
        request = request.get(&log_record(position), None);
    }
    let answers = server.send(LANE, request, DEADLINES)?.await?;
    let value = |answer: MetaResponse| match answer {
        MetaResponse::Done(item) => Ok(Some(item.value)),
        MetaResponse::Missing => Ok(None),
        other => Err(other.is_unexpected()),
    };
    answers.into_iter().map(value).collect()
}

fn number_of(answer: &MetaResponse) -> Result<Option<u64>, TierError> {
    match answer {
        MetaResponse::Done(item) => {
            let text = str::from_utf8(&item.value).ok();
            let number = text.and_then(|text| text.trim_end().parse().ok());
            let foreign = || TierError::Failed("the log of purges is something else".to_owned());
            number.map(Some).ok_or_else(foreign)
        }
        MetaResponse::Missing => Ok(None),
        other => Err(other.is_unexpected()),
    }
}

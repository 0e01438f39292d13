//! Watches one server: asks it now and then how it is, and brings it back after it was lost. There
//! is one probe for each server, so one that returns is met by one connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{sleep, timeout};

use super::claims::Purpose;
use super::connection::{Line, MetaResponses, connect, read_answers};
use super::health::{Owed, Report};
use super::keys;
use super::protocol::{MetaResponse, Request, read_line};
use super::server::is_removed;
use super::settings::MemcachedSettings;
use super::unsure::Unsure;
use crate::random::jittered;
use crate::tier::{EntryId, TierError};

/// Looking up a name and connecting may take this long. Nobody waits for a probe.
const CONNECT: Duration = Duration::from_secs(1);
/// So may the removal of a block of missed records.
const DELIVERY: Duration = Duration::from_secs(1);
const BLOCK: usize = 500;
/// A server that did not answer gets so much time to do what was asked of it, before claims are
/// taken back.
const SETTLING: Duration = Duration::from_millis(200);
/// Pauses differ by this share, so that processes do not come back together.
const SPREAD: f64 = 0.25;
/// A server has about a hundred lines of statistics.
const MAX_STATISTICS: usize = 1000;

/// Watches one server.
#[derive(Debug)]
pub(super) struct Probe {
    line: Line,
    unsure: Arc<Unsure>,
    deadline: Duration,
    retry_after: Duration,
    retry_after_max: Duration,
    check_every: Duration,
}

/// A connection of the probe's own.
struct Visit<'a> {
    probe: &'a Probe,
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Probe {
    pub(super) fn new(line: Line, unsure: Arc<Unsure>, settings: &MemcachedSettings) -> Self {
        Self {
            line,
            unsure,
            deadline: settings.deadline,
            retry_after: settings.retry_after,
            retry_after_max: settings.retry_after_max,
            check_every: settings.check_every,
        }
    }

    /// Never ends. A server that is not there at the start is out of service at once.
    pub(super) async fn watch(self) {
        let health = &self.line.health;
        let mut pause = self.retry_after;
        if let Err(why) = self.visit().await {
            health.eject(&why);
        }
        loop {
            if health.is_in_service() {
                pause = self.retry_after;
                tokio::select! {
                    () = health.lost() => continue,
                    () = self.unsure.noted() => sleep(SETTLING).await,
                    () = sleep(jittered(self.check_every, SPREAD)) => {}
                }
                match self.visit().await {
                    Ok(()) => health.succeeded(),
                    Err(why) => {
                        health.failed(&why);
                        self.unsure.remind();
                    }
                }
            } else {
                sleep(jittered(pause, SPREAD)).await;
                pause = pause.saturating_mul(2).min(self.retry_after_max);
                if let Err(why) = self.visit().await {
                    health.eject(&why);
                }
            }
        }
    }

    /// Asks how the server is, and delivers what it missed.
    async fn visit(&self) -> Result<(), String> {
        let stream = match timeout(CONNECT, connect(&self.line.address)).await {
            Ok(stream) => stream.map_err(|error| error.to_string())?,
            Err(_) => return Err("no connection in time".to_owned()),
        };
        let (reader, writer) = stream.into_split();
        let mut visit = Visit {
            probe: self,
            reader: BufReader::new(reader),
            writer,
        };
        visit.run().await.map_err(|error| error.to_string())
    }
}

impl Visit<'_> {
    async fn run(&mut self) -> Result<(), TierError> {
        let deadline = self.probe.deadline;
        let answers = self.ask(Request::default().noop(), deadline).await?;
        if let Some(other) = answers
            .iter()
            .find(|answer| **answer != MetaResponse::Alive)
        {
            return Err(other.is_unexpected());
        }
        let report = timeout(deadline, self.statistics()).await;
        let report = report.map_err(|_| TierError::Timeout)??;
        while let Owed::Removals(ids) = self.probe.line.health.answered(report, Instant::now()) {
            for block in ids.chunks(BLOCK) {
                self.deliver(block).await?;
            }
        }
        self.take_claims_back().await
    }

    /// Of a claim that may be ours or somebody else's, the item and its number are looked at first:
    /// a record is left alone. Somebody else who loses a claim only asks the origin in vain.
    async fn take_claims_back(&mut self) -> Result<(), TierError> {
        for (id, purpose) in self.probe.unsure.all() {
            let mut request = Request::default().get(&keys::record(id), None);
            if purpose == Purpose::Renewal {
                request = request.delete(&keys::lock(id), None);
            }
            let answers = self.ask(request, DELIVERY).await?;
            if let Some(MetaResponse::Done(item)) = answers.first()
                && item.value.is_empty()
            {
                let give_back = Request::default().delete(&keys::record(id), Some(item.number));
                self.ask(give_back, DELIVERY).await?;
            }
            self.probe.unsure.take(id);
        }
        Ok(())
    }

    async fn deliver(&mut self, ids: &[EntryId]) -> Result<(), TierError> {
        let removals = ids.iter().copied().fold(Request::default(), keys::remove);
        is_removed(&self.ask(removals, DELIVERY).await?)?;
        self.probe.line.health.delivered(ids);
        Ok(())
    }

    async fn ask(
        &mut self,
        request: Request,
        deadline: Duration,
    ) -> Result<MetaResponses, TierError> {
        let exchange = async {
            self.writer.write_all(&request.parts().concat()).await?;
            read_answers(
                &mut self.reader,
                request.answers(),
                self.probe.line.max_value,
            )
            .await
        };
        let answers = timeout(deadline, exchange).await;
        let answers = answers.map_err(|_| TierError::Timeout)?;
        answers.map_err(|error| TierError::Failed(error.to_string()))
    }

    async fn statistics(&mut self) -> Result<Report, TierError> {
        let failed = |error: String| TierError::Failed(error);
        let written = self.writer.write_all(b"stats\r\n").await;
        written.map_err(|error| failed(error.to_string()))?;
        let mut report = Report::default();
        for _ in 0..MAX_STATISTICS {
            let line = read_line(&mut self.reader).await;
            let line = line.map_err(|error| failed(error.to_string()))?;
            if line == "END" {
                return Ok(report);
            }
            let mut words = line.split(' ').skip(1);
            let (name, value) = (words.next(), words.next());
            let value: Option<u64> = value.and_then(|value| value.parse().ok());
            match (name, value) {
                (Some("pid"), Some(value)) => report.process = value,
                (Some("time"), Some(value)) => report.date = value,
                (Some("uptime"), Some(value)) => report.uptime = value,
                (Some("curr_items"), Some(value)) => report.items = value,
                (Some("bytes"), Some(value)) => report.bytes = value,
                (Some("evictions"), Some(value)) => report.evicted = value,
                _ => {}
            }
        }
        Err(failed("its statistics do not end".to_owned()))
    }
}

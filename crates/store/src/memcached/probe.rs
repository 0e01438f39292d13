//! Health checks of a server, and its recovery. There is one probe per server, so that a returning one is
//! met by a single connection.

use std::sync::Arc;
use std::time::Duration;

use microcache_policy::Time;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::time::{Instant, sleep, timeout};

use super::claims::ClaimPurpose;
use super::connection::{ConnectionTarget, MetaResponses, read_answers};
use super::health::{OwedRemovals, ServerStats};
use super::keys;
use super::link::{LinkReader, LinkWriter};
use super::pending_claims::PendingClaims;
use super::protocol::{MetaRequest, MetaResponse, check_removed, read_line};
use super::settings::MemcachedSettings;
use crate::random::jittered;
use crate::tier::{EntryId, TierError};
use crate::tier_clock::TierClock;

/// Longest timeout for name resolution and connect; no request waits for it. Nor is a connection of use that takes
/// much longer than a request may, so it is this multiple of the deadline.
const CONNECT: Duration = Duration::from_secs(1);
const DEADLINES: u32 = 8;
/// Timeout for the delivery of a block of queued removals.
const DELIVERY: Duration = Duration::from_secs(1);
const BLOCK: usize = 500;
/// Time for a server to complete pending requests before claims are withdrawn.
const SETTLING: Duration = Duration::from_millis(200);
/// Jitter of intervals, as a fraction, so that processes do not synchronize.
const SPREAD: f64 = 0.25;
/// Maximum number of lines in `stats`; there are usually about a hundred.
const MAX_STATISTICS: usize = 1000;

/// Health probe of a server.
#[derive(Debug)]
pub(super) struct Probe {
    line: ConnectionTarget,
    pending_claims: Arc<PendingClaims>,
    deadline: Duration,
    retry_after: Duration,
    retry_after_max: Duration,
    check_every: Duration,
    clock: Option<Arc<TierClock>>,
}

/// Connection of a probe.
struct ProbeConnection<'a> {
    probe: &'a Probe,
    reader: BufReader<LinkReader>,
    writer: LinkWriter,
}

impl Probe {
    pub(super) fn new(
        line: ConnectionTarget,
        pending_claims: Arc<PendingClaims>,
        settings: &MemcachedSettings,
        log: Option<usize>,
    ) -> Self {
        // Without the log this process misses purges, so its servers are tried as often as the log is read.
        let often = settings.retry_after / 8;
        let [retry_after, retry_after_max] = if log.is_some() {
            [often, often]
        } else {
            [settings.retry_after, settings.retry_after_max]
        };
        Self {
            line,
            pending_claims,
            deadline: settings.deadline,
            retry_after,
            retry_after_max,
            check_every: settings.check_every,
            clock: (log == Some(0)).then(|| Arc::clone(&settings.clock)),
        }
    }

    /// Runs until aborted. A server that is unreachable at the start is taken out of service at once.
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
                    biased;
                    () = health.lost() => continue,
                    () = self.pending_claims.added() => sleep(SETTLING).await,
                    () = sleep(jittered(self.check_every, SPREAD)) => {}
                }
                match self.visit().await {
                    Ok(()) => health.succeeded(),
                    Err(why) => {
                        health.failed(&why);
                        self.pending_claims.remind();
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

    /// Reads the statistics and delivers queued removals and releases.
    async fn visit(&self) -> Result<(), String> {
        let connecting = self.line.connect();
        let time_limit = CONNECT.min(self.deadline.saturating_mul(DEADLINES));
        let (reader, writer) = match timeout(time_limit, connecting).await {
            Ok(halves) => halves.map_err(|error| error.to_string())?,
            Err(_) => return Err("connect timeout".to_owned()),
        };
        let mut visit = ProbeConnection {
            probe: self,
            reader: BufReader::new(reader),
            writer,
        };
        visit.run().await.map_err(|error| error.to_string())
    }
}

impl ProbeConnection<'_> {
    async fn run(&mut self) -> Result<(), TierError> {
        let deadline = self.probe.deadline;
        let answers = self
            .request(MetaRequest::default().noop(), deadline)
            .await?;
        if let Some(other) = answers
            .iter()
            .find(|answer| **answer != MetaResponse::Alive)
        {
            return Err(other.to_unexpected_error());
        }
        let report = timeout(deadline, self.statistics()).await;
        let report = report.map_err(|_| TierError::Timeout)??;
        if let Some(clock) = &self.probe.clock {
            // It counts whole seconds, and notices up to a second late that another has passed.
            clock.note(Time::from_secs(report.date.saturating_add(1)));
        }
        while let OwedRemovals::Removals(ids) = self
            .probe
            .line
            .health
            .answered(report, Instant::now().into_std())
        {
            for block in ids.chunks(BLOCK) {
                self.deliver(block).await?;
            }
        }
        self.take_claims_back().await
    }

    /// Withdraws claims of unknown outcome. Item and CAS number are read first, so that a record is never
    /// deleted. If the claim belongs to another process, that process merely fetches without storing.
    async fn take_claims_back(&mut self) -> Result<(), TierError> {
        for (id, purpose) in self.probe.pending_claims.all() {
            let mut request = MetaRequest::default().get(&keys::record(id), None);
            if purpose == ClaimPurpose::Renewal {
                request = request.delete(&keys::lock(id), None);
            }
            let answers = self.request(request, DELIVERY).await?;
            if let Some(MetaResponse::Done(item)) = answers.first()
                && item.value.is_empty()
            {
                let release = MetaRequest::default().delete(&keys::record(id), Some(item.number));
                self.request(release, DELIVERY).await?;
            }
            self.probe.pending_claims.take(id);
        }
        Ok(())
    }

    async fn deliver(&mut self, ids: &[EntryId]) -> Result<(), TierError> {
        let removals = ids
            .iter()
            .copied()
            .fold(MetaRequest::default(), keys::remove);
        check_removed(&self.request(removals, DELIVERY).await?)?;
        self.probe.line.health.delivered(ids);
        Ok(())
    }

    async fn request(
        &mut self,
        request: MetaRequest,
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

    async fn statistics(&mut self) -> Result<ServerStats, TierError> {
        let failed = |error: String| TierError::Failed(error);
        let written = self.writer.write_all(b"stats\r\n").await;
        written.map_err(|error| failed(error.to_string()))?;
        let mut report = ServerStats::default();
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
        Err(failed("endless statistics".to_owned()))
    }
}

//! Server of a pool: its connections, health state and owed removals.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::connection::{ConnectionTarget, MetaResponses, QueuedRequest};
use super::health::{ServerHealth, ServerStats};
use super::keys;
use super::pending_claims::PendingClaims;
use super::probe::Probe;
use super::protocol::{MetaRequest, MetaResponse, check_removed};
use super::settings::{MemcachedSettings, ServerAddress};
use crate::tier::{EntryId, TierError};

/// Selects the connection. Requests for one record share a lane and stay in order, so that nothing stored
/// before a removal arrives after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLane(pub(super) usize);

impl ConnectionLane {
    /// Lane of a record.
    pub(super) fn of(id: EntryId) -> Self {
        let [.., a, b] = id.to_bytes();
        Self(usize::from(u16::from_be_bytes([a, b])))
    }
}

/// Server of a pool.
#[derive(Debug)]
pub(super) struct PoolServer {
    address: ServerAddress,
    health: Arc<ServerHealth>,
    connections: Vec<UnboundedSender<QueuedRequest>>,
    outstanding: Arc<Semaphore>,
    deadline: Duration,
    pub(super) pending_claims: Arc<PendingClaims>,
    watch: AbortHandle,
}

impl PoolServer {
    /// Starts the probe of a server, which may have a copy of the log, the one with this number. Connections are opened on demand.
    pub(super) fn start(
        address: ServerAddress,
        max_value: usize,
        settings: &MemcachedSettings,
        log: Option<usize>,
        handle: &Handle,
    ) -> Self {
        let health = ServerHealth::new(settings.failures, settings.max_missed_removals);
        let line = ConnectionTarget {
            address: address.clone(),
            link: settings.link.clone(),
            health: Arc::new(health),
            max_value,
        };
        let connections = (0..settings.connections).map(|_| {
            let (jobs, queue) = unbounded_channel();
            handle.spawn(line.clone().run(queue));
            jobs
        });
        let connections = connections.collect();
        let health = Arc::clone(&line.health);
        let pending_claims = Arc::new(PendingClaims::default());
        let probe = Probe::new(line, Arc::clone(&pending_claims), settings, log);
        let watch = handle.spawn(probe.watch());
        Self {
            address,
            health,
            connections,
            outstanding: Arc::new(Semaphore::new(settings.max_outstanding)),
            deadline: settings.deadline,
            pending_claims,
            watch: watch.abort_handle(),
        }
    }

    /// Returns whether requests may be sent.
    pub(super) fn is_in_service(&self) -> bool {
        self.health.is_in_service()
    }

    /// Sends one command and returns its response.
    pub(super) async fn request(
        &self,
        lane: ConnectionLane,
        request: MetaRequest,
    ) -> Result<MetaResponse, TierError> {
        let mut answers = self.send(lane, request, 1)?.await?;
        answers.pop().ok_or(TierError::Down)
    }

    /// Sends commands. The timeout is a multiple of the deadline, for requests with many items.
    pub(super) fn send(
        &self,
        lane: ConnectionLane,
        request: MetaRequest,
        deadlines: u32,
    ) -> Result<impl Future<Output = Result<MetaResponses, TierError>> + Send + use<>, TierError>
    {
        if !self.is_in_service() {
            return Err(TierError::Down);
        }
        let permit = Arc::clone(&self.outstanding).try_acquire_owned();
        let permit = permit.map_err(|error| match error {
            TryAcquireError::NoPermits => {
                TierError::Failed(format!("{}: too many outstanding requests", self.address))
            }
            TryAcquireError::Closed => TierError::Down,
        })?;
        let deadline = Instant::now() + self.deadline.saturating_mul(deadlines);
        self.enqueue(lane, request, deadline, permit)
    }

    fn enqueue(
        &self,
        ConnectionLane(lane): ConnectionLane,
        request: MetaRequest,
        deadline: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Result<impl Future<Output = Result<MetaResponses, TierError>> + Send + use<>, TierError>
    {
        let (reply, answers) = oneshot::channel();
        let job = QueuedRequest {
            request,
            deadline,
            reply,
            permit,
        };
        let connection = &self.connections[lane % self.connections.len()];
        connection.send(job).map_err(|_| TierError::Down)?;
        Ok(async move {
            match timeout_at(deadline, answers).await {
                Ok(Ok(answers)) => answers,
                Ok(Err(_)) => Err(TierError::Failed("connection closed".to_owned())),
                Err(_) => Err(TierError::Timeout),
            }
        })
    }

    /// Removes a record, or queues the removal to be delivered before the server is used again.
    pub(super) async fn remove(&self, id: EntryId) {
        if self.health.remember_if_lost(id, Instant::now().into_std()) {
            return;
        }
        if let Err(error) = self.remove_now(id).await {
            let why = format!("removal not confirmed: {error}");
            self.health.owe(id, &why, Instant::now().into_std());
        }
    }

    async fn remove_now(&self, id: EntryId) -> Result<(), TierError> {
        let deadline = Instant::now() + self.deadline;
        // A removal waits for capacity where other requests fail.
        let permit = timeout_at(deadline, Arc::clone(&self.outstanding).acquire_owned()).await;
        let permit = permit.map_err(|_| TierError::Timeout)?;
        let permit = permit.map_err(|_| TierError::Down)?;
        let request = keys::remove(MetaRequest::default(), id);
        let answers = self
            .enqueue(ConnectionLane::of(id), request, deadline, permit)?
            .await?;
        check_removed(&answers)
    }

    /// Returns the statistics, and the reason for being out of service.
    pub(super) fn describe(&self) -> (Option<ServerStats>, Option<String>) {
        let (report, why) = self.health.describe();
        let why = why.map(|why| format!("{}: {why}", self.address));
        (report, why)
    }
}

impl Drop for PoolServer {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

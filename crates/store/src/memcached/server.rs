//! One server of the pool: its connections, and what it still has to be told.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::connection::{Job, Line, MetaResponses};
use super::health::{Health, Report};
use super::keys;
use super::probe::Probe;
use super::protocol::{MetaResponse, Request};
use super::settings::{MemcachedSettings, ServerAddress};
use super::unsure::Unsure;
use crate::tier::{EntryId, TierError};

/// Decides on the connection. What is sent about one record keeps its order, so that nothing that
/// was stored before a removal arrives after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane(pub(super) usize);

impl Lane {
    /// The lane of a record.
    pub(super) fn of(id: EntryId) -> Self {
        let [.., a, b] = id.to_bytes();
        Self(usize::from(u16::from_be_bytes([a, b])))
    }
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    address: ServerAddress,
    health: Arc<Health>,
    connections: Vec<UnboundedSender<Job>>,
    room: Arc<Semaphore>,
    deadline: Duration,
    pub(super) unsure: Arc<Unsure>,
    watch: AbortHandle,
}

impl Server {
    /// Begins to watch a server. Connections are opened when they are needed.
    pub(super) fn start(
        address: ServerAddress,
        max_value: usize,
        settings: &MemcachedSettings,
        handle: &Handle,
    ) -> Self {
        let health = Health::new(settings.failures, settings.max_missed_removals);
        let line = Line {
            address: address.clone(),
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
        let unsure = Arc::new(Unsure::default());
        let probe = Probe::new(line, Arc::clone(&unsure), settings);
        let watch = handle.spawn(probe.watch());
        Self {
            address,
            health,
            connections,
            room: Arc::new(Semaphore::new(settings.max_outstanding)),
            deadline: settings.deadline,
            unsure,
            watch: watch.abort_handle(),
        }
    }

    /// Whether it may be asked.
    pub(super) fn is_in_service(&self) -> bool {
        self.health.is_in_service()
    }

    /// Sends one command and waits for its answer.
    pub(super) async fn ask(
        &self,
        lane: Lane,
        request: Request,
    ) -> Result<MetaResponse, TierError> {
        let mut answers = self.send(lane, request, 1)?.await?;
        answers.pop().ok_or(TierError::Down)
    }

    /// Sends commands. The answers may take so many deadlines: one for each item before it.
    pub(super) fn send(
        &self,
        lane: Lane,
        request: Request,
        deadlines: u32,
    ) -> Result<impl Future<Output = Result<MetaResponses, TierError>> + Send + use<>, TierError>
    {
        if !self.is_in_service() {
            return Err(TierError::Down);
        }
        let permit = Arc::clone(&self.room).try_acquire_owned();
        let permit = permit.map_err(|error| match error {
            TryAcquireError::NoPermits => TierError::Failed(format!(
                "{}: too many requests are waiting for an answer",
                self.address
            )),
            TryAcquireError::Closed => TierError::Down,
        })?;
        let deadline = Instant::now() + self.deadline.saturating_mul(deadlines);
        self.enqueue(lane, request, deadline, permit)
    }

    fn enqueue(
        &self,
        Lane(lane): Lane,
        request: Request,
        deadline: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Result<impl Future<Output = Result<MetaResponses, TierError>> + Send + use<>, TierError>
    {
        let (reply, answers) = oneshot::channel();
        let job = Job {
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
                Ok(Err(_)) => Err(TierError::Failed("the connection ended".to_owned())),
                Err(_) => Err(TierError::Timeout),
            }
        })
    }

    /// Removes a record: now, or before anything else is read there.
    pub(super) async fn remove(&self, id: EntryId) {
        if self.health.remember_if_lost(id, Instant::now().into_std()) {
            return;
        }
        if let Err(error) = self.remove_now(id).await {
            let why = format!("it did not confirm a removal: {error}");
            self.health.owe(id, &why, Instant::now().into_std());
        }
    }

    async fn remove_now(&self, id: EntryId) -> Result<(), TierError> {
        let deadline = Instant::now() + self.deadline;
        // A removal waits for its place where others are turned away.
        let room = timeout_at(deadline, Arc::clone(&self.room).acquire_owned()).await;
        let permit = room.map_err(|_| TierError::Timeout)?;
        let permit = permit.map_err(|_| TierError::Down)?;
        let request = keys::remove(Request::default(), id);
        let answers = self
            .enqueue(Lane::of(id), request, deadline, permit)?
            .await?;
        is_removed(&answers)
    }

    /// What it says about itself, and what is wrong with it.
    pub(super) fn describe(&self) -> (Option<Report>, Option<String>) {
        let (report, why) = self.health.describe();
        let why = why.map(|why| format!("{}: {why}", self.address));
        (report, why)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Whether these are the answers to removals that took place.
pub(super) fn is_removed(answers: &[MetaResponse]) -> Result<(), TierError> {
    let done =
        |answer: &&MetaResponse| matches!(answer, MetaResponse::Done(_) | MetaResponse::Missing);
    match answers.iter().find(|answer| !done(answer)) {
        None => Ok(()),
        Some(other) => Err(other.is_unexpected()),
    }
}

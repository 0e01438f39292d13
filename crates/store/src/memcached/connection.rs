//! Pipelined connection, opened on demand.
//!
//! A timeout or an unreadable response closes the connection. The next one has no outstanding requests, so a
//! late response cannot be mistaken for another.

use std::io;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};

use super::health::ServerHealth;
use super::link::{LinkReader, LinkWriter, ServerLink};
use super::protocol::{MetaRequest, MetaResponse, ProtocolError, read_answer};
use super::settings::ServerAddress;
use crate::tier::TierError;

/// Size of the read and write buffers, in bytes; larger values bypass them.
const BUFFER: usize = 16 * 1024;

/// Responses to a request, in the order of its commands.
pub(super) type MetaResponses = SmallVec<[MetaResponse; 2]>;

/// Request in the queue of a connection.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) request: MetaRequest,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<MetaResponses, TierError>>,
    /// One of the bounded number of outstanding requests; the queues themselves are unbounded.
    pub(super) permit: OwnedSemaphorePermit,
}

/// Request that has been sent.
struct OutstandingRequest {
    answers: usize,
    deadline: Instant,
    reply: oneshot::Sender<Result<MetaResponses, TierError>>,
    _permit: OwnedSemaphorePermit,
}

/// Address and health state of a connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionTarget {
    pub(super) address: ServerAddress,
    pub(super) link: ServerLink,
    pub(super) health: Arc<ServerHealth>,
    pub(super) max_value: usize,
}

/// Reasons why a connection ended.
#[derive(Debug, thiserror::Error)]
enum ConnectionEnd {
    #[error("response timeout")]
    Late,
    #[error("{0}")]
    Unreadable(#[from] ProtocolError),
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server closed the connection without outstanding requests.
    #[error("idle connection closed by the server")]
    Idle,
}

impl ConnectionTarget {
    /// Opens a connection.
    pub(super) async fn connect(&self) -> io::Result<(LinkReader, LinkWriter)> {
        self.link
            .connect(&self.address.host, self.address.port)
            .await
    }

    /// Processes requests until the queue is closed.
    pub(super) async fn run(self, mut jobs: UnboundedReceiver<QueuedRequest>) {
        while let Some(job) = jobs.recv().await {
            if !self.health.is_in_service() {
                let _ = job.reply.send(Err(TierError::Down));
                continue;
            }
            if job.deadline <= Instant::now() {
                let _ = job.reply.send(Err(TierError::Timeout));
                continue;
            }
            match self.serve(job, &mut jobs).await {
                Ok(()) | Err(ConnectionEnd::Idle) => {}
                Err(end) => self.health.failed(&end.to_string()),
            }
        }
    }

    async fn serve(
        &self,
        first: QueuedRequest,
        jobs: &mut UnboundedReceiver<QueuedRequest>,
    ) -> Result<(), ConnectionEnd> {
        let connecting = self.connect();
        let (read, write) = match timeout_at(first.deadline, connecting).await {
            Ok(Ok(halves)) => halves,
            Ok(Err(error)) => {
                let _ = first.reply.send(Err(TierError::Failed(error.to_string())));
                return Err(error.into());
            }
            Err(_) => {
                let _ = first.reply.send(Err(TierError::Timeout));
                return Err(ConnectionEnd::Late);
            }
        };
        let (sent, waiting) = unbounded_channel();
        tokio::try_join!(
            write_all(write, first, jobs, sent),
            self.read_all(BufReader::with_capacity(BUFFER, read), waiting),
        )?;
        Ok(())
    }

    async fn read_all(
        &self,
        mut reader: BufReader<LinkReader>,
        mut waiting: UnboundedReceiver<OutstandingRequest>,
    ) -> Result<(), ConnectionEnd> {
        loop {
            let sent = tokio::select! {
                biased;
                sent = waiting.recv() => match sent {
                    Some(sent) => sent,
                    None => return Ok(()),
                },
                unsolicited = reader.fill_buf() => return Err(match unsolicited? {
                    [] => ConnectionEnd::Idle,
                    bytes => ProtocolError::Foreign(bytes[..bytes.len().min(60)].escape_ascii().to_string()).into(),
                }),
            };
            let answers = read_answers(&mut reader, sent.answers, self.max_value);
            let (result, end) = match timeout_at(sent.deadline, answers).await {
                Ok(Ok(answers)) => {
                    self.health.succeeded();
                    (Ok(answers), None)
                }
                Ok(Err(error)) => (
                    Err(TierError::Failed(error.to_string())),
                    Some(error.into()),
                ),
                Err(_) => (Err(TierError::Timeout), Some(ConnectionEnd::Late)),
            };
            // The caller may have given up.
            let _ = sent.reply.send(result);
            if let Some(end) = end {
                return Err(end);
            }
        }
    }
}

/// Reads `count` responses.
pub(super) async fn read_answers(
    reader: &mut BufReader<LinkReader>,
    count: usize,
    max_value: usize,
) -> Result<MetaResponses, ProtocolError> {
    let mut answers = MetaResponses::new();
    while answers.len() < count {
        answers.push(read_answer(reader, max_value).await?);
    }
    Ok(answers)
}

/// Writes requests as they arrive and flushes when the queue is empty. The reader is informed of each before
/// its first byte is sent.
async fn write_all(
    write: LinkWriter,
    first: QueuedRequest,
    jobs: &mut UnboundedReceiver<QueuedRequest>,
    sent: UnboundedSender<OutstandingRequest>,
) -> Result<(), ConnectionEnd> {
    let mut writer = BufWriter::with_capacity(BUFFER, write);
    let mut next = Some(first);
    while let Some(job) = next {
        let waits = OutstandingRequest {
            answers: job.request.answers(),
            deadline: job.deadline,
            reply: job.reply,
            _permit: job.permit,
        };
        if sent.send(waits).is_err() {
            break;
        }
        for part in job.request.parts() {
            writer.write_all(part).await?;
        }
        next = if let Ok(job) = jobs.try_recv() {
            Some(job)
        } else {
            writer.flush().await?;
            jobs.recv().await
        };
    }
    Ok(())
}

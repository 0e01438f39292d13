//! One pipelined connection. It is opened when there is something to send.
//!
//! What cannot be answered in time, or is answered with something unreadable, takes the whole
//! connection with it: the next one begins with nothing outstanding, so a late answer has nobody
//! left to be mistaken for an answer to.

use std::io;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};

use super::health::Health;
use super::protocol::{MetaResponse, Request, Unreadable, read_answer};
use super::settings::ServerAddress;
use crate::tier::TierError;

/// What is read and written at once. Values that are larger bypass it.
const BUFFER: usize = 16 * 1024;

/// The answers to a request, in its order.
pub(super) type MetaResponses = SmallVec<[MetaResponse; 2]>;

/// A request on its way, and who waits for the answers.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<MetaResponses, TierError>>,
    /// One of the bounded number of outstanding requests. The queues themselves have no bound.
    pub(super) permit: OwnedSemaphorePermit,
}

/// A job that has been sent.
struct Sent {
    answers: usize,
    deadline: Instant,
    reply: oneshot::Sender<Result<MetaResponses, TierError>>,
    _permit: OwnedSemaphorePermit,
}

/// Where a connection leads, and whom to tell how it goes.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) address: ServerAddress,
    pub(super) health: Arc<Health>,
    pub(super) max_value: usize,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("no answer in time")]
    Late,
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server closed it while nobody waited for anything.
    #[error("it closed an idle connection")]
    Idle,
}

impl Line {
    /// Does what is asked for until nobody can ask any more.
    pub(super) async fn run(self, mut jobs: UnboundedReceiver<Job>) {
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
                Ok(()) | Err(End::Idle) => {}
                Err(end) => self.health.failed(&end.to_string()),
            }
        }
    }

    async fn serve(&self, first: Job, jobs: &mut UnboundedReceiver<Job>) -> Result<(), End> {
        let stream = match timeout_at(first.deadline, connect(&self.address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                let _ = first.reply.send(Err(TierError::Failed(error.to_string())));
                return Err(error.into());
            }
            Err(_) => {
                let _ = first.reply.send(Err(TierError::Timeout));
                return Err(End::Late);
            }
        };
        let (read, write) = stream.into_split();
        let (sent, waiting) = unbounded_channel();
        tokio::try_join!(
            write_all(write, first, jobs, sent),
            self.read_all(BufReader::with_capacity(BUFFER, read), waiting),
        )?;
        Ok(())
    }

    async fn read_all(
        &self,
        mut reader: BufReader<OwnedReadHalf>,
        mut waiting: UnboundedReceiver<Sent>,
    ) -> Result<(), End> {
        loop {
            let sent = tokio::select! {
                biased;
                sent = waiting.recv() => match sent {
                    Some(sent) => sent,
                    None => return Ok(()),
                },
                unasked = reader.fill_buf() => return Err(match unasked? {
                    [] => End::Idle,
                    bytes => Unreadable::Foreign(bytes[..bytes.len().min(60)].escape_ascii().to_string()).into(),
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
                Err(_) => (Err(TierError::Timeout), Some(End::Late)),
            };
            // Whoever asked may have given up.
            let _ = sent.reply.send(result);
            if let Some(end) = end {
                return Err(end);
            }
        }
    }
}

/// Opens a connection; the name is looked up each time.
pub(super) async fn connect(address: &ServerAddress) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads so many answers.
pub(super) async fn read_answers(
    reader: &mut BufReader<OwnedReadHalf>,
    count: usize,
    max_value: usize,
) -> Result<MetaResponses, Unreadable> {
    let mut answers = MetaResponses::new();
    while answers.len() < count {
        answers.push(read_answer(reader, max_value).await?);
    }
    Ok(answers)
}

/// Writes jobs as they come, and flushes when there are no more for now. The reader knows of each
/// before its first byte is written.
async fn write_all(
    write: OwnedWriteHalf,
    first: Job,
    jobs: &mut UnboundedReceiver<Job>,
    sent: UnboundedSender<Sent>,
) -> Result<(), End> {
    let mut writer = BufWriter::with_capacity(BUFFER, write);
    let mut next = Some(first);
    while let Some(job) = next {
        let waits = Sent {
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

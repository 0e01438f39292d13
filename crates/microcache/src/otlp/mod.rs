//! Traces of requests, for a collector that takes OTLP over HTTP.
//!
//! A worker thread queues the span of a traced request in a bounded queue, and one thread sends them; requests
//! never wait for it. Spans that do not fit or are rejected are counted.

mod command;
mod sender;
mod span;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use microcache_proxy::config::Config;
use microcache_proxy::{FinishedRequest, Notices, TraceCounts, TraceState, Traces};

use command::SenderCommand;
use sender::Sender;

/// The maximum number of spans in the queue; further ones are dropped.
const MAX_WAITING: usize = 2048;
/// The maximum wait for unsent spans at exit.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// The polling interval for room in the queue at exit.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The exporter of traces.
#[derive(Clone)]
pub(crate) struct Exporter {
    queue: SyncSender<SenderCommand>,
    counts: Arc<TraceCounts>,
    config: Arc<Config>,
}

impl Exporter {
    /// Starts the exporter, if a collector is configured.
    pub(crate) fn start(config: &Config, notices: &Notices) -> Option<Self> {
        let url = config.logs.otlp.clone()?;
        let (queue, spans) = sync_channel(MAX_WAITING);
        let counts = Arc::<TraceCounts>::default();
        let sender = Sender::new(url, Arc::clone(&counts), notices.clone());
        thread::spawn(move || sender.run(&spans));
        Some(Self {
            queue,
            counts,
            config: Arc::new(config.clone()),
        })
    }

    /// Returns the sampler, and the observer of origin requests.
    pub(crate) fn traces(&self) -> Traces {
        let exporter = self.clone();
        let counts = Arc::clone(&self.counts);
        Traces::new(self.config.logs.otlp_sample, counts, move |origin_span| {
            exporter.push(span::of_origin(origin_span));
        })
    }

    /// Returns the observer of finished requests.
    pub(crate) fn requests(&self) -> impl Fn(&FinishedRequest<'_>) + Send + Sync + 'static {
        let (exporter, traces) = (self.clone(), self.traces());
        move |finished: &FinishedRequest<'_>| {
            let span = match (finished.traced, &finished.request) {
                (TraceState::Yes(span), _) => Some(span),
                (TraceState::Undecided, Some(request)) => {
                    traces.begin(request.fields, request.is_trusted)
                }
                _ => None,
            };
            if let Some(span) = span {
                exporter.push(span::of_request(span, finished));
            }
        }
    }

    fn push(&self, span: String) {
        match self.queue.try_send(SenderCommand::Span(span)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Sends all spans at exit, and waits for that up to a limit.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + LAST_WAIT;
        let (done, ended) = sync_channel(1);
        // If the queue is full, the sender makes room.
        while let Err(TrySendError::Full(_)) =
            self.queue.try_send(SenderCommand::Finish(done.clone()))
        {
            if Instant::now() >= until {
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
        let _ = ended.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

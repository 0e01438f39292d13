//! Traces of requests, for a collector that takes OTLP over HTTP.
//!
//! The thread that serves makes a span of a request that is traced and puts it into a bounded queue; one
//! thread sends what is there, and serving never waits for it. What does not fit, or is not taken, is counted.

mod sender;
mod span;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use microcache_proxy::config::Config;
use microcache_proxy::{Finished, Notices, TraceCounts, Traced, Traces};

use sender::Sender;

/// Spans that wait to be sent. The next ones are dropped.
const MAX_WAITING: usize = 2048;
/// How long the process waits at its end for what is not sent yet.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// How often it is looked whether there is room in the queue, at the end.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What the sender is handed.
enum Message {
    /// A span, as it stands in a request to the collector.
    Span(String),
    /// Nothing comes any more: it is to send what it has, and to say so.
    Finish(SyncSender<()>),
}

/// The way to the collector.
#[derive(Clone)]
pub(crate) struct Exporter {
    queue: SyncSender<Message>,
    counts: Arc<TraceCounts>,
    config: Arc<Config>,
}

impl Exporter {
    /// Begins to send, if the configuration names a collector.
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

    /// What decides which requests are traced, and tells of what is asked of origins for them.
    pub(crate) fn traces(&self) -> Traces {
        let exporter = self.clone();
        let counts = Arc::clone(&self.counts);
        Traces::new(self.config.logs.otlp_sample, counts, move |asked| {
            exporter.push(span::of_origin(asked));
        })
    }

    /// What wants to know of each request when it is over.
    pub(crate) fn requests(&self) -> impl Fn(&Finished<'_>) + Send + Sync + 'static {
        let (exporter, traces) = (self.clone(), self.traces());
        move |finished: &Finished<'_>| {
            let span = match (finished.traced, &finished.request) {
                (Traced::Yes(span), _) => Some(span),
                (Traced::Undecided, Some(request)) => traces.begin(request.fields, request.vouched),
                _ => None,
            };
            if let Some(span) = span {
                exporter.push(span::of_request(span, finished, &exporter.config));
            }
        }
    }

    fn push(&self, span: String) {
        match self.queue.try_send(Message::Span(span)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Has what there is sent, and waits for that, but not for ever. To be called at the end.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + LAST_WAIT;
        let (done, ended) = sync_channel(1);
        // Where the queue is full, room is made by whoever sends.
        while let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Finish(done.clone())) {
            if Instant::now() >= until {
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
        let _ = ended.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

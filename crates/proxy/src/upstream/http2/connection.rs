//! One HTTP/2 connection to a server, and admission of streams to it.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::Request;
use microcache_engine::origin::OriginError;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::upstream::exchange::ANSWER_LIMITS;
use crate::upstream::transport::OriginTransport;

/// Limit of concurrent streams per connection, unless the server sets a lower one.
pub(super) const MAX_STREAMS: usize = 100;
/// Flow-control window of a stream in bytes: the memory that one slow client can occupy.
const WINDOW: u32 = 256 * 1024;
/// Flow-control window of a connection in bytes: enough for all its streams, so that slow clients do not
/// stall others.
const CONNECTION_WINDOW: u32 = MAX_STREAMS as u32 * WINDOW;
/// Bytes of a request body buffered in the connection before they are sent.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams reset early after which a connection takes no new requests: servers close connections with too
/// many resets, which fails everything on them. Streams that are open by then may still be reset.
const MAX_GIVEN_UP: usize = 100;
/// Time for which frames of reset streams are still accepted.
const GIVEN_UP: Duration = Duration::from_secs(10);
/// Silence after which a connection with requests in flight is considered dead for new ones.
const SILENCE: Duration = Duration::from_secs(5);
/// Time limit for the GOAWAY exchange of a connection that is not needed any more.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection shared by requests.
pub(in crate::upstream) struct Http2Connection {
    requests: SendRequest<Bytes>,
    opened: Instant,
    usage: Mutex<StreamUsage>,
    /// Dropping it makes the connection's task close gracefully.
    _needed: oneshot::Sender<()>,
}

/// Requirements of a request for its connection.
#[derive(Debug)]
pub(in crate::upstream) struct ConnectionRequirements {
    /// Longest idle time, if nothing has been received on it since.
    pub(in crate::upstream) idle: Duration,
    /// Opened after this moment: on an older one the request was refused.
    pub(in crate::upstream) opened_after: Option<Instant>,
}

impl ConnectionRequirements {
    /// No requirements.
    const ANY: Self = Self {
        idle: Duration::MAX,
        opened_after: None,
    };
}

#[derive(Debug)]
struct StreamUsage {
    streams: usize,
    /// Arrival of the first of those streams on an idle connection.
    began: Instant,
    /// Time of the last frame from the server.
    heard: Instant,
    /// Streams dropped before both sides had ended them.
    given_up: usize,
    /// No more streams are opened on it.
    retired: bool,
}

/// A stream slot on a connection, released on drop.
pub(in crate::upstream) struct StreamSlot {
    connection: Arc<Http2Connection>,
    /// The connection was idle, and nothing has been received on it since.
    pub(super) is_unproven: bool,
    /// A stream is open in at least one direction.
    is_under_way: bool,
}

impl Http2Connection {
    /// Performs the HTTP/2 handshake on the current runtime, to which the connection is bound. Returns after
    /// the server's SETTINGS, so that its stream limit is known.
    pub(in crate::upstream) async fn open(transport: OriginTransport) -> Result<Arc<Self>, String> {
        let shaken = builder().handshake::<_, Bytes>(transport).await;
        let (requests, mut frames) = shaken.map_err(|error| error.to_string())?;
        poll_fn(|cx| match Pin::new(&mut frames).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Err("it closed the connection".to_owned())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.to_string())),
            Poll::Pending if requests.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let (needed, unneeded) = oneshot::channel();
        let now = Instant::now();
        let connection = Arc::new(Self {
            requests,
            opened: now,
            usage: Mutex::new(StreamUsage {
                streams: 0,
                began: now,
                heard: now,
                given_up: 0,
                retired: false,
            }),
            _needed: needed,
        });
        tokio::spawn(keep_up(frames, unneeded, Arc::downgrade(&connection)));
        Ok(connection)
    }

    /// Limit of concurrent streams.
    pub(super) fn room(&self) -> usize {
        MAX_STREAMS.min(self.requests.current_max_send_streams())
    }

    /// Reserves a stream if the connection is usable for such a request.
    pub(super) fn join(
        self: &Arc<Self>,
        wanted: &ConnectionRequirements,
        now: Instant,
    ) -> Option<StreamSlot> {
        if wanted
            .opened_after
            .is_some_and(|moment| self.opened <= moment)
            || !self.is_open()
        {
            return None;
        }
        let room = self.room();
        let mut usage = self.usage.lock();
        let began = if usage.streams == 0 { now } else { usage.began };
        // Idle time, if nothing has been received since.
        let unproven = began.saturating_duration_since(usage.heard);
        let silence = now.saturating_duration_since(began.max(usage.heard));
        if usage.retired || unproven > wanted.idle || silence > SILENCE || usage.streams >= room {
            return None;
        }
        usage.began = began;
        usage.streams += 1;
        drop(usage);
        Some(StreamSlot {
            connection: Arc::clone(self),
            is_unproven: !unproven.is_zero(),
            is_under_way: false,
        })
    }

    /// Reserves the first stream of a new connection.
    pub(in crate::upstream) fn first_slot(self: &Arc<Self>) -> Result<StreamSlot, OriginError> {
        // Treated as if it had been in use since then.
        let slot = self.join(&ConnectionRequirements::ANY, self.opened);
        slot.ok_or_else(|| OriginError::Connect("it closed the connection at once".into()))
    }

    /// Returns true if the server still accepts streams, as far as is known.
    fn is_open(&self) -> bool {
        let mut no_waker = Context::from_waker(Waker::noop());
        let mut requests = self.requests.clone();
        matches!(requests.poll_ready(&mut no_waker), Poll::Ready(Ok(())))
    }

    /// Returns true if it can be closed: it has ended, or has been idle for longer than `keep`.
    pub(super) fn is_done_with(&self, keep: Duration, now: Instant) -> bool {
        let usage = self.usage.lock();
        let unused = now.saturating_duration_since(usage.heard);
        usage.retired || (usage.streams == 0 && unused > keep)
    }

    /// Returns true if it has no streams.
    pub(super) fn is_idle(&self) -> bool {
        self.usage.lock().streams == 0
    }

    /// Stops opening streams; open ones continue.
    fn retire(&self) {
        self.usage.lock().retired = true;
    }
}

impl fmt::Debug for Http2Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?})", *self.usage.lock())
    }
}

impl StreamSlot {
    /// Opens the stream.
    pub(super) fn begin(
        &mut self,
        head: Request<()>,
        is_all: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let begun = self
            .connection
            .requests
            .clone()
            .send_request(head, is_all)?;
        self.is_under_way = true;
        Ok(begun)
    }

    /// Records that both sides have ended the stream, so that dropping it resets nothing.
    pub(super) fn has_ended(&mut self) {
        self.is_under_way = false;
    }

    /// Returns true if the connection was opened before this moment.
    pub(in crate::upstream) fn is_older_than(&self, moment: Instant) -> bool {
        self.connection.opened < moment
    }

    /// Returns true if the connection is still usable.
    pub(super) fn is_good(&self) -> bool {
        self.connection.is_open() && !self.connection.usage.lock().retired
    }

    /// Records that the server has sent something.
    pub(super) fn has_heard(&self) {
        self.connection.usage.lock().heard = Instant::now();
    }

    /// Retires the connection, because its server did not respond, or not properly.
    pub(super) fn give_up_connection(&self) {
        self.connection.retire();
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut usage = self.connection.usage.lock();
        usage.streams -= 1;
        usage.given_up += usize::from(self.is_under_way);
        usage.retired |= usage.given_up >= MAX_GIVEN_UP;
    }
}

/// Drives the connection until it ends, or for a short time after it is no longer needed.
async fn keep_up(
    mut frames: h2::client::Connection<OriginTransport, Bytes>,
    unneeded: oneshot::Receiver<()>,
    connection: Weak<Http2Connection>,
) {
    tokio::select! {
        // The streams on it receive the error.
        _ = &mut frames => {}
        _ = unneeded => {
            let _ = timeout(FAREWELL, &mut frames).await;
        }
    }
    if let Some(connection) = connection.upgrade() {
        connection.retire();
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    // Heads are checked against the limits of HTTP/1 later. Here each field counts 32 bytes more (RFC 9113
    // §6.5.2).
    let head = ANSWER_LIMITS.head + 32 * ANSWER_LIMITS.fields;
    builder
        .enable_push(false)
        .initial_max_send_streams(0)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(head as u32)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_reset_streams(MAX_GIVEN_UP + MAX_STREAMS)
        .reset_stream_duration(GIVEN_UP);
    builder
}

//! One connection with HTTP/2: how many are on it, and whether another one may be.

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

use super::connections::Wanted;
use crate::upstream::exchange::ANSWER_LIMITS;
use crate::upstream::transport::Transport;

/// The most requests on one connection, if the server does not want fewer.
pub(super) const MAX_STREAMS: usize = 100;
/// As much of an answer may be on its way, or here, before somebody reads it: so much a slow client costs.
const WINDOW: u32 = 256 * 1024;
/// The same for all of a connection: no slow client takes anything away from the others.
const CONNECTION_WINDOW: u32 = MAX_STREAMS as u32 * WINDOW;
/// As much of a request's body is handed to the connection before that has sent it.
const SEND_BUFFER: usize = 64 * 1024;
/// A connection takes no more requests once so many of those on it were given up, which resets their streams: servers close one on
/// which too many are reset, and then nothing that is on it is answered. Those that are on it by then may be given up too.
const MAX_GIVEN_UP: usize = 100;
/// How long frames may still come for them.
const GIVEN_UP: Duration = Duration::from_secs(10);
/// A connection that others wait on, and that has been silent for so long, may be a dead one: new requests go elsewhere.
const SILENCE: Duration = Duration::from_secs(5);
/// How long the server may take to hear that the connection is not needed any more.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection that requests share.
pub(in crate::upstream) struct Connection {
    requests: SendRequest<Bytes>,
    opened: Instant,
    usage: Mutex<Usage>,
    /// The connection's task takes leave of the server when this is gone.
    _needed: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Usage {
    streams: usize,
    /// When the first of those came, while nobody else was on it.
    began: Instant,
    /// When the server was last heard.
    heard: Instant,
    /// So many streams went before both sides had ended them.
    given_up: usize,
    /// No more streams are wanted on it.
    retired: bool,
}

/// One request's place on a connection. Dropping it makes room for another one.
pub(in crate::upstream) struct Slot {
    connection: Arc<Connection>,
    /// The connection was idle before, and nothing was heard on it since.
    pub(super) is_unproven: bool,
    /// There is a stream, and one of its sides has not ended.
    is_under_way: bool,
}

impl Connection {
    /// Speaks HTTP/2 on what was opened on the current runtime, where it lives from now on. What the server allows is known
    /// when this returns: who would send more than that would be turned away.
    pub(in crate::upstream) async fn open(transport: Transport) -> Result<Arc<Self>, String> {
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
            usage: Mutex::new(Usage {
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

    /// How many streams it takes at a time.
    pub(super) fn room(&self) -> usize {
        MAX_STREAMS.min(self.requests.current_max_send_streams())
    }

    /// A place on it, if it is good for such a request.
    pub(super) fn join(self: &Arc<Self>, wanted: &Wanted, now: Instant) -> Option<Slot> {
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
        // How long it had been idle, if nothing was heard on it since.
        let unproven = began.saturating_duration_since(usage.heard);
        let silence = now.saturating_duration_since(began.max(usage.heard));
        if usage.retired || unproven > wanted.idle || silence > SILENCE || usage.streams >= room {
            return None;
        }
        usage.began = began;
        usage.streams += 1;
        drop(usage);
        Some(Slot {
            connection: Arc::clone(self),
            is_unproven: !unproven.is_zero(),
            is_under_way: false,
        })
    }

    /// The first place on it.
    pub(in crate::upstream) fn first_slot(self: &Arc<Self>) -> Result<Slot, OriginError> {
        // It is as if somebody had been on it ever since.
        let slot = self.join(&Wanted::ANY, self.opened);
        slot.ok_or_else(|| OriginError::Connect("it closed the connection at once".into()))
    }

    /// Whether the server takes more requests on it, as far as was heard.
    fn is_open(&self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        let mut requests = self.requests.clone();
        matches!(requests.poll_ready(&mut nobody), Poll::Ready(Ok(())))
    }

    /// Whether it can be closed: it is over, or has been unused for longer than `keep`.
    pub(super) fn is_done_with(&self, keep: Duration, now: Instant) -> bool {
        let usage = self.usage.lock();
        let unused = now.saturating_duration_since(usage.heard);
        usage.retired || (usage.streams == 0 && unused > keep)
    }

    /// Whether nobody is on it.
    pub(super) fn is_idle(&self) -> bool {
        self.usage.lock().streams == 0
    }

    /// No more requests go on it. Those that are on it go on.
    fn retire(&self) {
        self.usage.lock().retired = true;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?})", *self.usage.lock())
    }
}

impl Slot {
    /// Begins the one stream.
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

    /// Both sides have ended the stream: letting go of it resets nothing.
    pub(super) fn has_ended(&mut self) {
        self.is_under_way = false;
    }

    /// Whether the connection was there before this moment.
    pub(in crate::upstream) fn is_older_than(&self, moment: Instant) -> bool {
        self.connection.opened < moment
    }

    /// Whether the connection is still good for a request.
    pub(super) fn is_good(&self) -> bool {
        self.connection.is_open() && !self.connection.usage.lock().retired
    }

    /// The server has sent something for this request.
    pub(super) fn has_heard(&self) {
        self.connection.usage.lock().heard = Instant::now();
    }

    /// The server did not answer, or not properly: others had better not be sent there.
    pub(super) fn give_up_connection(&self) {
        self.connection.retire();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut usage = self.connection.usage.lock();
        usage.streams -= 1;
        usage.given_up += usize::from(self.is_under_way);
        usage.retired |= usage.given_up >= MAX_GIVEN_UP;
    }
}

/// Reads and writes frames until the connection is over, or for a moment after nobody needs it any more.
async fn keep_up(
    mut frames: h2::client::Connection<Transport, Bytes>,
    unneeded: oneshot::Receiver<()>,
    connection: Weak<Connection>,
) {
    tokio::select! {
        // What ended it is told to those who are on it.
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
    // Heads are held to the limits of HTTP/1 when they are read. Here each field counts for 32 bytes more (RFC 9113 §6.5.2).
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

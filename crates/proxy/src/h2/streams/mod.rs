//! Requests under way on one connection, each a stream: their content, their responses and the events that they
//! await.
//!
//! Everything that changes with the streams is kept beside them: the receive window of the connection, which their
//! content shares, the memory of their responses, and whether the connection is idle. What a change writes goes to
//! the [`Outbound`] that is passed to it.

mod content;
mod deadlines;
mod events;
mod poll_context;
mod responses;
mod stream;
mod table;

use microcache_policy::Time;

use super::flow::{ReceiveWindow, Window, WindowOverflow};
use super::outbound::Outbound;
use super::priority::Priority;
use super::reason::{ErrorCode, ProtocolError};
use crate::admission::Activity;
use events::PendingEvents;
use stream::{Http2Stream, RequestContent};
use table::{InactiveStream, StreamTable};

pub(super) use poll_context::PollContext;
pub(super) use stream::StreamRequest;

/// Receive window of the connection in bytes, shared by all requests; each stream has
/// [`INITIAL`](super::flow::INITIAL).
pub(super) const CONNECTION_WINDOW: u32 = 256 * 1024;

/// Streams of one connection.
pub(super) struct Http2Streams<'a> {
    table: StreamTable,
    events: PendingEvents,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS` sent to the client.
    limit: usize,
    /// Receive window of the connection.
    receive_window: ReceiveWindow,
    /// Memory in bytes of bodies that are read for this connection alone.
    held: usize,
    /// A stream waits for this memory before it reads more of its body.
    is_hungry: bool,
    /// Shared with the connection limits, which close idle connections.
    activity: &'a Activity,
    /// Last time with an open stream, or the start of the connection.
    quiet: Time,
}

impl<'a> Http2Streams<'a> {
    /// Creates an empty set, for at most `limit` concurrent streams.
    pub(super) fn new(activity: &'a Activity, limit: usize, now: Time) -> Self {
        Self {
            table: StreamTable::default(),
            events: PendingEvents::default(),
            limit,
            receive_window: ReceiveWindow::new(CONNECTION_WINDOW),
            held: 0,
            is_hungry: false,
            activity,
            quiet: now,
        }
    }

    /// Returns the highest identifier opened so far.
    pub(super) fn last(&self) -> u32 {
        self.table.last()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns `true` if no more streams are allowed for now.
    pub(super) fn is_full(&self) -> bool {
        self.table.len() >= self.limit
    }

    /// Returns the identifiers of open streams.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.table.ids()
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.table.contains(id)
    }

    /// Returns `true` if the client may still send on this stream.
    pub(super) fn is_receiving(&mut self, id: u32) -> bool {
        self.table.get(id).is_some_and(|stream| stream.is_open)
    }

    /// Returns `true` if the stream was reset here before the client ended it: frames in flight are ignored.
    pub(super) fn is_cut_short(&self, id: u32) -> bool {
        self.table.past(id) == InactiveStream::CutShort
    }

    /// Refuses frames other than HEADERS on an idle stream (RFC 9113 §5.1).
    pub(super) fn check_not_idle(&self, id: u32) -> Result<(), ProtocolError> {
        if id.is_multiple_of(2) || self.table.past(id) == InactiveStream::Idle {
            return Err(ProtocolError::protocol("a frame on an idle stream"));
        }
        Ok(())
    }

    /// Returns `true` if no response waits for its turn to be sent.
    pub(super) fn is_none_ready(&self) -> bool {
        self.table.is_empty() || !self.table.any_ready(true)
    }

    /// Returns the time since when the connection is idle, if it is.
    pub(super) fn idle_since(&self) -> Option<Time> {
        self.is_empty().then_some(self.quiet)
    }

    /// Opens an idle stream.
    pub(super) fn open(&mut self, id: u32) -> Result<(), ProtocolError> {
        self.table.open(id)
    }

    /// Records that the latest stream was reset before the client ended it.
    pub(super) fn cut_short(&mut self, id: u32) {
        self.table.cut_short(id);
    }

    /// Records requests that were answered at once, while no stream is open. Returns `false` if the connection
    /// limits have closed the connection as idle.
    pub(super) fn answered_at_once(&mut self, now: Time) -> bool {
        self.quiet = now;
        self.activity.answered(now)
    }

    /// Registers a request whose response takes time, on the stream opened for it. Returns `false` if the
    /// connection limits have closed the connection as idle meanwhile.
    pub(super) fn begin(
        &mut self,
        stream_request: StreamRequest,
        has_content: bool,
        window: Window,
    ) -> bool {
        if self.is_empty() {
            if !self.activity.begin() {
                return false;
            }
        } else {
            self.activity.begin_another();
        }
        let content = has_content.then(RequestContent::new);
        let stream = Http2Stream::new(stream_request, content, window);
        self.table.insert(stream_request.id, stream);
        true
    }

    /// Applies a `PRIORITY_UPDATE`.
    pub(super) fn set_priority(&mut self, id: u32, value: &[u8]) {
        if let Some(stream) = self.table.get(id) {
            stream.priority = Priority::of(value);
        }
    }

    /// Adjusts all send windows after a change of the initial size (RFC 9113 §6.9.2).
    pub(super) fn shift_windows(&mut self, by: i64) -> Result<(), WindowOverflow> {
        self.table.shift_windows(by)
    }

    /// Adds the increment of a `WINDOW_UPDATE`; `None` if the stream is not open.
    pub(super) fn grow_window(
        &mut self,
        id: u32,
        increment: u32,
    ) -> Option<Result<(), WindowOverflow>> {
        let stream = self.table.get(id)?;
        Some(stream.window.grow(increment))
    }

    /// Resets a stream with `RST_STREAM`.
    pub(super) fn reset(&mut self, id: u32, reason: ErrorCode, now: Time, out: &mut Outbound) {
        out.reset(id, reason);
        self.table.cut_short(id);
        self.forget(id, now, out);
    }

    /// Removes a stream, and cancels its awaited events.
    pub(super) fn forget(&mut self, id: u32, now: Time, out: &mut Outbound) {
        let Some(mut stream) = self.table.remove(id) else {
            return;
        };
        self.release(stream.unread(), out);
        if let Some(sending) = stream.sending()
            && sending.is_held
        {
            self.held = self.held.saturating_sub(sending.piece.len());
        }
        if self.is_empty() {
            self.quiet = now;
            self.activity.end(now);
        } else {
            self.mark_endless();
        }
    }

    /// Marks a connection on which no stream ends by itself as endless, so that it may be closed. One without
    /// streams is idle already.
    fn mark_endless(&mut self) {
        let is_idle = self.is_empty();
        if !is_idle && self.table.iter().all(|(_, stream)| stream.is_endless) {
            self.activity.mark_endless();
        }
    }
}

//! Request content on its way to the session. A flow-control window is reopened only for bytes that were taken
//! (back-pressure).

use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::{BodyError, Frame};
use microcache_policy::FieldsBuf;
use tokio::io::AsyncWriteExt;

use super::events::StreamEvent;
use super::stream::ContentSink;
use super::{Http2Streams, PollContext};
use crate::h2::outbound::Outbound;
use crate::h2::reason::{ErrorCode, ProtocolError};
use crate::h2::tunnel::OriginWriter;
use crate::session::ContentSender;

impl Http2Streams<'_> {
    /// Handles a DATA frame. `flow`: its flow-controlled size.
    pub(in crate::h2) fn take_data(
        &mut self,
        poll: &mut PollContext<'_, '_>,
        id: u32,
        data: &[u8],
        flow: usize,
        ends: bool,
    ) -> Result<(), ProtocolError> {
        let exceeded = "DATA beyond the connection's flow-control window";
        let arrived = self.receive_window.arrived(flow);
        arrived.map_err(|_| ProtocolError::Connection(ErrorCode::FlowControl, exceeded))?;
        let Some(stream) = self.table.get(id) else {
            self.check_not_idle(id)?;
            self.release(flow, poll.out);
            if self.is_cut_short(id) {
                return Ok(());
            }
            let what = "DATA on a closed stream";
            return Err(ProtocolError::Connection(ErrorCode::StreamClosed, what));
        };
        if !stream.is_open {
            self.release(flow, poll.out);
            let what = "DATA after the end of a stream";
            return Err(ProtocolError::Stream(id, ErrorCode::StreamClosed, what));
        }
        if stream.receive_window.arrived(flow).is_err() {
            self.release(flow, poll.out);
            let what = "DATA beyond the stream's flow-control window";
            return Err(ProtocolError::Stream(id, ErrorCode::FlowControl, what));
        }
        if let Some(left) = &mut stream.announced {
            let Some(less) = left.checked_sub(data.len() as u64) else {
                self.release(flow, poll.out);
                let what = "more content than announced";
                return Err(ProtocolError::Stream(id, ErrorCode::Protocol, what));
            };
            *left = less;
        }
        if let Some(content) = &mut stream.content {
            content.buffer.extend_from_slice(data);
            if let (Some(awaited_since), Some(ContentSink::Request(sender))) =
                (content.awaited_since.take(), &mut content.sender)
            {
                let waited = Duration::from_millis(poll.now.since(awaited_since));
                sender.allowance.received(data.len(), waited);
            }
            // Padding is released at once.
            self.release_of(id, flow - data.len(), poll.out);
        } else {
            // Unwanted content: the stream's window stays closed.
            self.release(flow, poll.out);
        }
        if ends {
            return self.end_content(poll, id, None);
        }
        self.hand_on(poll, id);
        Ok(())
    }

    /// Ends the content.
    pub(in crate::h2) fn end_content(
        &mut self,
        poll: &mut PollContext<'_, '_>,
        id: u32,
        trailers: Option<FieldsBuf>,
    ) -> Result<(), ProtocolError> {
        let Some(stream) = self.table.get(id) else {
            return Ok(());
        };
        if stream.announced.is_some_and(|left| left > 0) {
            let what = "less content than announced";
            return Err(ProtocolError::Stream(id, ErrorCode::Protocol, what));
        }
        stream.is_open = false;
        if let Some(content) = &mut stream.content {
            content.is_complete = true;
            content.trailers = trailers;
        }
        self.hand_on(poll, id);
        Ok(())
    }

    /// Continues after the receiver has room for more, or was dropped.
    pub(super) fn has_room(
        &mut self,
        poll: &mut PollContext<'_, '_>,
        id: u32,
        sender: ContentSink,
        is_wanted: bool,
    ) {
        let Some(content) = self.table.get(id).and_then(|it| it.content.as_mut()) else {
            return;
        };
        let taken = std::mem::take(&mut content.handed_on);
        if is_wanted {
            content.sender = Some(sender);
            self.release_of(id, taken, poll.out);
            self.hand_on(poll, id);
        } else {
            self.drop_content(id, taken, poll.out);
        }
    }

    /// Discards the rest of the content.
    fn drop_content(&mut self, id: u32, taken: usize, out: &mut Outbound) {
        let Some(stream) = self.table.get(id) else {
            return;
        };
        let unread = stream.unread();
        stream.content = None;
        self.release_of(id, taken + unread, out);
    }

    /// Passes on buffered content if there is room for it.
    pub(super) fn hand_on(&mut self, poll: &mut PollContext<'_, '_>, id: u32) {
        let Some(content) = self.table.get(id).and_then(|it| it.content.as_mut()) else {
            return;
        };
        let mut sender = match content.sender.take() {
            Some(ContentSink::Request(sender)) => sender,
            Some(ContentSink::Tunnel(io)) if content.buffer.is_empty() && !content.is_complete => {
                content.sender = Some(ContentSink::Tunnel(io));
                return;
            }
            Some(ContentSink::Tunnel(io)) => {
                let data = content.buffer.split().freeze();
                content.handed_on = data.len();
                self.moved_in_tunnel(poll, id);
                return self.write_on(poll.cx, id, io, data);
            }
            None => return,
        };
        let is_last = content.is_complete && content.trailers.is_none();
        if !content.buffer.is_empty() {
            let data = content.buffer.split().freeze();
            content.handed_on = data.len();
            sender.send(Frame::Data(data), is_last);
            if is_last {
                return self.drop_content(id, 0, poll.out);
            }
            self.await_room(poll.cx, id, sender);
        } else if is_last {
            sender.end();
            self.drop_content(id, 0, poll.out);
        } else if let Some(trailers) = content.trailers.take() {
            sender.send(Frame::Trailers(trailers), true);
            self.drop_content(id, 0, poll.out);
        } else {
            content.awaited_since.get_or_insert(poll.now);
            content.sender = Some(ContentSink::Request(sender));
        }
    }

    /// Waits for room. Content that arrives meanwhile is buffered, up to the stream's window.
    pub(super) fn await_room(&mut self, cx: &mut Context<'_>, id: u32, mut sender: ContentSender) {
        let waits = self.events.wait(cx, id, async move {
            let is_wanted = sender.ready().await;
            StreamEvent::Room(ContentSink::Request(sender), is_wanted)
        });
        if let Some(content) = self.table.get(id).and_then(|it| it.content.as_mut()) {
            content.waits = waits;
        }
    }

    /// Writes to the origin's connection; an empty slice shuts it down.
    fn write_on(&mut self, cx: &mut Context<'_>, id: u32, mut io: OriginWriter, data: Bytes) {
        let waits = self.events.wait(cx, id, async move {
            let goes_on = if data.is_empty() {
                let _ = io.shutdown().await;
                false
            } else {
                io.write_all(&data).await.is_ok() && io.flush().await.is_ok()
            };
            StreamEvent::Room(ContentSink::Tunnel(io), goes_on)
        });
        if let Some(content) = self.table.get(id).and_then(|it| it.content.as_mut()) {
            content.waits = waits;
        }
    }

    /// Fails content whose client has exceeded its timeout.
    pub(super) fn content_is_late(&mut self, id: u32, out: &mut Outbound) {
        let content = self.table.get(id).and_then(|it| it.content.as_mut());
        if let Some(ContentSink::Request(sender)) =
            content.and_then(|content| content.sender.take())
        {
            sender.fail(BodyError::Timeout);
        }
        self.drop_content(id, 0, out);
    }

    /// Releases bytes of a stream: its window and the connection's are reopened.
    fn release_of(&mut self, id: u32, bytes: usize, out: &mut Outbound) {
        if let Some(stream) = self.table.get(id)
            && stream.is_open
            && let Some(increment) = stream.receive_window.released(bytes)
        {
            out.window_update(id, increment);
        }
        self.release(bytes, out);
    }

    /// Releases bytes of the connection's window only.
    pub(super) fn release(&mut self, bytes: usize, out: &mut Outbound) {
        if let Some(increment) = self.receive_window.released(bytes) {
            out.window_update(0, increment);
        }
    }
}

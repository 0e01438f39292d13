//! Request content on its way to the session. A flow-control window is reopened only for bytes that were taken
//! (back-pressure).

use std::task::Context;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use microcache_engine::{BodyError, Frame};
use microcache_policy::FieldsBuf;
use tokio::io::AsyncWriteExt;

use super::connection::Http2ServerConnection;
use super::reason::{ErrorCode, ProtocolError};
use super::stream::{ContentSink, EventHandle, RequestContent};
use super::stream_events::StreamEvent;
use super::tunnel::OriginWriter;
use super::write;
use crate::session::ContentSender;

impl RequestContent {
    /// Content of a request, before any of it has arrived.
    pub(super) fn new() -> Self {
        Self {
            sender: None,
            buffer: BytesMut::new(),
            trailers: None,
            is_complete: false,
            handed_on: 0,
            waits: EventHandle::default(),
            awaited_since: None,
            silence: None,
        }
    }
}

impl Http2ServerConnection<'_> {
    /// Handles a DATA frame on an open stream.
    pub(super) fn take_content(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        data: &[u8],
        flow: usize,
        ends: bool,
    ) -> Result<(), ProtocolError> {
        let now = self.now;
        let Some(stream) = self.streams.get(id) else {
            return Ok(());
        };
        if let Some(left) = &mut stream.announced {
            let Some(less) = left.checked_sub(data.len() as u64) else {
                self.release(flow);
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
                let waited = Duration::from_millis(now.since(awaited_since));
                sender.allowance.received(data.len(), waited);
            }
            // Padding is released at once.
            self.release_of(id, flow - data.len());
        } else {
            // Unwanted content: the stream's window stays closed.
            self.release(flow);
        }
        if ends {
            return self.end_content(cx, id, None);
        }
        self.hand_on(cx, id);
        Ok(())
    }

    /// Ends the content.
    pub(super) fn end_content(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        trailers: Option<FieldsBuf>,
    ) -> Result<(), ProtocolError> {
        let Some(stream) = self.streams.get(id) else {
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
        self.hand_on(cx, id);
        Ok(())
    }

    /// Continues after the receiver has room for more, or was dropped.
    pub(super) fn has_room(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        sender: ContentSink,
        is_wanted: bool,
    ) {
        let Some(content) = self.streams.get(id).and_then(|it| it.content.as_mut()) else {
            return;
        };
        let taken = std::mem::take(&mut content.handed_on);
        if is_wanted {
            content.sender = Some(sender);
            self.release_of(id, taken);
            self.hand_on(cx, id);
        } else {
            self.drop_content(id, taken);
        }
    }

    /// Discards the rest of the content.
    fn drop_content(&mut self, id: u32, taken: usize) {
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let unread = stream.unread();
        stream.content = None;
        self.release_of(id, taken + unread);
    }

    /// Passes on buffered content if there is room for it.
    pub(super) fn hand_on(&mut self, cx: &mut Context<'_>, id: u32) {
        let now = self.now;
        let Some(content) = self.streams.get(id).and_then(|it| it.content.as_mut()) else {
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
                self.moved_in_tunnel(id);
                return self.write_on(cx, id, io, data);
            }
            None => return,
        };
        let is_last = content.is_complete && content.trailers.is_none();
        if !content.buffer.is_empty() {
            let data = content.buffer.split().freeze();
            content.handed_on = data.len();
            sender.send(Frame::Data(data), is_last);
            if is_last {
                return self.drop_content(id, 0);
            }
            self.await_room(cx, id, sender);
        } else if is_last {
            sender.end();
            self.drop_content(id, 0);
        } else if let Some(trailers) = content.trailers.take() {
            sender.send(Frame::Trailers(trailers), true);
            self.drop_content(id, 0);
        } else {
            content.awaited_since.get_or_insert(now);
            content.sender = Some(ContentSink::Request(sender));
        }
    }

    /// Waits for room. Content that arrives meanwhile is buffered, up to the stream's window.
    pub(super) fn await_room(&mut self, cx: &mut Context<'_>, id: u32, mut sender: ContentSender) {
        let waits = self.pending_events.wait(cx, id, async move {
            let is_wanted = sender.ready().await;
            StreamEvent::Room(ContentSink::Request(sender), is_wanted)
        });
        if let Some(content) = self.streams.get(id).and_then(|it| it.content.as_mut()) {
            content.waits = waits;
        }
    }

    /// Writes to the origin's connection; an empty slice shuts it down.
    pub(super) fn write_on(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        mut io: OriginWriter,
        data: Bytes,
    ) {
        let waits = self.pending_events.wait(cx, id, async move {
            let goes_on = if data.is_empty() {
                let _ = io.shutdown().await;
                false
            } else {
                io.write_all(&data).await.is_ok() && io.flush().await.is_ok()
            };
            StreamEvent::Room(ContentSink::Tunnel(io), goes_on)
        });
        if let Some(content) = self.streams.get(id).and_then(|it| it.content.as_mut()) {
            content.waits = waits;
        }
    }

    /// Fails content whose client has exceeded its timeout.
    pub(super) fn content_is_late(&mut self, id: u32) {
        let content = self.streams.get(id).and_then(|it| it.content.as_mut());
        if let Some(ContentSink::Request(sender)) =
            content.and_then(|content| content.sender.take())
        {
            sender.fail(BodyError::Timeout);
        }
        self.drop_content(id, 0);
    }

    /// Releases bytes of a stream: its window and the connection's are reopened.
    fn release_of(&mut self, id: u32, bytes: usize) {
        if let Some(stream) = self.streams.get(id)
            && stream.is_open
            && let Some(increment) = stream.receive_window.released(bytes)
        {
            write::window_update(&mut self.out.bytes, id, increment);
        }
        self.release(bytes);
    }

    /// Releases bytes of the connection's window only.
    pub(super) fn release(&mut self, bytes: usize) {
        if let Some(increment) = self.receive_window.released(bytes) {
            write::window_update(&mut self.out.bytes, 0, increment);
        }
    }
}

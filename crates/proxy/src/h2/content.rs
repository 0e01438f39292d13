//! What requests send, on its way to whoever wants it. A window is opened again only when what came
//! through it was taken, so that nothing piles up here.

use std::task::Context;
use std::time::Duration;

use bytes::BytesMut;
use microcache_engine::{BodyError, Frame};
use microcache_policy::FieldsBuf;

use super::connection::Connection;
use super::reason::{Fault, Reason};
use super::stream::{Content, Sink, Wait};
use super::waiting::Step;
use super::write;
use crate::session::ContentSender;

impl Content {
    /// Content that somebody may want.
    pub(super) fn new() -> Self {
        Self {
            sender: None,
            buffer: BytesMut::new(),
            trailers: None,
            is_complete: false,
            handed_on: 0,
            waits: Wait::default(),
            asked: None,
            silence: None,
        }
    }
}

impl Connection<'_> {
    /// A piece of content has come on a stream that is open.
    pub(super) fn take_content(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        data: &[u8],
        flow: usize,
        ends: bool,
    ) -> Result<(), Fault> {
        let now = self.now;
        let Some(stream) = self.streams.get(id) else {
            return Ok(());
        };
        if let Some(left) = &mut stream.announced {
            let Some(less) = left.checked_sub(data.len() as u64) else {
                self.release(flow);
                let what = "more content than announced";
                return Err(Fault::Stream(id, Reason::Protocol, what));
            };
            *left = less;
        }
        if let Some(content) = &mut stream.content {
            content.buffer.extend_from_slice(data);
            if let (Some(asked), Some(Sink::Request(sender))) =
                (content.asked.take(), &mut content.sender)
            {
                let waited = Duration::from_millis(now.since(asked));
                sender.allowance.received(data.len(), waited);
            }
            // Padding is nobody's.
            self.release_of(id, flow - data.len());
        } else {
            // Nobody wants it: the stream's window stays closed.
            self.release(flow);
        }
        if ends {
            return self.end_content(cx, id, None);
        }
        self.hand_on(cx, id);
        Ok(())
    }

    /// There is no more of it.
    pub(super) fn end_content(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        trailers: Option<FieldsBuf>,
    ) -> Result<(), Fault> {
        let Some(stream) = self.streams.get(id) else {
            return Ok(());
        };
        if stream.announced.is_some_and(|left| left > 0) {
            let what = "less content than announced";
            return Err(Fault::Stream(id, Reason::Protocol, what));
        }
        stream.is_open = false;
        if let Some(content) = &mut stream.content {
            content.is_complete = true;
            content.trailers = trailers;
        }
        self.hand_on(cx, id);
        Ok(())
    }

    /// There is room for more content, or nobody wants any more.
    pub(super) fn has_room(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        sender: Sink,
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

    /// Nobody wants any more of it.
    fn drop_content(&mut self, id: u32, taken: usize) {
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let unread = stream.unread();
        stream.content = None;
        self.release_of(id, taken + unread);
    }

    /// Hands on what has come, if there is room for it.
    pub(super) fn hand_on(&mut self, cx: &mut Context<'_>, id: u32) {
        let now = self.now;
        let Some(content) = self.streams.get(id).and_then(|it| it.content.as_mut()) else {
            return;
        };
        let mut sender = match content.sender.take() {
            Some(Sink::Request(sender)) => sender,
            Some(Sink::Tunnel(io)) if content.buffer.is_empty() && !content.is_complete => {
                content.sender = Some(Sink::Tunnel(io));
                return;
            }
            Some(Sink::Tunnel(io)) => {
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
            content.asked.get_or_insert(now);
            content.sender = Some(Sink::Request(sender));
        }
    }

    /// Waits for room; what comes meanwhile is kept, as far as the window goes.
    pub(super) fn await_room(&mut self, cx: &mut Context<'_>, id: u32, mut sender: ContentSender) {
        let waits = self.waiting.wait(cx, id, async move {
            let is_wanted = sender.ready().await;
            Step::Room(Sink::Request(sender), is_wanted)
        });
        if let Some(content) = self.streams.get(id).and_then(|it| it.content.as_mut()) {
            content.waits = waits;
        }
    }

    /// The client has sent nothing for too long.
    pub(super) fn content_is_late(&mut self, id: u32) {
        let content = self.streams.get(id).and_then(|it| it.content.as_mut());
        if let Some(Sink::Request(sender)) = content.and_then(|content| content.sender.take()) {
            sender.fail(BodyError::Timeout);
        }
        self.drop_content(id, 0);
    }

    /// So much of what has come is held no longer: the windows are opened again.
    fn release_of(&mut self, id: u32, bytes: usize) {
        if let Some(stream) = self.streams.get(id)
            && stream.is_open
            && let Some(increment) = stream.given.released(bytes)
        {
            write::window_update(&mut self.out.bytes, id, increment);
        }
        self.release(bytes);
    }

    /// The same for the connection alone.
    pub(super) fn release(&mut self, bytes: usize) {
        if let Some(increment) = self.given.released(bytes) {
            write::window_update(&mut self.out.bytes, 0, increment);
        }
    }
}

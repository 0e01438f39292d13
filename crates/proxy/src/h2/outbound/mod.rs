//! Sending half of a connection: frames on their way to the socket, within the settings of the client and the
//! connection's send window. It has no access to streams or input.

mod buffer;
mod head;
mod head_blocks;
mod stream_fields;

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;

use super::flow::{INITIAL, Window, WindowOverflow};
use super::frame::MAX_PAYLOAD;
use super::hpack::Encoder;
use super::reason::{ErrorCode, ProtocolError};
use super::settings::Settings;
use super::write;
use super::write_timeout::WriteTimeout;
use crate::connection::ClientTransport;
use buffer::{BATCH, OutputBuffer};

/// Pending output, with the limits that the client sets to it.
pub(super) struct Outbound {
    buffer: OutputBuffer,
    encoder: Encoder,
    /// SETTINGS of the client.
    theirs: Settings,
    /// Send window of the connection.
    window: Window,
    /// Timeout of the window while it is closed.
    stall: WriteTimeout,
    /// Time since when the socket takes nothing.
    blocked: Option<Time>,
    /// DATA frames with content since they were last counted.
    data_frames: u32,
}

impl Outbound {
    /// Output of a new connection with this write timeout.
    pub(super) fn new(write: Duration) -> Self {
        Self {
            buffer: OutputBuffer::default(),
            encoder: Encoder::default(),
            theirs: Settings::default(),
            window: Window::new(INITIAL),
            stall: WriteTimeout::new(write),
            blocked: None,
            data_frames: 0,
        }
    }

    /// Takes the thread's buffer, unless the connection's own still holds output.
    pub(super) fn borrow_buffer(&mut self) {
        self.buffer.borrow();
    }

    /// Returns the buffer to the thread, unless it holds output.
    pub(super) fn give_back_buffer(&mut self) {
        self.buffer.give_back();
    }

    /// Returns `true` if nothing more is read or produced until some output is sent.
    pub(super) fn is_full(&self) -> bool {
        self.buffer.is_full()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Writes to the socket until no output is pending. Returns `true` if any bytes were sent.
    pub(super) fn poll_flush(
        &mut self,
        transport: &mut ClientTransport,
        cx: &mut Context<'_>,
        now: Time,
    ) -> Poll<io::Result<bool>> {
        let flushed = self.buffer.poll_flush(transport, cx);
        match &flushed {
            Poll::Ready(Ok(_)) => self.blocked = None,
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                self.blocked.get_or_insert(now);
            }
        }
        flushed
    }

    /// Returns the time at which a socket that takes nothing is given up.
    pub(super) fn socket_deadline(&self, write: Duration) -> Option<Time> {
        self.blocked
            .map(|since| since.plus(write.as_millis() as u64))
    }

    /// Returns the time at which a window that stays closed is given up.
    pub(super) fn window_deadline(&self) -> Option<Time> {
        self.stall.deadline()
    }

    /// Starts the timeout of the window: it blocks a response.
    pub(super) fn window_blocks(&mut self, now: Time) {
        self.stall.begin(now);
    }

    /// Ends the timeout of the window: the responses that it blocked have ended.
    pub(super) fn window_blocks_nothing(&mut self) {
        self.stall.cancel();
    }

    /// Returns the bytes of content that the window allows.
    pub(super) fn window(&self) -> usize {
        self.window.open()
    }

    /// Adds the increment of a `WINDOW_UPDATE` for the connection.
    pub(super) fn grow_window(&mut self, increment: u32) -> Result<(), WindowOverflow> {
        self.window.grow(increment)
    }

    /// Returns the send window of a new stream.
    pub(super) fn stream_window(&self) -> Window {
        Window::new(self.theirs.window)
    }

    /// Returns `true` if the windows of the connection and of a new stream allow content of this length at once.
    pub(super) fn fits(&self, length: usize) -> bool {
        let window = self.window.open().min(self.theirs.window as usize);
        length <= window.min(BATCH)
    }

    /// Applies SETTINGS of the client. Returns the change of the send windows of streams.
    pub(super) fn apply_settings(&mut self, payload: &[u8]) -> Result<i64, ProtocolError> {
        let before = self.theirs.window;
        let encoder = &mut self.encoder;
        self.theirs.take(payload, |size| encoder.allow(size))?;
        Ok(i64::from(self.theirs.window) - i64::from(before))
    }

    /// Returns the number of DATA frames with content since the previous call.
    pub(super) fn take_data_frames(&mut self) -> u32 {
        std::mem::take(&mut self.data_frames)
    }

    /// Writes one DATA frame with content of a response that is sent in turns.
    pub(super) fn content(&mut self, stream: u32, data: &[u8], ends: bool, now: Time) {
        self.stall.sent(data.len(), now);
        self.data(stream, data, ends);
        // At most what the window allows, so it does not fail.
        let _ = self.window.take(data.len());
    }

    /// Writes the whole content of a response at once. It has to [fit](Self::fits): the windows are not checked here.
    pub(super) fn whole_content(&mut self, stream: u32, content: &[u8]) {
        let mut rest = content;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(MAX_PAYLOAD));
            self.data(stream, piece, behind.is_empty());
            rest = behind;
        }
        // Fits the window, as checked before.
        let _ = self.window.take(content.len());
    }

    fn data(&mut self, stream: u32, data: &[u8], ends: bool) {
        write::data(self.buffer.bytes(), stream, data, ends);
        self.data_frames = self.data_frames.saturating_add(1);
    }

    /// Ends a stream without more content.
    pub(super) fn end_stream(&mut self, stream: u32) {
        write::data(self.buffer.bytes(), stream, &[], true);
    }

    /// Writes `RST_STREAM`.
    pub(super) fn reset(&mut self, stream: u32, reason: ErrorCode) {
        write::reset(self.buffer.bytes(), stream, reason);
    }

    /// Writes the server's SETTINGS.
    pub(super) fn settings(&mut self, settings: &[(u16, u32)]) {
        write::settings(self.buffer.bytes(), settings);
    }

    /// Writes SETTINGS with ACK.
    pub(super) fn settings_taken(&mut self) {
        write::settings_taken(self.buffer.bytes());
    }

    /// Writes PING.
    pub(super) fn ping(&mut self, opaque: [u8; 8]) {
        write::ping(self.buffer.bytes(), opaque);
    }

    /// Writes PING with ACK.
    pub(super) fn pong(&mut self, opaque: [u8; 8]) {
        write::pong(self.buffer.bytes(), opaque);
    }

    /// Writes `WINDOW_UPDATE`; stream 0 is the connection.
    pub(super) fn window_update(&mut self, stream: u32, increment: u32) {
        write::window_update(self.buffer.bytes(), stream, increment);
    }

    /// Writes GOAWAY; streams above `last` are refused.
    pub(super) fn go_away(&mut self, last: u32, reason: ErrorCode, what: &str) {
        write::go_away(self.buffer.bytes(), last, reason, what);
    }
}

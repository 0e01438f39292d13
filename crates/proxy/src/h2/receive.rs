//! Handling of received frames.

use std::cell::Cell;
use std::task::Context;

use super::connection::{Http2ServerConnection, PartialBlock, PrefaceState, ShutdownState};
use super::flood_limits::{BLOCK_FRAMES, TINY};
use super::frame::Frame;
use super::hpack::Scratch;
use super::priority::Priority;
use super::reason::{ErrorCode, ProtocolError};
use super::section::{FieldSection, SectionError};
use super::streams::InactiveStream;
use super::write;
use crate::metrics::Refusal;

thread_local! {
    static SECTION: Cell<Option<Box<(FieldSection, Scratch)>>> = const { Cell::new(None) };
}

impl Http2ServerConnection<'_> {
    pub(super) fn take_frame(
        &mut self,
        cx: &mut Context<'_>,
        frame: Frame<'_>,
    ) -> Result<(), ProtocolError> {
        self.check_order(Some(frame))?;
        let now = self.now;
        match frame {
            Frame::Data {
                stream,
                data,
                flow,
                ends,
            } => self.take_data(cx, stream, data, flow, ends),
            Frame::Headers {
                stream,
                fragment,
                ends,
                complete: true,
            } => self.take_block(cx, stream, ends, fragment),
            Frame::Headers {
                stream,
                fragment,
                ends,
                ..
            } => {
                let bytes = fragment.to_vec();
                let frames = 1;
                self.block = Some(PartialBlock {
                    stream,
                    ends,
                    bytes,
                    frames,
                });
                Ok(())
            }
            Frame::Continuation {
                fragment, complete, ..
            } => self.take_continuation(cx, fragment, complete),
            Frame::Reset { stream, .. } => self.take_reset(stream),
            Frame::Settings(payload) => self.take_settings(payload),
            Frame::Ping(opaque) => {
                self.flood_limits.pings.spend(now, "too many PING frames")?;
                write::pong(&mut self.out.bytes, opaque);
                Ok(())
            }
            Frame::Pong(opaque) => {
                self.answered_ping(opaque);
                self.noise()
            }
            Frame::WindowUpdate { stream, increment } => self.open_window(stream, increment),
            Frame::PriorityUpdate { stream, value } => {
                if let Some(stream) = self.streams.get(stream) {
                    stream.priority = Priority::of(value);
                }
                self.noise()
            }
            // GOAWAY: the client opens no more streams; the open ones are answered.
            Frame::GoAway | Frame::Priority | Frame::SettingsTaken | Frame::Unknown => self.noise(),
        }
    }

    /// Checks the order of frames: SETTINGS first, and no other frame within a field block.
    pub(super) fn check_order(&mut self, frame: Option<Frame<'_>>) -> Result<(), ProtocolError> {
        if self.preface == PrefaceState::AwaitingSettings {
            // RFC 9113 §3.4.
            if !matches!(frame, Some(Frame::Settings(_))) {
                return Err(ProtocolError::protocol(
                    "a connection that does not begin with SETTINGS",
                ));
            }
            self.preface = PrefaceState::Complete;
        }
        match (&self.block, frame) {
            (Some(block), Some(Frame::Continuation { stream, .. })) if stream == block.stream => {
                Ok(())
            }
            (Some(_), _) => Err(ProtocolError::protocol("a frame inside a field block")),
            (None, Some(Frame::Continuation { .. })) => {
                Err(ProtocolError::protocol("CONTINUATION without HEADERS"))
            }
            (None, _) => Ok(()),
        }
    }

    /// Charges the flood limit of frames without effect.
    fn noise(&mut self) -> Result<(), ProtocolError> {
        let what = "too many frames without effect";
        self.flood_limits.noise.spend(self.now, what)
    }

    fn take_settings(&mut self, payload: &[u8]) -> Result<(), ProtocolError> {
        let budget = &mut self.flood_limits.settings;
        budget.spend(self.now, "too many SETTINGS frames")?;
        let before = self.theirs.window;
        let encoder = &mut self.encoder;
        self.theirs.take(payload, |size| encoder.allow(size))?;
        let by = i64::from(self.theirs.window) - i64::from(before);
        self.streams.shift_windows(by).map_err(|_| {
            let what = "a flow-control window above the maximum";
            ProtocolError::Connection(ErrorCode::FlowControl, what)
        })?;
        write::settings_taken(&mut self.out.bytes);
        Ok(())
    }

    fn open_window(&mut self, id: u32, increment: u32) -> Result<(), ProtocolError> {
        let budget = &mut self.flood_limits.window_updates;
        budget.spend(self.now, "too many WINDOW_UPDATE frames")?;
        let what = "a flow-control window above the maximum";
        if id == 0 {
            let too_large = |_| ProtocolError::Connection(ErrorCode::FlowControl, what);
            return self.window.grow(increment).map_err(too_large);
        }
        if let Some(stream) = self.streams.get(id) {
            let too_large = |_| ProtocolError::Stream(id, ErrorCode::FlowControl, what);
            return stream.window.grow(increment).map_err(too_large);
        }
        self.not_idle(id)
    }

    fn take_reset(&mut self, id: u32) -> Result<(), ProtocolError> {
        if self.streams.get(id).is_none() {
            self.not_idle(id)?;
            return self.noise();
        }
        self.forget(id);
        let what = "too many cancelled requests";
        self.flood_limits.resets.spend(self.now, what)
    }

    /// Refuses frames other than HEADERS on an idle stream (RFC 9113 §5.1).
    fn not_idle(&self, id: u32) -> Result<(), ProtocolError> {
        if id.is_multiple_of(2) || self.streams.past(id) == InactiveStream::Idle {
            return Err(ProtocolError::protocol("a frame on an idle stream"));
        }
        Ok(())
    }

    fn take_data(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        data: &[u8],
        flow: usize,
        ends: bool,
    ) -> Result<(), ProtocolError> {
        if !ends && data.is_empty() {
            let budget = &mut self.flood_limits.empty_data;
            budget.spend(self.now, "too many empty DATA frames")?;
        } else if !ends && data.len() < TINY {
            let budget = &mut self.flood_limits.tiny_data;
            budget.spend(self.now, "too many tiny DATA frames")?;
        }
        let exceeded = "DATA beyond the connection's flow-control window";
        let arrived = self.receive_window.arrived(flow);
        arrived.map_err(|_| ProtocolError::Connection(ErrorCode::FlowControl, exceeded))?;
        let Some(stream) = self.streams.get(id) else {
            self.not_idle(id)?;
            self.release(flow);
            if self.streams.past(id) == InactiveStream::CutShort {
                return Ok(());
            }
            let what = "DATA on a closed stream";
            return Err(ProtocolError::Connection(ErrorCode::StreamClosed, what));
        };
        if !stream.is_open {
            self.release(flow);
            let what = "DATA after the end of a stream";
            return Err(ProtocolError::Stream(id, ErrorCode::StreamClosed, what));
        }
        if stream.receive_window.arrived(flow).is_err() {
            self.release(flow);
            let what = "DATA beyond the stream's flow-control window";
            return Err(ProtocolError::Stream(id, ErrorCode::FlowControl, what));
        }
        self.take_content(cx, id, data, flow, ends)
    }

    fn take_continuation(
        &mut self,
        cx: &mut Context<'_>,
        fragment: &[u8],
        complete: bool,
    ) -> Result<(), ProtocolError> {
        let most = self.session.shared.head_limits.head;
        let Some(mut block) = self.block.take() else {
            return Ok(());
        };
        block.frames += 1;
        block.bytes.extend_from_slice(fragment);
        // A block can only be decoded as a whole, so exceeding its limit is a connection error.
        if block.frames > BLOCK_FRAMES || block.bytes.len() > most {
            let what = "a field block without an end";
            return Err(ProtocolError::Connection(ErrorCode::EnhanceYourCalm, what));
        }
        if complete {
            return self.take_block(cx, block.stream, block.ends, &block.bytes);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Decodes a complete field block, even if it is not needed: later blocks depend on it.
    fn take_block(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        ends: bool,
        block: &[u8],
    ) -> Result<(), ProtocolError> {
        let is_trailer = self.streams.get(id).is_some();
        let mut scratch = SECTION.take().unwrap_or_default();
        let (section, strings) = &mut *scratch;
        section.begin(is_trailer, self.session.shared.head_limits);
        let decoded = self
            .decoder
            .decode(block, strings, |name, value| section.take(name, value));
        let taken = match decoded {
            Err(bad) => Err(ProtocolError::Connection(ErrorCode::Compression, bad.0)),
            Ok(()) if is_trailer => self.take_trailers(cx, id, ends, section),
            Ok(()) => self.take_head(cx, id, ends, section),
        };
        SECTION.set(Some(scratch));
        taken
    }

    fn take_head(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        ends: bool,
        section: &mut FieldSection,
    ) -> Result<(), ProtocolError> {
        if self.streams.past(id) == InactiveStream::CutShort {
            return self.noise();
        }
        if self.shutdown == ShutdownState::Last {
            // The GOAWAY has refused this stream.
            return self.noise();
        }
        self.streams.open(id)?;
        if self.streams.len() >= self.max_streams {
            let what = "more streams than allowed";
            self.session.report_refused(
                Refusal::Http2Stream,
                "more streams at a time than http2_max_streams",
            );
            return Err(ProtocolError::Stream(id, ErrorCode::RefusedStream, what));
        }
        self.requests += 1;
        if self.requests >= self.session.shared.requests_per_connection {
            self.last_call();
        }
        self.take_request(cx, id, ends, section)
    }

    fn take_trailers(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        ends: bool,
        section: &FieldSection,
    ) -> Result<(), ProtocolError> {
        let stream = self.streams.get(id);
        if !stream.is_some_and(|stream| stream.is_open) {
            let what = "a field section after the end of a stream";
            return Err(ProtocolError::Stream(id, ErrorCode::StreamClosed, what));
        }
        if !ends {
            let what = "a second head on one stream";
            return Err(ProtocolError::Stream(id, ErrorCode::Protocol, what));
        }
        let trailers = section.trailers().map_err(|wrong| match wrong {
            SectionError::Malformed(what) => ProtocolError::Stream(id, ErrorCode::Protocol, what),
            SectionError::Refused(_, what) => {
                ProtocolError::Stream(id, ErrorCode::EnhanceYourCalm, what)
            }
        })?;
        self.end_content(cx, id, Some(trailers))
    }
}

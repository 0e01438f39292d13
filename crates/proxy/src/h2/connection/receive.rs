//! Handling of received frames.

use std::cell::Cell;
use std::task::Context;

use super::Http2ServerConnection;
use crate::h2::flood_limits::TINY;
use crate::h2::frame::Frame;
use crate::h2::hpack::Scratch;
use crate::h2::reason::{ErrorCode, ProtocolError};
use crate::h2::section::{FieldSection, SectionError};
use crate::metrics::Refusal;

/// Violated rule of `WINDOW_UPDATE` and SETTINGS.
const OVERFLOW: &str = "a flow-control window above the maximum";

thread_local! {
    static SECTION: Cell<Option<Box<(FieldSection, Scratch)>>> = const { Cell::new(None) };
}

impl Http2ServerConnection<'_> {
    /// Handles a frame that the order of frames allows.
    pub(super) fn take_frame(
        &mut self,
        cx: &mut Context<'_>,
        frame: Frame<'_>,
    ) -> Result<(), ProtocolError> {
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
                self.inbound.begin_block(stream, ends, fragment);
                Ok(())
            }
            Frame::Continuation {
                fragment, complete, ..
            } => self.take_continuation(cx, fragment, complete),
            Frame::Reset { stream, .. } => self.take_reset(stream),
            Frame::Settings(payload) => self.take_settings(payload),
            Frame::Ping(opaque) => {
                self.flood_limits.pings.spend(now, "too many PING frames")?;
                self.outbound.pong(opaque);
                Ok(())
            }
            Frame::Pong(opaque) => {
                let last = self.streams.last();
                self.shutdown
                    .answered_ping(opaque, last, &mut self.outbound);
                self.noise()
            }
            Frame::WindowUpdate { stream, increment } => self.open_window(stream, increment),
            Frame::PriorityUpdate { stream, value } => {
                self.streams.set_priority(stream, value);
                self.noise()
            }
            // GOAWAY: the client opens no more streams; the open ones are answered.
            Frame::GoAway | Frame::Priority | Frame::SettingsTaken | Frame::Unknown => self.noise(),
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
        let by = self.outbound.apply_settings(payload)?;
        let too_large = |_| ProtocolError::Connection(ErrorCode::FlowControl, OVERFLOW);
        self.streams.shift_windows(by).map_err(too_large)?;
        self.outbound.settings_taken();
        Ok(())
    }

    fn open_window(&mut self, id: u32, increment: u32) -> Result<(), ProtocolError> {
        let sent = self.outbound.take_data_frames();
        self.flood_limits.window_update(self.now, sent)?;
        if id == 0 {
            let too_large = |_| ProtocolError::Connection(ErrorCode::FlowControl, OVERFLOW);
            return self.outbound.grow_window(increment).map_err(too_large);
        }
        if let Some(grown) = self.streams.grow_window(id, increment) {
            let too_large = |_| ProtocolError::Stream(id, ErrorCode::FlowControl, OVERFLOW);
            return grown.map_err(too_large);
        }
        self.streams.check_not_idle(id)
    }

    fn take_reset(&mut self, id: u32) -> Result<(), ProtocolError> {
        if !self.streams.contains(id) {
            self.streams.check_not_idle(id)?;
            return self.noise();
        }
        self.streams.forget(id, self.now, &mut self.outbound);
        let what = "too many cancelled requests";
        self.flood_limits.resets.spend(self.now, what)
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
        let (streams, mut poll) = self.split(cx);
        streams.take_data(&mut poll, id, data, flow, ends)
    }

    fn take_continuation(
        &mut self,
        cx: &mut Context<'_>,
        fragment: &[u8],
        complete: bool,
    ) -> Result<(), ProtocolError> {
        let most = self.session.shared.head_limits.head;
        match self.inbound.continue_block(fragment, complete, most)? {
            Some(block) => self.take_block(cx, block.stream, block.ends, &block.bytes),
            None => Ok(()),
        }
    }

    /// Decodes a complete field block, even if it is not needed: later blocks depend on it.
    fn take_block(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        ends: bool,
        block: &[u8],
    ) -> Result<(), ProtocolError> {
        let is_trailer = self.streams.contains(id);
        let mut scratch = SECTION.take().unwrap_or_default();
        let (section, strings) = &mut *scratch;
        section.begin(is_trailer, self.session.shared.head_limits);
        let taken = match self.inbound.decode(block, strings, section) {
            Err(fault) => Err(fault),
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
        if self.streams.is_cut_short(id) {
            return self.noise();
        }
        if !self.shutdown.accepts_streams() {
            // The GOAWAY has refused this stream.
            return self.noise();
        }
        self.streams.open(id)?;
        if self.streams.is_full() {
            let what = "more streams than allowed";
            self.session.report_refused(
                Refusal::Http2Stream,
                "more streams at a time than http2_max_streams",
            );
            return Err(ProtocolError::Stream(id, ErrorCode::RefusedStream, what));
        }
        let most = self.session.shared.requests_per_connection;
        self.shutdown.count_request(most, id, &mut self.outbound);
        self.take_request(cx, id, ends, section)
    }

    fn take_trailers(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        ends: bool,
        section: &FieldSection,
    ) -> Result<(), ProtocolError> {
        if !self.streams.is_receiving(id) {
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
        let (streams, mut poll) = self.split(cx);
        streams.end_content(&mut poll, id, Some(trailers))
    }
}

//! Frames as they come.

use std::cell::Cell;
use std::task::Context;

use super::abuse::{BLOCK_FRAMES, TINY};
use super::connection::{Begun, Block, Connection, Leaving};
use super::frame::Frame;
use super::hpack::Scratch;
use super::priority::Priority;
use super::reason::{Fault, Reason};
use super::section::{Section, Wrong};
use super::streams::Past;
use super::write;
use crate::metrics::Refusal;

thread_local! {
    static SECTION: Cell<Option<Box<(Section, Scratch)>>> = const { Cell::new(None) };
}

impl Connection<'_> {
    pub(super) fn take_frame(
        &mut self,
        cx: &mut Context<'_>,
        frame: Frame<'_>,
    ) -> Result<(), Fault> {
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
                self.block = Some(Block {
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
                self.budgets.pings.spend(now, "too many PING frames")?;
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
            // The client opens no more streams; what it has opened is answered.
            Frame::GoAway | Frame::Priority | Frame::SettingsTaken | Frame::Unknown => self.noise(),
        }
    }

    /// What comes when something else has to.
    pub(super) fn check_order(&mut self, frame: Option<Frame<'_>>) -> Result<(), Fault> {
        if self.begun == Begun::Preface {
            // RFC 9113 §3.4.
            if !matches!(frame, Some(Frame::Settings(_))) {
                return Err(Fault::protocol(
                    "a connection that does not begin with SETTINGS",
                ));
            }
            self.begun = Begun::Yes;
        }
        match (&self.block, frame) {
            (Some(block), Some(Frame::Continuation { stream, .. })) if stream == block.stream => {
                Ok(())
            }
            (Some(_), _) => Err(Fault::protocol("a frame within a field block")),
            (None, Some(Frame::Continuation { .. })) => {
                Err(Fault::protocol("CONTINUATION of nothing"))
            }
            (None, _) => Ok(()),
        }
    }

    fn noise(&mut self) -> Result<(), Fault> {
        let what = "too many frames that change nothing";
        self.budgets.noise.spend(self.now, what)
    }

    fn take_settings(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let budget = &mut self.budgets.settings;
        budget.spend(self.now, "too many SETTINGS frames")?;
        let before = self.theirs.window;
        let encoder = &mut self.encoder;
        self.theirs.take(payload, |size| encoder.allow(size))?;
        let by = i64::from(self.theirs.window) - i64::from(before);
        self.streams.shift_windows(by).map_err(|_| {
            let what = "a window that is larger than any may be";
            Fault::Connection(Reason::FlowControl, what)
        })?;
        write::settings_taken(&mut self.out.bytes);
        Ok(())
    }

    fn open_window(&mut self, id: u32, increment: u32) -> Result<(), Fault> {
        let budget = &mut self.budgets.window_updates;
        budget.spend(self.now, "too many WINDOW_UPDATE frames")?;
        let what = "a window that is larger than any may be";
        if id == 0 {
            let too_large = |_| Fault::Connection(Reason::FlowControl, what);
            return self.window.grow(increment).map_err(too_large);
        }
        if let Some(stream) = self.streams.get(id) {
            let too_large = |_| Fault::Stream(id, Reason::FlowControl, what);
            return stream.window.grow(increment).map_err(too_large);
        }
        self.not_idle(id)
    }

    fn take_reset(&mut self, id: u32) -> Result<(), Fault> {
        if self.streams.get(id).is_none() {
            self.not_idle(id)?;
            return self.noise();
        }
        self.forget(id);
        let what = "too many requests that were given up";
        self.budgets.resets.spend(self.now, what)
    }

    /// RFC 9113 §5.1: on a stream that was not opened, nothing but HEADERS may come.
    fn not_idle(&self, id: u32) -> Result<(), Fault> {
        if id.is_multiple_of(2) || self.streams.past(id) == Past::Idle {
            return Err(Fault::protocol("a frame on a stream that was not opened"));
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
    ) -> Result<(), Fault> {
        if !ends && data.is_empty() {
            let budget = &mut self.budgets.empty_data;
            budget.spend(self.now, "too many empty DATA frames")?;
        } else if !ends && data.len() < TINY {
            let budget = &mut self.budgets.tiny_data;
            budget.spend(self.now, "too many tiny DATA frames")?;
        }
        let exceeded = "more than the connection's window allows";
        let arrived = self.given.arrived(flow);
        arrived.map_err(|_| Fault::Connection(Reason::FlowControl, exceeded))?;
        let Some(stream) = self.streams.get(id) else {
            self.not_idle(id)?;
            self.release(flow);
            if self.streams.past(id) == Past::CutShort {
                return Ok(());
            }
            let what = "DATA on a stream that had ended";
            return Err(Fault::Connection(Reason::StreamClosed, what));
        };
        if !stream.is_open {
            self.release(flow);
            let what = "DATA behind the end of a stream";
            return Err(Fault::Stream(id, Reason::StreamClosed, what));
        }
        if stream.given.arrived(flow).is_err() {
            self.release(flow);
            let what = "more than the stream's window allows";
            return Err(Fault::Stream(id, Reason::FlowControl, what));
        }
        self.take_content(cx, id, data, flow, ends)
    }

    fn take_continuation(
        &mut self,
        cx: &mut Context<'_>,
        fragment: &[u8],
        complete: bool,
    ) -> Result<(), Fault> {
        let most = self.session.shared.head_limits.head;
        let Some(mut block) = self.block.take() else {
            return Ok(());
        };
        block.frames += 1;
        block.bytes.extend_from_slice(fragment);
        // It may be read only as a whole, so one that is too long is the end.
        if block.frames > BLOCK_FRAMES || block.bytes.len() > most {
            let what = "a field block without an end";
            return Err(Fault::Connection(Reason::EnhanceYourCalm, what));
        }
        if complete {
            return self.take_block(cx, block.stream, block.ends, &block.bytes);
        }
        self.block = Some(block);
        Ok(())
    }

    /// A field block, whole: it is read in any case, because what comes later refers to it.
    fn take_block(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        ends: bool,
        block: &[u8],
    ) -> Result<(), Fault> {
        let is_trailer = self.streams.get(id).is_some();
        let mut scratch = SECTION.take().unwrap_or_default();
        let (section, strings) = &mut *scratch;
        section.begin(is_trailer, self.session.shared.head_limits);
        let decoded = self
            .decoder
            .decode(block, strings, |name, value| section.take(name, value));
        let taken = match decoded {
            Err(bad) => Err(Fault::Connection(Reason::Compression, bad.0)),
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
        section: &mut Section,
    ) -> Result<(), Fault> {
        if self.streams.past(id) == Past::CutShort {
            return self.noise();
        }
        if self.leaving == Leaving::Last {
            // It was told that nothing behind its last stream is taken.
            return self.noise();
        }
        self.streams.open(id)?;
        if self.streams.len() >= self.max_streams {
            let what = "more streams than allowed";
            self.session.tell_refused(
                Refusal::Http2Stream,
                "more streams at a time than http2_max_streams",
            );
            return Err(Fault::Stream(id, Reason::RefusedStream, what));
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
        section: &Section,
    ) -> Result<(), Fault> {
        let stream = self.streams.get(id);
        if !stream.is_some_and(|stream| stream.is_open) {
            let what = "a field section behind the end of a stream";
            return Err(Fault::Stream(id, Reason::StreamClosed, what));
        }
        if !ends {
            let what = "a second head on one stream";
            return Err(Fault::Stream(id, Reason::Protocol, what));
        }
        let trailers = section.trailers().map_err(|wrong| match wrong {
            Wrong::Malformed(what) => Fault::Stream(id, Reason::Protocol, what),
            Wrong::Refused(_, what) => Fault::Stream(id, Reason::EnhanceYourCalm, what),
        })?;
        self.end_content(cx, id, Some(trailers))
    }
}

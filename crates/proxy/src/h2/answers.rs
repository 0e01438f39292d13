//! Responses on their way to the client: heads at once, content in turns.

use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Response};
use microcache_policy::is_grpc;

use super::connection::Http2ServerConnection;
use super::frame::MAX_PAYLOAD;
use super::reason::ErrorCode;
use super::stream::{ContentSink, EventHandle, ResponseEnd, SendingResponse, StreamResponse};
use super::stream_events::StreamEvent;
use super::tunnel::{agreed, seems_agreed};
use super::write;
use crate::admission::ResponsePermits;
use crate::h2::reset_code::reset_code;
use crate::session::{
    AdmittedResponse, OngoingRequest, RequestAccount, RequestEvent, is_bodiless, pages,
};

/// Memory limit of bodies that are read for this connection alone, over all streams, in bytes. At the limit no
/// more is read.
const MAX_HELD: usize = 1024 * 1024;

impl Http2ServerConnection<'_> {
    /// Continues after an awaited event.
    pub(super) fn handle_stream_event(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        event: StreamEvent,
    ) {
        if self.streams.get(id).is_none() {
            return;
        }
        match event {
            StreamEvent::Session(answering, event) => {
                self.handle_request_event(cx, id, answering, event);
            }
            StreamEvent::Body(body, frame) => self.take_next(cx, id, body, frame),
            StreamEvent::Room(sender, is_wanted) => self.has_room(cx, id, sender, is_wanted),
            StreamEvent::Panicked => self.reset(id, ErrorCode::Internal),
        }
    }

    fn handle_request_event(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        mut answering: Box<OngoingRequest>,
        event: RequestEvent,
    ) {
        match event {
            RequestEvent::Interim(interim) => self.write_interim(id, &interim),
            RequestEvent::Continue(go) => {
                self.write_continue(id);
                // The receiver is dropped only together with the whole request.
                let _ = go.send(());
            }
            RequestEvent::Answer(answered) => {
                let AdmittedResponse {
                    response,
                    is_endless,
                    account,
                    held,
                } = *answered;
                if let Some(stream) = self.streams.get(id) {
                    stream.is_endless = is_endless;
                }
                self.answer(cx, id, response, account, held);
                return self.mark_endless();
            }
        }
        let waits = self.pending_events.wait(cx, id, async move {
            let event = answering.next().await;
            StreamEvent::Session(answering, event)
        });
        if let Some(stream) = self.streams.get(id) {
            stream.answer = StreamResponse::Awaited(waits);
        }
    }

    /// Sends the head of a response, and queues its content.
    pub(super) fn answer(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        mut response: Response,
        mut account: RequestAccount,
        held: ResponsePermits,
    ) {
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let head_only = stream.head_only;
        if stream.is_tunnel && seems_agreed(&response) {
            response = pages::not_switched(self.now);
            account.answered(&response, self.now);
        }
        let media_type = response.fields().get("content-type");
        if media_type.is_some_and(is_grpc)
            && let Some(content) = &mut stream.content
        {
            let silence = self.session.shared.timeouts.tunnel;
            content.silence = Some(silence.as_millis() as u64);
        }
        let tunnel = response.tunnel.take();
        let is_tunnel = tunnel.is_some();
        if let (Some(tunnel), Some(content)) = (tunnel, &mut stream.content) {
            content.sender = Some(ContentSink::Tunnel(agreed(&mut response, *tunnel)));
            // The client receives a different status than the origin sent.
            account.answered(&response, self.now);
        }
        let mut begun = if is_bodiless(response.status, head_only) {
            (Bytes::new(), ResponseEnd::Here, false)
        } else if let Some(begun) = begin(cx, &mut response.body) {
            begun
        } else {
            // It broke off before any of it was sent.
            response = pages::broke_off(self.now);
            account.answered(&response, self.now);
            match &response.body {
                Body::Full(page) => (page.clone(), ResponseEnd::Here, false),
                _ => (Bytes::new(), ResponseEnd::Here, false),
            }
        };
        let (piece, end, is_held) = &mut begun;
        let ends = piece.is_empty() && matches!(end, ResponseEnd::Here);
        self.write_head(id, &response, ends);
        if ends {
            return self.finish(id);
        }
        // An evicted body lives on until its readers have taken it.
        let whole = !*is_held && !piece.is_empty();
        let pin = whole.then(|| self.session.shared.pinned.pin(piece.len()));
        let patience = pin
            .as_ref()
            .map(|pin| pin.timeouts(self.session.shared.timeouts.write));
        let deadline = patience.and_then(|(_, in_all)| in_all);
        if *is_held {
            self.held += piece.len();
        }
        let sending = SendingResponse {
            body: matches!(end, ResponseEnd::Unknown).then_some(response.body),
            waits: EventHandle::default(),
            piece: std::mem::take(piece),
            end: std::mem::replace(end, ResponseEnd::Here),
            account,
            stall: self.stall(),
            deadline: deadline.map(|span| self.now.plus(span.as_millis() as u64)),
            is_tunnel,
            is_held: *is_held,
            is_held_up: false,
            _held: held,
            _pin: pin,
        };
        if let Some(stream) = self.streams.get(id) {
            stream.answer = StreamResponse::Sending(Box::new(sending));
        }
        self.read_on(cx, id);
        if is_tunnel {
            self.moved_in_tunnel(id);
            self.hand_on(cx, id);
        }
    }

    /// Waits for more of a body once everything available is sent.
    fn read_on(&mut self, cx: &mut Context<'_>, id: u32) {
        let has_room = self.held < MAX_HELD;
        let Some(sending) = self.streams.get(id).and_then(|it| it.sending()) else {
            return;
        };
        if !sending.piece.is_empty() || !matches!(sending.end, ResponseEnd::Unknown) {
            return;
        }
        if !has_room {
            self.is_hungry = true;
            return;
        }
        let Some(mut body) = sending.body.take() else {
            return;
        };
        let waits = self.pending_events.wait(cx, id, async move {
            let frame = body.frame().await;
            StreamEvent::Body(body, frame)
        });
        if let Some(sending) = self.streams.get(id).and_then(|it| it.sending()) {
            sending.waits = waits;
        }
    }

    /// Handles the next frame of a body.
    fn take_next(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        body: Body,
        frame: Option<Result<Frame, BodyError>>,
    ) {
        let Some(sending) = self.streams.get(id).and_then(|it| it.sending()) else {
            return;
        };
        match frame {
            Some(Ok(Frame::Data(data))) => {
                sending.body = Some(body);
                sending.is_held = true;
                sending.is_held_up = false;
                let length = data.len();
                sending.piece = data;
                self.held += length;
                self.moved_in_tunnel(id);
                self.read_on(cx, id);
            }
            Some(Ok(Frame::Trailers(trailers))) => sending.end = ResponseEnd::Trailers(trailers),
            None => sending.end = ResponseEnd::Here,
            // The client detects the truncation by the reset.
            Some(Err(why)) => self.reset(id, reset_code(&why)),
        }
    }

    /// Sends content in turns, as far as the windows and the buffer allow. Returns `true` if any was sent.
    pub(super) fn send_content(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        if self.streams.is_empty() {
            return false;
        }
        while !self.out.is_full()
            && let Some(id) = self.streams.next(self.window.open() > 0)
        {
            moved = true;
            self.send_some(cx, id);
        }
        if self.is_hungry && self.held < MAX_HELD {
            self.is_hungry = false;
            for id in self.streams.ids() {
                self.read_on(cx, id);
            }
            moved = true;
        }
        moved
    }

    /// Sends one DATA frame of a response, or its end.
    fn send_some(&mut self, cx: &mut Context<'_>, id: u32) {
        let now = self.now;
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let most = stream.window.open();
        let StreamResponse::Sending(sending) = &mut stream.answer else {
            return;
        };
        if sending.piece.is_empty() {
            if let ResponseEnd::Trailers(trailers) =
                std::mem::replace(&mut sending.end, ResponseEnd::Here)
            {
                self.write_trailers(id, trailers.fields());
            } else {
                write::data(&mut self.out.bytes, id, &[], true);
            }
            return self.finish(id);
        }
        let length = sending.piece.len().min(most).min(MAX_PAYLOAD);
        let data = sending.piece.split_to(length.min(self.window.open()));
        let ends = sending.piece.is_empty() && matches!(sending.end, ResponseEnd::Here);
        sending.account.sent(data.len() as u64);
        sending.stall.sent(data.len(), now);
        self.stall.sent(data.len(), now);
        if sending.is_held {
            self.held = self.held.saturating_sub(data.len());
        }
        write::data(&mut self.out.bytes, id, &data, ends);
        self.flood_limits.sent_data();
        // Limited by both windows before, so neither fails.
        let _ = (stream.window.take(data.len()), self.window.take(data.len()));
        if ends {
            self.finish(id);
        } else {
            self.read_on(cx, id);
        }
    }

    /// Completes a response. The rest of the request is not needed (RFC 9113 §8.1).
    fn finish(&mut self, id: u32) {
        let is_open = self.streams.get(id).is_some_and(|stream| stream.is_open);
        if is_open {
            self.reset(id, ErrorCode::NoError);
        } else {
            self.forget(id);
        }
    }
}

/// Polls the beginning of a body: its first piece, its end, and whether it is read for this client alone;
/// `None` if it is broken.
fn begin(cx: &mut Context<'_>, body: &mut Body) -> Option<(Bytes, ResponseEnd, bool)> {
    let whole = |bytes| Some((bytes, ResponseEnd::Here, false));
    match body {
        Body::Empty => return whole(Bytes::new()),
        Body::Full(bytes) => return whole(std::mem::take(bytes)),
        Body::Stored(hit) => return whole(hit.body.bytes().cloned().unwrap_or_default()),
        Body::File(_) | Body::Fill(_) | Body::Stream(_) => {}
    }
    match body.poll_frame(cx) {
        Poll::Pending => Some((Bytes::new(), ResponseEnd::Unknown, true)),
        Poll::Ready(None) => whole(Bytes::new()),
        Poll::Ready(Some(Ok(Frame::Data(data)))) => Some((data, ResponseEnd::Unknown, true)),
        Poll::Ready(Some(Ok(Frame::Trailers(it)))) => {
            Some((Bytes::new(), ResponseEnd::Trailers(it), false))
        }
        Poll::Ready(Some(Err(_))) => None,
    }
}

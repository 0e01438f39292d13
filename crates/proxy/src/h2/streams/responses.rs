//! Responses on their way to the client: heads at once, content in turns.

use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Response};
use microcache_policy::{Time, is_grpc};

use super::events::StreamEvent;
use super::stream::{ContentSink, EventHandle, ResponseEnd, SendingResponse, StreamResponse};
use super::{Http2Streams, PollContext};
use crate::admission::ResponsePermits;
use crate::h2::frame::MAX_PAYLOAD;
use crate::h2::outbound::Outbound;
use crate::h2::reason::ErrorCode;
use crate::h2::reset_code::reset_code;
use crate::h2::tunnel::{agreed, seems_agreed};
use crate::h2::write_timeout::WriteTimeout;
use crate::session::{
    AdmittedResponse, ContentSender, OngoingRequest, RequestAccount, RequestEvent, is_bodiless,
    pages,
};

/// Memory limit of bodies that are read for this connection alone, over all streams, in bytes. At the limit no
/// more is read.
const MAX_HELD: usize = 1024 * 1024;

impl Http2Streams<'_> {
    /// Awaits the response of a request, and room for its content if it is to be passed on.
    pub(in crate::h2) fn await_response(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        answering: Box<OngoingRequest>,
        content: Option<ContentSender>,
    ) {
        if let Some(sender) = content {
            self.await_room(cx, id, sender);
        }
        self.await_event(cx, id, answering);
    }

    /// Waits for the next event of a request.
    fn await_event(&mut self, cx: &mut Context<'_>, id: u32, mut answering: Box<OngoingRequest>) {
        let waits = self.events.wait(cx, id, async move {
            let event = answering.next().await;
            StreamEvent::Session(answering, event)
        });
        if let Some(stream) = self.table.get(id) {
            stream.answer = StreamResponse::Awaited(waits);
        }
    }

    /// Handles awaited events as long as there is room for output. Returns `true` if there were any.
    pub(in crate::h2) fn handle_events(&mut self, poll: &mut PollContext<'_, '_>) -> bool {
        let mut moved = false;
        while !poll.out.is_full()
            && let Poll::Ready((id, event)) = self.events.poll_next(poll.cx)
        {
            moved = true;
            self.handle_event(poll, id, event);
        }
        moved
    }

    fn handle_event(&mut self, poll: &mut PollContext<'_, '_>, id: u32, event: StreamEvent) {
        if !self.contains(id) {
            return;
        }
        match event {
            StreamEvent::Session(answering, event) => {
                self.handle_request_event(poll, id, answering, event);
            }
            StreamEvent::Body(body, frame) => self.take_next(poll, id, body, frame),
            StreamEvent::Room(sender, is_wanted) => self.has_room(poll, id, sender, is_wanted),
            StreamEvent::Panicked => self.reset(id, ErrorCode::Internal, poll.now, poll.out),
        }
    }

    fn handle_request_event(
        &mut self,
        poll: &mut PollContext<'_, '_>,
        id: u32,
        answering: Box<OngoingRequest>,
        event: RequestEvent,
    ) {
        match event {
            RequestEvent::Interim(interim) => poll.out.interim(id, &interim),
            RequestEvent::Continue(go) => {
                poll.out.go_on(id);
                // The receiver is dropped only together with the whole request.
                let _ = go.send(());
            }
            RequestEvent::Answer(answered) => {
                let AdmittedResponse {
                    response,
                    is_endless,
                    account,
                    held,
                    ..
                } = *answered;
                if let Some(stream) = self.table.get(id) {
                    stream.is_endless = is_endless;
                }
                self.answer(poll, id, response, account, held);
                return self.mark_endless();
            }
        }
        self.await_event(poll.cx, id, answering);
    }

    /// Sends the head of a response, and queues its content.
    pub(in crate::h2) fn answer(
        &mut self,
        poll: &mut PollContext<'_, '_>,
        id: u32,
        mut response: Response,
        mut account: RequestAccount,
        held: ResponsePermits,
    ) {
        let Some(stream) = self.table.get(id) else {
            return;
        };
        let (now, timeouts) = (poll.now, poll.session.shared.timeouts);
        let head_only = stream.head_only;
        if stream.is_tunnel && seems_agreed(&response) {
            response = pages::not_switched(now);
            account.answered(&response, now);
        }
        let media_type = response.fields().get("content-type");
        if media_type.is_some_and(is_grpc)
            && let Some(content) = &mut stream.content
        {
            content.silence = Some(timeouts.tunnel.as_millis() as u64);
        }
        let tunnel = response.tunnel.take();
        let is_tunnel = tunnel.is_some();
        if let (Some(tunnel), Some(content)) = (tunnel, &mut stream.content) {
            content.sender = Some(ContentSink::Tunnel(agreed(&mut response, *tunnel)));
            // The client receives a different status than the origin sent.
            account.answered(&response, now);
        }
        let mut begun = if is_bodiless(response.status, head_only) {
            (Bytes::new(), ResponseEnd::Here, false)
        } else if let Some(begun) = begin(poll.cx, &mut response.body) {
            begun
        } else {
            // It broke off before any of it was sent.
            response = pages::broke_off(now);
            account.answered(&response, now);
            match &response.body {
                Body::Full(page) => (page.clone(), ResponseEnd::Here, false),
                _ => (Bytes::new(), ResponseEnd::Here, false),
            }
        };
        let (piece, end, is_held) = &mut begun;
        let ends = piece.is_empty() && matches!(end, ResponseEnd::Here);
        poll.out.head(id, &response, ends, poll.session.strict());
        if ends {
            return self.finish(id, now, poll.out);
        }
        // A stored body stays in memory until it is sent, even if it is evicted meanwhile: it counts as pinned.
        let whole = !*is_held && !piece.is_empty();
        let pin = whole.then(|| poll.session.shared.pinned.pin(piece.len()));
        let time_limit = pin.as_ref().map(|pin| pin.timeouts(timeouts.write));
        let deadline = time_limit.and_then(|(_, in_all)| in_all);
        if *is_held {
            self.held += piece.len();
        }
        let sending = SendingResponse {
            body: matches!(end, ResponseEnd::Unknown).then_some(response.body),
            waits: EventHandle::default(),
            piece: std::mem::take(piece),
            end: std::mem::replace(end, ResponseEnd::Here),
            account,
            stall: WriteTimeout::new(timeouts.write),
            deadline: deadline.map(|span| now.plus(span.as_millis() as u64)),
            is_tunnel,
            is_held: *is_held,
            is_held_up: false,
            _held: held,
            _pin: pin,
        };
        if let Some(stream) = self.table.get(id) {
            stream.answer = StreamResponse::Sending(Box::new(sending));
        }
        self.read_on(poll.cx, id);
        if is_tunnel {
            self.moved_in_tunnel(poll, id);
            self.hand_on(poll, id);
        }
    }

    /// Waits for more of a body once everything available is sent.
    fn read_on(&mut self, cx: &mut Context<'_>, id: u32) {
        let has_room = self.held < MAX_HELD;
        let Some(sending) = self.table.get(id).and_then(|it| it.sending()) else {
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
        let waits = self.events.wait(cx, id, async move {
            let frame = body.frame().await;
            StreamEvent::Body(body, frame)
        });
        if let Some(sending) = self.table.get(id).and_then(|it| it.sending()) {
            sending.waits = waits;
        }
    }

    /// Handles the next frame of a body.
    fn take_next(
        &mut self,
        poll: &mut PollContext<'_, '_>,
        id: u32,
        body: Body,
        frame: Option<Result<Frame, BodyError>>,
    ) {
        let Some(sending) = self.table.get(id).and_then(|it| it.sending()) else {
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
                self.moved_in_tunnel(poll, id);
                self.read_on(poll.cx, id);
            }
            Some(Ok(Frame::Trailers(trailers))) => sending.end = ResponseEnd::Trailers(trailers),
            None => sending.end = ResponseEnd::Here,
            // The client detects the truncation by the reset.
            Some(Err(why)) => self.reset(id, reset_code(&why), poll.now, poll.out),
        }
    }

    /// Sends content in turns, as far as the windows and the buffer allow. Returns `true` if any was sent.
    pub(in crate::h2) fn send_content(&mut self, poll: &mut PollContext<'_, '_>) -> bool {
        let mut moved = false;
        if self.is_empty() {
            return false;
        }
        while !poll.out.is_full()
            && let Some(id) = self.table.next(poll.out.window() > 0)
        {
            moved = true;
            self.send_some(poll, id);
        }
        if self.is_hungry && self.held < MAX_HELD {
            self.is_hungry = false;
            for id in self.ids() {
                self.read_on(poll.cx, id);
            }
            moved = true;
        }
        moved
    }

    /// Sends one DATA frame of a response, or its end.
    fn send_some(&mut self, poll: &mut PollContext<'_, '_>, id: u32) {
        let now = poll.now;
        let Some(stream) = self.table.get(id) else {
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
                poll.out.trailers(id, trailers.fields());
            } else {
                poll.out.end_stream(id);
            }
            return self.finish(id, now, poll.out);
        }
        let length = sending.piece.len().min(most).min(MAX_PAYLOAD);
        let data = sending.piece.split_to(length.min(poll.out.window()));
        let ends = sending.piece.is_empty() && matches!(sending.end, ResponseEnd::Here);
        sending.account.sent(data.len() as u64);
        sending.stall.sent(data.len(), now);
        if sending.is_held {
            self.held = self.held.saturating_sub(data.len());
        }
        poll.out.content(id, &data, ends, now);
        // Limited by the window before, so it does not fail.
        let _ = stream.window.take(data.len());
        if ends {
            self.finish(id, now, poll.out);
        } else {
            self.read_on(poll.cx, id);
        }
    }

    /// Completes a response. The rest of the request is not needed (RFC 9113 §8.1).
    fn finish(&mut self, id: u32, now: Time, out: &mut Outbound) {
        if self.is_receiving(id) {
            self.reset(id, ErrorCode::NoError, now, out);
        } else {
            self.forget(id, now, out);
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
        Body::Stored(hit) => return whole(hit.shared_body().unwrap_or_default()),
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

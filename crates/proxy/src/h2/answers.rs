//! Answers on their way to the client: their heads at once, their content in turns.

use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Response};
use microcache_policy::is_grpc;

use super::connection::Connection;
use super::frame::MAX_PAYLOAD;
use super::reason::Reason;
use super::stream::{Answer, End, Sending, Sink, Wait};
use super::tunnel::{agreed, seems_agreed};
use super::waiting::Step;
use super::write;
use crate::room::Held;
use crate::session::{Account, Answered, Answering, Event, is_bodiless, pages};

/// What a connection may hold of bodies that are read for it alone: the streams together, while each
/// waits for its turn. Beyond it nothing more is read.
const MAX_HELD: usize = 1024 * 1024;

impl Connection<'_> {
    /// Goes on with what was waited for.
    pub(super) fn take_step(&mut self, cx: &mut Context<'_>, id: u32, step: Step) {
        if self.streams.get(id).is_none() {
            return;
        }
        match step {
            Step::Told(answering, event) => self.told(cx, id, answering, event),
            Step::Next(body, frame) => self.take_next(cx, id, body, frame),
            Step::Room(sender, is_wanted) => self.has_room(cx, id, sender, is_wanted),
            Step::Panicked => self.reset(id, Reason::Internal),
        }
    }

    fn told(&mut self, cx: &mut Context<'_>, id: u32, mut answering: Box<Answering>, event: Event) {
        match event {
            Event::Interim(interim) => self.write_interim(id, &interim),
            Event::Continue(go) => {
                self.write_continue(id);
                // Whoever reads the content is gone only if the whole request is.
                let _ = go.send(());
            }
            Event::Answer(answered) => {
                let Answered {
                    response,
                    is_endless,
                    account,
                    held,
                } = *answered;
                if let Some(stream) = self.streams.get(id) {
                    stream.is_endless = is_endless;
                }
                self.answer(cx, id, response, account, held);
                return self.tell_endless();
            }
        }
        let waits = self.waiting.wait(cx, id, async move {
            let event = answering.next().await;
            Step::Told(answering, event)
        });
        if let Some(stream) = self.streams.get(id) {
            stream.answer = Answer::Awaited(waits);
        }
    }

    /// Sends the head of an answer, and what is there of its content in turn.
    pub(super) fn answer(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        mut response: Response,
        mut account: Account,
        held: Held,
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
            content.sender = Some(Sink::Tunnel(agreed(&mut response, *tunnel)));
            // The client is told another status than the origin has said.
            account.answered(&response, self.now);
        }
        let mut begun = if is_bodiless(response.status, head_only) {
            (Bytes::new(), End::Here, false)
        } else if let Some(begun) = begin(cx, &mut response.body) {
            begun
        } else {
            // It turned out to be broken before any of it was sent on.
            response = pages::broke_off(self.now);
            account.answered(&response, self.now);
            match &response.body {
                Body::Full(page) => (page.clone(), End::Here, false),
                _ => (Bytes::new(), End::Here, false),
            }
        };
        let (piece, end, is_held) = &mut begun;
        let ends = piece.is_empty() && matches!(end, End::Here);
        self.write_head(id, &response, ends);
        if ends {
            return self.finish(id);
        }
        // What memory has let go of lives on for those who are being sent it.
        let whole = !*is_held && !piece.is_empty();
        let loan = whole.then(|| self.session.shared.lent.lend(piece.len()));
        let patience = loan
            .as_ref()
            .map(|loan| loan.patience(self.session.shared.timeouts.write));
        let deadline = patience.and_then(|(_, in_all)| in_all);
        if *is_held {
            self.held += piece.len();
        }
        let sending = Sending {
            body: matches!(end, End::Unknown).then_some(response.body),
            waits: Wait::default(),
            piece: std::mem::take(piece),
            end: std::mem::replace(end, End::Here),
            account,
            stall: self.stall(),
            deadline: deadline.map(|span| self.now.plus(span.as_millis() as u64)),
            is_tunnel,
            is_held: *is_held,
            is_held_up: false,
            _held: held,
            _loan: loan,
        };
        if let Some(stream) = self.streams.get(id) {
            stream.answer = Answer::Sending(Box::new(sending));
        }
        self.read_on(cx, id);
        if is_tunnel {
            self.moved_in_tunnel(id);
            self.hand_on(cx, id);
        }
    }

    /// Waits for more of a body, if everything that was there has been sent.
    fn read_on(&mut self, cx: &mut Context<'_>, id: u32) {
        let has_room = self.held < MAX_HELD;
        let Some(sending) = self.streams.get(id).and_then(|it| it.sending()) else {
            return;
        };
        if !sending.piece.is_empty() || !matches!(sending.end, End::Unknown) {
            return;
        }
        if !has_room {
            self.is_hungry = true;
            return;
        }
        let Some(mut body) = sending.body.take() else {
            return;
        };
        let waits = self.waiting.wait(cx, id, async move {
            let frame = body.frame().await;
            Step::Next(body, frame)
        });
        if let Some(sending) = self.streams.get(id).and_then(|it| it.sending()) {
            sending.waits = waits;
        }
    }

    /// More of a body is there.
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
            Some(Ok(Frame::Trailers(trailers))) => sending.end = End::Trailers(trailers),
            None => sending.end = End::Here,
            // The client learns of it by the reset: what it has is not all.
            Some(Err(why)) => self.reset(id, Reason::of(&why)),
        }
    }

    /// Sends content in turns, as far as the windows and the buffer go. Says whether any was sent.
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

    /// Sends one frame of a response, or its end.
    fn send_some(&mut self, cx: &mut Context<'_>, id: u32) {
        let now = self.now;
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let most = stream.window.open();
        let Answer::Sending(sending) = &mut stream.answer else {
            return;
        };
        if sending.piece.is_empty() {
            if let End::Trailers(trailers) = std::mem::replace(&mut sending.end, End::Here) {
                self.write_trailers(id, trailers.fields());
            } else {
                write::data(&mut self.out.bytes, id, &[], true);
            }
            return self.finish(id);
        }
        let length = sending.piece.len().min(most).min(MAX_PAYLOAD);
        let data = sending.piece.split_to(length.min(self.window.open()));
        let ends = sending.piece.is_empty() && matches!(sending.end, End::Here);
        sending.account.sent(data.len() as u64);
        sending.stall.sent(data.len(), now);
        self.stall.sent(data.len(), now);
        if sending.is_held {
            self.held = self.held.saturating_sub(data.len());
        }
        write::data(&mut self.out.bytes, id, &data, ends);
        self.budgets.sent_data();
        // It is no more than either has.
        let _ = (stream.window.take(data.len()), self.window.take(data.len()));
        if ends {
            self.finish(id);
        } else {
            self.read_on(cx, id);
        }
    }

    /// The response is complete. What the client still sends, nobody wants (RFC 9113 §8.1).
    fn finish(&mut self, id: u32) {
        let is_open = self.streams.get(id).is_some_and(|stream| stream.is_open);
        if is_open {
            self.reset(id, Reason::NoError);
        } else {
            self.forget(id);
        }
    }
}

/// What a body begins with, what comes behind it, and whether it is read for this client alone;
/// `None` if it is broken.
fn begin(cx: &mut Context<'_>, body: &mut Body) -> Option<(Bytes, End, bool)> {
    let whole = |bytes| Some((bytes, End::Here, false));
    match body {
        Body::Empty => return whole(Bytes::new()),
        Body::Full(bytes) => return whole(std::mem::take(bytes)),
        Body::Stored(hit) => return whole(hit.body.bytes().cloned().unwrap_or_default()),
        Body::File(_) | Body::Fill(_) | Body::Stream(_) => {}
    }
    match body.poll_frame(cx) {
        Poll::Pending => Some((Bytes::new(), End::Unknown, true)),
        Poll::Ready(None) => whole(Bytes::new()),
        Poll::Ready(Some(Ok(Frame::Data(data)))) => Some((data, End::Unknown, true)),
        Poll::Ready(Some(Ok(Frame::Trailers(it)))) => {
            Some((Bytes::new(), End::Trailers(it), false))
        }
        Poll::Ready(Some(Err(_))) => None,
    }
}

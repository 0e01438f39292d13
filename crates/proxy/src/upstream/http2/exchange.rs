//! Sends one request on one stream and reads the head of its response. Both go on concurrently, as with
//! HTTP/1.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use microcache_engine::origin::OriginError;

use super::connection::Slot;
use super::fate::{Broken, Fate};
use super::fields;
use crate::upstream::connection::Timer;
use crate::upstream::exchange::{MAX_INTERIM, Question, ResponseHead};
use crate::upstream::upload::{Sending, Upload};

/// A stream whose response has begun. Dropping it early resets the stream; the connection continues.
pub(in crate::upstream) struct Stream {
    pub(super) send: SendStream<Bytes>,
    pub(super) content: RecvStream,
    pub(super) timer: Timer,
    /// Dropped last, after the stream has been reset if necessary.
    pub(super) slot: Slot,
}

/// A stream whose response has not begun.
struct Unanswered {
    answer: ResponseFuture,
    send: SendStream<Bytes>,
    timer: Timer,
    slot: Slot,
}

/// The next response head on a stream.
enum Head {
    Interim(Response<()>),
    Final(Response<RecvStream>),
}

/// Sends the request and waits for the final response head. `silence` is the inactivity timeout in both
/// directions.
pub(in crate::upstream) async fn exchange(
    mut slot: Slot,
    head: Request<()>,
    upload: &mut Upload,
    question: &Question,
    silence: Duration,
) -> Result<(Stream, ResponseHead), Broken> {
    let is_all = upload.begin_http2();
    let Ok((answer, send)) = slot.begin(head, is_all) else {
        // The connection was over already: nothing was sent.
        slot.give_up_connection();
        return Err(Broken {
            error: OriginError::Disconnected,
            fate: Fate::Untouched,
        });
    };
    let mut stream = Unanswered {
        answer,
        send,
        timer: Timer::default(),
        slot,
    };
    for interim_before in 0..=MAX_INTERIM {
        stream.timer.restart(silence);
        let head = poll_fn(|cx| stream.poll_head(cx, upload, silence)).await;
        let head = head.map_err(|mut broken| {
            if interim_before > 0 {
                broken.fate = Fate::Worked;
            }
            broken
        })?;
        stream.slot.has_heard();
        match head {
            Head::Final(answer) => {
                let head = fields::head(&answer, question.to_head).map_err(malformed)?;
                upload.answered();
                return Ok((stream.answered(answer.into_body()), head));
            }
            Head::Interim(interim) => {
                let head = fields::head(&interim, question.to_head).map_err(malformed)?;
                match head.status {
                    100 => upload.proceed(),
                    // RFC 9113 §8.6.
                    101 => return Err(malformed("switched protocols within HTTP/2")),
                    _ => question.tell(head),
                }
            }
        }
    }
    Err(malformed("too many interim responses"))
}

const fn malformed(what: &'static str) -> Broken {
    Broken::worked(OriginError::Malformed(what))
}

impl Unanswered {
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Upload,
        silence: Duration,
    ) -> Poll<Result<Head, Broken>> {
        match self.answer.poll_informational(cx) {
            Poll::Ready(Some(Ok(interim))) => return Poll::Ready(Ok(Head::Interim(interim))),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Broken::of(&error))),
            Poll::Ready(None) | Poll::Pending => {}
        }
        match Pin::new(&mut self.answer).poll(cx) {
            Poll::Ready(Ok(answer)) => return Poll::Ready(Ok(Head::Final(answer))),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::of(&error))),
            Poll::Pending => {}
        }
        let sent = upload.sent();
        let sending = upload.poll_http2(cx, &mut self.send);
        let sending = sending.map_err(Broken::worked)?;
        if upload.sent() > sent {
            self.timer.restart(silence);
        }
        // While the client is slow to send, the server has a reason to be silent.
        if sending == Sending::Client || self.timer.poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.slot.give_up_connection();
        Poll::Ready(Err(Broken::worked(OriginError::Timeout)))
    }

    fn answered(self, content: RecvStream) -> Stream {
        Stream {
            send: self.send,
            content,
            timer: self.timer,
            slot: self.slot,
        }
    }
}

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

use super::connection::StreamSlot;
use super::fields;
use super::retry::{RetryClass, StreamFailure};
use crate::upstream::connection::InactivityTimer;
use crate::upstream::exchange::{ExchangeContext, MAX_INTERIM, OriginHead};
use crate::upstream::upload::{SendState, Upload};

/// A stream whose response has begun. Dropping it early resets the stream; the connection continues.
pub(in crate::upstream) struct ResponseStream {
    pub(super) send: SendStream<Bytes>,
    pub(super) content: RecvStream,
    pub(super) timer: InactivityTimer,
    /// Dropped last, after the stream has been reset if necessary.
    pub(super) slot: StreamSlot,
}

/// A stream whose response has not begun.
struct PendingStream {
    answer: ResponseFuture,
    send: SendStream<Bytes>,
    timer: InactivityTimer,
    slot: StreamSlot,
}

/// The next response head on a stream.
enum StreamHead {
    Interim(Response<()>),
    Final(Response<RecvStream>),
}

/// Sends the request and waits for the final response head. `silence` is the inactivity timeout in both
/// directions.
pub(in crate::upstream) async fn exchange(
    mut slot: StreamSlot,
    head: Request<()>,
    upload: &mut Upload,
    context: &ExchangeContext,
    silence: Duration,
) -> Result<(ResponseStream, OriginHead), StreamFailure> {
    let is_all = upload.begin_http2();
    let Ok((answer, send)) = slot.begin(head, is_all) else {
        // The connection was over already: nothing was sent.
        slot.give_up_connection();
        return Err(StreamFailure {
            error: OriginError::Disconnected,
            retry: RetryClass::NotProcessed,
        });
    };
    let mut stream = PendingStream {
        answer,
        send,
        timer: InactivityTimer::default(),
        slot,
    };
    for interim_before in 0..=MAX_INTERIM {
        stream.timer.restart(silence);
        let head = poll_fn(|cx| stream.poll_head(cx, upload, silence)).await;
        let head = head.map_err(|mut broken| {
            if interim_before > 0 {
                broken.retry = RetryClass::Processed;
            }
            broken
        })?;
        stream.slot.has_heard();
        match head {
            StreamHead::Final(answer) => {
                let head = fields::head(&answer, context.to_head).map_err(malformed)?;
                upload.answered();
                return Ok((stream.answered(answer.into_body()), head));
            }
            StreamHead::Interim(interim) => {
                let head = fields::head(&interim, context.to_head).map_err(malformed)?;
                match head.status {
                    100 => upload.proceed(),
                    // RFC 9113 §8.6.
                    101 => return Err(malformed("switched protocols within HTTP/2")),
                    _ => context.tell(head),
                }
            }
        }
    }
    Err(malformed("too many interim responses"))
}

const fn malformed(what: &'static str) -> StreamFailure {
    StreamFailure::processed(OriginError::Malformed(what))
}

impl PendingStream {
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Upload,
        silence: Duration,
    ) -> Poll<Result<StreamHead, StreamFailure>> {
        match self.answer.poll_informational(cx) {
            Poll::Ready(Some(Ok(interim))) => return Poll::Ready(Ok(StreamHead::Interim(interim))),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(StreamFailure::of(&error))),
            Poll::Ready(None) | Poll::Pending => {}
        }
        match Pin::new(&mut self.answer).poll(cx) {
            Poll::Ready(Ok(answer)) => return Poll::Ready(Ok(StreamHead::Final(answer))),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(StreamFailure::of(&error))),
            Poll::Pending => {}
        }
        let sent = upload.sent();
        let sending = upload.poll_http2(cx, &mut self.send);
        let sending = sending.map_err(StreamFailure::processed)?;
        if upload.sent() > sent {
            self.timer.restart(silence);
        }
        // While the client is slow to send, the server has a reason to be silent.
        if sending == SendState::Client || self.timer.poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.slot.give_up_connection();
        Poll::Ready(Err(StreamFailure::processed(OriginError::Timeout)))
    }

    fn answered(self, content: RecvStream) -> ResponseStream {
        ResponseStream {
            send: self.send,
            content,
            timer: self.timer,
            slot: self.slot,
        }
    }
}

//! Response bodies of HTTP/2, read from the stream on demand. Unread data stays with the server once the
//! flow-control window is full.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_engine::body::{Body, BodyError, Frame, Source};
use microcache_wire::h1::Framing;
use tokio::time::timeout;

use super::exchange::ResponseStream;
use super::fields;
use super::retry::broke_off;
use crate::upstream::response::InFlightResponse;
use crate::upstream::upload::{SendState, Upload};

/// Time limit for `END_STREAM` once all content has arrived.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// A body being received. Dropping it early resets the stream.
struct Http2Body {
    /// Gone once the last byte was read.
    exchange: Option<Http2Exchange>,
    /// The announced length.
    length: Option<u64>,
    received: u64,
    silence: Duration,
    /// A frame that was read before the first poll.
    ahead: Option<Result<Frame, BodyError>>,
}

/// State of the exchange until the end of the body.
struct Http2Exchange {
    stream: ResponseStream,
    upload: Box<Upload>,
    in_flight: InFlightResponse,
}

/// Builds the body: complete if all of it has arrived, else streaming.
pub(in crate::upstream) fn deliver(
    mut stream: ResponseStream,
    upload: Box<Upload>,
    in_flight: InFlightResponse,
    framing: Framing,
    silence: Duration,
) -> Result<Body, BodyError> {
    let length = match framing {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::UntilClose => None,
    };
    stream.timer.restart(silence);
    let mut body = Http2Body {
        exchange: Some(Http2Exchange {
            stream,
            upload,
            in_flight,
        }),
        length,
        received: 0,
        silence,
        ahead: None,
    };
    if body.is_over() {
        body.finish()?;
        return Ok(Body::Empty);
    }
    let mut no_waker = Context::from_waker(Waker::noop());
    match body.poll_frame(&mut no_waker) {
        Poll::Pending => {}
        Poll::Ready(None) => return Ok(Body::Empty),
        // It is copied, so that a small body which is stored does not keep the whole read buffer alive.
        Poll::Ready(Some(Ok(Frame::Data(data)))) if body.exchange.is_none() => {
            return Ok(Body::Full(Bytes::copy_from_slice(&data)));
        }
        Poll::Ready(frame) => body.ahead = frame,
    }
    Ok(Body::Stream(Box::new(body)))
}

impl Source for Http2Body {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(frame) = self.ahead.take() {
            return Poll::Ready(Some(frame));
        }
        let mut polled = self.poll(cx);
        let is_last = match &polled {
            Poll::Ready(Ok(Some(Frame::Trailers(_)) | None)) => true,
            // The consumer may know the length and never ask for the end, so it is not waited for.
            Poll::Ready(Ok(Some(Frame::Data(_)))) => self.is_over(),
            Poll::Ready(Err(_)) | Poll::Pending => false,
        };
        if is_last && let Err(error) = self.finish() {
            polled = Poll::Ready(Err(error));
        }
        if let Poll::Ready(Err(why)) = &polled
            && let Some(mut exchange) = self.exchange.take()
        {
            if *why == BodyError::Timeout {
                exchange.stream.slot.give_up_connection();
            }
            exchange.in_flight.broke_off(why);
        }
        polled.map(Result::transpose)
    }

    /// A slow client keeps the stream, but no other request waiting.
    fn notify_slow_reader(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.in_flight.release_permit();
        }
    }
}

impl Http2Body {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, BodyError>> {
        let Some(Http2Exchange {
            stream,
            upload,
            in_flight,
        }) = &mut self.exchange
        else {
            return Poll::Ready(Ok(None));
        };
        if let Poll::Ready(frame) = stream.poll_frame(cx)? {
            if let Some(Frame::Data(data)) = &frame {
                self.received += data.len() as u64;
                in_flight.note_received(self.received);
            }
            stream.timer.restart(self.silence);
            return Poll::Ready(Ok(frame));
        }
        let mut sending = SendState::Done;
        if !upload.is_complete() {
            let sent = upload.sent();
            sending = match upload.poll_http2(cx, &mut stream.send) {
                Ok(sending) => sending,
                Err(_) => return Poll::Ready(Err(self.upload_failed())),
            };
            if upload.sent() > sent {
                stream.timer.restart(self.silence);
            }
        }
        // While the client is slow to send, the server has a reason to be silent.
        if sending == SendState::Client {
            return Poll::Pending;
        }
        let timeout = stream.timer.poll(cx);
        timeout.map(|()| Err(BodyError::Timeout))
    }

    /// The request's own body failed: the server cannot understand the rest, and is not at fault.
    fn upload_failed(&mut self) -> BodyError {
        self.exchange = None;
        BodyError::Disconnected
    }

    /// Returns true if the whole body has been received, as far as is known.
    fn is_over(&self) -> bool {
        let exchange = self.exchange.as_ref();
        self.length == Some(self.received)
            || exchange.is_some_and(|exchange| exchange.stream.content.is_end_stream())
    }

    /// Ends the exchange. A body that is longer or shorter than announced is an error.
    fn finish(&mut self) -> Result<(), BodyError> {
        let Some(Http2Exchange {
            mut stream,
            upload,
            mut in_flight,
        }) = self.exchange.take()
        else {
            return Ok(());
        };
        let end = match self.length {
            Some(length) if self.received < length => Err(BodyError::Incomplete),
            Some(_) => stream.expect_nothing(),
            None => Ok(()),
        };
        match &end {
            Ok(()) => {
                in_flight.ended(self.received, upload.sent(), Instant::now());
                if upload.is_complete() {
                    stream.close();
                }
            }
            Err(why) => in_flight.broke_off(why),
        }
        end
    }
}

impl ResponseStream {
    /// Reads the next frame, `None` at the end, and releases its flow-control capacity.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, BodyError>> {
        loop {
            let data = match self.content.poll_data(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return self.poll_trailers(cx),
                Poll::Ready(Some(data)) => data.map_err(|error| broke_off(&error))?,
            };
            self.slot.has_heard();
            // No more is released than was received, so this does not fail.
            let _ = self.content.flow_control().release_capacity(data.len());
            if !data.is_empty() {
                return Poll::Ready(Ok(Some(Frame::Data(data))));
            }
        }
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, BodyError>> {
        self.content.poll_trailers(cx).map(|trailers| {
            let trailers = trailers.map_err(|error| broke_off(&error))?;
            let trailers = trailers.as_ref().map(fields::trailers).transpose();
            let trailers = trailers.map_err(BodyError::Malformed)?;
            let said = trailers.filter(|trailers| !trailers.fields().as_block().is_empty());
            Ok(said.map(Frame::Trailers))
        })
    }

    /// Closes a completed stream without `RST_STREAM`: a server may send `END_STREAM` in a frame of its own a
    /// moment later.
    fn close(mut self) {
        if self.content.is_end_stream() {
            return self.slot.has_ended();
        }
        tokio::spawn(async move {
            let end = poll_fn(|cx| self.poll_frame(cx));
            let _ = timeout(END_PATIENCE, end).await;
            if self.content.is_end_stream() {
                self.slot.has_ended();
            }
        });
    }

    /// Reads what has arrived behind the announced length; data there is an error.
    fn expect_nothing(&mut self) -> Result<(), BodyError> {
        let mut no_waker = Context::from_waker(Waker::noop());
        match self.poll_frame(&mut no_waker) {
            Poll::Ready(Ok(Some(Frame::Data(_)))) => {
                Err(BodyError::Malformed("bytes after its end"))
            }
            Poll::Ready(Err(error @ BodyError::Malformed(_))) => Err(error),
            Poll::Ready(_) | Poll::Pending => Ok(()),
        }
    }
}

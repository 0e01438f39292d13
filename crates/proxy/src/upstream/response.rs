//! Response bodies of HTTP/1, and the resources that a response holds until its end.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_engine::body::{Body, BodyError, Frame, Source};
use microcache_engine::origin::OriginError;
use microcache_wire::h1::{BodyDecoder, DecodedBody, Framing, IncompleteBody};

use super::balance::{ResponseTotals, ServerAssignment};
use super::connection::OriginConnection;
use super::owner::Owner;
use super::queue::Permit;
use super::server::OriginServer;
use super::upload::{SendState, Upload};
use crate::metrics::OriginRequestMetrics;

/// Size in bytes above which a response is a download, not a page: it releases its permit early, so
/// that slow readers of large files cannot delay all other requests.
const LARGEST_PAGE: u64 = 1024 * 1024;

/// Resources of the group that a response holds until its end, in any protocol.
pub(super) struct InFlightResponse {
    /// Counts as in flight at the server.
    pub(super) assignment: ServerAssignment,
    /// Records how it ends.
    pub(super) metrics: Option<OriginRequestMetrics>,
    /// Permit of `max_concurrent`, unless released early.
    pub(super) permit: Option<Permit>,
    /// Arrival of the head.
    pub(super) began: Instant,
}

impl InFlightResponse {
    /// Reports progress in bytes; a large response gives its permit back.
    pub(super) fn note_received(&mut self, bytes: u64) {
        if bytes > LARGEST_PAGE {
            self.release_permit();
        }
    }

    /// Releases the permit before the end of the response.
    pub(super) fn release_permit(&mut self) {
        self.permit = None;
    }

    /// Records a response that is complete now, with the bytes of content received and sent.
    pub(super) fn ended(&mut self, received: u64, sent: u64, now: Instant) {
        if let Some(metrics) = &self.metrics {
            // The duration of a stream, or of a response slowed down by its reader, says nothing about the
            // server.
            let took = self.permit.is_some().then(|| metrics.took(now));
            metrics.ended(received, took);
            self.assignment.ended(ResponseTotals {
                received,
                sent,
                took,
            });
        }
    }

    /// Records a truncated response.
    pub(super) fn broke_off(&mut self, why: &BodyError) {
        self.assignment.broke_off(why);
        if let Some(metrics) = &self.metrics {
            metrics.broke_off(why);
        }
    }
}

/// State of an HTTP/1 exchange until the end of the body.
pub(super) struct Http1Exchange {
    pub(super) connection: OriginConnection,
    pub(super) upload: Box<Upload>,
    pub(super) keep_alive: bool,
    pub(super) server: Arc<OriginServer>,
    /// Owner of the connection afterwards.
    pub(super) owner: Owner,
    pub(super) in_flight: InFlightResponse,
}

/// A body being received. Dropping it early closes the connection.
struct Http1Body {
    decoder: BodyDecoder,
    /// Gone once the last byte was read.
    exchange: Option<Http1Exchange>,
    silence: Duration,
    received: u64,
}

impl Http1Exchange {
    /// Builds the body: complete if all of it has arrived, else streaming.
    pub(super) fn deliver(
        mut self,
        framing: Framing,
        silence: Duration,
    ) -> Result<Body, OriginError> {
        self.connection.may_send_more = framing == Framing::None;
        if let Some((body, length)) = whole_body(&mut self.connection, framing) {
            let began = self.in_flight.began;
            self.finish(length, began)
                .map_err(|error| no_answer(&error))?;
            return Ok(body);
        }
        self.connection.timer.restart(silence);
        Ok(Body::Stream(Box::new(Http1Body {
            decoder: BodyDecoder::new(framing),
            exchange: Some(self),
            silence,
            received: 0,
        })))
    }

    /// Ends the exchange now. The connection is reused if the request was sent completely. Bytes behind the
    /// announced length are an error.
    fn finish(mut self, received: u64, now: Instant) -> Result<(), BodyError> {
        if !self.connection.buf.is_empty() {
            let error = BodyError::Malformed("bytes after its end");
            self.in_flight.broke_off(&error);
            return Err(error);
        }
        self.in_flight.ended(received, self.upload.sent(), now);
        if self.keep_alive && self.upload.is_complete() {
            self.owner.take(self.server, self.connection, now);
        }
        Ok(())
    }
}

/// A body that came along with its head. It is copied, so that a small body which is stored does
/// not keep the whole read buffer alive.
fn whole_body(connection: &mut OriginConnection, framing: Framing) -> Option<(Body, u64)> {
    let length = match framing {
        Framing::None => 0,
        Framing::Length(length) => usize::try_from(length).ok()?,
        Framing::Chunked | Framing::UntilClose => return None,
    };
    let body = connection.buf.get(..length)?;
    let body = match body {
        [] => Body::Empty,
        body => Body::Full(Bytes::copy_from_slice(body)),
    };
    bytes::Buf::advance(&mut connection.buf, length);
    Some((body, length as u64))
}

impl Source for Http1Body {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut polled = self.poll(cx);
        // The consumer may know the length and never ask for the end, so it is not waited for.
        if self.decoder.is_end()
            && let Some(exchange) = self.exchange.take()
        {
            polled = match exchange.finish(self.received, Instant::now()) {
                Ok(()) => polled,
                Err(error) => Poll::Ready(Err(error)),
            };
        }
        if let Poll::Ready(Err(why)) = &polled
            && let Some(mut exchange) = self.exchange.take()
        {
            exchange.in_flight.broke_off(why);
        }
        polled.map(Result::transpose)
    }

    /// A slow client keeps the connection, but no other request waiting.
    fn notify_slow_reader(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.in_flight.release_permit();
        }
    }
}

impl Http1Body {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, BodyError>> {
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(Ok(None));
        };
        let connection = &mut exchange.connection;
        let mut sending = SendState::Done;
        loop {
            let decoded = self.decoder.decode(&mut connection.buf);
            match decoded.map_err(BodyError::Malformed)? {
                DecodedBody::Data(data) => {
                    self.received += data.len() as u64;
                    exchange.in_flight.note_received(self.received);
                    return Poll::Ready(Ok(Some(Frame::Data(data))));
                }
                DecodedBody::Trailers(fields) => {
                    return Poll::Ready(Ok(Some(Frame::Trailers(fields))));
                }
                DecodedBody::End => return Poll::Ready(Ok(None)),
                DecodedBody::NeedMore => {}
            }
            if !exchange.upload.is_complete() {
                let sent = exchange.upload.sent();
                sending = match exchange.upload.poll_http1(cx, connection) {
                    Ok(sending) => sending,
                    Err(_) => return Poll::Ready(Err(self.upload_failed())),
                };
                if exchange.upload.sent() > sent {
                    connection.timer.restart(self.silence);
                }
            }
            match connection.poll_read(cx, self.decoder.expected()) {
                Poll::Ready(Ok(0)) => {
                    let ended = self.decoder.eof();
                    ended.map_err(|IncompleteBody| BodyError::Incomplete)?;
                }
                Poll::Ready(Ok(_)) => connection.timer.restart(self.silence),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(BodyError::Disconnected)),
                // While the client is slow to send, the server has a reason to be silent.
                Poll::Pending if sending == SendState::Client => return Poll::Pending,
                Poll::Pending => {
                    let timeout = connection.timer.poll(cx);
                    return timeout.map(|()| Err(BodyError::Timeout));
                }
            }
        }
    }

    /// The request's own body failed: the server cannot understand the rest, and is not at fault.
    fn upload_failed(&mut self) -> BodyError {
        self.exchange = None;
        BodyError::Disconnected
    }
}

/// Error of a response whose body fails before any of it was forwarded.
pub(super) fn no_answer(error: &BodyError) -> OriginError {
    match error {
        BodyError::Malformed(what) => OriginError::Malformed(what),
        BodyError::Incomplete => OriginError::Malformed("fewer bytes than announced"),
        BodyError::Timeout
        | BodyError::TooLarge
        | BodyError::TooSlow
        | BodyError::Disconnected
        | BodyError::Reset(_)
        | BodyError::Other(_) => OriginError::Disconnected,
    }
}

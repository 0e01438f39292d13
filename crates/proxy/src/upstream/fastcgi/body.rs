//! Response bodies of FastCGI.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_engine::body::{Body, BodyError, Frame, Source};
use microcache_engine::origin::OriginError;
use microcache_wire::fastcgi::AnswerPart;
use microcache_wire::h1::Framing;

use super::exchange::FastCgiStream;
use crate::upstream::response::{InFlightResponse, no_answer};
use crate::upstream::server::OriginServer;
use crate::upstream::upload::{SendState, Upload};

/// State of an exchange until the end of the body.
pub(in crate::upstream) struct FastCgiExchange {
    pub(in crate::upstream) stream: FastCgiStream,
    pub(in crate::upstream) upload: Box<Upload>,
    pub(in crate::upstream) server: Arc<OriginServer>,
    pub(in crate::upstream) in_flight: InFlightResponse,
}

/// A body being received. Dropping it early closes the connection, which ends the script.
struct FastCgiBody {
    /// Gone once the last byte was read.
    exchange: Option<Box<FastCgiExchange>>,
    framing: Framing,
    /// Bytes that arrived with the head.
    early: Bytes,
    silence: Duration,
    received: u64,
}

/// Result of decoding what has arrived.
enum BodyPart {
    Data(Bytes),
    End,
    NeedMore,
}

/// Builds the body: complete if all of it has arrived, else streaming.
pub(in crate::upstream) fn deliver(
    exchange: FastCgiExchange,
    framing: Framing,
    silence: Duration,
) -> Result<Body, OriginError> {
    let mut body = FastCgiBody {
        exchange: Some(Box::new(exchange)),
        framing,
        early: Bytes::new(),
        silence,
        received: 0,
    };
    let mut arrived = Vec::new();
    loop {
        match body.decode() {
            Ok(BodyPart::Data(data)) => arrived.extend_from_slice(&data),
            Ok(BodyPart::NeedMore) => break,
            Ok(BodyPart::End) => {
                body.finish();
                return Ok(whole(arrived));
            }
            Err(error) => {
                body.broke_off(&error);
                return Err(no_answer(&error));
            }
        }
    }
    if body.is_all() {
        body.finish();
        return Ok(whole(arrived));
    }
    body.early = arrived.into();
    if let Some(exchange) = &mut body.exchange {
        exchange.stream.connection.timer.restart(silence);
    }
    Ok(Body::Stream(Box::new(body)))
}

/// A complete body, without the spare capacity it was collected with: it may be kept in memory, which charges its length.
fn whole(bytes: Vec<u8>) -> Body {
    if bytes.is_empty() {
        Body::Empty
    } else {
        Body::Full(bytes.into_boxed_slice().into())
    }
}

impl Source for FastCgiBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if !self.early.is_empty() {
            return Poll::Ready(Some(Ok(Frame::Data(std::mem::take(&mut self.early)))));
        }
        let polled = self.poll(cx);
        if let Poll::Ready(Err(why)) = &polled {
            self.broke_off(why);
        }
        polled.map(|part| part.map(|data| data.map(Frame::Data)).transpose())
    }

    /// A slow client keeps the connection, but no other request waiting.
    fn notify_slow_reader(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.in_flight.release_permit();
        }
    }
}

impl FastCgiBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        let mut sending = SendState::Done;
        loop {
            match self.decode()? {
                BodyPart::Data(data) => {
                    self.note_received()?;
                    return Poll::Ready(Ok(Some(data)));
                }
                BodyPart::End => {
                    self.finish();
                    return Poll::Ready(Ok(None));
                }
                BodyPart::NeedMore => {}
            }
            let Some(exchange) = &mut self.exchange else {
                return Poll::Ready(Ok(None));
            };
            let FastCgiExchange { stream, upload, .. } = &mut **exchange;
            let connection = &mut stream.connection;
            if !stream.stdin.is_sent(upload) {
                let sent = upload.sent();
                let sends = upload.poll_fastcgi(cx, connection, &mut stream.stdin);
                let Ok(state) = sends else {
                    // The request's own body failed: the script cannot understand the rest, and is not at fault.
                    self.exchange = None;
                    return Poll::Ready(Err(BodyError::Disconnected));
                };
                sending = state;
                if upload.sent() > sent {
                    connection.timer.restart(self.silence);
                }
            }
            match connection.poll_read(cx, stream.decoder.expected()) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(BodyError::Incomplete)),
                Poll::Ready(Ok(_)) => connection.timer.restart(self.silence),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(BodyError::Disconnected)),
                Poll::Pending if sending == SendState::Client => return Poll::Pending,
                Poll::Pending => {
                    let timeout = connection.timer.poll(cx);
                    return timeout.map(|()| Err(BodyError::Timeout));
                }
            }
        }
    }

    /// Decodes the next part of what has arrived, and verifies an announced length.
    fn decode(&mut self) -> Result<BodyPart, BodyError> {
        let Some(exchange) = &mut self.exchange else {
            return Ok(BodyPart::End);
        };
        let stream = &mut exchange.stream;
        loop {
            let part = if stream.output.is_empty() {
                let part = stream.decoder.decode(&mut stream.connection.buf);
                part.map_err(BodyError::Malformed)?
            } else {
                AnswerPart::Output(stream.output.split().freeze())
            };
            match part {
                // The output of a HEAD, or of a response that has no content.
                AnswerPart::Output(_) if self.framing == Framing::None => {}
                AnswerPart::Output(data) => {
                    self.received += data.len() as u64;
                    if matches!(self.framing, Framing::Length(length) if self.received > length) {
                        return Err(BodyError::Malformed("bytes after its end"));
                    }
                    return Ok(BodyPart::Data(data));
                }
                AnswerPart::ErrorOutput(bytes) => stream.errors.push(&bytes),
                AnswerPart::End => {
                    let is_short =
                        matches!(self.framing, Framing::Length(length) if self.received < length);
                    return if is_short {
                        Err(BodyError::Incomplete)
                    } else {
                        Ok(BodyPart::End)
                    };
                }
                AnswerPart::NeedMore => return Ok(BodyPart::NeedMore),
            }
        }
    }

    /// Returns `true` if nothing more of the content is to come.
    const fn is_all(&self) -> bool {
        match self.framing {
            Framing::None => true,
            Framing::Length(length) => self.received == length,
            Framing::Chunked | Framing::UntilClose => false,
        }
    }

    /// Handles progress. The consumer may know the length and never ask for the end, so it is not waited for.
    fn note_received(&mut self) -> Result<(), BodyError> {
        if let Some(exchange) = &mut self.exchange {
            exchange.in_flight.note_received(self.received);
        }
        if self.is_all() {
            // Bytes behind the announced length are an error.
            self.decode()?;
            self.finish();
        }
        Ok(())
    }

    /// Ends the exchange. The connection is reused if the application keeps it open and the request was sent completely.
    fn finish(&mut self) {
        let Some(exchange) = self.exchange.take() else {
            return;
        };
        let FastCgiExchange {
            mut stream,
            upload,
            server,
            mut in_flight,
        } = *exchange;
        let now = Instant::now();
        in_flight.ended(self.received, upload.sent(), now);
        let Some(fastcgi) = &server.fastcgi else {
            return;
        };
        stream.errors.log(fastcgi);
        let is_idle = stream.decoder.is_end()
            && stream.connection.buf.is_empty()
            && stream.stdin.is_sent(&upload);
        if fastcgi.keeps_alive() && is_idle {
            server.idle.put(stream.connection, now);
        }
    }

    fn broke_off(&mut self, why: &BodyError) {
        if let Some(exchange) = &mut self.exchange {
            exchange.in_flight.broke_off(why);
        }
        self.abandon();
    }

    /// Closes the connection before the end of the response.
    fn abandon(&mut self) {
        if let Some(mut exchange) = self.exchange.take()
            && let Some(server) = &exchange.server.fastcgi
        {
            exchange.stream.errors.log(server);
        }
    }
}

/// The reader has left.
impl Drop for FastCgiBody {
    fn drop(&mut self) {
        self.abandon();
    }
}

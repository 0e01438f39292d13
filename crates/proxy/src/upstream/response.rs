//! The body of an answer, read from its connection as it is asked for.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_engine::body::{BodyError, Frame, Source};
use microcache_engine::origin::OriginError;

use super::balance::{Ended, Turn};
use super::connection::Connection;
use super::group::Server;
use super::owner::Owner;
use super::queue::Permit;
use super::upload::{Sending, Upload};
use crate::figures::AskedOrigin;
use crate::h1::{Decoded, Decoder};

/// An answer longer than this is a download, not a page: it gives its place among the group's
/// requests back, so that slow readers of large files cannot keep everyone else waiting.
const LARGEST_PAGE: u64 = 1024 * 1024;

/// A body that is being received. Dropping it early closes the connection.
pub(super) struct ResponseBody {
    pub(super) decoder: Decoder,
    /// Gone once the last byte was read.
    pub(super) exchange: Option<Exchange>,
    pub(super) silence: Duration,
    pub(super) received: u64,
}

/// What an exchange holds on to until its end.
pub(super) struct Exchange {
    pub(super) connection: Connection,
    pub(super) upload: Upload,
    pub(super) keep_alive: bool,
    pub(super) server: Arc<Server>,
    /// Who may use the connection afterwards.
    pub(super) owner: Owner,
    /// Counts as outstanding with the server.
    pub(super) turn: Turn,
    /// Takes down how it ends.
    pub(super) asked: Option<AskedOrigin>,
    /// Its place among the group's concurrent requests, unless it was given back.
    pub(super) permit: Option<Permit>,
}

impl Exchange {
    /// The answer is over. The connection can be used again if nothing of the request is left
    /// over; so much content came. Bytes behind the answer mean that its length was a lie: no part of it is to be
    /// believed.
    pub(super) fn finish(mut self, received: u64) -> Result<(), BodyError> {
        if !self.connection.buf.is_empty() {
            let error = BodyError::Malformed("bytes after its end");
            self.broke_off(&error);
            return Err(error);
        }
        if let Some(asked) = &self.asked {
            // Of what goes on without an end, or is slow because its reader is, the time says nothing.
            let took = self.permit.is_some().then(|| asked.took());
            asked.ended(received, took);
            self.turn.ended(Ended {
                received,
                sent: self.upload.sent(),
                took,
            });
        }
        if self.keep_alive && self.upload.is_complete() {
            self.owner.take(self.server, self.connection);
        }
        Ok(())
    }

    fn broke_off(&mut self, why: &BodyError) {
        self.turn.broke_off(why);
        if let Some(asked) = &self.asked {
            asked.broke_off(why);
        }
    }
}

impl Source for ResponseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut polled = self.poll(cx);
        // The consumer may know the length and never ask for the end, so it is not waited for.
        if self.decoder.is_end()
            && let Some(exchange) = self.exchange.take()
        {
            polled = match exchange.finish(self.received) {
                Ok(()) => polled,
                Err(error) => Poll::Ready(Err(error)),
            };
        }
        if let Poll::Ready(Err(why)) = &polled
            && let Some(mut exchange) = self.exchange.take()
        {
            exchange.broke_off(why);
        }
        polled.map(Result::transpose)
    }

    /// A slow client keeps the connection, but no other request waiting.
    fn is_held_up(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.permit = None;
        }
    }
}

impl ResponseBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, BodyError>> {
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(Ok(None));
        };
        let connection = &mut exchange.connection;
        let mut sending = Sending::Done;
        loop {
            match self.decoder.decode(&mut connection.buf)? {
                Decoded::Frame(frame) => {
                    if let Frame::Data(data) = &frame {
                        self.received += data.len() as u64;
                    }
                    if self.received > LARGEST_PAGE {
                        exchange.permit = None;
                    }
                    return Poll::Ready(Ok(Some(frame)));
                }
                Decoded::End => return Poll::Ready(Ok(None)),
                Decoded::NeedMore => {}
            }
            if !exchange.upload.is_complete() {
                let sent = exchange.upload.sent();
                sending = exchange.upload.poll(cx, connection).map_err(lost)?;
                if exchange.upload.sent() > sent {
                    connection.timer.restart(self.silence);
                }
            }
            match connection.poll_read(cx, self.decoder.expected()) {
                Poll::Ready(Ok(0)) => self.decoder.eof()?,
                Poll::Ready(Ok(_)) => connection.timer.restart(self.silence),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(BodyError::Disconnected)),
                // While the client is slow to send, the server has a reason to be silent.
                Poll::Pending if sending == Sending::Client => return Poll::Pending,
                Poll::Pending => {
                    let timeout = connection.timer.poll(cx);
                    return timeout.map(|()| Err(BodyError::Timeout));
                }
            }
        }
    }
}

/// The request's own body failed; the server will not be able to make sense of it.
fn lost(_: OriginError) -> BodyError {
    BodyError::Disconnected
}

//! Request bodies on their way from the client's socket to the session.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use microcache_engine::{BodyError, Frame};
use microcache_wire::h1::{BodyDecoder, DecodedBody, Framing};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout};

use crate::session::ContentSender;

/// Bytes read at a time.
const READ_SIZE: usize = 64 * 1024;

/// Reads a request body from the socket and passes it on.
pub(super) struct RequestBodyReader {
    decoder: BodyDecoder,
    content: ContentSender,
}

impl RequestBodyReader {
    /// Reader of a body with this framing.
    pub(super) fn new(framing: Framing, content: ContentSender) -> Self {
        Self {
            decoder: BodyDecoder::new(framing),
            content,
        }
    }

    /// Reads the body to its end, then sets `complete`. Returns without setting it when the body was malformed
    /// or stalled, or the receiver is gone.
    pub(super) async fn run(
        mut self,
        socket: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
        complete: &AtomicBool,
    ) {
        while self.content.ready().await {
            match self.next(socket, buffer).await {
                Ok(Some(frame)) => {
                    let is_last = self.decoder.is_end();
                    self.content.send(frame, is_last);
                    if is_last {
                        return complete.store(true, Ordering::Relaxed);
                    }
                }
                Ok(None) => {
                    self.content.end();
                    return complete.store(true, Ordering::Relaxed);
                }
                Err(error) => return self.content.fail(error),
            }
        }
    }

    /// Returns the next frame; `None` at the end.
    async fn next(
        &mut self,
        socket: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
    ) -> Result<Option<Frame>, BodyError> {
        loop {
            match self.decoder.decode(buffer).map_err(BodyError::Malformed)? {
                DecodedBody::Data(data) => return Ok(Some(Frame::Data(data))),
                DecodedBody::Trailers(fields) => return Ok(Some(Frame::Trailers(fields))),
                DecodedBody::End => return Ok(None),
                DecodedBody::NeedMore => {}
            }
            buffer.reserve(READ_SIZE);
            let began = Instant::now();
            let allowance = &mut self.content.allowance;
            match timeout(allowance.left(), socket.read_buf(buffer)).await {
                Err(_) => return Err(BodyError::Timeout),
                Ok(Ok(0)) => return Err(BodyError::Incomplete),
                Ok(Ok(bytes)) => allowance.received(bytes, began.elapsed()),
                Ok(Err(_)) => return Err(BodyError::Disconnected),
            }
        }
    }
}

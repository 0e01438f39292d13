//! One request and the head of its response, on one connection. Sending and reading run concurrently: a script may
//! respond before it has read the whole request.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use microcache_engine::origin::OriginError;
use microcache_policy::FieldIndex;
use microcache_wire::fastcgi::{AnswerPart, RecordDecoder, parse_head};

use super::call::ScriptCall;
use super::error_output::ErrorOutput;
use super::server::FastCgiServer;
use crate::upstream::connection::OriginConnection;
use crate::upstream::exchange::{ANSWER_LIMITS, ExchangeContext, ExchangeFailure, OriginHead};
use crate::upstream::upload::{SendState, StdinState, Upload};

/// A connection during one request.
pub(in crate::upstream) struct FastCgiStream {
    pub(super) connection: OriginConnection,
    pub(super) decoder: RecordDecoder,
    pub(super) stdin: StdinState,
    pub(super) errors: ErrorOutput,
    /// Output that is not parsed yet: the head, and after it the beginning of the body.
    pub(super) output: BytesMut,
    /// Some bytes of an answer have arrived.
    has_answered: bool,
}

impl FastCgiStream {
    pub(in crate::upstream) fn new(connection: OriginConnection) -> Self {
        Self {
            connection,
            decoder: RecordDecoder::default(),
            stdin: StdinState::default(),
            errors: ErrorOutput::default(),
            output: BytesMut::new(),
            has_answered: false,
        }
    }

    /// Sends the request now, and waits for the response head. `silence` is the inactivity timeout in both directions.
    pub(in crate::upstream) async fn exchange(
        &mut self,
        server: &FastCgiServer,
        call: &ScriptCall,
        upload: &mut Upload,
        context: &ExchangeContext,
        silence: Duration,
        now: Instant,
    ) -> Result<OriginHead, ExchangeFailure> {
        self.stdin = upload.begin_fastcgi(call, server.keeps_alive(), now);
        self.connection.timer.restart(silence);
        let head = poll_fn(|cx| self.poll_head(cx, upload, context, silence)).await;
        if head.is_err() {
            self.errors.log(server);
        }
        let head = head.map_err(|error| ExchangeFailure {
            error,
            answered: self.has_answered,
        })?;
        upload.answered();
        Ok(head)
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Upload,
        context: &ExchangeContext,
        silence: Duration,
    ) -> Poll<Result<OriginHead, OriginError>> {
        let connection = &mut self.connection;
        let sent = upload.sent();
        let sending = upload.poll_fastcgi(cx, connection, &mut self.stdin)?;
        if upload.sent() > sent {
            connection.timer.restart(silence);
        }
        loop {
            match self.connection.poll_read(cx, self.decoder.expected()) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(OriginError::Disconnected)),
                Poll::Ready(Ok(_)) => {
                    self.has_answered = true;
                    if let Some(head) = self.take_head(context)? {
                        return Poll::Ready(Ok(head));
                    }
                }
                // While the client is slow to send, the server has a reason to be silent.
                Poll::Pending if sending == SendState::Client => return Poll::Pending,
                Poll::Pending => {
                    let timeout = self.connection.timer.poll(cx);
                    return timeout.map(|()| Err(OriginError::Timeout));
                }
            }
        }
    }

    /// Parses a complete head off the output that has arrived.
    fn take_head(&mut self, context: &ExchangeContext) -> Result<Option<OriginHead>, OriginError> {
        loop {
            let part = self.decoder.decode(&mut self.connection.buf);
            match part.map_err(OriginError::Malformed)? {
                AnswerPart::Output(bytes) => self.output.extend_from_slice(&bytes),
                AnswerPart::ErrorOutput(bytes) => {
                    self.errors.push(&bytes);
                    continue;
                }
                AnswerPart::End => {
                    return Err(OriginError::Malformed("a FastCGI answer without a head"));
                }
                AnswerPart::NeedMore => return Ok(None),
            }
            let mut index = FieldIndex::default();
            let parsed = parse_head(&self.output, context.to_head, &ANSWER_LIMITS, &mut index);
            if let Some((head, taken)) = parsed.map_err(OriginError::Malformed)? {
                let mut answer = OriginHead::of(&head);
                answer.fields.remove("Status");
                self.output.advance(taken);
                return Ok(Some(answer));
            }
        }
    }
}

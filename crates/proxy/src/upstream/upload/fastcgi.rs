//! Writes requests as FastCGI.

use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use microcache_engine::origin::OriginError;
use microcache_wire::fastcgi::{MAX_CONTENT, encode};

use super::pieces::Pieces;
use super::{BodyPiece, SendState, Upload};
use crate::upstream::connection::OriginConnection;
use crate::upstream::fastcgi::call::ScriptCall;
use crate::upstream::fastcgi::variables::{RequestView, variables};

/// The body as a stream of records.
#[derive(Debug, Default)]
pub(in crate::upstream) struct StdinState {
    /// Bytes that are not in a record yet.
    unframed: Bytes,
    /// The record that ends the body is being written, or has been.
    has_ended: bool,
}

impl StdinState {
    /// Returns true if the whole request has been written.
    pub(in crate::upstream) fn is_sent(&self, upload: &Upload) -> bool {
        self.has_ended && upload.is_complete()
    }
}

impl Upload {
    /// Starts an attempt on a connection with FastCGI.
    pub(in crate::upstream) fn begin_fastcgi(
        &mut self,
        call: &ScriptCall,
        keep_alive: bool,
        now: Instant,
    ) -> StdinState {
        let view = RequestView {
            method: &self.head.method,
            target: &self.head.target,
            authority: &self.head.authority,
            fields: self.head.fields.fields(),
            length: self.length(),
        };
        let mut out = Vec::new();
        encode::head(&mut out, &variables(call, &view), keep_alive);
        self.restart(Pieces::framed(out, Bytes::new(), b""), now);
        // It never sends a 100 (Continue).
        self.proceed();
        StdinState {
            unframed: self.whole.clone(),
            has_ended: false,
        }
    }

    /// Writes as much as the connection takes.
    pub(in crate::upstream) fn poll_fastcgi(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut OriginConnection,
        stdin: &mut StdinState,
    ) -> Result<SendState, OriginError> {
        self.keeps_its_place(cx)?;
        while !self.cut_off {
            if !self.out.is_empty() {
                if self.poll_write(cx, connection).is_pending() {
                    return Ok(SendState::Server);
                }
                continue;
            }
            if stdin.has_ended {
                break;
            }
            let length = stdin.unframed.len().min(MAX_CONTENT);
            if length > 0 || self.ended {
                stdin.has_ended = length == 0;
                let header = encode::body(length).to_vec();
                self.out = Pieces::framed(header, stdin.unframed.split_to(length), b"");
                continue;
            }
            match self.next(cx)? {
                Poll::Ready(BodyPiece::Data(data)) => stdin.unframed = data,
                // Trailers have no place in CGI.
                Poll::Ready(BodyPiece::Trailers(_) | BodyPiece::End) => {}
                Poll::Pending => return Ok(SendState::Client),
            }
        }
        self.share = None;
        Ok(SendState::Done)
    }
}

//! The sending half of an exchange: head and body of a request, as fast as the server takes them.

mod fastcgi;
mod http1;
mod http2;
mod pieces;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use microcache_engine::body::{Body, BodyError, Frame};
use microcache_engine::origin::{OriginError, OriginRequest};
use microcache_policy::{Fields, FieldsBuf, KnownName, NameSet, names};
use tokio::time::{Sleep, sleep};

pub(super) use self::fastcgi::StdinState;
use self::pieces::Pieces;
use super::queue::UploadPermit;
use super::read_ahead::ReadAheadMemory;

/// Time limit for a 100 (Continue) response (RFC 9110 §10.1.1).
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// Fields that frame the message or concern one connection: see [`Upload::travels`].
const OF_CONNECTION: NameSet = NameSet::of(&[
    names::CONNECTION,
    names::CONTENT_LENGTH,
    names::EXPECT,
    names::HOST,
    names::TRANSFER_ENCODING,
    names::UPGRADE,
]);

/// A request being sent.
pub(super) struct Upload {
    head: UploadHead,
    /// The complete body, if it is in memory.
    whole: Bytes,
    /// A body that is still being received. Most requests have none.
    stream: Option<Box<BodyStream>>,
    /// Bytes being written.
    out: Pieces,
    sent: u64,
    queued: Instant,
    /// The beginning of the latest attempt.
    began: Instant,
    /// The body waits for a 100 (Continue) response.
    held_back: bool,
    /// Timer of that wait.
    time_limit: Option<Pin<Box<Sleep>>>,
    /// The last piece is in `out`, or has been written.
    ended: bool,
    /// The connection accepts no more bytes; the remainder is never sent.
    cut_off: bool,
    /// Part of the upload limit, while more of the body is to come.
    share: Option<UploadPermit>,
    /// Read-ahead memory of `whole`.
    held: Option<ReadAheadMemory>,
}

/// Request head, independent of the protocol.
struct UploadHead {
    method: Method,
    authority: Bytes,
    target: Bytes,
    fields: FieldsBuf,
    upgrade: bool,
    takes_trailers: bool,
    /// The client has announced the length of the body.
    says_length: bool,
}

struct BodyStream {
    body: Body,
    /// Remainder of the announced length.
    left: Option<u64>,
    polled: bool,
}

/// The next piece of a body.
enum BodyPiece {
    /// Some bytes.
    Data(Bytes),
    /// The trailer section of a body without a length, and its end.
    Trailers(FieldsBuf),
    /// Its end.
    End,
}

/// Reason for which sending pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendState {
    /// Nothing: the request has been sent.
    Done,
    /// The server takes no more bytes at the moment.
    Server,
    /// The client has not sent more yet, or a 100 (Continue) is awaited.
    Client,
}

impl Upload {
    /// Takes over a request with a complete body that arrived at this time, from which waiting is measured.
    pub(super) fn whole(
        request: &mut OriginRequest,
        held: Option<ReadAheadMemory>,
        queued: Instant,
    ) -> Box<Self> {
        let mut upload = Self::new(request, queued);
        upload.held = held;
        upload
    }

    /// Takes over a request that arrived at this time and whose body is still being received.
    pub(super) fn in_part(
        request: &mut OriginRequest,
        share: UploadPermit,
        queued: Instant,
    ) -> Box<Self> {
        let mut upload = Self::new(request, queued);
        upload.share = Some(share);
        upload
    }

    /// Boxed: it goes through several hands on its way to the end of the response.
    fn new(request: &mut OriginRequest, queued: Instant) -> Box<Self> {
        let body = std::mem::replace(&mut request.body, Body::Empty);
        let (whole, stream) = match body {
            Body::Empty => (Bytes::new(), None),
            Body::Full(bytes) => (bytes, None),
            body => (
                Bytes::new(),
                Some(Box::new(BodyStream {
                    body,
                    left: request.length,
                    polled: false,
                })),
            ),
        };
        let head = UploadHead {
            method: request.method.clone(),
            authority: request.authority.clone(),
            target: request.target.clone(),
            fields: std::mem::take(&mut request.fields),
            upgrade: request.upgrade,
            takes_trailers: request.takes_trailers,
            says_length: request.length.is_some(),
        };
        Box::new(Self {
            held_back: stream.is_some() && head.fields.fields().contains("expect"),
            head,
            whole,
            stream,
            out: Pieces::default(),
            sent: 0,
            queued,
            began: queued,
            time_limit: None,
            ended: false,
            cut_off: false,
            share: None,
            held: None,
        })
    }

    /// The fields of the request.
    pub(super) fn fields(&self) -> Fields<'_> {
        self.head.fields.fields()
    }

    /// Returns true if the complete body is in memory.
    pub(super) const fn is_whole(&self) -> bool {
        self.stream.is_none()
    }

    /// Returns true if no part of a streaming body has been read, so that the request can be sent (again).
    pub(super) fn can_begin(&self) -> bool {
        self.stream.as_ref().is_none_or(|stream| !stream.polled)
    }

    /// Bytes accepted by this connection.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Milliseconds between the request's arrival and the latest attempt.
    pub(super) fn waited(&self) -> u32 {
        self.began.duration_since(self.queued).as_millis() as u32
    }

    /// Returns true if the whole request has been written.
    pub(super) fn is_complete(&self) -> bool {
        self.ended && self.out.is_empty() && !self.cut_off
    }

    /// Handles 100 (Continue).
    pub(super) fn proceed(&mut self) {
        self.held_back = false;
    }

    /// Handles the final response head. Without a 100 before it the body is not sent, and the request is not
    /// retried.
    pub(super) fn answered(&mut self) {
        self.cut_off |= self.held_back;
        if self.is_complete() {
            self.whole = Bytes::new();
            self.held = None;
        }
    }

    /// Releases the upload share of a bidirectional stream, for which other uploads need not wait.
    pub(super) fn release_share(&mut self) {
        self.share = None;
    }

    /// Starts another attempt.
    fn restart(&mut self, out: Pieces, now: Instant) {
        self.out = out;
        self.sent = 0;
        self.began = now;
        self.ended = self.stream.is_none();
        self.cut_off = false;
    }

    /// `Content-Length` of the request; `None` for a chunked body, or without a body unless the method
    /// expects one (RFC 9110 §8.6).
    fn length(&self) -> Option<u64> {
        let whole = self.whole.len() as u64;
        match &self.stream {
            Some(stream) => stream.left,
            None if whole > 0 || self.head.says_length || self.head.expects_content() => {
                Some(whole)
            }
            None => None,
        }
    }

    /// Returns true if a field is forwarded. Fields that frame the message or concern one connection are
    /// generated, so that no client can contradict them.
    fn travels(&self, name: Option<KnownName>) -> bool {
        match name {
            Some(
                names::HOST | names::CONNECTION | names::CONTENT_LENGTH | names::TRANSFER_ENCODING,
            ) => false,
            Some(names::EXPECT) => self.stream.is_some(),
            Some(names::UPGRADE) => self.head.upgrade,
            _ => true,
        }
    }

    /// Fails if the upload has to give way to that of another address.
    fn keeps_its_place(&mut self, cx: &mut Context<'_>) -> Result<(), OriginError> {
        let share = self.share.as_mut();
        if share.is_some_and(|share| share.poll_ended(cx).is_ready()) {
            return Err(OriginError::Busy);
        }
        Ok(())
    }

    /// Reads the next piece of the body; pending while the client has not sent it or a 100 (Continue) is
    /// awaited.
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Poll<BodyPiece>, OriginError> {
        if self.held_back {
            let time_limit = self
                .time_limit
                .get_or_insert_with(|| Box::pin(sleep(CONTINUE_PATIENCE)));
            if time_limit.as_mut().poll(cx).is_pending() {
                return Ok(Poll::Pending);
            }
            self.held_back = false;
        }
        let Some(stream) = &mut self.stream else {
            self.ended = true;
            return Ok(Poll::Ready(BodyPiece::End));
        };
        stream.polled = true;
        loop {
            let Poll::Ready(frame) = stream.body.poll_frame(cx) else {
                return Ok(Poll::Pending);
            };
            let next = match frame.transpose().map_err(OriginError::RequestBody)? {
                Some(Frame::Data(data)) => {
                    stream.count(data.len())?;
                    if let Some(share) = &self.share {
                        share.count(data.len());
                    }
                    // A body of known length ends with its last byte, without waiting for the client's end.
                    self.ended = stream.left == Some(0);
                    BodyPiece::Data(data)
                }
                Some(Frame::Trailers(_)) if stream.left.is_some() => continue,
                Some(Frame::Trailers(fields)) => {
                    self.ended = true;
                    BodyPiece::Trailers(fields)
                }
                None if stream.left.is_some_and(|left| left > 0) => {
                    return Err(OriginError::RequestBody(BodyError::Incomplete));
                }
                None => {
                    self.ended = true;
                    BodyPiece::End
                }
            };
            return Ok(Poll::Ready(next));
        }
    }
}

impl UploadHead {
    fn expects_content(&self) -> bool {
        [Method::POST, Method::PUT, Method::PATCH].contains(&self.method)
    }
}

impl BodyStream {
    /// Subtracts bytes from the announced length.
    fn count(&mut self, length: usize) -> Result<(), OriginError> {
        if let Some(left) = &mut self.left {
            const TOO_LONG: OriginError =
                OriginError::RequestBody(BodyError::Malformed("longer than announced"));
            *left = left.checked_sub(length as u64).ok_or(TOO_LONG)?;
        }
        Ok(())
    }
}

//! The sending half of an exchange: a request's head and its body, as fast as the server takes them. How they are
//! written is a matter of the protocol.

mod http1;
mod http2;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use microcache_engine::body::{Body, BodyError, Frame};
use microcache_engine::origin::{OriginError, OriginRequest};
use microcache_policy::{Fields, FieldsBuf, Millis};
use tokio::time::{Sleep, sleep};

use self::http1::Pieces;
use super::ahead::Held;
use super::queue::Share;

/// How long a server that should say 100 first is waited for (RFC 9110 §10.1.1).
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// A request on its way out.
pub(super) struct Upload {
    head: Head,
    /// A body that is there as a whole.
    whole: Bytes,
    /// A body that comes in pieces.
    stream: Option<Stream>,
    /// What is being written.
    out: Pieces,
    sent: u64,
    asked: Instant,
    /// The beginning of the latest attempt.
    began: Instant,
    /// The body waits for a 100.
    held_back: bool,
    /// It does so until this goes off.
    patience: Option<Pin<Box<Sleep>>>,
    /// The last piece is in `out`, or behind it.
    ended: bool,
    /// The connection takes no more; what was not sent never will be.
    cut_off: bool,
    /// One of the places for uploads, while there is more to come.
    share: Option<Share>,
    /// The room that `whole` takes.
    held: Option<Held>,
}

/// What a request begins with, in no protocol's form yet.
struct Head {
    method: Method,
    authority: Bytes,
    target: Bytes,
    fields: FieldsBuf,
    upgrade: bool,
    takes_trailers: bool,
    /// The client has said how long the body is.
    says_length: bool,
}

struct Stream {
    body: Body,
    /// What is left of the announced length, if there is one.
    left: Option<u64>,
    polled: bool,
}

/// What comes next of a body.
enum Next {
    /// Some bytes.
    Data(Bytes),
    /// The trailer section of a body without a length, and its end.
    Trailers(FieldsBuf),
    /// Its end.
    End,
}

/// What sending waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// Nothing: there is no more to send.
    Done,
    /// The server takes no more bytes at the moment.
    Server,
    /// The client has not sent more yet, or the server is asked first.
    Client,
}

impl Upload {
    /// Takes over a request whose body is there.
    pub(super) fn whole(request: &mut OriginRequest, held: Option<Held>) -> Self {
        Self {
            held,
            ..Self::new(request)
        }
    }

    /// Takes over a request whose body is still on its way.
    pub(super) fn in_part(request: &mut OriginRequest, share: Share) -> Self {
        Self {
            share: Some(share),
            ..Self::new(request)
        }
    }

    fn new(request: &mut OriginRequest) -> Self {
        let body = std::mem::replace(&mut request.body, Body::Empty);
        let (whole, stream) = match body {
            Body::Empty => (Bytes::new(), None),
            Body::Full(bytes) => (bytes, None),
            body => (
                Bytes::new(),
                Some(Stream {
                    body,
                    left: request.length,
                    polled: false,
                }),
            ),
        };
        let head = Head {
            method: request.method.clone(),
            authority: request.authority.clone(),
            target: request.target.clone(),
            fields: std::mem::take(&mut request.fields),
            upgrade: request.upgrade,
            takes_trailers: request.takes_trailers,
            says_length: request.length.is_some(),
        };
        let now = Instant::now();
        Self {
            held_back: stream.is_some() && head.fields.fields().contains("expect"),
            head,
            whole,
            stream,
            out: Pieces::default(),
            sent: 0,
            asked: now,
            began: now,
            patience: None,
            ended: false,
            cut_off: false,
            share: None,
            held: None,
        }
    }

    /// The fields of the request.
    pub(super) fn fields(&self) -> Fields<'_> {
        self.head.fields.fields()
    }

    /// Whether all of the body is still there, so that the request can be sent, or sent again.
    pub(super) fn can_begin(&self) -> bool {
        self.stream.as_ref().is_none_or(|stream| !stream.polled)
    }

    /// How many bytes this connection has taken.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// The moment when the request was asked for. What comes before the latest attempt to send it is waiting.
    pub(super) fn asked_at(self, asked: Instant) -> Self {
        Self { asked, ..self }
    }

    /// Time before the latest attempt.
    pub(super) fn waited(&self) -> Millis {
        self.began.duration_since(self.asked).as_millis() as Millis
    }

    /// Whether the server has been given all of the request.
    pub(super) fn is_complete(&self) -> bool {
        self.ended && self.out.is_empty() && !self.cut_off
    }

    /// The server said 100.
    pub(super) fn proceed(&mut self) {
        self.held_back = false;
    }

    /// The server has answered. If it did not say 100 before, it does not want the body; and what
    /// it has heard is not sent again.
    pub(super) fn answered(&mut self) {
        self.cut_off |= self.held_back;
        if self.is_complete() {
            self.whole = Bytes::new();
            self.held = None;
        }
    }

    /// It goes on for as long as both sides speak: other uploads do not wait for it.
    pub(super) fn is_conversation(&mut self) {
        self.share = None;
    }

    /// Starts over, for another connection.
    fn restart(&mut self, out: Pieces) {
        self.out = out;
        self.sent = 0;
        self.began = Instant::now();
        self.ended = self.stream.is_none();
        self.cut_off = false;
    }

    /// What the request says of the length of its body; nothing of one that comes without a length, and nothing if there
    /// is none. RFC 9110 §8.6: methods that expect content say that there is none.
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

    /// Whether a field of the request goes to the server as it is: those that frame a message or concern one connection
    /// are written by the connection and nowhere else, so that no field a client sent can contradict it.
    fn travels(&self, name: &[u8]) -> bool {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let of_connection = match name.len() {
            4 => is("host"),
            6 => is("expect") && self.stream.is_none(),
            7 => is("upgrade") && !self.head.upgrade,
            10 => is("connection"),
            14 => is("content-length"),
            17 => is("transfer-encoding"),
            _ => false,
        };
        !of_connection
    }

    /// Fails if the upload has to give way to that of another address.
    fn keeps_its_place(&mut self, cx: &mut Context<'_>) -> Result<(), OriginError> {
        let share = self.share.as_mut();
        if share.is_some_and(|share| share.poll_ended(cx).is_ready()) {
            return Err(OriginError::Busy);
        }
        Ok(())
    }

    /// The next piece of the body; nothing while the client has not sent it, or the server is asked for it first.
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Poll<Next>, OriginError> {
        if self.held_back {
            let patience = self
                .patience
                .get_or_insert_with(|| Box::pin(sleep(CONTINUE_PATIENCE)));
            if patience.as_mut().poll(cx).is_pending() {
                return Ok(Poll::Pending);
            }
            self.held_back = false;
        }
        let Some(stream) = &mut self.stream else {
            self.ended = true;
            return Ok(Poll::Ready(Next::End));
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
                    // A body of known length is over with its last byte, whenever the client says so.
                    self.ended = stream.left == Some(0);
                    Next::Data(data)
                }
                Some(Frame::Trailers(_)) if stream.left.is_some() => continue,
                Some(Frame::Trailers(fields)) => {
                    self.ended = true;
                    Next::Trailers(fields)
                }
                None if stream.left.is_some_and(|left| left > 0) => {
                    return Err(OriginError::RequestBody(BodyError::Incomplete));
                }
                None => {
                    self.ended = true;
                    Next::End
                }
            };
            return Ok(Poll::Ready(next));
        }
    }
}

impl Head {
    fn expects_content(&self) -> bool {
        [Method::POST, Method::PUT, Method::PATCH].contains(&self.method)
    }
}

impl Stream {
    /// Takes so many bytes off what was announced.
    fn count(&mut self, length: usize) -> Result<(), OriginError> {
        if let Some(left) = &mut self.left {
            const TOO_LONG: OriginError =
                OriginError::RequestBody(BodyError::Malformed("longer than announced"));
            *left = left.checked_sub(length as u64).ok_or(TOO_LONG)?;
        }
        Ok(())
    }
}

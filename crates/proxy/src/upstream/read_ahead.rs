//! Reads the beginning of a request body before the request takes a permit of its origin group.
//!
//! An application server with one worker per connection is occupied by a slow upload. So a small body is read
//! completely before its request is sent, and a large one up to a limit. A body without a length may be a
//! conversation: it is read ahead only for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use microcache_engine::body::{Body, BodyError, Frame, Source};
use microcache_engine::origin::{OriginError, OriginRequest};
use microcache_policy::is_grpc;
use tokio::time::{Instant, timeout_at};

/// Read-ahead time of a gRPC body: most are a single message that comes with the head, the others are
/// conversations.
const CALL_WAIT: Duration = Duration::from_millis(10);

/// Memory bound of the bodies that a group reads ahead.
#[derive(Debug)]
pub(super) struct ReadAheadBudget {
    size: u64,
    used: AtomicU64,
}

/// Memory reserved in the budget, released on drop.
#[derive(Debug)]
pub(super) struct ReadAheadMemory {
    room: Arc<ReadAheadBudget>,
    bytes: u64,
}

/// Limits of reading ahead, per body.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAheadLimits {
    /// Limit of bytes.
    pub(super) bytes: usize,
    /// Time limit for a body without a length.
    pub(super) wait: Duration,
}

/// Progress of a body after reading ahead.
#[derive(Debug)]
pub(super) enum ReadAhead {
    /// The body is complete, and holds this memory until it is sent.
    Whole(Option<ReadAheadMemory>),
    /// More is to be received.
    InPart,
}

impl ReadAheadBudget {
    pub(super) fn new(size: u64) -> Arc<Self> {
        Arc::new(Self {
            size,
            used: AtomicU64::new(0),
        })
    }

    fn none_of(self: &Arc<Self>) -> ReadAheadMemory {
        ReadAheadMemory {
            room: Arc::clone(self),
            bytes: 0,
        }
    }
}

impl ReadAheadMemory {
    /// Reserves more bytes, if available.
    fn grow(&mut self, by: usize) -> bool {
        let by = by as u64;
        let used = self.room.used.fetch_add(by, Ordering::Relaxed) + by;
        let fits = used <= self.room.size;
        if fits {
            self.bytes += by;
        } else {
            self.room.used.fetch_sub(by, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for ReadAheadMemory {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads as much of the body as these limits allow, and puts it back in front of the rest. With `Expect:
/// 100-continue` nothing is read: the origin decides about the body.
pub(super) async fn read_ahead(
    request: &mut OriginRequest,
    bounds: ReadAheadLimits,
    room: &Arc<ReadAheadBudget>,
) -> Result<ReadAhead, OriginError> {
    if !matches!(request.body, Body::Stream(_)) {
        return Ok(ReadAhead::Whole(None));
    }
    if bounds.bytes == 0 || request.fields.fields().contains("expect") {
        return Ok(ReadAhead::InPart);
    }
    let rest = std::mem::replace(&mut request.body, Body::Empty);
    let mut reading = BodyReader {
        length: request.length,
        read: BytesMut::new(),
        held: room.none_of(),
        rest,
    };
    let media_type = request.fields.fields().get("content-type");
    let wait = if media_type.is_some_and(is_grpc) {
        bounds.wait.min(CALL_WAIT)
    } else {
        bounds.wait
    };
    let deadline = Instant::now() + wait;
    let unread = loop {
        let frame = match reading.length {
            Some(_) => reading.rest.frame().await,
            None => match timeout_at(deadline, reading.rest.frame()).await {
                Ok(frame) => frame,
                Err(_conversation) => break None,
            },
        };
        match frame.transpose().map_err(OriginError::RequestBody)? {
            Some(Frame::Data(data)) if reading.is_all(&data) => {
                request.body = Body::Full(data);
                return Ok(ReadAhead::Whole(None));
            }
            Some(Frame::Data(data)) => {
                if !reading.take(&data, bounds.bytes) {
                    break Some(Frame::Data(data));
                }
                if reading.length == Some(reading.read.len() as u64) {
                    return Ok(reading.whole(request));
                }
            }
            Some(Frame::Trailers(trailers)) => {
                reading.rest = Body::Empty;
                request.body = reading.into_body(Some(Frame::Trailers(trailers)));
                return Ok(ReadAhead::Whole(None));
            }
            None if reading.length.is_some() => {
                return Err(OriginError::RequestBody(BodyError::Incomplete));
            }
            None => return Ok(reading.whole(request)),
        }
    };
    request.body = reading.into_body(unread);
    Ok(ReadAhead::InPart)
}

/// A body that is being read ahead.
struct BodyReader {
    length: Option<u64>,
    read: BytesMut,
    held: ReadAheadMemory,
    rest: Body,
}

impl BodyReader {
    /// Returns true if this first piece is the whole body, so that it need not be copied.
    fn is_all(&self, data: &Bytes) -> bool {
        self.read.is_empty() && self.length == Some(data.len() as u64)
    }

    /// Takes a piece, if there is room for it. It is copied: small pieces would keep large read
    /// buffers alive.
    fn take(&mut self, data: &Bytes, limit: usize) -> bool {
        let room = limit.saturating_sub(self.read.len());
        let fits = data.len() <= room && self.held.grow(data.len());
        if fits {
            self.read.extend_from_slice(data);
        }
        fits
    }

    fn whole(self, request: &mut OriginRequest) -> ReadAhead {
        request.body = Body::Full(self.read.freeze());
        ReadAhead::Whole(Some(self.held))
    }

    fn into_body(self, unread: Option<Frame>) -> Body {
        Body::Stream(Box::new(PrefixedBody {
            read: Some((self.read.freeze(), self.held)).filter(|(read, _)| !read.is_empty()),
            unread,
            rest: self.rest,
        }))
    }
}

/// A body whose beginning was read: that first, then the rest.
struct PrefixedBody {
    read: Option<(Bytes, ReadAheadMemory)>,
    unread: Option<Frame>,
    rest: Body,
}

impl Source for PrefixedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some((read, _)) = self.read.take() {
            return Poll::Ready(Some(Ok(Frame::Data(read))));
        }
        if let Some(unread) = self.unread.take() {
            return Poll::Ready(Some(Ok(unread)));
        }
        self.rest.poll_frame(cx)
    }
}

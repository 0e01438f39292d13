//! State of a connection, and the ways out of its loop over hits.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BytesMut;
use microcache_engine::Response;
use microcache_policy::FieldIndex;
use microcache_wire::h1::BadRequest;

use super::deadline::ClientDeadline;
use super::head::ResponseFraming;
use super::pending::PendingRequest;
use super::send::OutputQueue;
use super::transport::ClientTransport;
use crate::admission::{Activity, ConnectionPermit};
use crate::session::{RequestAccount, Session};

/// Bytes read at a time; one read takes a burst of pipelined requests.
pub(super) const READ_SIZE: usize = 32 * 1024;
/// Size in bytes up to which a body is copied behind its head: one plain write is cheaper than a vectored one.
pub(super) const COPY: usize = 8 * 1024;

thread_local! {
    pub(super) static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        input: vec![0; READ_SIZE].into(),
        output: Vec::new(),
        index: FieldIndex::default(),
    });
}

/// Buffers that the connections of a thread share: each of them is used within one poll.
pub(super) struct Buffers {
    pub(super) input: Box<[u8]>,
    pub(super) output: Vec<u8>,
    /// Index of the head that is served.
    pub(super) index: FieldIndex,
}

/// A client connection that speaks HTTP/1, and HTTP/2 after its preface.
pub(crate) struct Connection {
    pub(super) stream: ClientTransport,
    pub(super) session: Session,
    /// Shared with the connection limits, which close idle connections.
    pub(super) activity: Arc<Activity>,
    /// Input that is not consumed yet; usually none.
    pub(super) input: BytesMut,
    pub(super) client_deadline: ClientDeadline,
    /// Number of requests so far.
    pub(super) requests: u64,
    /// The latest request is complete and announced that no other follows it (`Connection: close`).
    pub(super) is_last_request: bool,
    /// Admission of this connection; released on drop.
    pub(super) _permit: ConnectionPermit,
}

/// A response without an end that has ended after all, or will.
#[derive(Clone, Copy)]
pub(super) struct SentEndless {
    /// The connection can be reused.
    pub(super) go_on: bool,
    /// The request asked for an upgrade.
    pub(super) wanted_upgrade: bool,
}

/// Reason for leaving the loop over hits.
pub(super) enum HitLoopExit {
    /// The connection has sent an endless response.
    After(SentEndless),
    /// The client has left or timed out.
    Close,
    /// The socket takes no more for now, or the response needs more than a hit.
    Send(Box<OutputQueue>, AfterSend),
    /// The last response is sent.
    End,
    /// The request has to wait, usually for the origin.
    Ask(Box<PendingRequest>),
    /// The body is in a file.
    SendFile(Box<FileAnswer>),
    /// The request is malformed. `true` after a HEAD.
    Refuse(BadRequest, bool),
    /// The client speaks HTTP/2.
    Http2,
}

/// A response whose body is in a file.
pub(super) struct FileAnswer {
    pub(super) response: Response,
    pub(super) response_framing: ResponseFraming,
    pub(super) account: RequestAccount,
    /// Responses to earlier requests that the socket has not taken yet.
    pub(super) unsent: OutputQueue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterSend {
    Continue,
    Close,
}

impl HitLoopExit {
    /// Prepends the `unsent` responses to earlier requests.
    pub(super) fn after(self, unsent: OutputQueue) -> Self {
        match self {
            Self::Send(output, after) => Self::Send(Box::new(unsent.and(*output)), after),
            Self::Ask(mut pending) => {
                pending.unsent = unsent;
                Self::Ask(pending)
            }
            Self::SendFile(mut answer) => {
                answer.unsent = unsent;
                Self::SendFile(answer)
            }
            // If the earlier responses cannot be sent, neither can this one.
            Self::Refuse(..) | Self::End => Self::Send(Box::new(unsent), AfterSend::Close),
            Self::After(sent) => Self::After(sent),
            Self::Close => Self::Close,
            Self::Http2 => Self::Http2,
        }
    }
}

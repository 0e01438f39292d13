//! One stream: a request under way.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::AbortHandle;
use microcache_engine::Body;
use microcache_policy::{FieldsBuf, Time};

use super::flow::{Given, Window};
use super::priority::Priority;
use super::tunnel::ToOrigin;
use crate::lent::Loan;
use crate::room::Held;
use crate::session::{Account, Allowance, ContentSender};

/// A request under way.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct Stream {
    /// What of the response may be sent.
    pub(super) window: Window,
    /// What of the request's content may come.
    pub(super) given: Given,
    pub(super) priority: Priority,
    /// The client has not ended it yet.
    pub(super) is_open: bool,
    /// The request was an extended CONNECT (RFC 8441).
    pub(super) is_tunnel: bool,
    /// The request was a HEAD.
    pub(super) head_only: bool,
    /// What the client said of the length of its content, less what has come.
    pub(super) announced: Option<u64>,
    pub(super) content: Option<Content>,
    pub(super) answer: Answer,
    /// It goes on until somebody has enough.
    pub(super) is_endless: bool,
}

/// The content of a request, on its way to whoever wants it.
pub(super) struct Content {
    /// Away while there is no room for more.
    pub(super) sender: Option<Sink>,
    /// What has come and was not handed on; never more than the stream's window.
    pub(super) buffer: BytesMut,
    pub(super) trailers: Option<FieldsBuf>,
    pub(super) is_complete: bool,
    /// What was handed on and not yet taken.
    pub(super) handed_on: usize,
    pub(super) waits: Wait,
    /// Since when the client is waited for.
    pub(super) asked: Option<Time>,
    /// The client may be silent for so many milliseconds, however little it has sent: it is in a conversation.
    pub(super) silence: Option<u64>,
}

/// Whoever wants the content.
pub(super) enum Sink {
    /// The session, for a request.
    Request(ContentSender),
    /// The origin's connection, which has become the stream's.
    Tunnel(ToOrigin),
}

/// The answer to a request.
pub(super) enum Answer {
    /// It is waited for.
    Awaited(#[expect(dead_code, reason = "it ends with the stream")] Wait),
    /// It is being sent.
    Sending(Box<Sending>),
}

/// A response whose head was sent.
pub(super) struct Sending {
    /// Where the rest comes from; away while that is waited for.
    pub(super) body: Option<Body>,
    pub(super) waits: Wait,
    /// What comes next.
    pub(super) piece: Bytes,
    pub(super) end: End,
    pub(super) account: Account,
    pub(super) stall: Stall,
    /// When a client that takes little by little is given up, while others want what it holds, or a
    /// tunnel in which nothing moves.
    pub(super) deadline: Option<Time>,
    pub(super) is_tunnel: bool,
    /// What of the piece is held for this client alone.
    pub(super) is_held: bool,
    /// The source was told that its bytes are taken slowly.
    pub(super) is_held_up: bool,
    pub(super) _held: Held,
    pub(super) _loan: Option<Loan>,
}

/// What comes behind the piece that is sent.
pub(super) enum End {
    /// More of the body, or its end.
    Unknown,
    /// The end.
    Here,
    /// Trailers.
    Trailers(FieldsBuf),
}

/// Something that is waited for, and given up with what waits.
#[derive(Debug, Default)]
pub(super) struct Wait(Option<AbortHandle>);

impl Wait {
    pub(super) const fn until(handle: Option<AbortHandle>) -> Self {
        Self(handle)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.abort();
        }
    }
}

/// How long a client that opens no window is waited for. What it takes earns it time again, at the
/// slowest rate that is accepted: a window that is opened by a byte now and then is as good as none.
pub(super) struct Stall {
    since: Option<Time>,
    allowance: Allowance,
}

impl Stall {
    pub(super) fn new(most: Duration, rate: u64) -> Self {
        Self {
            since: None,
            allowance: Allowance::new(most, rate),
        }
    }

    /// Nothing can be sent from now on.
    pub(super) fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// So much was sent.
    pub(super) fn sent(&mut self, bytes: usize, now: Time) {
        if let Some(since) = self.since.take() {
            let waited = Duration::from_millis(now.since(since));
            self.allowance.received(bytes, waited);
        }
    }

    pub(super) const fn since(&self) -> Option<Time> {
        self.since
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let left = self.allowance.left().as_millis() as u64;
        self.since.map(|since| since.plus(left))
    }
}

impl Stream {
    /// Whether something of it can be sent, on a connection whose window is open or not.
    pub(super) fn is_ready(&self, connection_open: bool) -> bool {
        let Answer::Sending(sending) = &self.answer else {
            return false;
        };
        if sending.piece.is_empty() {
            !matches!(sending.end, End::Unknown)
        } else {
            connection_open && self.window.open() > 0
        }
    }

    pub(super) fn sending(&mut self) -> Option<&mut Sending> {
        match &mut self.answer {
            Answer::Sending(sending) => Some(sending),
            Answer::Awaited(_) => None,
        }
    }

    /// What of it is held for this client alone, in bytes of the window that the connection shares.
    pub(super) fn unread(&self) -> usize {
        let unread = |content: &Content| content.buffer.len() + content.handed_on;
        self.content.as_ref().map_or(0, unread)
    }
}

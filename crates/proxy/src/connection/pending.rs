//! Requests that outlive the buffer they were read from.

use microcache_wire::h1::{Framing, RequestHead};

use super::head::ResponseFraming;
use super::send::OutputQueue;
use crate::session::{AnnouncedContent, DeferredRequest};

/// A request under way.
pub(super) struct PendingRequest {
    pub(super) unanswered: DeferredRequest,
    /// `None`: there is no body.
    pub(super) framing: Framing,
    pub(super) expects_continue: bool,
    /// It asks for another protocol.
    pub(super) upgrade: bool,
    pub(super) response_framing: ResponseFraming,
    /// Responses to earlier requests that the socket has not taken yet.
    pub(super) unsent: OutputQueue,
}

impl PendingRequest {
    pub(super) fn new(
        unanswered: DeferredRequest,
        head: &RequestHead<'_>,
        has_body: bool,
        response_framing: ResponseFraming,
    ) -> Self {
        Self {
            unanswered,
            framing: if has_body {
                head.framing
            } else {
                Framing::None
            },
            expects_continue: head.expect_continue,
            upgrade: head.upgrade,
            response_framing,
            unsent: OutputQueue::default(),
        }
    }

    /// Returns length and expectation of the request's body; `None` without one.
    pub(super) fn announced(&self) -> Option<AnnouncedContent> {
        let length = match self.framing {
            Framing::None => return None,
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        Some(AnnouncedContent {
            length,
            expects_continue: self.expects_continue,
        })
    }
}

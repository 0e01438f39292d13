//! A request that outlives the buffer it was read from.

use super::head::Asked;
use super::send::Output;
use crate::h1::{Framing, RequestHead};
use crate::session::{Announced, Unanswered};

/// A request that is under way.
pub(super) struct Pending {
    pub(super) unanswered: Box<Unanswered>,
    /// `None`: there is no body.
    pub(super) framing: Framing,
    pub(super) expects_continue: bool,
    pub(super) asked: Asked,
    /// Answers to earlier requests that the socket has not taken yet.
    pub(super) unsent: Output,
}

impl Pending {
    pub(super) fn new(
        unanswered: Box<Unanswered>,
        head: &RequestHead<'_>,
        has_body: bool,
        asked: Asked,
    ) -> Self {
        Self {
            unanswered,
            framing: if has_body {
                head.framing
            } else {
                Framing::None
            },
            expects_continue: head.expect_continue,
            asked,
            unsent: Output::default(),
        }
    }

    /// What the request says of its body.
    pub(super) fn announced(&self) -> Option<Announced> {
        let length = match self.framing {
            Framing::None => return None,
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        Some(Announced {
            length,
            expects_continue: self.expects_continue,
        })
    }
}

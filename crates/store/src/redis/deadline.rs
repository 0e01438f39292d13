//! Deadlines of commands.

use std::time::Duration;

use tokio::time::Instant;

/// Time by which the reply to a command is needed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deadline {
    /// A request waits for the reply, and does without it afterwards. A slow server does not get the command.
    Request(Instant),
    /// No request waits.
    Background(Instant),
}

impl Deadline {
    pub(super) fn of_request(within: Duration) -> Self {
        Self::Request(Instant::now() + within)
    }

    pub(super) fn in_background(within: Duration) -> Self {
        Self::Background(Instant::now() + within)
    }

    pub(super) const fn at(self) -> Instant {
        match self {
            Self::Request(at) | Self::Background(at) => at,
        }
    }

    pub(super) const fn is_of_request(self) -> bool {
        matches!(self, Self::Request(_))
    }
}

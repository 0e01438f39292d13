//! The rest of a connection, as far as its streams use it.

use std::task::Context;

use microcache_policy::Time;

use crate::h2::outbound::Outbound;
use crate::session::Session;

/// Context of one poll for the streams: the waker, the time, the session and the output.
pub(in crate::h2) struct PollContext<'p, 'w> {
    pub(in crate::h2) cx: &'p mut Context<'w>,
    pub(in crate::h2) now: Time,
    pub(in crate::h2) session: &'p Session,
    pub(in crate::h2) out: &'p mut Outbound,
}

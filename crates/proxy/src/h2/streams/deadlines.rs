//! Timeouts of streams.

use microcache_engine::Body;
use microcache_policy::Time;

use super::stream::{ContentSink, Http2Stream, SendingResponse};
use super::{Http2Streams, PollContext};
use crate::h2::outbound::Outbound;
use crate::h2::reason::{ErrorCode, ProtocolError};

/// Milliseconds without progress after which the body's source is informed of a slow client.
const HELD_UP: u64 = 2000;

impl Http2Streams<'_> {
    /// Starts the write timeout of streams that a closed window blocks. Returns `true` if the connection's window
    /// blocks any.
    pub(in crate::h2) fn note_stalls(&mut self, now: Time, connection_open: bool) -> bool {
        let mut stalled = false;
        for (_, stream) in self.table.iter() {
            let is_open = stream.window.open() > 0;
            let Some(sending) = stream.sending() else {
                continue;
            };
            if sending.piece.is_empty() {
                continue;
            }
            if !is_open {
                sending.stall.begin(now);
            }
            stalled |= is_open && !connection_open;
        }
        stalled
    }

    /// Returns the earliest deadline of a stream.
    pub(in crate::h2) fn deadline(&mut self) -> Option<Time> {
        let of_streams = self.table.iter();
        of_streams.filter_map(|(_, stream)| deadline(stream)).min()
    }

    /// Handles passed deadlines of a stream. Fails if its client takes nothing.
    pub(in crate::h2) fn check_deadlines(
        &mut self,
        id: u32,
        now: Time,
        out: &mut Outbound,
    ) -> Result<(), ProtocolError> {
        let Some(stream) = self.table.get(id) else {
            return Ok(());
        };
        if content_deadline(stream).is_some_and(|it| now >= it) {
            self.content_is_late(id, out);
            return Ok(());
        }
        let Some(sending) = stream.sending() else {
            return Ok(());
        };
        if held_up_at(sending).is_some_and(|it| now >= it) {
            sending.is_held_up = true;
            sending.body.iter_mut().for_each(Body::notify_slow_reader);
        }
        let deadlines = [sending.stall.deadline(), sending.deadline];
        if deadlines.into_iter().flatten().any(|it| now >= it) {
            let what = "a flow-control window stays closed";
            return Err(ProtocolError::Stream(id, ErrorCode::Cancel, what));
        }
        Ok(())
    }

    /// Restarts the idle timeout of a tunnel.
    pub(super) fn moved_in_tunnel(&mut self, poll: &PollContext<'_, '_>, id: u32) {
        if let Some(sending) = self.table.get(id).and_then(|it| it.sending())
            && sending.is_tunnel
        {
            let span = poll.session.shared.timeouts.tunnel;
            sending.deadline = Some(poll.now.plus(span.as_millis() as u64));
        }
    }
}

/// Returns the deadline of a stream.
fn deadline(stream: &mut Http2Stream) -> Option<Time> {
    let content = content_deadline(stream);
    let Some(sending) = stream.sending() else {
        return content;
    };
    let of_sending = [
        held_up_at(sending),
        sending.stall.deadline(),
        sending.deadline,
    ];
    of_sending.into_iter().flatten().chain(content).min()
}

fn held_up_at(sending: &SendingResponse) -> Option<Time> {
    let since = sending.stall.since().filter(|_| !sending.is_held_up)?;
    sending.body.as_ref().map(|_| since.plus(HELD_UP))
}

/// Returns the read deadline of request content; `None` while the window is closed.
fn content_deadline(stream: &Http2Stream) -> Option<Time> {
    let content = stream.content.as_ref()?;
    let ContentSink::Request(sender) = content.sender.as_ref()? else {
        return None;
    };
    let left = || sender.allowance.left().as_millis() as u64;
    Some(
        content
            .awaited_since?
            .plus(content.silence.unwrap_or_else(left)),
    )
}

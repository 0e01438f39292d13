//! How long a client is waited for, whatever it is that it does not do.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;
use tokio::time::{Instant, Sleep, sleep};

use super::connection::{Connection, Leaving};
use super::reason::{Fault, Reason};
use super::stream::{Sending, Sink, Stream};

/// A client that has taken nothing for so long holds its body up.
const HELD_UP: u64 = 2000;

/// Rings no later than it is wanted to, and is moved only when it rings too early.
pub(super) struct Alarm {
    timer: Pin<Box<Sleep>>,
    /// When it rings, if it was wound.
    at: Option<Time>,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self {
            timer: Box::pin(sleep(Duration::MAX)),
            at: None,
        }
    }

    /// Ready once it is time.
    fn poll(&mut self, cx: &mut Context<'_>, deadline: Time, now: Time) -> Poll<()> {
        if now >= deadline {
            return Poll::Ready(());
        }
        if self.at.is_none_or(|at| at > deadline || at <= now) {
            let left = Duration::from_millis(deadline.since(now));
            self.timer.as_mut().reset(Instant::now() + left);
            self.at = Some(deadline);
        }
        let rung = self.timer.as_mut().poll(cx);
        if rung.is_ready() {
            self.at = None;
        }
        rung
    }
}

impl Connection<'_> {
    /// Ready when something was waited for long enough: whether the connection goes on then.
    pub(super) fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.note_stalls();
        loop {
            let Some(deadline) = self.deadline() else {
                return Poll::Pending;
            };
            if self.alarm.poll(cx, deadline, self.now).is_pending() {
                return Poll::Pending;
            }
            self.now = self.session.shared.engine.clock.now();
            if self.now >= deadline {
                return Poll::Ready(self.is_late());
            }
        }
    }

    /// Whatever could be sent if there were a window for it waits from now on.
    fn note_stalls(&mut self) {
        let (now, connection_open) = (self.now, self.window.open() > 0);
        let mut stalled = false;
        for (_, stream) in self.streams.iter() {
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
        if stalled {
            self.stall.begin(now);
        }
    }

    /// The first time at which somebody was waited for long enough.
    fn deadline(&mut self) -> Option<Time> {
        let timeouts = self.session.shared.timeouts;
        let after = |since: Option<Time>, span: Duration| {
            since.map(|since| since.plus(span.as_millis() as u64))
        };
        if self.leaving == Leaving::Over {
            return after(self.blocked, timeouts.write);
        }
        let body = timeouts.body.max(timeouts.head);
        let partial = if self.block.is_some() || self.streams.is_empty() {
            timeouts.head
        } else {
            body
        };
        let quiet = self.streams.is_empty().then_some(self.quiet);
        let of_connection = [
            self.last_call_at(),
            self.stall.deadline(),
            after(self.blocked, timeouts.write),
            after(self.partial, partial),
            after(quiet, timeouts.idle),
        ];
        let first = of_connection.into_iter().flatten().min();
        let of_streams = self
            .streams
            .iter()
            .filter_map(|(_, stream)| deadline(stream));
        first.into_iter().chain(of_streams).min()
    }

    /// Does what is to be done by now. Says whether the connection goes on.
    fn is_late(&mut self) -> bool {
        let (now, timeouts) = (self.now, self.session.shared.timeouts);
        let is_late = |since: Option<Time>, span: Duration| {
            since.is_some_and(|since| now >= since.plus(span.as_millis() as u64))
        };
        if is_late(self.blocked, timeouts.write) {
            return false;
        }
        if self.stall.deadline().is_some_and(|it| now >= it) {
            self.leave(
                Reason::EnhanceYourCalm,
                "the connection's window stays closed",
            );
            return true;
        }
        if self.last_call_at().is_some_and(|it| now >= it) {
            self.last_call();
        }
        let in_block = self.block.is_some() || self.streams.is_empty();
        if is_late(self.partial, timeouts.body.max(timeouts.head))
            || in_block && is_late(self.partial, timeouts.head)
        {
            self.leave(
                Reason::EnhanceYourCalm,
                "a frame that does not come to its end",
            );
            return true;
        }
        if self.streams.is_empty() && is_late(Some(self.quiet), timeouts.idle) {
            self.leave(Reason::NoError, "");
            return true;
        }
        self.late_streams();
        true
    }

    fn late_streams(&mut self) {
        let now = self.now;
        for id in self.streams.ids() {
            let Some(stream) = self.streams.get(id) else {
                continue;
            };
            if content_deadline(stream).is_some_and(|it| now >= it) {
                self.content_is_late(id);
                continue;
            }
            let Some(sending) = stream.sending() else {
                continue;
            };
            if held_up_at(sending).is_some_and(|it| now >= it) {
                sending.is_held_up = true;
                sending
                    .body
                    .iter_mut()
                    .for_each(microcache_engine::Body::is_held_up);
            }
            let deadlines = [sending.stall.deadline(), sending.deadline];
            if deadlines.into_iter().flatten().any(|it| now >= it) {
                let what = "a window that stays closed";
                self.fail(Fault::Stream(id, Reason::Cancel, what));
            }
        }
    }
}

/// When somebody was waited for long enough on a stream.
fn deadline(stream: &mut Stream) -> Option<Time> {
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

fn held_up_at(sending: &Sending) -> Option<Time> {
    let since = sending.stall.since().filter(|_| !sending.is_held_up)?;
    sending.body.as_ref().map(|_| since.plus(HELD_UP))
}

/// When a client that sends no content was waited for long enough. While its window is closed it is not
/// waited for.
fn content_deadline(stream: &Stream) -> Option<Time> {
    let content = stream.content.as_ref()?;
    let Sink::Request(sender) = content.sender.as_ref()? else {
        return None;
    };
    let left = || sender.allowance.left().as_millis() as u64;
    Some(content.asked?.plus(content.silence.unwrap_or_else(left)))
}

//! The stop of a server, by a signal or through its handle.

use std::future::pending;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::signals::{Signals, StopSignal};
use super::threads::ServeThreads;
use crate::control::{Handle, ServerStage};
use crate::observe::Kind;

/// Progress of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownPhase {
    NotBegun,
    /// Not ready any more, but still serving until then.
    Delayed(Instant),
    /// Draining.
    Draining,
}

/// Waits for the signal to stop, or for the threads to end, and stops accepting after `drain_delay`. A thread that ends
/// by itself stops the server too: clients in its accept queue would wait for ever. Returns true after a second
/// signal, which skips draining.
pub(super) async fn wait_for_stop(
    handle: &Handle,
    stop: &watch::Sender<bool>,
    mut signals: Signals,
    threads: &ServeThreads,
    tell: &impl Fn(ServerStage),
) -> bool {
    let shared = &handle.active();
    let mut ending = ShutdownPhase::NotBegun;
    loop {
        let delay_is_over = async {
            match ending {
                ShutdownPhase::Delayed(until) => sleep_until(until).await,
                ShutdownPhase::NotBegun | ShutdownPhase::Draining => pending().await,
            }
        };
        let mut thread_ended = false;
        let signal = tokio::select! {
            signal = signals.next(&shared.notices) => Some(signal),
            () = shared.lifecycle.stop_requested() => None,
            () = delay_is_over => None,
            () = stop.closed() => return false,
            () = threads.first_end(), if ending != ShutdownPhase::Draining => {
                thread_ended = true;
                None
            }
        };
        if ending == ShutdownPhase::Draining {
            // An upgrade in progress at the first signal requests a stop, too.
            if signal.is_none() {
                continue;
            }
            shared.notices.say(Kind::Server, "", "stopped at once");
            return true;
        }
        let is_first = ending == ShutdownPhase::NotBegun;
        // After a handover the service continues in another process.
        if is_first && !shared.lifecycle.is_replaced() {
            tell(ServerStage::Stopping);
        }
        let delay = handle.config().timeouts.drain_delay;
        if thread_ended {
            let line = "a serving thread ended by itself: the server exits with an error, for its supervisor to \
                        start it again";
            shared.notices.say(Kind::Server, "", line);
        }
        let is_delayed = is_first
            && !thread_ended
            && !delay.is_zero()
            && !shared.lifecycle.is_replaced()
            && signal != Some(StopSignal::Interrupt);
        ending = if is_delayed {
            shared.lifecycle.leave();
            let line = format!(
                "no longer ready; new connections are accepted for another {delay:?} (drain_delay); a second \
                 signal ends the delay"
            );
            shared.notices.say(Kind::Server, "", line);
            ShutdownPhase::Delayed(Instant::now() + delay)
        } else {
            let line = "finishing the requests in progress; a second signal stops at once";
            shared.notices.say(Kind::Server, "", line);
            shared.lifecycle.drain(shared.engine.clock.now());
            stop.send_replace(true);
            ShutdownPhase::Draining
        };
    }
}

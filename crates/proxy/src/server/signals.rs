//! Unix signals. Handlers are installed at the start, so that none is missed.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::observe::{Kind, Notices};

/// Callback that reopens log files.
pub(super) type OnReopen = Box<dyn Fn() + Send + Sync>;

/// A signal to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSignal {
    Terminate,
    Interrupt,
}

/// Signals that stop the server, and those that would end the process without a handler.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user_1: Signal,
    on_reopen: Option<OnReopen>,
}

impl Signals {
    pub(super) fn listen(on_reopen: Option<OnReopen>) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user_1: signal(SignalKind::user_defined1())?,
            on_reopen,
        })
    }

    /// Waits for the next signal to stop; logs the others.
    pub(super) async fn next(&mut self, notices: &Notices) -> StopSignal {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return StopSignal::Terminate,
                _ = self.interrupt.recv() => return StopSignal::Interrupt,
                _ = self.user_1.recv() => {}
            }
            if let Some(reopen) = &self.on_reopen {
                reopen();
            } else {
                let line = "SIGUSR1 is ignored: there are no log files to reopen";
                notices.say(Kind::Server, "SIGUSR1", line);
            }
        }
    }
}

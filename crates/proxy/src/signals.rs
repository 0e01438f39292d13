//! The signals that a server is sent. Listened for from the start, so that none is missed.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::notices::{Kind, Notices};

/// What opens log files anew.
pub(crate) type OnReopen = Box<dyn Fn() + Send + Sync>;

/// A signal to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopSignal {
    Terminate,
    Interrupt,
}

/// The signals to stop, and those that mean something only to some servers and would end the process if
/// nobody listened.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user_1: Signal,
    on_reopen: Option<OnReopen>,
}

impl Signals {
    pub(crate) fn listen(on_reopen: Option<OnReopen>) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user_1: signal(SignalKind::user_defined1())?,
            on_reopen,
        })
    }

    /// The next signal to stop.
    pub(crate) async fn next(&mut self, notices: &Notices) -> StopSignal {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return StopSignal::Terminate,
                _ = self.interrupt.recv() => return StopSignal::Interrupt,
                _ = self.user_1.recv() => {}
            }
            if let Some(reopen) = &self.on_reopen {
                reopen();
            } else {
                let line = "SIGUSR1 has no meaning here yet and is ignored";
                notices.say(Kind::Server, "SIGUSR1", line);
            }
        }
    }
}

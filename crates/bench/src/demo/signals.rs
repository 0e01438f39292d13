//! SIGINT, SIGTERM and SIGHUP handling of the demonstration.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::load::Stop;

/// Receiver of termination signals.
pub(super) struct TerminationSignals {
    stop: Stop,
    /// Disconnected by the first termination signal.
    signalled: Receiver<()>,
}

impl TerminationSignals {
    /// Installs the handlers: from here on the signals no longer end the process by themselves.
    ///
    /// # Errors
    ///
    /// Failure to start the signal thread or to register a handler.
    pub(super) fn watch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (mut interrupt, mut terminate, mut hangup) = {
            let _within = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            )
        };
        let stop = Stop::default();
        let (guard, signalled) = channel::<()>();
        let on_signal = stop.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                });
                on_signal.stop();
                drop(guard);
            })?;
        Ok(Self { stop, signalled })
    }

    /// Handle that stops a load on the first signal.
    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    pub(super) fn is_set(&self) -> bool {
        self.stop.is_set()
    }

    /// Blocks until the first termination signal.
    pub(super) fn wait(&self) {
        let _ = self.signalled.recv();
    }
}
